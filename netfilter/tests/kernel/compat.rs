//! The rules of `iptables-nft` and `ip6tables-nft`, as weir reads them; their own listing is the oracle.
// matrix: variants no-xtables
use weir_testing::c;
use weir_testing::namespace_or_skip;
use weir_testing::rights;

use crate::common::{list, load, read, tool};
use weir_netfilter::nft::compat::{self, Compat};
use weir_netfilter::nft::{TableFamily, expr::Expr};

/// A rule, and those of its options that have no native expression (iptables 1.8.9).
const RULES: &[(&str, &[&str])] = &[
    (
        "-p tcp -m multiport --dports 80,81",
        &["-m multiport --dports 80,81"],
    ),
    (
        "-p udp -m multiport ! --sports 1:9,53",
        &["-m multiport ! --sports 1:9,53"],
    ),
    (
        "-m owner ! --uid-owner 1337",
        &["-m owner ! --uid-owner 1337"],
    ),
    (
        "-m conntrack --ctstate NEW,RELATED",
        &["-m conntrack --ctstate NEW,RELATED"],
    ),
    ("-m connmark --mark 0x539", &["-m connmark --mark 0x539"]),
    (
        "-m addrtype --dst-type LOCAL",
        &["-m addrtype --dst-type LOCAL"],
    ),
    (
        "-m pkttype --pkt-type broadcast",
        &["-m pkttype --pkt-type broadcast"],
    ),
    ("-m tos --tos 0x10/0xff", &["-m tos --tos 0x10/0xff"]),
    (
        "-j MARK --set-xmark 0x539/0xffffffff",
        &["-j MARK --set-xmark 0x539/0xffffffff"],
    ),
    (
        "-j CONNMARK --save-mark",
        &["-j CONNMARK --save-mark --nfmask 0xffffffff --ctmask 0xffffffff"],
    ),
    (
        "-m statistic --mode nth --every 2 --packet 0 -j MARK --set-xmark 0x1/0xff",
        &[
            "-m statistic --mode nth --every 2 --packet 0",
            "-j MARK --set-xmark 0x1/0xff",
        ],
    ),
];

/// The rules that the kernel accepts here: the match "owner" refuses an ID that the user namespace does not map.
fn rules() -> Vec<(&'static str, &'static [&'static str])> {
    let mut rules = RULES.to_vec();
    if let Some(reason) = rights::unmapped([1337]) {
        println!("skipped, the rule about an owner: {reason}");
        rules.retain(|(rule, _)| !rule.contains("--uid-owner"));
    }
    rules
}

fn script(family: &str, rules: &[(&str, &[&str])]) -> String {
    let addrs = if family == "ip" {
        "10.0.0.1-10.0.0.9"
    } else {
        "fd00::1-fd00::9"
    };
    let mut text = String::from("*mangle\n:OUTPUT ACCEPT [0:0]\n:MINE - [0:0]\n");
    for (rule, _) in rules {
        text += &format!("-A OUTPUT {rule}\n");
    }
    text += &format!(
        "-A OUTPUT -m iprange --dst-range {addrs}\n-A OUTPUT -m set --match-set plain src\n"
    );
    text + "-A OUTPUT -j MINE\nCOMMIT\n"
}

#[test]
fn compat_expressions_are_shown_as_the_tool_shows_them() {
    let rules = rules();
    for (family, restore, save) in [
        ("ip", "iptables-nft-restore", "iptables-nft-save"),
        ("ip6", "ip6tables-nft-restore", "ip6tables-nft-save"),
    ] {
        let ns = namespace_or_skip!();
        let inet = if family == "ip" { "inet" } else { "inet6" };
        let set = format!("create plain hash:ip family {inet}\n");
        tool(&ns, "ipset", &["restore"], &set).unwrap();
        tool(&ns, restore, &[], &script(family, &rules)).unwrap();
        let saved = tool(&ns, save, &["-t", "mangle"], "").unwrap();
        let shown = read(&ns).ruleset.to_string();
        let saved: Vec<&str> = saved
            .lines()
            .filter(|l| l.starts_with("-A OUTPUT"))
            .collect();
        let lines: Vec<&str> = shown
            .lines()
            .filter(|l| l.contains("counter packets"))
            .collect();
        assert_eq!(lines.len(), saved.len(), "{shown}");
        for ((rule, options), (line, saved)) in rules.iter().zip(lines.iter().zip(&saved)) {
            let mut from = 0;
            for option in *options {
                assert!(saved.contains(option), "the tool lists {rule} as {saved}");
                let name = option.split(' ').nth(1).unwrap();
                let kind = if option.starts_with("-m") {
                    "match"
                } else {
                    "target"
                };
                let want = format!("xt {kind} \"{name}\" [{option}]");
                let at = line.get(from..).unwrap().find(&want);
                from += at.unwrap_or_else(|| panic!("{want} is not in {line}"));
            }
            assert!(!line.contains("opaque("), "{line}");
        }
        assert!(
            shown.contains("xt match \"iprange\" [-m iprange --dst-range "),
            "{shown}"
        );
        // Weir does not look up names of sets for rules in nf_tables: it prints no option, and keeps the expression.
        assert!(shown.contains("xt match \"set\" [revision "), "{shown}");
        assert!(shown.contains("jump MINE"), "{shown}");
        let warning =
            format!("# Warning: table {family} mangle is managed by iptables-nft, do not touch!\n");
        assert!(shown.starts_with(&warning), "{shown}");
    }
}

/// Native expressions read as `nft` lists them, although `iptables-nft` encodes some of them differently: names of interfaces, ranges of
/// ports.
#[test]
fn a_table_without_them_has_no_mark() {
    let ns = namespace_or_skip!();
    let rules = [
        "-p tcp --dport 80 -j ACCEPT",
        "-p tcp --dport 8000:9000 -j DROP",
        "-p udp ! --sport 1:9 --dport 7:65535 -i eth+ -j RETURN",
        "-i lo ! -s 127.0.0.0/8 -p tcp --sport 53 --dport 20:21 -m mark --mark 0x4",
        "! -i abcdefghijklmno -m mark ! --mark 0x4/0xc",
    ];
    let lines = rules.map(|r| format!("-A INPUT {r}\n")).concat();
    let text = format!("*filter\n{lines}COMMIT\n");
    tool(&ns, "iptables-nft-restore", &["--noflush"], &text).unwrap();
    assert_eq!(read(&ns).ruleset.to_string(), list(&ns));
}

#[test]
fn a_marked_listing_is_read_by_nft() {
    let ns = namespace_or_skip!();
    tool(
        &ns,
        "iptables-nft",
        &["-A", "INPUT", "-m", "addrtype", "--dst-type", "LOCAL"],
        "",
    )
    .unwrap();
    let text = read(&ns).ruleset.to_string();
    let (mark, _) = text.split_once('\n').unwrap();
    assert!(mark.starts_with("# Warning"), "{text}");
    let fresh = namespace_or_skip!();
    load(&fresh, &format!("{mark}\ntable ip filter {{\n}}\n"));
}

// matrix: none: asks a C compiler about the system's headers, and no kernel
#[test]
fn attributes_are_the_headers() {
    let includes = "#include <stdio.h>\n#include <linux/netfilter/nf_tables_compat.h>\n";
    let names: Vec<&str> = compat::constants().iter().map(|(name, _)| *name).collect();
    let theirs = c::values_in_c(includes, &names);
    assert_eq!(names.len(), 6);
    for (name, n) in compat::constants() {
        assert_eq!(theirs.get(name), Some(&i64::from(n)), "{name}");
    }
}

mod damaged {
    use super::*;
    use proptest::prelude::*;
    use weir_netfilter::nft::compat::{MatchAttrs, TargetAttrs};
    use weir_netfilter::nft::expr::ExprAttrs;
    use weir_netlink::attr::{AttrSet, Writer};

    const NAMES: [&str; 8] = [
        "multiport",
        "conntrack",
        "owner",
        "set",
        "TPROXY",
        "REDIRECT",
        "CT",
        "nobody's",
    ];

    fn bytes(attrs: &impl AttrSet) -> Vec<u8> {
        let mut w = Writer::default();
        attrs.encode(&mut w);
        w.finish().unwrap()
    }

    proptest! {
        // matrix: none: about values and programs, with no namespace, no rule and no kernel
        #[test]
        fn any_bytes_have_a_text(
            name in proptest::sample::select(&NAMES[..]),
            revision in 0u32..6,
            info in proptest::collection::vec(any::<u8>(), 0..200),
            cut in 0usize..40,
            is_match in any::<bool>(),
        ) {
            let (name, revision, info) = (Some(name.to_owned()), Some(revision), Some(info));
            let mut data = if is_match {
                bytes(&MatchAttrs { name, revision, info, ..MatchAttrs::default() })
            } else {
                bytes(&TargetAttrs { name, revision, info, ..TargetAttrs::default() })
            };
            let is_whole = cut >= 20;
            if !is_whole {
                data.truncate(data.len().saturating_sub(cut));
            }
            let expr = if is_match { "match" } else { "target" };
            let attrs = ExprAttrs { name: Some(expr.to_owned()), data: Some(data), ..ExprAttrs::default() };
            for family in [TableFamily::Ip, TableFamily::Ip6, TableFamily::Bridge] {
                let read = Compat::read(&Expr::Opaque(attrs.clone()), family);
                prop_assert!(read.is_some() || !is_whole);
                prop_assert!(read.is_none_or(|c| c.to_string().starts_with("xt ")));
            }
        }
    }
}
