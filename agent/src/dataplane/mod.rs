//! Ways to redirect pods. A [`Dataplane`] states what a pod should have, reads what its namespace has, plans the
//! difference without a kernel, and writes it; [`converge`] does all of it in one visit to the namespace.

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

    /// What a pod should have; equal values need the same rules.
    type Desired: Clone + PartialEq + Send + Sync + 'static;
    /// What was read from a namespace, in comparison with what is desired.
    type Observed: Send;
    /// What is to be written or removed; see [`Dataplane::is_empty`].
    type Plan: Send;
    /// What was written.
    type Applied: Send;

    /// What the pod should have. `None`: its namespace is not a matter of this dataplane.
    ///
    /// # Errors
    /// The pod asks for something that cannot be understood: what, and what would do.
    fn desire(&self, pod: &PodView) -> Result<Option<Self::Desired>, String>;

    /// Reads the namespace that was entered; changes nothing.
    ///
    /// # Errors
    /// It cannot be read.
    fn observe(
        &self,
        visit: &Visit<'_>,
        desired: &Self::Desired,
        spent: &mut Spent,
    ) -> Result<Self::Observed, String>;

    /// What has to change. Pure.
    fn plan(&self, desired: &Self::Desired, observed: &Self::Observed) -> Self::Plan;

    /// Nothing is to be written.
    fn is_empty(plan: &Self::Plan) -> bool;

    /// Writes the plan, all or nothing, and reads it back. Where it was in force before, but for what something foreign blocks.
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

    /// Removes what is owned from the namespace that was entered, and reads that back; `desired` is what was written there, as far as
    /// that is known. Returns how many objects that were.
    ///
    /// # Errors
    /// What may be there still.
    fn remove(&self, visit: &Visit<'_>, desired: Option<&Self::Desired>) -> Result<usize, String>;
}

/// How long the parts of a visit took.
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

    /// How long this phase took.
    pub(crate) fn of(&self, phase: Phase) -> Duration {
        let of_phase = self.0.iter().filter(|(of, _)| *of == phase);
        of_phase.map(|(_, time)| *time).sum()
    }

    /// Adds `time` to `phase`.
    pub(crate) fn add(&mut self, phase: Phase, time: Duration) {
        self.0.push((phase, time));
    }

    /// For the metrics.
    pub(crate) fn measured(&self) -> Event {
        let phases = Phases::default();
        for (phase, time) in &self.0 {
            phases.add(*phase, *time);
        }
        let by = "agent";
        Event::Measured { by, phases }
    }
}

/// Rules that did not change since are compared again after this long all the same: a fingerprint does not have what a main
/// table holds.
const WHOLE: Duration = Duration::from_secs(600);

/// Whether a comparison still holds: same namespace of the pod, and its rules and routing as they were then. Without a
/// fingerprint that is not known.
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

/// What is to be said of a redirection that is in force.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Hindrance {
    /// A foreign rule or policy keeps packets from it.
    Foreign(String),
    /// Whether one does, or will, is not known, and why.
    Unknown(String),
}

/// The first foreign rule or policy that keeps packets from this redirection; or why that is not known, which is not shown as good
/// either.
pub(crate) fn hindrance(visit: &Visit<'_>, compiled: &Compiled) -> Option<Hindrance> {
    first(visit.hindrances(compiled))
}

fn first(found: Result<Vec<String>, String>) -> Option<Hindrance> {
    match found {
        Ok(found) => found.into_iter().next().map(Hindrance::Foreign),
        Err(why) => Some(Hindrance::Unknown(why)),
    }
}

/// What is said of these differences once they are repaired.
pub(crate) fn repair(changes: &[Change], summary: String) -> Repair {
    Repair {
        first: changes.first().map(sidecar::difference).unwrap_or_default(),
        differences: changes.len(),
        cause: Cause::of(changes),
        summary,
    }
}

/// What one visit to a namespace found and did.
pub(crate) struct Converged<D: Dataplane> {
    pub(crate) observed: D::Observed,
    pub(crate) plan: D::Plan,
    /// `None`: nothing was to be written.
    pub(crate) applied: Option<Result<D::Applied, String>>,
}

/// Enters the namespace once: reads it, plans, and writes what differs. `may_write` is called before writing: the
/// namespace may have got another owner while it was read.
///
/// # Errors
/// The namespace cannot be entered or read. It is as it was.
pub(crate) fn converge<D: Dataplane>(
    dataplane: &D,
    sandbox: &Sandbox,
    desired: &D::Desired,
    may_write: &(dyn Fn() -> Result<(), String> + Sync),
    spent: &mut Spent,
) -> Result<Converged<D>, String> {
    let inside = |visit: &Visit<'_>| {
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

/// Enters the namespace once, and removes what the dataplane owns there.
///
/// # Errors
/// The namespace cannot be entered, or as [`Dataplane::remove`].
pub(crate) fn remove<D: Dataplane>(
    dataplane: &D,
    sandbox: &Sandbox,
    desired: Option<&D::Desired>,
) -> Result<usize, String> {
    sandbox
        .visit_for(D::SCHEME, |visit| dataplane.remove(visit, desired))
        .map_err(|e| e.to_string())?
}
