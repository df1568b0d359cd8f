//! Access from a container to its node, through the root directory of the node's first process; and what of netfilter the
//! kernel has.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::Duration;
use weir_netfilter::ipset::IpsetEngine;
use weir_netfilter::probe::{Loading, RunningKernel};
use weir_netfilter::xtables::{Writers, XtEngine};
use weir_netlink::Result;

/// Root directory of the node's first process, for a container with the node's procfs at `/host/proc`, as the manifests of
/// Istio and ours mount it, and for one whose `/proc` is the node's.
pub(crate) const ROOTS: [&str; 2] = ["/host/proc/1/root", "/proc/1/root"];
/// `EPROTONOSUPPORT`: the kernel has no nfnetlink.
const NO_NFNETLINK: i32 = 93;
/// Time limit for the lock of the iptables tools; kube-proxy uses the same.
const LOCK: Duration = Duration::from_secs(5);

/// Opens the legacy tables of the node, in the network namespace of the calling thread. kube-proxy and the network plugin
/// write them, too, so writes take the lock of the iptables tools: otherwise a change of another writer could be lost. A
/// container uses the node's `/run/xtables.lock`: no other writer takes a lock file in the container, if it can create one
/// at all.
///
/// # Errors
/// `EPERM` without CAP_NET_RAW. The lock is taken, and may be refused, only by a write.
pub fn legacy_tables() -> Result<XtEngine> {
    let engine = XtEngine::open()?.writers(Writers::Others { patience: LOCK });
    Ok(engine.lock_file(lock_file()))
}

/// Returns the node's lock file, if it is accessible; see [`XtEngine::lock_file`].
#[must_use]
pub fn lock_file() -> Option<PathBuf> {
    let of_node = ROOTS.map(|root| Path::new(root).join("run"));
    let run = of_node.into_iter().find(|run| may_be_dir(run))?;
    Some(run.join("xtables.lock"))
}

/// False if there is no such directory, or this process may not follow the root above it (CAP_SYS_PTRACE). True if that is
/// not known: a write then takes the lock there or fails, and never takes a lock file that no other writer takes.
fn may_be_dir(path: &Path) -> bool {
    match std::fs::metadata(path) {
        Ok(found) => found.is_dir(),
        Err(e) => !matches!(
            e.kind(),
            ErrorKind::NotFound | ErrorKind::NotADirectory | ErrorKind::PermissionDenied
        ),
    }
}

/// Returns which of these sets of ipset exist in the network namespace of the calling thread, see [`read_sets`].
///
/// # Errors
/// The sets cannot be listed.
pub fn sets_among(names: &[&str]) -> Result<Vec<String>> {
    let mut found = read_sets(IpsetEngine::names)?;
    found.retain(|name| names.contains(&name.as_str()));
    Ok(found)
}

/// Reads the sets of ipset in the network namespace of the calling thread with `read`. Returns the default if there are
/// none because the kernel has no ipset or has not loaded it: the first request would load the module, so none is sent.
///
/// # Errors
/// The sets cannot be read.
pub fn read_sets<R: Default>(read: impl FnOnce(&mut IpsetEngine) -> Result<R>) -> Result<R> {
    let kernel = RunningKernel::read();
    let is_there = kernel.has_module("ip_set");
    if !is_there && kernel.loading == Loading::Possible {
        return Ok(R::default());
    }
    match IpsetEngine::open().and_then(|mut e| read(&mut e)) {
        Err(e) if is_there => Err(e),
        // It was unknown whether ipset is built in; the request may show that it is not.
        read => if_supported(read),
    }
}

/// Returns the default if the kernel does not support a feature: then it holds no objects of it. After any other error the
/// state is unknown.
///
/// # Errors
/// Any other error.
pub fn if_supported<T: Default>(read: Result<T>) -> Result<T> {
    match read {
        Err(e) if e.is_unsupported() || e.errno() == Some(NO_NFNETLINK) => Ok(T::default()),
        read => read,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::errno::Errno;
    use weir_netfilter::ipset::Set;
    use weir_netlink::Error;

    #[test]
    fn a_directory_that_cannot_be_looked_at_is_not_passed_over() {
        let dir = weir_testing::TempDir::new();
        let at = |name: &str| dir.path().join(name);
        std::fs::write(at("file"), "").unwrap();
        std::os::unix::fs::symlink("loop", at("loop")).unwrap();
        for (name, may_be) in [
            ("", true),
            ("file", false),
            ("none", false),
            ("file/below", false),
            ("loop", true),
        ] {
            assert_eq!(may_be_dir(&at(name)), may_be, "{name}");
        }
    }

    /// A kernel of which nothing says that it has ipset.
    #[test]
    fn sets_that_cannot_be_read_are_not_absent() {
        let netns = weir_testing::namespace_or_skip!();
        let sets = |errno: Errno| {
            let read = |_: &mut _| Err(Error::kernel("list", "sets", errno as i32));
            read_sets::<Vec<Set>>(read)
        };
        let run = || {
            if let Err(e) = weir_testing::container::empty("/sys/module".as_ref()) {
                println!("skipped: no mounts of its own: {e}");
                return;
            }
            let kernel = RunningKernel::read();
            if kernel.has_module("ip_set") || kernel.loading == Loading::Possible {
                println!("skipped: the kernel tells whether it has ipset, or would load it");
                return;
            }
            assert_eq!(sets(Errno::EPROTONOSUPPORT).unwrap(), []);
            for errno in [Errno::ENOBUFS, Errno::EIO, Errno::EPERM] {
                sets(errno).unwrap_err();
            }
        };
        netns.run(run).unwrap();
    }
}
