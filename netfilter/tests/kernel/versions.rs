//! Rules of this crate, listed by the nft of several Debian releases (`ci/fetch-nft` downloads them).
//!
//! The text of this crate is that of 1.0.6 in Debian 12. A table below contains the differences of other versions, with the reason; any
//! other difference is a failure.
// matrix: host: starts the nft of other distributions, with a C library of each, from target/

use crate::common::{apply, assert_text, load, read, timeless, tool};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use weir_netfilter::nft::{
    Chain, ChainType, CmpOp, Data, DataType, Element, Hook, L4Proto, Operand, Rule, Ruleset,
    Selector, Set, Statement, Table, TableFamily, Verdict, priority,
};
use weir_testing::namespace_or_skip;

/// A release, with the differences of its text from that of 1.0.6.
struct Version {
    suite: &'static str,
    /// Whether it can list `eth*` in a set: 0.9.8 prints the bytes of the range in reverse.
    name_ranges: bool,
    /// Whether it puts other numbers of elements on a line: 1.1 also counts values, times and comments.
    breaks_elsewhere: bool,
    /// The text of this crate, the text of the release, and the reason.
    differences: &'static [(&'static str, &'static str, &'static str)],
}

const WORDS_FOR_FLAGS: (&str, &str, &str) = (
    "tcp flags syn / syn,ack",
    "tcp flags & (syn | ack) == syn",
    "1.0.6 writes it shorter than those before and after",
);
const DSTNAT_EVERYWHERE: (&str, &str, &str) = (
    "hook output priority -100;",
    "hook output priority dstnat;",
    "1.1 uses the name for output too",
);
const BURST_ALWAYS: (&str, &str, &str) = (
    "limit rate 5/second accept",
    "limit rate 5/second burst 5 packets accept",
    "1.1 says the default",
);
const MARK_TOP: (&str, &str, &str) = (
    "0xfffffff0/28",
    "0xfffffff0-0xffffffff",
    "1.1 has no prefixes of marks",
);
const MARK_24: (&str, &str, &str) = ("0x00000100/24", "0x00000100-0x000001ff", "the same");
const MARK_28: (&str, &str, &str) = (
    "{ 0x00000000/28, 0x00000020/28 }",
    "{ 0x00000000-0x0000000f, 0x00000020-0x0000002f }",
    "the same",
);
const COUNT_SMALL: (&str, &str, &str) = (
    "\t\tsize 100\n",
    "\t\tsize 100\t# count 1\n",
    "1.1.7 says the kernel's number of elements",
);
const COUNT_MIDDLE: (&str, &str, &str) =
    ("\t\tsize 128\n", "\t\tsize 128\t# count 1\n", "the same");
const COUNT_LARGE: (&str, &str, &str) = (
    "\t\tsize 65535\n",
    "\t\tsize 65535\t# count 1\n",
    "the same",
);

const VERSIONS: &[Version] = &[
    Version {
        suite: "bullseye",
        name_ranges: false,
        breaks_elsewhere: false,
        differences: &[
            WORDS_FOR_FLAGS,
            (
                "ct state ! established",
                "ct state & established == 0x0",
                "0.9.8 has no short form",
            ),
            (
                "\t\treject with icmp host",
                "\t\tmeta nfproto ipv4 reject with icmp type host",
                "0.9.8 says the word type, and what the code implies",
            ),
            (
                "\t\treject with icmpv6 no",
                "\t\tmeta nfproto ipv6 reject with icmpv6 type no",
                "the same",
            ),
            (
                "reject with icmpx admin",
                "reject with icmpx type admin",
                "the same",
            ),
            (
                "1500 bytes/minute accept",
                "1500 bytes/minute burst 0 bytes accept",
                "0.9.8 says a burst of 0",
            ),
            (
                "10 mbytes/second tcp",
                "10 mbytes/second burst 0 bytes tcp",
                "the same",
            ),
            (
                "\"lo\" ip daddr != 127.0.0.1 tcp dport != { 53, 15008 } meta skuid 3",
                "\"lo\" meta nfproto ipv4 ip daddr != 127.0.0.1 tcp dport != { 53, 15008 } meta skuid 3",
                "behind a match of the protocol, 0.9.8 keeps the match of the family",
            ),
            (
                "{ 0.0.0.0/0 }",
                "{ 0.0.0.0-255.255.255.255 }",
                "0.9.8 sees no prefix in a range up to the last value",
            ),
            ("128.0.0.0/1 }", "128.0.0.0-255.255.255.255 }", "the same"),
            (
                "{ ::/0 }",
                "{ ::-ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff }",
                "the same",
            ),
            (
                "ff00::/8 }",
                "ff00::-ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff }",
                "the same",
            ),
            ("0xfffffff0/28", "0xfffffff0-0xffffffff", "the same"),
            (
                "tcp ip saddr 10.1.2.0/23",
                "tcp meta nfproto ipv4 ip saddr 10.1.2.0/23",
                "the same",
            ),
        ],
    },
    Version {
        suite: "bookworm",
        name_ranges: true,
        breaks_elsewhere: false,
        differences: &[],
    },
    Version {
        suite: "trixie",
        name_ranges: true,
        breaks_elsewhere: true,
        differences: &[
            WORDS_FOR_FLAGS,
            DSTNAT_EVERYWHERE,
            BURST_ALWAYS,
            MARK_TOP,
            MARK_24,
            MARK_28,
        ],
    },
    Version {
        suite: "sid",
        name_ranges: true,
        breaks_elsewhere: true,
        differences: &[
            WORDS_FOR_FLAGS,
            DSTNAT_EVERYWHERE,
            BURST_ALWAYS,
            MARK_TOP,
            MARK_24,
            MARK_28,
            COUNT_SMALL,
            COUNT_MIDDLE,
            COUNT_LARGE,
        ],
    },
];

/// The nft of a release. Prints the reason and returns `None` if it was not downloaded.
fn nft(suite: &str) -> Option<PathBuf> {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap();
    let path = target.join("nft").join(suite).join("nft");
    if path.exists() {
        return Some(path);
    }
    let message = format!(
        "nft of {suite} is not in {}: run ci/fetch-nft",
        path.display()
    );
    assert!(
        std::env::var_os("WEIR_REQUIRE_NFT_VERSIONS").is_none(),
        "{message}"
    );
    eprintln!("skipped: {message}");
    None
}

/// The rules for a sidecar.
fn sidecar() -> Ruleset {
    let mut table = Table::new(TableFamily::Inet, "istio-proxy-nat");
    let rule = Rule::builder;
    let mut out = Chain::base("output", ChainType::Nat, Hook::Output, priority::DSTNAT);
    out.rules = vec![
        rule().l4proto(L4Proto::Tcp).counter().jump("istio-output"),
        rule()
            .oifname(CmpOp::Eq, "lo")
            .saddr(CmpOp::Eq, "127.0.0.6/32".parse().unwrap())
            .counter()
            .verdict(Verdict::Return),
    ];
    let mut redirect = Chain::regular("istio-redirect");
    redirect.rules = vec![
        rule()
            .l4proto(L4Proto::Tcp)
            .counter()
            .redirect(15001)
            .build(),
    ];
    let mut chain = Chain::regular("istio-output");
    chain.rules = vec![
        rule()
            .oifname(CmpOp::Eq, "lo")
            .daddr(CmpOp::Neq, "127.0.0.1/32".parse().unwrap())
            .dports(L4Proto::Tcp, CmpOp::Neq, &[53, 15008])
            .skuid(CmpOp::Eq, 1337..=1337)
            .counter()
            .jump("istio-in-redirect"),
        rule()
            .oifname(CmpOp::Eq, "lo")
            .skuid(CmpOp::Neq, 1337..=1337)
            .counter()
            .verdict(Verdict::Return),
        rule()
            .skgid(CmpOp::Eq, 1337..=1400)
            .counter()
            .verdict(Verdict::Return),
        rule()
            .dport(L4Proto::Udp, CmpOp::Eq, 53..=53)
            .daddr(CmpOp::Eq, "10.96.0.10/32".parse().unwrap())
            .counter()
            .redirect(15053)
            .build(),
        rule()
            .daddr(CmpOp::Eq, "10.0.0.0/8".parse().unwrap())
            .counter()
            .jump("istio-redirect"),
        rule()
            .daddr(CmpOp::Eq, "fd00::/8".parse().unwrap())
            .counter()
            .jump("istio-redirect"),
    ];
    let mut inbound = Chain::regular("istio-in-redirect");
    inbound.rules = vec![
        rule()
            .dport(L4Proto::Tcp, CmpOp::Eq, 15008..=15008)
            .counter()
            .verdict(Verdict::Return),
        rule()
            .dport(L4Proto::Tcp, CmpOp::Eq, 1..=65535)
            .counter()
            .redirect(15006)
            .build(),
    ];
    table.chains = vec![out, chain, redirect, inbound];
    let mut mangle = Table::new(TableFamily::Inet, "istio-proxy-mangle");
    mangle.comment = Some("weir".to_owned());
    let mut pre = Chain::base(
        "prerouting",
        ChainType::Filter,
        Hook::Prerouting,
        priority::MANGLE,
    );
    pre.rules = vec![
        rule()
            .ct_state(6)
            .counter()
            .set_mark(1337)
            .verdict(Verdict::Accept),
        rule()
            .l4proto(L4Proto::Tcp)
            .mark(CmpOp::Eq, 0x539)
            .set_ct_mark_from_mark()
            .build(),
        rule()
            .dport(L4Proto::Tcp, CmpOp::Neq, 80..=90)
            .tproxy(TableFamily::Ip, 15006)
            .set_mark(0x539)
            .verdict(Verdict::Accept),
        rule()
            .saddr(CmpOp::Neq, "fd00::1/128".parse().unwrap())
            .dport(L4Proto::Udp, CmpOp::Eq, 53..=53)
            .set_ct_zone(2)
            .build(),
        Rule {
            comment: Some("a comment".to_owned()),
            ..rule().iifname(CmpOp::Eq, "veth*").counter().build()
        },
    ];
    let mut raw = Chain::base("raw", ChainType::Filter, Hook::Output, priority::RAW + 5);
    raw.rules = vec![
        rule()
            .skuid(CmpOp::Eq, 0..=0)
            .push(Statement::Notrack)
            .build(),
    ];
    let mut ports = Set::new("ports", DataType::INET_SERVICE, 2);
    ports.elements = [22, 80, 15001]
        .map(|p| Element::value(Data::be16(p)))
        .to_vec();
    let mut nets = Set::new("nets", DataType::IPV4_ADDR, 4);
    nets.interval = true;
    nets.elements = ["10.0.0.0/8", "192.168.1.1/32"]
        .map(|n| Element::prefix(n.parse().unwrap()))
        .to_vec();
    mangle.sets = vec![ports, nets];
    mangle.chains = vec![pre, raw];
    Ruleset {
        tables: vec![table, mangle],
    }
}

/// Rulesets by name: those of this project, and all that the other tests load with nft.
fn rulesets() -> Vec<(&'static str, Ruleset)> {
    let read_from = |text: &str| {
        let ns = weir_netlink::Netns::create().unwrap();
        load(&ns, text);
        read(&ns).ruleset
    };
    vec![
        ("sidecar", sidecar()),
        ("matches", read_from(include_str!("listing/matches.nft"))),
        (
            "statements",
            read_from(include_str!("listing/statements.nft")),
        ),
        ("sets", read_from(include_str!("listing/sets.nft"))),
        (
            "anonymous",
            read_from(include_str!("listing/anonymous.nft")),
        ),
        ("corners", read_from(include_str!("listing/corners.nft"))),
    ]
}

/// All elements of a set on one line.
fn joined(listing: &str) -> String {
    listing.replace(",\n\t\t\t     ", ", ")
}

/// Without sets that contain prefixes of names.
fn without_name_ranges(mut r: Ruleset) -> Ruleset {
    let is_named =
        |e: &Element| e.key.first().as_bytes().len() == 16 && e.key.first() != e.key.last();
    let has = |r: &Rule| {
        r.statements.iter().any(|s| match s {
            Statement::Match(m) => match &m.operand {
                Operand::Anonymous(elements) => {
                    matches!(m.selector, Selector::Meta(_)) && elements.iter().any(is_named)
                }
                _ => false,
            },
            _ => false,
        })
    };
    for t in &mut r.tables {
        t.sets
            .retain(|s| !(s.interval && s.key_type == DataType::IFNAME));
        t.chains
            .iter_mut()
            .for_each(|c| c.rules.retain(|r| !has(r)));
    }
    r
}

#[test]
fn every_version_lists_our_rules() {
    let _probe = namespace_or_skip!();
    for version in VERSIONS {
        let Some(nft) = nft(version.suite) else {
            continue;
        };
        let mut needed = BTreeSet::new();
        for (name, mut ruleset) in rulesets() {
            let ns = namespace_or_skip!();
            if !version.name_ranges {
                ruleset = without_name_ranges(ruleset);
            }
            apply(&ns, &ruleset).unwrap();
            let listing = tool(&ns, nft.to_str().unwrap(), &["list", "ruleset"], "")
                .unwrap_or_else(|e| panic!("{}: {name}: {e}", version.suite));
            let text = read(&ns).ruleset.to_string();
            let mut ours = timeless(&text) + "\n";
            for (from, to, _) in version.differences {
                if ours.contains(from) {
                    needed.insert(*from);
                    ours = ours.replace(from, to);
                }
            }
            eprintln!("{}: {name}", version.suite);
            let (mut ours, mut theirs) = (ours.trim_end().to_owned(), timeless(&listing));
            if version.breaks_elsewhere {
                (ours, theirs) = (joined(&ours), joined(&theirs));
            }
            assert_text(&ours, &theirs);
        }
        let unused: Vec<_> = version
            .differences
            .iter()
            .filter(|d| !needed.contains(d.0))
            .collect();
        assert!(unused.is_empty(), "{}: {unused:?}", version.suite);
    }
}

/// Forms that only newer versions write are listed as they list them.
#[test]
fn what_a_newer_version_writes() {
    let ns = namespace_or_skip!();
    let Some(nft) = nft("trixie") else { return };
    let nft = nft.to_str().unwrap();
    tool(&ns, nft, &["-f", "-"], include_str!("listing/newer.nft")).unwrap();
    let listing = tool(&ns, nft, &["list", "ruleset"], "").unwrap();
    assert_text(&joined(&read(&ns).ruleset.to_string()), &joined(&listing));
}
