//! The worked examples as text, and invariants of the compiled rules.

use super::*;
use crate::config::{Dns, InboundMode, TproxyMark, texts};
use crate::pod::{PodFacts, redirect_from};

mod examples;
mod semantics;

/// The intent of the default configuration with the usual ids, after one change.
pub(crate) fn intent(change: impl FnOnce(&mut Intent)) -> Intent {
    let mut intent = Intent {
        proxy_uids: texts::ids("1337"),
        proxy_gids: texts::ids("1337"),
        ..Intent::default()
    };
    change(&mut intent);
    intent
}

fn xtables_of(intent: &Intent) -> weir_netfilter::xtables::Ruleset {
    match compile(intent, Engine::Xtables).rules {
        Rules::Xtables(ruleset) => ruleset,
        Rules::Nft(_) => panic!("asked for xtables"),
    }
}

fn nft_of(intent: &Intent) -> weir_netfilter::nft::Ruleset {
    match compile(intent, Engine::Nft).rules {
        Rules::Nft(ruleset) => ruleset,
        Rules::Xtables(_) => panic!("asked for nft"),
    }
}

/// Rules of one chain as `iptables-save` prints them, without `-A CHAIN`.
fn xtables_chain(intent: &Intent, table: &str, chain: &str) -> Option<Vec<String>> {
    use weir_netfilter::xtables::XtFamily::Ip;
    let ruleset = xtables_of(intent);
    let chain = ruleset.table(Ip, table)?.chain(chain)?;
    Some(
        chain
            .rules
            .iter()
            .map(|r| r.to_string().trim_start().to_owned())
            .collect(),
    )
}

fn nft_chain(intent: &Intent, table: &str, chain: &str) -> Option<usize> {
    use weir_netfilter::nft::TableFamily::Inet;
    Some(nft_of(intent).table(Inet, table)?.chain(chain)?.rules.len())
}

fn dns_v6_only(intent: &mut Intent) {
    intent.dns = Dns::Servers {
        v4: Vec::new(),
        v6: vec!["fd00::a".parse().unwrap()],
    };
}

#[test]
fn dns_servers_of_a_family_that_is_off() {
    let intent = intent(dns_v6_only);
    assert_eq!(
        nft_chain(&intent, "istio-proxy-nat", "istio-output-dns"),
        None
    );
    assert_eq!(nft_chain(&intent, "istio-proxy-raw", "prerouting"), None);
    assert_eq!(nft_chain(&intent, "istio-proxy-raw", "istio-inbound"), None);
    assert_eq!(
        nft_chain(&intent, "istio-proxy-raw", "istio-output-dns"),
        Some(4)
    );
    assert_eq!(xtables_chain(&intent, "nat", "ISTIO_OUTPUT_DNS"), None);
    assert_eq!(xtables_chain(&intent, "raw", "PREROUTING"), None);
    assert_eq!(
        xtables_chain(&intent, "raw", "OUTPUT").unwrap(),
        ["-j ISTIO_OUTPUT_DNS"]
    );
    assert_eq!(
        xtables_chain(&intent, "raw", "ISTIO_OUTPUT_DNS")
            .unwrap()
            .len(),
        4
    );
}

#[test]
fn a_chain_that_is_only_jumped_to_exists() {
    let intent = intent(|c| {
        dns_v6_only(c);
        c.proxy_uids.clear();
        c.proxy_gids.clear();
    });
    assert_eq!(
        xtables_chain(&intent, "raw", "ISTIO_OUTPUT_DNS"),
        Some(vec![])
    );
    assert_eq!(
        nft_chain(&intent, "istio-proxy-raw", "istio-output-dns"),
        Some(0)
    );
}

#[test]
fn an_empty_list_of_groups_captures_nothing() {
    let intent = intent(|c| c.owner_groups = texts::groups(""));
    let rules = xtables_chain(&intent, "nat", "ISTIO_OUTPUT").unwrap();
    assert_eq!(rules[7], "-j RETURN");
}

#[test]
fn a_list_of_commas_is_a_list() {
    let intent = intent(|c| c.inbound = texts::inbound(","));
    let jump = xtables_chain(&intent, "nat", "PREROUTING").unwrap();
    assert_eq!(jump, ["-p tcp -j ISTIO_INBOUND"]);
    assert_eq!(
        xtables_chain(&intent, "nat", "ISTIO_INBOUND")
            .unwrap()
            .len(),
        1
    );
}

#[test]
fn a_captured_loopback_network_of_one_family_counts_in_both() {
    let count = |include: &str| {
        let intent = intent(|c| c.outbound_include = texts::destinations(include));
        let rules = xtables_chain(&intent, "nat", "ISTIO_OUTPUT").unwrap();
        rules.iter().filter(|r| r.contains("! --uid-owner")).count()
    };
    assert_eq!(count("10.0.0.0/8"), 1);
    assert_eq!(count("0.0.0.0/0"), 1);
    assert_eq!(count("127.0.0.2/32"), 0);
    assert_eq!(count("::1/128"), 0);
    assert_eq!(count("*"), 1);
}

#[test]
fn transparent_without_inbound_ports() {
    let intent = intent(|c| {
        c.mode = InboundMode::Tproxy(TproxyMark::usual(&c.inbound));
    });
    assert_eq!(
        xtables_chain(&intent, "mangle", "ISTIO_INBOUND")
            .unwrap()
            .len(),
        3
    );
    let jumps = xtables_chain(&intent, "mangle", "PREROUTING").unwrap();
    assert!(
        !jumps.iter().any(|r| r.contains("-j ISTIO_INBOUND")),
        "{jumps:?}"
    );
    assert_eq!(xtables_chain(&intent, "mangle", "ISTIO_DIVERT"), None);
    assert_eq!(
        nft_chain(&intent, "istio-proxy-mangle", "istio-inbound"),
        Some(3)
    );
    assert_eq!(compile(&intent, Engine::Nft).routing, []);
}

#[test]
fn duplicates_and_order_are_kept() {
    let intent = intent(|c| c.outbound_ports_include = texts::ports("2,1,2"));
    let rules = xtables_chain(&intent, "nat", "ISTIO_OUTPUT").unwrap();
    let ports: Vec<_> = rules
        .iter()
        .filter(|r| r.contains("-j ISTIO_REDIRECT"))
        .collect();
    let rule = |port| format!("-p tcp -m tcp --dport {port} -j ISTIO_REDIRECT");
    assert_eq!(ports, [&rule(2), &rule(1), &rule(2)]);
}

#[test]
fn virtual_interfaces_stand_in_reverse() {
    let intent = intent(|c| {
        c.virtual_interfaces = texts::interfaces("a,b");
        c.outbound_include = texts::destinations("10.0.0.0/8,fd00::/8,11.0.0.0/8");
        c.enable_ipv6 = true;
    });
    let expected = [
        "-d 11.0.0.0/8 -i b -j ISTIO_REDIRECT",
        "-d 11.0.0.0/8 -i a -j ISTIO_REDIRECT",
        "-d 10.0.0.0/8 -i b -j ISTIO_REDIRECT",
        "-d 10.0.0.0/8 -i a -j ISTIO_REDIRECT",
        "-i b -j RETURN",
        "-i a -j RETURN",
    ];
    assert_eq!(
        xtables_chain(&intent, "nat", "PREROUTING").unwrap(),
        expected
    );
    let text = nft_of(&intent).to_string();
    let order: Vec<_> = text
        .lines()
        .filter(|l| l.contains("iifname"))
        .map(|l| {
            l.split_whitespace()
                .filter(|w| w.contains(['"', '/']))
                .collect::<Vec<_>>()
                .concat()
        })
        .collect();
    let expected = [
        "\"b\"fd00::/8",
        "\"a\"fd00::/8",
        "\"b\"11.0.0.0/8",
        "\"a\"11.0.0.0/8",
        "\"b\"10.0.0.0/8",
        "\"a\"10.0.0.0/8",
        "\"b\"",
        "\"a\"",
    ];
    assert_eq!(order, expected);
}

#[test]
fn what_is_compiled_prints_its_routing_last() {
    let intent = intent(|c| c.enable_ipv6 = true);
    for engine in [Engine::Nft, Engine::Xtables] {
        let text = compile(&intent, engine).to_string();
        assert!(
            text.ends_with("\nip -6 address add ::6/128 dev lo\n"),
            "{text}"
        );
    }
}

#[test]
fn routing_in_words() {
    let words = |change: fn(&mut Intent)| {
        let routing = compile(&intent(change), Engine::Nft).routing;
        routing.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    assert_eq!(words(|_| ()), Vec::<String>::new());
    assert_eq!(
        words(|c| c.enable_ipv6 = true),
        ["ip -6 address add ::6/128 dev lo"]
    );
    let tproxy = |c: &mut Intent| {
        c.mode = texts::tproxy();
        c.inbound = texts::inbound("80");
    };
    let v4 = [
        "ip -4 route add local default dev lo scope host table 133",
        "ip -4 rule add fwmark 0x539 lookup 133",
    ];
    assert_eq!(words(tproxy), v4);
    let both = |c: &mut Intent| {
        c.mode = texts::tproxy();
        c.inbound = texts::inbound("80");
        c.enable_ipv6 = true;
    };
    let expected = [
        "ip -6 address add ::6/128 dev lo",
        v4[0],
        "ip -6 route add local default dev lo table 133",
        v4[1],
        "ip -6 rule add fwmark 0x539 lookup 133",
    ];
    assert_eq!(words(both), expected);
}
