//! A fingerprint that is updated by notifications always equals a fingerprint that is read from scratch.

use std::process::Command;
use weir_cni::compile::Engine;
use weir_cni::config::NameFiles;
use weir_cni::redirection::{FingerprintReader, RTPROT_WEIR, SIDECAR, Sandbox};
use weir_netfilter::nft::{NftEngine, Ruleset, Table, TableFamily};
use weir_netlink::Netns;
use weir_netlink::route::{
    AddressFamily, LOOPBACK_IFINDEX, PolicyRule, Route, RouteProtocol, Routing,
};
use weir_rules::SidecarConfig;
use weir_testing::{lacks, namespace_or_skip};

const TABLE: u32 = 133;

fn ip(netns: &Netns, arguments: &str) {
    let run = || {
        let mut ip = Command::new("ip");
        ip.args(arguments.split_whitespace()).status()
    };
    assert!(netns.run(run).unwrap().unwrap().success(), "{arguments}");
}

#[test]
fn a_reader_sees_every_change() {
    let netns = namespace_or_skip!();
    let sandbox = Sandbox::of(netns.try_clone().unwrap()).unwrap();
    let routing = Routing::open_in(&netns).unwrap();
    let mut reader = match sandbox.fingerprint_reader() {
        Err(e) if e.is_unsupported() => return lacks::skip("nf_tables", "3.13", e),
        reader => reader.unwrap(),
    };
    let anew = || sandbox.visit(|visit| visit.fingerprint()).unwrap().unwrap();
    let mut last = reader.read().unwrap();
    let mut changed = |by: &str| {
        let now = reader.read().unwrap();
        assert_ne!(now, last, "{by}");
        assert_eq!(now, anew(), "{by}");
        assert_eq!(reader.read().unwrap(), now, "{by}");
        last = now;
    };
    routing.set_up(LOOPBACK_IFINDEX).unwrap();
    changed("the addresses that lo gets");
    let has_ipv6 = std::path::Path::new("/proc/sys/net/ipv6").exists();
    let families = [AddressFamily::V4, AddressFamily::V6];
    for family in families.into_iter().take(1 + usize::from(has_ipv6)) {
        let rule = PolicyRule::mark(family, 1337, TABLE);
        routing.add_rule(&rule).unwrap();
        changed("a policy rule");
        let route = Route::local_default(family, LOOPBACK_IFINDEX, TABLE);
        routing.add_route(&route).unwrap();
        changed("a route of a table that a mark selects");
        let ours = route.by(RouteProtocol::Other(RTPROT_WEIR));
        routing.add_route(&Route { table: 7, ..ours }).unwrap();
        changed("a route of weir in another table");
    }
    routing
        .add_address(LOOPBACK_IFINDEX, "10.9.9.9/32".parse().unwrap())
        .unwrap();
    changed("an address of lo");
    let table = Table::new(TableFamily::Inet, "other");
    let id = (TableFamily::Inet, "other".to_owned());
    let ruleset = Ruleset {
        tables: vec![table],
    };
    netns
        .run(|| NftEngine::open()?.apply(&ruleset, &[id]))
        .unwrap()
        .unwrap();
    changed("a commit to nf_tables");
    ip(&netns, "rule del fwmark 1337 lookup 133");
    changed("a policy rule that goes");
    ip(&netns, "route flush table 133");
    changed("a route that goes");
    // The kernel deletes IPv4 routes of the link without notifications.
    ip(&netns, "link set lo down");
    changed("routes that go with their link");
    ip(&netns, "link add other type veth");
    assert_eq!(anew(), last, "another link");
    // This address determines whether IPv6 is redirected.
    let late = match has_ipv6 {
        true => "address add fd00:9::9/64 dev other nodad",
        false => "address add 10.9.9.8/24 dev other",
    };
    ip(&netns, late);
    let now = reader.read().unwrap();
    assert_ne!(now, last, "an address of another link");
    assert_eq!(now, anew());
}

/// Without IPv6 neither its addresses nor its local routes go: the loss of outbound connections would not be noticed for minutes.
#[test]
fn lo_that_is_set_down_is_in_it() {
    let netns = namespace_or_skip!();
    let disable = || std::fs::write("/proc/sys/net/ipv6/conf/all/disable_ipv6", "1");
    // A kernel without IPv6 has no such file.
    let _ = netns.run(disable).unwrap();
    let sandbox = Sandbox::of(netns.try_clone().unwrap()).unwrap();
    let mut reader = match sandbox.fingerprint_reader() {
        Err(e) if e.is_unsupported() => return lacks::skip("nf_tables", "3.13", e),
        reader => reader.unwrap(),
    };
    let [up, down, again] = ["up", "down", "up"].map(|state| {
        ip(&netns, &format!("link set lo {state}"));
        reader.read().unwrap()
    });
    assert!(up != down && up == again);
}

/// A policy rule before weir's may look up a table whose routes keep replies from returning to the proxy, whatever its selector.
#[test]
fn routes_of_tables_that_foreign_rules_look_up_first_are_in_it() {
    let netns = namespace_or_skip!();
    let sandbox = Sandbox::of(netns.try_clone().unwrap()).unwrap();
    let mut reader = match sandbox.fingerprint_reader() {
        Err(e) if e.is_unsupported() => return lacks::skip("nf_tables", "3.13", e),
        reader => reader.unwrap(),
    };
    ip(&netns, "link set lo up");
    ip(&netns, "rule add fwmark 1337 lookup 133 pref 100");
    for (table, selectors, counts) in [
        (11, "pref 51 from 10.0.0.0/8", true),
        (12, "pref 52 iif lo", true),
        (13, "pref 53 from all", true),
        (14, "pref 54 not from 10.0.0.0/8", true),
        // Rules that do not match packets of weir, or follow weir's rule.
        (21, "pref 61 iif eth0", false),
        (22, "pref 62 from all to 10.0.0.0/8", false),
        (23, "pref 101 from 10.0.0.0/8", false),
    ] {
        ip(&netns, &format!("rule add {selectors} lookup {table}"));
        let before = reader.read().unwrap();
        let route = format!("route add 192.0.2.0/24 dev lo table {table}");
        ip(&netns, &route);
        assert_eq!(reader.read().unwrap() != before, counts, "{selectors}");
    }
    // A node with many interfaces has this many tables, which is no error.
    for table in 200..220 {
        ip(
            &netns,
            &format!("rule add from 10.2.0.0/16 lookup {table} pref 60"),
        );
    }
    reader.read().unwrap();
}

/// The written rules are compared with the rules in the fingerprint.
#[test]
fn what_was_applied_has_a_fingerprint_as_long_as_nothing_changes() {
    let netns = namespace_or_skip!();
    let sandbox = Sandbox::of(netns.try_clone().unwrap()).unwrap();
    let routing = Routing::open_in(&netns).unwrap();
    routing.set_up(LOOPBACK_IFINDEX).unwrap();
    let given = r#"{"inbound_interception_mode": "TPROXY", "inbound_ports_include": "*", "enable_ipv6": true}"#;
    let given: SidecarConfig = serde_json::from_str(given).unwrap();
    let intent = given.intent(&NameFiles::default()).unwrap();
    let changed_by = |arguments: &str| {
        let inside = |visit: &weir_cni::redirection::Visit<'_>| {
            let applied = match visit.apply_intent(&intent, Some(Engine::Nft)) {
                Err(e) if e.reason.is_unsupported() => return None,
                applied => applied.unwrap(),
            };
            let fingerprint = visit.fingerprint_of(&applied);
            assert_eq!(fingerprint, visit.fingerprint().ok(), "{arguments}");
            ip(&netns, arguments);
            assert_eq!(visit.fingerprint_of(&applied), None, "{arguments}");
            Some(())
        };
        sandbox.visit_for(&SIDECAR, inside).unwrap()
    };
    for arguments in [
        "route del local default dev lo table 133",
        "rule del fwmark 1337 lookup 133",
        "-6 route add local default dev lo table 133 metric 7 proto 119",
    ] {
        if changed_by(arguments).is_none() {
            return lacks::skip("nft_tproxy", "4.19", "the kernel has no such expression");
        }
    }
}

/// A node agent may run in the namespace of the host, which is no pod: the fingerprint is read anyway.
#[test]
fn a_node_is_read_with_the_addresses_of_all_links() {
    let own = Netns::current().unwrap();
    match FingerprintReader::of(&own).and_then(|mut reader| reader.read()) {
        Err(e) if e.is_unsupported() => return lacks::skip("nf_tables", "3.13", e),
        read => drop(read.unwrap()),
    }
    let netns = namespace_or_skip!();
    let mut reader = FingerprintReader::of(&netns).unwrap();
    ip(&netns, "link add kube0 type bridge");
    let before = reader.read().unwrap();
    ip(&netns, "address add 10.96.0.10/32 dev kube0");
    let after = reader.read().unwrap();
    assert_ne!(after, before);
    assert_eq!(reader.read().unwrap(), after);
    ip(&netns, "address del 10.96.0.10/32 dev kube0");
    assert_eq!(reader.read().unwrap(), before);
}

/// The addresses at the start of a visit determine the desired state, so a fingerprint with other addresses is an error.
#[test]
fn an_address_that_comes_during_a_visit_leaves_no_fingerprint() {
    let netns = namespace_or_skip!();
    let sandbox = Sandbox::of(netns.try_clone().unwrap()).unwrap();
    ip(&netns, "link add other type veth");
    let inside = |visit: &weir_cni::redirection::Visit<'_>| {
        match visit.fingerprint() {
            Err(e) if e.is_unsupported() => return lacks::skip("nf_tables", "3.13", e),
            read => drop(read.unwrap()),
        }
        ip(&netns, "address add 10.9.9.8/24 dev other");
        assert!(visit.fingerprint().is_err());
    };
    sandbox.visit(inside).unwrap();
    sandbox
        .visit(|visit| visit.fingerprint().map(drop).ok())
        .unwrap();
}
