//! For every request of a pod of ambient mode, nf_tables, legacy tables and eBPF have the same effect on every flow.
//!
//! The test compares who receives a flow, from which address, what the receiver learns about the destination, and whether the answer
//! arrives. It does not compare the address of the receiver's own socket, nor the original destination of a captured query: eBPF delivers
//! to ztunnel without rewriting the destination, and rewrites that of queries, which ztunnel does not look up.
//!
//! `WEIR_LONG` tries many configurations, and `WEIR_SEED` repeats a run. Earlier failures are stored in `proptest-regressions` and run
//! first.
// matrix: smoke

use std::fmt::Write as _;
use std::net::SocketAddr;

use proptest::prelude::*;
use serde_json::{Value, json};
use weir_cni::compile::Engine;
use weir_demo::{Flow, Lab, Outcome, Owner, Place, Protocol, Receiver, Stage, ZTUNNEL_MARK};
use weir_netlink::route::AddressFamily;
use weir_testing::BpfFs;

use crate::ambient::{lab_with_probes, probe, redirect, wanted};
use crate::random::for_all;
use crate::support::tcp;
use crate::{ebpf, lab_or_skip};

/// The overrides of a pod, and the marks that its senders use.
#[derive(Clone, Debug)]
struct Case {
    dns: bool,
    overrides: Value,
    marks: Vec<u32>,
}

fn cases() -> impl Strategy<Value = Case> {
    let interfaces = prop_oneof![
        3 => Just(json!([])),
        2 => Just(json!(["k6t-a"])),
        1 => Just(json!(["k6t-b", "k6t-a"])),
    ];
    let of_pod = prop_oneof![
        2 => Just(None),
        1 => Just(Some("enabled")),
        1 => Just(Some("disabled")),
    ];
    // The rules compare ztunnel's mark under the mask 0xfff. With 0x111, the mark of ztunnel's connections to the application, every engine
    // routes packets to `lo`, where they are lost after seconds.
    let mark = prop_oneof![
        Just(ZTUNNEL_MARK),
        (0..16_u32).prop_map(|high| high << 12 | ZTUNNEL_MARK),
        (0..0x1000_u32).prop_filter("not that of replies", |mark| *mark != 0x111),
    ];
    let marks = proptest::collection::vec(mark, 3);
    (any::<bool>(), any::<bool>(), of_pod, interfaces, marks).prop_map(
        |(dns, ingress, of_pod, interfaces, marks)| {
            let mut overrides =
                json!({ "ingress_mode": ingress, "virtual_interfaces": interfaces });
            if let Some(of_pod) = of_pod {
                overrides["dns_proxy"] = json!(of_pod);
            }
            Case {
                dns,
                overrides,
                marks,
            }
        },
    )
}

/// The flows to send. The addresses are the same in every lab.
fn flows(
    lab: &Lab,
    guest: (SocketAddr, SocketAddr),
    family: AddressFamily,
    marks: &[u32],
) -> Vec<Flow> {
    let at = |place, port| SocketAddr::new(lab.address(place, family), port);
    let service = |port| SocketAddr::new(lab.service(family), port);
    let outside = |port| SocketAddr::new(lab.outside(family), port);
    let query = || Flow::new("query", Protocol::Udp, Place::Pod, service(53));
    let client = SocketAddr::new(lab.address(Place::Client, family), 0);
    let mut flows = Vec::new();
    for port in [8080, 9090, 15008, 15020] {
        flows.push(tcp("in", Place::Client, at(Place::Pod, port)));
        let of_kubelet = tcp("probe", Place::Client, at(Place::Pod, port));
        flows.push(of_kubelet.source((probe(family), 0).into()));
    }
    flows.push(tcp("guest", Place::Client, guest.0).source((guest.1.ip(), 0).into()));
    for owner in [Owner::APPLICATION, Owner::PROXY, Owner::ROOT] {
        flows.push(tcp("service", Place::Pod, service(80)).of(owner));
        flows.push(tcp("its own pod", Place::Pod, at(Place::Pod, 8080)).of(owner));
        flows.push(query().of(owner));
    }
    flows.push(tcp("query", Place::Pod, service(53)));
    for &mark in marks {
        flows.push(tcp("marked", Place::Pod, outside(443)).mark(mark));
        flows.push(query().mark(mark));
    }
    let as_client = tcp("as the client", Place::Pod, at(Place::Pod, 8080));
    flows.push(as_client.source(client).mark(ZTUNNEL_MARK));
    flows
}

fn decision(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Received {
            by: Receiver::ProxyDns,
            source,
            answered,
            ..
        } => {
            format!("ztunnel's DNS, from {}, answered: {answered}", source.ip())
        }
        Outcome::Received {
            by,
            source,
            original,
            answered,
            ..
        } => {
            let from = source.ip();
            format!("{by:?}, from {from}, for {original}, answered: {answered}")
        }
        Outcome::Lost(_) => outcome.to_string(),
    }
}

/// Redirects the same pod by one engine; returns each flow with its result. A flow that fails is sent again.
fn seen(case: &Case, way: Option<Engine>, mounted: &BpfFs) -> Vec<(String, String)> {
    let lab = lab_with_probes().expect("there was one before");
    let guest = lab.attach("k6t-a", Place::Client, 8).expect("k6t-a");
    let pod = lab.netns(Place::Pod);
    match way {
        Some(engine) => redirect(pod, engine, case.dns, &case.overrides),
        None => ebpf::redirect(mounted, pod, &wanted(case.dns, &case.overrides)),
    }
    let stage = Stage::ambient(&lab).expect("all listeners");
    let mut seen = Vec::new();
    for &family in lab.families() {
        let ends = (
            (guest.pod(family), 80).into(),
            (guest.peer(family), 0).into(),
        );
        for flow in flows(&lab, ends, family, &case.marks) {
            let once = || stage.send(&flow);
            let outcome = match once() {
                Ok(outcome @ Outcome::Received { answered: true, .. }) => Ok(outcome),
                _ => once(),
            };
            let decided = outcome.map_or_else(|e| format!("failed: {e}"), |o| decision(&o));
            seen.push((flow.to_string(), decided));
        }
    }
    seen
}

/// The complete description of a difference.
fn explain(case: &Case, ways: &[(&str, Vec<(String, String)>)]) -> Option<String> {
    let (_, first) = ways.first()?;
    if ways.iter().all(|(_, seen)| seen == first) {
        return None;
    }
    let mut text = format!("they decide differently (!)\n{case:#?}\n");
    for (n, (flow, decided)) in first.iter().enumerate() {
        let differs = ways.iter().any(|(_, seen)| seen[n].1 != *decided);
        let _ = writeln!(text, "{} {flow}", if differs { '!' } else { ' ' });
        for (way, seen) in ways {
            let _ = writeln!(text, "    {way:<8} {}", seen[n].1);
        }
    }
    Some(text)
}

#[test]
fn all_ways_do_the_same_to_every_flow() {
    drop(lab_or_skip!());
    let Some(mounted) = ebpf::mount() else { return };
    let kept = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/proptest-regressions/traffic-ambient.txt"
    );
    const WAYS: [(&str, Option<Engine>); 3] = [
        ("nft", Some(Engine::Nft)),
        ("xtables", Some(Engine::Xtables)),
        ("eBPF", None),
    ];
    for_all(&cases(), [12, 4_000], kept, |case| {
        let ways = std::thread::scope(|scope| {
            let (case, mounted) = (&case, &mounted);
            let one = |(name, way)| (name, scope.spawn(move || seen(case, way, mounted)));
            let running = WAYS.map(one);
            running.map(|(name, one)| (name, one.join().expect("it says itself why not")))
        });
        explain(&case, &ways)
    });
}
