//! The capabilities that each thread keeps.
//!
//! A new thread inherits the capabilities of the thread that starts it, and drops those that its row does not name. A thread
//! without a row keeps none.

use Capability::{CAP_DAC_OVERRIDE, CAP_NET_ADMIN, CAP_NET_RAW, CAP_SYS_ADMIN, CAP_SYS_PTRACE};
use caps::{CapSet, Capability, CapsHashSet};
use std::io;
use std::thread::Builder;

/// A row of the table of threads.
pub struct Thread {
    /// Its name, as in `/proc/PID/task/TID/comm`.
    pub name: &'static str,
    /// What it does.
    pub purpose: &'static str,
    /// The capabilities that it keeps.
    pub keeps: &'static [Capability],
}

/// For threads that work in namespaces of pods: find and enter them, read and write rules.
const NAMESPACES: &[Capability] = &[CAP_NET_ADMIN, CAP_NET_RAW, CAP_SYS_PTRACE, CAP_SYS_ADMIN];

const fn thread(name: &'static str, purpose: &'static str, keeps: &'static [Capability]) -> Thread {
    Thread {
        name,
        purpose,
        keeps,
    }
}

/// All threads. A thread that starts others keeps the capabilities that they need.
pub const THREADS: [Thread; 14] = [
    thread(
        "weir",
        "installs the plugin, waits for signals",
        &[CAP_DAC_OVERRIDE],
    ),
    thread(
        "repair",
        "verification and repair; starts `pod`",
        NAMESPACES,
    ),
    thread(
        "ambient",
        "ambient mode; starts `pod` and `host`",
        NAMESPACES,
    ),
    thread("pod", "works in the namespace of one pod", NAMESPACES),
    thread(
        "host",
        "the host's rules for probes, and what an earlier agent left in its namespace",
        NAMESPACES,
    ),
    thread(
        "survey",
        "tries what the kernel can do, in a throwaway namespace",
        NAMESPACES,
    ),
    thread(
        "drift",
        "receives notifications of nf_tables and of routing, asks for the sizes of legacy tables",
        &[CAP_NET_ADMIN],
    ),
    thread("servers", "the sockets, and the watch of pods", &[]),
    thread("health", "health and metrics", &[]),
    thread("zds", "accepts connections of ztunnel", NAMESPACES),
    thread(
        "zds-ztunnel",
        "checks whose a namespace is and hands it to ztunnel",
        NAMESPACES,
    ),
    thread("events", "sends Kubernetes events", &[]),
    thread("owner", "asks which DaemonSet the agent belongs to", &[]),
    thread("log", "writes one target of the log", &[]),
];

/// Returns true if this process may change the network of its own and of other namespaces. Also true if that cannot be
/// determined, so that the caller tries.
#[must_use]
pub fn may_change_networks() -> bool {
    let has = |right| caps::has_cap(None, CapSet::Permitted, right).unwrap_or(true);
    [CAP_NET_ADMIN, CAP_SYS_ADMIN].into_iter().all(has)
}

/// Reduces the capabilities of the calling thread permanently to those in its row.
///
/// # Errors
/// The kernel refuses; a text.
pub fn enter(name: &str) -> Result<(), String> {
    let row = THREADS.iter().find(|thread| thread.name == name);
    let (purpose, keeps) = match row {
        Some(thread) => (thread.purpose, thread.keeps),
        None => ("not in the table", &[] as &[_]),
    };
    let limit = || {
        let has = caps::read(None, CapSet::Permitted)?;
        let kept: CapsHashSet = keeps.iter().copied().filter(|c| has.contains(c)).collect();
        caps::set(None, CapSet::Effective, &kept)?;
        caps::set(None, CapSet::Permitted, &kept)
    };
    limit().map_err(|e: caps::errors::CapsError| {
        format!("the thread {name} ({purpose}) keeps capabilities that it does not need: {e}")
    })
}

/// Runs a function on a thread of that name, so that threads started by it have no more than that row. Returns the result
/// of [`enter`], and that of the function.
///
/// # Errors
/// The thread cannot be started, or it panicked.
pub fn within<T: Send>(
    name: &str,
    run: impl FnOnce() -> T + Send,
) -> io::Result<(Result<(), String>, T)> {
    std::thread::scope(|scope| {
        let thread = Builder::new().name(name.to_owned());
        let started = thread.spawn_scoped(scope, || (enter(name), run()));
        let started = started.map_err(|e| super::not_started(name, &e))?;
        let panicked = |_| io::Error::other("a thread panicked");
        started.join().map_err(panicked)
    })
}
