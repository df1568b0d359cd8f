//! The engine in namespaces: it changes owned rules, and foreign rules stay.
// matrix: variants 6.12-rt

use crate::common::{assert_text, tool};
use crate::xtables::*;
use std::time::{Duration, Instant};
use weir_netfilter::xtables::Snapshot;
use weir_netfilter::xtables::{
    OwnerChains, Ownership, Ruleset, Script, Writers, XtEngine, XtFamily, XtSizes, plan_restore,
};
use weir_netlink::Netns;
use weir_testing::namespace_or_skip;

const OURS: &str = "*mangle
:OURS_DROP - [0:0]
-A PREROUTING -m conntrack --ctstate INVALID -j OURS_DROP
-A OURS_DROP -j DROP
COMMIT
*nat
:OURS_OUTPUT - [0:0]
:OURS_REDIRECT - [0:0]
-A PREROUTING -i net1 -j RETURN
-A PREROUTING -p tcp -j OURS_REDIRECT
-A OUTPUT -o net1 -j RETURN
-A OUTPUT -j OURS_OUTPUT
-A OURS_OUTPUT -p tcp -m tcp --dport 22 -j RETURN
-A OURS_OUTPUT -m owner --uid-owner 0 -j RETURN
-A OURS_OUTPUT -d 10.0.0.0/8 -j OURS_REDIRECT
-A OURS_REDIRECT -p tcp -j REDIRECT --to-ports 15001
COMMIT
";

/// Foreign rules, some with extensions that weir does not support.
const FOREIGN: &str = "*filter
:INPUT DROP [0:0]
:FORWARD ACCEPT [0:0]
:OUTPUT ACCEPT [0:0]
:THEIRS - [0:0]
-A INPUT -i lo -j ACCEPT
-A INPUT -m u32 --u32 \"0x0>>0x16&0x3c@0x0&0xff=0x1\" -j ACCEPT
-A INPUT -m hashlimit --hashlimit-above 5/sec --hashlimit-name x -j THEIRS
-A OUTPUT -m string --string \"abc\" --algo bm --to 65535 -j THEIRS
-A THEIRS -m bpf --bytecode \"1,6 0 0 65535\" -j RETURN
-A THEIRS -j TCPMSS --set-mss 1400
COMMIT
*nat
:PREROUTING ACCEPT [0:0]
:INPUT ACCEPT [0:0]
:OUTPUT ACCEPT [0:0]
:POSTROUTING ACCEPT [0:0]
:KUBE - [0:0]
-A PREROUTING -m comment --comment \"kube stuff\" -j KUBE
-A OUTPUT -m length --length 90:140 -j KUBE
-A KUBE -p tcp -m u32 --u32 \"0x4=0x5\" -j RETURN
-A KUBE -j NETMAP --to 10.1.0.0/16
COMMIT
";

/// FOREIGN with the match that TCPMSS requires.
fn foreign() -> String {
    FOREIGN.replace(
        "-A THEIRS -j TCPMSS",
        "-A THEIRS -p tcp -m tcp --tcp-flags SYN,RST SYN -j TCPMSS",
    )
}

fn desired(text: &str) -> Ruleset {
    let script = Script::parse(XtFamily::Ip, text).unwrap();
    let transaction = plan_restore(&script, &Snapshot::default(), false).unwrap();
    let mut ruleset = transaction.tables();
    for table in &mut ruleset.tables {
        for chain in &mut table.chains {
            if let weir_netfilter::xtables::ChainKind::Builtin(p) = &mut chain.kind {
                *p = None;
            }
        }
        table.chains.retain(|c| !c.rules.is_empty());
    }
    ruleset
}

fn ownership() -> Ownership {
    Ownership {
        prefix: "OURS_".into(),
        rules: desired(OURS),
        ..Ownership::default()
    }
}

/// Packets for the counters: datagrams and connections that are refused. When it returns, all of them are counted.
fn traffic(ns: &Netns) {
    tool(ns, "ip", &["link", "set", "lo", "up"], "").unwrap();
    ns.run(|| {
        for _ in 0..5 {
            refused_datagram(20);
            // This packet matches the foreign rule, and has no route then.
            let _ = std::net::UdpSocket::bind("127.0.0.1:0")
                .unwrap()
                .send_to(&[7; 80], "127.0.0.1:9");
            let to = "127.0.0.1:9".parse().unwrap();
            let _ = std::net::TcpStream::connect_timeout(&to, Duration::from_secs(60));
        }
    })
    .unwrap();
}

/// The foreign rules of a text, with counters.
fn foreign_lines(text: &str) -> Vec<String> {
    text.lines()
        .filter(|l| !l.contains("OURS_") && !l.contains("net1"))
        .filter(|l| l.starts_with('[') || l.starts_with(':'))
        .map(str::to_owned)
        .collect()
}

#[test]
fn what_others_have_stays_with_its_counters() {
    let Some(ns) = namespace() else { return };
    load(&ns, XtFamily::Ip, &foreign(), &[]);
    traffic(&ns);
    let before = save_counted(&ns, XtFamily::Ip);
    assert!(
        before
            .lines()
            .any(|l| l.starts_with('[') && !l.starts_with("[0:0]")),
        "{before}"
    );
    let applied = engine(&ns, |e| e.apply(&desired(OURS), &ownership())).unwrap();
    assert_eq!(applied.replaced, 2, "filter has nothing of ours");
    assert_eq!(applied.lock_wait, None);
    let after = save_counted(&ns, XtFamily::Ip);
    // The table mangle is new, and has policies of its own.
    let theirs: Vec<&str> = after
        .split_inclusive("COMMIT\n")
        .filter(|t| !t.starts_with("*mangle"))
        .collect();
    assert_eq!(
        foreign_lines(&theirs.concat()),
        foreign_lines(&before),
        "{after}"
    );

    // Counters of owned rules survive the next change as well.
    traffic(&ns);
    let counted = save_counted(&ns, XtFamily::Ip);
    let more = OURS.replace(
        "-A OUTPUT -o net1",
        "-A OUTPUT -o net2 -j RETURN\n-A OUTPUT -o net1",
    );
    engine(&ns, |e| e.apply(&desired(&more), &ownership())).unwrap();
    let grown = save_counted(&ns, XtFamily::Ip);
    let without: String = grown
        .lines()
        .filter(|l| !l.contains("net2"))
        .map(|l| format!("{l}\n"))
        .collect();
    assert_text(&without, &counted);
    assert!(
        counted
            .lines()
            .any(|l| l.contains("-j OURS_OUTPUT") && !l.starts_with("[0:")),
        "{counted}"
    );

    let ours = Ownership {
        rules: desired(&more),
        ..ownership()
    };
    engine(&ns, |e| e.apply(&Ruleset::default(), &ours)).unwrap();
    let cleaned = save_counted(&ns, XtFamily::Ip);
    let end: Vec<String> = cleaned
        .lines()
        .filter(|l| l.starts_with('['))
        .map(str::to_owned)
        .collect();
    let want: Vec<String> = foreign_lines(&counted)
        .into_iter()
        .filter(|l| l.starts_with('['))
        .collect();
    assert_eq!(end, want);
    assert!(!cleaned.contains("OURS_"));
}

/// `-Z` has the effect of the real tool: for a chain, one of its rules, and everything, with policies. Other rules stay.
#[test]
fn counters_are_zeroed_as_by_the_tool() {
    let text = "*filter\n:INPUT ACCEPT [1:2]\n:OUTPUT DROP [3:4]\n:A - [0:0]\n[5:6] -A INPUT -i lo -j A\n\
                [7:8] -A INPUT -s 10.0.0.1\n[9:10] -A OUTPUT -o lo -j ACCEPT\n[11:12] -A A -j RETURN\nCOMMIT\n";
    for zero in [
        "-Z",
        "-Z INPUT",
        "-Z INPUT 2",
        "-Z A",
        "-Z INPUT 1\n-Z OUTPUT",
    ] {
        let Some(theirs) = namespace() else { return };
        let zero = format!("*filter\n{zero}\nCOMMIT\n");
        load(&theirs, XtFamily::Ip, text, &["-c"]);
        load(&theirs, XtFamily::Ip, &zero, &["-n"]);
        let ours = namespace().unwrap();
        load(&ours, XtFamily::Ip, text, &["-c"]);
        assert!(save_counted(&ours, XtFamily::Ip).contains("[5:6] -A INPUT"));
        restore(&ours, XtFamily::Ip, &zero, true);
        let (ours, theirs) = (
            save_counted(&ours, XtFamily::Ip),
            save_counted(&theirs, XtFamily::Ip),
        );
        let rules = |text: &str| -> Vec<String> {
            let rules = text.lines().filter(|l| l.starts_with('['));
            rules.map(str::to_owned).collect()
        };
        assert_eq!(rules(&ours), rules(&theirs), "{zero}");
        // The tool resets the policies of all selected chains, whatever else it resets.
        let policy = match zero.contains("OUTPUT") || zero.contains("-Z\n") {
            true => ":OUTPUT DROP [0:0]",
            false => ":OUTPUT DROP [3:4]",
        };
        assert!(ours.contains(policy), "{zero}{ours}");
    }
    let Some(ns) = namespace() else { return };
    for (zero, part) in [("-Z INPUT 3", "fewer rules"), ("-Z B", "no such chain")] {
        let script = Script::parse(XtFamily::Ip, &format!("*filter\n{zero}\nCOMMIT\n")).unwrap();
        let why = engine(&ns, |e| e.restore(&script, true))
            .unwrap_err()
            .to_string();
        assert!(why.contains(part), "{why}");
    }
}

#[test]
fn twice_is_once_and_drift_is_healed_in_place() {
    let Some(ns) = namespace() else { return };
    let before = names(&ns);
    assert!(engine(&ns, |e| e.read()).unwrap().ruleset.tables.is_empty());
    let planned = engine(&ns, |e| e.drift(&desired(OURS), &ownership())).unwrap();
    assert!(planned.ops.len() > 10);
    assert_eq!(names(&ns), before, "looking made a table");
    let wish = desired(OURS);
    engine(&ns, |e| e.apply(&wish, &ownership())).unwrap();
    assert_eq!(names(&ns).1, "", "nothing was desired of IPv6");
    let saved = save(&ns, XtFamily::Ip);
    let second = engine(&ns, |e| e.apply(&wish, &ownership())).unwrap();
    assert_eq!((second.ops, second.replaced), (vec![], 0));
    for damage in [
        "-t nat -D OUTPUT -j OURS_OUTPUT",
        "-t nat -I OURS_OUTPUT 1 -j ACCEPT",
        "-t nat -F OURS_OUTPUT",
        "-t nat -R PREROUTING 1 -i net1 -j OURS_REDIRECT",
        "-t nat -A PREROUTING -j OURS_REDIRECT",
        "-t nat -N OURS_STALE",
        "-t filter -N OURS_STALE",
    ] {
        run(&ns, XtFamily::Ip, damage);
        let drift = engine(&ns, |e| e.drift(&wish, &ownership())).unwrap();
        assert!(!drift.ops.is_empty(), "{damage}");
        engine(&ns, |e| e.apply(&wish, &ownership())).unwrap();
        let now: String = save(&ns, XtFamily::Ip);
        let now = &now[now.find("*mangle").unwrap()..];
        assert_text(now, &saved);
    }
}

#[test]
fn ours_keep_their_order_among_others() {
    let Some(ns) = namespace() else { return };
    engine(&ns, |e| e.apply(&desired(OURS), &ownership())).unwrap();
    run(&ns, XtFamily::Ip, "-t nat -I PREROUTING 1 -i a -j ACCEPT");
    run(&ns, XtFamily::Ip, "-t nat -I PREROUTING 3 -i b -j ACCEPT");
    run(&ns, XtFamily::Ip, "-t nat -A PREROUTING -i c -j ACCEPT");
    let before = save(&ns, XtFamily::Ip);
    assert_eq!(
        engine(&ns, |e| e.drift(&desired(OURS), &ownership()))
            .unwrap()
            .ops,
        vec![]
    );
    // The last owned rule is put back after the one before it; the first is put back before the next.
    run(
        &ns,
        XtFamily::Ip,
        "-t nat -D PREROUTING -p tcp -j OURS_REDIRECT",
    );
    let applied = engine(&ns, |e| e.apply(&desired(OURS), &ownership())).unwrap();
    let texts: Vec<String> = applied.ops.iter().map(ToString::to_string).collect();
    assert_eq!(
        texts,
        ["iptables -t nat -I PREROUTING 3 -p tcp -j OURS_REDIRECT"]
    );
    run(&ns, XtFamily::Ip, "-t nat -D PREROUTING -i net1 -j RETURN");
    engine(&ns, |e| e.apply(&desired(OURS), &ownership())).unwrap();
    let lines: Vec<String> = save(&ns, XtFamily::Ip)
        .lines()
        .filter_map(|l| l.strip_prefix("-A PREROUTING").map(str::to_owned))
        .collect();
    let want = [
        " -m conntrack --ctstate INVALID -j OURS_DROP",
        " -i a -j ACCEPT",
        " -i net1 -j RETURN",
        " -p tcp -j OURS_REDIRECT",
        " -i b -j ACCEPT",
        " -i c -j ACCEPT",
    ];
    assert_eq!(lines, want, "{before}");
}

/// The test below starts itself again with this variable, which names a lock file of its own.
const LOCK: &str = "XTABLES_LOCKFILE";

#[test]
fn the_lock_is_waited_for_with_a_bound() {
    let Some(lock) = std::env::var_os(LOCK).filter(|f| f.to_string_lossy().contains("weir-lock"))
    else {
        let dir = tempdir("weir-lock");
        let out = std::process::Command::new(std::env::current_exe().unwrap())
            .args([
                "--exact",
                "xtables_engine::the_lock_is_waited_for_with_a_bound",
                "--nocapture",
            ])
            .env(LOCK, dir.join("lock"))
            .output()
            .unwrap();
        std::fs::remove_dir_all(&dir).unwrap();
        let ran = String::from_utf8_lossy(&out.stdout).contains("1 passed");
        let said = String::from_utf8_lossy(&out.stderr);
        assert!(out.status.success() && ran, "{said}");
        return;
    };
    let Some(ns) = namespace() else { return };
    let held = std::fs::File::create(lock).unwrap();
    held.lock().unwrap();
    let with = |patience| {
        ns.run(|| {
            let writers = Writers::Others { patience };
            XtEngine::open()
                .unwrap()
                .writers(writers)
                .apply(&desired(OURS), &ownership())
        })
        .unwrap()
    };
    let begun = Instant::now();
    let e = with(Duration::from_millis(60)).unwrap_err().to_string();
    assert!(
        begun.elapsed() >= Duration::from_millis(60) && e.contains("another program"),
        "{e}"
    );
    // In the namespace of a pod the engine takes no lock.
    engine(&ns, |e| e.apply(&desired(OURS), &ownership())).unwrap();
    held.unlock().unwrap();
    let waited = with(Duration::from_secs(5)).unwrap().lock_wait;
    assert!(waited.is_some_and(|w| w < Duration::from_secs(5)));
}

fn tempdir(what: &str) -> std::path::PathBuf {
    let dir = std::path::PathBuf::from(env!("CARGO_TARGET_TMPDIR"))
        .join(format!("xtables-{what}-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    dir
}

#[test]
fn what_is_ours_is_found_by_its_marks_alone() {
    let ns = namespace_or_skip!();
    load(&ns, XtFamily::Ip, &foreign(), &[]);
    let holds = |prefix: &str, tag| {
        let ours = Ownership {
            prefix: prefix.into(),
            tag,
            ..Ownership::default()
        };
        engine(&ns, |e| e.holds(&ours)).unwrap()
    };
    assert!(!holds("OURS_", 7));
    assert!(holds("KUB", 0) && !holds("", 0));
    // An owned rule in a built-in chain, without the chain that it belongs to.
    let tagged = Ownership {
        prefix: "OURS_".into(),
        tag: 7,
        ..Ownership::default()
    };
    engine(&ns, |e| e.apply(&desired(OURS), &tagged)).unwrap();
    assert!(holds("OURS_", 0) && holds("", 7) && !holds("", 8));
    // In other tables nothing is owned, whatever its name.
    let elsewhere = Ownership {
        tables: &["security"],
        ..tagged.clone()
    };
    assert!(!engine(&ns, |e| e.holds(&elsewhere)).unwrap());
    let drift = engine(&ns, |e| e.drift(&Ruleset::default(), &elsewhere)).unwrap();
    assert_eq!(drift.ops, []);
    let removed = engine(&ns, |e| Ok::<_, weir_netlink::Error>(e.remove(&elsewhere))).unwrap();
    assert!(removed.ops.is_empty() && removed.failures.is_empty());
    engine(&ns, |e| e.apply(&Ruleset::default(), &tagged)).unwrap();
    assert!(!holds("OURS_", 7));
}

const THEIRS: &str = "*nat
:ALL_OUTPUT - [0:0]
:ALL_THEIRS - [0:0]
-A PREROUTING -p tcp -j ALL_THEIRS
-A OUTPUT -j ALL_OUTPUT
-A ALL_OUTPUT -p tcp -j RETURN
-A ALL_THEIRS -p tcp -j RETURN
COMMIT
";

const BESIDE: &str = "*mangle
:ALL_OUTPUT - [0:0]
-A OUTPUT -o net1 -j RETURN
-A OUTPUT -j ALL_OUTPUT
-A ALL_OUTPUT -p tcp -j RETURN
COMMIT
";

/// Owners with the same prefix and tag have chains of the same name.
#[test]
fn what_another_owner_has_stays() {
    const SHARED: &[(&str, &str)] = &[("nat", "ALL_OUTPUT")];
    const OTHERS: OwnerChains = OwnerChains {
        prefixes: &["ALL_THEIRS"],
        beside: SHARED,
    };
    let ns = namespace_or_skip!();
    let theirs = Ownership {
        prefix: "ALL_THEIRS".into(),
        beside: SHARED,
        tag: 7,
        ..Ownership::default()
    };
    let chains = Ownership {
        prefix: "ALL_".into(),
        others: &[OTHERS],
        ..Ownership::default()
    };
    let ours = Ownership {
        tag: 7,
        ..chains.clone()
    };
    engine(&ns, |e| e.apply(&desired(THEIRS), &theirs)).unwrap();
    let alone = save(&ns, XtFamily::Ip);
    assert!(!engine(&ns, |e| e.holds(&chains)).unwrap());
    assert!(engine(&ns, |e| e.holds(&theirs)).unwrap());
    let removed = engine(&ns, |e| e.remove(&ours));
    assert!(removed.ops.is_empty() && removed.failures.is_empty());

    let refused = engine(&ns, |e| e.apply(&desired(THEIRS), &ours)).unwrap_err();
    assert!(refused.to_string().contains("ALL_OUTPUT"), "{refused}");
    assert_eq!(save(&ns, XtFamily::Ip), alone);

    // In another table no other owner has such a chain.
    engine(&ns, |e| e.apply(&desired(BESIDE), &ours)).unwrap();
    assert!(engine(&ns, |e| e.holds(&chains)).unwrap());
    let drift = engine(&ns, |e| e.drift(&desired(BESIDE), &ours)).unwrap();
    assert_eq!(drift.ops, vec![]);
    let both = save(&ns, XtFamily::Ip);
    assert!(
        both.contains(":ALL_THEIRS") && both.contains("-o net1"),
        "{both}"
    );
    let removed = engine(&ns, |e| e.remove(&ours));
    assert!(removed.failures.is_empty() && !removed.ops.is_empty());
    assert!(engine(&ns, |e| e.holds(&theirs)).unwrap());
    engine(&ns, |e| e.apply(&Ruleset::default(), &theirs)).unwrap();
    assert!(!save(&ns, XtFamily::Ip).contains("-A "));
}

/// Such a table could be neither listed nor changed afterwards.
#[test]
fn a_table_that_could_not_be_read_is_not_written() {
    let Some(ns) = namespace() else { return };
    let rule = format!("-A INPUT{}\n", " -m comment --comment x".repeat(100));
    let text = format!("*filter\n{}COMMIT\n", rule.repeat(620));
    let script = Script::parse(XtFamily::Ip, &text).unwrap();
    load(
        &ns,
        XtFamily::Ip,
        "*filter\n-A INPUT -j DROP\nCOMMIT\n",
        &[],
    );
    let kernel = weir_netfilter::probe::RunningKernel::read();
    let tried = engine(&ns, |e| e.check(&script, false, &kernel).map(drop));
    let written = engine(&ns, |e| e.restore(&script, false).map(drop));
    for why in [tried.unwrap_err(), written.unwrap_err()] {
        let why = why.to_string();
        assert!(
            why.contains("iptables table filter") && why.contains("use fewer rules"),
            "{why}"
        );
    }
    assert!(save(&ns, XtFamily::Ip).contains("-A INPUT -j DROP"));
}

/// Decoded, it would take some 250 MB.
#[test]
fn a_table_that_is_too_large_is_looked_through_and_not_read() {
    let ns = namespace_or_skip!();
    let mut text = "*filter\n:THEIRS - [0:0]\n".to_owned();
    for n in 0..120_000 {
        text += &format!(
            "-A THEIRS -s 10.{}.{}.{}/32 -j DROP\n",
            n >> 16,
            n >> 8 & 255,
            n & 255
        );
    }
    text += "COMMIT\n";
    load(&ns, XtFamily::Ip, &text, &[]);
    let ours = Ownership {
        prefix: "OURS_".into(),
        tag: 7,
        ..Ownership::default()
    };
    assert!(!engine(&ns, |e| e.holds(&ours)).unwrap());
    let error = engine(&ns, |e| e.drift(&Ruleset::default(), &ours)).unwrap_err();
    let error = error.to_string();
    for word in ["iptables table filter", "16777216 bytes", "remove rules"] {
        assert!(error.contains(word), "{error}");
    }
}

/// Each piece ends with a line. All pieces together equal the complete text, in both families.
#[test]
fn a_listing_is_written_in_pieces() {
    let Some(ns) = namespace() else { return };
    load(&ns, XtFamily::Ip, &foreign(), &[]);
    let mut text = "*filter\n:THEIRS - [0:0]\n".to_owned();
    for n in 0..3_000 {
        text += &format!("-A THEIRS -s fd00::{n:x}/128 -p tcp -m tcp --dport 80 -j DROP\n");
    }
    load(&ns, XtFamily::Ip6, &(text + "COMMIT\n"), &[]);
    let listing = ns.run(|| XtEngine::open()?.listing()).unwrap().unwrap();
    let mut pieces: Vec<String> = Vec::new();
    let taken = listing.write(|piece| {
        pieces.push(piece.to_owned());
        Ok(())
    });
    taken.unwrap();
    assert!(pieces.len() > 2, "{}", pieces.len());
    assert!(pieces.iter().all(|piece| piece.ends_with('\n')));
    assert_text(&pieces.concat(), &read(&ns).ruleset.to_string());

    // A reader can stop early.
    let mut count = 0;
    let error = listing.write(|_| {
        count += 1;
        Err(std::io::ErrorKind::BrokenPipe.into())
    });
    assert_eq!(error.unwrap_err().kind(), std::io::ErrorKind::BrokenPipe);
    assert_eq!(count, 1);
}

/// The real tool changes tables; packets change nothing but counters.
#[test]
fn changes_of_others_are_noticed_by_sizes() {
    let Some(ns) = namespace() else { return };
    let mut sizes = ns.run(XtSizes::open).unwrap().unwrap();
    let mut last = sizes.read().unwrap();
    let mut is_changed = || {
        let now = sizes.read().unwrap();
        std::mem::replace(&mut last, now.clone()) != now
    };
    // The query creates no table.
    assert!(!is_changed());
    load(&ns, XtFamily::Ip, &foreign(), &[]);
    assert!(is_changed());
    traffic(&ns);
    assert!(!is_changed());
    for (family, rule) in [
        (XtFamily::Ip, "-t nat -A KUBE -j ACCEPT"),
        (XtFamily::Ip, "-t nat -D KUBE -j ACCEPT"),
        (XtFamily::Ip6, "-t nat -A OUTPUT -j ACCEPT"),
    ] {
        run(&ns, family, rule);
        assert!(is_changed(), "{family} {rule}");
        assert!(!is_changed());
    }
    run(&ns, XtFamily::Ip, "-t nat -F");
    assert!(is_changed());
}
