//! The worked examples as text, and invariants of the compiled rules.

use super::*;
use crate::config::{NameFiles, SidecarConfig};
use crate::pod::{PodFacts, redirect_from};
use proptest::prelude::*;

mod examples;
mod semantics;

/// The intent of the default configuration with the usual ids, after one change.
pub(crate) fn intent(change: impl FnOnce(&mut SidecarConfig)) -> Intent {
    let mut config = SidecarConfig {
        proxy_uid: "1337".into(),
        proxy_gid: "1337".into(),
        ..SidecarConfig::default()
    };
    change(&mut config);
    Intent::parse(&config, &NameFiles::default()).unwrap()
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

fn dns_v6_only(config: &mut SidecarConfig) {
    config.redirect_dns = true;
    config.dns_servers_v6 = vec!["fd00::a".into()];
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
        c.proxy_uid.clear();
        c.proxy_gid.clear();
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
    let intent = intent(|c| c.owner_groups_include.clear());
    let rules = xtables_chain(&intent, "nat", "ISTIO_OUTPUT").unwrap();
    assert_eq!(rules[7], "-j RETURN");
}

#[test]
fn a_list_of_commas_is_a_list() {
    let intent = intent(|c| c.inbound_ports_include = ",".into());
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
        let intent = intent(|c| c.outbound_ip_ranges_include = include.into());
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
        c.inbound_interception_mode = "TPROXY".into();
        c.inbound_tproxy_route_table = "not looked at".into();
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
    let intent = intent(|c| c.outbound_ports_include = "2,1,2".into());
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
        c.reroute_virtual_interfaces = "a,b".into();
        c.outbound_ip_ranges_include = "10.0.0.0/8,fd00::/8,11.0.0.0/8".into();
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
    let words = |change: fn(&mut SidecarConfig)| {
        let routing = compile(&intent(change), Engine::Nft).routing;
        routing.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    assert_eq!(words(|_| ()), Vec::<String>::new());
    assert_eq!(
        words(|c| c.enable_ipv6 = true),
        ["ip -6 address add ::6/128 dev lo"]
    );
    let tproxy = |c: &mut SidecarConfig| {
        c.inbound_interception_mode = "TPROXY".into();
        c.inbound_ports_include = "80".into();
    };
    let v4 = [
        "ip -4 route add local default dev lo scope host table 133",
        "ip -4 rule add fwmark 0x539 lookup 133",
    ];
    assert_eq!(words(tproxy), v4);
    let both = |c: &mut SidecarConfig| {
        c.inbound_interception_mode = "TPROXY".into();
        c.inbound_ports_include = "80".into();
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

/// Text of a list, often a valid one.
fn list(element: &'static str) -> impl Strategy<Value = String> {
    prop_oneof![
        Just(String::new()),
        Just("*".to_owned()),
        prop::collection::vec(element, 0..6).prop_map(|v| v.join(",")),
        ".{0,20}",
    ]
}

prop_compose! {
    fn config()(
        ports in prop::collection::vec(list("[0-9]{1,5}|[0-9]{1,4}[:-][0-9]{1,5}| 80 |"), 4),
        nets in prop::collection::vec(list("10\\.0\\.0\\.0/8|fd00::/16|127\\.0\\.0\\.1/32|::1/128"), 2),
        ids in prop::collection::vec(list("[0-9]{1,9}|[0-9]{1,3}-[0-9]{3,4}"), 4),
        names in prop::collection::vec(list("eth[0-9+*]|net1| k6t-a "), 2),
        mode in "TPROXY|REDIRECT|",
        mark in "[0-9]{1,4}|0x539|x",
        switches in prop::array::uniform5(any::<bool>()),
        servers in prop::collection::vec("10\\.96\\.0\\.[0-9]", 0..3),
    ) -> SidecarConfig {
        let [redirect_dns, capture_all_dns, drop_invalid, enable_ipv6, dual_stack] = switches;
        SidecarConfig {
            inbound_ports_include: ports[0].clone(),
            inbound_ports_exclude: ports[1].clone(),
            outbound_ports_include: ports[2].clone(),
            outbound_ports_exclude: ports[3].clone(),
            outbound_ip_ranges_include: nets[0].clone(),
            outbound_ip_ranges_exclude: nets[1].clone(),
            proxy_uid: ids[0].clone(),
            proxy_gid: ids[1].clone(),
            owner_groups_include: ids[2].clone(),
            owner_groups_exclude: ids[3].clone(),
            exclude_interfaces: names[0].clone(),
            reroute_virtual_interfaces: names[1].clone(),
            inbound_interception_mode: mode,
            inbound_tproxy_mark: mark,
            dns_servers_v4: servers,
            redirect_dns, capture_all_dns, drop_invalid, enable_ipv6, dual_stack,
            ..SidecarConfig::default()
        }
    }
}

proptest! {
    #[test]
    fn nothing_panics_and_every_jump_arrives(config in config()) {
        if let Ok(intent) = Intent::parse(&config, &NameFiles::default()) {
            let _ = crate::config::validate(&config);
            let ruleset = xtables_of(&intent);
            prop_assert!(ruleset.to_string().len() > 100);
            for table in &ruleset.tables {
                for rule in table.chains.iter().flat_map(|c| &c.rules) {
                    if let Some(chain) = rule.target.as_ref().and_then(|t| t.chain()) {
                        prop_assert!(table.chain(chain).is_some(), "{} {}", table.name, chain);
                    }
                }
            }
            for table in &nft_of(&intent).tables {
                for rule in table.chains.iter().flat_map(|c| &c.rules) {
                    for statement in &rule.statements {
                        if let weir_netfilter::nft::Statement::Verdict(
                            weir_netfilter::nft::Verdict::Jump(chain)
                        ) = statement {
                            prop_assert!(table.chain(chain).is_some(), "{} {}", table.name, chain);
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn lists_keep_order_and_duplicates(ports in prop::collection::vec(any::<u16>(), 0..30)) {
        let list: Vec<_> = ports.iter().map(|p| format!(" {p} ,")).collect();
        let intent = intent(|c| c.outbound_ports_include = list.concat());
        let got: Vec<_> = intent.outbound_ports_include.iter().map(|p| *p.0.start()).collect();
        prop_assert_eq!(got, ports);
    }

    #[test]
    fn configurations_of_any_text_never_panic(text in ".{0,200}") {
        let _ = SidecarConfig::from_json(&text, "test");
        let _ = crate::pod::Pod::from_manifest(&text, "test");
        let _ = crate::config::text::duration(&text);
        let _ = crate::config::text::cidr(&text);
    }
}
