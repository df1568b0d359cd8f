//! Rules in the pod, programs in the pod, rules at the node and programs at the node decide alike about every flow: connections, datagrams,
//! also in fragments, and echo requests. Only the engines at the node have exclusions, with which they are compared alone.
//!
//! The test leaves out the intended differences: traffic of the node itself and of a pod to its node, which only the engines at the node
//! let pass; DNS over TCP, which rules in the pod send to ztunnel's DNS port; the path between two enrolled pods. For a captured query it
//! does not compare the source address that ztunnel receives.
//!
//! `WEIR_LONG` tries many cases, and `WEIR_SEED` repeats a run. Earlier failures are stored in `proptest-regressions` and run first.
// matrix: newest

use std::fmt::Write as _;
use std::net::SocketAddr;

use proptest::prelude::*;
use serde_json::json;
use weir_cni::compile::Engine;
use weir_demo::node_ambient::{Arrival, Lab, Place, Stage};
use weir_demo::{Flow, Protocol};
use weir_ebpf::Bpffs;
use weir_netlink::route::AddressFamily;
use weir_node_ambient::{CarrierChoice, Config, Exclude};
use weir_testing::BpfFs;

use crate::ambient::{redirect, wanted};
use crate::random::for_all;
use crate::{datagrams, ebpf};

/// The place and the means of the redirection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    RulesInPod(Engine),
    ProgramsInPod,
    RulesAtNode(Engine),
    ProgramsAtNode,
    FiltersAtNode,
}

pub(super) const WAYS: [Way; 7] = [
    Way::RulesInPod(Engine::Nft),
    Way::RulesInPod(Engine::Xtables),
    Way::ProgramsInPod,
    Way::RulesAtNode(Engine::Nft),
    Way::RulesAtNode(Engine::Xtables),
    Way::ProgramsAtNode,
    Way::FiltersAtNode,
];

impl Way {
    /// The place of ztunnel's sockets.
    pub(super) fn proxy(self) -> Place {
        match self {
            Self::RulesInPod(_) | Self::ProgramsInPod => Place::Web,
            _ => Place::Proxy,
        }
    }
}

/// The kind of traffic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// A connection, or a datagram.
    Flow(Protocol),
    /// A datagram in fragments.
    Fragments,
    /// An echo request, fragmented if true.
    Echo(bool),
}

/// One connection, datagram or echo request.
#[derive(Clone, Debug)]
struct Sent {
    kind: Kind,
    from: Place,
    to: Place,
    port: u16,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Case {
    pub(super) dns: bool,
    pub(super) carrier: CarrierChoice,
    exclude: Exclude,
    sent: Vec<Sent>,
}

impl Case {
    /// The engines in the pod support no exclusions.
    fn ways(&self) -> Vec<Way> {
        let is_at_node = |way: &Way| !matches!(way, Way::RulesInPod(_) | Way::ProgramsInPod);
        let ways = WAYS.into_iter();
        ways.filter(|way| self.exclude.is_empty() || is_at_node(way))
            .collect()
    }
}

fn sent() -> impl Strategy<Value = Sent> {
    use Place::{Outside, Plain, Web};
    let ends = prop_oneof![
        Just((Web, Outside)),
        Just((Web, Plain)),
        Just((Plain, Web)),
        Just((Outside, Web)),
        Just((Plain, Outside)),
    ];
    let port = prop_oneof![
        3 => prop::sample::select(vec![80, 443, 8080, 15_008, 15_020, 15_021, 15_053]),
        1 => Just(53),
        // Larger numbers are the source ports of flows.
        3 => 1..20_000_u16,
    ];
    let kind = prop_oneof![
        6 => Just(Kind::Flow(Protocol::Tcp)),
        2 => Just(Kind::Flow(Protocol::Udp)),
        1 => Just(Kind::Fragments),
        1 => any::<bool>().prop_map(Kind::Echo),
    ];
    let all = (kind, ends, port).prop_map(|(kind, (from, to), port)| Sent {
        kind,
        from,
        to,
        port,
    });
    all.prop_filter("not alike, or a port of ztunnel's own", |sent| {
        let into_pod = sent.to == Web;
        match (sent.kind, sent.port) {
            (Kind::Flow(Protocol::Tcp), 53) => false,
            // If the proxy is in the pod, some of the pod's ports belong to it.
            (_, 15_001 | 15_006 | 15_053) => !into_pod,
            (Kind::Flow(Protocol::Udp), 53) => !into_pod,
            _ => true,
        }
    })
}

/// Networks that equal or contain those of the places and of the service; ports of [`sent`].
fn exclusions() -> impl Strategy<Value = Exclude> {
    const NETS: [&str; 14] = [
        "0.0.0.0/0",
        "10.0.0.0/8",
        "10.96.0.0/16",
        "10.96.0.10/32",
        "10.244.0.0/16",
        "10.244.2.0/24",
        "10.244.4.10/32",
        "::/0",
        "::ffff:10.244.0.0/112",
        "fd00:10::/32",
        "fd00:10:96::/48",
        "fd00:10:96::10/128",
        "fd00:10:244:2::/64",
        "fd00:10:244:4::10/128",
    ];
    // Each network is in no list, excluded, or an exception.
    let nets = prop::collection::vec(0..5_u8, NETS.len());
    let ports =
        || prop::collection::btree_set(prop::sample::select(vec![80, 443, 8080, 15_020]), 0..3);
    let some = (nets, ports(), ports()).prop_map(|(places, outbound_ports, inbound_ports)| {
        let of = |place: u8| -> Vec<_> {
            let all = NETS.iter().zip(&places);
            let all = all.filter(|(_, there)| **there == place);
            all.map(|(net, _)| net.parse().expect("a network"))
                .collect()
        };
        Exclude {
            peers: of(1),
            except: of(2),
            outbound_ports,
            inbound_ports,
        }
    });
    prop_oneof![1 => Just(Exclude::default()), 1 => some]
}

fn cases() -> impl Strategy<Value = Case> {
    // The kernel may have no tunnels.
    let carrier = prop_oneof![Just(CarrierChoice::Auto), Just(CarrierChoice::Veth)];
    let sent = prop::collection::vec(sent(), 12);
    let all = (any::<bool>(), carrier, exclusions(), sent);
    all.prop_map(|(dns, carrier, exclude, sent)| Case {
        dns,
        carrier,
        exclude,
        sent,
    })
}

pub(super) fn apply(way: Way, case: &Case, lab: &Lab, mounted: &BpfFs) -> Result<(), String> {
    let (pod, node) = (lab.netns(Place::Web), lab.netns(Place::Node));
    let config = Config {
        dns_capture: case.dns,
        carrier: case.carrier,
        exclude: case.exclude.clone(),
        ..lab.config()?
    };
    let bpffs = || Bpffs::at(mounted.path()).map_err(|e| e.to_string());
    let programs = |bpffs: &Bpffs| {
        let applied = weir_node_ambient::ebpf::apply(&config, node, bpffs);
        applied.map(drop).map_err(|e| e.to_string())
    };
    match way {
        Way::RulesInPod(engine) => redirect(pod, engine, case.dns, &json!({})),
        Way::ProgramsInPod => ebpf::redirect(mounted, pod, &wanted(case.dns, &json!({}))),
        Way::RulesAtNode(engine) => {
            let applied = weir_node_ambient::apply(&config, node, Some(engine), false);
            applied.map_err(|e| e.to_string())?;
        }
        Way::ProgramsAtNode => programs(&bpffs()?)?,
        Way::FiltersAtNode => programs(&bpffs()?.by_filters())?,
    }
    Ok(())
}

fn decision(protocol: Protocol, arrival: &Arrival) -> String {
    let captured = arrival.captured.map(|(by, to)| match protocol {
        Protocol::Tcp => format!("{by} for {to}, "),
        Protocol::Udp => format!("{by}, "),
    });
    let reached = arrival
        .reached
        .map(|(place, client)| format!("{place:?} from {client}"));
    format!(
        "{}{}, answered: {}",
        captured.unwrap_or_default(),
        reached.unwrap_or_default(),
        arrival.answered
    )
}

/// Each flow with its result. A flow that fails is sent again.
fn seen(way: Way, case: &Case, mounted: &BpfFs) -> Vec<(String, String)> {
    let lab = Lab::create().expect("there was one before");
    apply(way, case, &lab, mounted).unwrap_or_else(|e| panic!("{way:?}: {e}"));
    let mut stage = Stage::open(&lab, way.proxy()).expect("all listeners");
    let mut seen = Vec::new();
    for sent in &case.sent {
        // The proxy's own listener receives HBONE.
        if let Kind::Flow(protocol) = sent.kind
            && (protocol, sent.to, sent.port) != (Protocol::Tcp, Place::Web, 15_008)
        {
            let served = stage.serve(protocol, sent.to, sent.port);
            served.expect("a listener");
        }
        for &family in lab.families {
            let to = match sent.to {
                Place::Outside => lab.service(family),
                place => lab.address(place, family),
            };
            let from = (lab.netns(sent.from), lab.address(sent.from, family));
            let mut once = || match sent.kind {
                Kind::Flow(protocol) => {
                    let to = SocketAddr::new(to, sent.port);
                    // The place in `Flow` belongs to the other kind of lab and is not used.
                    let flow = Flow::new("random", protocol, weir_demo::Place::Pod, to);
                    let arrival = stage.send(sent.from, &flow).expect("sent");
                    decision(protocol, &arrival)
                }
                // These ports are neither source nor destination of a flow.
                Kind::Fragments => {
                    let to = SocketAddr::new(to, 40_000 + sent.port);
                    datagrams::large(from, (lab.netns(sent.to), to))
                }
                Kind::Echo(is_large) => datagrams::echo(from, to, is_large),
            };
            let decided = match once() {
                decided if decided.ends_with("answered: true") => decided,
                _ => once(),
            };
            let family = match family {
                AddressFamily::V4 => "IPv4",
                AddressFamily::V6 => "IPv6",
            };
            let (kind, port, from) = (sent.kind, sent.port, sent.from);
            let text = format!("{kind:?} {family} {from:?} to {to} port {port}");
            seen.push((text, decided));
        }
    }
    seen
}

fn explain(case: &Case, ways: &[(Way, Vec<(String, String)>)]) -> Option<String> {
    let (_, first) = ways.first()?;
    if ways.iter().all(|(_, seen)| seen == first) {
        return None;
    }
    let mut text = format!("they decide differently\n{case:#?}\n");
    for (n, (flow, decided)) in first.iter().enumerate() {
        if ways.iter().all(|(_, seen)| seen[n].1 == *decided) {
            continue;
        }
        let _ = writeln!(text, "{flow}");
        for (way, seen) in ways {
            let _ = writeln!(text, "    {way:?}: {}", seen[n].1);
        }
    }
    Some(text)
}

#[test]
fn four_ways_of_ambient_mode_decide_alike() {
    drop(crate::lab_or_skip!());
    let Some(mounted) = ebpf::mount() else { return };
    let kept = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/proptest-regressions/traffic-ambient-ways.txt"
    );
    for_all(&cases(), [24, 2_000], kept, |case| {
        let ways = case.ways().into_iter();
        let ways: Vec<_> = ways.map(|way| (way, seen(way, &case, &mounted))).collect();
        explain(&case, &ways)
    });
}
