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

    /// Writes the plan, all or nothing, and reads it back.
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

/// The first foreign rule or policy that keeps packets from this redirection; or why that is not known, which is not shown as good
/// either.
pub(crate) fn hindrance(visit: &Visit<'_>, compiled: &Compiled) -> Option<String> {
    first(visit.hindrances(compiled))
}

fn first(found: Result<Vec<String>, String>) -> Option<String> {
    found.map_or_else(Some, |found| found.into_iter().next())
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

#[cfg(test)]
mod tests {
    use super::ambient::Ambient;
    use super::sidecar::Sidecar;
    use super::*;
    use serde_json::json;
    use std::process::Command;
    use weir_ambient::{Config, PodOverrides};
    use weir_netfilter::nft::{NftEngine, Ruleset, TableFamily};
    use weir_netlink::route::{LOOPBACK_IFINDEX, Routing};

    /// Its rules are flushed while a foreign route blocks its routing.
    fn blocked<D: Dataplane>(plane: &D, desired: &D::Desired, table: &str) {
        let netns = weir_testing::namespace_or_skip!();
        let up = || Routing::open()?.set_up(LOOPBACK_IFINDEX);
        netns.run(up).unwrap().unwrap();
        let sandbox = Sandbox::of(netns).unwrap();
        let (mut spent, may_write) = (Spent::default(), || Ok(()));
        let mut write = || {
            let done = converge(plane, &sandbox, desired, &may_write, &mut spent);
            let applied = done.unwrap().applied.expect("something differs");
            applied.map(drop)
        };
        let run = |text: &str| {
            let run = || Command::new("ip").args(text.split(' ')).output();
            let run = sandbox.netns().run(run).unwrap().unwrap();
            assert!(run.status.success(), "{run:?}");
        };
        run("address add 10.0.0.1/32 dev lo");
        let foreign = |change: &str| {
            run(&format!(
                "-4 route {change} blackhole 192.0.2.0/24 table {table}"
            ));
        };
        let engine = || {
            let in_use = sandbox.visit_for(D::SCHEME, |visit| visit.engine_in_use());
            in_use.unwrap().unwrap()
        };
        foreign("add");
        let why = write().unwrap_err();
        assert!(why.ends_with("nothing is changed"), "{why}");
        assert_eq!(engine(), None, "it was never captured");
        foreign("delete");
        write().unwrap();
        assert!(engine().is_some());
        foreign("add");
        let named = |name: &&str| (TableFamily::Inet, (*name).to_owned());
        let owned: Vec<_> = D::SCHEME.tables.iter().map(named).collect();
        let none = Ruleset { tables: Vec::new() };
        let flush = || NftEngine::open().and_then(|mut engine| engine.apply(&none, &owned));
        sandbox.netns().run(flush).unwrap().unwrap();
        assert_eq!(engine(), None);
        let why = write().unwrap_err();
        assert!(why.contains("; the rules are in force"), "{why}");
        assert!(engine().is_some());
    }

    #[test]
    fn a_captured_pod_gets_its_rules_though_its_routing_is_blocked() {
        let config = Config::default();
        let ambient = Ambient {
            config,
            native_nftables: true,
        };
        let desired = ambient.redirect(&PodOverrides::default()).unwrap();
        blocked(&ambient, &desired, "100");
        let pod = json!({"metadata": {"name": "a", "annotations": {
                "sidecar.istio.io/status": "{}", "sidecar.istio.io/interceptionMode": "TPROXY"}},
            "spec": {"containers": [{"name": "app"}, {"name": "istio-proxy", "args": ["proxy", "sidecar"]}]},
            "status": {"phase": "Running", "podIP": "10.0.0.1"}});
        let sidecar = Sidecar {
            native_nftables: true,
            ..Sidecar::default()
        };
        let desired = sidecar.demand(&PodView::from_value(&pod).unwrap()).unwrap();
        blocked(&sidecar, &desired, "133");
    }
}
