//! What is said of ambient mode.

use super::{Event, Packet, Proxy, Purpose, State};
use crate::journal::About;
use crate::journal::pod::PodRef;
use weir_cni::log::Level::{self, Debug, Info, Warn};
use weir_cni::log::count;
use weir_live::{Answer, Proof};

impl Event {
    pub(in crate::journal) fn about(&self) -> About {
        match self {
            Self::Members { .. } => About::silent("ambient_members"),
            Self::Reconciled { .. } => About::silent("ambient_reconciled"),
            Self::Turned { pod, from, to, why } => turned(pod, *from, *to, why.as_deref()),
            Self::Enrolled {
                pod,
                summary,
                is_taken,
                took,
            } => {
                let (name, does) = match is_taken {
                    true => ("ambient_enrolled", "is enrolled in ambient mode"),
                    false => ("ambient_redirected", "is redirected, waits for ztunnel"),
                };
                About::of_pod(Info, name, pod, format!("{does}: {summary}"), None)
                    .with("milliseconds", took.as_millis())
            }
            Self::Proved { pod, proof } => proved(pod, proof),
            Self::Healed(healed) => {
                let name = match healed.failed {
                    false => "ambient_healed",
                    true => "ambient_not_healed",
                };
                healed.about(name, "captured as it should be")
            }
            Self::Contention(contention) => contention.about("ambient_contention"),
            Self::NotAnnotated { pod, why } => {
                let does = format!("cannot be annotated: {why}; it is retried");
                About::of_pod(Warn, "ambient_not_annotated", pod, does, None)
            }
            Self::AddressesAbsent { pod, absent } => {
                let absent: Vec<String> = absent.iter().map(ToString::to_string).collect();
                let does = format!(
                    "is enrolled without addresses of the previous plugin's result that its namespace does not have: {}",
                    absent.join(", ")
                );
                About::of_pod(Info, "ambient_addresses_absent", pod, does, None)
            }
            Self::AnnotationIgnored { pod, what } => {
                let does = format!("is enrolled without what it asks for: {what}");
                About::of_pod(Warn, "ambient_annotation_ignored", pod, does, None)
            }
            Self::HandedOver { status, pod, why } => match why {
                None => About::new(
                    Debug,
                    "ambient_handed_over",
                    format!("pod {pod} was handed over by the plugin"),
                ),
                Some(why) if *status == 200 => {
                    let text = format!(
                        "pod {pod} was handed over by the plugin, and is not enrolled: {why}; the plugin has other settings"
                    );
                    About::new(Warn, "ambient_handed_over", text)
                }
                Some(why) => {
                    let text =
                        format!("pod {pod} was handed over by the plugin, and is refused: {why}");
                    About::new(Warn, "ambient_hand_over_refused", text)
                }
            }
            .with("status", status),
            Self::Proxy(proxy) => of_proxy(proxy),
            Self::Host { quiet: true, .. } => About::silent("ambient_host"),
            Self::Host {
                purpose,
                failure,
                healed,
                ..
            } => of_host(*purpose, failure.as_deref(), healed.as_deref()),
            Self::NotShared { why } => {
                let text =
                    format!("cannot say in {why} whether a proxy is ready; it is retried");
                About::new(Warn, "ambient_config_not_written", text)
            }
            Self::RoutingReports { failure } => of_routing(failure.as_deref()),
            Self::RoutingReportsLost => About::new(
                Info,
                "ambient_routing_reports_lost",
                "the kernel did not report all changes of the node's routing: all of it is compared",
            ),
            Self::Packet(packet) => of_packet(packet),
            Self::PacketsNotReported { .. } => About::silent("ambient_packets_not_reported"),
            Self::PacketReports { failure } => of_reports(failure.as_deref()),
            Self::NodeCleaned { what } => {
                let text = format!("removed what an agent before had at the node: {what}");
                About::new(Info, "ambient_node_cleaned", text)
            }
            Self::NodeNotCleaned { why } => {
                let text = format!(
                    "what an agent in ambient mode left at the node may be in force still: {why}; it is retried, as weir \
                     uninstall does"
                );
                About::new(Warn, "ambient_node_not_cleaned", text)
            }
        }
    }
}

fn of_host(purpose: Purpose, failure: Option<&str>, healed: Option<&str>) -> About {
    let (fails, what) = match purpose {
        Purpose::Probes => (
            "probes of the kubelet do not reach pods of ambient mode",
            "the rules of the host for probes of the kubelet",
        ),
        Purpose::ProbesByPrograms => (
            "probes of the kubelet do not reach pods of ambient mode",
            "what pods redirected by eBPF need of the host for probes of the kubelet",
        ),
        Purpose::Capture => (
            "pods of ambient mode are not captured at the node as they should be",
            "the rules and routes of the node that capture pods",
        ),
    };
    match (failure, healed) {
        (Some(why), _) => {
            let text = format!("{fails}: {why}; it is retried");
            About::new(Level::Error, "ambient_host", text)
        }
        (None, Some(change)) => {
            let text = format!("{what} were not as they should be, and are now: {change}");
            About::new(Warn, "ambient_host_healed", text)
        }
        (None, None) => {
            let verb = match purpose {
                Purpose::ProbesByPrograms => "is there",
                Purpose::Probes | Purpose::Capture => "are in force",
            };
            About::new(Info, "ambient_host", format!("{what} {verb}"))
        }
    }
}

fn of_packet(packet: &Packet) -> About {
    let Some(more) = packet.more else {
        return About::silent("ambient_packet");
    };
    let of = match &packet.pod {
        Some(pod) => format!("a packet of pod {pod}"),
        None => format!("a packet in the network namespace {}", packet.netns),
    };
    let more = match more {
        0 => String::new(),
        more => format!("; {more} more of this kind since it was told last"),
    };
    let level = if packet.dropped { Warn } else { Info };
    let about = About::new(
        level,
        "ambient_packet",
        format!("{of}, {}{more}", packet.what),
    );
    let about = packet.pod.iter().fold(about, About::pod);
    about
        .with("verdict", packet.verdict)
        .with("reason", packet.reason)
}

fn of_reports(failure: Option<&str>) -> About {
    let name = "ambient_packet_reports";
    match failure {
        None => About::new(
            Info,
            name,
            "programs of eBPF report what they do to packets",
        ),
        Some(why) => {
            let text = format!(
                "what programs of eBPF do to packets is not reported: {why}; it is counted (weir show --engine bpf)"
            );
            About::new(Warn, name, text)
        }
    }
}

fn of_routing(failure: Option<&str>) -> About {
    let name = "ambient_routing_reports";
    match failure {
        None => About::new(Info, name, "changes of the node's routing are reported"),
        Some(why) => {
            let text = format!(
                "changes of the node's routing are not reported: {why}; until they are again they are found later"
            );
            About::new(Warn, name, text)
        }
    }
}

fn proved(pod: &PodRef, proof: &Proof) -> About {
    let first = proof.reason().unwrap_or_default();
    let (level, does, reason) = match proof.answer() {
        Answer::Yes => (
            Debug,
            "is redirected: every connection landed as expected".to_owned(),
            None,
        ),
        Answer::Unknown => (
            Info,
            format!("cannot be proved to be redirected: {first}"),
            None,
        ),
        Answer::No => (
            Level::Error,
            format!("is not redirected, although its rules are in force: {first}"),
            Some("RedirectionNotProved"),
        ),
    };
    About::of_pod(level, "ambient_proved", pod, does, reason)
        .with("answer", proof.answer())
        .with("connections", proof.checks.len())
}

fn turned(pod: &PodRef, from: Option<State>, to: Option<State>, why: Option<&str>) -> About {
    let why = why.map(|why| format!(": {why}")).unwrap_or_default();
    let (level, reason) = match to {
        Some(State::Failed) => (Warn, Some("AmbientEnrolmentFailed")),
        Some(State::Conflict) => (Warn, Some("RedirectionConflict")),
        Some(State::Pending) => (Warn, None),
        // Something about it is not known.
        Some(State::Enrolled) if !why.is_empty() => (Warn, None),
        // What it waited for has come.
        Some(State::Enrolled) if from == Some(State::Pending) => (Info, None),
        // Its traffic passes the mesh by from now on, because of a setting.
        None if !why.is_empty() => (Warn, None),
        None => (Info, None),
        // It takes long, or something of it is left.
        Some(State::Enrolling | State::Leaving) if !why.is_empty() => (Info, None),
        _ => (Debug, None),
    };
    let does = match to {
        Some(State::Failed) => {
            format!("cannot be enrolled in ambient mode{why}; it is retried")
        }
        Some(State::Conflict) => {
            format!("is enrolled in ambient mode, and not surely redirected{why}")
        }
        Some(State::Leaving) if !why.is_empty() => {
            format!("leaves ambient mode, and has not left it yet{why}")
        }
        Some(state) => format!("is {} in ambient mode{why}", state.name()),
        None => format!("has left ambient mode{why}"),
    };
    let name = |state: Option<State>| state.map_or("none", State::name);
    About::of_pod(level, "ambient_state", pod, does, reason)
        .with("from", name(from))
        .with("to", name(to))
}

fn of_proxy(proxy: &Proxy) -> About {
    let (level, name, text) = match proxy {
        Proxy::Connections(n) => (
            Info,
            "ztunnel_connected",
            format!("ztunnel has {}", count(*n, "connection")),
        ),
        Proxy::Peers(_) => return About::silent("ztunnel_peers"),
        Proxy::Snapshot { added, kept } => (
            Info,
            "ztunnel_snapshot",
            format!("ztunnel has taken all pods: {added} with their namespace, {kept} to be kept"),
        ),
        Proxy::SnapshotRefused { why } => (
            Warn,
            "ztunnel_snapshot_refused",
            format!(
                "ztunnel refuses the end of the list of all pods: {why}; it stays connected, and may keep pods that are gone"
            ),
        ),
        // It is told as the reason why the pod is pending or failed, once.
        Proxy::Refused { uid, why } => (
            Debug,
            "ztunnel_refused",
            format!("ztunnel refuses the pod with the UID {uid}: {why}"),
        ),
        Proxy::Closed { why } => (
            Info,
            "ztunnel_closed",
            format!("a connection of ztunnel ended: {why}"),
        ),
        Proxy::Stranger { why } => (
            Warn,
            "ztunnel_stranger",
            format!("a connection to the socket of ztunnel was refused: {why}"),
        ),
        Proxy::Socket { failure: None } => (
            Info,
            "ztunnel_socket",
            "the socket of ztunnel is bound".to_owned(),
        ),
        Proxy::Socket { failure: Some(why) } => (
            Level::Error,
            "ztunnel_socket",
            format!("the socket of ztunnel cannot be bound: {why}; no pod is enrolled until it is"),
        ),
    };
    About::new(level, name, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Kubernetes is told of what has failed, and the log also of what takes long or is not done yet.
    #[test]
    fn what_takes_long_is_told_and_is_no_failure() {
        let pod = PodRef {
            namespace: "shop".into(),
            name: "web".into(),
            uid: "1".into(),
            version: "7".into(),
        };
        let about = |to: State, why: Option<&str>| {
            let told = turned(&pod, None, Some(to), why);
            (told.level, told.notice.is_some())
        };
        for state in [State::Enrolling, State::Leaving] {
            assert_eq!(about(state, None), (Some(Debug), false));
            assert_eq!(about(state, Some("it takes long")), (Some(Info), false));
        }
        assert_eq!(about(State::Failed, Some("no")), (Some(Warn), true));
        let left = |why| turned(&pod, Some(State::Enrolled), None, why).level;
        assert_eq!(left(None), Some(Info));
        assert_eq!(left(Some("its namespace is excluded")), Some(Warn));
    }
}
