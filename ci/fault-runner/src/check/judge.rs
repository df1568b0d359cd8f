//! Decides whether a run with a fault kept weir's guarantees.

use std::collections::BTreeSet;
use std::fmt;

use nix::sys::signal::Signal;
use serde_json::Value;

use crate::check::calls::Call;
use crate::check::fault::{Fault, Other};
use crate::check::scenario::{Kind, Mode, Scenario};
use crate::check::state::State;
use crate::check::trace::End;

/// A guarantee that was broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Problem {
    /// An object of another writer changed.
    ForeignChanged,
    /// The command failed, and the namespace is neither unchanged nor complete.
    Half,
    /// The command succeeded, but the namespace is not complete.
    FalseSuccess,
    /// The command failed and the change is in force, but the error does not state that.
    Concealed,
    /// The error states that the change is in force, but it is not.
    Invented,
    /// No engine had complete rules.
    Window,
    /// The command exceeded the deadline.
    Hang,
    /// The command panicked.
    Panic,
    /// A signal ended the command that nobody sent.
    Crash,
    /// The command failed without an error, or not in the form that its caller parses.
    NoAnswer,
    /// The same command without a fault, run afterwards, does not reach the desired state.
    NotConverged,
    /// An object is left that the error does not name.
    Unnamed,
    /// `weir clean` leaves an object.
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

/// The states of a scenario before and after the command without a fault.
#[derive(Clone, Debug, Default)]
pub(crate) struct Expected {
    pub(crate) before: State,
    pub(crate) done: State,
    /// The state after `weir clean`, if that removes the change.
    pub(crate) cleaned: Option<State>,
}

/// The result of one run of the command.
#[derive(Clone, Debug)]
pub(crate) struct Ran {
    pub(crate) end: End,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
    /// The state of the namespace afterwards.
    pub(crate) after: State,
    /// Whether the agent was notified of the pod.
    pub(crate) is_enrolled: bool,
}

/// A run with a fault, followed by the same command without one.
pub(crate) struct Case<'a> {
    pub(crate) scenario: Scenario,
    /// Whether the case has a single fault of one call.
    pub(crate) is_plain: bool,
    pub(crate) hits: &'a [(Call, Fault)],
    pub(crate) expected: &'a Expected,
    /// The state after the action of another writer.
    pub(crate) other: Option<&'a State>,
    pub(crate) first: &'a Ran,
    pub(crate) second: &'a Ran,
    /// The run of `weir clean` afterwards.
    pub(crate) third: Option<&'a Ran>,
}

/// What an error states about the change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Claim {
    NotInForce,
    InForce,
    Unknown,
}

impl Case<'_> {
    /// Returns every guarantee that was broken.
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
            // The exit status of glibc's loader if it fails before main.
            End::Exited(127) if first.after == self.expected.before => {}
            End::Exited(_) => self.failure(&mut problems),
        }
        problems
    }

    /// Whether the process was killed or had no memory: it may then leave an intermediate state.
    fn may_die(&self) -> bool {
        let mut hits = self.hits.iter();
        hits.any(|(call, fault)| fault.kills() || call.is_memory())
    }

    /// A kind of end that no fault justifies.
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

    /// Whether the agent was notified, if the pod was to be handed over.
    fn is_told(&self) -> bool {
        !self.scenario.is_handed_over() || self.first.is_enrolled
    }

    /// Whether the output is meaningful: no fault affected a write to stdout or stderr.
    fn can_tell(&self) -> bool {
        !self.hits.iter().any(|(call, _)| call.answers())
    }

    /// The guarantees that hold even if the process dies.
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

    /// Checks that one engine has complete rules at every moment while another takes over.
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
        // The legacy tables without our rules still contain the foreign ones.
        let bare = match before.nft.is_empty() {
            true => &done.legacy,
            false => &before.legacy,
        };
        let legacy = complete(&after.legacy, &[&before.legacy, &done.legacy], bare);
        let programs = complete(&after.programs, &[&done.programs], "");
        let is_switch = self.scenario.kind == Kind::Switch;
        (is_switch && !nft && !legacy && !programs).then_some(Problem::Window)
    }

    /// Checks a failed run: whether the error is true, and whether the namespace is consistent.
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

    /// Whether the rules and programs equal those of another state.
    fn rules_are(&self, other: &State) -> bool {
        let after = &self.first.after;
        (&after.nft, &after.legacy, &after.programs) == (&other.nft, &other.legacy, &other.programs)
    }

    /// Whether the state is an intermediate one in which traffic is served consistently.
    fn is_acceptable_part(&self) -> bool {
        let (after, Expected { before, done, .. }) = (&self.first.after, self.expected);
        let both = [&before.nft, &done.nft].contains(&&after.nft)
            && [&before.legacy, &done.legacy].contains(&&after.legacy)
            && [&before.programs, &done.programs].contains(&&after.programs);
        match self.scenario.kind {
            // Both engines may have the rules at the same time.
            Kind::Switch => both && self.window().is_none() && after.routing == done.routing,
            // Removal continues after a failure and leaves only what could not be removed. Rules never remain without their routing.
            Kind::Clean if matches!(self.scenario.mode, Mode::Node | Mode::Ebpf) => {
                self.claim() == Claim::Unknown
            }
            // The lines of the file are applied one by one.
            Kind::RestoreSets => self.claim() == Claim::Unknown && after.routing == done.routing,
            Kind::Clean => {
                let rules_are_gone = self.rules_are(done);
                both && after.routing.is_subset(&before.routing)
                    && (rules_are_gone || after.routing == before.routing)
            }
            // The new rules, with routing that only the old ones needed.
            _ => {
                self.rules_are(done)
                    && after.routing.is_superset(&done.routing)
                    && after
                        .routing
                        .is_subset(&before.routing.union(&done.routing).cloned().collect())
            }
        }
    }

    /// Checks a case with several faults. Objects that could not be undone may be left if the error names them.
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

    /// Checks whether the error describes the present state.
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
            // The change spans two namespaces or two kinds of objects, and its routing has an effect even without the rules.
            problems.extend(match claim {
                Claim::NotInForce if after == done && before != done => Some(Problem::Concealed),
                // The rules may still exist in addition to the programs.
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
            // A removal deletes the rules first, so no rules need the routing that it deletes afterwards.
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

    /// Checks a case with another writer. Its objects must stay; ours that it removed must be restored, or an error must
    /// state that they are missing.
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
        // Until its rules exist, too, routing that another installer of the same kind added is not weir's to remove.
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
        // The other writer may have acted last.
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

    /// Checks that `weir clean` removes everything.
    fn left(&self) -> Option<Problem> {
        let (third, cleaned) = (self.third?, self.expected.cleaned.as_ref()?);
        let is_clean = third.end == End::Exited(0) && third.after.ours() == cleaned.ours();
        (!is_clean).then_some(Problem::Left)
    }

    /// Whether the output is a CNI error object, or for `weir` a line with the name of the program.
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
        // Removal continues after a failure and names each object that it could not remove; sets are restored line by line.
        if [
            "not known whether",
            "unknown whether",
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
