//! Every send and receive fails, answers are lost, other writers interfere, and answers are hostile.
//!
//! The outcome is an error or success, the ruleset is completely the old or the new one, other tables stay as they are, and the same engine
//! works again afterwards.

use crate::common;
use crate::fits_or_skip;
mod around;
mod elements;
use weir_testing::effort;
use weir_testing::namespace_or_skip;
mod hostile;
mod owner;
mod reading;
mod scene;
mod transport;

use self::scene::{foreign_bytes, held, new, old, owned, prepared, redirect, rules, table};
use self::transport::{Fault, Plan, faulty};
use crate::common::owned_of;
use std::rc::Rc;
use weir_netfilter::nft::{
    Data, DataType, Element, NftEngine, Rule, Ruleset, Set, Table, TableFamily, raw,
};
use weir_netlink::contention::CONTENTION;
use weir_netlink::nfnetlink::{NFNL_MSG_BATCH_BEGIN, NFNL_SUBSYS_NFTABLES, message_type};
use weir_netlink::{Error, ErrorKind, InForce, Netns};

/// The number of calls of an apply without faults.
fn calls(ns: &Netns) -> usize {
    ns.run(|| {
        let plan = Rc::new(Plan::new(None));
        faulty(&plan).apply(&new(), &owned()).unwrap();
        plan.calls.get()
    })
    .unwrap()
}

const ERRNOS: &[i32] = &[
    libc::EPERM,
    libc::ENOBUFS,
    libc::EINTR,
    libc::EMSGSIZE,
    libc::ECONNREFUSED,
    libc::ENOMEM,
    libc::EAGAIN,
    libc::EIO,
    libc::ETIMEDOUT,
];

/// Commits wait for the other processors, so several namespaces at once take no longer than one.
const WORKERS: usize = 8;

#[test]
fn every_call_fails_in_every_way() {
    let _probe = namespace_or_skip!();
    let total = calls(&prepared());
    assert!(total > 20, "only {total} calls");
    // Every call, unless PROPTEST_CASES limits the number.
    let chosen: Vec<usize> = (0..total).step_by(effort::stride(total)).collect();
    let chosen = &chosen;
    let work = |first: usize| {
        move || {
            let mine = chosen.iter().skip(first).step_by(WORKERS);
            mine.map(|at| call_fails(*at)).sum::<usize>()
        }
    };
    let failed: usize = std::thread::scope(|s| {
        let workers: Vec<_> = (0..WORKERS).map(|first| s.spawn(work(first))).collect();
        workers.into_iter().map(|w| w.join().unwrap()).sum()
    });
    let made = chosen.len() * FAULTS;
    assert!(
        failed > made / 5 && failed < made,
        "{failed} of {made} failed"
    );
}

/// Lets the n-th call fail in every way. Returns how many of these were errors to the caller.
fn call_fails(at: usize) -> usize {
    let ns = prepared();
    let foreign = ns.run(foreign_bytes).unwrap();
    let instead = ERRNOS.iter().map(|n| Fault::Instead(*n));
    // EINTR and the other errors mean that the kernel took nothing; these two may follow a processed request.
    let after = [libc::ENOBUFS, libc::ENOMEM].map(Fault::After);
    let faults: Vec<Fault> = instead.chain(after).collect();
    assert_eq!(faults.len(), FAULTS);
    let failed = faults
        .into_iter()
        .filter(|fault| !is_survived(&ns, at, *fault))
        .count();
    assert!(
        ns.run(foreign_bytes).unwrap() == foreign,
        "call {at}: another table changed"
    );
    failed
}

const FAULTS: usize = 11;

/// Whether the change succeeded in spite of the fault.
fn is_survived(ns: &Netns, at: usize, fault: Fault) -> bool {
    let text = format!("call {at}, {fault:?}");
    let go = || {
        NftEngine::open().unwrap().apply(&old(), &owned()).unwrap();
        let plan = Rc::new(Plan::new(Some((at, fault))));
        let mut engine = faulty(&plan);
        let outcome = engine.apply(&new(), &owned());
        let now = held(ns);
        match &outcome {
            Ok(_) => assert_eq!(now, rules(&new()), "{text}"),
            Err(e) => {
                // With a single fault, the engine finds out the result on a new socket.
                let true_of = match e.in_force {
                    InForce::No => rules(&old()),
                    InForce::Yes => rules(&new()),
                    InForce::Unknown => panic!("{text}: {e}"),
                };
                assert_eq!(now, true_of, "{text}: {e}");
                assert!(e.to_string().len() > 20, "{text}: {e}");
            }
        }
        // The same engine, whatever answers were left unread.
        engine
            .apply(&new(), &owned())
            .unwrap_or_else(|e| panic!("{text}, then: {e}"));
        assert_eq!(held(ns), rules(&new()), "{text}");
        assert_eq!(
            engine.apply(&new(), &owned()).unwrap().ops,
            vec![],
            "{text}"
        );
        outcome.is_ok()
    };
    ns.run(go).unwrap()
}

/// While a dump is incomplete, the kernel starts no other one on that socket.
#[test]
fn a_dump_that_was_left_half_read_does_not_stop_the_next() {
    let _probe = namespace_or_skip!();
    let ns = prepared();
    let mut big = Table::new(TableFamily::Inet, "big");
    let mut set = Set::new("s", DataType::IPV4_ADDR, 4);
    set.elements = (0..6_000).map(|n| Element::value(Data::be32(n))).collect();
    big.sets.push(set);
    let big = Ruleset { tables: vec![big] };
    fits_or_skip!(&ns, &big);
    common::apply(&ns, &big).unwrap();
    ns.run(|| {
        let quiet = Rc::new(Plan::new(None));
        let whole = faulty(&quiet).read().unwrap();
        assert!(
            quiet.calls.get() > 20,
            "{} calls: the dump is too short",
            quiet.calls.get()
        );
        for at in (0..quiet.calls.get()).step_by(3) {
            let plan = Rc::new(Plan::new(Some((at, Fault::Instead(libc::ENOMEM)))));
            let mut engine = faulty(&plan);
            assert_eq!(engine.read().unwrap_err().errno(), Some(libc::ENOMEM));
            assert!(
                engine
                    .read()
                    .unwrap_or_else(|e| panic!("after call {at}: {e}"))
                    == whole
            );
        }
    })
    .unwrap();
}

/// The acknowledgement is lost after the commit, and the engine cannot open another socket.
#[test]
fn without_a_second_socket_it_is_not_known_what_became_of_a_commit() {
    let _probe = namespace_or_skip!();
    let ns = prepared();
    ns.run(|| {
        let quiet = Rc::new(Plan::new(None));
        faulty(&quiet).apply(&new(), &owned()).unwrap();
        // The answer to the only batch that changes something.
        let at = quiet.batch_at.get().expect("a batch") + 1;
        for is_last in [true, false] {
            NftEngine::open().unwrap().apply(&old(), &owned()).unwrap();
            let plan = Rc::new(Plan::new(Some((at, Fault::After(libc::ENOBUFS)))));
            plan.is_last.set(is_last);
            let outcome = faulty(&plan).apply(&new(), &owned());
            match is_last {
                true => assert_eq!(outcome.unwrap_err().in_force, InForce::Unknown),
                false => assert_eq!(outcome.unwrap().ops.len(), 3),
            }
            assert_eq!(held(&ns), rules(&new()));
        }
    })
    .unwrap();
}

#[test]
fn a_table_that_is_not_owned_is_refused() {
    let ns = namespace_or_skip!();
    let error = ns.run(|| NftEngine::open().unwrap().apply(&new(), &[]));
    let error = error.unwrap().unwrap_err();
    let text = error.to_string();
    assert!(text.contains("name it there too"), "{text}");
    assert_eq!(error.in_force, InForce::No);
    let found = ns.run(|| NftEngine::open().unwrap().tables().unwrap());
    assert_eq!(found.unwrap(), vec![]);
}

#[test]
fn a_refused_batch_changes_nothing() {
    let _probe = namespace_or_skip!();
    let ns = prepared();
    let before = ns.run(foreign_bytes).unwrap();
    let mut desired = new();
    desired.tables[0].chains[0]
        .rules
        .push(Rule::builder().jump("nowhere"));
    let error = ns
        .run(|| {
            NftEngine::open()
                .unwrap()
                .apply(&desired, &owned())
                .unwrap_err()
        })
        .unwrap();
    assert!(error.is_not_found(), "{error}");
    assert!(error.to_string().contains("nowhere"), "{error}");
    assert_eq!(held(&ns), rules(&old()));
    assert!(ns.run(foreign_bytes).unwrap() == before);
}

/// Another writer commits twice at the worst moment.
fn interfere() {
    let desired = table(&[redirect(7, 7)]);
    let mut other = desired.clone();
    other.tables[0].name = "other".to_owned();
    let id = owned_of(&other);
    let mut engine = NftEngine::open().unwrap();
    engine.apply(&other, &id).unwrap();
    engine.apply(&Ruleset::default(), &id).unwrap();
}

#[test]
fn a_stale_generation_is_tried_again() {
    let _probe = namespace_or_skip!();
    let ns = prepared();
    ns.run(|| {
        let plan = Rc::new(Plan::new(None));
        *plan.before_batch.borrow_mut() = Box::new(|n| {
            if n < 3 {
                interfere()
            }
        });
        faulty(&plan).apply(&new(), &owned()).unwrap();
        assert_eq!(plan.batches.get(), 4);
    })
    .unwrap();
    assert_eq!(held(&ns), rules(&new()));
}

fn is_given_up(e: &Error) -> bool {
    matches!(e.kind, ErrorKind::Exhausted(_))
}

/// The generation counts the commits to all tables: a commit before every batch and every answer must not delay this apply forever.
#[test]
fn a_busy_writer_of_another_table_does_not_stop_an_apply() {
    let _probe = namespace_or_skip!();
    let ns = prepared();
    let foreign = ns.run(foreign_bytes).unwrap();
    ns.run(|| {
        let plan = Rc::new(Plan::new(None));
        *plan.before_batch.borrow_mut() = Box::new(|_| interfere());
        faulty(&plan).apply(&new(), &owned()).unwrap();
        assert!(plan.batches.get() < 20, "{} batches", plan.batches.get());
        let plan = Rc::new(Plan::new(None));
        *plan.before_batch.borrow_mut() = Box::new(|_| interfere());
        *plan.received.borrow_mut() = Box::new(|_, _| interfere());
        faulty(&plan).apply(&old(), &owned()).unwrap();
        assert_eq!(faulty(&plan).drift(&old(), &owned()).unwrap().ops, []);
    })
    .unwrap();
    assert_eq!(held(&ns), rules(&old()));
    assert!(ns.run(foreign_bytes).unwrap() == foreign);
}

/// Appends a rule to the owned chain.
fn meddle() {
    let mut other = new();
    other.tables[0].chains[0].rules.push(redirect(7, 7));
    NftEngine::open().unwrap().apply(&other, &owned()).unwrap();
}

#[test]
fn what_another_writer_does_to_our_table_after_the_commit_is_undone() {
    let _probe = namespace_or_skip!();
    let ns = prepared();
    ns.run(|| {
        let quiet = Rc::new(Plan::new(None));
        faulty(&quiet).apply(&new(), &owned()).unwrap();
        let answer = quiet.answered.get().expect("a batch");
        NftEngine::open().unwrap().apply(&old(), &owned()).unwrap();
        let plan = Rc::new(Plan::new(None));
        *plan.received.borrow_mut() = Box::new(move |n, _| {
            if n == answer {
                meddle();
            }
        });
        let applied = faulty(&plan).apply(&new(), &owned()).unwrap();
        assert_eq!(plan.batches.get(), 2);
        assert_eq!(applied.ops.len(), 4, "{:?}", applied.ops);
    })
    .unwrap();
    assert_eq!(held(&ns), rules(&new()));
}

#[test]
fn a_writer_who_never_leaves_our_table_alone_is_named_in_time() {
    let _probe = namespace_or_skip!();
    let ns = prepared();
    ns.run(|| {
        let begun = std::time::Instant::now();
        let plan = Rc::new(Plan::new(None));
        *plan.received.borrow_mut() = Box::new(|n, _| {
            let rule = redirect(u16::try_from(n % 60_000).unwrap() + 7, 7);
            let meddled = table(&[rule]);
            NftEngine::open()
                .unwrap()
                .apply(&meddled, &owned())
                .unwrap();
        });
        let mut engine = faulty(&plan).contention(std::time::Duration::from_millis(300));
        let error = engine.apply(&new(), &owned()).unwrap_err();
        assert!(is_given_up(&error), "{error}");
        assert!(error.to_string().contains("another writer"), "{error}");
        // This setting applies instead of the default limit.
        assert!(begun.elapsed() < CONTENTION);
    })
    .unwrap();
}

/// Sets `NLM_F_DUMP_INTR` on the objects of a dump.
fn interrupt(datagram: &mut [u8]) {
    let kind = u16::from_ne_bytes([datagram[4], datagram[5]]);
    if kind >> 8 == NFNL_SUBSYS_NFTABLES {
        datagram[6] |= 0x10;
    }
}

#[test]
fn an_interrupted_dump_is_read_again() {
    let _probe = namespace_or_skip!();
    let ns = prepared();
    ns.run(|| {
        let plan = Rc::new(Plan::new(None));
        *plan.received.borrow_mut() = Box::new(|n, d| {
            if n < 20 {
                interrupt(d)
            }
        });
        faulty(&plan).apply(&new(), &owned()).unwrap();
        // The dump is interrupted each time, but contains the same each time: so the owned tables were read consistently.
        let plan = Rc::new(Plan::new(None));
        *plan.received.borrow_mut() = Box::new(|_, d| interrupt(d));
        faulty(&plan).apply(&old(), &owned()).unwrap();
        assert!(
            plan.datagrams.get() < 100,
            "{} datagrams",
            plan.datagrams.get()
        );
    })
    .unwrap();
    assert_eq!(held(&ns), rules(&old()));
}

/// A commit increments the generation before its changes are in force.
///
/// Dumps do not wait for the commit, but a batch does, even one that changes nothing.
#[test]
fn a_commit_that_is_under_way_is_waited_for_before_the_dumps() {
    let _probe = namespace_or_skip!();
    let ns = prepared();
    let nft = |message| message_type(NFNL_SUBSYS_NFTABLES, message);
    let begins = [
        nft(raw::NFT_MSG_GETGEN),
        NFNL_MSG_BATCH_BEGIN,
        nft(raw::NFT_MSG_GETTABLE),
    ];
    ns.run(|| {
        let plan = Rc::new(Plan::new(None));
        faulty(&plan).read().unwrap();
        assert_eq!(plan.sent.borrow()[..3], begins);
        // A repeated dump also waits first.
        let plan = Rc::new(Plan::new(None));
        *plan.received.borrow_mut() = Box::new(|n, _| {
            if n == 1 {
                interfere();
            }
        });
        faulty(&plan).read().unwrap();
        let sent = plan.sent.borrow();
        let again = sent[1..].iter().rposition(|kind| *kind == begins[1]);
        let again = again.expect("a second wait");
        assert_eq!(sent[again..again + 3], begins);
        assert!(again > 3, "{sent:?}");
    })
    .unwrap();
}

#[test]
fn two_writers_at_once_both_succeed() {
    let _probe = namespace_or_skip!();
    let ns = prepared();
    let before = ns.run(foreign_bytes).unwrap();
    let work = |name: &'static str| {
        let ns = &ns;
        move || {
            let mut desired = new();
            desired.tables[0].name = name.to_owned();
            let owned = owned_of(&desired);
            ns.run(|| {
                let mut engine = NftEngine::open().unwrap();
                for _ in 0..25 {
                    // Under constant contention the engine may give up. It reports that, and changes nothing by halves.
                    for r in [&desired, &Ruleset::default()] {
                        match engine.apply(r, &owned) {
                            Ok(_) => {}
                            Err(e) if is_given_up(&e) => {}
                            Err(e) => panic!("{name}: {e}"),
                        }
                    }
                }
                engine.apply(&Ruleset::default(), &owned)
            })
            .unwrap()
        }
    };
    std::thread::scope(|s| {
        let threads = [s.spawn(work("weir-a")), s.spawn(work("weir-b"))];
        for t in threads {
            let _ = t.join().unwrap();
        }
    });
    for name in ["weir-a", "weir-b"] {
        let id = vec![(TableFamily::Inet, name.to_owned())];
        ns.run(|| {
            NftEngine::open()
                .unwrap()
                .apply(&Ruleset::default(), &id)
                .unwrap()
        })
        .unwrap();
    }
    assert!(ns.run(foreign_bytes).unwrap() == before);
}
