use super::*;
use crate::compile::{compile, compile_chosen};
use crate::config::{Dns, Intent, texts};
use nft::{BaseChain, Chain, ChainType, Policy, Redirect, Rule, Table, TableFamily, Verdict};

fn intent(change: impl FnOnce(&mut Intent)) -> Intent {
    let mut intent = Intent {
        inbound: texts::inbound("*"),
        outbound_include: texts::destinations("*"),
        ..Intent::default()
    };
    change(&mut intent);
    intent
}

fn ours(change: impl FnOnce(&mut Intent)) -> [Ours; 2] {
    let intent = intent(change);
    [Engine::Nft, Engine::Xtables].map(|engine| Ours::of(&compile_chosen(&intent, engine)))
}

#[test]
fn both_engines_take_packets_at_the_same_places() {
    let places = |ours: &Ours| {
        let hooks = ours.hooks.iter().map(|(hook, priority)| (*hook, *priority));
        (hooks.collect::<Vec<_>>(), ours.takes_udp, ours.has_ipv6)
    };
    let nat = [(Hook::Prerouting, -100), (Hook::Output, -100)];
    for of in ours(|_| {}) {
        assert_eq!(places(&of), (nat.to_vec(), false, false), "{of:?}");
    }
    let all = |c: &mut Intent| {
        c.mode = texts::tproxy();
        c.exclude_interfaces = texts::interfaces("net1");
        (c.dns, c.enable_ipv6) = (Dns::All, true);
    };
    let transparent = [(Hook::Prerouting, -150), (Hook::Output, -100)];
    for of in ours(all) {
        let (mut hooks, udp, ipv6) = places(&of);
        hooks.sort_by_key(|(_, priority)| *priority);
        assert_eq!((hooks, udp, ipv6), (transparent.to_vec(), true, true));
    }
    // Upstream's rules for nf_tables always apply to IPv6.
    assert!(Ours::of(&compile(&intent(|_| {}), Engine::Nft)).has_ipv6);
}

fn chain(kind: ChainType, priority: i32, rules: Vec<Rule>) -> Chain {
    Chain {
        rules,
        base: Some(BaseChain {
            chain_type: kind,
            hook: Hook::Output,
            priority,
            policy: nft::Policy::Accept,
            devices: Vec::new(),
        }),
        ..Chain::regular("c")
    }
}

fn found(chains: Vec<Chain>) -> usize {
    let table = Table {
        chains,
        ..Table::new(TableFamily::Inet, "t")
    };
    let [ours, _] = ours(|_| {});
    tables::in_table(&ours, &table).len()
}

#[test]
fn the_order_of_chains_counts() {
    let notrack = || Rule::builder().push(Statement::Notrack).build();
    let redirect = || {
        let to = Redirect {
            ports: Some(9999..=9999),
            flags: 0,
        };
        Rule::builder().push(Statement::Redirect(to)).build()
    };
    // For chains with the priority of conntrack the order of registration decides which the kernel calls first.
    for (priority, expected) in [(-310, 1), (-201, 1), (-200, 1), (-199, 0), (-150, 0)] {
        let chain = chain(ChainType::Filter, priority, vec![notrack()]);
        assert_eq!(found(vec![chain]), expected, "{priority}");
    }
    for (priority, expected) in [(-150, 1), (-101, 1), (-100, 1), (-99, 0)] {
        let chain = chain(ChainType::Nat, priority, vec![redirect()]);
        assert_eq!(found(vec![chain]), expected, "{priority}");
    }
}

/// The first rule that sets a zone decides: behind our rules for DNS, the default zone does not change anything.
#[test]
fn the_default_zone_of_queries_counts_only_before_our_own_zone() {
    let dns = |c: &mut Intent| c.dns = Dns::All;
    let query = || Rule::builder().dport(nft::L4Proto::Udp, CmpOp::Eq, 53..=53);
    for ours in ours(dns) {
        for (zone, priority, expected) in [
            (0, -310, 1),
            (0, -300, 1),
            (0, -299, 0),
            (0, -201, 0),
            (7, -299, 1),
            (7, -199, 0),
        ] {
            let rules = vec![query().set_ct_zone(zone).build()];
            let table = Table {
                chains: vec![chain(ChainType::Filter, priority, rules)],
                ..Table::new(TableFamily::Inet, "t")
            };
            let found = tables::in_table(&ours, &table);
            assert_eq!(found.len(), expected, "{zone} {priority}: {found:?}");
        }
    }
}

/// Includes chains called after ours: there the policy applies to connections that are not redirected.
#[test]
fn a_policy_drop_of_nat_counts_at_any_priority() {
    for (kind, priority, expected) in [
        (ChainType::Nat, -150, 1),
        (ChainType::Nat, -100, 1),
        (ChainType::Nat, 0, 1),
        (ChainType::Filter, -150, 0),
    ] {
        let mut chain = chain(kind, priority, Vec::new());
        chain.base.as_mut().unwrap().policy = nft::Policy::Drop;
        assert_eq!(found(vec![chain.clone()]), expected, "{chain:?}");
        chain.base.as_mut().unwrap().hook = Hook::Postrouting;
        assert_eq!(found(vec![chain]), 0);
    }
}

#[test]
fn what_only_counts_marks_and_filters_is_harmless() {
    let to = |port| Rule::builder().dport(nft::L4Proto::Tcp, CmpOp::Eq, port..=port);
    let rules = vec![
        to(80).counter().verdict(Verdict::Drop),
        to(81).set_mark(7).build(),
        to(82).counter().verdict(Verdict::Accept),
        to(83).verdict(Verdict::Return),
        // No UDP is redirected here.
        Rule::builder()
            .dport(nft::L4Proto::Udp, CmpOp::Eq, 53..=53)
            .push(Statement::Notrack)
            .build(),
        Rule::builder()
            .dport(nft::L4Proto::Udp, CmpOp::Eq, 53..=53)
            .set_ct_zone(7)
            .build(),
    ];
    for kind in [ChainType::Filter, ChainType::Nat] {
        let chain = chain(kind, -310, rules.clone());
        assert_eq!(found(vec![chain]), 0);
    }
}

/// A protocol comparison after the statement that exempts packets does not count.
#[test]
fn what_a_rule_does_before_it_compares_counts() {
    let rule = || Rule::builder().push(Statement::Notrack);
    let then_compared = rule().l4proto(nft::L4Proto::Udp).counter().build();
    let ended = Rule::builder().verdict(Verdict::Accept);
    let expected = |rules| found(vec![chain(ChainType::Filter, -310, rules)]);
    assert_eq!(expected(vec![then_compared.clone()]), 1);
    assert_eq!(expected(vec![then_compared.clone(), ended.clone()]), 1);
    assert_eq!(expected(vec![ended, then_compared]), 0);
}

/// Rules with various protocol matches: TCP is redirected, UDP is not.
#[test]
fn a_rule_is_judged_by_all_of_its_protocols() {
    let l4proto = |op, protocol| {
        Statement::Match(nft::Match {
            selector: Selector::Meta(MetaKey::L4proto),
            mask: None,
            op,
            operand: Operand::Value(Data::u8(protocol)),
        })
    };
    for (protocols, expected) in [
        (&[][..], 1),
        (&[(CmpOp::Eq, TCP)], 1),
        (&[(CmpOp::Eq, UDP)], 0),
        (&[(CmpOp::Neq, TCP)], 0),
        (&[(CmpOp::Neq, UDP)], 1),
        (&[(CmpOp::Neq, UDP), (CmpOp::Eq, 1)], 0),
        (&[(CmpOp::Neq, UDP), (CmpOp::Neq, TCP)], 0),
        (&[(CmpOp::Lt, UDP)], 1),
    ] {
        let matches = protocols
            .iter()
            .map(|(op, protocol)| l4proto(*op, *protocol));
        let taking = || {
            matches
                .clone()
                .fold(Rule::builder(), |rule, s| rule.push(s))
        };
        let taking = || taking().push(Statement::Notrack).build();
        let rules = vec![taking()];
        let base = chain(ChainType::Filter, -310, rules.clone());
        assert_eq!(found(vec![base]), expected, "{protocols:?}");
        // The same in a nested chain: the match that leads to it decides.
        let of_tcp = Rule::builder().push(l4proto(CmpOp::Neq, TCP)).build();
        let own = |of: Rule| Rule {
            chain: Some(rules.clone()),
            ..of
        };
        let nested = |of| found(vec![chain(ChainType::Filter, -310, vec![own(of)])]);
        assert_eq!(nested(Rule::default()), expected, "{protocols:?}");
        assert_eq!(nested(of_tcp), 0, "{protocols:?}");
    }
}

#[test]
fn chains_are_followed_and_circles_end() {
    let jump = |to| Rule::builder().jump(to);
    let in_chain = |name, rule| Chain {
        rules: vec![jump("a"), rule],
        ..Chain::regular(name)
    };
    let notrack = Rule::builder().push(Statement::Notrack).build();
    let base = || chain(ChainType::Filter, -310, vec![jump("a")]);
    let chains = vec![base(), in_chain("a", jump("b")), in_chain("b", notrack)];
    assert_eq!(found(chains.clone()), 1);
    // No rule leads to `a` and `b`.
    let [_, a, b] = chains.try_into().unwrap();
    let idle = chain(ChainType::Filter, -310, vec![]);
    assert_eq!(found(vec![idle, a, b]), 0);
}

#[test]
fn a_policy_rule_is_judged_by_the_packets_that_are_redirected() {
    use routing::{Packet, selects};
    use weir_netlink::route::{AddressFamily, PolicyRule, RuleSelectors};
    let packet = Packet {
        mark: 0x111,
        from: "10.1.0.5".parse().unwrap(),
        iif: "lo",
        protocol: TCP,
    };
    let selecting = |change: &dyn Fn(&mut RuleSelectors)| {
        let mut selectors = RuleSelectors::default();
        change(&mut selectors);
        selectors
    };
    let from = |net: &str| selecting(&|by| by.from = Some(net.parse().unwrap()));
    let iif = |name: &str| selecting(&|by| by.iif = Some(name.to_owned()));
    let protocol = |number| selecting(&|by| by.ip_proto = Some(number));
    let by = |mark: Option<(u32, u32)>, selectors: RuleSelectors| PolicyRule {
        fwmark: mark.map(|(mark, _)| mark),
        fwmask: mark.map(|(_, mask)| mask),
        selectors,
        ..PolicyRule::mark(AddressFamily::V4, 0, 50)
    };
    let to = |mut selectors: RuleSelectors| {
        selectors.to = Some("10.0.0.0/8".parse().unwrap());
        selectors
    };
    let users = |mut selectors: RuleSelectors| {
        selectors.uids = Some(0..=0);
        selectors
    };
    let not = |rule: PolicyRule| PolicyRule { not: true, ..rule };
    let of_ipv6 = PolicyRule {
        family: AddressFamily::V6,
        ..by(None, iif("lo"))
    };
    for (rule, expected) in [
        (by(None, from("10.1.0.5/32")), true),
        (by(None, from("10.1.0.0/16")), true),
        (by(None, from("10.1.0.6/32")), false),
        (by(None, iif("lo")), true),
        (by(None, iif("eth0")), false),
        (by(None, protocol(TCP)), true),
        (by(None, protocol(UDP)), false),
        (by(Some((0x111, 0xfff)), from("10.1.0.5/32")), true),
        (by(Some((0, 0x1000)), from("10.1.0.5/32")), true),
        (by(Some((0, u32::MAX)), from("10.1.0.5/32")), false),
        (by(Some((0x222, 0xfff)), iif("lo")), false),
        // It is unknown which packets other rules are meant for.
        (by(None, to(from("10.1.0.5/32"))), false),
        (by(None, users(iif("lo"))), false),
        (not(by(None, from("10.1.0.5/32"))), false),
        (of_ipv6, false),
    ] {
        assert_eq!(selects(&rule, &packet), expected, "{rule}");
    }
}

/// Rules of other tables are not read, however many there are.
#[test]
fn tables_with_a_chain_that_may_be_before_ours_are_read() {
    let [ours, _] = ours(|_| {});
    let base = |kind, hook, priority| Chain::base("c", kind, hook, priority);
    let mut drops = base(ChainType::Nat, Hook::Output, -50);
    drops.base.as_mut().unwrap().policy = Policy::Drop;
    for (chain, expected) in [
        (Chain::regular("c"), false),
        (drops, true),
        (base(ChainType::Nat, Hook::Output, -100), true),
        (base(ChainType::Nat, Hook::Output, -99), false),
        (base(ChainType::Nat, Hook::Postrouting, -300), false),
        (base(ChainType::Filter, Hook::Output, -300), true),
        (base(ChainType::Filter, Hook::Output, -150), false),
        (base(ChainType::Filter, Hook::Prerouting, -150), true),
        // `tproxy` counts at any priority.
        (base(ChainType::Filter, Hook::Prerouting, 0), true),
        (base(ChainType::Filter, Hook::Forward, -300), false),
        (base(ChainType::Route, Hook::Output, -150), false),
    ] {
        for (family, has_its_packets) in [
            (TableFamily::Inet, true),
            (TableFamily::Ip, true),
            (TableFamily::Arp, false),
        ] {
            let id = (family, "t".to_owned());
            let chains = [(id.clone(), Chain::regular("d")), (id, chain.clone())];
            let count = usize::from(expected && has_its_packets);
            let found = tables::that_matter(&ours, &chains);
            assert_eq!(found.len(), count, "{family} {chain:?}");
        }
    }
}
