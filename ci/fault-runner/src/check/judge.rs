//! Whether a run under a fault kept the promises.

use std::collections::BTreeSet;
use std::fmt;

use nix::sys::signal::Signal;
use serde_json::Value;

use crate::check::calls::Call;
use crate::check::fault::{Fault, Other};
use crate::check::scenario::{Kind, Mode, Scenario};
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
    /// Something is left that the error does not name.
    Unnamed,
    /// `weir clean` leaves something.
    Left,
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
            Self::Unnamed => "the error does not name what is left",
            Self::Left => "clean leaves something",
        })
    }
}

/// What a scenario begins with and comes to without a fault.
#[derive(Clone, Debug, Default)]
pub(crate) struct Expected {
    pub(crate) before: State,
    pub(crate) done: State,
    /// After `weir clean`, where that removes it.
    pub(crate) cleaned: Option<State>,
}

/// How one run of the command ended.
#[derive(Clone, Debug)]
pub(crate) struct Ran {
    pub(crate) end: End,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
    /// What the namespace held then.
    pub(crate) after: State,
    /// The agent was told of the pod.
    pub(crate) is_enrolled: bool,
}

/// A run with a fault, and the same command after it without one.
pub(crate) struct Case<'a> {
    pub(crate) scenario: Scenario,
    /// There was one fault of one call.
    pub(crate) is_plain: bool,
    pub(crate) hits: &'a [(Call, Fault)],
    pub(crate) expected: &'a Expected,
    /// What there was when another writer had acted.
    pub(crate) other: Option<&'a State>,
    pub(crate) first: &'a Ran,
    pub(crate) second: &'a Ran,
    /// `weir clean` after it.
    pub(crate) third: Option<&'a Ran>,
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
        if self.other.is_some() {
            return self.beside();
        }
        if !self.is_plain {
            return self.several();
        }
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
        problems.extend(self.ending());
        match first.end {
            _ if !problems.is_empty() => {}
            End::Exited(0) if first.after == self.expected.done && self.is_told() => {}
            End::Exited(0) => problems.push(Problem::FalseSuccess),
            End::Hung | End::Signaled(_) => {}
            // What glibc's loader ends with, before main.
            End::Exited(127) if first.after == self.expected.before => {}
            End::Exited(_) => self.failure(&mut problems),
        }
        problems
    }

    /// The process was killed, or had no memory to go on with: what it was at is left as it is.
    fn may_die(&self) -> bool {
        let mut hits = self.hits.iter();
        hits.any(|(call, fault)| fault.kills() || call.is_memory())
    }

    /// An end that no fault excuses.
    fn ending(&self) -> Option<Problem> {
        match self.first.end {
            End::Hung => Some(Problem::Hang),
            End::Exited(_) | End::Signaled(Signal::SIGABRT) if panicked(self.first) => {
                Some(Problem::Panic)
            }
            End::Signaled(_) => Some(Problem::Crash),
            End::Exited(_) => None,
        }
    }

    /// The agent knows of the pod that was handed over.
    fn is_told(&self) -> bool {
        !self.scenario.is_handed_over() || self.first.is_enrolled
    }

    /// What could not be printed may be anything.
    fn can_tell(&self) -> bool {
        !self.hits.iter().any(|(call, _)| call.answers())
    }

    /// What holds whenever a process dies.
    fn died(&self) -> Vec<Problem> {
        let Expected { before, done, .. } = self.expected;
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
        let programs = complete(&after.programs, &[&done.programs], "");
        let is_switch = self.scenario.kind == Kind::Switch;
        (is_switch && !nft && !legacy && !programs).then_some(Problem::Window)
    }

    /// It says that it failed: is that so, and is the namespace whole?
    fn failure(&self, problems: &mut Vec<Problem>) {
        let (after, Expected { before, done, .. }) = (&self.first.after, self.expected);
        let can_tell = self.can_tell();
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

    /// Whether the rules and programs are those of another state.
    fn rules_are(&self, other: &State) -> bool {
        let after = &self.first.after;
        (&after.nft, &after.legacy, &after.programs) == (&other.nft, &other.legacy, &other.programs)
    }

    /// A state between that serves traffic as a whole.
    fn is_acceptable_part(&self) -> bool {
        let (after, Expected { before, done, .. }) = (&self.first.after, self.expected);
        let both = [&before.nft, &done.nft].contains(&&after.nft)
            && [&before.legacy, &done.legacy].contains(&&after.legacy)
            && [&before.programs, &done.programs].contains(&&after.programs);
        match self.scenario.kind {
            // Both engines have the same rules.
            Kind::Switch => both && self.window().is_none() && after.routing == done.routing,
            // Tear-down goes on after a failure: what could not go is left. Rules are never left without their routing.
            Kind::Clean if matches!(self.scenario.mode, Mode::Node | Mode::Ebpf) => {
                self.claim() == Claim::Unknown
            }
            // One line after another.
            Kind::RestoreSets => self.claim() == Claim::Unknown && after.routing == done.routing,
            Kind::Clean => {
                let rules_are_gone = self.rules_are(done);
                both && after.routing.is_subset(&before.routing)
                    && (rules_are_gone || after.routing == before.routing)
            }
            // The new rules, and routing that only the old ones needed.
            _ => {
                self.rules_are(done)
                    && after.routing.is_superset(&done.routing)
                    && after
                        .routing
                        .is_subset(&before.routing.union(&done.routing).cloned().collect())
            }
        }
    }

    /// After more than one fault. What could not be undone may be left, and the error says so.
    fn several(&self) -> Vec<Problem> {
        let mut problems = Vec::new();
        let Expected { before, done, .. } = self.expected;
        let [after, before, done, second] = [&self.first.after, before, done, &self.second.after]
            .map(State::without_legacy_counters);
        if after.foreign != before.foreign || second.foreign != before.foreign {
            problems.push(Problem::ForeignChanged);
        }
        if self.second.end != End::Exited(0) || second != done {
            problems.push(Problem::NotConverged);
        }
        problems.extend(self.left());
        problems.extend(self.window());
        if self.may_die() && self.first.end != End::Exited(0) {
            return problems;
        }
        problems.extend(self.ending());
        match self.first.end {
            End::Exited(0) if after == done && self.is_told() => {}
            End::Exited(0) => problems.push(Problem::FalseSuccess),
            End::Exited(127) if after == before => {}
            End::Exited(_) => self.told(&after, &before, &done, &mut problems),
            End::Hung | End::Signaled(_) => {}
        }
        problems
    }

    /// Whether the error says what is there now.
    fn told(&self, after: &State, before: &State, done: &State, problems: &mut Vec<Problem>) {
        if !self.can_tell() {
            return;
        }
        if !self.is_answer() {
            problems.push(Problem::NoAnswer);
        }
        let claim = self.claim();
        let says =
            |words: &str| self.first.stdout.contains(words) || self.first.stderr.contains(words);
        if matches!(self.scenario.mode, Mode::Node | Mode::Ebpf) {
            let has_programs = !done.programs.is_empty() && after.programs == done.programs;
            // Objects of two namespaces or of two kinds, and no routing that is without effect alone.
            problems.extend(match claim {
                Claim::NotInForce if after == done && before != done => Some(Problem::Concealed),
                // Rules may be there beside the programs.
                Claim::InForce if after != done && !has_programs => Some(Problem::Invented),
                Claim::NotInForce if after != before && !says("besides") => Some(Problem::Half),
                _ => None,
            });
            return;
        }
        let rules_of = |other: &State| {
            let programs = after.programs == other.programs;
            after.nft == other.nft && after.legacy == other.legacy && programs
        };
        let is_whole = |other: &State| after.routing.is_superset(&other.routing);
        if rules_of(before) {
            // Nothing needs the routing that a removal takes after rules that went before.
            let is_old = before.nft.is_empty() || self.scenario.kind == Kind::Clean;
            if claim == Claim::InForce && !rules_of(done) {
                problems.push(Problem::Invented);
            }
            if !is_whole(before) && (!is_old || !rules_of(done)) {
                problems.push(Problem::Half);
            }
        } else if rules_of(done) {
            if claim == Claim::NotInForce {
                problems.push(Problem::Concealed);
            }
            if !is_whole(done) {
                problems.push(Problem::Half);
            }
        } else if claim == Claim::NotInForce {
            problems.push(Problem::Half);
        }
        let expected: BTreeSet<_> = match rules_of(done) {
            true => before.routing.union(&done.routing).cloned().collect(),
            false => before.routing.clone(),
        };
        let is_named = |item: &String| says(item.split('\t').next().unwrap_or(item));
        if claim != Claim::Unknown && !after.routing.difference(&expected).all(is_named) {
            problems.push(Problem::Unnamed);
        }
    }

    /// What another writer makes is its own; what it takes is made again, or an error says that it is not there.
    fn beside(&self) -> Vec<Problem> {
        let mut problems: Vec<Problem> = self.ending().into_iter().collect();
        let Some(other) = self.other else {
            return problems;
        };
        let Expected { before, done, .. } = self.expected;
        let [after, second, at] =
            [&self.first.after, &self.second.after, other].map(State::without_legacy_counters);
        if after.foreign != at.foreign || second.foreign != at.foreign {
            problems.push(Problem::ForeignChanged);
        }
        let [after, second, at, before, done] =
            [&after, &second, &at, before, done].map(State::ours);
        if self.second.end != End::Exited(0) || second != done {
            problems.push(Problem::NotConverged);
        }
        problems.extend(self.left());
        // What another installer of the same kind adds to the routing is its own matter until its rules are there, too.
        let applies = self
            .hits
            .iter()
            .any(|(_, f)| *f == Fault::Other(Other::Applies));
        let all = done.routing.union(&at.routing).cloned().collect();
        let is_done = |now: &State| {
            *now == done
                || applies
                    && now.nft == done.nft
                    && now.legacy == done.legacy
                    && now.routing.is_superset(&done.routing)
                    && now.routing.is_subset(&all)
        };
        // The last one to write may have been the other.
        let is_last = self
            .hits
            .iter()
            .all(|(_, f)| *f != Fault::Other(Other::Adds))
            && after == at;
        match self.first.end {
            End::Exited(0) if (is_done(&after) || is_last) && self.is_told() => {}
            End::Exited(0) => problems.push(Problem::FalseSuccess),
            End::Exited(_) => {
                if !self.is_answer() {
                    problems.push(Problem::NoAnswer);
                }
                match self.claim() {
                    Claim::Unknown => {}
                    Claim::InForce if after == done => {}
                    Claim::InForce => problems.push(Problem::Invented),
                    Claim::NotInForce if after == done && before != done => {
                        problems.push(Problem::Concealed);
                    }
                    Claim::NotInForce if after == before || after == at => {}
                    Claim::NotInForce => problems.push(Problem::Half),
                }
            }
            End::Hung | End::Signaled(_) => {}
        }
        problems
    }

    /// What `weir clean` leaves.
    fn left(&self) -> Option<Problem> {
        let (third, cleaned) = (self.third?, self.expected.cleaned.as_ref()?);
        let is_clean = third.end == End::Exited(0) && third.after.ours() == cleaned.ours();
        (!is_clean).then_some(Problem::Left)
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
        // A removal goes on after a failure, and then names each thing that it could not remove; sets are one line after another.
        if [
            "not known whether",
            "what could be removed is gone",
            "the lines before it are in force",
        ]
        .into_iter()
        .any(says)
        {
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
mod tests;
