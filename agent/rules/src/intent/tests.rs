use super::*;
use proptest::prelude::*;
use weir_cni::compile::{Engine, Rules, compile};
use weir_cni::config::IdRange;
use weir_netfilter::{nft, xtables};

fn parse(change: impl FnOnce(&mut SidecarConfig)) -> Result<Intent, InputError> {
    let mut config = SidecarConfig::default();
    change(&mut config);
    config.intent(&NameFiles {
        passwd: "/nonexistent".into(),
        group: "/nonexistent".into(),
    })
}

fn error(change: impl FnOnce(&mut SidecarConfig)) -> String {
    parse(change).unwrap_err().to_string()
}

fn transparent(config: &mut SidecarConfig) {
    config.inbound_interception_mode = "TPROXY".into();
    config.inbound_ports_include = "*".into();
}

#[test]
fn the_default_configuration_is_understood() {
    let intent = parse(|_| ()).unwrap();
    assert_eq!(intent.mode, InboundMode::Redirect);
    assert_eq!(intent.inbound, Inbound::Off);
    assert_eq!(intent.owner_groups, OwnerGroups::AllBut(vec![]));
    assert_eq!(
        intent.outbound_include,
        OutboundRanges::Ranges(Ranges::default())
    );
    assert_eq!(
        (intent.proxy_port, intent.inbound_capture_port),
        (15001, 15006)
    );
    assert_eq!(intent.warnings, Vec::<String>::new());
}

#[test]
fn every_field_is_named_with_its_bad_element() {
    type Change = fn(&mut SidecarConfig);
    let changes: [(&str, &str, Change); 17] = [
        ("proxy_port", "0", |c| c.proxy_port = "0".into()),
        ("inbound_capture_port", "x", |c| {
            c.inbound_capture_port = "x".into()
        }),
        ("inbound_tunnel_port", "", |c| c.inbound_tunnel_port.clear()),
        ("proxy_uid", "me", |c| c.proxy_uid = "1,me".into()),
        ("proxy_gid", "us", |c| c.proxy_gid = "us".into()),
        ("inbound_ports_include", "*", |c| {
            c.inbound_ports_include = "*,80".into()
        }),
        ("inbound_ports_exclude", "*", |c| {
            c.inbound_ports_include = "*".into();
            c.inbound_ports_exclude = "*,15020".into()
        }),
        ("outbound_ports_include", "*", |c| {
            c.outbound_ports_include = "*".into()
        }),
        ("outbound_ports_exclude", "dns", |c| {
            c.outbound_ports_exclude = "80,dns".into()
        }),
        ("owner_groups_include", "*", |c| {
            c.owner_groups_include = "1,*".into()
        }),
        ("owner_groups_exclude", "java", |c| {
            c.owner_groups_exclude = "java".into()
        }),
        ("outbound_ip_ranges_include", "10.0.0.1", |c| {
            c.outbound_ip_ranges_include = "10.0.0.1".into();
        }),
        ("outbound_ip_ranges_exclude", "*", |c| {
            c.outbound_ip_ranges_exclude = "*".into()
        }),
        ("exclude_interfaces", "a/b", |c| {
            c.exclude_interfaces = "a/b".into()
        }),
        ("reroute_virtual_interfaces", "sixteen-bytes-xx", |c| {
            c.reroute_virtual_interfaces = "sixteen-bytes-xx".into();
        }),
        ("host_ipv4_loopback_cidr", "::1/128", |c| {
            c.host_ipv4_loopback_cidr = "::1/128".into()
        }),
        ("dns_servers_v4", "fd00::a", |c| {
            c.redirect_dns = true;
            c.dns_servers_v4 = vec!["fd00::a".into()];
        }),
    ];
    for (field, element, change) in changes {
        let error = error(change);
        assert!(
            error.starts_with(&format!("{field}: {element:?} ")),
            "{error}"
        );
        assert!(error.contains("; accepted: "), "{error}");
    }
}

#[test]
fn mark_and_table_are_looked_at_when_they_are_used() {
    let garbage = |c: &mut SidecarConfig| {
        c.inbound_tproxy_mark = "x".into();
        c.inbound_tproxy_route_table = "y".into();
    };
    assert!(parse(garbage).is_ok());
    let with = |mark: &str, table: &str| {
        parse(|c| {
            transparent(c);
            c.inbound_tproxy_mark = mark.into();
            c.inbound_tproxy_route_table = table.into();
        })
    };
    let good = InboundMode::Tproxy(TproxyMark {
        mark: 1337,
        table: Some(133),
    });
    assert_eq!(with("1337", "133").unwrap().mode, good);
    for (mark, table, field) in [
        ("0x539", "133", "inbound_tproxy_mark"),
        ("0", "133", "inbound_tproxy_mark"),
        ("4294967296", "133", "inbound_tproxy_mark"),
        ("-1", "133", "inbound_tproxy_mark"),
        ("", "133", "inbound_tproxy_mark"),
        ("1337", "main", "inbound_tproxy_route_table"),
        ("1337", "0", "inbound_tproxy_route_table"),
    ] {
        let error = with(mark, table).unwrap_err().to_string();
        assert!(error.starts_with(field), "{error}");
    }
    // No route is added without captured ports, so only the rules limit the values of a mark.
    let rules_only = parse(|c| {
        transparent(c);
        c.inbound_ports_include.clear();
        c.inbound_tproxy_mark = "0x539".into();
        c.inbound_tproxy_route_table = "y".into();
    });
    let mode = InboundMode::Tproxy(TproxyMark {
        mark: 1337,
        table: None,
    });
    assert_eq!(rules_only.unwrap().mode, mode);
    assert!(
        error(|c| {
            transparent(c);
            c.inbound_ports_include.clear();
            c.inbound_tproxy_mark = "0x".into();
        })
        .starts_with("inbound_tproxy_mark")
    );
}

#[test]
fn only_the_exact_text_is_transparent() {
    for mode in ["", "NONE", "tproxy", "TPROXY ", "REDIRECT"] {
        let intent = parse(|c| {
            transparent(c);
            c.inbound_interception_mode = mode.into();
        });
        assert_eq!(intent.unwrap().mode, InboundMode::Redirect, "{mode:?}");
    }
}

#[test]
fn excluded_groups_count_only_when_all_are_included() {
    let intent = parse(|c| {
        c.owner_groups_include = "5".into();
        c.owner_groups_exclude = "nobody knows".into();
    });
    assert_eq!(
        intent.unwrap().owner_groups,
        OwnerGroups::Only(vec![IdRange(5..=5)])
    );
}

#[test]
fn networks_are_sorted_by_family_in_their_order() {
    let list = "fd00::/8, 10.0.0.0/8,,::ffff:10.0.0.0/104,10.0.0.0/8,192.168.0.1/16,";
    let intent = parse(|c| c.outbound_ip_ranges_include = list.into()).unwrap();
    let OutboundRanges::Ranges(ranges) = intent.outbound_include else {
        panic!("not all")
    };
    let text = |nets: &[String]| nets.join(" ");
    let v4: Vec<_> = ranges.v4.iter().map(ToString::to_string).collect();
    let v6: Vec<_> = ranges.v6.iter().map(ToString::to_string).collect();
    assert_eq!(text(&v4), "10.0.0.0/8 10.0.0.0/8 192.168.0.1/16");
    assert_eq!(text(&v6), "fd00::/8 ::ffff:10.0.0.0/104");
}

#[test]
fn dns() {
    let with = |redirect, all, servers: &[&str]| {
        parse(|c| {
            c.redirect_dns = redirect;
            c.capture_all_dns = all;
            c.dns_servers_v4 = servers.iter().map(|s| (*s).to_owned()).collect();
        })
        .unwrap()
    };
    assert_eq!(with(false, true, &["10.0.0.1"]).dns, Dns::Off);
    assert_eq!(with(true, true, &[]).dns, Dns::All);
    let servers = Dns::Servers {
        v4: vec!["10.0.0.1".parse().unwrap()],
        v6: vec![],
    };
    assert_eq!(with(true, false, &["10.0.0.1"]).dns, servers);
    let none = with(true, false, &[]);
    assert_eq!(none.dns, Dns::Off);
    assert!(
        none.warnings[0].contains("redirect_dns"),
        "{:?}",
        none.warnings
    );
}

#[test]
fn excluded_inbound_ports_have_no_effect_beside_included_ones() {
    for include in ["80,443", ","] {
        let intent = parse(|c| {
            c.inbound_ports_include = include.into();
            c.inbound_ports_exclude = "*,15020".into();
        })
        .unwrap();
        assert_eq!(intent.inbound_ports_exclude, [PortRange(15020..=15020)]);
        assert_eq!(intent.warnings.len(), 1);
        assert!(intent.warnings[0].contains("inbound_ports_exclude"));
    }
    // An invalid port is an error in every list.
    let wrong = error(|c| c.inbound_ports_exclude = "*,http".into());
    assert!(wrong.contains("\"http\""), "{wrong}");
}

#[test]
fn port_elements() {
    let range = |first, last| Ok(PortRange(first..=last));
    assert_eq!(port("f", "80"), range(80, 80));
    assert_eq!(port("f", "0"), range(0, 0));
    assert_eq!(port("f", "0080"), range(80, 80));
    assert_eq!(port("f", "1:65535"), range(1, 65535));
    assert_eq!(port("f", "8000-9000"), range(8000, 9000));
    for bad in [
        "*", "http", "65536", "-1", "+1", "2:1", "1:", ":1", "1:2:3", "1,2", "0x50",
    ] {
        let error = port("inbound_ports_exclude", bad).unwrap_err();
        assert_eq!(error.value.as_deref(), Some(bad));
        assert!(
            error.to_string().contains("inbound_ports_exclude"),
            "{error}"
        );
    }
}

#[test]
fn listeners_need_a_port() {
    assert_eq!(listen_port("f", "15001"), Ok(15001));
    for bad in ["", "0", "*", "1:2", "65536"] {
        assert!(listen_port("f", bad).is_err(), "{bad:?}");
    }
}

fn xtables_of(intent: &Intent) -> xtables::Ruleset {
    match compile(intent, Engine::Xtables).rules {
        Rules::Xtables(ruleset) => ruleset,
        Rules::Nft(_) => panic!("asked for xtables"),
    }
}

fn nft_of(intent: &Intent) -> nft::Ruleset {
    match compile(intent, Engine::Nft).rules {
        Rules::Nft(ruleset) => ruleset,
        Rules::Xtables(_) => panic!("asked for nft"),
    }
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
        if let Ok(intent) = config.intent(&NameFiles::default()) {
            let _ = config.validate();
            let legacy = xtables_of(&intent);
            prop_assert!(legacy.to_string().len() > 100);
            for table in &legacy.tables {
                for rule in table.chains.iter().flat_map(|c| &c.rules) {
                    if let Some(chain) = rule.target.as_ref().and_then(|t| t.chain()) {
                        prop_assert!(table.chain(chain).is_some(), "{} {}", table.name, chain);
                    }
                }
            }
            for table in &nft_of(&intent).tables {
                for rule in table.chains.iter().flat_map(|c| &c.rules) {
                    for statement in &rule.statements {
                        if let nft::Statement::Verdict(nft::Verdict::Jump(chain)) = statement {
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
        let intent = parse(|c| c.outbound_ports_include = list.concat()).unwrap();
        let got: Vec<_> = intent.outbound_ports_include.iter().map(|p| *p.0.start()).collect();
        prop_assert_eq!(got, ports);
    }

    #[test]
    fn an_array_is_no_configuration(items in prop::collection::vec(any::<u16>(), 0..40)) {
        let text = serde_json::to_string(&items).unwrap();
        prop_assert!(SidecarConfig::from_json(&text, "-").is_err());
    }

    #[test]
    fn configurations_of_any_text_never_panic(text in ".{0,200}") {
        let _ = SidecarConfig::from_json(&text, "test");
        let _ = weir_cni::pod::Pod::from_manifest(&text, "test");
        let _ = crate::duration::parse(&text);
        let _ = text::cidr(&text);
    }
}

/// What `--config` would make of them is refused before it is compiled.
#[test]
fn lists_that_are_too_long_are_refused() {
    let numbers = |n: u32| (1..=n).map(|n| n.to_string()).collect::<Vec<_>>().join(",");
    let ports = error(|c| c.inbound_ports_include = numbers(65_535));
    let groups = |n| parse(|c| c.owner_groups_include = numbers(n));
    let of_groups = groups(1025).unwrap_err().to_string();
    for (why, field, limit) in [
        (&ports, "inbound_ports_include", "4096 rules"),
        (&of_groups, "owner_groups_include", "1024 groups"),
    ] {
        assert!(why.starts_with(field) && why.contains(limit), "{why}");
    }
    assert!(groups(1024).is_ok());
}
