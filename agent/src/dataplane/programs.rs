//! Pods of ambient mode that programs of eBPF capture in their own namespace, without a rule of netfilter.

use super::ambient::Ambient;
use super::{Dataplane, Hindrance, Spent, first};
use std::path::PathBuf;
use weir_ambient::{AMBIENT, Redirect};
use weir_cni::plugin::Phase;
use weir_cni::redirection::{Scheme, Visit};
use weir_core::pods::PodView;
use weir_ebpf::{Bpffs, Change, Pod};
use weir_netlink::Netns;

/// The redirection of ambient mode, by programs.
#[derive(Debug)]
pub(crate) struct Programs {
    pub(crate) ambient: Ambient,
    pub(crate) bpffs: Bpffs,
    /// The namespace of the host, if it is not this process's own.
    host: Option<PathBuf>,
    /// That of this process.
    own: Option<Netns>,
}

/// How a namespace differs from what is desired.
#[derive(Debug)]
pub(crate) struct Observed {
    pub(crate) changes: Vec<Change>,
    /// What keeps packets from the programs, where nothing is to be written.
    pub(crate) hindered: Option<Hindrance>,
}

/// What was written is in force.
#[derive(Debug)]
pub(crate) struct Applied {
    /// What keeps packets from it all the same.
    pub(crate) hindered: Option<Hindrance>,
}

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

impl Programs {
    pub(crate) fn new(ambient: Ambient, bpffs: Bpffs, host: Option<PathBuf>) -> Self {
        Self {
            ambient,
            bpffs,
            host,
            own: Netns::current().ok(),
        }
    }

    /// Without the host's namespace probes are captured, too; why they fail is said by what answers for them.
    fn host(&self) -> Option<Netns> {
        match &self.host {
            Some(path) => Netns::open(path).ok(),
            None => self.own.as_ref()?.try_clone().ok(),
        }
    }

    /// Calls `f` with the programs of the pod that was entered.
    fn at<T>(
        &self,
        visit: &Visit<'_>,
        f: impl FnOnce(&Pod<'_>) -> weir_netlink::Result<T>,
    ) -> Result<T, String> {
        let (pod, host) = (Pod::in_sandbox(visit.sandbox(), &self.bpffs), self.host());
        match &host {
            Some(host) => f(&pod.beside(host)),
            None => f(&pod),
        }
        .map_err(text)
    }

    fn hindrance(
        &self,
        visit: &Visit<'_>,
        desired: &Redirect,
        spent: &mut Spent,
    ) -> Option<Hindrance> {
        let routing = desired.compile_without_rules();
        let find = || visit.hindrances_of_programs(&routing);
        first(spent.measure(Phase::Verify, find))
    }
}

impl Dataplane for Programs {
    const SCHEME: &'static Scheme = &AMBIENT;

    type Desired = Redirect;
    type Observed = Observed;
    /// Whether they are attached.
    type Plan = bool;
    type Applied = Applied;

    fn desire(&self, view: &PodView) -> Result<Option<Redirect>, String> {
        self.ambient.desire(view)
    }

    fn observe(
        &self,
        visit: &Visit<'_>,
        desired: &Redirect,
        spent: &mut Spent,
    ) -> Result<Observed, String> {
        let compare = || self.at(visit, |pod| pod.verify(desired));
        let changes = spent.measure(Phase::Verify, compare)?;
        let hindered = match changes.is_empty() {
            true => self.hindrance(visit, desired, spent),
            false => None,
        };
        Ok(Observed { changes, hindered })
    }

    fn plan(&self, _: &Redirect, observed: &Observed) -> bool {
        !observed.changes.is_empty()
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
        spent.measure(Phase::Apply, || self.at(visit, |pod| pod.apply(desired)))?;
        let hindered = self.hindrance(visit, desired, spent);
        Ok(Applied { hindered })
    }

    fn remove(&self, visit: &Visit<'_>, _: Option<&Redirect>) -> Result<usize, String> {
        Ok(self.at(visit, |pod| pod.remove())?.len())
    }
}
