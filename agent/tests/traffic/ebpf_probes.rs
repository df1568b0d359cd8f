//! Probes of pods that are redirected by eBPF: a socket of the node's namespace makes the connection, without any netfilter rule.
// matrix: smoke; variants no-netfilter

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::process::Command;

use serde_json::json;
use weir_demo::{Lab, Place, Receiver, Stage};
use weir_ebpf::{Bpffs, Pod as EbpfPod};
use weir_netlink::Netns;
use weir_netlink::route::{AddressFamily, Routing};

use crate::ambient::{probe, wanted};
use crate::ebpf::{bpffs, count, mount, send4, syn, until};
use crate::support::{Pod, lab, tcp};

/// The client's namespace is that of the node.
const NODE: Place = Place::Client;
/// Another pod, or another machine.
const OTHER: Place = Place::Server;

fn pod<'a>(lab: &'a Lab, bpffs: &'a Bpffs) -> EbpfPod<'a> {
    let pod = EbpfPod::of(lab.netns(Place::Pod), bpffs).expect("a pod");
    pod.beside(lab.netns(NODE))
}

/// All netfilter objects in a namespace, of every kind.
fn netfilter(netns: &Netns) -> String {
    let look = || {
        let read = |name| std::fs::read_to_string(format!("/proc/thread-self/net/{name}"));
        let tables =
            ["ip_tables_names", "ip6_tables_names"].map(|name| read(name).unwrap_or_default());
        // These tools fail and print nothing if the kernel lacks nf_tables or ipset.
        let listed = [("nft", "list ruleset"), ("ipset", "save")].map(|(tool, words)| {
            let run = Command::new(tool).args(words.split(' ')).output();
            run.map(|run| String::from_utf8_lossy(&run.stdout).into_owned())
                .unwrap_or_default()
        });
        tables.concat() + &listed.concat()
    };
    netns.run(look).expect("entered")
}

/// An address of this family that no machine has yet.
fn new_address(family: AddressFamily) -> IpAddr {
    match family {
        AddressFamily::V4 => Ipv4Addr::new(10, 250, 0, 7).into(),
        AddressFamily::V6 => Ipv6Addr::new(0xfd00, 0x250, 0, 0, 0, 0, 0, 7).into(),
    }
}

#[test]
fn connections_of_the_node_pass_and_those_of_others_are_captured() {
    let Some(mounted) = mount() else { return };
    let Some(lab) = lab() else { return };
    let (bpffs, wanted) = (bpffs(&mounted), wanted(true, &json!({})));
    let pod = pod(&lab, &bpffs);
    let planned = pod.plan(&wanted).expect("planned");
    assert_eq!(pod.apply(&wanted).expect("applied"), planned);
    assert_eq!(pod.verify(&wanted).expect("compared"), []);
    let stage = Stage::ambient(&lab).expect("all listeners");
    let flows = Pod::by_ebpf(stage, &lab, &mounted);
    for &family in lab.families() {
        let to = flows.at(Place::Pod, family, 8080);
        flows.expect(tcp("probe", NODE, to), Receiver::Application);
        flows.expect(tcp("in", OTHER, to), Receiver::ProxyInbound);
        let to = flows.at(Place::Pod, family, 15008);
        flows.expect(tcp("HBONE", NODE, to), Receiver::ProxyTunnel);
        // A connection from the pod to the node is not an answer.
        let to = flows.at(NODE, family, 80);
        flows.expect(tcp("to the node", Place::Pod, to), Receiver::ProxyOutbound);
    }
    let captured = lab.families().len() as u64;
    assert_eq!(count(&pod, "inbound"), captured);

    // Another host may have rules for probes as well.
    for &family in lab.families() {
        lab.add_address(OTHER, probe(family)).expect("added");
        let to = flows.at(Place::Pod, family, 8080);
        let translated = tcp("translated", OTHER, to).source((probe(family), 0).into());
        flows.expect(translated, Receiver::Application);
    }
    for place in [NODE, Place::Pod, OTHER] {
        assert_eq!(netfilter(lab.netns(place)), "", "{place:?}");
    }
    assert_eq!(count(&pod, "inbound"), captured);
}

/// The address alone is not enough: packets that the node masquerades have its address, but no socket in its namespace.
#[test]
fn what_only_has_an_address_of_the_node_is_captured() {
    let Some(mounted) = mount() else { return };
    let Some(lab) = lab() else { return };
    let (bpffs, wanted) = (bpffs(&mounted), wanted(false, &json!({})));
    let pod = pod(&lab, &bpffs);
    pod.apply(&wanted).expect("applied");
    let stage = Stage::ambient(&lab).expect("all listeners");
    let flows = Pod::by_ebpf(stage, &lab, &mounted);
    // The packet comes from a raw socket. A listener on the port is no socket of the connection either.
    let any = (Ipv4Addr::UNSPECIFIED, 40_000);
    let listen = || std::net::TcpListener::bind(any);
    let _listener = lab.netns(NODE).run(listen).expect("entered").expect("free");
    send4(&lab, &[], 0, &syn(8080));
    until("captured", || count(&pod, "inbound") == 1);

    for &family in lab.families() {
        // The address is added after the programs, and later moves to another machine.
        let address = new_address(family);
        lab.add_address(NODE, address).expect("added");
        let to = flows.at(Place::Pod, family, 8080);
        let flow = |name, from| tcp(name, from, to).source((address, 0).into());
        flows.expect(flow("new address", NODE), Receiver::Application);
        let routing = Routing::open_in(lab.netns(NODE)).expect("a socket");
        let eth0 = routing.link("eth0").expect("there").index;
        assert!(routing.del_address(eth0, address.into()).expect("deleted"));
        lab.move_address(OTHER, address).expect("moved");
        flows.expect(flow("moved address", OTHER), Receiver::ProxyInbound);
    }
}

/// A writer without access to the node's namespace lets no connection pass; the next writer with access plans and repairs the difference.
#[test]
fn without_the_namespace_of_the_node_its_connections_are_captured() {
    let Some(mounted) = mount() else { return };
    let Some(lab) = lab() else { return };
    let (bpffs, wanted) = (bpffs(&mounted), wanted(false, &json!({})));
    let of = |knows_node| match knows_node {
        true => pod(&lab, &bpffs),
        false => EbpfPod::of(lab.netns(Place::Pod), &bpffs).expect("a pod"),
    };
    of(true).apply(&wanted).expect("applied");
    let stage = Stage::ambient(&lab).expect("all listeners");
    let flows = Pod::by_ebpf(stage, &lab, &mounted);
    let changes = |knows_node| -> Vec<String> {
        let changes = of(knows_node).apply(&wanted).expect("applied");
        changes.iter().map(ToString::to_string).collect()
    };
    let reaches = |receiver| {
        for &family in lab.families() {
            let to = flows.at(Place::Pod, family, 8080);
            flows.expect(tcp("probe", NODE, to), receiver);
        }
    };
    reaches(Receiver::Application);
    let capture = "make no exception for connections of the node's own processes";
    assert_eq!(changes(false), [capture]);
    assert_eq!(of(false).verify(&wanted).expect("compared"), []);
    reaches(Receiver::ProxyInbound);
    let pass = "let connections of the node's own processes pass";
    assert_eq!(changes(true), [pass]);
    reaches(Receiver::Application);

    // After the pin of the map is deleted, the program and the next writer use different maps.
    let netns = lab.netns(Place::Pod).id().ino.to_string();
    let pin = mounted.path().join("weir/v2").join(netns);
    std::fs::remove_file(pin.join("weir_node_netns")).expect("unpinned");
    let healed = changes(true);
    assert_eq!(healed[0], pass, "{healed:?}");
    assert!(healed[1].starts_with("replace by weir_i"), "{healed:?}");
    assert_eq!(changes(false), [capture]);
    reaches(Receiver::ProxyInbound);
}

/// If inbound traffic is not captured at all, the programs do not need the node's namespace.
#[test]
fn where_inbound_traffic_is_not_captured_the_node_is_not_asked_about() {
    let Some(mounted) = mount() else { return };
    let Some(lab) = lab() else { return };
    let wanted = wanted(false, &json!({ "ingress_mode": true }));
    let bpffs = bpffs(&mounted);
    let pod = pod(&lab, &bpffs);
    let changes = pod.apply(&wanted).expect("applied");
    let text: Vec<String> = changes.iter().map(ToString::to_string).collect();
    assert!(
        text.iter().all(|line| !line.contains("the node's")),
        "{text:?}"
    );
    assert_eq!(pod.verify(&wanted).expect("compared"), []);
}
