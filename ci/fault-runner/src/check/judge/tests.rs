//! Observed runs with faults, and the guarantees that they break.

use super::*;
use nix::errno::Errno;
use weir_cni::compile::Engine;

fn state(nft: &str, routing: &[&str]) -> State {
    State {
        nft: nft.into(),
        legacy: "*nat\n[7:8] -A OUTPUT -j FOREIGN\n".into(),
        routing: routing.iter().map(|r| (*r).to_owned()).collect(),
        foreign: "[7:8] -A OUTPUT -j FOREIGN\n".into(),
        ..State::default()
    }
}

fn ran(end: End, stderr: &str, after: &State) -> Ran {
    Ran {
        end,
        stdout: String::new(),
        stderr: stderr.into(),
        after: after.clone(),
        is_enrolled: false,
    }
}

fn call(number: i64) -> Call {
    Call {
        number: number.unsigned_abs(),
        arguments: [9, 0, 0, 0],
    }
}

/// Judges an apply with TPROXY that failed at a `recvfrom`, followed by a successful one.
fn judged(fault: Fault, first: &Ran) -> Vec<Problem> {
    judged_as(true, &[fault], None, first)
}

fn judged_as(is_plain: bool, faults: &[Fault], other: Option<&State>, first: &Ran) -> Vec<Problem> {
    let expected = Expected {
        before: state("", &[]),
        done: state("rules", &["rule", "route"]),
        cleaned: None,
    };
    let mut done = expected.done.clone();
    if let Some(other) = other {
        done.foreign.clone_from(&other.foreign);
    }
    let second = ran(End::Exited(0), "", &done);
    let hits = faults.iter().map(|f| (call(libc::SYS_recvfrom), *f));
    let case = Case {
        scenario: Scenario {
            kind: Kind::Apply,
            engine: Engine::Nft,
            mode: Mode::Tproxy,
        },
        is_plain,
        hits: &hits.collect::<Vec<_>>(),
        expected: &expected,
        other,
        first,
        second: &second,
        third: None,
    };
    case.problems()
}

#[test]
fn what_two_faults_leave_is_named() {
    let faults = [Fault::Fail(Errno::EIO), Fault::Fail(Errno::ENOBUFS)];
    let failed = |stderr: &str, after: &State| {
        let first = ran(End::Exited(1), &format!("weir: no{stderr}"), after);
        judged_as(false, &faults, None, &first)
    };
    let left = state("", &["route"]);
    assert_eq!(failed("; besides: cannot delete the route", &left), []);
    assert_eq!(
        failed("; besides: cannot delete it", &left),
        [Problem::Unnamed]
    );
    let done = state("rules", &["rule", "route"]);
    assert_eq!(failed("; it is in force", &done), []);
    assert_eq!(failed("", &done), [Problem::Concealed]);
    let unrouted = state("rules", &["route"]);
    assert_eq!(failed("; it is in force", &unrouted), [Problem::Half]);
    assert_eq!(
        failed("; it is in force", &left),
        [Problem::Invented, Problem::Unnamed]
    );
    assert_eq!(failed("", &state("ru", &[])), [Problem::Half]);
    let mut changed = state("", &[]);
    changed.foreign.clear();
    assert_eq!(failed("", &changed), [Problem::ForeignChanged]);
}

#[test]
fn another_writer_keeps_what_it_made_and_may_be_the_last_one() {
    let (untouched, done) = (state("", &[]), state("rules", &["rule", "route"]));
    let judged =
        |other, at: &State, first: &Ran| judged_as(false, &[Fault::Other(other)], Some(at), first);
    let mut more = untouched.clone();
    more.foreign += "[0:0] -A OUTPUT -j FOREIGN2\n";
    let with_more = State {
        foreign: more.foreign.clone(),
        ..done.clone()
    };
    let good = |after: &State| ran(End::Exited(0), "", after);
    assert_eq!(judged(Other::Adds, &more, &good(&with_more)), []);
    let lost = [Problem::ForeignChanged];
    assert_eq!(judged(Other::Adds, &more, &good(&done)), lost);
    let nothing = [Problem::FalseSuccess];
    assert_eq!(judged(Other::Adds, &more, &good(&more)), nothing);
    assert_eq!(judged(Other::Cleans, &untouched, &good(&untouched)), []);
    let half = state("rules", &["rule"]);
    assert_eq!(judged(Other::Cleans, &untouched, &good(&half)), nothing);
    let failed = |stderr: &str, after: &State| {
        let first = ran(End::Exited(1), &format!("weir: no{stderr}"), after);
        judged(Other::Cleans, &untouched, &first)
    };
    assert_eq!(failed("", &untouched), []);
    assert_eq!(failed("; it is in force", &untouched), [Problem::Invented]);
    assert_eq!(failed("", &done), [Problem::Concealed]);
    assert_eq!(failed("", &half), [Problem::Half]);
    assert_eq!(failed("; it is not known whether", &half), []);
}

#[test]
fn a_failure_is_untouched_or_complete_and_says_which() {
    let (untouched, done) = (state("", &[]), state("rules", &["rule", "route"]));
    let fail = Fault::Fail(Errno::EIO);
    let failed = |stderr: &str, after: &State| {
        judged(
            fail,
            &ran(End::Exited(1), &format!("weir: no{stderr}"), after),
        )
    };
    let in_force = "; the change is in force";
    assert_eq!(failed("", &untouched), []);
    assert_eq!(failed(in_force, &untouched), [Problem::Invented]);
    assert_eq!(failed(in_force, &done), []);
    assert_eq!(
        failed("; it is not known whether the change is in force", &done),
        []
    );
    assert_eq!(
        failed("; the change is not in force", &done),
        [Problem::Concealed]
    );
    for half in [
        state("rules", &[]),
        state("rules", &["rule"]),
        state("", &["route"]),
        state("ru", &["rule", "route"]),
    ] {
        assert_eq!(failed(in_force, &half), [Problem::Half], "{half:?}");
    }
    assert_eq!(
        judged(fail, &ran(End::Exited(1), "", &untouched)),
        [Problem::NoAnswer]
    );
}

#[test]
fn a_success_is_complete() {
    let (untouched, done) = (state("", &[]), state("rules", &["rule", "route"]));
    let fail = Fault::Fail(Errno::EINTR);
    assert_eq!(judged(fail, &ran(End::Exited(0), "", &done)), []);
    assert_eq!(
        judged(fail, &ran(End::Exited(0), "", &untouched)),
        [Problem::FalseSuccess]
    );
    assert_eq!(judged(fail, &ran(End::Hung, "", &done)), [Problem::Hang]);
    let panic = ran(End::Exited(101), "weir: panicked at x", &untouched);
    assert_eq!(judged(fail, &panic), [Problem::Panic]);
    assert_eq!(
        judged(fail, &ran(End::Signaled(Signal::SIGSEGV), "", &untouched)),
        [Problem::Crash]
    );
}

#[test]
fn a_killed_process_leaves_what_is_foreign_but_for_legacy_counters() {
    let killed = |after: &State| {
        judged(
            Fault::KillAfter,
            &ran(End::Signaled(Signal::SIGKILL), "", after),
        )
    };
    let mut half = state("", &["route"]);
    assert_eq!(killed(&half), []);
    half.foreign = half.foreign.replace("[7:8]", "[0:0]");
    assert_eq!(killed(&half), []);
    half.foreign.clear();
    assert_eq!(killed(&half), [Problem::ForeignChanged]);
}

#[test]
fn one_engine_has_complete_rules_while_the_other_takes_over() {
    let mut done = state("rules", &[]);
    done.legacy = "*nat\n[7:8] -A OUTPUT -j FOREIGN\n".into();
    let mut before = state("", &[]);
    before.legacy = format!("{}:ISTIO_OUTPUT - [0:0]\n", done.legacy);
    let expected = Expected {
        before,
        done,
        cleaned: None,
    };
    let second = ran(End::Exited(0), "", &expected.done);
    let judged = |after: &State| {
        let case = Case {
            scenario: Scenario {
                kind: Kind::Switch,
                engine: Engine::Nft,
                mode: Mode::Redirect,
            },
            is_plain: true,
            hits: &[(call(libc::SYS_sendto), Fault::KillBefore)],
            expected: &expected,
            other: None,
            first: &ran(End::Signaled(Signal::SIGKILL), "", after),
            second: &second,
            third: None,
        };
        case.problems()
    };
    let mut both = expected.before.clone();
    both.nft.clone_from(&expected.done.nft);
    let mut neither = expected.before.clone();
    neither.legacy.clone_from(&expected.done.legacy);
    for (after, problems) in [
        (&expected.before, &[][..]),
        (&expected.done, &[]),
        (&both, &[]),
        (&neither, &[Problem::Window]),
    ] {
        assert_eq!(judged(after), problems, "{after:?}");
    }
}
