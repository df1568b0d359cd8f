//! Texts as `iptables-save` 1.8.9 prints them. Before changing one, load it with `iptables-legacy-restore` and check
//! the output of `iptables-legacy-save`.

use super::*;
use ipnet::IpNet;
use weir_testing::tool::tool;

const IS: Not = Not(false);
const IS_NOT: Not = Not(true);

fn net(text: &str) -> IpNet {
    text.parse().unwrap()
}

/// Every condition, match and target, with and without `!`, in a table and chain that accepts it.
fn samples() -> Vec<(&'static str, &'static str, Rule, &'static str)> {
    let rule = Rule::builder;
    let ports = |first, last| PortRange(first..=last);
    let both = Udp {
        sport: Some((IS, ports(1024, 65535))),
        dport: Some((IS_NOT, ports(53, 53))),
    };
    let inverted = Rule {
        source: Some((IS_NOT, net("10.1.2.3/8").into())),
        in_interface: Some((IS_NOT, "eth+".into())),
        protocol: Some((IS_NOT, Protocol(58))),
        ..Rule::default()
    };
    let all = u32::MAX;
    vec![
        (
            "mangle",
            "PREROUTING",
            inverted,
            " ! -s 10.0.0.0/8 ! -i eth+ ! -p ipv6-icmp",
        ),
        (
            "nat",
            "OUTPUT",
            rule()
                .destination(net("0.0.0.0/0"))
                .out_interface("lo")
                .target(Target::Return),
            " -o lo -j RETURN",
        ),
        (
            "nat",
            "OUTPUT",
            rule().out_interface("+").target(Target::Accept),
            " -j ACCEPT",
        ),
        (
            "nat",
            "OUTPUT",
            rule()
                .protocol(Protocol::UDP)
                .matching(Match::Udp(both))
                .target(Target::Return),
            " -p udp -m udp --sport 1024:65535 ! --dport 53 -j RETURN",
        ),
        (
            "nat",
            "OUTPUT",
            rule()
                .not_tcp_dports(vec![ports(53, 53), ports(8000, 9000)])
                .jump("C"),
            " -p tcp -m multiport ! --dports 53,8000:9000 -j C",
        ),
        (
            "nat",
            "OUTPUT",
            rule()
                .uid(IS, 0..=999)
                .gid(IS_NOT, 5..=5)
                .gid(IS_NOT, 7..=9)
                .target(Target::Return),
            " -m owner --uid-owner 0-999 -m owner ! --gid-owner 5 -m owner ! --gid-owner 7-9 -j RETURN",
        ),
        (
            "mangle",
            "OUTPUT",
            rule()
                .mark(IS_NOT, 0x53a)
                .matching(Match::Mark(Mark {
                    not: IS,
                    value: 0x10,
                    mask: 0xf0,
                }))
                .connmark(0x539)
                .target(Target::Drop),
            " -m mark ! --mark 0x53a -m mark --mark 0x10/0xf0 -m connmark --mark 0x539 -j DROP",
        ),
        (
            "mangle",
            "OUTPUT",
            rule()
                .ctstate(&[ConntrackState::Established, ConntrackState::Related])
                .matching(Match::Conntrack(Conntrack {
                    states: Some((IS_NOT, vec![ConntrackState::Untracked])),
                    ..Conntrack::default()
                }))
                .target(Target::Goto("C".into())),
            " -m conntrack --ctstate RELATED,ESTABLISHED -m conntrack ! --ctstate UNTRACKED -g C",
        ),
        (
            "nat",
            "OUTPUT",
            rule()
                .protocol(Protocol::TCP)
                .target(Target::Redirect(Nat::to_ports(15001..=15006))),
            " -p tcp -j REDIRECT --to-ports 15001-15006",
        ),
        (
            "mangle",
            "PREROUTING",
            rule()
                .protocol(Protocol::TCP)
                .target(Target::Tproxy(Tproxy {
                    on_port: 15006,
                    on_ip: "0.0.0.0".parse().unwrap(),
                    mark: 0x539,
                    mask: all,
                })),
            " -p tcp -j TPROXY --on-port 15006 --on-ip 0.0.0.0 --tproxy-mark 0x539/0xffffffff",
        ),
        (
            "mangle",
            "OUTPUT",
            rule().target(Target::Mark(Xmark {
                value: 0x1,
                mask: 0xff,
            })),
            " -j MARK --set-xmark 0x1/0xff",
        ),
        (
            "mangle",
            "PREROUTING",
            rule().target(Target::Connmark(Connmark::Save {
                nfmask: all,
                ctmask: 0xff,
            })),
            " -j CONNMARK --save-mark --nfmask 0xffffffff --ctmask 0xff",
        ),
        (
            "mangle",
            "OUTPUT",
            rule().target(Target::Connmark(Connmark::Restore {
                nfmask: all,
                ctmask: all,
            })),
            " -j CONNMARK --restore-mark --nfmask 0xffffffff --ctmask 0xffffffff",
        ),
        (
            "raw",
            "OUTPUT",
            rule().target(Target::Ct(Ct::in_zone(2))),
            " -j CT --zone 2",
        ),
    ]
}

#[test]
fn each_value_has_its_text() {
    for (_, _, rule, text) in samples() {
        assert_eq!(rule.to_string(), text);
    }
}

fn sample_ruleset() -> Ruleset {
    let mut ruleset = Ruleset::default();
    for name in ["mangle", "nat", "raw"] {
        let mut table = Table::new(XtFamily::Ip, name);
        table.chains = vec![
            Chain::builtin("PREROUTING"),
            Chain::builtin("OUTPUT"),
            Chain::user("C"),
        ];
        for (_, chain, rule, _) in samples().into_iter().filter(|(t, ..)| *t == name) {
            let chain = table.chains.iter_mut().find(|c| c.name == chain).unwrap();
            chain.rules.push(rule);
        }
        ruleset.tables.push(table);
    }
    ruleset
}

#[test]
fn a_ruleset_is_the_text_of_both_programs() {
    let mut nat = Table::new(XtFamily::Ip6, "nat");
    let mut input = Chain::builtin("INPUT");
    input.kind = ChainKind::Builtin(Some(Policy::Drop));
    nat.chains = vec![input, Chain::builtin("OUTPUT"), Chain::user("C")];
    nat.chains[1].rules.push(Rule::builder().jump("C"));
    let mut filter = Table::new(XtFamily::Ip, "filter");
    filter.chains.push(Chain::user("D"));
    let ruleset = Ruleset {
        tables: vec![filter, nat],
    };
    let expected = "# iptables-save\n*filter\n:D - [0:0]\nCOMMIT\n\
                    # ip6tables-save\n*nat\n:INPUT DROP [0:0]\n:C - [0:0]\n-A OUTPUT -j C\nCOMMIT\n";
    assert_eq!(ruleset.to_string(), expected);
    assert_eq!(ruleset.family(XtFamily::Ip6).tables.len(), 1);
}

/// `iptables-legacy-save` prints what `iptables-legacy-restore` read, unchanged.
// matrix: every
#[test]
fn the_real_tool_prints_what_we_print() {
    // The rules contain user ids; a user namespace accepts only ids that are mapped in it.
    let first = std::fs::read_to_string("/proc/self/uid_map").unwrap();
    if !first.contains("4294967295") {
        eprintln!("skipped: /proc/self/uid_map says that this is not the first user namespace");
        return;
    }
    let netns = weir_testing::namespace_or_skip!();
    let run = |words: &[&str], input: &str| {
        let (program, args) = words.split_first().unwrap();
        tool(&netns, program, args, input).unwrap_or_else(|e| panic!("{words:?}: {e}\n{input}"))
    };
    let rules = |text: &str| -> Vec<String> {
        let mut rules: Vec<_> = text.lines().filter(|l| l.starts_with("-A")).collect();
        rules.sort_unstable();
        rules.into_iter().map(str::to_owned).collect()
    };
    let text = sample_ruleset().to_string();
    run(&["iptables-legacy-restore", "--noflush", "-w", "60"], &text);
    let saved = run(&["iptables-legacy-save"], "");
    assert_eq!(rules(&saved), rules(&text));
}
