//! Every number and name of the specification, and what is refused.

use super::*;
use std::collections::BTreeMap;
use weir_cni::compile::Engine;
use weir_netfilter::ipset::IpsetOp;
use weir_netfilter::nft::Ruleset;
use weir_netfilter::xtables::{XtFamily, XtOp};

fn config(text: &str) -> Config {
    Config::from_json(text, "test.json").unwrap()
}

pub(crate) fn node(text: &str, carrier: Carrier) -> Node {
    let config = config(text);
    let active = config.active().map(|proxy| LocatedProxy {
        proxy: proxy.clone(),
        device: "veth-zt".to_owned(),
        interface: "eth0".to_owned(),
        host: "10.0.0.1".parse().unwrap(),
        slot: 0,
    });
    Node {
        config,
        carrier,
        active,
        before: Vec::new(),
        devices: [("a".to_owned(), vec!["veth-a".to_owned()])].into(),
        bridges: BTreeMap::new(),
        sources: BTreeMap::new(),
        left_out: BTreeMap::new(),
        has_ipv6: true,
    }
}

const V4: &str = r#"{"proxies": [{"uid": "zt", "netns": "/run/netns/zt", "addresses": ["10.0.0.2"]}],
    "pods": [{"uid": "a", "addresses": ["10.0.0.10"]}], "host_addresses": ["10.0.0.1"], "dns_capture": true}"#;
pub(crate) const BOTH: &str = r#"{"proxies": [{"uid": "zt", "netns": "/run/netns/zt", "addresses": ["10.0.0.2", "fd00::2"]}],
    "pods": [{"uid": "a", "addresses": ["10.0.0.10", "fd00::10"]}]}"#;

fn lines<T: std::fmt::Display>(of: &[T]) -> Vec<String> {
    of.iter().map(ToString::to_string).collect()
}

#[test]
fn links_routes_and_policy_rules_of_the_node() {
    let mut node = node(V4, Carrier::Geneve(6081));
    node.has_ipv6 = false;
    let objects = objects::host(&node);
    assert_eq!(
        lines(&objects.links),
        [
            "istioin type geneve id 1000 remote 10.0.0.2 dstport 6081",
            "istioout type geneve id 1001 remote 10.0.0.2 dstport 6081"
        ]
    );
    let addresses: Vec<String> = objects
        .links
        .iter()
        .flat_map(|l| lines(&l.addresses))
        .collect();
    assert_eq!(addresses, ["192.168.126.1/30", "192.168.127.1/30"]);
    assert_eq!(
        lines(&objects.routes),
        [
            "unreachable 0.0.0.0/0 table 101 metric 4294967295",
            "unreachable 0.0.0.0/0 table 102 metric 4294967295",
            "unreachable 10.0.0.10/32 table 100 metric 4294967295",
            "10.0.0.2/32 dev veth-zt table 100 src 10.0.0.1",
            "10.0.0.2/32 dev veth-zt table 101 src 10.0.0.1",
            "10.0.0.2/32 dev veth-zt table 102",
            "0.0.0.0/0 via 10.0.0.2 dev veth-zt table 102 onlink",
            "0.0.0.0/0 via 192.168.127.2 dev istioout table 101",
            "10.0.0.10/32 via 192.168.126.2 dev istioin table 100 src 10.0.0.1",
        ]
    );
    assert_eq!(
        lines(&objects.rules),
        [
            "IPv4 fwmark 0x200/0x200 goto 32766 priority 100",
            "IPv4 fwmark 0x100/0x100 lookup 101 priority 101",
            "IPv4 fwmark 0x40/0x40 lookup 102 priority 102",
            "IPv4 lookup 100 priority 103",
        ]
    );
    let sysctls: Vec<String> = objects
        .sysctls
        .iter()
        .map(|s| format!("{}={}", s.key, s.value))
        .collect();
    for expected in [
        "ipv4/conf/all/rp_filter=0",
        "ipv4/conf/default/rp_filter=0",
        "ipv4/conf/veth-zt/accept_local=1",
        "ipv4/conf/istioin/rp_filter=0",
        "ipv4/conf/istioout/accept_local=1",
        "ipv4/conf/veth-a/rp_filter=0",
    ] {
        assert!(
            sysctls.iter().any(|s| s == expected),
            "{expected}: {sysctls:?}"
        );
    }
}

#[test]
fn links_routes_and_policy_rules_of_the_proxy() {
    let mut node = node(V4, Carrier::Geneve(6083));
    node.has_ipv6 = false;
    let objects = objects::proxy(&node);
    assert_eq!(
        lines(&objects.links),
        [
            "pistioin type geneve id 1000 remote 10.0.0.1 dstport 6083",
            "pistioout type geneve id 1001 remote 10.0.0.1 dstport 6083"
        ]
    );
    let addresses: Vec<String> = objects
        .links
        .iter()
        .flat_map(|l| lines(&l.addresses))
        .collect();
    assert_eq!(addresses, ["192.168.126.2/30", "192.168.127.2/30"]);
    assert_eq!(lines(&objects.routes), ["local 0.0.0.0/0 dev lo table 100"]);
    assert_eq!(
        lines(&objects.rules),
        [
            "IPv4 fwmark 0x400/0xfff lookup 100 priority 20000",
            "IPv4 fwmark 0x4d3/0xfff lookup 100 priority 20003",
        ]
    );
}

#[test]
fn both_families_have_the_same_objects() {
    let objects = objects::host(&node(BOTH, Carrier::Veth));
    assert_eq!(objects.links[0].addresses.len(), 2);
    let of = |v6: bool| {
        objects
            .routes
            .iter()
            .filter(|r| matches!(r.route.dst, ipnet::IpNet::V6(_)) == v6)
            .count()
    };
    assert_eq!((of(false), of(true)), (9, 9));
    assert_eq!(objects.rules.len(), 8);
    assert_eq!(
        lines(&objects.links)[1],
        "istioout type veth peer name pistioout"
    );
    let proxy = objects::proxy(&node(BOTH, Carrier::Veth));
    assert_eq!((proxy.routes.len(), proxy.rules.len()), (2, 4));
}

fn position(text: &str, part: &str) -> usize {
    text.find(part)
        .unwrap_or_else(|| panic!("{part:?} is not in:\n{text}"))
}

/// The rules of one chain, as `nft list chain` prints them.
fn chain(rules: &Ruleset, name: &str) -> Vec<String> {
    let chain = rules.tables[0]
        .chain(name)
        .unwrap_or_else(|| panic!("chain {name}"));
    let table = weir_netfilter::nft::Table {
        chains: vec![chain.clone()],
        sets: Vec::new(),
        ..rules.tables[0].clone()
    };
    let text = Ruleset {
        tables: vec![table],
    }
    .to_string();
    let inside = text.lines().map(str::trim).skip(2);
    let rules =
        inside.filter(|l| !l.is_empty() && !l.starts_with(['}', '{']) && !l.starts_with("type "));
    rules
        .map(|l| l.replace(" counter packets 0 bytes 0", ""))
        .collect()
}

#[test]
fn rules_of_nf_tables_in_their_order() {
    let mut node = node(V4, Carrier::Geneve(6081));
    node.has_ipv6 = false;
    let rules = nft::host(&node, [("ipv4/conf/all/rp_filter", "2")]);
    let prerouting = chain(&rules, "ztunnel-PREROUTING");
    assert_eq!(prerouting.len(), 16, "{prerouting:#?}");
    let text = prerouting.join("\n");
    let order = [
        "iifname \"istioin\"",
        "iifname \"istioout\"",
        "ip daddr 10.0.0.1 udp dport 6081 return",
        "iifname != \"veth-zt\"",
        "ip saddr != 10.0.0.2",
        "@ztunnel-pods-ips",
    ];
    let places = order.map(|part| position(&text, part));
    assert!(places.is_sorted(), "{text}");
    for (chain_name, parts) in [
        ("ztunnel-FORWARD", ["0x00000220", "0x00000210"]),
        ("ztunnel-INPUT", ["0x00000220", "0x00000210"]),
    ] {
        let text = chain(&rules, chain_name).join("\n");
        parts.iter().for_each(|part| {
            assert!(
                text.contains(part) || text.contains(&part.replace("0x00000", "0x")),
                "{text}"
            )
        });
    }
    let dns = chain(&rules, "ztunnel-nat-PREROUTING").join("\n");
    assert!(dns.contains("10.0.0.2:15053"), "{dns}");
    assert!(rules.to_string().contains("ipv4/conf/all/rp_filter=2"));
    let set = rules.to_string();
    assert!(set.contains("10.0.0.10 comment \"a\""), "{set}");

    let proxy = chain(&nft::proxy(&node, []), "prerouting");
    let text = proxy.join("\n");
    let order = [
        "15008",
        "127.0.0.1:15001",
        "127.0.0.1:15006",
        "ip daddr != 10.0.0.2",
        "icmp type",
    ];
    let places = order.map(|part| position(&text, part));
    assert!(places.is_sorted() && proxy.len() == 5, "{text}");
}

#[test]
fn rules_of_legacy_tables_in_their_order() {
    let mut node = node(V4, Carrier::Geneve(6081));
    node.has_ipv6 = false;
    let rules = xtables::host(&node, [("ipv4/conf/all/rp_filter", "2")]);
    let names: Vec<(&str, usize)> = rules
        .tables
        .iter()
        .map(|t| (t.name.as_str(), t.chains.len() / 2))
        .collect();
    assert_eq!(names, [("mangle", 5), ("nat", 2), ("filter", 1)]);
    let mangle = &rules.tables[0];
    let prerouting = lines(&mangle.chain("ztunnel-PREROUTING").unwrap().rules);
    assert_eq!(
        prerouting,
        [
            " -i istioin -j MARK --set-xmark 0x200/0x200",
            " -i istioin -j RETURN",
            " -i istioout -j MARK --set-xmark 0x200/0x200",
            " -i istioout -j RETURN",
            " -d 10.0.0.1/32 -p udp -m udp --dport 6081 -j RETURN",
            " -m connmark --mark 0x220/0x220 -j MARK --set-xmark 0x200/0x200",
            " -m mark --mark 0x200/0x200 -j RETURN",
            " ! -i veth-zt -p tcp -m tcp ! --tcp-flags SYN,ACK SYN -m connmark --mark 0x210/0x210 -j MARK --set-xmark 0x40/0x40",
            " ! -i veth-zt ! -p tcp -m connmark --mark 0x210/0x210 -j MARK --set-xmark 0x40/0x40",
            " -m mark --mark 0x40/0x40 -j RETURN",
            " ! -s 10.0.0.2/32 -i veth-zt -j MARK --set-xmark 0x210/0x210",
            " -m mark --mark 0x200/0x200 -j RETURN",
            " -i veth-zt -j MARK --set-xmark 0x220/0x220",
            " ! -p tcp -j MARK --set-xmark 0x220/0x220",
            " -m mark --mark 0x200/0x200 -j RETURN",
            " -p tcp -m set --match-set ztunnel-pods-ips src -j MARK --set-xmark 0x100/0x100",
        ]
    );
    let proxy = xtables::proxy(&node, []);
    assert_eq!(
        lines(&proxy.tables[0].chain("ztunnel-PREROUTING").unwrap().rules),
        [
            " -i pistioin -p tcp -m tcp --dport 15008 -j TPROXY --on-port 15008 --on-ip 127.0.0.1 --tproxy-mark 0x400/0xfff",
            " -i pistioout -p tcp -j TPROXY --on-port 15001 --on-ip 127.0.0.1 --tproxy-mark 0x400/0xfff",
            " -i pistioin -p tcp -j TPROXY --on-port 15006 --on-ip 127.0.0.1 --tproxy-mark 0x400/0xfff",
            " ! -d 10.0.0.2/32 -i eth0 -p tcp -j MARK --set-xmark 0x4d3/0xfff",
            " ! -d 10.0.0.2/32 -i eth0 -p icmp -m icmp --icmp-type 3 -j MARK --set-xmark 0x4d3/0xfff",
            " ! -d 10.0.0.2/32 -i eth0 -p icmp -m icmp --icmp-type 11 -j MARK --set-xmark 0x4d3/0xfff",
            " ! -d 10.0.0.2/32 -i eth0 -p icmp -m icmp --icmp-type 12 -j MARK --set-xmark 0x4d3/0xfff",
        ]
    );
}

#[test]
fn without_a_proxy_only_guards_or_nothing() {
    let closed = r#"{"pods": [{"uid": "a", "addresses": ["10.0.0.10"]}]}"#;
    let objects = objects::host(&node(closed, Carrier::Veth));
    assert!(objects.links.is_empty());
    assert!(
        objects
            .routes
            .iter()
            .all(|r| r.to_string().starts_with("unreachable"))
    );
    let open = closed.replacen('{', r#"{"without_proxy": "open", "#, 1);
    assert_eq!(
        objects::host(&node(&open, Carrier::Veth)),
        objects::Objects::default()
    );
}

/// Killed between two steps, the next run still knows what a sysctl was before.
#[test]
fn what_a_sysctl_was_is_forgotten_after_it_is_restored() {
    let desired = objects::host(&node(V4, Carrier::Veth));
    let gone = "ipv4/conf/veth-gone/rp_filter".to_owned();
    let observed = plan::Observed {
        sysctls: [(gone.clone(), "0".to_owned())].into(),
        memory: [(gone.clone(), "1".to_owned())].into(),
        ..plan::Observed::default()
    };
    let plan = plan::plan(&desired, &observed);
    let restored = plan::Step::Sysctl(gone, "1".to_owned());
    let is_of_sysctl = |s: &&plan::Step| matches!(s, plan::Step::Sysctl(..));
    let [before, after]: [Vec<_>; 2] =
        [&plan.before, &plan.after].map(|steps| steps.iter().filter(is_of_sysctl).collect());
    assert_eq!(before, [&restored], "{plan:#?}");
    assert!(
        !after.is_empty() && !after.contains(&&restored),
        "{plan:#?}"
    );
}

#[test]
fn the_newest_ready_proxy_is_the_active_one() {
    let proxy = |uid: &str, created: u64, ready: bool| {
        format!(
            r#"{{"uid": "{uid}", "netns": "/n", "addresses": ["10.0.0.{created}"], "created": {created}, "ready": {ready}}}"#
        )
    };
    let all = [
        proxy("old", 2, true),
        proxy("new", 3, true),
        proxy("unready", 4, false),
    ]
    .join(",");
    let config = config(&format!(r#"{{"proxies": [{all}]}}"#));
    assert_eq!(config.active().unwrap().uid, "new");
}

#[test]
fn what_cannot_be_is_refused_by_name() {
    for (text, part) in [
        ("[]", "object"),
        (r#"{"pod": []}"#, "pod"),
        (r#"{"pods": [{"uid": "", "addresses": []}]}"#, "UID"),
        (
            r#"{"pods": [{"uid": "a\n\u202e", "addresses": []}]}"#,
            "ASCII",
        ),
        (
            r#"{"proxies": [{"uid": "a\u001b", "netns": "/n", "addresses": []}]}"#,
            "ASCII",
        ),
        (
            r#"{"pods": [{"uid": "a", "addresses": ["127.0.0.1"]}]}"#,
            "127.0.0.1",
        ),
        (
            r#"{"pods": [{"uid": "a", "addresses": ["10.0.0.1"]}], "host_addresses": ["10.0.0.1"]}"#,
            "node's network",
        ),
        (
            r#"{"pods": [{"uid": "a", "addresses": ["10.0.0.1"]}, {"uid": "b", "addresses": ["10.0.0.1"]}]}"#,
            "pod a",
        ),
        (
            r#"{"pods": [{"uid": "a", "addresses": ["fd00::1"]}], "proxies": [{"uid": "z", "netns": "/n", "addresses": ["10.0.0.2"]}]}"#,
            "family",
        ),
        (r#"{"marks": {"outbound": 768}}"#, "outbound"),
        (r#"{"marks": {"skip": 256}}"#, "skip"),
        (r#"{"routing": {"proxy_table": 100}}"#, "same"),
        (r#"{"routing": {"proxy_table": 254}}"#, "kernel"),
        (r#"{"routing": {"priority": 32765}}"#, "main"),
        (r#"{"tunnel_port": 0}"#, "tunnel_port"),
        (r#"{"tunnel": "gre"}"#, "tunnel"),
        (r#"{"carrier": "gre"}"#, "carrier"),
        (r#"{"carrier": "veth", "tunnel": "veth"}"#, "tunnel"),
    ] {
        let error = Config::from_json(text, "f.json").unwrap_err().to_string();
        assert!(
            error.contains(part) && error.contains("f.json"),
            "{text}: {error}"
        );
    }
}

/// The kernel's rules refer to a set by its index, which the comparison does not need.
#[test]
fn legacy_rules_without_their_sets_are_planned_as_new() {
    let netns = weir_testing::namespace_or_skip!();
    let node = node(V4, Carrier::Geneve(6081));
    let memory = BTreeMap::new();
    let drift = || rules::drift(&node, rules::Side::Host, Engine::Xtables, &memory);
    let changes = match netns.run(drift).unwrap() {
        Err(e) if e.is_unsupported() => return println!("skipped: {e}"),
        changes => changes.unwrap(),
    };
    let count = |is: fn(&RuleChange) -> bool| changes.iter().filter(|c| is(c)).count();
    let creates_set = |c: &RuleChange| matches!(c, RuleChange::Ipset(IpsetOp::Create(_)));
    assert!(count(creates_set) > 0, "{changes:#?}");
    let tables = xtables::host(&node, []).tables;
    let chains = tables.iter().flat_map(|table| &table.chains);
    let rules: usize = chains.map(|chain| chain.rules.len()).sum();
    let is_insert = |c: &RuleChange| matches!(c, RuleChange::Legacy(op) if matches!(**op, XtOp::InsertRule(..)));
    assert_eq!(count(is_insert), rules, "{changes:#?}");
    let step = plan::Step::Netfilter(changes);
    assert!(step.commands().len() > rules && step.to_string().lines().count() > rules);
    let apply = || rules::apply(&node, rules::Side::Host, Engine::Xtables, &memory);
    netns.run(apply).unwrap().unwrap();
    assert_eq!(netns.run(drift).unwrap().unwrap(), []);
}

/// The set of the other family does not exist yet.
#[test]
fn legacy_rules_that_are_in_force_are_not_planned_again() {
    let netns = weir_testing::namespace_or_skip!();
    let memory = BTreeMap::new();
    let of = |has_ipv6| Node {
        has_ipv6,
        ..node(V4, Carrier::Geneve(6081))
    };
    let (first, both) = (of(false), of(true));
    let apply = || rules::apply(&first, rules::Side::Host, Engine::Xtables, &memory);
    match netns.run(apply).unwrap() {
        Err(e) if e.is_unsupported() => return println!("skipped: {e}"),
        applied => applied.unwrap(),
    }
    let drift = || rules::drift(&both, rules::Side::Host, Engine::Xtables, &memory);
    let changes = netns.run(drift).unwrap().unwrap();
    let creates_set = |c: &RuleChange| matches!(c, RuleChange::Ipset(IpsetOp::Create(_)));
    assert!(changes.iter().any(creates_set), "{changes:#?}");
    let inserts = |family: XtFamily| {
        let is_of = |c: &RuleChange| matches!(c, RuleChange::Legacy(op) if matches!(&**op, XtOp::InsertRule((of, _), ..) if *of == family));
        changes.iter().any(is_of)
    };
    assert!(
        inserts(XtFamily::Ip6) && !inserts(XtFamily::Ip),
        "{changes:#?}"
    );
}
