//! Random rulesets in temporary namespaces, in both families: what is written is read back, and the real tool lists it as this crate prints
//! it.

use weir_testing::effort;

use crate::common::assert_text;
use crate::xtables::namespace;
use crate::xtables::{by_table, engine, owning, read, save, without_remarks};
use ipnet::IpNet;
use proptest::prelude::*;
use std::net::IpAddr;
use weir_netfilter::xtables::*;

fn not() -> impl Strategy<Value = Not> {
    any::<bool>().prop_map(Not)
}

fn address(family: XtFamily) -> BoxedStrategy<IpAddr> {
    match family {
        XtFamily::Ip => any::<std::net::Ipv4Addr>().prop_map(IpAddr::from).boxed(),
        XtFamily::Ip6 => any::<std::net::Ipv6Addr>().prop_map(IpAddr::from).boxed(),
    }
}

fn network(family: XtFamily) -> impl Strategy<Value = IpNet> {
    (address(family), 1u8..=128).prop_map(|(a, len)| {
        let max = if a.is_ipv4() { 32 } else { 128 };
        IpNet::new(a, (len - 1) % max + 1).unwrap().trunc()
    })
}

fn interface() -> impl Strategy<Value = Interface> {
    prop_oneof![
        "[a-z][a-z0-9.-]{0,14}".prop_map(Interface::Name),
        "[a-z][a-z0-9]{0,13}".prop_map(Interface::Prefix),
    ]
}

fn ports() -> impl Strategy<Value = PortRange> {
    (any::<u16>(), any::<u16>()).prop_map(|(a, b)| PortRange(a.min(b)..=a.max(b)))
}

fn ids() -> impl Strategy<Value = std::ops::RangeInclusive<u32>> {
    (0u32..70000, 0u32..70000).prop_map(|(a, b)| a.min(b)..=a.max(b))
}

fn narrow(v: Option<(Not, PortRange)>) -> Option<(Not, PortRange)> {
    v.filter(|(_, p)| p.0 != (0..=u16::MAX))
}

fn a_match(family: XtFamily) -> impl Strategy<Value = Match> {
    let mark = || (not(), any::<u32>(), any::<u32>());
    prop_oneof![
        (
            proptest::option::of((not(), ports())),
            proptest::option::of((not(), ports()))
        )
            .prop_map(|(s, d)| Match::Tcp(Tcp {
                sport: narrow(s),
                dport: narrow(d),
                ..Tcp::default()
            })),
        (not(), any::<u8>(), 0u8..64, 0u8..64).prop_map(|(n, option, mask, set)| {
            let flags = (mask != 0).then_some((n, TcpFlags { mask, set }));
            let option = (option != 0).then_some((n, option));
            Match::Tcp(Tcp {
                option,
                flags,
                ..Tcp::default()
            })
        }),
        (not(), proptest::collection::vec(ports(), 1..=7)).prop_map(|(not, ports)| {
            Match::Multiport(Multiport {
                not,
                side: Side::Either,
                ports,
            })
        }),
        (proptest::option::of((not(), ids())), (not(), ids())).prop_map(|(uid, gid)| Match::Owner(
            Owner {
                uid,
                gid: Some(gid),
                ..Owner::default()
            }
        )),
        mark().prop_map(|(not, value, mask)| Match::Mark(Mark { not, value, mask })),
        mark().prop_map(|(not, value, mask)| Match::Connmark(Mark { not, value, mask })),
        (not(), network(family), not(), ports()).prop_map(|(n, net, m, p)| {
            let mut v = Conntrack {
                states: Some((n, vec![ConntrackState::New])),
                ..Conntrack::default()
            };
            v.addresses[1] = Some((m, net));
            v.ports[3] = Some((n, p));
            Match::Conntrack(v)
        }),
        "[ -~]{0,100}".prop_map(|text| Match::Comment(Comment(text))),
        (not(), address(family), address(family)).prop_map(move |(n, a, b)| {
            let (first, last) = (a.min(b), a.max(b));
            a_row(family, &format!("iprange{n} --src-range {first}-{last}"))
        }),
        (not(), any::<u8>(), any::<u8>()).prop_map(move |(n, value, mask)| {
            a_row(family, &format!("tos{n} --tos {value:#x}/{mask:#x}"))
        }),
        (not(), 0u8..64)
            .prop_map(move |(n, value)| a_row(family, &format!("dscp{n} --dscp {value}"))),
        // Other periods have texts as well, which stand for a similar period.
        (
            1u32..8,
            prop::sample::select(vec!["sec", "min", "hour"]),
            1u32..20
        )
            .prop_map(move |(n, unit, burst)| {
                a_row(
                    family,
                    &format!("limit --limit {n}/{unit} --limit-burst {burst}"),
                )
            }),
        (not(), 0u32..=0x8000_0000).prop_map(move |(n, p)| {
            let p = f64::from(p) / f64::from(0x8000_0000u32);
            a_row(
                family,
                &format!("statistic --mode random{n} --probability {p:.11}"),
            )
        }),
        (not(), 1u32..1000, any::<u32>()).prop_map(move |(n, every, p)| {
            let packet = p % every;
            a_row(
                family,
                &format!("statistic --mode nth{n} --every {every} --packet {packet}"),
            )
        }),
        // The kernel refuses some combinations for IPv6 routes.
        (not(), prop::sample::select(vec!["LOCAL", "UNICAST"])).prop_map(move |(n, kind)| {
            a_row(family, &format!("addrtype{n} --src-type {kind}"))
        }),
    ]
}

/// `-m TEXT`, for a match without a type of its own.
fn a_row(family: XtFamily, text: &str) -> Match {
    parsed(family, &format!("-m {text}")).matches.remove(0)
}

fn parsed(family: XtFamily, text: &str) -> Rule {
    let text = format!("*filter\n-A INPUT {text}\nCOMMIT\n");
    let script = Script::parse(family, &text).unwrap();
    let tables = plan_restore(&script, &Snapshot::default(), false)
        .unwrap()
        .tables();
    let mut rules = tables.tables[0].chains.iter().flat_map(|c| &c.rules);
    rules.next().unwrap().clone()
}

/// A text in the quotes of the tools.
fn quoted(text: &str) -> String {
    let escaped = text.replace('\\', "\\\\").replace('"', "\\\"");
    format!("\"{escaped}\"")
}

fn a_target(family: XtFamily) -> impl Strategy<Value = Option<Target>> {
    prop_oneof![
        Just(None),
        Just(Some(Target::Accept)),
        Just(Some(Target::Drop)),
        Just(Some(Target::Return)),
        Just(Some(Target::Jump("B".into()))),
        Just(Some(Target::Goto("B".into()))),
        any::<(u32, u32)>().prop_map(|(value, mask)| Some(Target::Mark(Xmark { value, mask }))),
        any::<(u32, u32)>()
            .prop_map(|(value, mask)| Some(Target::Connmark(Connmark::Set(Xmark { value, mask })))),
        any::<(u32, u32)>()
            .prop_map(|(nfmask, ctmask)| Some(Target::Connmark(Connmark::Save { nfmask, ctmask }))),
        ("[ -~]{0,29}", 0u8..8).prop_map(move |(prefix, level)| {
            let prefix = quoted(&prefix);
            let text = format!("-j LOG --log-prefix {prefix} --log-level {level}");
            parsed(family, &text).target
        }),
        (
            "[ -~]{0,63}",
            any::<u16>(),
            proptest::option::of(any::<u32>())
        )
            .prop_map(move |(prefix, group, size)| {
                let prefix = quoted(&prefix);
                let size = size.map_or_else(String::new, |n| format!(" --nflog-size {n}"));
                let text = format!(
                    "-j NFLOG --nflog-group {group} --nflog-prefix {prefix}{size} --nflog-threshold 1"
                );
                parsed(family, &text).target
            }),
    ]
}

/// An address with any mask, usually a prefix.
fn masked(family: XtFamily) -> impl Strategy<Value = Network> {
    let any_mask = (address(family), address(family));
    let any_mask = any_mask.prop_map(|(a, mask)| Network::new(a, mask).unwrap());
    let any_mask = any_mask.prop_filter("every address is no condition", |n| !n.is_any());
    prop_oneof![network(family).prop_map(Network::from), any_mask]
}

fn a_rule(family: XtFamily) -> impl Strategy<Value = Rule> {
    (
        proptest::option::of((not(), masked(family))),
        proptest::option::of((not(), masked(family))),
        proptest::option::of((not(), interface())),
        proptest::option::of((not(), interface())),
        proptest::collection::vec(a_match(family), 0..4),
        a_target(family),
    )
        .prop_map(
            |(source, destination, in_interface, out_interface, matches, target)| Rule {
                source,
                destination,
                in_interface,
                out_interface,
                // Most matches above require it.
                protocol: Some((Not(false), Protocol::TCP)),
                matches,
                target,
                ..Rule::default()
            },
        )
}

fn a_table(family: XtFamily) -> impl Strategy<Value = Table> {
    let rules = || proptest::collection::vec(a_rule(family), 0..8);
    (rules(), rules()).prop_map(move |(a, b)| {
        let mut table = Table::new(family, "mangle");
        let mut chain = |mut chain: Chain, rules: Vec<Rule>| {
            chain.rules = rules;
            table.chains.push(chain);
        };
        chain(
            Chain::builtin("POSTROUTING"),
            vec![Rule::builder().jump("A")],
        );
        chain(Chain::user("A"), a);
        // B has no jumps, so that there are no loops.
        let is_leaf = |r: &Rule| r.target.as_ref().and_then(Target::chain).is_none();
        chain(Chain::user("B"), b.into_iter().filter(is_leaf).collect());
        table
    })
}

/// The match owner is valid only where a socket sends, and an input interface only where packets do not leave.
///
/// For chains that `POSTROUTING` jumps to, the kernel does not check the latter.
fn check(family: XtFamily, table: Table) {
    let Some(ns) = namespace() else { return };
    let desired = Ruleset {
        tables: vec![table],
    };
    engine(&ns, |e| e.apply(&desired, &owning(&desired)))
        .unwrap_or_else(|e| panic!("{e}\n{desired}"));
    let found = read(&ns).ruleset;
    for chain in ["A", "B"] {
        let rules = |r: &Ruleset| {
            r.table(family, "mangle")
                .unwrap()
                .chain(chain)
                .unwrap()
                .rules
                .clone()
        };
        assert_eq!(rules(&found), rules(&desired));
    }
    let ours = by_table(&without_remarks(&found.family(family).to_string()));
    assert_text(&ours, &save(&ns, family));
    // The same through the text.
    let script = Script::parse(family, &ours).unwrap_or_else(|e| panic!("{e}\n{ours}"));
    engine(&ns, |e| e.restore(&script, false)).unwrap();
    assert_text(&save(&ns, family), &ours);
}

fn cases() -> ProptestConfig {
    let cases = effort::cases(if std::env::var_os("WEIR_LONG").is_some() {
        1000
    } else {
        60
    });
    ProptestConfig {
        failure_persistence: None,
        ..ProptestConfig::with_cases(cases)
    }
}

proptest! {
    #![proptest_config(cases())]

    #[test]
    fn ipv4_is_written_read_and_listed_alike(table in a_table(XtFamily::Ip)) {
        check(XtFamily::Ip, table);
    }

    #[test]
    fn ipv6_is_written_read_and_listed_alike(table in a_table(XtFamily::Ip6)) {
        check(XtFamily::Ip6, table);
    }
}
