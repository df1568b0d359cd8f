//! Rules in the pod, programs in the pod, rules at the node and programs at the node decide alike about every flow.
//!
//! Left out is where they are meant to differ: traffic of the node itself and of a pod to its node, which only the node's ways
//! let pass; DNS over TCP, which rules in the pod send to ztunnel's port for names; the path between two enrolled pods.
//! Of a captured query the address that ztunnel sees is not compared.
//!
//! `WEIR_LONG` tries many, `WEIR_SEED` the same ones again. What failed once is kept in `proptest-regressions` and comes first.
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
use weir_node_ambient::{CarrierChoice, Config};
use weir_testing::BpfFs;

use crate::ambient::{redirect, wanted};
use crate::ebpf;
use crate::random::for_all;

/// Who redirects, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    RulesInPod(Engine),
    ProgramsInPod,
    RulesAtNode(Engine),
    ProgramsAtNode,
    FiltersAtNode,
}

const WAYS: [Way; 7] = [
    Way::RulesInPod(Engine::Nft),
    Way::RulesInPod(Engine::Xtables),
    Way::ProgramsInPod,
    Way::RulesAtNode(Engine::Nft),
    Way::RulesAtNode(Engine::Xtables),
    Way::ProgramsAtNode,
    Way::FiltersAtNode,
];

/// One thing that is sent.
#[derive(Clone, Debug)]
struct Sent {
    protocol: Protocol,
    from: Place,
    to: Place,
    port: u16,
}

#[derive(Clone, Debug)]
struct Case {
    dns: bool,
    carrier: CarrierChoice,
    sent: Vec<Sent>,
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
        // Above these are the ports that flows are sent from.
        3 => 1..20_000_u16,
    ];
    let protocol = prop_oneof![3 => Just(Protocol::Tcp), 1 => Just(Protocol::Udp)];
    let all = (protocol, ends, port).prop_map(|(protocol, (from, to), port)| Sent {
        protocol,
        from,
        to,
        port,
    });
    all.prop_filter("not alike, or a port of ztunnel's own", |sent| {
        let into_pod = sent.to == Web;
        match (sent.protocol, sent.port) {
            (Protocol::Tcp, 53) => false,
            // Of the pod's own listeners some are the proxy's where it is in the pod.
            (_, 15_001 | 15_006 | 15_053) => !into_pod,
            (Protocol::Udp, 53) => !into_pod,
            _ => true,
        }
    })
}

fn cases() -> impl Strategy<Value = Case> {
    // The kernel may have no tunnels.
    let carrier = prop_oneof![Just(CarrierChoice::Auto), Just(CarrierChoice::Veth)];
    let sent = prop::collection::vec(sent(), 12);
    (any::<bool>(), carrier, sent).prop_map(|(dns, carrier, sent)| Case { dns, carrier, sent })
}

fn apply(way: Way, case: &Case, lab: &Lab, mounted: &BpfFs) -> Result<(), String> {
    let (pod, node) = (lab.netns(Place::Web), lab.netns(Place::Node));
    let config = Config {
        dns_capture: case.dns,
        carrier: case.carrier,
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

/// Each flow, and what became of it. One that comes to nothing is sent again.
fn seen(way: Way, case: &Case, mounted: &BpfFs) -> Vec<(String, String)> {
    let lab = Lab::create().expect("there was one before");
    apply(way, case, &lab, mounted).unwrap_or_else(|e| panic!("{way:?}: {e}"));
    let proxy = match way {
        Way::RulesInPod(_) | Way::ProgramsInPod => Place::Web,
        _ => Place::Proxy,
    };
    let mut stage = Stage::open(&lab, proxy).expect("all listeners");
    let mut seen = Vec::new();
    for sent in &case.sent {
        // HBONE ends at the proxy's own listener.
        if (sent.protocol, sent.to, sent.port) != (Protocol::Tcp, Place::Web, 15_008) {
            let served = stage.serve(sent.protocol, sent.to, sent.port);
            served.expect("a listener");
        }
        for &family in lab.families {
            let to = match sent.to {
                Place::Outside => lab.service(family),
                place => lab.address(place, family),
            };
            let to = SocketAddr::new(to, sent.port);
            // The place of a flow is one of the other lab.
            let flow = Flow::new("random", sent.protocol, weir_demo::Place::Pod, to);
            let mut once = || stage.send(sent.from, &flow).expect("sent");
            let arrival = match once() {
                arrival if arrival.answered => arrival,
                _ => once(),
            };
            let from = sent.from;
            let family = match family {
                AddressFamily::V4 => "IPv4",
                AddressFamily::V6 => "IPv6",
            };
            let text = format!("{} {family} {from:?} to {to}", sent.protocol);
            seen.push((text, decision(sent.protocol, &arrival)));
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
        let ways = WAYS.map(|way| (way, seen(way, &case, &mounted)));
        explain(&case, &ways)
    });
}
