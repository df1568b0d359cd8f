//! Other writers, and kernels that refuse.

use weir_testing::effort;
use weir_testing::namespace_or_skip;

use crate::common::{assert_text, tool};
use crate::xtables::*;
use std::io;
use std::time::Duration;
use weir_netfilter::xtables::*;
use weir_netlink::{InForce, Netns};

/// The kernel, with some failing calls.
struct Faulty {
    kernel: XtSockets,
    /// The number of the replacement that fails, counted from 0, and its error.
    fails: Vec<(usize, i32)>,
    /// The number of the replacement that is made although its answer is this error.
    lost: Vec<(usize, i32)>,
    replaced: usize,
    /// How many times adding the counters back fails. If true, they are added and only the answer is an error.
    counters: Option<(usize, bool)>,
    /// Extensions that it lacks.
    lacks: &'static [&'static str],
    /// The family whose list of tables cannot be read.
    unlisted: Option<XtFamily>,
    /// The table that cannot be read.
    unread: Option<&'static str>,
    /// Called once, before the entries of a table are read.
    meanwhile: Option<fn()>,
}

impl XtTransport for Faulty {
    fn names(&mut self, family: XtFamily) -> io::Result<Vec<String>> {
        if self.unlisted == Some(family) {
            return Err(io::Error::from_raw_os_error(libc::EMFILE));
        }
        self.kernel.names(family)
    }

    fn get(&mut self, family: XtFamily, option: i32, value: &mut [u8]) -> io::Result<usize> {
        // struct xt_get_revision: a name of 29 bytes, then the revision.
        let text = value.split(|b| *b == 0).next().unwrap_or_default();
        if value.len() == 30 && self.lacks.iter().any(|name| name.as_bytes() == text) {
            return Err(io::Error::from_raw_os_error(libc::ENOENT));
        }
        if value.len() > 30 && self.unread.is_some_and(|name| name.as_bytes() == text) {
            return Err(io::Error::from_raw_os_error(libc::ENOMEM));
        }
        if option == raw::IPT_SO_GET_ENTRIES
            && let Some(meanwhile) = self.meanwhile.take()
        {
            meanwhile();
        }
        self.kernel.get(family, option, value)
    }

    fn replace(
        &mut self,
        family: XtFamily,
        value: &mut [u8],
        counters: &mut [u8],
    ) -> io::Result<()> {
        let n = self.replaced;
        self.replaced += 1;
        let errno = |list: &[(usize, i32)]| {
            let found = list.iter().find(|(at, _)| *at == n || *at == ALWAYS);
            found.map(|(_, errno)| match *errno {
                KILLED => io::ErrorKind::UnexpectedEof.into(),
                PENDING => io::ErrorKind::TimedOut.into(),
                errno => io::Error::from_raw_os_error(errno),
            })
        };
        if let Some(e) = errno(&self.fails) {
            return Err(e);
        }
        self.kernel.replace(family, value, counters)?;
        let Some(e) = errno(&self.lost) else {
            return Ok(());
        };
        if e.raw_os_error().is_none() {
            // The process that made the call had not passed the counters on yet.
            counters.fill(0);
        }
        Err(e)
    }

    fn add_counters(&mut self, family: XtFamily, value: &[u8]) -> io::Result<()> {
        match &mut self.counters {
            Some((left, is_done)) if *left > 0 => {
                *left -= 1;
                if *is_done {
                    self.kernel.add_counters(family, value)?;
                }
                Err(io::Error::from_raw_os_error(libc::ENOMEM))
            }
            _ => self.kernel.add_counters(family, value),
        }
    }
}

/// Less than the engine's default, but longer than several attempts take on an emulated processor.
const CONTENTION: Duration = Duration::from_secs(2);

/// Instead of an errno: the process that makes the call in another user namespace was killed, or may still be running.
const KILLED: i32 = -1;
const PENDING: i32 = -2;
/// Every replacement.
const ALWAYS: usize = usize::MAX;

fn faulty(fails: &[(usize, i32)], lost: &[(usize, i32)]) -> Faulty {
    Faulty {
        kernel: XtSockets::open().unwrap(),
        fails: fails.to_vec(),
        lost: lost.to_vec(),
        replaced: 0,
        counters: None,
        lacks: &[],
        unlisted: None,
        unread: None,
        meanwhile: None,
    }
}

fn chain_with(name: &str, rule: Rule) -> Chain {
    Chain {
        rules: vec![rule],
        ..Chain::user(name)
    }
}

/// One jump in each of three tables.
fn desired() -> Ruleset {
    let table = |family, name: &str| Table {
        chains: vec![
            Chain {
                rules: vec![Rule::builder().jump("OURS_A")],
                ..Chain::builtin("OUTPUT")
            },
            chain_with(
                "OURS_A",
                Rule::builder().out_interface("nope").target(Target::Drop),
            ),
        ],
        ..Table::new(family, name)
    };
    Ruleset {
        tables: vec![
            table(XtFamily::Ip, "mangle"),
            table(XtFamily::Ip, "nat"),
            table(XtFamily::Ip6, "nat"),
        ],
    }
}

fn ours() -> Ownership {
    Ownership {
        prefix: "OURS_".into(),
        ..Ownership::default()
    }
}

fn apply(ns: &Netns, fails: &[(usize, i32)]) -> weir_netlink::Result<XtApplied> {
    apply_with(ns, || faulty(fails, &[]))
}

fn apply_with(
    ns: &Netns,
    transport: impl FnOnce() -> Faulty + Send,
) -> weir_netlink::Result<XtApplied> {
    ns.run(|| {
        let sets = Box::new(SocketSets::open().unwrap());
        let engine = XtEngine::with_transport(transport(), sets);
        let mut engine = engine.contention(CONTENTION);
        engine.apply(&desired(), &ours())
    })
    .unwrap()
}

fn both(ns: &Netns) -> String {
    save_counted(ns, XtFamily::Ip) + &save_counted(ns, XtFamily::Ip6)
}

#[test]
fn a_check_names_everything_that_the_kernel_lacks_and_changes_nothing() {
    let ns = namespace_or_skip!();
    let text = "*nat\n:OURS - [0:0]\n-A OUTPUT -p tcp -m owner --uid-owner 0 -j OURS\n\
                -A OURS -m multiport --dports 1,2 -p tcp -j REDIRECT --to-ports 3\n\
                -A OURS -p tcp -m tcp --dport 4 -j REDIRECT --to-ports 3\nCOMMIT\n";
    let script = Script::parse(XtFamily::Ip, text).unwrap();
    let kernel = weir_netfilter::probe::RunningKernel::read();
    let check = |lacks: &'static [&'static str]| {
        let faulty = Faulty {
            lacks,
            ..faulty(&[], &[])
        };
        let sets = Box::new(SocketSets::open().unwrap());
        XtEngine::with_transport(faulty, sets).check(&script, true, &kernel)
    };
    let checked = ns.run(|| check(&["owner", "REDIRECT"])).unwrap().unwrap();
    if !checked.untold.is_empty() {
        println!("skipped: {:?}", checked.untold);
        return;
    }
    let lacking: Vec<String> = checked.lacking.iter().map(ToString::to_string).collect();
    let want = [
        ("line 3:", "owner revision 1"),
        ("line 4:", "REDIRECT"),
        ("line 5:", "REDIRECT"),
    ];
    assert_eq!(lacking.len(), want.len(), "{lacking:?}");
    for (line, (place, what)) in lacking.iter().zip(want) {
        assert!(line.contains(place) && line.contains(what), "{line}");
    }
    let all = ns.run(|| check(&[])).unwrap().unwrap();
    assert!(all.lacking.is_empty(), "{:?}", all.lacking);
    assert_eq!(names(&ns).0, "", "a table came into being");
}

#[test]
fn a_table_that_fails_takes_the_others_back() {
    let ns = namespace_or_skip!();
    for args in [
        "-t nat -A OUTPUT -j ACCEPT",
        "-t mangle -A OUTPUT -d 127.0.0.0/8",
    ] {
        run(&ns, XtFamily::Ip, args);
    }
    run(&ns, XtFamily::Ip6, "-t nat -A OUTPUT -j ACCEPT");
    tool(&ns, "ip", &["link", "set", "lo", "up"], "").unwrap();
    ns.run(|| refused_datagram(1)).unwrap();
    let before = both(&ns);
    assert!(
        before.contains("-A OUTPUT -d 127.0.0.0/8") && !before.contains("[0:0] -A OUTPUT -d"),
        "{before}"
    );
    for fails in 0..3 {
        let e = apply(&ns, &[(fails, EINVAL)]).unwrap_err();
        assert!(e.to_string().contains("refuses one of its rules"), "{e}");
        assert_eq!(e.in_force, InForce::No, "{e}");
        assert_text(&both(&ns), &before);
    }
    // A table that cannot be put back is named, also if the next attempt fails.
    let e = apply(&ns, &[(1, EINVAL), (2, EINVAL), (3, EINVAL)]).unwrap_err();
    assert!(
        e.to_string()
            .contains("iptables table mangle stays changed"),
        "{e}"
    );
    assert_eq!(e.in_force, InForce::Unknown, "{e}");
    // If the next attempt succeeds, the remaining tables are written, and each change is reported once.
    run(&ns, XtFamily::Ip, "-t mangle -F OURS_A");
    let done = apply(&ns, &[(1, EINVAL), (2, EINVAL)]).unwrap().ops;
    let repeated = |op| done.iter().filter(|o| *o == op).count() > 1;
    assert!(!done.is_empty() && !done.iter().any(repeated), "{done:?}");
}

/// A namespace with a foreign rule whose counters are not zero. Returns its line as well.
fn counted() -> Option<(Netns, String)> {
    let ns = Netns::create().ok()?;
    run(&ns, XtFamily::Ip, "-t mangle -A OUTPUT -d 127.0.0.0/8");
    tool(&ns, "ip", &["link", "set", "lo", "up"], "").unwrap();
    ns.run(|| refused_datagram(1)).unwrap();
    let counted = foreign(&ns);
    assert!(!counted.starts_with("[0:0]"), "{counted}");
    Some((ns, counted))
}

/// The line of the foreign rule.
fn foreign(ns: &Netns) -> String {
    let listing = save_counted(ns, XtFamily::Ip);
    let line = listing.lines().find(|l| l.contains("-d 127.0.0.0/8"));
    line.unwrap_or_default().to_owned()
}

#[test]
fn a_replacement_whose_answer_is_lost_is_looked_for() {
    let _probe = namespace_or_skip!();
    for at in 0..3 {
        for errno in [libc::EINTR, libc::ENOMEM, EAGAIN, KILLED, PENDING] {
            let (ns, counters) = counted().unwrap();
            let applied = apply_with(&ns, || faulty(&[], &[(at, errno)])).unwrap();
            assert_eq!(applied.replaced, 3, "replacement {at}, errno {errno}");
            assert_eq!(
                engine(&ns, |e| e.drift(&desired(), &ours())).unwrap().ops,
                vec![]
            );
            assert_eq!(foreign(&ns), counters);
        }
    }
    // An interrupted restoration of a table is looked for as well.
    let (ns, _) = counted().unwrap();
    for family in [XtFamily::Ip, XtFamily::Ip6] {
        run(&ns, family, "-t nat -A OUTPUT -j ACCEPT");
    }
    let before = both(&ns);
    let e = apply_with(&ns, || faulty(&[(1, EINVAL)], &[(2, libc::EINTR)])).unwrap_err();
    assert_eq!(e.in_force, InForce::No, "{e}");
    assert!(!e.to_string().contains("stays changed"), "{e}");
    assert_text(&both(&ns), &before);
}

#[test]
fn a_process_that_is_killed_before_its_call_has_changed_nothing_and_one_that_hangs_may_yet() {
    let _probe = namespace_or_skip!();
    for at in 0..3 {
        let (ns, _) = counted().unwrap();
        for family in [XtFamily::Ip, XtFamily::Ip6] {
            run(&ns, family, "-t nat -A OUTPUT -j ACCEPT");
        }
        let before = both(&ns);
        let e = apply(&ns, &[(at, KILLED)]).unwrap_err();
        assert_eq!(e.in_force, InForce::No, "{e}");
        assert_text(&both(&ns), &before);
        // An unchanged table proves nothing while the call may still run: the engine repeats it, and the kernel executes the calls in
        // order.
        let applied = apply(&ns, &[(at, PENDING)]).unwrap();
        assert!(applied.replaced >= 3, "{}", applied.replaced);
        let drift = engine(&ns, |e| e.drift(&desired(), &ours())).unwrap();
        assert_eq!(drift.ops, vec![]);
    }
    let (ns, counters) = counted().unwrap();
    let e = apply(&ns, &[(ALWAYS, PENDING)]).unwrap_err();
    assert_eq!(e.in_force, InForce::Unknown, "{e}");
    assert_eq!(foreign(&ns), counters);
    // Killed during the restoration of a table, after its call: the counters are those of the restored table.
    let (ns, counters) = counted().unwrap();
    let e = apply_with(&ns, || faulty(&[(1, EINVAL)], &[(2, KILLED)])).unwrap_err();
    assert_eq!(e.in_force, InForce::No, "{e}");
    assert_eq!(foreign(&ns), counters);
}

#[test]
fn counters_of_foreign_rules_are_not_lost_without_a_word() {
    let _probe = namespace_or_skip!();
    let given = |counters| {
        let (ns, before) = counted().unwrap();
        let outcome = apply_with(&ns, || Faulty {
            counters,
            ..faulty(&[], &[])
        });
        (outcome, foreign(&ns), before)
    };
    // Adding the counters back fails, or only its answer is lost: the counters end neither at zero nor doubled.
    for is_done in [false, true] {
        let (outcome, now, before) = given(Some((1, is_done)));
        outcome.unwrap();
        assert_eq!(now, before, "given back: {is_done}");
    }
    let (outcome, _, _) = given(Some((2, false)));
    let e = outcome.unwrap_err();
    assert_eq!(e.in_force, InForce::Yes, "{e}");
    assert!(
        e.to_string().contains("counters of iptables table mangle"),
        "{e}"
    );
}

/// `errno.h`, on every architecture.
const EINVAL: i32 = 22;
const EAGAIN: i32 = 11;

#[test]
fn a_change_in_between_is_read_again_with_a_bound() {
    let ns = namespace_or_skip!();
    // The second of three fails: the first is put back, then all are written.
    let applied = apply(&ns, &[(1, EAGAIN), (4, EAGAIN)]).unwrap();
    assert_eq!(applied.replaced, 3);
    assert_eq!(
        engine(&ns, |e| e.drift(&desired(), &ours())).unwrap().ops,
        vec![]
    );
    let other = namespace_or_skip!();
    let e = apply(&other, &[(ALWAYS, EAGAIN)]).unwrap_err();
    assert!(
        e.to_string().contains("another writer keeps changing"),
        "{e}"
    );
    assert_eq!(e.in_force, InForce::No);
}

/// A rule without matches is as long as a policy, so that its move changes the beginnings of chains, but not the size of the table.
#[test]
fn a_rule_that_moves_while_a_table_is_read_is_in_one_chain() {
    let ns = namespace_or_skip!();
    run(&ns, XtFamily::Ip, "-P INPUT DROP");
    run(&ns, XtFamily::Ip, "-A INPUT -j ACCEPT");
    let meanwhile = || {
        let text = "*filter\n-D INPUT -j ACCEPT\n-A OUTPUT -j ACCEPT\nCOMMIT\n";
        let script = Script::parse(XtFamily::Ip, text).unwrap();
        XtEngine::open().unwrap().restore(&script, true).unwrap();
    };
    let found = ns.run(|| {
        let transport = Faulty {
            meanwhile: Some(meanwhile),
            ..faulty(&[], &[])
        };
        let sets = Box::new(SocketSets::open().unwrap());
        XtEngine::with_transport(transport, sets).ruleset().unwrap()
    });
    let now = engine(&ns, |e| e.ruleset()).unwrap().to_string();
    assert!(now.contains("-A OUTPUT -j ACCEPT"), "{now}");
    assert_text(&found.unwrap().to_string(), &now);
}

#[test]
fn nothing_is_written_unless_all_can_be() {
    let ns = namespace_or_skip!();
    let mut wish = desired();
    let missing = SetMatch {
        not: Not(false),
        set: SetRef {
            name: "nobody".into(),
            source: vec![true],
        },
        return_nomatch: false,
        keep_counters: false,
        keep_subcounters: false,
        packets: None,
        bytes: None,
    };
    wish.tables[2].chains[1].rules.push(
        Rule::builder()
            .matching(Match::Set(missing))
            .target(Target::Drop),
    );
    let e = engine(&ns, |e| e.apply(&wish, &ours())).unwrap_err();
    assert!(e.to_string().contains("there is no such set"), "{e}");
    assert!(!both(&ns).contains("OURS_"));
    let mut wish = desired();
    wish.tables[2].chains[1]
        .rules
        .push(Rule::builder().jump("OURS_A"));
    let e = engine(&ns, |e| e.apply(&wish, &ours())).unwrap_err();
    assert!(e.to_string().contains("OURS_A -> OURS_A"), "{e}");
    let mut wish = desired();
    wish.tables[1].name = "nonsense".into();
    assert!(
        engine(&ns, |e| e.apply(&wish, &ours()))
            .unwrap_err()
            .to_string()
            .contains("no such table")
    );
}

/// The real tool adds and deletes its own rules in the same chain while the engine applies and cleans: neither loses a rule.
#[test]
fn a_writer_beside_us_loses_nothing() {
    let ns = namespace_or_skip!();
    let rounds = effort::cases(if std::env::var_os("WEIR_LONG").is_some() {
        10_000
    } else {
        300
    });
    let writers = Writers::Others {
        patience: Duration::from_secs(60),
    };
    std::thread::scope(|scope| {
        let theirs = scope.spawn(|| {
            for n in 0..rounds {
                run(
                    &ns,
                    XtFamily::Ip,
                    &format!(
                        "-t nat -A OUTPUT -d 10.{}.{}.1 -j ACCEPT",
                        n / 256 % 256,
                        n % 256
                    ),
                );
                if n % 3 == 2 {
                    let n = n - 1;
                    let what = format!(
                        "-t nat -D OUTPUT -d 10.{}.{}.1 -j ACCEPT",
                        n / 256 % 256,
                        n % 256
                    );
                    run(&ns, XtFamily::Ip, &what);
                }
            }
        });
        let mut turns = 0;
        ns.run(|| {
            let mut engine = XtEngine::open().unwrap().writers(writers);
            while !theirs.is_finished() {
                let applied = engine.apply(&desired(), &ours()).unwrap();
                assert!(applied.lock_wait.is_some());
                assert!(!applied.ops.is_empty());
                engine.apply(&Ruleset::default(), &ours()).unwrap();
                turns += 1;
            }
            engine.apply(&desired(), &ours()).unwrap();
        })
        .unwrap();
        theirs.join().unwrap();
        assert!(turns > 0);
    });
    let listing = save(&ns, XtFamily::Ip);
    let have: Vec<String> = listing
        .lines()
        .filter(|l| l.contains("-j ACCEPT") && l.starts_with("-A OUTPUT"))
        .map(str::to_owned)
        .collect();
    let want: Vec<String> = (0..rounds)
        .filter(|n| n % 3 != 1 || n + 1 >= rounds)
        .map(|n| {
            format!(
                "-A OUTPUT -d 10.{}.{}.1/32 -j ACCEPT",
                n / 256 % 256,
                n % 256
            )
        })
        .collect();
    assert_eq!(have, want);
    assert!(listing.contains("-A OUTPUT -j OURS_A"), "{listing}");
}

/// Removes the owned rules from three tables, with failures in some of them.
fn removed(ns: &Netns, transport: impl FnOnce() -> Faulty + Send) -> Removed {
    apply(ns, &[]).unwrap();
    ns.run(|| {
        let sets = Box::new(SocketSets::open().unwrap());
        let engine = XtEngine::with_transport(transport(), sets);
        let mut engine = engine.contention(CONTENTION);
        engine.remove(&ours())
    })
    .unwrap()
}

/// The tables in which owned rules are left.
fn left(ns: &Netns) -> Vec<String> {
    let found = ns.run(|| {
        XtEngine::open()
            .unwrap()
            .drift(&Ruleset::default(), &ours())
    });
    let tables = found.unwrap().unwrap().tables().tables;
    let name = |t: &Table| format!("{} table {}", t.family, t.name);
    let mut names: Vec<String> = tables.iter().map(name).collect();
    names.sort();
    names
}

#[test]
fn tear_down_goes_on_and_names_every_table_that_failed() {
    let ns = namespace_or_skip!();
    let all = [
        "ip6tables table nat",
        "iptables table mangle",
        "iptables table nat",
    ];
    let named = |removed: &Removed| -> Vec<String> {
        let texts = removed.failures.iter().map(ToString::to_string);
        let of = |text: &String| all.iter().find(|t| text.contains(*t));
        let mut named: Vec<String> = texts
            .map(|text| of(&text).map_or(text.clone(), |t| (*t).to_owned()))
            .collect();
        named.sort();
        named
    };
    let done = removed(&ns, || faulty(&[], &[]));
    assert!(done.failures.is_empty(), "{:?}", done.failures);
    assert_eq!(done.ops.len(), 9, "{:?}", done.ops);
    assert_eq!(left(&ns), [""; 0]);
    // Each table alone, two of them, and all.
    for fails in [&[0][..], &[1], &[2], &[0, 2], &[0, 1, 2]] {
        let refused: Vec<(usize, i32)> = fails.iter().map(|n| (*n, EINVAL)).collect();
        let done = removed(&ns, || faulty(&refused, &[]));
        assert_eq!(named(&done), left(&ns), "{fails:?}");
        assert_eq!(done.failures.len(), fails.len(), "{:?}", done.failures);
        assert_eq!(done.ops.len(), 3 * (3 - fails.len()), "{:?}", done.ops);
    }
    // A list or a table that cannot be read does not prevent the rest either.
    let done = removed(&ns, || Faulty {
        unlisted: Some(XtFamily::Ip),
        ..faulty(&[], &[])
    });
    assert_eq!(done.failures.len(), 1, "{:?}", done.failures);
    assert!(done.failures[0].to_string().contains("iptables tables"));
    assert_eq!(left(&ns), all[1..]);
    let done = removed(&ns, || Faulty {
        unread: Some("nat"),
        ..faulty(&[], &[])
    });
    assert_eq!(named(&done), [all[0], all[2]]);
    assert_eq!(left(&ns), [all[0], all[2]]);
    // A lost answer is no failure.
    let done = removed(&ns, || faulty(&[], &[(1, libc::ENOMEM)]));
    assert!(done.failures.is_empty(), "{:?}", done.failures);
    assert_eq!(left(&ns), [""; 0]);
}

/// Data that cannot be read is an error, never an empty table or an incomplete one.
#[test]
fn what_cannot_be_read_is_never_shown_as_good() {
    let ns = namespace_or_skip!();
    apply(&ns, &[]).unwrap();
    let broken: [fn() -> Faulty; 3] = [
        || Faulty {
            unlisted: Some(XtFamily::Ip6),
            ..faulty(&[], &[])
        },
        || Faulty {
            unread: Some("nat"),
            ..faulty(&[], &[])
        },
        || Faulty {
            unread: Some("mangle"),
            ..faulty(&[], &[])
        },
    ];
    for broken in broken {
        ns.run(|| {
            let sets = || Box::new(SocketSets::open().unwrap());
            let mut engine = XtEngine::with_transport(broken(), sets());
            engine.read().unwrap_err();
            engine.ruleset().unwrap_err();
            engine.drift(&desired(), &ours()).unwrap_err();
            let error = engine.apply(&desired(), &ours()).unwrap_err();
            assert_eq!(error.in_force, InForce::No, "{error}");
        })
        .unwrap();
    }
}
