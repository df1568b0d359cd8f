//! Results and errors of the parser. Other tests compare it with the real tool.

use super::*;
use crate::xtables::XtFamily;

fn one(line: &str) -> String {
    let script = Script::parse(XtFamily::Ip, &format!("*filter\n{line}\nCOMMIT\n"));
    let script = script.unwrap_or_else(|e| panic!("{line}: {e}"));
    let commands: Vec<String> = script.tables[0]
        .commands
        .iter()
        .map(|(_, c)| c.to_string())
        .collect();
    commands.join("; ")
}

#[test]
fn each_command_is_read() {
    for (line, read) in [
        (
            "[1:2] -A INPUT -p tcp --dport 80 -j ACCEPT",
            "-A INPUT -p tcp -m tcp --dport 80 -j ACCEPT",
        ),
        (
            "-A INPUT -s 10.1.2.3/8,1.1.1.1 -j DROP",
            "-A INPUT -s 10.0.0.0/8 -j DROP; -A INPUT -s 1.1.1.1/32 -j DROP",
        ),
        ("-I INPUT ! -i eth+ -j C", "-I INPUT 1 ! -i eth+ -j C"),
        ("--insert INPUT 3 -g C", "-I INPUT 3 -g C"),
        (
            "-A INPUT ! -d 10.1.2.3/255.0.255.0",
            "-A INPUT ! -d 10.0.2.0/255.0.255.0",
        ),
        ("-D INPUT 2", "-D INPUT 2"),
        ("-D INPUT -j C", "-D INPUT -j C"),
        ("-R INPUT 2 -j C", "-R INPUT 2 -j C"),
        ("-F", "-F"),
        ("-F C", "-F C"),
        ("-X C", "-X C"),
        ("-N C", "-N C"),
        ("-P INPUT DROP", "-P INPUT DROP"),
        ("-E C D", "-E C D"),
        ("--rename-chain C D", "-E C D"),
        ("--zero", "-Z"),
        ("-Z INPUT", "-Z INPUT"),
        ("-Z INPUT 2", "-Z INPUT 2"),
        // Such a chain cannot be created here, but may exist.
        ("-F ACCEPT", "-F ACCEPT"),
        ("-X LOG", "-X LOG"),
        (":INPUT DROP [3:4]", "-P INPUT DROP"),
        (":C - [0:0]", "-N C"),
        (
            "-A C -m comment --comment \"a \\\"b\\\" 'c'\"",
            "-A C -m comment --comment \"a \\\"b\\\" \\'c\\'\"",
        ),
        (
            "-A C -p tcp --dport=1: --syn -m mark --mark 0x1/3",
            "-A C -p tcp -m tcp --dport 1:65535 --tcp-flags FIN,SYN,RST,ACK SYN -m mark --mark 0x1/0x3",
        ),
        (
            "-A C -m state --state new,INVALID",
            "-A C -m state --state INVALID,NEW",
        ),
        // The protocol implies the match.
        ("-A C -p esp --espspi 5", "-A C -p esp -m esp --espspi 5"),
        ("-A C -p sctp --dport 5", "-A C -p sctp -m sctp --dport 5"),
        ("-A C -s 0/0 -d 10/8 -j C", "-A C -d 10.0.0.0/8 -j C"),
        ("-A C -p ip -i +", "-A C"),
        (
            "-A C -m conntrack --ctorigsrc 10.0.0/24 --ctorigdst 0",
            "-A C -m conntrack --ctorigsrc 10.0.0.0/24 --ctorigdst 0.0.0.0",
        ),
        // iptables lists `80/100`, and refuses it.
        (
            "-A C -p tcp -j DNAT --to-destination 10.0.0.1:80-80/100",
            "-A C -p tcp -j DNAT --to-destination 10.0.0.1:80-80/100",
        ),
        ("-A C ! -i + ! -o +", "-A C ! -i + ! -o +"),
        (
            "-A C -p tcp --sport : ! --dport :",
            "-A C -p tcp -m tcp ! --dport 0:65535",
        ),
        (
            "-A C -m comment --comment=\"x y\"",
            "-A C -m comment --comment \"x y\"",
        ),
        (
            "--app C --proto tcp --dp 80 --jum D",
            "-A C -p tcp -m tcp --dport 80 -j D",
        ),
        (
            "-A C -p tcp -j REDIRECT --to-port 15001",
            "-A C -p tcp -j REDIRECT --to-ports 15001",
        ),
        (
            "-A C -m conntrack --ctstate=NEW --fragm",
            "-A C -f -m conntrack --ctstate NEW",
        ),
        // A closing quote ends a word, and a quoted option is one.
        (
            "-A C -m comment --comment \"a\"-j D",
            "-A C -m comment --comment a -j D",
        ),
        ("-A C \"!\" -p tcp \"-j\" D", "-A C ! -p tcp -j D"),
        // `--so` is `--source` of iptables itself, not `--source-port`: the match is not loaded yet.
        ("-A C -p tcp --so 1.1.1.1", "-A C -s 1.1.1.1/32 -p tcp"),
        (
            "-A C -d 10.0.0.0/255.255.0.0 -m limit --limit 7/min",
            "-A C -d 10.0.0.0/16 -m limit --limit 7/min",
        ),
    ] {
        assert_eq!(one(line), read, "{line}");
    }
}

/// A text may be for both families. Lines for the other family are skipped, and the words after the option that names it are not parsed.
#[test]
fn lines_of_the_other_family_are_passed_over() {
    let commands = |family, line: &str| {
        let script = Script::parse(family, &format!("*filter\n{line}\nCOMMIT\n"));
        let script = script.unwrap_or_else(|e| panic!("{family} {line}: {e}"));
        let commands = script.tables[0].commands.iter();
        commands.map(|(_, c)| c.to_string()).collect::<String>()
    };
    for (line, v4, v6) in [
        ("-4 -A INPUT -s 10.0.0.1", "-A INPUT -s 10.0.0.1/32", ""),
        ("-6 -A INPUT -s fd00::1", "", "-A INPUT -s fd00::1/128"),
        ("-A INPUT -s fd00::1 -6", "", "-A INPUT -s fd00::1/128"),
        ("--ipv6 -A INPUT -p tcp", "", "-A INPUT -p tcp"),
        ("-A INPUT --ipv4 -f", "-A INPUT -f", ""),
        ("-6 -N C", "", "-N C"),
        ("-4 -F", "-F", ""),
        ("-4 -D INPUT 2", "-D INPUT 2", ""),
        ("-R INPUT 2 -6 -j C", "", "-R INPUT 2 -j C"),
        ("-6 -A INPUT -m nonsense", "", ""),
        ("-A C -m comment --comment -6 -v", "", ""),
    ] {
        if line.contains("nonsense") {
            assert_eq!(commands(XtFamily::Ip, line), "", "{line}");
        } else if line.contains("comment") {
            let read = "-A C -m comment --comment -6";
            assert_eq!(commands(XtFamily::Ip, line), read, "{line}");
        } else {
            assert_eq!(commands(XtFamily::Ip, line), v4, "{line}");
            assert_eq!(commands(XtFamily::Ip6, line), v6, "{line}");
        }
    }
}

#[test]
fn an_error_names_its_place() {
    for (line, column, part) in [
        (
            "-A INPUT -p tcp --dport http",
            17,
            "services are not looked up",
        ),
        ("-A INPUT --dport 80", 10, "name its match"),
        ("-A INPUT -ptcp", 10, "as two words"),
        ("-A INPUT -p tcp -p udp", 17, "twice"),
        (
            "-A INPUT -p tcp ! -o lo",
            19,
            "packets of INPUT do not have",
        ),
        ("-I OUTPUT 1 -i lo", 13, "packets of OUTPUT do not have"),
        ("-A INPUT -m nonsense", 10, "supported are"),
        ("-A INPUT -m tcp", 10, "-p tcp"),
        ("-A INPUT -s fe80::1", 10, "address"),
        ("-A INPUT -j", 12, "ends here"),
        ("-A INPUT -m comment --comment \"x", 31, "not closed"),
        ("-A INPUT -m owner --uid-owner root", 19, "not looked up"),
        ("-E C", 5, "new name"),
        ("-D INPUT 2 -j C", 16, "leave one out"),
        ("-4 -F C D", 9, "nothing more"),
        ("-A", 3, "chain"),
        ("tcp -A", 7, "chain"),
        ("-A INPUT !", 10, "before an option"),
        ("-A INPUT --fragments=1", 10, "takes no argument"),
        (":INPUT MAYBE", 8, "ACCEPT or DROP"),
        (":C - \"x", 6, "not closed"),
        (":ACCEPT - [0:0]", 2, "name of a target"),
        (":QUEUE -", 2, "name of a target"),
        (":LOG -", 2, "name of a target"),
        ("-N RETURN", 4, "name of a target"),
        ("-N REDIRECT", 4, "name of a target"),
        ("-Z INPUT 0", 10, "count from 1"),
        ("-Z INPUT 1 x", 12, "nothing more"),
        ("*nat", 1, "COMMIT"),
        ("-Q INPUT", 1, "no command"),
        ("--in INPUT", 1, "no command"),
        ("--delet INPUT", 1, "no command"),
        (
            "-A INPUT -p tcp -m tcp --so 1",
            24,
            "--so may be --source or --source-port",
        ),
        (
            "-A INPUT -j MASQUERADE --random-f --to 1 --ran",
            42,
            "--random or --random-fully",
        ),
        (
            "-A INPUT -j FOO --bar 1",
            17,
            "FOO is a chain, or an unknown target",
        ),
        (
            "-A INPUT -m conntrack --ctorigsrc 10.0.0.0/255.0.255.0",
            23,
            "prefix",
        ),
        ("-A INPUT -d 10.0.0.0/33", 10, "longer"),
        ("-A AVERYLONGNAMEOFACHAINTHATISTOOLONG", 4, "28 bytes"),
    ] {
        let e =
            Script::parse(XtFamily::Ip, &format!("*filter\n# c\n{line}\nCOMMIT\n")).unwrap_err();
        assert_eq!((e.line, e.column), (3, column), "{line}: {e}");
        assert!(e.reason.contains(part), "{line}: {e}");
    }
    let e = Script::parse(XtFamily::Ip, "*filter\n").unwrap_err();
    assert_eq!((e.line, e.column), (2, 1));
}

#[test]
fn a_line_has_at_most_so_many_words() {
    let with = |n: usize| {
        let line = format!("-A C {}", "-v ".repeat(n - 2));
        Script::parse(XtFamily::Ip, &format!("*filter\n{line}\nCOMMIT\n"))
    };
    with(65_535).unwrap();
    assert!(with(65_536).is_err());
}

/// A message shows only the beginning of a long line. The parser stops before a rule exceeds what any kernel accepts.
#[test]
fn messages_are_short() {
    let long = "x".repeat(1 << 20);
    for line in [
        format!("-A INPUT -m comment --comment {long}"),
        format!("-A INPUT --{long} 1"),
        format!("-A INPUT {long}"),
        format!("-A INPUT -j {long} --{long}"),
        format!("-A INPUT -m {long}"),
        format!("-A {long}"),
        format!("-A INPUT {}", "-m mark --mark 1 ".repeat(100_000)),
    ] {
        let text = format!("*filter\n{line}\nCOMMIT\n");
        let e = Script::parse(XtFamily::Ip, &text).unwrap_err();
        let (end, e) = (line.get(..40).unwrap_or_default(), e.to_string());
        assert!(e.starts_with("line 2, column "), "{end}: {} bytes", e.len());
        assert!(e.len() < 4_000, "{end}: {} bytes", e.len());
    }
}

/// An error about a whole rule contains its line.
#[test]
fn a_rule_that_cannot_be_written_has_its_line() {
    let bits = format!("-m u32 --u32 \"{}\"", ["0=0"; 9].join("&&"));
    let text = format!(
        "*filter\n-A INPUT {}\nCOMMIT\n",
        format!("{bits} ").repeat(60)
    );
    let script = Script::parse(XtFamily::Ip, &text).unwrap();
    let plan = crate::xtables::plan_restore(&script, &crate::xtables::Snapshot::default(), false);
    let e = plan.unwrap_err().to_string();
    assert!(
        e.contains("line 2, column 4: ") && e.contains("65535"),
        "{e}"
    );
    assert!(e.len() < 1_000, "{} bytes", e.len());
}

/// An error of executing a command contains its line and column.
#[test]
fn a_command_that_cannot_be_executed_has_its_column() {
    for (line, column) in [
        ("-I INPUT 3 -j DROP", 10),
        ("[0:0] -D INPUT 3", 16),
        ("-R  INPUT 3 -j DROP", 11),
        ("-D INPUT -j DROP", 4),
        ("-F NOWHERE", 4),
        ("-N C", 4),
        ("-E INPUT D", 4),
        ("-E D C", 4),
        (":C ACCEPT", 1),
    ] {
        let text = format!("*filter\n:C -\n-A INPUT -j C\n{line}\nCOMMIT\n");
        let script = Script::parse(XtFamily::Ip, &text).unwrap();
        let plan = crate::xtables::plan_restore(&script, &Default::default(), false);
        let e = plan.unwrap_err().to_string();
        let place = format!("line 4, column {column}: ");
        assert!(e.contains(&place), "{line}: {e}");
    }
}

/// Lists of addresses make more rules than any table has, by their product or line by line. Many words make no rule, and many short lines
/// no table.
#[test]
fn a_short_text_does_not_take_much_memory() {
    let list = |n| vec!["0"; n].join(",");
    for (lines, why) in [
        (
            format!("-A INPUT -s {} -d {}\n", list(400), list(300)),
            "makes 120000 rules",
        ),
        (
            format!("-A INPUT -s {}\n", list(200_000)),
            "makes 200000 rules",
        ),
        (
            format!("-A INPUT -s {}\n", list(300)).repeat(800),
            "more than 220752 commands",
        ),
        ("-A A\n".repeat(300_000), "more than 220752 commands"),
        (":A -\n".repeat(300_000), "more than 220752 commands"),
        (
            format!("-A INPUT {}\n", "! ".repeat(100_000)),
            "more than 65535 words",
        ),
        (
            format!("-A INPUT {}\n", "-m tcp ".repeat(100_000)),
            "more than 65535 words",
        ),
        (
            format!(":A - {}\n", "x ".repeat(100_000)),
            "more than 65535 words",
        ),
    ] {
        let e = Script::parse(XtFamily::Ip, &format!("*filter\n{lines}COMMIT\n")).unwrap_err();
        assert!(e.reason.contains(why), "{e}");
        assert!(e.to_string().len() < 1000, "{} bytes", e.reason.len());
    }
}

/// Bytes that are not UTF-8 are characters of three bytes in the text, and count as one.
#[test]
fn the_length_of_a_word_is_that_of_its_bytes() {
    let bytes = |n| weir_netlink::attr::text_of(&vec![0xe9; n]);
    for (line, most) in [
        ("-A C -m comment --comment ?", 255),
        ("-A C -m set --match-set ? src", 31),
        ("-A C -i ?", 15),
        ("-A C -p tcp -m osf --genre ?", 31),
        ("-A C -m physdev --physdev-in ?", 15),
        ("-A C -m string --algo bm --string ?", 128),
    ] {
        let with = |n| {
            let line = line.replace('?', &bytes(n));
            let script = Script::parse(XtFamily::Ip, &format!("*filter\n:C -\n{line}\nCOMMIT\n"));
            script.map(|s| crate::xtables::plan_restore(&s, &Default::default(), false).unwrap())
        };
        with(most).unwrap_or_else(|e| panic!("{line}: {e}"));
        assert!(with(most + 1).is_err(), "{line}");
    }
}

#[test]
fn a_zero_byte_has_its_place() {
    for line in ["-A INPUT -m comment --comment \"ä\0\"", "\0-F", ":ä\0 -"] {
        let e = Script::parse(XtFamily::Ip, &format!("*filter\n{line}\nCOMMIT\n")).unwrap_err();
        let column = line.chars().position(|c| c == '\0').unwrap() + 1;
        assert_eq!((e.line, e.column), (2, column), "{e}");
        assert!(e.reason.contains("zero byte"), "{e}");
    }
}

/// The target of a jump is checked at the end of the table.
#[test]
fn an_unknown_target_and_a_loop_have_their_place() {
    for (text, line) in [
        ("-A INPUT -j DROP\n-A INPUT -j NOPE", "line 3, column 10: "),
        ("-N A\n-A A -g OUTPUT", "line 3, column 6: "),
        (
            "-N A\n-A INPUT -j A\n-I INPUT 1 -j B",
            "line 4, column 12: ",
        ),
        (
            ":A - [0:0]\n-A A -p tcp -j A\n-A INPUT -j A",
            "line 3, column 13: ",
        ),
        (
            ":A -\n:B -\n-A B -j A\n-A INPUT -j A\n-A A -g B\n-A INPUT -j B",
            "line 6, column 6: ",
        ),
    ] {
        let script = Script::parse(XtFamily::Ip, &format!("*filter\n{text}\nCOMMIT\n")).unwrap();
        let none = crate::xtables::Snapshot::default();
        let e = crate::xtables::plan_restore(&script, &none, false).unwrap_err();
        assert!(e.to_string().contains(line), "{e}");
        assert_eq!(e.in_force, weir_netlink::InForce::No);
    }
}
