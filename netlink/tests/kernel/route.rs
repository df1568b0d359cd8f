//! Routing objects on the running kernel; `ip` is the oracle.
// matrix: smoke

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::time::Duration;
use weir_testing::namespace_or_skip;

use crate::common::{ip, routing};
use ipnet::IpNet;
use weir_netlink::route::{
    AddressFamily, LOOPBACK_IFINDEX, PolicyRule, Route, RouteProtocol, RouteScope, RouteType,
    Routing,
};
use weir_netlink::{ErrorKind, Netns};

/// A route protocol that no other writer uses.
const OURS: RouteProtocol = RouteProtocol::Other(119);
const MARK: u32 = 1337;
const TABLE: u32 = 133;

fn net(text: &str) -> IpNet {
    text.parse().expect("a network")
}

/// Sets one end of a pair up and adds its addresses. Returns the index of the link.
fn end(routing: &Routing, name: &str, addresses: &[&str]) -> u32 {
    let link = routing.link(name).expect(name);
    routing.set_up(link.index).expect("up");
    for address in addresses {
        assert!(
            routing
                .add_address(link.index, net(address))
                .expect("added"),
            "{address}"
        );
    }
    link.index
}

#[test]
fn tcp_runs_over_a_veth_pair_between_two_namespaces() {
    let (left, right) = (namespace_or_skip!(), namespace_or_skip!());
    let (l, r) = (routing(&left), routing(&right));
    l.add_veth("eth0", "eth0", &right).expect("veth");
    end(&l, "eth0", &["10.1.0.1/24", "fd01::1/64"]);
    end(&r, "eth0", &["10.1.0.2/24", "fd01::2/64"]);
    for address in ["10.1.0.2", "fd01::2"] {
        let address: IpAddr = address.parse().expect("address");
        // bind() succeeds at once because the IPv6 address is not tentative.
        let listener = right
            .run(|| TcpListener::bind((address, 0)))
            .unwrap()
            .expect("bound");
        let to = SocketAddr::new(address, listener.local_addr().expect("address").port());
        let wait = Duration::from_secs(10);
        let mut client = left
            .run(|| TcpStream::connect_timeout(&to, wait))
            .unwrap()
            .expect("connected");
        client.set_read_timeout(Some(wait)).expect("timeout");
        let (mut server, from) = listener.accept().expect("accepted");
        assert_eq!(from, client.local_addr().expect("address"));
        server.write_all(b"weir").expect("sent");
        let mut got = [0; 4];
        client.read_exact(&mut got).expect("received");
        assert_eq!(&got, b"weir");
    }
}

#[test]
fn links_are_made_moved_looked_up_and_deleted() {
    let (here, there) = (namespace_or_skip!(), namespace_or_skip!());
    let (h, t) = (routing(&here), routing(&there));
    h.add_veth("a", "b", &here).expect("veth");
    assert!(h.add_veth("a", "c", &here).expect_err("taken").is_exists());
    let a = h.link("a").expect("a");
    assert_eq!(h.link_by_index(a.index).expect("by index"), a);
    assert_eq!(
        (a.kind.as_ref().map(|k| k.word()), a.up, a.mac.is_some()),
        (Some("veth"), false, true)
    );
    let names: Vec<String> = h
        .links()
        .expect("links")
        .into_iter()
        .map(|l| l.name)
        .collect();
    assert!(
        names.contains(&"a".to_owned()) && names.contains(&"b".to_owned()),
        "{names:?}"
    );

    h.move_link(h.link("b").expect("b").index, &there)
        .expect("moved");
    assert!(h.link("b").expect_err("gone").is_not_found());
    assert_eq!(
        t.link("b").expect("came").kind.map(|k| k.word().to_owned()),
        Some("veth".to_owned())
    );
    assert_eq!(ip(&there, "-o link show dev b").len(), 1);

    assert!(h.delete_link(a.index).expect("deleted"));
    assert!(
        !h.delete_link(a.index).expect("absent"),
        "the second time it is absent"
    );
    assert!(t.link("b").expect_err("the peer went too").is_not_found());
}

#[test]
fn addresses_come_ipv4_first_and_adding_twice_is_once() {
    let netns = namespace_or_skip!();
    let routing = routing(&netns);
    let lo = routing.link("lo").expect("lo").index;
    let six = net("::6/128");
    assert!(routing.add_address(lo, six).expect("added"));
    assert!(!routing.add_address(lo, six).expect("there already"));
    assert!(routing.add_address(lo, net("127.0.0.6/32")).expect("added"));
    let found = routing.addresses().expect("addresses");
    let on_lo: Vec<String> = found.iter().map(|a| a.net.to_string()).collect();
    let oracle: Vec<String> = ["-4", "-6"]
        .iter()
        .flat_map(|family| ip(&netns, &format!("-o {family} address show dev lo")))
        .map(|line| line.split_whitespace().nth(3).expect("address").to_owned())
        .collect();
    assert_eq!(on_lo, oracle);
    assert!(
        found
            .iter()
            .all(|a| !a.tentative && a.scope == RouteScope::Host || a.net == six)
    );

    assert!(routing.del_address(lo, six).expect("deleted"));
    assert!(!routing.del_address(lo, six).expect("absent"));
}

#[test]
fn a_rule_is_never_added_twice() {
    let netns = namespace_or_skip!();
    let routing = routing(&netns);
    for family in [AddressFamily::V4, AddressFamily::V6] {
        let rule = PolicyRule::mark(family, MARK, TABLE).by(OURS);
        assert!(routing.add_rule(&rule).expect("added"));
        assert!(!routing.add_rule(&rule).expect("there already"));
        // A rule with another mark, mask or table is a different rule.
        for other in [
            PolicyRule {
                fwmark: Some(MARK + 1),
                ..rule.clone()
            },
            PolicyRule {
                fwmask: Some(0xffff),
                ..rule.clone()
            },
            PolicyRule {
                table: 70_000,
                ..rule.clone()
            },
        ] {
            assert!(routing.add_rule(&other).expect("added"), "{other}");
            assert!(routing.del_rule(&other).expect("deleted"), "{other}");
        }
    }
    for family in ["-4", "-6"] {
        let shown = ip(&netns, &format!("{family} rule show"));
        let ours: Vec<_> = shown
            .iter()
            .filter(|l| l.contains("fwmark 0x539 lookup 133"))
            .collect();
        assert_eq!(ours.len(), 1, "{shown:?}");
    }
    let ours: Vec<PolicyRule> = routing
        .rules()
        .expect("rules")
        .into_iter()
        .filter(|r| r.fwmark.is_some())
        .collect();
    assert_eq!(
        ours.iter().map(|r| r.family).collect::<Vec<_>>(),
        [AddressFamily::V4, AddressFamily::V6]
    );
    for rule in &ours {
        assert_eq!(rule.protocol, OURS);
        assert!(rule.only_mark() && rule.priority.is_some(), "{rule:?}");
        assert!(routing.del_rule(rule).expect("deleted"));
        assert!(!routing.del_rule(rule).expect("absent"));
    }
}

#[test]
fn a_rule_that_another_tool_made_counts_only_if_it_does_the_same() {
    let netns = namespace_or_skip!();
    let routing = routing(&netns);
    ip(&netns, "rule add from 10.9.0.0/16 fwmark 0x539 lookup 133");
    let rule = PolicyRule::mark(AddressFamily::V4, MARK, TABLE).by(OURS);
    assert!(routing.add_rule(&rule).expect("the other one is narrower"));
    assert!(routing.del_rule(&rule).expect("deleted"));
    ip(&netns, "rule del from 10.9.0.0/16 fwmark 0x539 lookup 133");
    ip(&netns, "rule add fwmark 0x539 lookup 133 priority 77");
    assert!(!routing.add_rule(&rule).expect("the same"));
    // With an explicit priority, the rule at another priority is a different one.
    let first = rule.at(7);
    assert!(routing.add_rule(&first).expect("added"));
    assert!(!routing.add_rule(&first).expect("there already"));
}

#[test]
fn the_routes_of_a_table_are_what_ip_shows() {
    let netns = namespace_or_skip!();
    let routing = routing(&netns);
    let lo = routing.link("lo").expect("lo").index;
    assert_eq!(routing.routes(TABLE).expect("no such table yet"), []);
    for table in [TABLE, 70_000] {
        for family in [AddressFamily::V4, AddressFamily::V6] {
            let route = Route::local_default(family, lo, table).by(OURS);
            assert!(routing.add_route(&route).expect("added"));
            assert!(!routing.add_route(&route).expect("there already"));
        }
        assert_eq!(
            ip(&netns, &format!("-4 route show table {table}")),
            ["local default dev lo proto 119 scope host"]
        );
        assert_eq!(
            ip(&netns, &format!("-6 route show table {table}")),
            ["local default dev lo proto 119 metric 1024 pref medium"]
        );
        let found = routing.routes(table).expect("routes");
        let v4 = Route::local_default(AddressFamily::V4, lo, table).by(OURS);
        let v6 = Route {
            priority: Some(1024),
            ..Route::local_default(AddressFamily::V6, lo, table).by(OURS)
        };
        assert_eq!(found, [v4, v6]);
        for route in &found {
            assert!(routing.del_route(route).expect("deleted"));
            assert!(!routing.del_route(route).expect("absent"));
        }
        assert_eq!(routing.routes(table).expect("empty"), []);
    }
}

#[test]
fn routes_of_other_tools_are_read_as_they_are() {
    let netns = namespace_or_skip!();
    let routing = routing(&netns);
    routing.add_veth("eth0", "peer", &netns).expect("veth");
    let index = end(&routing, "eth0", &["10.1.0.1/24", "fd01::1/64"]);
    // A route over a link without a carrier has flags and therefore is not `plain`.
    end(&routing, "peer", &[]);
    let gateway = Some("10.1.0.254".parse().expect("address"));
    let ours = Route::unicast(net("10.9.0.0/16"), gateway, Some(index));
    assert!(routing.add_route(&ours).expect("added"));
    ip(
        &netns,
        "route add blackhole 10.8.0.0/16 metric 5 proto static",
    );
    let main = routes_as_ip_counts(&routing, &netns);
    assert!(main.contains(&ours), "{main:?}");
    let hole = main
        .iter()
        .find(|r| r.dst == net("10.8.0.0/16"))
        .expect("blackhole");
    assert_eq!(hole.kind, RouteType::BlackHole);
    assert_eq!(
        (hole.protocol, hole.priority),
        (RouteProtocol::Static, Some(5))
    );
    let link = main
        .iter()
        .find(|r| r.dst == net("10.1.0.0/24"))
        .expect("the link's");
    assert_eq!(
        (link.scope, link.oif, link.gateway),
        (RouteScope::Link, Some(index), None)
    );
}

/// The main table, which must have as many routes of each family as `ip` lists.
///
/// The kernel adds IPv6 routes when a link gets its carrier, at any moment. So the table is read between two equal listings of `ip`.
fn routes_as_ip_counts(routing: &Routing, netns: &Netns) -> Vec<Route> {
    let shown = || ["-4", "-6"].map(|family| ip(netns, &format!("{family} route show")));
    let mut before = shown();
    for _ in 0..20 {
        let main = routing.routes(254).expect("routes");
        let after = shown();
        if before == after {
            let count = |family| main.iter().filter(|r| r.family() == family).count();
            let counts = [AddressFamily::V4, AddressFamily::V6].map(count);
            assert_eq!(counts, after.map(|lines| lines.len()), "{main:?}");
            return main;
        }
        before = after;
    }
    panic!("the routes of the namespace do not come to rest: {before:?}");
}

/// The kernel keeps only one route with the same key; the two are distinguished by their effect.
#[test]
fn a_foreign_route_of_the_same_key_is_told_from_ours() {
    let netns = namespace_or_skip!();
    let routing = routing(&netns);
    for (family, foreign) in [
        (
            AddressFamily::V4,
            "-4 route add blackhole default table 133",
        ),
        (
            AddressFamily::V6,
            "-6 route add blackhole default metric 1024 table 133",
        ),
    ] {
        ip(&netns, foreign);
        let ours = Route::local_default(family, LOOPBACK_IFINDEX, TABLE).by(OURS);
        assert!(!routing.add_route(&ours).expect("the key is taken"));
        let found = routing.routes(TABLE).expect("routes");
        let found: Vec<_> = found.iter().filter(|r| r.family() == family).collect();
        assert!(
            found.len() == 1 && !found[0].same_effect(&ours) && found[0].metric() == ours.metric(),
            "{found:?}"
        );
        ip(&netns, &foreign.replace("add", "delete"));
        assert!(routing.add_route(&ours).expect("added"));
        let found = routing.routes(TABLE).expect("routes");
        assert!(found.iter().any(|r| r.same_effect(&ours)), "{found:?}");
    }
}

#[test]
fn what_changes_the_effect_of_a_route_is_not_overlooked() {
    let netns = namespace_or_skip!();
    let routing = routing(&netns);
    let ours = Route::local_default(AddressFamily::V4, LOOPBACK_IFINDEX, TABLE).by(OURS);
    for more in ["src 127.0.0.9", "mtu 1280", "tos 0x10", "realm 5"] {
        let route = format!("local default dev lo table 133 {more}");
        ip(&netns, &format!("route add {route}"));
        let found = routing.routes(TABLE).expect("routes");
        assert!(!found[0].same_effect(&ours), "{more}: {found:?}");
        ip(&netns, &format!("route delete {route}"));
    }
}

/// Includes tables that no policy rule refers to. Attributes without a field are reported as present.
#[test]
fn routes_of_all_tables_with_their_routers_and_sources() {
    let netns = namespace_or_skip!();
    let routing = routing(&netns);
    routing.add_veth("eth0", "peer", &netns).expect("veth");
    end(&routing, "eth0", &["10.1.0.1/24"]);
    end(&routing, "peer", &[]);
    for add in [
        "route add 10.9.0.0/16 via inet6 fe80::9 dev eth0 table 77",
        "route add 10.8.0.0/16 via 192.0.2.9 dev eth0 onlink src 10.1.0.1 table 78",
        "route add 10.7.0.0/16 dev eth0 mtu 1280",
    ] {
        ip(&netns, add);
    }
    let all = routing.all_routes().expect("routes");
    let found = |dst: &str| all.iter().find(|r| r.dst == net(dst)).expect("the route");
    let via = found("10.9.0.0/16");
    assert_eq!(via.router().as_deref(), Some("via inet6 fe80::9"));
    assert_eq!((via.table, via.more, via.plain), (77, false, false));
    let onlink = found("10.8.0.0/16");
    assert!(
        onlink.onlink && !onlink.more && onlink.via.is_none(),
        "{onlink:?}"
    );
    assert_eq!(onlink.prefsrc, Some("10.1.0.1".parse().expect("address")));
    assert!(found("10.7.0.0/16").more);
    assert!(all.iter().any(|r| r.table == 255));
}

#[test]
fn routes_are_found_by_their_protocol_in_every_table() {
    let netns = namespace_or_skip!();
    let routing = routing(&netns);
    ip(&netns, "route add blackhole 10.8.0.0/16 proto static");
    let mut added = Vec::new();
    for (family, table) in [
        (AddressFamily::V4, 77),
        (AddressFamily::V4, 70_000),
        (AddressFamily::V6, 78),
    ] {
        let route = Route::local_default(family, LOOPBACK_IFINDEX, table).by(OURS);
        assert!(routing.add_route(&route).expect("added"));
        added.push((family, table));
    }
    let found = routing.routes_by(OURS).expect("routes");
    let found: Vec<_> = found.iter().map(|r| (r.family(), r.table)).collect();
    assert_eq!(found, added);
    // The other family has no such table.
    for (family, table) in added {
        let found = routing.routes(table).expect("routes");
        let found: Vec<_> = found.iter().map(|r| (r.family(), r.table)).collect();
        assert_eq!(found, [(family, table)]);
    }
}

/// The order of the two rules does not matter.
#[test]
fn a_rule_of_another_protocol_is_not_deleted_in_the_place_of_ours() {
    let netns = namespace_or_skip!();
    let routing = routing(&netns);
    for family in [AddressFamily::V4, AddressFamily::V6] {
        let rule = PolicyRule::mark(family, MARK, TABLE).by(OURS);
        assert!(routing.add_rule(&rule).expect("added"));
        let option = if family == AddressFamily::V4 {
            "-4"
        } else {
            "-6"
        };
        ip(
            &netns,
            &format!("{option} rule add fwmark 0x539 lookup 133 priority 5"),
        );
        assert!(routing.del_rule(&rule).expect("deleted"));
        assert!(!routing.del_rule(&rule).expect("absent"));
        let rules = routing.rules().expect("rules");
        let left: Vec<_> = rules.iter().filter(|r| r.same_effect(&rule)).collect();
        assert!(
            left.len() == 1 && left[0].priority == Some(5),
            "{family}: {left:?}"
        );
    }
}

/// If the kernel stores the protocol of an address, the `::1` that it adds to `lo` has one as well.
#[test]
fn an_address_says_who_added_it() {
    let netns = namespace_or_skip!();
    let routing = routing(&netns);
    assert!(
        routing
            .add_address_by(LOOPBACK_IFINDEX, net("::6/128"), Some(119))
            .expect("added")
    );
    ip(&netns, "address add ::7/128 dev lo");
    let found = routing.addresses().expect("addresses");
    let by = |text: &str| {
        let address = found.iter().find(|a| a.net == net(text));
        address.expect("the address").protocol
    };
    let keeps_owners = by("::1/128").is_some();
    assert_eq!(by("::6/128"), keeps_owners.then_some(119));
    assert_eq!(by("::7/128"), None);
}

#[test]
fn errors_carry_the_object_and_the_kernel_s_words() {
    let netns = namespace_or_skip!();
    let routing = routing(&netns);
    let missing = routing.link("eth7").expect_err("none");
    assert!(
        missing.is_not_found() && missing.to_string().contains("link eth7"),
        "{missing}"
    );
    assert!(matches!(
        routing.link("a/b").expect_err("bad").kind,
        ErrorKind::Refused(_)
    ));
    let gateway = Some("10.9.9.9".parse().expect("address"));
    let lost = routing.add_route(&Route::unicast(net("10.8.0.0/16"), gateway, None));
    let lost = lost.expect_err("no way to the gateway");
    let ErrorKind::Kernel {
        extack: Some(text), ..
    } = &lost.kind
    else {
        panic!("{lost:?}")
    };
    assert!(
        text.contains("gateway") && lost.to_string().contains("10.8.0.0/16"),
        "{lost}"
    );
}

// matrix: host: measures microseconds, which under emulation say nothing
#[test]
fn opening_costs_little() {
    let netns = namespace_or_skip!();
    let fastest = netns
        .run(|| {
            let once = || {
                let start = std::time::Instant::now();
                Routing::open().expect("open");
                start.elapsed()
            };
            (0..50).map(|_| once()).min().expect("some")
        })
        .expect("run");
    println!("opening a routing socket takes {fastest:?} at best");
    // Ten times the measured value (30 us): creating a thread or a timer would exceed it.
    assert!(fastest < Duration::from_micros(300), "{fastest:?}");
}

#[test]
fn a_gateway_of_another_family_is_refused_before_the_kernel_is_asked() {
    let netns = namespace_or_skip!();
    let routing = routing(&netns);
    for (dst, gateway) in [("10.9.0.0/16", "fe80::1"), ("2001:db8::/64", "127.0.0.1")] {
        let (dst, gateway) = (dst.parse().expect("a network"), gateway.parse());
        let route = Route::unicast(dst, Some(gateway.expect("an address")), Some(1));
        for result in [routing.add_route(&route), routing.del_route(&route)] {
            let error = result.expect_err("refused");
            assert!(matches!(error.kind, ErrorKind::Refused(_)), "{error}");
            assert!(error.to_string().contains("give an IPv"), "{error}");
        }
    }
}

#[test]
fn a_route_names_its_kind_as_ip_does() {
    let mut route = Route::unicast("10.9.0.0/16".parse().expect("a network"), None, None);
    for (kind, word) in [
        (RouteType::Unspec, "none 10.9"),
        (RouteType::Other(77), "77 10.9"),
    ] {
        route.kind = kind;
        assert!(route.to_string().starts_with(word), "{route}");
    }
}

/// Without its other selectors the rule would match more packets, and the deletion would remove another writer's rule.
#[test]
fn a_rule_with_other_selectors_is_not_written() {
    let netns = namespace_or_skip!();
    let routing = routing(&netns);
    let add = "rule add from 10.0.0.0/8 fwmark 1 lookup 100";
    ip(&netns, add);
    let read = routing.rules().expect("rules");
    let read = read.iter().find(|r| r.table == 100).expect("the rule");
    for result in [routing.add_rule(read), routing.del_rule(read)] {
        let error = result.expect_err("refused");
        assert!(matches!(error.kind, ErrorKind::Refused(_)), "{error}");
    }
    assert!(routing.rules().expect("rules").contains(read));
}

/// The kernel lists whether the link and the target of a rule exist.
#[test]
fn a_listed_rule_is_deleted_in_every_state() {
    let netns = namespace_or_skip!();
    let routing = routing(&netns);
    ip(&netns, "rule add iif absent lookup local pref 9 proto 119");
    ip(
        &netns,
        "rule add fwmark 0x200/0x200 goto 40000 pref 100 proto 119",
    );
    let listed = routing.rules().expect("rules").into_iter();
    let listed: Vec<PolicyRule> = listed.filter(|rule| rule.protocol == OURS).collect();
    let texts = ["iif absent [detached]", "goto 40000 [unresolved]"];
    assert_eq!(listed.len(), texts.len(), "{listed:?}");
    for (rule, text) in listed.iter().zip(texts) {
        assert!(rule.to_string().contains(text), "{rule}");
        assert!(routing.del_rule(rule).expect("deleted"), "{rule}");
        assert!(!routing.del_rule(rule).expect("absent"), "{rule}");
        // As after a failure that is undone.
        assert!(routing.add_rule(rule).expect("added"), "{rule}");
        assert!(routing.rules().expect("rules").contains(rule), "{rule}");
    }
}

#[test]
fn rules_by_destination_and_link_are_those_of_ip() {
    let netns = namespace_or_skip!();
    let routing = routing(&netns);
    for (family, flag, host, wide) in [
        (AddressFamily::V4, "-4", "10.9.0.2", "10.9.0.0/16"),
        (AddressFamily::V6, "-6", "fd09::2", "fd09::/64"),
    ] {
        let list = || ip(&netns, &format!("{flag} rule"));
        let before = list();
        let host_net = IpNet::from(host.parse::<IpAddr>().expect("address"));
        let ours = [
            PolicyRule::to(host_net, 300).at(512).by(OURS),
            PolicyRule::to(net(wide), 101).at(513).by(OURS),
            PolicyRule::iif(family, "eni1", 255).at(9).by(OURS),
        ];
        for rule in &ours {
            assert!(routing.add_rule(rule).expect("added"), "{rule}");
            assert!(!routing.add_rule(rule).expect("there already"), "{rule}");
        }
        // A rule at another priority is a different rule.
        let later = ours[2].clone().at(20);
        assert!(routing.add_rule(&later).expect("added"));
        let texts: Vec<String> = list().iter().map(|l| l.replace('\t', " ")).collect();
        for expected in [
            format!("512: from all to {host} lookup 300 proto 119"),
            format!("513: from all to {wide} lookup 101 proto 119"),
            "9: from all iif eni1 [detached] lookup local proto 119".to_owned(),
        ] {
            assert!(texts.contains(&expected), "{expected}: {texts:?}");
        }
        // Another writer's rule with the same effect stays.
        ip(
            &netns,
            &format!("{flag} rule add to {host} lookup 300 priority 512 proto static"),
        );
        for rule in ours.iter().chain([&later]) {
            assert!(routing.del_rule(rule).expect("deleted"), "{rule}");
            assert!(!routing.del_rule(rule).expect("absent"), "{rule}");
        }
        ip(
            &netns,
            &format!("{flag} rule del to {host} lookup 300 priority 512 proto static"),
        );
        assert_eq!(list(), before);
    }
}
