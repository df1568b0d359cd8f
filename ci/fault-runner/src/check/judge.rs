//! Whether a run under a fault kept the promises.

use std::fmt;

use nix::sys::signal::Signal;
use serde_json::Value;

use crate::check::calls::Call;
use crate::check::fault::Fault;
use crate::check::scenario::{Kind, Scenario};
use crate::check::state::State;
use crate::check::trace::End;

/// A promise that was broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Problem {
    /// Something of another writer is not as it was.
    ForeignChanged,
    /// It failed, and the namespace is neither untouched nor complete.
    Half,
    /// It ended well, and the namespace is not complete.
    FalseSuccess,
    /// It failed, the change is in force, and the error does not say so.
    Concealed,
    /// The error says that the change is in force, and it is not.
    Invented,
    /// No engine had complete rules.
    Window,
    /// It did not end in time.
    Hang,
    /// It panicked.
    Panic,
    /// It was ended by a signal that nobody sent.
    Crash,
    /// It failed and did not say why, or not in the form that its caller reads.
    NoAnswer,
    /// The same command after it does not reach what it should.
    NotConverged,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::ForeignChanged => "a foreign object was changed",
            Self::Half => "neither untouched nor complete",
            Self::FalseSuccess => "success, but not complete",
            Self::Concealed => "the error conceals that the change is in force",
            Self::Invented => "the error says that a change is in force that is not",
            Self::Window => "no engine has complete rules",
            Self::Hang => "hangs",
            Self::Panic => "panics",
            Self::Crash => "crashes",
            Self::NoAnswer => "no answer that says why",
            Self::NotConverged => "a second run does not converge",
        })
    }
}

/// What a scenario begins with and comes to without a fault.
#[derive(Clone, Debug, Default)]
pub(crate) struct Expected {
    pub(crate) before: State,
    pub(crate) done: State,
}

/// How one run of the command ended.
#[derive(Clone, Debug)]
pub(crate) struct Ran {
    pub(crate) end: End,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
    /// What the namespace held then.
    pub(crate) after: State,
}

/// A run with a fault, and the same command after it without one.
pub(crate) struct Case<'a> {
    pub(crate) scenario: Scenario,
    pub(crate) fault: Fault,
    pub(crate) hit: Call,
    pub(crate) expected: &'a Expected,
    pub(crate) first: &'a Ran,
    pub(crate) second: &'a Ran,
}

/// What an error says about the change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Claim {
    NotInForce,
    InForce,
    Unknown,
}

impl Case<'_> {
    /// Every promise that was broken.
    pub(crate) fn problems(&self) -> Vec<Problem> {
        let mut problems = Vec::new();
        let Self { first, second, .. } = self;
        if self.may_die() && first.end != End::Exited(0) {
            return self.died();
        }
        if [first, second]
            .iter()
            .any(|run| run.after.foreign != self.expected.before.foreign)
        {
            problems.push(Problem::ForeignChanged);
        }
        if second.end != End::Exited(0) || second.after != self.expected.done {
            problems.push(Problem::NotConverged);
        }
        problems.extend(self.window());
        match first.end {
            End::Hung => problems.push(Problem::Hang),
            End::Signaled(Signal::SIGABRT) if panicked(first) => problems.push(Problem::Panic),
            End::Signaled(_) => problems.push(Problem::Crash),
            End::Exited(_) if panicked(first) => problems.push(Problem::Panic),
            End::Exited(0) if first.after == self.expected.done => {}
            End::Exited(0) => problems.push(Problem::FalseSuccess),
            // What glibc's loader ends with, before main.
            End::Exited(127) if first.after == self.expected.before => {}
            End::Exited(_) => self.failure(&mut problems),
        }
        problems
    }

    /// The process was killed, or had no memory to go on with: what it was at is left as it is.
    fn may_die(&self) -> bool {
        self.fault.kills() || self.hit.is_memory()
    }

    /// What holds whenever a process dies.
    fn died(&self) -> Vec<Problem> {
        let Expected { before, done } = self.expected;
        let mut problems: Vec<Problem> = self.window().into_iter().collect();
        let changed = |run: &Ran| {
            run.after.without_legacy_counters().foreign != before.without_legacy_counters().foreign
        };
        if changed(self.first) || changed(self.second) {
            problems.push(Problem::ForeignChanged);
        }
        let after = self.second.after.without_legacy_counters();
        if self.second.end != End::Exited(0) || after != done.without_legacy_counters() {
            problems.push(Problem::NotConverged);
        }
        if self.first.end == End::Hung {
            problems.push(Problem::Hang);
        }
        problems
    }

    /// While one engine takes over from the other, one of them has complete rules at every moment.
    fn window(&self) -> Option<Problem> {
        let [after, before, done] = [
            &self.first.after,
            &self.expected.before,
            &self.expected.done,
        ]
        .map(State::without_legacy_counters);
        let complete =
            |now: &str, then: &[&str], without: &str| now != without && then.contains(&now);
        let nft = complete(&after.nft, &[&before.nft, &done.nft], "");
        // The side that has none of our rules has those of others.
        let bare = match before.nft.is_empty() {
            true => &done.legacy,
            false => &before.legacy,
        };
        let legacy = complete(&after.legacy, &[&before.legacy, &done.legacy], bare);
        let is_switch = self.scenario.kind == Kind::Switch;
        (is_switch && !nft && !legacy).then_some(Problem::Window)
    }

    /// It says that it failed: is that so, and is the namespace whole?
    fn failure(&self, problems: &mut Vec<Problem>) {
        let (after, Expected { before, done }) = (&self.first.after, self.expected);
        // What could not be printed may be anything.
        let can_tell = !self.hit.answers();
        if can_tell && !self.is_answer() {
            problems.push(Problem::NoAnswer);
        }
        let claim = self.claim();
        if after == done && before != done {
            if can_tell && claim == Claim::NotInForce {
                problems.push(Problem::Concealed);
            }
        } else if after == before {
            if claim == Claim::InForce {
                problems.push(Problem::Invented);
            }
        } else if self.is_acceptable_part() {
            if can_tell && claim == Claim::NotInForce {
                problems.push(Problem::Concealed);
            }
        } else {
            problems.push(Problem::Half);
        }
    }

    /// A state between that serves traffic as a whole.
    fn is_acceptable_part(&self) -> bool {
        let (after, Expected { before, done }) = (&self.first.after, self.expected);
        let both = [&before.nft, &done.nft].contains(&&after.nft)
            && [&before.legacy, &done.legacy].contains(&&after.legacy);
        match self.scenario.kind {
            // Both engines have the same rules.
            Kind::Switch => both && self.window().is_none() && after.routing == done.routing,
            // Tear-down goes on after a failure: what could not go is left. Rules are never left without their routing.
            Kind::Clean => {
                let rules_are_gone = after.nft == done.nft && after.legacy == done.legacy;
                both && after.routing.is_subset(&before.routing)
                    && (rules_are_gone || after.routing == before.routing)
            }
            // The new rules, and routing that only the old ones needed.
            _ => {
                after.nft == done.nft
                    && after.legacy == done.legacy
                    && after.routing.is_superset(&done.routing)
                    && after
                        .routing
                        .is_subset(&before.routing.union(&done.routing).cloned().collect())
            }
        }
    }

    /// A CNI error object, or a line that names the program.
    fn is_answer(&self) -> bool {
        if !self.scenario.is_plugin() {
            return self.first.stderr.contains("weir: ");
        }
        let Ok(error) = serde_json::from_str::<Value>(&self.first.stdout) else {
            return false;
        };
        error["code"].as_u64().is_some_and(|code| code > 0)
            && error["msg"].as_str().is_some_and(|msg| !msg.is_empty())
    }

    fn claim(&self) -> Claim {
        let Ran { stdout, stderr, .. } = self.first;
        let says = |words: &str| stdout.contains(words) || stderr.contains(words);
        // A removal goes on after a failure, and then names each thing that it could not remove.
        if says("not known whether") || says("what could be removed is gone") {
            Claim::Unknown
        } else if says("in force") && !says("not in force") {
            Claim::InForce
        } else {
            Claim::NotInForce
        }
    }
}

fn panicked(run: &Ran) -> bool {
    run.stderr.contains("panicked at") || run.stdout.contains("the plugin crashed")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::scenario::Mode;
    use nix::errno::Errno;
    use weir_cni::compile::Engine;

    fn state(nft: &str, routing: &[&str]) -> State {
        State {
            nft: nft.into(),
            legacy: "*nat\n[7:8] -A OUTPUT -j FOREIGN\n".into(),
            routing: routing.iter().map(|r| (*r).to_owned()).collect(),
            foreign: "[7:8] -A OUTPUT -j FOREIGN\n".into(),
        }
    }

    fn ran(end: End, stderr: &str, after: &State) -> Ran {
        Ran {
            end,
            stdout: String::new(),
            stderr: stderr.into(),
            after: after.clone(),
        }
    }

    /// Of an apply with TPROXY that failed at a `recvfrom`, and then succeeded.
    fn judged(fault: Fault, first: &Ran) -> Vec<Problem> {
        let expected = Expected {
            before: state("", &[]),
            done: state("rules", &["rule", "route"]),
        };
        let second = ran(End::Exited(0), "", &expected.done);
        let case = Case {
            scenario: Scenario {
                kind: Kind::Apply,
                engine: Engine::Nft,
                mode: Mode::Tproxy,
            },
            fault,
            hit: Call {
                number: libc::SYS_recvfrom.unsigned_abs(),
                arguments: [9, 0, 0, 0],
            },
            expected: &expected,
            first,
            second: &second,
        };
        case.problems()
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
        let expected = Expected { before, done };
        let second = ran(End::Exited(0), "", &expected.done);
        let judged = |after: &State| {
            let case = Case {
                scenario: Scenario {
                    kind: Kind::Switch,
                    engine: Engine::Nft,
                    mode: Mode::Redirect,
                },
                fault: Fault::KillBefore,
                hit: Call {
                    number: libc::SYS_sendto.unsigned_abs(),
                    arguments: [9, 0, 0, 0],
                },
                expected: &expected,
                first: &ran(End::Signaled(Signal::SIGKILL), "", after),
                second: &second,
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
}
