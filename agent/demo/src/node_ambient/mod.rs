//! `weir demo --node-ambient`: a throwaway node captures the traffic of an enrolled pod and routes it to its proxy.

mod lab;
mod stage;

use crate::addresses::service;
use crate::flow::{Flow, Protocol, Receiver};
use crate::interrupt;
use crate::redirection::{step, text};
use crate::run::Host;
use crate::table::{Table, Tone};
pub use lab::{Lab, Place};
use serde_json::{Value, json};
pub use stage::{Arrival, Stage};
use std::io::IsTerminal;
use std::net::SocketAddr;
use std::time::Instant;
use weir_cni::compile::Engine;
use weir_ebpf::Bpffs;
use weir_ebpf::node::Node as Programs;
use weir_netfilter::conntrack::{Conntrack, Transport, Tuple};
use weir_netlink::Netns;
use weir_netlink::route::AddressFamily;
use weir_node_ambient::{Config, apply, compare, ebpf, remove};

/// What captures at the node.
#[derive(Clone, Copy, Debug)]
pub enum Way<'a> {
    /// Rules, routes and tunnels; `None`: the engine that the kernel has.
    Rules(Option<Engine>),
    /// eBPF programs at the links, pinned in this file system.
    Programs(&'a Bpffs),
}

impl Way<'_> {
    /// Applies the redirection and verifies it; returns a description of the changes.
    fn apply(self, config: &Config, node: &Netns) -> Result<String, String> {
        let differs = || "the node differs from what was just applied".to_owned();
        match self {
            Self::Rules(engine) => {
                let change = apply(config, node, engine, false).map_err(text)?;
                let left = compare(config, node, engine).map_err(text)?;
                let done = format!(
                    "the node has {} changes (rules of {}), the proxy's namespace {}; the first packet of a connection goes by {}",
                    change.host.len(),
                    change.engine,
                    change.proxy.len(),
                    change.node.carrier
                );
                left.is_empty().then_some(done).ok_or_else(differs)
            }
            Self::Programs(bpffs) => {
                let change = ebpf::apply(config, node, bpffs).map_err(text)?;
                let left = ebpf::compare(config, node, bpffs).map_err(text)?;
                let done = format!(
                    "the node has {} changes, the proxy's namespace {}: programs, maps and no rule",
                    change.steps.host.len(),
                    change.steps.proxy.len(),
                );
                left.is_empty().then_some(done).ok_or_else(differs)
            }
        }
    }

    /// Removes the redirection twice; returns what the second call removed, which the first one had left.
    fn remove(self, config: &Config, node: &Netns) -> Result<Vec<String>, String> {
        let remove = || match self {
            Self::Rules(_) => remove(node, Some(config)).map_err(text),
            Self::Programs(bpffs) => {
                let removed = ebpf::remove(node, bpffs, Some(config)).map_err(text)?;
                Ok(removed.iter().map(text).collect())
            }
        };
        remove()?;
        remove()
    }

    /// Counters of the programs; `None` for rules.
    fn counted(self, node: &Netns) -> Option<Vec<(&'static str, u64)>> {
        match self {
            Self::Rules(_) => None,
            Self::Programs(bpffs) => Programs::of(node, bpffs).counters(),
        }
    }
}

/// A flow and its expected receivers.
struct Scene {
    from: Place,
    flow: Flow,
    captured: Option<Receiver>,
    reached: Option<Place>,
}

struct Watched {
    scene: Scene,
    arrival: Arrival,
    reason: String,
}

impl Watched {
    /// Whether the expected receivers got the flow, with the client's address and the original destination.
    fn is_good(&self) -> bool {
        let Arrival {
            captured,
            reached,
            sent_from,
            answered,
            ..
        } = &self.arrival;
        let (flow, client) = (&self.scene.flow, sent_from.map(|a| a.ip()));
        let knows = |to: &SocketAddr| flow.protocol == Protocol::Udp || *to == flow.to;
        *answered
            && captured.map(|(receiver, _)| receiver) == self.scene.captured
            && captured.is_none_or(|(_, to)| knows(&to))
            && reached.map(|(place, _)| place) == self.scene.reached
            && reached.is_none_or(|(_, from)| Some(from) == client)
    }
}

/// Runs the demonstration. Returns the output, and whether every flow was as expected and nothing is left behind.
///
/// # Errors
/// A description of what could not be created, and the remedy.
pub fn run(way: Way<'_>, as_json: bool, keep_going: bool) -> Result<(String, bool), String> {
    let start = Instant::now();
    interrupt::watch()?;
    let host = Host::look();
    step(
        "make a node, two pods, a proxy and the network outside, each in a network namespace of its own",
    );
    let lab = Lab::create().map_err(|e| match e.is_permission() {
        true => format!("the demonstration needs root (CAP_SYS_ADMIN and CAP_NET_ADMIN): {e}"),
        false => e.to_string(),
    })?;
    if let Way::Programs(bpffs) = way {
        // Only those whose links have lost their interfaces: a namespace may be kept alive by a descriptor alone.
        let swept = bpffs.sweep(|| None).map_err(text)?;
        if swept > 0 {
            step(&format!(
                "remove the pins of {swept} deleted network namespaces, as a killed demonstration leaves them"
            ));
        }
    }
    let (config, node) = (lab.config()?, lab.netns(Place::Node));
    step("capture the traffic of one pod at the node and route it to the proxy; verify");
    let watched = way.apply(&config, node).and_then(|done| {
        step(&format!("{done}; send traffic"));
        watch(&lab, &config, way, keep_going)
    });
    step("take the redirection away, then the namespaces");
    // Pins outlive the network namespaces, so remove them even after an error.
    let left = way.remove(&config, node);
    let (watched, mut left) = match (watched, left) {
        (Err(e), Err(left)) => return Err(format!("{e}; besides: {left}")),
        (watched, left) => (watched?, left?),
    };
    drop(lab);
    left.extend(host.compare(&Host::look()));
    let good = left.is_empty() && watched.iter().all(Watched::is_good);
    let printed = match as_json {
        true => format!("{:#}\n", to_json(&watched, &left, good)),
        false => to_text(&watched, &left, start.elapsed().as_secs_f32()),
    };
    Ok((printed, good))
}

fn watch(
    lab: &Lab,
    config: &Config,
    way: Way<'_>,
    keep_going: bool,
) -> Result<Vec<Watched>, String> {
    let node = lab.netns(Place::Node);
    let mut stage = Stage::open(lab, Place::Proxy).map_err(text)?;
    let mut watched = Vec::new();
    for scene in lab.families.iter().flat_map(|f| scenes(lab, *f)) {
        interrupt::check()?;
        let before = way.counted(node);
        let arrival = stage.send(scene.from, &scene.flow).map_err(text)?;
        let reason = match (before, way.counted(node)) {
            (Some(before), Some(after)) => counted(&before, &after),
            _ => reason(lab, config, &scene, &arrival),
        };
        let one = Watched {
            scene,
            arrival,
            reason,
        };
        let stop = !one.is_good() && !keep_going;
        watched.push(one);
        if stop {
            break;
        }
    }
    Ok(watched)
}

fn scenes(lab: &Lab, family: AddressFamily) -> Vec<Scene> {
    let at = |place, port| SocketAddr::new(lab.address(place, family), port);
    let service = |port| SocketAddr::new(service(family), port);
    let tcp =
        |name, from, to, captured, reached| (name, Protocol::Tcp, from, to, captured, reached);
    let udp =
        |name, to, captured, reached| (name, Protocol::Udp, Place::Web, to, captured, reached);
    use Place::{Node, Outside, Plain, Proxy, Web};
    use Receiver::{ProxyDns, ProxyInbound, ProxyOutbound, ProxyTunnel};
    [
        tcp(
            "pod to service",
            Web,
            service(80),
            Some(ProxyOutbound),
            Some(Outside),
        ),
        tcp(
            "pod to other pod",
            Web,
            at(Plain, 8080),
            Some(ProxyOutbound),
            Some(Plain),
        ),
        tcp(
            "other pod to pod",
            Plain,
            at(Web, 8080),
            Some(ProxyInbound),
            Some(Web),
        ),
        tcp(
            "outside to pod",
            Outside,
            at(Web, 8080),
            Some(ProxyInbound),
            Some(Web),
        ),
        tcp(
            "outside to pod by HBONE",
            Outside,
            at(Web, 15008),
            Some(ProxyTunnel),
            None,
        ),
        tcp("probe of the kubelet", Node, at(Web, 8080), None, Some(Web)),
        tcp("proxy to service", Proxy, service(80), None, Some(Outside)),
        tcp(
            "other pod to service",
            Plain,
            service(80),
            None,
            Some(Outside),
        ),
        udp("name query", service(53), Some(ProxyDns), None),
        udp("datagram to service", service(443), None, Some(Outside)),
    ]
    .into_iter()
    .map(|(name, protocol, from, to, captured, reached)| Scene {
        from,
        // `Flow` uses the places of the other lab; this one is ignored.
        flow: Flow::new(name, protocol, crate::Place::Pod, to),
        captured,
        reached,
    })
    .collect()
}

/// Lists the counters that increased.
fn counted(before: &[(&str, u64)], after: &[(&str, u64)]) -> String {
    let both = before.iter().zip(after);
    let more = both.filter(|((_, before), (_, after))| after > before);
    let names: Vec<&str> = more.map(|(_, (name, _))| *name).collect();
    match names.as_slice() {
        [] => "the programs counted nothing".to_owned(),
        names => format!("the programs counted: {}", names.join(", ")),
    }
}

/// Describes the decision of the node by the connection's mark in its connection tracking.
fn reason(lab: &Lab, config: &Config, scene: &Scene, arrival: &Arrival) -> String {
    let Some(source) = arrival.sent_from else {
        return String::new();
    };
    let tuple = Tuple {
        transport: match scene.flow.protocol {
            Protocol::Tcp => Transport::Tcp,
            Protocol::Udp => Transport::Udp,
        },
        source,
        destination: scene.flow.to,
    };
    let find = || Conntrack::open()?.find(&tuple, 0);
    let found = lab.netns(Place::Node).run(find).and_then(|found| found);
    let mark = match found {
        Ok(Some(entry)) => entry.mark,
        Ok(None) => return "the node does not track it".to_owned(),
        Err(e) => return format!("the kernel does not show connections: {e}"),
    };
    let marks = &config.marks;
    let why = match mark {
        mark if mark == marks.proxy => "the proxy answers with an address that is not its own",
        mark if mark == marks.conn_skip && scene.captured == Some(Receiver::ProxyDns) => {
            "only TCP is routed; the destination of DNS is translated to the proxy"
        }
        mark if mark == marks.conn_skip && scene.flow.protocol == Protocol::Udp => {
            "only TCP is routed to the proxy"
        }
        mark if mark == marks.conn_skip && scene.from == Place::Node => "the node itself sent it",
        mark if mark == marks.conn_skip => "the proxy sent it with its own address",
        0 => "neither side is enrolled",
        _ => "a mark of others",
    };
    format!("connection mark {mark:#x}: {why}")
}

/// Describes the arrival: the receivers (the proxy's listener, then the final one), the original destination seen by the proxy, and
/// the client address seen by the final receiver.
fn arrived(w: &Watched) -> [String; 3] {
    let Arrival {
        captured,
        reached,
        lost,
        ..
    } = &w.arrival;
    let captured_by = captured.map(|(receiver, _)| receiver.to_string());
    let place = reached.map(|(place, _)| match place {
        Place::Node => "node",
        Place::Web => "pod",
        Place::Plain => "other pod",
        Place::Proxy => "proxy",
        Place::Outside => "server outside",
    });
    let way = [captured_by.as_deref(), place];
    let mut way = way
        .into_iter()
        .flatten()
        .collect::<Vec<_>>()
        .join(", then ");
    if let Some(lost) = lost {
        way = format!("{} lost: {lost}", way).trim_start().to_owned();
    }
    let original = match w.scene.flow.protocol {
        Protocol::Tcp => captured.map_or("-".to_owned(), |(_, to)| to.to_string()),
        Protocol::Udp => "-".to_owned(),
    };
    let client = reached.map_or("-".to_owned(), |(_, from)| from.to_string());
    [way, original, client]
}

fn to_text(watched: &[Watched], left: &[String], seconds: f32) -> String {
    let colours = std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none();
    let heading = [
        "flow",
        "sent to",
        "received by",
        "original destination",
        "client seen",
        "",
        "why",
    ];
    let mut table = Table::new(&heading, colours);
    for w in watched {
        let (flow, [way, original, client]) = (&w.scene.flow, arrived(w));
        let (tone, fate) = match (w.is_good(), w.arrival.captured) {
            (false, _) => (Tone::Bad, "NOT AS EXPECTED"),
            (true, Some(_)) => (Tone::Good, "captured"),
            (true, None) => (Tone::Good, "bypassed"),
        };
        let cells = vec![
            flow.name.clone(),
            format!("{} {}", flow.protocol, flow.to),
            way,
            original,
            client,
            fate.to_owned(),
            w.reason.clone(),
        ];
        table.row(cells, tone);
    }
    let good = watched.iter().filter(|w| w.is_good()).count();
    let rest = match left {
        [] => "nothing is left behind: the node's rules, routes and links are gone, the host is as it was".to_owned(),
        left => format!("LEFT BEHIND: {}", left.join(", ")),
    };
    let all = watched.len();
    format!("\n{table}\n{good} of {all} flows went where they should, in {seconds:.1} s\n{rest}\n")
}

fn to_json(watched: &[Watched], left: &[String], good: bool) -> Value {
    let flow = |w: &Watched| {
        let (flow, [way, original, client]) = (&w.scene.flow, arrived(w));
        json!({
            "flow": flow.name,
            "protocol": flow.protocol.to_string(),
            "sentTo": flow.to.to_string(),
            "arrivedAt": way,
            "originalDestination": original,
            "clientSeen": client,
            "captured": w.arrival.captured.is_some(),
            "decidedBy": w.reason,
            "asExpected": w.is_good(),
        })
    };
    let flows: Vec<Value> = watched.iter().map(flow).collect();
    json!({ "ok": good, "flows": flows, "leftBehind": left })
}
