//! What a program in a container reaches of its node, by the root of the node's first process.

use std::path::{Path, PathBuf};
use std::time::Duration;
use weir_netfilter::xtables::{Writers, XtEngine};
use weir_netlink::Result;

/// First processes of a node whose procfs a container has there, as the manifests of Istio and ours mount it, or shares.
pub(crate) const ROOTS: [&str; 2] = ["/host/proc/1/root", "/proc/1/root"];
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

fn lock_file() -> Option<PathBuf> {
    // One that may not be followed (CAP_SYS_PTRACE) is no folder, either.
    let of_node = ROOTS.map(|root| Path::new(root).join("run"));
    let run = of_node.into_iter().find(|run| run.is_dir())?;
    Some(run.join("xtables.lock"))
}
