//! Routes and policy rules that several redirections of one namespace share, and those of other programs in the same tables.
// matrix: newest

use crate::kinds::{Kind, in_pod, ip, sidecar, sidecar_by_table, state};
use crate::support::{TempFile, path, weir};
use serde_json::json;
use weir_netlink::Netns;
use weir_netlink::route::Routing;

const RULE: &str = "rule add fwmark 0x111/0xfff pref 32764 lookup 100";
const ROUTE: &str = "route add local default dev lo table 100";

/// The foreign routes have the effect of weir's. They differ in the protocol number, or have no policy rule of upstream beside them.
#[test]
fn default_routes_of_other_programs_stay() {
    let pod = pod_or_skip!();
    ip(&pod, &format!("-4 {ROUTE} proto 42"));
    ip(&pod, &format!("-6 {ROUTE}"));
    let before = state(&pod);
    let kind = in_pod("nft", true);
    kind.done("clean", &pod);
    assert_eq!(state(&pod), before);
    for verb in ["apply", "verify", "clean"] {
        kind.done(verb, &pod);
    }
    assert_eq!(state(&pod), before);
}

/// The policy rule beside the route shows that upstream wrote the route as well.
#[test]
fn routing_of_upstream_is_adopted_and_goes() {
    let pod = pod_or_skip!();
    let nothing = state(&pod);
    let kind = in_pod("nft", true);
    for families in [&["-4", "-6"][..], &["-4"]] {
        for verbs in [&["apply", "verify", "clean"][..], &["clean"]] {
            for family in families {
                ip(&pod, &format!("{family} {RULE}"));
                ip(&pod, &format!("{family} {ROUTE}"));
            }
            for verb in verbs {
                kind.done(verb, &pod);
            }
            assert_eq!(state(&pod), nothing, "{families:?} {verbs:?}");
        }
    }
}

#[test]
fn a_route_of_two_redirections_goes_with_the_last_one() {
    let of_sidecar = || sidecar_by_table("100");
    for [first, second] in [
        [of_sidecar(), in_pod("nft", true)],
        [in_pod("nft", true), of_sidecar()],
    ] {
        let pod = pod_or_skip!();
        let nothing = state(&pod);
        first.done("apply", &pod);
        let alone = state(&pod);
        second.done("apply", &pod);
        let both = state(&pod);
        for kind in [&first, &second] {
            kind.done("verify", &pod);
            kind.done("apply", &pod);
            assert_eq!(state(&pod), both);
        }
        second.done("clean", &pod);
        assert_eq!(state(&pod), alone);
        first.done("verify", &pod);
        first.done("clean", &pod);
        assert_eq!(state(&pod), nothing);
    }
}

/// With the default numbers of both modes, each one's policy rule would lead the packets of the other into its own table.
#[test]
fn in_a_pod_and_at_a_node_with_the_same_numbers_is_refused() {
    let pod = pod_or_skip!();
    let of_pod = in_pod("nft", true);
    let (file, place) = (TempFile::new("{}"), path(&pod));
    let at_node = |verb: &str| {
        let args = [verb, "node-ambient", "--config", file.path()];
        weir(&[&args[..], &["--host-netns", &place]].concat())
    };
    of_pod.done("apply", &pod);
    let alone = state(&pod);
    let refused = at_node("apply");
    assert_eq!(refused.code, 1, "{refused:?}");
    assert!(refused.stderr.contains("table 100"), "{refused:?}");
    assert_eq!(state(&pod), alone);
    of_pod.done("clean", &pod);

    assert_eq!(at_node("apply").code, 0);
    let alone = state(&pod);
    let refused = of_pod.run("apply", &pod);
    assert_eq!(refused.code, 1, "{refused:?}");
    let says = "leads other packets into its table";
    assert!(refused.stderr.contains(says), "{refused:?}");
    assert_eq!(state(&pod), alone);
    assert_eq!(at_node("verify").code, 0);
    assert_eq!(at_node("clean").code, 0);
}

/// A node with a proxy whose network namespace contains another redirection.
struct Node {
    host: Netns,
    proxy: Netns,
    file: TempFile,
}

impl Node {
    fn new(proxy: Netns) -> Self {
        let host = Netns::create().unwrap();
        let (at_host, at_proxy) = (
            Routing::open_in(&host).unwrap(),
            Routing::open_in(&proxy).unwrap(),
        );
        at_host.add_veth("veth1", "eth0", &proxy).unwrap();
        for (routing, name) in [(&at_host, "lo"), (&at_host, "veth1"), (&at_proxy, "eth0")] {
            routing.set_up(routing.link(name).unwrap().index).unwrap();
        }
        ip(&host, "address add 10.1.2.1/24 dev veth1");
        ip(&proxy, "address add 10.1.2.10/24 dev eth0");
        let request = json!({
            "proxies": [{ "uid": "a", "netns": path(&proxy), "addresses": ["10.1.2.10"] }],
            "tunnel": "veth",
        });
        let file = TempFile::new(&request.to_string());
        Self { host, proxy, file }
    }

    fn done(&self, verb: &str) {
        let (file, place) = (self.file.path(), path(&self.host));
        let args = [verb, "node-ambient", "--config", file, "--host-netns"];
        let run = weir(&[&args[..], &[&place]].concat());
        assert_eq!(run.code, 0, "{verb}: {run:?}");
    }

    /// The stable state of the proxy's namespace: the kernel adds link-local addresses and routes some time later.
    fn state(&self) -> String {
        let lines = state(&self.proxy);
        let is_own = |line: &&str| !line.contains("fe80") && !line.contains("ff00");
        let own = lines.lines().take_while(|l| !l.starts_with("1: lo"));
        own.filter(is_own).collect::<Vec<_>>().join("\n")
    }
}

fn beside_a_proxy(kind: &Kind, default: Option<&str>) {
    let node = Node::new(pod_or_skip!());
    if let Some(route) = default {
        ip(&node.proxy, route);
    }
    let nothing = node.state();
    // First the proxy's redirection, then the other one; after that in the reverse order.
    node.done("apply");
    let alone = node.state();
    kind.done("apply", &node.proxy);
    node.done("verify");
    kind.done("verify", &node.proxy);
    let both = node.state();
    node.done("apply");
    assert_eq!(node.state(), both);
    kind.done("clean", &node.proxy);
    assert_eq!(node.state(), alone);
    node.done("verify");
    node.done("clean");
    assert_eq!(node.state(), nothing);

    kind.done("apply", &node.proxy);
    let alone = node.state();
    node.done("clean");
    assert_eq!(node.state(), alone);
    node.done("apply");
    node.done("verify");
    kind.done("verify", &node.proxy);
    node.done("clean");
    assert_eq!(node.state(), alone);
    kind.done("verify", &node.proxy);
    kind.done("clean", &node.proxy);
    assert_eq!(node.state(), nothing);
}

#[test]
fn in_the_namespace_of_a_proxy() {
    let foreign = format!("{ROUTE} proto 42");
    for default in [None, Some(foreign.as_str())] {
        beside_a_proxy(&sidecar("nft", true), default);
        beside_a_proxy(&in_pod("nft", true), default);
    }
}
