//! Pods of ambient mode that eBPF programs capture in their own network namespace, without netfilter rules.

use super::ambient::Ambient;
use super::{Dataplane, Hindrance, Spent, first};
use std::path::{Path, PathBuf};
use weir_ambient::{AMBIENT, Redirect};
use weir_cni::plugin::Phase;
use weir_cni::redirection::{Scheme, Visit};
use weir_core::pods::PodView;
use weir_ebpf::{Bpffs, Change, Pod};
use weir_netlink::Netns;

/// The redirection of ambient mode by programs.
#[derive(Debug)]
pub(crate) struct Programs {
    pub(crate) ambient: Ambient,
    pub(crate) bpffs: Bpffs,
    /// The path of the host's network namespace, if it is not that of this process.
    host: Option<PathBuf>,
}

/// How a network namespace differs from the desired state.
#[derive(Debug)]
pub(crate) struct Observed {
    pub(crate) changes: Vec<Change>,
    /// What keeps packets from the programs, if nothing has to be written.
    pub(crate) hindered: Option<Hindrance>,
}

/// The result of a write; the programs are in force.
#[derive(Debug)]
pub(crate) struct Applied {
    /// What still keeps packets from the programs.
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
        }
    }

    /// Returns the host's network namespace. `None` if access to it is denied or there is none at that path: probes are captured, too, and
    /// the host's part of ambient mode reports why they fail.
    fn host(&self) -> Result<Option<Netns>, String> {
        // The calling thread is in the network namespace of a pod.
        let of_process = Path::new("/proc/self/ns/net");
        match Netns::open(self.host.as_deref().unwrap_or(of_process)) {
            Err(e) if e.is_permission() || e.is_not_found() => Ok(None),
            opened => opened.map(Some).map_err(text),
        }
    }

    /// Calls `f` with the programs of the visited pod.
    fn at<T>(
        &self,
        visit: &Visit<'_>,
        f: impl FnOnce(&Pod<'_>) -> weir_netlink::Result<T>,
    ) -> Result<T, String> {
        let (pod, host) = (Pod::in_sandbox(visit.sandbox(), &self.bpffs), self.host()?);
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
    /// True if programs have to be attached.
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;
    use weir_ambient::Config;
    use weir_testing::{BpfFs, TempDir};

    /// Programs were attached that capture probes, too.
    #[test]
    fn a_namespace_of_the_host_that_cannot_be_opened_is_not_absent() {
        let Some(mounted) = BpfFs::mount() else {
            return;
        };
        let host = |path: Option<PathBuf>| {
            let ambient = Ambient {
                config: Config::default(),
                native_nftables: true,
                unwatched: false,
            };
            Programs::new(ambient, Bpffs::at(mounted.path()).unwrap(), path).host()
        };
        let own = Netns::current().unwrap();
        for path in [None, Some(own.path())] {
            assert_eq!(host(path).unwrap().map(|found| found.id()), Some(own.id()));
        }
        let dir = TempDir::new();
        assert!(host(Some(dir.file("none"))).unwrap().is_none());
        symlink("loop", dir.file("loop")).unwrap();
        for path in [dir.file("loop"), dir.write("file", "")] {
            let why = host(Some(path.clone())).unwrap_err();
            assert!(why.contains(path.to_str().unwrap()), "{why}");
        }
    }
}
