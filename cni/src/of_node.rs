//! What a program in a container reaches of its node, by the root of the node's first process.

use std::path::{Path, PathBuf};
use std::time::Duration;
use weir_netfilter::ipset::IpsetEngine;
use weir_netfilter::probe::{Loading, RunningKernel};
use weir_netfilter::xtables::{Writers, XtEngine};
use weir_netlink::{Error, Result};

/// First processes of a node whose procfs a container has there, as the manifests of Istio and ours mount it, or shares.
pub(crate) const ROOTS: [&str; 2] = ["/host/proc/1/root", "/proc/1/root"];
/// `EPROTONOSUPPORT`: the kernel has no nfnetlink.
const NO_NFNETLINK: i32 = 93;
/// Time limit for the lock of the tools; kube-proxy has the same.
const LOCK: Duration = Duration::from_secs(5);

/// Legacy tables of the node, in the network namespace of the calling thread. kube-proxy and the network's plugin write them,
/// too: they are written under the lock of the tools, so that nobody's change is lost. In a container it is the node's
/// `/run/xtables.lock`: the container's own is nobody else's, if it can have one at all.
///
/// # Errors
/// `EPERM` without CAP_NET_RAW. The lock itself is taken, and may be refused, when something is written.
pub fn legacy_tables() -> Result<XtEngine> {
    let engine = XtEngine::open()?.writers(Writers::Others { patience: LOCK });
    Ok(engine.lock_file(lock_file()))
}

/// The node's file of that lock, where it can be reached; see [`XtEngine::lock_file`].
#[must_use]
pub fn lock_file() -> Option<PathBuf> {
    // One that may not be followed (CAP_SYS_PTRACE) is no folder, either.
    let of_node = ROOTS.map(|root| Path::new(root).join("run"));
    let run = of_node.into_iter().find(|run| run.is_dir())?;
    Some(run.join("xtables.lock"))
}

/// Whether the network namespace of the calling thread has legacy tables (`/proc/net/ip_tables_names` and that of IPv6).
///
/// # Errors
/// A list that is there cannot be read.
pub fn has_legacy_tables() -> Result<bool> {
    for family in ["ip", "ip6"] {
        let file = format!("/proc/thread-self/net/{family}_tables_names");
        match std::fs::read(&file) {
            Ok(names) if names.is_empty() => {}
            Ok(_) => return Ok(true),
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => {}
            Err(e) => return Err(Error::io("read", file, &e)),
        }
    }
    Ok(false)
}

/// Those of these sets of ipset that the network namespace of the calling thread has. The first request would load the module:
/// without it there are none.
///
/// # Errors
/// They cannot be listed. A kernel without ipset has none.
pub fn sets_among(names: &[&str]) -> Result<Vec<String>> {
    let kernel = RunningKernel::read();
    if !kernel.has_module("ip_set") && kernel.loading == Loading::Possible {
        return Ok(Vec::new());
    }
    let found = IpsetEngine::open().and_then(|mut engine| engine.names());
    let mut found = if_supported(found)?;
    found.retain(|name| names.contains(&name.as_str()));
    Ok(found)
}

/// What a kernel does not have holds nothing. Any other error says nothing of what is there.
///
/// # Errors
/// That error.
pub fn if_supported<T: Default>(read: Result<T>) -> Result<T> {
    match read {
        Err(e) if e.is_unsupported() || e.errno() == Some(NO_NFNETLINK) => Ok(T::default()),
        read => read,
    }
}
