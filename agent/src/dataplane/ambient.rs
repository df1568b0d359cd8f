//! Pods of ambient mode: the redirection to ztunnel's ports in the pod's own network namespace.

use super::{Dataplane, Hindrance, Spent, hindrance, repair};
use std::time::Instant;
use weir_ambient::{AMBIENT, Config, PodOverrides, Redirect};
use weir_cni::compile::Engine;
use weir_cni::log::count;
use weir_cni::plugin::{Phase, named_engine};
use weir_cni::redirection::{Change, Desired, Fingerprint, InUse, Scheme, Visit};
use weir_core::journal::pod::Repair;
use weir_core::pods::PodView;

/// The redirection of ambient mode, with the settings of the node.
#[derive(Debug, Clone)]
pub(crate) struct Ambient {
    pub(crate) config: Config,
    /// `NATIVE_NFTABLES`: rules are written to nf_tables, regardless of what the network namespace uses.
    pub(crate) native_nftables: bool,
    /// The pod was captured before, and nobody has watched it since.
    pub(crate) unwatched: bool,
}

/// How a network namespace differs from the desired state.
#[derive(Debug)]
pub(crate) struct Observed {
    /// Read before the comparison, so that the next visit detects a change during it. `None`: it cannot be read, or nothing was
    /// compared.
    pub(crate) fingerprint: Option<Fingerprint>,
    /// The engine that held owned rules.
    pub(crate) engine: Option<Engine>,
    /// `None`: there are no owned rules, and nothing was compared.
    pub(crate) changes: Option<Vec<Change>>,
    /// What keeps packets from the redirection, if nothing has to be written.
    pub(crate) hindered: Option<Hindrance>,
    /// Another program has removed or changed the redirection while nobody watched it.
    pub(crate) lost: bool,
}

impl Observed {
    /// Describes the drift; without differences if only foreign objects block the redirection.
    pub(crate) fn drift(&self) -> Repair {
        let found = self.changes.as_deref().unwrap_or_default();
        let is_blocked = |change: &Change| matches!(change, Change::Blocked(..));
        let found = Some(found).filter(|found| !found.iter().all(is_blocked));
        let found = found.unwrap_or_default();
        let mut repair = repair(found, String::new());
        if self.changes.is_none() {
            (repair.first, repair.differences) = ("it has no rules of weir".to_owned(), 1);
        }
        repair
    }
}

/// What was written.
#[derive(Debug)]
pub(crate) struct Applied {
    pub(crate) engine: Engine,
    pub(crate) changes: Vec<Change>,
    pub(crate) summary: String,
    /// Fingerprint of the verified state, if it detects every later change.
    pub(crate) fingerprint: Option<Fingerprint>,
    /// What still keeps packets from the redirection.
    pub(crate) hindered: Option<Hindrance>,
}

impl Ambient {
    /// Returns the redirection for a pod with these overrides.
    ///
    /// # Errors
    /// The overrides are invalid.
    pub(crate) fn redirect(&self, overrides: &PodOverrides) -> Result<Redirect, String> {
        Redirect::new(self.config.clone(), overrides).map_err(|e| e.to_string())
    }

    fn engine(&self) -> Option<Engine> {
        named_engine(self.native_nftables)
    }
}

impl Dataplane for Ambient {
    const SCHEME: &'static Scheme = &AMBIENT;

    type Desired = Redirect;
    type Observed = Observed;
    /// True if the redirection has to be written.
    type Plan = bool;
    type Applied = Applied;

    /// Does not check whether the pod belongs to the mesh.
    fn desire(&self, view: &PodView) -> Result<Option<Redirect>, String> {
        let overrides = PodOverrides::of_annotations(&view.pod.metadata.annotations);
        self.redirect(&overrides).map(Some)
    }

    fn observe(
        &self,
        visit: &Visit<'_>,
        desired: &Redirect,
        spent: &mut Spent,
    ) -> Result<Observed, String> {
        let choose = || visit.engine_to_compare(self.engine());
        let chosen = spent.measure(Phase::Facts, choose);
        let (engine, in_use) = chosen.map_err(|e| e.to_string())?;
        let (mut fingerprint, mut changes, mut hindered) = (None, None, None);
        // A new pod has no rules: the write reads everything again.
        if in_use != InUse::None {
            fingerprint = visit.fingerprint().ok();
            let compiled = desired.compile_for(self.engine(), engine);
            let compare = || visit.differences(&compiled);
            let compared = spent.measure(Phase::Verify, compare);
            let mut compared = compared.map_err(|e| e.to_string())?;
            // Dropped here, but reported by `weir verify`: objects of another writer in owned tables. They affect no packet, because no
            // rule refers to them.
            compared.retain(|change| !change.stays());
            // A repair does not wait for foreign tables, which may be large, busy or unreadable.
            if compared.is_empty() {
                hindered = spent.measure(Phase::Verify, || hindrance(visit, &compiled));
            }
            changes = Some(compared);
        }
        let lost = || desired.is_lost(visit, changes.as_deref());
        let is_in_sync = changes.as_ref().is_some_and(Vec::is_empty);
        let lost = self.unwatched && !is_in_sync && spent.measure(Phase::Verify, lost);
        Ok(Observed {
            lost,
            // With a hindrance, the next visit compares everything.
            fingerprint: fingerprint.filter(|_| hindered.is_none()),
            engine: in_use.engine(),
            changes,
            hindered,
        })
    }

    fn plan(&self, _: &Redirect, observed: &Observed) -> bool {
        !matches!(observed.changes.as_deref(), Some([]))
    }

    fn is_empty(plan: &bool) -> bool {
        !plan
    }

    fn apply(
        &self,
        visit: &Visit<'_>,
        desired: &Redirect,
        _: &Observed,
        _: &bool,
        spent: &mut Spent,
    ) -> Result<Applied, String> {
        let begun = Instant::now();
        let done = visit.apply_again(desired, self.engine())?;
        let read_back = done.read_back.unwrap_or_default();
        spent.add(Phase::Apply, begun.elapsed().saturating_sub(read_back));
        spent.add(Phase::Verify, read_back);
        let (engine, netns) = (done.engine, visit.sandbox().netns().id());
        let changes = count(done.changes.len(), "change");
        // Read first, so that the next visit detects a foreign rule added in the meantime.
        let fingerprint = visit.fingerprint_of(&done);
        let compiled = desired.compile_for(self.engine(), engine);
        let hindered = spent.measure(Phase::Verify, || hindrance(visit, &compiled));
        Ok(Applied {
            engine,
            fingerprint: fingerprint.filter(|_| hindered.is_none()),
            hindered,
            changes: done.changes,
            summary: format!("redirected by {engine} in {netns}: {changes}, verified"),
        })
    }

    /// Removes the rules of both engines.
    fn remove(&self, visit: &Visit<'_>, desired: Option<&Redirect>) -> Result<usize, String> {
        let legacy = desired.map(|redirect| redirect.compile(Engine::Xtables));
        let removed = visit.clean(legacy.as_ref());
        Ok(removed.map_err(|e| e.to_string())?.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dataplane::{converge, remove};
    use weir_cni::redirection::Sandbox;
    use weir_testing::namespace_or_skip;

    /// The overrides of a pod may be invalid when it leaves.
    #[test]
    fn it_is_removed_without_what_is_desired() {
        let sandbox = Sandbox::of(namespace_or_skip!()).unwrap();
        for native_nftables in [true, false] {
            let config = Config::default();
            let plane = Ambient {
                config,
                native_nftables,
                unwatched: false,
            };
            let redirect = plane.redirect(&PodOverrides::default()).unwrap();
            let (mut spent, may_write) = (Spent::default(), || Ok(()));
            let done = converge(&plane, &sandbox, &redirect, |_| (), &may_write, &mut spent);
            let done = done.unwrap();
            done.applied.expect("it is new").unwrap();
            assert!(remove(&plane, &sandbox, None).unwrap() > 0);
            let in_use = sandbox.visit_for(&AMBIENT, |visit| visit.engine_in_use());
            assert_eq!(in_use.unwrap().unwrap(), None);
            assert_eq!(remove(&plane, &sandbox, None).unwrap(), 0);
        }
    }
}
