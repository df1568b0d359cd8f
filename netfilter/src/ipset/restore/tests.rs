use super::*;
use crate::ipset::model::{Key, KeyPart, SetType};

fn parse(
    text: &str,
    known: impl IntoIterator<Item = Header>,
) -> Result<Vec<Statement>, ParseError> {
    let mut parser = Parser::new(known);
    let lines = text.lines();
    lines.filter_map(|l| parser.line(l).transpose()).collect()
}

fn error(text: &str) -> String {
    parse(text, []).unwrap_err().to_string()
}

#[test]
fn spellings() {
    let text = "# a comment\r\n\n  -N a hash:ip comment \r\n\
                --add\ta 10.0.0.1  comment\t\"two  words\"\n-A a \"10.0.0.2\" comment w\"or\"d\n\
                -D a 10.0.0.1\n-E a b\n-F b\n-X b\nCOMMIT\n-F\n-X\n";
    let statements = parse(text, []).unwrap();
    let lines: Vec<usize> = statements.iter().map(|s| s.line).collect();
    assert_eq!(lines, [3, 4, 5, 6, 7, 8, 9, 11, 12]);
    let Command::Add(set, entries) = &statements[1].command else {
        panic!("{statements:?}")
    };
    assert_eq!(
        (set.as_str(), entries[0].comment.as_deref()),
        ("a", Some("two  words"))
    );
    let Command::Add(_, entries) = &statements[2].command else {
        panic!("{statements:?}")
    };
    assert_eq!(entries[0].comment.as_deref(), Some("word"));
    assert_eq!(statements[8].command, Command::Destroy(None));
}

/// Each type has an older name.
#[test]
fn older_names_of_types() {
    for kind in SetType::all() {
        let old = match kind.name().split_once(':') {
            Some(("hash", parts)) => format!("{}hash", parts.replace(',', "")),
            Some(("bitmap", "ip,mac")) => "macipmap".to_owned(),
            Some(("bitmap", of)) => format!("{of}map"),
            _ => "setlist".to_owned(),
        };
        let range = match kind {
            SetType::BitmapPort => " range 1-2",
            kind if kind.is_bitmap() => " range 10.0.0.0/24",
            _ => "",
        };
        let statements = parse(&format!("create a {old}{range}\n"), []).unwrap();
        let Command::Create(header) = &statements[0].command else {
            panic!("{statements:?}")
        };
        assert_eq!(header.kind, *kind, "{old}");
    }
}

/// `ipset` takes the first command that begins with a word.
#[test]
fn beginnings_of_commands() {
    let text = "n a hash:ip\n--new b hash:ip\nc c hash:ip\na a 1.1.1.1\nd a 1.1.1.1\nf a\nren c d\nsw a b\nde a 1.1.1.1\n\
                des b\nw a d\ne d b\nx a\n";
    let statements = parse(text, []).unwrap();
    let names: Vec<String> = statements
        .iter()
        .map(|s| format!("{:?}", s.command))
        .map(|text| text.split('(').next().unwrap_or_default().to_owned())
        .collect();
    assert_eq!(
        names.join(" "),
        "Create Create Create Add Delete Flush Rename Swap Delete Destroy Swap Rename Destroy"
    );
    // `re` is restore, `s` is save.
    for (word, why) in [
        ("re", "is no command"),
        ("s", "has no place here"),
        ("-", "is no command"),
        ("--", "is no command"),
        ("addx", "is no command"),
        ("-AB", "is no command"),
    ] {
        let e = error(&format!("create a hash:ip\n{word} a b"));
        assert!(e.contains(why), "{word}: {e}");
    }
}

#[test]
fn older_options() {
    let same = |old: &str, new: &str| {
        assert_eq!(
            parse(old, []).unwrap()[0].command,
            parse(new, []).unwrap()[0].command,
            "{old}"
        );
    };
    same(
        "-N a ipmap --from 10.0.0.1 --to 10.0.0.9",
        "create a bitmap:ip range 10.0.0.1-10.0.0.9",
    );
    same(
        "-N a macipmap --network 10.0.0.0/24",
        "create a bitmap:ip,mac range 10.0.0.0/24",
    );
    same(
        "-N a portmap --from 1 --to 1024 timeout 5",
        "create a bitmap:port range 1-1024 timeout 5",
    );
    same(
        "-N a ipporthash --network 10.0.0.0/24 --probes 2 --resize 50",
        "create a hash:ip,port",
    );
    same("-N a iphash -6 --gc 5", "create a hash:ip family inet6");
    same("new a hash:net -4", "create a hash:net family inet");
    // ipset lets the `to` replace the end of the range.
    for half in [
        "from 10.0.0.1",
        "to 10.0.0.9",
        "range 10.0.0.0/24 to 10.0.0.9",
    ] {
        let why = error(&format!("create a bitmap:ip {half}"));
        assert!(why.contains("give both, or a range"), "{half}: {why}");
    }
    assert!(error("create a hash:net from 10.0.0.1").contains("has no option \"from\""));
    assert!(error("create a hash:mac -6").contains("missing"));
}

#[test]
fn a_quoted_word_is_no_option() {
    let text =
        "create a hash:ip comment\nadd a 10.0.0.1 comment \"-exist\"\nadd a 10.0.0.2 -exist\n";
    let modes: Vec<Existing> = parse(text, [])
        .unwrap()
        .iter()
        .map(|s| s.existing)
        .collect();
    assert_eq!(
        modes,
        [Existing::Refuse, Existing::Refuse, Existing::Accept]
    );
}

/// A line that no command could be is refused before all of it is split, and a message does not repeat a long word.
#[test]
fn long_lines_and_words_are_refused() {
    for (line, column, why) in [
        ("a ".repeat(1 << 20), 129, "more than 64 words"),
        ("x".repeat(1 << 20), 1, "more than 1024"),
        (
            format!("create a hash:ip comment {}", "x".repeat(1 << 20)),
            26,
            "more than 1024",
        ),
        (
            format!("add \"{}\" 10.0.0.1", "x".repeat(1 << 20)),
            5,
            "more than 1024",
        ),
    ] {
        let e = error(&line);
        assert!(
            e.starts_with(&format!("line 1, column {column}: ")) && e.contains(why),
            "{} bytes",
            e.len()
        );
        assert!(e.len() < 1000, "{} bytes", e.len());
    }
}

#[test]
fn errors_name_line_and_column() {
    let with = |line: &str| error(&format!("create a hash:ip\ncreate p hash:ip,port\n{line}"));
    assert_eq!(
        with("add a 10.0.0.1  comment x"),
        "line 3, column 17: set a was created without comment: create it so"
    );
    assert!(
        with("add a  10.0.0.300").starts_with("line 3, column 8: \"10.0.0.300\" is no address")
    );
    assert!(with("add ä 1.1.1.1").starts_with("line 3, column 5: there is no set \"ä\""));
    for zero in ["create \"ä\"\0b hash:ip", "add \"ä\"\0b 1.1.1.1"] {
        let column = zero.chars().position(|c| c == '\0').unwrap() + 1;
        let why = format!("line 3, column {column}: the line holds a zero byte");
        assert!(with(zero).starts_with(&why), "{}", with(zero));
    }
    let member = "m".repeat(32);
    let long = with(&format!("create l list:set\nadd l {member}"));
    assert!(
        long.contains("line 4, column 7: the name has 32 bytes"),
        "{long}"
    );
    assert!(with("add a 1.1.1.1 comment \"ä ö").starts_with("line 3, column 23: the quote"));
    assert!(with("add p 1.1.1.1").contains("has 1 parts; an entry of hash:ip,port has 2"));
    assert!(with("add a 0.0.0.0/8").contains("more than 65536 entries"));
    assert!(with("add p 10.0.0.0/24,tcp:0-65535").contains("more than 65536 entries"));
    assert!(with("add p 1.1.1.1,tcp:080").contains("no number begins with 0"));
    assert!(with("add p 1.1.1.1,tcp:+010").contains("no number begins with 0"));
    assert!(with("create t hash:ip timeout +010").contains("no number begins with 0"));
    assert!(with("add p 1.1.1.1,tcp:http").contains("names are not looked up"));
    assert!(with("list a").contains("has no place here"));
    assert!(with("create l list:set\nadd l a before p").contains("in the order of the lines"));
    assert!(error("swap a b").contains("there is no set \"a\""));
    for line in [
        "hash:ip family inet family inet6",
        "hash:ip timeout 5 timeout 6",
        "hash:ip family inet -6",
        "hash:ip -4 -6",
        "bitmap:ip range 10.0.0.0/24 from 10.0.0.1",
        "bitmap:ip from 10.0.0.1 range 10.0.0.0/24",
        "bitmap:ip from 10.0.0.0 network 10.0.0.0/24",
        "bitmap:port range 1-9 from 1 to 5",
    ] {
        let why = error(&format!("create x {line}"));
        assert!(why.contains("is given twice: remove one"), "{why}");
    }
    assert!(
        with("create t hash:ip timeout 5\nadd t 1.1.1.1 timeout 1 timeout 2").contains("twice")
    );
    // ipset ignores the protocol.
    let ports = "create b bitmap:port range tcp:80-90\nadd b udp:85-86\ncreate l list:set size 0\n";
    assert!(check(ports, Vec::new()).is_ok());
    assert!(error("create b bitmap:port range 80").contains("is no range"));
    // The kernel widens the range to whole networks.
    let wide = "create b bitmap:ip range 10.0.0.5-10.0.0.100 netmask 28\nadd b 10.0.0.2\nadd b 10.0.0.111\n";
    assert!(check(wide, Vec::new()).is_ok());
    let bitmap = |line: &str| {
        with(&format!(
            "create b bitmap:ip range 10.0.0.0/24\nadd b {line}"
        ))
    };
    for line in [
        "10.0.0.250-10.0.1.0",
        "10.0.0.0/23",
        "9.0.0.1",
        "10.0.1.0-10.0.0.250",
    ] {
        assert!(
            bitmap(line).contains("outside of the set's range"),
            "{line}"
        );
    }
}

/// A few kilobytes may stand for more entries than any kernel holds.
#[test]
fn ranges_of_a_text_have_a_limit() {
    let with = |lines| {
        let text = format!(
            "create s bitmap:port range 0-65535\n{}",
            "add s 0-65535\n".repeat(lines)
        );
        check(&text, Vec::new()).map(|c| c.statements())
    };
    assert_eq!(with(1), Ok(2));
    let e = with(300).unwrap_err();
    assert_eq!((e.line, e.column), (258, 1), "{e}");
    assert!(e.reason.contains("16777216 entries"), "{e}");
}

#[test]
fn the_sets_follow_the_lines() {
    let text = "create a hash:ip\ncreate b hash:ip family inet6\nswap a b\nadd a ::1\nrename b c\nadd c 1.1.1.1\n\
                destroy c\nadd c 1.1.1.1\n";
    assert!(error(text).starts_with("line 8, column 5: there is no set \"c\""));
    let known = Header::new("k", SetType::BitmapPort, crate::ipset::SetFamily::Unspec);
    let statements = parse("add k 1-3\n", [known]).unwrap();
    let keys = vec![Key::Port(1), Key::Port(2), Key::Port(3)];
    let entries = keys.into_iter().map(Entry::new).collect();
    assert_eq!(statements[0].command, Command::Add("k".into(), entries));
}

#[test]
fn errors_have_the_present_name_of_a_set() {
    for moved in [
        "create a hash:ip\nrename a b",
        "create b hash:ip timeout 5\ncreate a hash:ip\nswap a b",
    ] {
        let why = error(&format!("{moved}\nadd b 1.1.1.1 timeout 5"));
        assert!(why.contains("set b was created without timeout"), "{why}");
    }
}

#[test]
fn a_set_swapped_with_itself_stays() {
    let statements = parse("create a hash:ip\nswap a a\nadd a 1.1.1.1\n", []).unwrap();
    assert_eq!(statements[1].command, Command::Swap("a".into(), "a".into()));
}

#[test]
fn hardware_addresses() {
    let statements = parse("create m hash:mac\nadd m 01:23:45:67:89:aB\n", []).unwrap();
    let Command::Add(_, entries) = &statements[1].command else {
        panic!("{statements:?}")
    };
    assert_eq!(
        entries[0].key,
        Key::Parts(vec![KeyPart::Mac(Some([1, 0x23, 0x45, 0x67, 0x89, 0xab]))])
    );
    assert_eq!(entries[0].to_string(), "01:23:45:67:89:AB");
    let short = parse("create m hash:mac\nadd m 1:2:3:4:5:a\n", []).unwrap();
    let Command::Add(_, entries) = &short[1].command else {
        panic!("{short:?}")
    };
    assert_eq!(entries[0].to_string(), "01:02:03:04:05:0A");
    for bad in [
        "1:2:3:4:5:678",
        "01:23:45:67:89",
        "01:23:45:67:89:ab:cd",
        "+1:23:45:67:89:ab",
    ] {
        assert!(
            error(&format!("create m hash:mac\nadd m {bad}")).contains("hardware address"),
            "{bad}"
        );
    }
}
