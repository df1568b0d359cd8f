//! What is beside the rules, and is lost or comes while the rules stay as they are.

use crate::api_server::ApiServer;
use crate::repair::{IN_PLACE, Sandbox, sidecar, start};
use crate::support::{Node, get};
use crate::unasked::{OFTEN, plain};
use serde_json::Value;
use weir_cni::redirection::RTPROT_WEIR;
use weir_netlink::route::{
    AddressFamily, LOOPBACK_IFINDEX, PolicyRule, Route, RouteProtocol, Routing,
};

const OURS: RouteProtocol = RouteProtocol::Other(RTPROT_WEIR);

#[test]
fn routing_that_is_lost_is_restored() {
    let Some(sandbox) = Sandbox::of("tproxy") else {
        return;
    };
    let server = ApiServer::start();
    let mut pod = sidecar("tproxy", &sandbox.address);
    pod["metadata"]["annotations"]["sidecar.istio.io/interceptionMode"] = "TPROXY".into();
    server.put(pod);
    let node = Node::new();
    let agent = start(&node, &server, &[IN_PLACE, OFTEN]);
    let ip = |arguments: &str| {
        let arguments: Vec<&str> = arguments.split(' ').collect();
        sandbox.tool("ip", &arguments)
    };
    let has_rule = || ip("rule show").contains("fwmark 0x539 lookup 133");
    let has_route = || ip("route show table all").contains("local default dev lo table 133");
    agent.until("verified", || agent.metric("weir_pods_verified") == 1);
    assert!(has_rule() && has_route());
    let verified_at = || {
        let (_, text) = get(agent.metrics, "/status.json").expect("an answer");
        let facts: Value = serde_json::from_str(&text).unwrap();
        facts["pods"][0]["verifiedAt"].clone()
    };
    let losses: [&[&str]; 3] = [
        &[
            "rule delete fwmark 0x539 lookup 133",
            "route flush table 133",
        ],
        &["route flush table 133"],
        &["rule delete fwmark 0x539 lookup 133"],
    ];
    for (n, loss) in losses.iter().enumerate() {
        // Rounds that find nothing new: the result of an earlier one is used from here on.
        for _ in 0..2 {
            let before = verified_at();
            agent.until("another round", || verified_at() != before);
        }
        loss.iter().for_each(|arguments| _ = ip(arguments));
        agent.until("restored", || has_rule() && has_route());
        let drift = || agent.metric("weir_drift_total{cause=\"missing\"}");
        agent.until("told", || drift() == n as u64 + 2);
    }
}

/// It stays, and is no reason to write the same again and again.
#[test]
fn a_foreign_object_in_a_table_of_ours_is_named_and_not_repaired() {
    let Some(sandbox) = Sandbox::of("object") else {
        return;
    };
    let server = ApiServer::start();
    server.put(sidecar("object", &sandbox.address));
    let node = Node::new();
    let agent = start(&node, &server, &[IN_PLACE, OFTEN]);
    let facts = || {
        let (_, text) = get(agent.metrics, "/status.json").expect("an answer");
        serde_json::from_str::<Value>(&text).unwrap()
    };
    agent.until("verified", || agent.metric("weir_pods_verified") == 1);
    sandbox.tool(
        "nft",
        &["add", "counter", "inet", "istio-proxy-nat", "theirs"],
    );
    let repaired = || facts()["repairs"].clone();
    let before = repaired();
    let is_named = || {
        facts()["pods"][0]["error"]
            .as_str()
            .is_some_and(|e| e.contains("theirs"))
    };
    agent.until("named", is_named);
    assert_eq!(agent.metric("weir_pods_verified"), 0);
    sandbox.tool(
        "nft",
        &["delete", "counter", "inet", "istio-proxy-nat", "theirs"],
    );
    agent.until("verified again", || agent.metric("weir_pods_verified") == 1);
    assert_eq!(repaired(), before);
}

#[test]
fn routing_of_ours_that_comes_to_a_pod_that_asks_for_none_is_removed() {
    let Some(sandbox) = Sandbox::of("routed") else {
        return;
    };
    let server = ApiServer::start();
    server.put(plain("routed", &sandbox.address));
    let node = Node::new();
    let agent = start(&node, &server, &[IN_PLACE, OFTEN]);
    let routing = Routing::open_in(sandbox.netns()).unwrap();
    for n in 1..3 {
        let rule = PolicyRule::mark(AddressFamily::V4, 0x539, 133).by(OURS);
        let route = Route::local_default(AddressFamily::V4, LOOPBACK_IFINDEX, 133).by(OURS);
        assert!(routing.add_route(&route).unwrap() && routing.add_rule(&rule).unwrap());
        agent.until("removed", || {
            agent.metric("weir_unasked_removed_total") == n
        });
        assert_eq!(routing.routes(133).unwrap(), []);
    }
}
