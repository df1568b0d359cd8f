//! Metrics of ambient mode. They have the names of Istio's agent where it has such a metric, so that existing dashboards and
//! alerts work. Without ambient mode all stay 0.

use super::{Label, Metrics, counter, counters, gauge};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use weir_core::journal::ambient::{Event, Member, Proxy, State};
use weir_ebpf::events::Reason;
use weir_live::Answer;

#[derive(Clone)]
pub(super) struct Ambient {
    requests: Family<Label, Counter>,
    reconciled: Family<Label, Counter>,
    connections: Gauge,
    pods: Family<Label, Gauge>,
    healed: Family<Label, Counter>,
    proved: Family<Label, Counter>,
    contention: Counter,
    refused: Counter,
    host: Gauge,
    host_healed: Family<Label, Counter>,
    packets: Family<Label, Counter>,
    packets_not_reported: Counter,
}

impl Ambient {
    pub(super) fn register(r: &mut Registry) -> Self {
        let pods = Family::<Label, Gauge>::default();
        for state in State::ALL {
            drop(pods.get_or_create(&[("state", state.name())]));
        }
        let name = "weir_ambient_pods";
        r.register(name, "Pods of ambient mode, by state", pods.clone());
        Self {
            requests: counters(
                r,
                "istio_cni_plugin_requests",
                "Ambient pods that the plugin handed over, by response code",
                "response_code",
                &["200", "400", "500"],
            ),
            reconciled: counters(
                r,
                "nodeagent_reconcile_events",
                "Processed events of pods and namespaces, by type",
                "type",
                &["add", "update", "delete", "unknown"],
            ),
            connections: gauge(r, "ztunnel_connected", "Connections of ztunnel"),
            pods,
            healed: counters(
                r,
                "weir_ambient_healed",
                "Pods of ambient mode whose rules another writer had changed, by cause",
                "cause",
                &["missing", "changed"],
            ),
            proved: counters(
                r,
                "weir_ambient_proved",
                "Proofs of redirection by a connection, by answer, with WEIR_LIVE_PROOF",
                "answer",
                &["yes", "unknown", "no"],
            ),
            contention: counter(
                r,
                "weir_ambient_contention",
                "Repairs that were delayed because another writer keeps reverting the rules of a pod",
            ),
            refused: counter(
                r,
                "weir_ambient_refused",
                "Pods that ztunnel refused, and snapshots whose end it refused",
            ),
            host: gauge(
                r,
                "weir_ambient_host_ready",
                "1 while the rules of the host for probes of ambient pods are in force",
            ),
            host_healed: counters(
                r,
                "weir_ambient_host_healed",
                "Repairs of the host's rules for probes, or of redirection at the node, after a change by another writer",
                "purpose",
                &["probes", "capture"],
            ),
            packets: counters(
                r,
                "weir_ambient_packets",
                "Packets that eBPF programs reported, by reason: dropped ones, and with WEIR_EBPF_EVENTS=all the first packets of captured and passed connections",
                "reason",
                &Reason::all().map(Reason::name).collect::<Vec<_>>(),
            ),
            packets_not_reported: counter(
                r,
                "weir_ambient_packets_not_reported",
                "Packets that eBPF programs did not report: more than ten per second in a namespace, or a full buffer",
            ),
        }
    }
}

impl Metrics {
    pub(super) fn of_ambient(&self, event: &Event) {
        let ambient = &self.ambient;
        match event {
            Event::Members { members } => self.members(members),
            Event::Reconciled { kind } => {
                _ = ambient.reconciled.get_or_create(&[("type", kind)]).inc();
            }
            Event::HandedOver { status, .. } => {
                let code = match status {
                    200 => "200",
                    400 => "400",
                    _ => "500",
                };
                let label = [("response_code", code)];
                ambient.requests.get_or_create(&label).inc();
            }
            Event::Healed(healed) if healed.is_new => {
                let label = [("cause", healed.repair.cause.name())];
                ambient.healed.get_or_create(&label).inc();
            }
            Event::Proved { proof, .. } => {
                let answer = match proof.answer() {
                    Answer::Yes => "yes",
                    Answer::Unknown => "unknown",
                    Answer::No => "no",
                };
                ambient.proved.get_or_create(&[("answer", answer)]).inc();
            }
            Event::Contention(_) => _ = ambient.contention.inc(),
            Event::Proxy(Proxy::Connections(count)) => {
                let count = i64::try_from(*count).unwrap_or(i64::MAX);
                ambient.connections.set(count);
            }
            Event::Proxy(Proxy::Refused { .. } | Proxy::SnapshotRefused { .. }) => {
                _ = ambient.refused.inc();
            }
            Event::Host {
                purpose,
                failure,
                healed,
                ..
            } => {
                ambient.host.set(i64::from(failure.is_none()));
                if healed.is_some() {
                    let label = [("purpose", purpose.name())];
                    ambient.host_healed.get_or_create(&label).inc();
                }
            }
            Event::Packet(packet) => {
                let label = [("reason", packet.reason)];
                ambient.packets.get_or_create(&label).inc();
            }
            Event::PacketsNotReported { more } => {
                _ = ambient.packets_not_reported.inc_by(*more);
            }
            _ => {}
        }
    }

    fn members(&self, members: &[Member]) {
        for state in State::ALL {
            let count = members.iter().filter(|m| m.state == state).count();
            let count = i64::try_from(count).unwrap_or(i64::MAX);
            let label = [("state", state.name())];
            self.ambient.pods.get_or_create(&label).set(count);
        }
    }
}
