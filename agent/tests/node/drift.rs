//! Drift: another program changes the rules, or addresses, routes and policy rules while the rules stay as they are.

use crate::api_server::ApiServer;
use crate::repair::{IN_PLACE, Sandbox, events, sidecar, start};
use crate::support::Node;
use crate::unasked::{OFTEN, plain, redirect_by};
use std::sync::atomic::{AtomicBool, Ordering};
use weir_cni::redirection::RTPROT_WEIR;
use weir_netfilter::nft::{NftEngine, NftOp, Table, TableFamily, Transaction, UNGUARDED};
use weir_netlink::route::{
    AddressFamily, LOOPBACK_IFINDEX, PolicyRule, Route, RouteProtocol, Routing,
};
use weir_testing::Ends;

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
        let facts = agent.facts();
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
    for loss in losses {
        // Two rounds that find nothing new; later rounds reuse the cached result.
        for _ in 0..2 {
            let before = verified_at();
            agent.until("another round", || verified_at() != before);
        }
        let drift = || agent.metric("weir_drift_total{cause=\"missing\"}");
        let before = drift();
        // The agent may act between two of the commands.
        loss.iter().for_each(|arguments| _ = ip(arguments));
        agent.until("restored", || has_rule() && has_route());
        agent.until("told", || drift() > before);
    }
}

/// The object stays, and causes no repeated repairs.
#[test]
fn a_foreign_object_in_a_table_of_ours_is_named_and_not_repaired() {
    let Some(sandbox) = Sandbox::of("object") else {
        return;
    };
    let server = ApiServer::start();
    server.put(sidecar("object", &sandbox.address));
    let node = Node::new();
    let agent = start(&node, &server, &[IN_PLACE, OFTEN]);
    agent.until("verified", || agent.metric("weir_pods_verified") == 1);
    sandbox.tool(
        "nft",
        &["add", "counter", "inet", "istio-proxy-nat", "theirs"],
    );
    let repaired = || {
        let facts = agent.facts();
        let counted = facts["verification"]["repairs"].as_array().unwrap().iter();
        let made = counted.filter(|r| r["result"] == "success");
        made.map(|r| r["count"].as_u64().unwrap()).sum::<u64>()
    };
    agent.until("counted", || repaired() == 1);
    let is_named = || {
        agent.facts()["pods"][0]["error"]
            .as_str()
            .is_some_and(|e| e.contains("theirs"))
    };
    agent.until("named", || {
        is_named() && agent.metric("weir_pods_verified") == 0
    });
    sandbox.tool(
        "nft",
        &["delete", "counter", "inet", "istio-proxy-nat", "theirs"],
    );
    agent.until("verified again", || agent.metric("weir_pods_verified") == 1);
    assert_eq!(repaired(), 1);
}

/// A foreign rule takes packets first: the rules are in sync, but the agent does not report the pod as verified.
#[test]
fn a_pod_whose_packets_another_program_takes_is_not_verified() {
    let Some(sandbox) = Sandbox::of("hindered") else {
        return;
    };
    let server = ApiServer::start();
    server.put(sidecar("hindered", &sandbox.address));
    let node = Node::new();
    let agent = start(&node, &server, &[IN_PLACE, OFTEN]);
    agent.until("verified", || agent.metric("weir_pods_verified") == 1);
    let repaired = || agent.metric("weir_drift_total{cause=\"missing\"}");
    agent.until("counted", || repaired() == 1);
    let chain = "{ type filter hook output priority -310 ; }";
    sandbox.tool("nft", &["add", "table", "inet", "t"]);
    sandbox.tool("nft", &["add", "chain", "inet", "t", "c", chain]);
    sandbox.tool("nft", &["add", "rule", "inet", "t", "c", "notrack"]);
    let is_named = || {
        let is_named = agent.facts()["pods"][0]["error"]
            .as_str()
            .is_some_and(|e| e.contains("table inet t chain c: notrack"));
        is_named && agent.metric("weir_pods_verified") == 0
    };
    agent.until("named", is_named);
    assert_eq!(repaired(), 1);
    // A repair does not hide the conflict.
    sandbox.tool("nft", &["delete", "table", "inet", "istio-proxy-nat"]);
    agent.until("repaired", || repaired() == 2);
    assert!(sandbox.is_redirected());
    agent.until("named still", is_named);
    sandbox.tool("nft", &["delete", "table", "inet", "t"]);
    agent.until("verified again", || agent.metric("weir_pods_verified") == 1);
    assert_eq!(repaired(), 2);
}

/// The same for legacy tables, which nf_tables does not list.
#[test]
fn a_pod_whose_packets_a_legacy_table_takes_is_not_verified() {
    let Some(sandbox) = Sandbox::of("legacyhindered") else {
        return;
    };
    if let Some(why) = lacks_raw(&sandbox) {
        println!("skipped: {why}");
        return;
    }
    let server = ApiServer::start();
    server.put(sidecar("legacyhindered", &sandbox.address));
    let node = Node::new();
    let agent = start(&node, &server, &[IN_PLACE, OFTEN]);
    agent.until("verified", || agent.metric("weir_pods_verified") == 1);
    // From here on the agent uses the cached result.
    let verified_at = || agent.facts()["pods"][0]["verifiedAt"].clone();
    for _ in 0..2 {
        let before = verified_at();
        agent.until("another round", || verified_at() != before);
    }
    let notrack = |verb| {
        let rule = ["-t", "raw", verb, "OUTPUT", "-j", "NOTRACK"];
        sandbox.tool("iptables-legacy", &rule)
    };
    notrack("-I");
    agent.until("named", || {
        let facts = agent.facts();
        let error = facts["pods"][0]["error"].as_str();
        error.is_some_and(|e| e.contains("NOTRACK")) && agent.metric("weir_pods_verified") == 0
    });
    notrack("-D");
    agent.until("verified again", || agent.metric("weir_pods_verified") == 1);
}

/// The reason why legacy tables cannot be used. The query creates the table.
fn lacks_raw(sandbox: &Sandbox) -> Option<String> {
    let ask = || {
        let mut tool = std::process::Command::new("iptables-legacy");
        tool.args(["-t", "raw", "-S"]).output()
    };
    match sandbox.netns().run(ask).unwrap() {
        Ok(output) if output.status.success() => None,
        Ok(output) => Some(String::from_utf8_lossy(&output.stderr).into_owned()),
        Err(e) => Some(format!("iptables-legacy: {e}")),
    }
}

/// Foreign tables change faster than the agent can read them: it repairs its rules although it may not know the contents of those tables.
// matrix: host: the other program never pauses, and a guest has one emulated processor
#[test]
fn rules_are_repaired_whatever_another_program_does_in_its_own_tables() {
    let Some(sandbox) = Sandbox::of("busy") else {
        return;
    };
    let server = ApiServer::start();
    server.put(sidecar("busy", &sandbox.address));
    let node = Node::new();
    let agent = start(&node, &server, &[IN_PLACE, SELDOM]);
    agent.until("verified", || agent.metric("weir_pods_verified") == 1);
    let rules = "add rule inet big c counter\n".repeat(4000);
    // The agent reads only chains that the kernel calls before its own.
    let base = "add chain inet big c { type filter hook output priority -310; }";
    let rules = format!("add table inet big\n{base}\n{rules}");
    let file = node.path("big.nft");
    std::fs::write(&file, rules).unwrap();
    sandbox.tool("nft", &["-f", file.to_str().unwrap()]);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let ends = Ends(&stop);
        scope.spawn(|| sandbox.netns().run(|| keep_busy(&stop)).unwrap());
        for _ in 0..2 {
            sandbox.tool("nft", &["delete", "table", "inet", "istio-proxy-nat"]);
            agent.until("repaired", || sandbox.is_redirected());
        }
        drop(ends);
    });
    agent.until("verified again", || agent.metric("weir_pods_verified") == 1);
}

/// Deletes and creates a table in a loop.
fn keep_busy(stop: &AtomicBool) {
    let id = (TableFamily::Inet, "busy".to_owned());
    let table = || NftOp::AddTable(Table::new(TableFamily::Inet, "busy"));
    let again = || vec![table(), NftOp::DeleteTable(id.clone()), table()];
    let mut engine = NftEngine::open().unwrap();
    while !stop.load(Ordering::Relaxed) {
        let change = Transaction::guarded(UNGUARDED, again());
        engine.commit(&change).unwrap();
    }
}

/// The plugin has the environment of the container runtime; the agent has settings with the same names.
#[test]
fn what_the_plugin_reads_from_its_environment_is_not_reverted() {
    let Some(sandbox) = Sandbox::of("groups") else {
        return;
    };
    let server = ApiServer::start();
    server.put(sidecar("groups", &sandbox.address));
    let node = Node::new();
    let groups = ("ISTIO_OUTBOUND_OWNER_GROUPS", "4242,java");
    let loopback = ("ISTIO_OUTBOUND_IPV4_LOOPBACK_CIDR", "127.0.0.0/8");
    let exclude = ("ISTIO_OUTBOUND_OWNER_GROUPS_EXCLUDE", "4243");
    let agent = start(&node, &server, &[IN_PLACE, OFTEN, exclude, loopback]);
    agent.until("verified", || agent.metric("weir_pods_verified") == 1);
    let rules = sandbox.rules();
    for part in ["meta skgid 4243 counter", "ip daddr 127.0.0.0/8 counter"] {
        assert!(rules.contains(part), "{part}: {rules}");
    }
    drop(agent);
    // The agent refuses to start with an unknown group.
    let refused = node.run(&["agent"], &[groups]);
    assert!(!refused.status.success());
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(
        said.contains("ISTIO_OUTBOUND_OWNER_GROUPS") && said.contains("java"),
        "{said}"
    );
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
    let counted = || agent.metric("weir_unasked_removed_total");
    for _ in 0..2 {
        let before = counted();
        let rule = PolicyRule::mark(AddressFamily::V4, 0x539, 133).by(OURS);
        let route = Route::local_default(AddressFamily::V4, LOOPBACK_IFINDEX, 133).by(OURS);
        assert!(routing.add_route(&route).unwrap() && routing.add_rule(&rule).unwrap());
        // The agent may remove the route before the rule is added.
        agent.until("removed", || {
            let has_rule = routing.rules().unwrap().iter().any(|r| r.table == 133);
            counted() > before && routing.routes(133).unwrap().is_empty() && !has_rule
        });
    }
}

/// The interval exceeds the deadlines of the tests, so only a notification or the poll of the counters can cause a repair.
const SELDOM: (&str, &str) = ("WEIR_VERIFY_INTERVAL", "3600");

// matrix: every; variants no-xtables no-ipset
#[test]
fn rules_that_another_program_flushes_are_restored_without_a_round() {
    let (Some(sandbox), Some(quiet)) = (Sandbox::of("flushed"), Sandbox::of("quiet")) else {
        return;
    };
    let server = ApiServer::start();
    server.put(sidecar("flushed", &sandbox.address));
    server.put(sidecar("quiet", &quiet.address));
    let node = Node::new();
    let agent = start(&node, &server, &[IN_PLACE, SELDOM]);
    let drift = || agent.metric("weir_drift_total{cause=\"missing\"}");
    agent.until("verified", || agent.metric("weir_pods_verified") == 2);
    assert_eq!(drift(), 2);
    let line = "pod shop/flushed was not redirected as it asks, changed by process ";
    assert!(!agent.log().contains(line), "{}", agent.log());
    let named = || {
        let log = agent.log();
        log.lines().find(|l| l.contains(line)).map(str::to_owned)
    };
    // The comparison after the agent's own commit may find the change before the kernel has reported which process made it.
    let mut repairs = 2;
    while named().is_none() {
        assert!(repairs < 5, "{}", agent.log());
        sandbox.tool("nft", &["flush", "ruleset"]);
        agent.until("restored", || sandbox.is_redirected());
        repairs += 1;
        agent.until("counted", || drift() == repairs);
    }
    let said = named().unwrap();
    assert!(said.contains(" (nft): "), "{said}");
    agent.until("verified again", || agent.metric("weir_pods_verified") == 2);
    // Only the pod whose rules were changed was repaired.
    let log = agent.log();
    assert_eq!(
        log.matches("pod shop/quiet was not redirected").count(),
        1,
        "{log}"
    );
    // The commit of a repair does not cause another repair.
    assert_eq!(drift(), repairs);
    drop(quiet);
}

/// An interval of 0 disables only the rounds: the agent still redirects new pods, and still repairs changed rules.
#[test]
fn without_rounds_rules_that_are_flushed_are_restored_all_the_same() {
    let Some(sandbox) = Sandbox::of("roundless") else {
        return;
    };
    let server = ApiServer::start();
    server.put(sidecar("roundless", &sandbox.address));
    let node = Node::new();
    let agent = start(&node, &server, &[IN_PLACE, ("WEIR_VERIFY_INTERVAL", "0")]);
    agent.until("verified", || agent.metric("weir_pods_verified") == 1);
    sandbox.tool("nft", &["flush", "ruleset"]);
    agent.until("restored", || sandbox.is_redirected());
}

/// The addresses of the pod determine which families are redirected; an address may be added after the rules.
#[test]
fn an_ipv6_address_that_comes_late_is_redirected_too() {
    if !std::path::Path::new("/proc/sys/net/ipv6").exists() {
        println!("skipped: this kernel has no IPv6");
        return;
    }
    let Some(sandbox) = Sandbox::of("late") else {
        return;
    };
    let server = ApiServer::start();
    let mut pod = sidecar("late", &sandbox.address);
    pod["spec"]["containers"][1]["env"] =
        serde_json::json!([{"name": "ISTIO_DUAL_STACK", "value": "true"}]);
    server.put(pod);
    let node = Node::new();
    let agent = start(&node, &server, &[IN_PLACE, SELDOM]);
    agent.until("verified", || agent.metric("weir_pods_verified") == 1);
    let has_ipv6 = || sandbox.rules().contains("ip6 saddr ::6");
    assert!(!has_ipv6());
    for arguments in [
        "link add other type veth",
        "address add fd00:9::9/64 dev other nodad",
    ] {
        sandbox.tool("ip", &arguments.split(' ').collect::<Vec<_>>());
    }
    agent.until("redirected", has_ipv6);
    agent.until("verified again", || agent.metric("weir_pods_verified") == 1);
}

/// The kernel sends no notification for legacy tables, so the agent polls their sizes.
// matrix: every
#[test]
fn legacy_rules_that_another_program_flushes_are_restored_without_a_round() {
    let Some(sandbox) = Sandbox::of("legacy") else {
        return;
    };
    let node = Node::new();
    // The agent keeps the engine that is in use.
    redirect_by(&node, &sandbox, "xtables");
    let any = ("NATIVE_NFTABLES", "false");
    let server = ApiServer::start();
    server.put(sidecar("legacy", &sandbox.address));
    let agent = start(&node, &server, &[IN_PLACE, SELDOM, any]);
    agent.until("verified", || agent.metric("weir_pods_verified") == 1);
    let saved = || sandbox.tool("iptables-legacy-save", &["-t", "nat"]);
    let before = saved().matches("\n-A ").count();
    assert!(before > 5, "{}", saved());
    for n in 1..=2 {
        // The agent may restore them before anybody sees them gone; it counts that.
        sandbox.tool("iptables-legacy", &["-t", "nat", "-F", "ISTIO_OUTPUT"]);
        agent.until("restored", || saved().matches("\n-A ").count() == before);
        agent.until("counted", || {
            agent.metric("weir_drift_total{cause=\"missing\"}") == n
        });
    }
    assert_eq!(sandbox.rules(), "", "nothing of nf_tables");
}

/// Another program keeps flushing the rules: the agent pauses its repairs and reports the contention.
#[test]
fn repairs_that_another_program_reverts_are_put_off_and_told() {
    let Some(sandbox) = Sandbox::of("contended") else {
        return;
    };
    let server = ApiServer::start();
    server.put(sidecar("contended", &sandbox.address));
    let node = Node::new();
    let agent = start(&node, &server, &[IN_PLACE, SELDOM]);
    agent.until("verified", || agent.metric("weir_pods_verified") == 1);
    let contention = || agent.metric("weir_contention_total");
    agent.until("contention", || {
        if sandbox.is_redirected() {
            sandbox.tool("nft", &["flush", "ruleset"]);
        }
        contention() > 0
    });
    // The kernel may report too late which process made the last change.
    agent.says("(nft)");
    agent.says(" changes them again: the next repair is in 1 s; stop that program");
    agent.until("the event", || {
        !events(&server, "RedirectionContended").is_empty()
    });
    // If the rules are reverted during the pause, the agent reports it, and repairs them when the pause ends.
    agent.until("not verified", || {
        if sandbox.is_redirected() {
            sandbox.tool("nft", &["flush", "ruleset"]);
        }
        agent.metric("weir_pods_verified") == 0
    });
    agent.until("restored", || sandbox.is_redirected());
    agent.until("verified again", || agent.metric("weir_pods_verified") == 1);
}
