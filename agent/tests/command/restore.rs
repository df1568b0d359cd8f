//! `weir restore`, and the sets in `weir show`, with the real tools as oracles.

use crate::support::{Run, TempFile, inside, path, weir, write_to};
use std::fs::File;
use std::process::{Child, Command, Stdio};
use weir_netlink::Netns;

const V4: &str = "\
*filter
:INPUT DROP [0:0]
:FORWARD ACCEPT [0:0]
:OUTPUT ACCEPT [0:0]
:ALLOW - [0:0]
-A INPUT -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
-A INPUT -i lo -j ALLOW
-A INPUT -p tcp -m multiport --dports 80,443,8000:8080 -m comment --comment \"web, and more\" -j ALLOW
-A ALLOW -s 10.0.0.0/8 -j ACCEPT
-A ALLOW -j RETURN
COMMIT
*nat
:PREROUTING ACCEPT [0:0]
:INPUT ACCEPT [0:0]
:OUTPUT ACCEPT [0:0]
:POSTROUTING ACCEPT [0:0]
-A OUTPUT -p tcp -m owner ! --uid-owner 1337 -j REDIRECT --to-ports 15001
COMMIT
";

const V6: &str = "\
*mangle
:PREROUTING ACCEPT [0:0]
:INPUT ACCEPT [0:0]
:FORWARD ACCEPT [0:0]
:OUTPUT ACCEPT [0:0]
:POSTROUTING ACCEPT [0:0]
:DIVERT - [0:0]
-A PREROUTING -d fd00::/8 -p tcp -m socket -j DIVERT
-A DIVERT -j MARK --set-xmark 0x539/0xffffffff
COMMIT
";

const SETS: &str = "\
create pods hash:ip family inet hashsize 1024 maxelem 65536 comment
create six hash:net family inet6
create web bitmap:port range 0-1024
create all list:set size 8
add pods 10.0.0.1 comment \"first pod\"
add pods 10.0.0.2
add six fd00::/64
add six fd01::/16 nomatch
add web 80
add all pods
";

/// Starts a program in a namespace, with a text on its stdin.
fn begin(netns: &Netns, args: &[&str], text: &str) -> Child {
    let mut child = Command::new("nsenter")
        .arg(format!("--net={}", netns.path().display()))
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    write_to(&mut child, text.as_bytes());
    child
}

fn end(child: Child) -> Run {
    let out = child.wait_with_output().unwrap();
    Run {
        code: out.status.code().unwrap(),
        stdout: String::from_utf8(out.stdout).unwrap(),
        stderr: String::from_utf8(out.stderr).unwrap(),
    }
}

pub(crate) fn feed(netns: &Netns, args: &[&str], text: &str) -> Run {
    end(begin(netns, args, text))
}

/// Whether a process has the file open.
fn has_open(child: &Child, path: &str) -> bool {
    let Ok(list) = std::fs::read_dir(format!("/proc/{}/fd", child.id())) else {
        return false;
    };
    let mut links = list.flatten().filter_map(|e| e.path().read_link().ok());
    links.any(|l| l.as_os_str() == path)
}

fn load(netns: &Netns, program: &str, text: &str) {
    load_by(netns, &[program], text);
}

/// Adds rules to the existing ones.
pub(crate) fn load_noflush(netns: &Netns, program: &str, text: &str) {
    load_by(netns, &[program, "--noflush", "-w", "60"], text);
}

fn load_by(netns: &Netns, command: &[&str], text: &str) {
    let run = feed(netns, command, text);
    assert_eq!(run.code, 0, "{command:?}: {}\n{text}", run.stderr);
}

/// The output without the lines that contain the date, and without counters.
///
/// The tools list the most recently used table first; here the tables are sorted.
pub(crate) fn rules(netns: &Netns, program: &str) -> String {
    let text = inside(netns, program, &[]);
    let lines = text.lines().filter(|l| !l.starts_with('#'));
    let text: String = lines
        .map(|l| l.split(" [").next().unwrap().to_owned() + "\n")
        .collect();
    let mut tables: Vec<&str> = text.split_inclusive("COMMIT\n").collect();
    tables.sort_unstable();
    tables.concat()
}

/// The kernel lists the entries of a hash in no particular order.
fn sorted(text: &str) -> Vec<&str> {
    let mut lines: Vec<&str> = text.lines().collect();
    lines.sort_unstable();
    lines
}

#[test]
fn rules_of_one_namespace_are_restored_into_another() {
    let (from, to) = (legacy_pod_or_skip!(), legacy_pod_or_skip!());
    let ns = path(&to);
    for (family, text) in [("iptables", V4), ("ip6tables", V6)] {
        load(&from, &format!("{family}-legacy-restore"), text);
        let save = format!("{family}-legacy-save");
        let file = TempFile::new(&inside(&from, &save, &["-c"]));
        let restored = weir(&["restore", "--netns", &ns, file.path()]);
        assert_eq!(restored.code, 0, "{}", restored.stderr);
        assert!(
            restored.stdout.contains(&format!("of {family},")),
            "{}",
            restored.stdout
        );
        assert_eq!(rules(&to, &save), rules(&from, &save));
    }
    assert!(rules(&to, "iptables-legacy-save").contains("web, and more"));
}

#[test]
fn noflush_keeps_what_is_there_and_without_it_tables_begin_empty() {
    let (pod, oracle) = (legacy_pod_or_skip!(), legacy_pod_or_skip!());
    let ns = path(&pod);
    let more = TempFile::new("*filter\n:MORE - [0:0]\n-I INPUT 1 -j MORE\nCOMMIT\n");
    for noflush in [&["--noflush"][..], &[]] {
        load(&pod, "iptables-legacy-restore", V4);
        load(&oracle, "iptables-legacy-restore", V4);
        let ours = [&["restore", "--netns", &ns, more.path()][..], noflush].concat();
        assert_eq!(weir(&ours).code, 0);
        let real = [noflush, &[more.path()]].concat();
        inside(&oracle, "iptables-legacy-restore", &real);
        let (ours, real) = (
            rules(&pod, "iptables-legacy-save"),
            rules(&oracle, "iptables-legacy-save"),
        );
        assert_eq!(ours, real);
        assert_eq!(ours.contains("ALLOW"), !noflush.is_empty());
    }
}

#[test]
fn sets_of_one_namespace_are_restored_into_another_and_shown() {
    let (from, to) = (legacy_pod_or_skip!(), legacy_pod_or_skip!());
    let ns = path(&to);
    load_sets(&from, SETS);
    let saved = inside(&from, "ipset", &["save"]);
    let file = TempFile::new(&saved);
    let args = ["restore", "--netns", &ns, file.path()];
    let tested = weir(&[&args[..], &["--test"]].concat());
    // Whether there is room for the entries, and none of them exists, is not known.
    let (untold, tested) = tested.stdout.split_once('\n').unwrap();
    assert!(
        untold.starts_with("unknown: whether entries and sets already exist"),
        "{untold}"
    );
    assert_eq!(
        tested,
        "10 commands of ipset: can be restored; nothing was changed\n"
    );
    assert_eq!(inside(&to, "ipset", &["save"]), "");
    let restored = weir(&args);
    assert_eq!(restored.code, 0, "{}", restored.stderr);
    assert_eq!(sorted(&inside(&to, "ipset", &["save"])), sorted(&saved));

    let shown = weir(&["show", "--netns", &ns, "--engine", "ipset"]);
    assert_eq!(shown.stdout, inside(&to, "ipset", &["save"]));
    let json = weir(&["show", "--netns", &ns, "--json"]);
    let json: serde_json::Value = serde_json::from_str(&json.stdout).unwrap();
    assert_eq!(json["ipset"][0]["name"], "pods");
    assert_eq!(json["ipset"][0]["type"], "hash:ip");
    assert_eq!(json["ipset"][0]["entries"].as_array().unwrap().len(), 2);

    // The kernel has no transactions for sets, so the message reports how many lines were executed.
    let late = TempFile::new("create late hash:ip\ncreate pods hash:ip\n");
    let refused = weir(&["restore", "--netns", &ns, late.path()]);
    assert_eq!(refused.code, 1);
    for words in ["line 2", "set pods", "in force"] {
        assert!(refused.stderr.contains(words), "{}", refused.stderr);
    }
    assert!(inside(&to, "ipset", &["list", "-name"]).contains("late"));
    let first = TempFile::new("create pods hash:ip\ncreate later hash:ip\n");
    let refused = weir(&["restore", "--netns", &ns, first.path()]);
    assert_eq!(refused.code, 1);
    assert!(
        refused.stderr.trim_end().ends_with("; nothing was changed"),
        "{}",
        refused.stderr
    );
    assert!(!inside(&to, "ipset", &["list", "-name"]).contains("later"));

    // A rule may refer to the restored sets, and `weir show` lists all engines one after the other.
    let rule = TempFile::new("*filter\n-A INPUT -m set --match-set pods src -j DROP\nCOMMIT\n");
    let args = [
        "restore",
        "--netns",
        &ns,
        "--format",
        "iptables",
        "--json",
        rule.path(),
    ];
    let restored = weir(&args);
    assert_eq!(restored.code, 0, "{}", restored.stderr);
    let json: serde_json::Value = serde_json::from_str(&restored.stdout).unwrap();
    assert_eq!(
        (&json["format"], &json["commands"]),
        (&"iptables".into(), &1.into())
    );
    inside(&to, "nft", &["add", "table", "ip", "other"]);
    let all = weir(&["show", "--netns", &ns]).stdout;
    let at = |words: &str| all.find(words).unwrap_or_else(|| panic!("{words}: {all}"));
    assert!(at("table ip other") < at("-A INPUT -m set --match-set pods src -j DROP"));
    assert!(at("COMMIT") < at("create pods"));
}

fn load_sets(netns: &Netns, text: &str) {
    let run = feed(netns, &["ipset", "restore"], text);
    assert_eq!(run.code, 0, "{}", run.stderr);
}

#[test]
fn nothing_is_shown_where_nothing_is() {
    let pod = legacy_pod_or_skip!();
    let ns = path(&pod);
    for engine in ["all", "ipset"] {
        let shown = weir(&["show", "--netns", &ns, "--engine", engine]);
        assert_eq!(
            (shown.code, shown.stdout.as_str()),
            (0, ""),
            "{}",
            shown.stderr
        );
    }
    inside(
        &pod,
        "nft",
        &["add table ip a; add chain ip a b; add rule ip a b tcp dport 80 accept"],
    );
    let shown = weir(&["show", "--netns", &ns]);
    assert_eq!(shown.stdout, inside(&pod, "nft", &["list", "ruleset"]));
}

#[test]
fn a_text_that_cannot_be_used_changes_nothing() {
    let pod = legacy_pod_or_skip!();
    let ns = path(&pod);
    load(&pod, "iptables-legacy-restore", V4);
    load_sets(&pod, SETS);
    let before = (
        rules(&pod, "iptables-legacy-save"),
        inside(&pod, "ipset", &["save"]),
    );
    // The empty tables of the second part would replace those of the first one.
    let both = TempFile::new("# iptables-save\n*nat\nCOMMIT\n# ip6tables-save\n*nat\nCOMMIT\n");
    for format in [
        &[][..],
        &["--format", "iptables"],
        &["--format", "ip6tables"],
    ] {
        let run = weir(&[&["restore", "--netns", &ns, both.path()][..], format].concat());
        assert_eq!(run.code, 2, "{}", run.stderr);
        assert!(
            run.stderr.contains("line 4 one of ip6tables"),
            "{}",
            run.stderr
        );
        assert_eq!(rules(&pod, "iptables-legacy-save"), before.0);
    }
    for (text, code, words) in [
        // Only the last line is invalid.
        (
            V4.replace("15001", "port"),
            2,
            &["line 17, column 58", "nothing was changed"][..],
        ),
        (format!("{V4}*raw\n-A OUTPUT -j ACCEPT\n"), 2, &["COMMIT"]),
        (
            format!("{V4}*raw\n-A NOWHERE -j ACCEPT\nCOMMIT\n"),
            1,
            &["line 20", "NOWHERE", "; nothing was changed"],
        ),
        (
            "create more hash:ip\nadd more 10.0.0.300\n".to_owned(),
            2,
            &["line 2, column 10", "10.0.0.300"],
        ),
        (
            "flush pods\nadd nowhere 10.0.0.3\n".to_owned(),
            2,
            &["line 2, column 5", "nowhere"],
        ),
        (format!("{SETS}*nat\nCOMMIT\n"), 2, &["--format"]),
        ("hello\n".to_owned(), 2, &["--format"]),
        (
            format!("{V4}*nosuch\n-A OUTPUT -j ACCEPT\nCOMMIT\n"),
            2,
            &[
                "line 19, column 2",
                "`nosuch` is no table",
                "filter, nat, mangle",
            ],
        ),
    ] {
        let file = TempFile::new(&text);
        for test in [&[][..], &["--test"]] {
            let run = weir(&[&["restore", "--netns", &ns, file.path()][..], test].concat());
            assert_eq!(
                (run.code, run.stdout.as_str()),
                (code, ""),
                "{text}{}",
                run.stderr
            );
            for word in [&[file.path()][..], words].concat() {
                assert!(
                    run.stderr.contains(word),
                    "{word:?} is not in: {}",
                    run.stderr
                );
            }
            let after = (
                rules(&pod, "iptables-legacy-save"),
                inside(&pod, "ipset", &["save"]),
            );
            assert_eq!(after, before, "{text}");
        }
    }
}

/// The kernel refuses the second table: the first one is put back, and the error says so.
#[test]
fn a_refusal_of_the_kernel_changes_nothing() {
    let pod = legacy_pod_or_skip!();
    load(&pod, "iptables-legacy-restore", V4);
    let before = rules(&pod, "iptables-legacy-save");
    let file = TempFile::new(
        "*nat\n-A OUTPUT -j ACCEPT\nCOMMIT\n*filter\n-A INPUT -m policy --dir out --pol none\nCOMMIT\n",
    );
    let run = weir(&["restore", "--netns", &path(&pod), file.path()]);
    assert_eq!(run.code, 1, "{}", run.stderr);
    assert!(
        run.stderr.contains("iptables table filter"),
        "{}",
        run.stderr
    );
    assert!(
        run.stderr.trim_end().ends_with("; nothing was changed"),
        "{}",
        run.stderr
    );
    assert_eq!(rules(&pod, "iptables-legacy-save"), before);
}

#[test]
fn a_test_makes_no_table() {
    let pod = legacy_pod_or_skip!();
    let file = TempFile::new(V4);
    let run = weir(&["restore", "--netns", &path(&pod), "--test", file.path()]);
    assert_eq!(run.code, 0, "{}", run.stderr);
    assert!(
        run.stdout
            .starts_with("2 tables of iptables, 14 commands: "),
        "{}",
        run.stdout
    );
    let names = pod.run(|| std::fs::read("/proc/thread-self/net/ip_tables_names").unwrap());
    assert_eq!(names.unwrap(), b"");
}

#[test]
fn a_test_names_every_line_that_cannot_be() {
    let pod = legacy_pod_or_skip!();
    let file = TempFile::new(
        "*nat\n-A OUTPUT -m set --match-set nobodys dst -j ACCEPT\n-A OUTPUT -p tcp -j ACCEPT\n\
         -A OUTPUT -m set --match-set neither src -j ACCEPT\nCOMMIT\n",
    );
    let run = weir(&["restore", "--netns", &path(&pod), "--test", file.path()]);
    assert_eq!((run.code, run.stdout.as_str()), (1, ""));
    for words in [
        "line 2",
        "nobodys",
        "line 4",
        "neither",
        "nothing was changed",
    ] {
        assert!(run.stderr.contains(words), "{words}: {}", run.stderr);
    }
    assert!(!run.stderr.contains("line 3"), "{}", run.stderr);
    let names = pod.run(|| std::fs::read("/proc/thread-self/net/ip_tables_names").unwrap());
    assert_eq!(names.unwrap(), b"");
}

#[test]
fn the_hosts_namespace_is_asked_for_by_name_and_locked() {
    // For a program that runs in this namespace, it is the host's.
    let host = legacy_pod_or_skip!();
    let lock = TempFile::new("");
    let set = format!("XTABLES_LOCKFILE={}", lock.path());
    let program = env!("CARGO_BIN_EXE_weir");
    let on = [
        "env",
        &set,
        program,
        "restore",
        "--netns",
        "/proc/self/ns/net",
    ];
    let refused = feed(&host, &[&on[..], &["-"]].concat(), V4);
    assert_eq!((refused.code, refused.stdout.as_str()), (1, ""));
    assert!(refused.stderr.contains("--host"), "{}", refused.stderr);
    assert!(!rules(&host, "iptables-legacy-save").contains("ALLOW"));

    let held = File::open(lock.path()).unwrap();
    held.lock().unwrap();
    let mut waiting = begin(&host, &[&on[..], &["--host", "-"]].concat(), V4);
    while !has_open(&waiting, lock.path()) {
        assert_eq!(waiting.try_wait().unwrap(), None, "it did not wait");
    }
    assert!(!rules(&host, "iptables-legacy-save").contains("ALLOW"));
    held.unlock().unwrap();
    let done = end(waiting);
    assert_eq!(done.code, 0, "{}", done.stderr);
    let lines: Vec<&str> = done.stdout.lines().collect();
    let words: Vec<&str> = lines[0].split(' ').collect();
    assert!(
        words[0] == "waited" && words[1].parse::<f64>().is_ok(),
        "{lines:?}"
    );
    assert_eq!(lines[1..], ["restored 2 tables of iptables, 14 commands"]);
    assert!(rules(&host, "iptables-legacy-save").contains("-A ALLOW"));
}

#[test]
fn clean_takes_the_flag_that_names_both_engines() {
    let pod = legacy_pod_or_skip!();
    let run = weir(&["clean", "--all-engines", "--netns", &path(&pod)]);
    assert_eq!(
        (run.code, run.stdout.as_str()),
        (0, "unchanged\n"),
        "{}",
        run.stderr
    );
    for verb in ["clean", "restore", "show"] {
        assert!(weir(&[verb, "--help"]).stdout.contains("Example"));
    }
}

/// A comment and a log prefix may be bytes of any encoding: weir shows and restores them unchanged.
// matrix: host: searches and compares bytes by grep and cmp; how texts are encoded no kernel decides
#[test]
fn texts_of_any_encoding() {
    let (theirs, ours) = (legacy_pod_or_skip!(), legacy_pod_or_skip!());
    let file = TempFile::new("");
    let script = r#"set -e
        printf '*filter\n-A INPUT -m comment --comment "\344 b" -j LOG --log-prefix "\344"\nCOMMIT\n' | iptables-legacy-restore
        "$1" show --engine xtables --netns "$2" > "$3"
        printf '\344 b' | LC_ALL=C grep -a -q -f - "$3"
        "$1" restore --netns "$4" --format iptables "$3"
        nsenter --net="$2" iptables-legacy-save -t filter | grep -a -v '^[:#]' > "$3.theirs"
        nsenter --net="$4" iptables-legacy-save -t filter | grep -a -v '^[:#]' > "$3.ours"
        cmp "$3.theirs" "$3.ours""#;
    let (from, to) = (path(&theirs), path(&ours));
    let weir = env!("CARGO_BIN_EXE_weir");
    let args = ["sh", "-c", script, "sh", weir, &from, file.path(), &to];
    let run = feed(&theirs, &args, "");
    for more in ["theirs", "ours"] {
        let _ = std::fs::remove_file(format!("{}.{more}", file.path()));
    }
    assert_eq!(run.code, 0, "{}{}", run.stdout, run.stderr);
}
