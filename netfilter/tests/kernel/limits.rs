//! A value that is too long is refused with the limit before anything is written; neither this crate nor the kernel truncates it.

use crate::common::{apply, read};
use std::net::IpAddr;
use weir_netfilter::nft::{
    Chain, CmpOp, CtKey, Data, DataType, Element, ElementKey, Log, Match, MetaKey, Nat, NatKind,
    Operand, PayloadBase, Rule, Ruleset, Selector, Set, Source, Statement, Table, TableFamily,
    Tproxy, TypeOf, Verdict,
};
use weir_netfilter::{ipset, xtables};
use weir_testing::namespace_or_skip;

fn with(set: Option<Set>, statements: Vec<Statement>) -> Ruleset {
    let mut table = Table::new(TableFamily::Inet, "x");
    table.sets.extend(set);
    let rule = Rule {
        statements,
        ..Rule::default()
    };
    table.chains.push(Chain {
        rules: vec![rule],
        ..Chain::regular("c")
    });
    Ruleset {
        tables: vec![table],
    }
}

fn matching(selector: Selector, operand: Operand) -> Statement {
    Statement::Match(Match {
        selector,
        mask: None,
        op: CmpOp::Eq,
        operand,
    })
}

fn of_mark(source: Source) -> Vec<Statement> {
    vec![Statement::MetaSet(MetaKey::Mark, source)]
}

/// A load with a mask, and bits to invert, of this many bytes.
fn masked(key: MetaKey, len: usize) -> Source {
    Source::Bitwise {
        selector: Selector::Meta(key),
        mask: Data::from(&vec![0xf; len][..]),
        xor: Data::from(&vec![1; len][..]),
    }
}

/// A load of `meta mark & 0xffffffff` with a mask that is too long.
fn long_mask() -> Source {
    Source::Bitwise {
        selector: Selector::Meta(MetaKey::Mark),
        mask: Data::from(&[0xff; 8][..]),
        xor: Data::ne32(0),
    }
}

fn nat(family: TableFamily, address: &str) -> Vec<Statement> {
    let address: IpAddr = address.parse().unwrap();
    vec![Statement::Nat(Nat {
        kind: NatKind::Dnat,
        family,
        addrs: Some((address, address)),
        ports: None,
        flags: 0,
    })]
}

fn log(prefix: String) -> Vec<Statement> {
    vec![Statement::Log(Log {
        prefix: Some(prefix),
        ..Log::default()
    })]
}

fn noted(comment: usize, type_of: usize) -> Set {
    let mut set = Set::new("s", DataType::MARK, 4);
    set.comment = Some("c".repeat(comment));
    set.type_of = (type_of > 0).then(|| {
        Box::new(TypeOf {
            key: Some(vec![0; type_of]),
            ..TypeOf::default()
        })
    });
    set
}

/// An interval up to the highest port: its userdata contains an entry of nft besides the comment.
fn open(comment: usize) -> Set {
    let mut set = Set::new("s", DataType::INET_SERVICE, 2);
    set.interval = true;
    let key = ElementKey::range(Data::be16(5), Data::be16(u16::MAX));
    let mut element = Element::new(key);
    element.extra_mut().comment = Some("c".repeat(comment));
    set.elements = vec![element];
    set
}

#[test]
fn nf_tables() {
    let ns = namespace_or_skip!();
    let destination = Selector::Payload {
        base: PayloadBase::Network,
        offset: 16,
        len: 4,
    };
    let prefix = |len| {
        matching(
            destination.clone(),
            Operand::Prefix(Data::be32(0x0a00_0000), len),
        )
    };
    let named = |set: &str| Operand::Named {
        set: set.into(),
        turned: false,
    };
    let of_name = |operand| matching(Selector::Meta(MetaKey::Iifname), operand);
    let long_name_of = |key| {
        matching(
            Selector::Meta(key),
            Operand::Value(Data::ifname("sixteen-letters-")),
        )
    };
    let long_name = Element::value(Data::ifname("sixteen-letters-"));
    let unknown = Selector::Meta(MetaKey::Other(999));
    let to = |chain: &str| vec![Statement::Verdict(Verdict::Jump(chain.into()))];
    for (what, desired, words) in [
        (
            "a prefix of an address",
            with(None, vec![prefix(33)]),
            "32 bits",
        ),
        (
            "a log's prefix",
            with(None, log("p".repeat(128))),
            "127 bytes",
        ),
        (
            "a log's prefix with a zero",
            with(None, log("a\0b".into())),
            "127 bytes",
        ),
        (
            "a chain's name with a zero",
            with(None, to("c\0d")),
            "255 bytes",
        ),
        (
            "a set's name with a zero",
            with(Some(noted(1, 0)), vec![of_name(named("s\0t"))]),
            "255 bytes",
        ),
        (
            "a name in a rule's set",
            with(None, vec![of_name(Operand::Anonymous(vec![long_name]))]),
            "1 to 15",
        ),
        (
            "the name of a kind of interface",
            with(None, vec![long_name_of(MetaKey::Oifkind)]),
            "1 to 15",
        ),
        (
            "the name of an interface of a VRF",
            with(None, vec![long_name_of(MetaKey::Sdifname)]),
            "1 to 15",
        ),
        (
            "an unknown key",
            with(None, vec![long_name_of(MetaKey::Other(999))]),
            "Other(999)",
        ),
        (
            "labels of 4 bytes",
            with(
                None,
                vec![Statement::CtSet(
                    CtKey::Label,
                    None,
                    Source::Value(Data::ne32(1)),
                )],
            ),
            "16 bytes",
        ),
        (
            "an IPv6 address as IPv4",
            with(None, nat(TableFamily::Ip, "fd00::1")),
            "family ip",
        ),
        (
            "an IPv4 address as IPv6",
            with(None, nat(TableFamily::Ip6, "10.0.0.1")),
            "family ip6",
        ),
        (
            "an address of tproxy",
            with(
                None,
                vec![Statement::Tproxy(Tproxy {
                    family: TableFamily::Ip,
                    addr: "fd00::1".parse().ok(),
                    port: Some(1),
                })],
            ),
            "family ip",
        ),
        (
            "a mark of 8 bytes",
            with(None, of_mark(Source::Value(Data::from(&[1; 8][..])))),
            "4 bytes",
        ),
        (
            "a mask of 8 bytes",
            with(None, of_mark(long_mask())),
            "4 bytes",
        ),
        (
            "a mask and bits of 8 bytes",
            with(None, of_mark(masked(MetaKey::Mark, 8))),
            "4 bytes",
        ),
        (
            "a mask of 2 bytes for 4",
            with(None, of_mark(masked(MetaKey::Mark, 2))),
            "4 bytes",
        ),
        (
            "an unknown key with a mask",
            with(None, of_mark(masked(MetaKey::Other(999), 4))),
            "Other(999)",
        ),
        (
            "an unknown key of a map",
            with(None, of_mark(Source::Map(unknown, "m".into()))),
            "Other(999)",
        ),
        (
            "a set's comment",
            with(Some(noted(248, 0)), vec![]),
            "247 bytes",
        ),
        ("a set's notes", with(Some(noted(0, 250)), vec![]), "256"),
        (
            "an element's comment",
            with(Some(open(246)), vec![]),
            "245 bytes",
        ),
    ] {
        let error = apply(&ns, &desired).expect_err(what).to_string();
        assert!(error.contains(words), "{what}: {error}");
        assert!(error.starts_with("cannot write"), "{what}: {error}");
        assert_eq!(read(&ns).ruleset, Ruleset::default(), "{what}");
    }
    // A value that just fits is written and read back.
    let mut commented = with(None, vec![]);
    commented.tables[0].comment = Some("t".repeat(253));
    commented.tables[0].chains[0].rules[0].comment = Some("r".repeat(253));
    for fits in [
        commented,
        with(Some(noted(247, 0)), log("p".repeat(127))),
        with(Some(open(245)), vec![prefix(32)]),
        // The mask of a load of two bytes.
        with(None, of_mark(masked(MetaKey::Iiftype, 2))),
    ] {
        apply(&ns, &fits).unwrap();
        assert_eq!(apply(&ns, &fits).unwrap().ops, []);
    }
}

#[test]
fn ipset() {
    use ipset::{
        Entry, Existing, Header, IpsetEngine, Key, KeyPart, ProtoPort, Set, SetFamily, SetType,
    };
    let ns = namespace_or_skip!();
    let header = |kind| Header::new("s", kind, SetFamily::Inet);
    let timed = |kind, timeout| Header {
        timeout: Some(timeout),
        ..header(kind)
    };
    let address: IpAddr = "10.0.0.1".parse().unwrap();
    let with = |header, key, timeout| {
        let mut set = Set::new(header);
        set.entries.push(Entry {
            timeout,
            ..Entry::new(key)
        });
        set
    };
    let gre = ProtoPort {
        protocol: 47,
        port: 5,
    };
    let list = Header::new("s", SetType::ListSet, SetFamily::Unspec);
    for (what, set, words) in [
        (
            "the default timeout",
            Set::new(timed(SetType::HashIp, 2_147_484)),
            "2147483",
        ),
        (
            "an entry's timeout",
            with(
                timed(SetType::HashIp, 5),
                Key::from(address),
                Some(u32::MAX),
            ),
            "2147483",
        ),
        (
            "a member's name",
            with(list.clone(), Key::Set("m".repeat(32)), None),
            "31 bytes",
        ),
        (
            "a member with a zero",
            with(list, Key::Set("a\0b".into()), None),
            "NUL",
        ),
        (
            "a port without one",
            with(
                header(SetType::HashIpPort),
                Key::Parts(vec![KeyPart::Ip(address), KeyPart::Port(gre)]),
                None,
            ),
            "give 0",
        ),
    ] {
        let done = ns.run(|| IpsetEngine::open().unwrap().apply(&[set], &["s".into()]));
        let error = done.unwrap().expect_err(what).to_string();
        assert!(error.contains(words), "{what}: {error}");
        let held = ns.run(|| IpsetEngine::open().unwrap().names().unwrap());
        assert_eq!(held.unwrap(), [""; 0], "{what}");
    }
    let longest = with(
        timed(SetType::HashIp, 2_147_483),
        Key::from(address),
        Some(2_147_483),
    );
    ns.run(|| {
        let mut engine = IpsetEngine::open().unwrap();
        engine.apply(&[longest], &["s".into()]).unwrap();
        engine
            .add("s", [Entry::new(Key::from(address))], Existing::Accept)
            .unwrap();
    })
    .unwrap();
}

/// `-j SET --timeout`: the rule keeps a timeout that the kernel reduces when a packet adds an element (`set_target_v3()`). The largest
/// number is that of the set's own timeout.
#[test]
fn xtables() {
    use xtables::{Chain, Ownership, Ruleset, Script, Snapshot, Table, XtFamily, plan};
    let text = |timeout: u32| {
        format!("*filter\n:X - [0:0]\n-A X -j SET --add-set s src --timeout {timeout}\nCOMMIT\n")
    };
    let planned = |timeout| {
        let script = Script::parse(XtFamily::Ip, &text(timeout)).unwrap();
        let rules = script.tables[0]
            .commands
            .iter()
            .filter_map(|(_, c)| match c {
                xtables::Command::Append(_, rule) => Some(rule.clone()),
                _ => None,
            });
        let mut table = Table::new(XtFamily::Ip, "filter");
        table.chains.push(Chain {
            rules: rules.collect(),
            ..Chain::user("X")
        });
        let desired = Ruleset {
            tables: vec![table],
        };
        plan(&desired, &Snapshot::default(), &Ownership::default())
    };
    assert_eq!(planned(u32::MAX - 1).unwrap().ops.len(), 2);
    let error = planned(u32::MAX).unwrap_err().to_string();
    assert!(error.contains("4294967294"), "{error}");
}

/// The peak of this process' memory since it was last reset, in bytes (`VmHWM`, proc(5)).
pub fn peak() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|l| l.strip_prefix("VmHWM:"));
    let kib = line.unwrap().trim().trim_end_matches(" kB");
    kib.parse::<usize>().unwrap() * 1024
}

/// A line of 10 MB has an error with its place, and takes little more memory than itself. The test starts itself again, because the
/// peak belongs to a process.
// matrix: none: about values, with no namespace, no rule and no kernel
#[test]
fn lines_of_ten_megabytes_take_bounded_memory() {
    const CHILD: &str = "WEIR_TEST_LONG_LINES";
    const SIZE: usize = 10_000_000;
    if std::env::var_os(CHILD).is_none() {
        let name = "limits::lines_of_ten_megabytes_take_bounded_memory";
        let out = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", name, "--nocapture"])
            .env(CHILD, "1")
            .output()
            .unwrap();
        let ran = String::from_utf8_lossy(&out.stdout).contains("1 passed");
        let said = String::from_utf8_lossy(&out.stderr);
        assert!(out.status.success() && ran, "{said}");
        return;
    }
    let many = |word: &str| word.repeat(SIZE / word.len());
    let legacy = |text: &str| {
        let script = xtables::Script::parse(xtables::XtFamily::Ip, text);
        script.unwrap_err()
    };
    let sets = |text: &str| ipset::restore::check(text, Vec::new()).unwrap_err();
    type Parse<'a> = &'a dyn Fn(&str) -> xtables::ParseError;
    let cases: [(Parse<'_>, &str, String, &str); 12] = [
        (&legacy, "*filter\n", many("x"), ""),
        (&legacy, "*filter\n", many("-A INPUT "), ""),
        (&legacy, "*filter\n-A INPUT -s ", many("1.1.1.1,"), ""),
        (
            &legacy,
            "*filter\n-A INPUT -m comment --comment \"",
            many("x"),
            "",
        ),
        (
            &legacy,
            "*filter\n-A INPUT -m comment --comment \"",
            many("x"),
            "\"",
        ),
        (&legacy, "*filter\n-A ", many("\u{e4}"), ""),
        (&legacy, "*filter\n:", many("x"), " -"),
        (&sets, "create a hash:ip\n", many("x"), ""),
        (&sets, "create a hash:ip\nadd a ", many("1.1.1.1,"), ""),
        (&sets, "create a hash:ip\n", many("x "), ""),
        (
            &sets,
            "create a hash:ip comment\nadd a 1.1.1.1 comment \"",
            many("\u{e4}"),
            "",
        ),
        (
            &sets,
            "create a hash:ip comment\nadd a 1.1.1.1 comment \"",
            many("x"),
            "\"",
        ),
    ];
    for (n, (parse, before, line, after)) in cases.into_iter().enumerate() {
        let text = format!("{before}{line}{after}");
        drop(line);
        std::fs::write("/proc/self/clear_refs", "5").unwrap();
        let start = peak();
        let e = parse(&text);
        let more = peak().saturating_sub(start);
        assert!(e.line == 2 && e.column >= 1, "case {n}: {e}");
        assert!(e.reason.len() < 1_000, "case {n}: {} bytes", e.reason.len());
        println!("case {n}: {} KiB, {e}", more >> 10);
        assert!(more < 5 * SIZE, "case {n}: {more} bytes: {e}");
    }
}
