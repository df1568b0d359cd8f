//! Ways to redirect pods. A [`Dataplane`] computes the desired state of a pod, reads the actual state of its network namespace, plans
//! the difference without a kernel, and writes it; [`converge`] does all of this in one visit to the network namespace.

pub(crate) mod ambient;
pub(crate) mod programs;
pub(crate) mod sidecar;

use std::time::{Duration, Instant};
use weir_cni::compile::Compiled;
use weir_cni::plugin::{Phase, Phases};
use weir_cni::redirection::{Change, Fingerprint, Sandbox, Scheme, Visit};
use weir_core::journal::pod::{Cause, Event, Repair};
use weir_core::pods::PodView;
use weir_core::sandboxes::Sandboxes;
use weir_core::sandboxes::place::Identity;
use weir_netlink::NetnsId;

/// One way to redirect pods.
pub(crate) trait Dataplane: Send + Sync + 'static {
    /// The kind of redirection.
    const SCHEME: &'static Scheme;

    /// The desired state of a pod; equal values need the same rules.
    type Desired: Clone + PartialEq + Send + Sync + 'static;
    /// The actual state of a network namespace, compared with the desired one.
    type Observed: Send;
    /// The necessary changes; see [`Dataplane::is_empty`].
    type Plan: Send;
    /// What was written.
    type Applied: Send;

    /// Returns the desired state of the pod. `None`: this dataplane does not handle its network namespace.
    ///
    /// # Errors
    /// The configuration of the pod is invalid: what is wrong, and what is valid.
    fn desire(&self, pod: &PodView) -> Result<Option<Self::Desired>, String>;

    /// Reads the visited network namespace; changes nothing.
    ///
    /// # Errors
    /// The state cannot be read.
    fn observe(
        &self,
        visit: &Visit<'_>,
        desired: &Self::Desired,
        spent: &mut Spent,
    ) -> Result<Self::Observed, String>;

    /// Computes the necessary changes. Pure.
    fn plan(&self, desired: &Self::Desired, observed: &Self::Observed) -> Self::Plan;

    /// Returns true if nothing has to be written.
    fn is_empty(plan: &Self::Plan) -> bool;

    /// Writes the plan, all or nothing, and reads it back. If the redirection was in force before, everything is written that no foreign
    /// object blocks.
    ///
    /// # Errors
    /// What failed, and what is in force.
    fn apply(
        &self,
        visit: &Visit<'_>,
        desired: &Self::Desired,
        observed: &Self::Observed,
        plan: &Self::Plan,
        spent: &mut Spent,
    ) -> Result<Self::Applied, String>;

    /// Removes owned objects from the visited network namespace and reads back the result; `desired` is the state that was written
    /// there, if known. Returns the number of removed objects.
    ///
    /// # Errors
    /// What may still be present.
    fn remove(&self, visit: &Visit<'_>, desired: Option<&Self::Desired>) -> Result<usize, String>;
}

/// The durations of the phases of a visit.
#[derive(Debug, Default)]
pub(crate) struct Spent(pub(crate) Vec<(Phase, Duration)>);

impl Spent {
    /// Calls `f` and adds its duration to `phase`.
    pub(crate) fn measure<R>(&mut self, phase: Phase, f: impl FnOnce() -> R) -> R {
        let begun = Instant::now();
        let result = f();
        self.add(phase, begun.elapsed());
        result
    }

    /// Returns the duration of this phase.
    pub(crate) fn of(&self, phase: Phase) -> Duration {
        let of_phase = self.0.iter().filter(|(of, _)| *of == phase);
        of_phase.map(|(_, time)| *time).sum()
    }

    /// Adds `time` to `phase`.
    pub(crate) fn add(&mut self, phase: Phase, time: Duration) {
        self.0.push((phase, time));
    }

    /// Returns the event for the metrics.
    pub(crate) fn measured(&self) -> Event {
        let phases = Phases::default();
        for (phase, time) in &self.0 {
            phases.add(*phase, *time);
        }
        let by = "agent";
        Event::Measured { by, phases }
    }
}

/// Maximum age of a comparison, even if the fingerprint is unchanged: a fingerprint does not cover the contents of a main
/// table.
const WHOLE: Duration = Duration::from_secs(600);

/// Returns true if a comparison is still valid: same network namespace of the pod, rules and routing unchanged. Always false without
/// a fingerprint.
pub(crate) fn still_holds(
    sandboxes: &Sandboxes,
    pod: &Identity,
    (netns, fingerprint, compared): (NetnsId, Option<&Fingerprint>, Instant),
) -> bool {
    fingerprint.is_some()
        && compared.elapsed() < WHOLE
        && sandboxes
            .kept(pod)
            .is_some_and(|held| held.id() == netns && held.fingerprint().as_ref() == fingerprint)
}

/// A reason why a redirection in force does not count as verified.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Hindrance {
    /// A foreign rule or policy keeps packets from it.
    Foreign(String),
    /// It is unknown whether one does, or will, for this reason.
    Unknown(String),
}

/// Returns the first foreign rule or policy that keeps packets from this redirection, or the reason why that is unknown, which is not
/// reported as good either.
pub(crate) fn hindrance(visit: &Visit<'_>, compiled: &Compiled) -> Option<Hindrance> {
    first(visit.hindrances(compiled))
}

fn first(found: Result<Vec<String>, String>) -> Option<Hindrance> {
    match found {
        Ok(found) => found.into_iter().next().map(Hindrance::Foreign),
        Err(why) => Some(Hindrance::Unknown(why)),
    }
}

/// Describes the repair of these differences.
pub(crate) fn repair(changes: &[Change], summary: String) -> Repair {
    Repair {
        first: changes.first().map(sidecar::difference).unwrap_or_default(),
        differences: changes.len(),
        cause: Cause::of(changes),
        summary,
    }
}

/// The result of one visit to a network namespace.
pub(crate) struct Converged<D: Dataplane> {
    pub(crate) observed: D::Observed,
    pub(crate) plan: D::Plan,
    /// `None`: nothing had to be written.
    pub(crate) applied: Option<Result<D::Applied, String>>,
}

/// Enters the network namespace once: reads it, plans, and writes the differences. `begin` is called there before anything is read, for a
/// watch that must not miss a change. `may_write` is called before the write, because the owner of the network namespace may have
/// changed while it was read.
///
/// # Errors
/// The network namespace cannot be entered or read. It is unchanged.
pub(crate) fn converge<D: Dataplane>(
    dataplane: &D,
    sandbox: &Sandbox,
    desired: &D::Desired,
    begin: impl FnOnce(&Visit<'_>) + Send,
    may_write: &(dyn Fn() -> Result<(), String> + Sync),
    spent: &mut Spent,
) -> Result<Converged<D>, String> {
    let inside = |visit: &Visit<'_>| {
        begin(visit);
        let observed = dataplane.observe(visit, desired, spent)?;
        let plan = dataplane.plan(desired, &observed);
        let applied = (!D::is_empty(&plan)).then(|| {
            may_write()?;
            dataplane.apply(visit, desired, &observed, &plan, spent)
        });
        Ok(Converged {
            observed,
            plan,
            applied,
        })
    };
    sandbox
        .visit_for(D::SCHEME, inside)
        .map_err(|e| e.to_string())?
}

/// Enters the network namespace once and removes what the dataplane owns there.
///
/// # Errors
/// The network namespace cannot be entered, or as [`Dataplane::remove`].
pub(crate) fn remove<D: Dataplane>(
    dataplane: &D,
    sandbox: &Sandbox,
    desired: Option<&D::Desired>,
) -> Result<usize, String> {
    sandbox
        .visit_for(D::SCHEME, |visit| dataplane.remove(visit, desired))
        .map_err(|e| e.to_string())?
}
