//! Removes what an agent in ambient mode left at the node; for an agent with ambient mode off, and for `weir uninstall`.
//!
//! An upgrade keeps what captures pods and lets probes through. If the next agent has ambient mode off, no other component
//! would remove it. Rules in pods stay, as upstream.

use super::settings::bpffs_of;
use super::start::Removed;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use weir_ambient::eni::{self, BranchEnis};
use weir_ambient::host;
use weir_core::journal::Journal;
use weir_core::journal::ambient::Event;
use weir_core::sandboxes::host::netns_of;
use weir_core::settings::Resolved;
use weir_ebpf::Bpffs;
use weir_ebpf::node::Node;
use weir_netlink::route::Routing;
use weir_netlink::{Error, Netns, Result};
use weir_node_ambient::ebpf::remove_pinned;

/// Backoff after a failed attempt: initial delay, doubled each time up to the maximum.
const RETRY: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));

/// The places where an earlier agent may have left something.
pub(crate) struct Former {
    /// The network namespace of the node, if it is not that of this process.
    netns: Option<PathBuf>,
    bpffs: PathBuf,
    /// Serializes removals.
    lock: Mutex<()>,
}

impl Former {
    /// Creates it from the settings.
    pub(crate) fn of(r: &Resolved) -> Self {
        let bpffs = Some(r.text("WEIR_BPFFS")).filter(|path| !path.is_empty());
        Self {
            netns: netns_of(r).1,
            bpffs: bpffs_of(bpffs.map(PathBuf::from)),
            lock: Mutex::default(),
        }
    }

    /// Returns the path of the network namespace, for display.
    pub(crate) fn place(&self) -> PathBuf {
        let netns = self.netns.clone();
        netns.unwrap_or_else(|| "/proc/self/ns/net".into())
    }

    fn at_host<T: Send>(&self, work: impl FnOnce(&Netns) -> Result<T> + Send) -> Result<T> {
        match &self.netns {
            None => work(&Netns::current()?),
            Some(path) => {
                let host = Netns::open(path)?;
                host.run(|| work(&host))?
            }
        }
    }

    /// Returns descriptions of what is present.
    ///
    /// # Errors
    /// The state cannot be read.
    pub(crate) fn left(&self) -> Result<Vec<&'static str>> {
        self.at_host(|host| {
            let (has_rules, has_programs) = captures(host, &self.bpffs)?;
            let enis = eni::made_here(&Routing::open()?)?;
            let found = [
                (has_rules, "rules and routing of redirection at the node"),
                (has_programs, "programs of redirection at the node"),
                (host::is_present()?, "rules for probes of ambient mode"),
                (!enis.is_empty(), "policy rules for branch ENIs"),
            ];
            let found = found.into_iter().filter(|(is_there, _)| *is_there);
            Ok(found.map(|(_, what)| what).collect())
        })
    }

    /// Removes everything. A failure does not stop the rest. Returns what was removed, one line each.
    ///
    /// # Errors
    /// What may still be present.
    pub(crate) fn remove(&self) -> Removed {
        let _one = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
        let removed = self.at_host(|host| {
            let programs = || remove_pinned(host, &self.bpffs, None).map(Option::unwrap_or_default);
            Ok(all(&[
                &|| weir_node_ambient::remove(host, None),
                &programs,
                &host::remove_own,
                &enis,
            ]))
        });
        told(removed.map_err(|e| e.to_string())?)
    }
}

/// Returns whether rules, and whether programs redirect at the node.
fn captures(host: &Netns, bpffs: &Path) -> Result<(bool, bool)> {
    let has_programs = match Bpffs::if_mounted(bpffs)? {
        Some(bpffs) => Node::of(host, &bpffs).is_present([])?,
        None => false,
    };
    Ok((weir_node_ambient::is_present(host)?, has_programs))
}

/// True if something redirects at the node; without a path, that of this process.
///
/// # Errors
/// The state cannot be read.
pub(super) fn is_at_node(host: Option<&Path>, bpffs: &Path) -> Result<bool> {
    let host = host.map_or_else(Netns::current, Netns::open)?;
    captures(&host, bpffs).map(|found| found != (false, false))
}

fn enis() -> Result<Vec<String>> {
    let rules = BranchEnis::default().remove_others(&Routing::open()?)?;
    let line = |rule| format!("delete policy rule {rule}");
    Ok(rules.iter().map(line).collect())
}

/// Removes what lets probes through if pods are captured in their own network namespaces: rules, sets and policy rules for branch
/// ENIs. Returns what was removed, one line each.
///
/// # Errors
/// What may still be present.
pub(super) fn remove_probes(host: &Netns) -> Removed {
    let removed = host.run(|| all(&[&host::remove, &enis]));
    told(removed.map_err(|e| e.to_string())?)
}

type Part<'a> = &'a dyn Fn() -> Result<Vec<String>>;

/// Runs all parts, also after a failure. Returns what was removed and the first failure.
fn all(parts: &[Part<'_>]) -> (Vec<String>, Option<Error>) {
    let (mut removed, mut failed) = (Vec::new(), None);
    for part in parts {
        match part() {
            Ok(of_part) => removed.extend(of_part),
            Err(e) => _ = failed.get_or_insert(e),
        }
    }
    (removed, failed)
}

fn told((removed, failed): (Vec<String>, Option<Error>)) -> Removed {
    match failed {
        None => Ok(removed),
        Some(e) => Err(removed.into_iter().fold(e.to_string(), |text, line| {
            format!("{text}; done all the same: {line}")
        })),
    }
}

/// Repeated attempts at a removal. The journal records each distinct failure once, and all that was removed.
pub(super) struct Attempts {
    pause: Duration,
    told: Option<String>,
}

impl Attempts {
    pub(super) fn begin() -> Self {
        let (pause, told) = (RETRY.0, None);
        Self { pause, told }
    }

    /// Records the result of an attempt. Returns the delay before the next one; `None`: nothing is left.
    pub(super) fn ended(&mut self, removed: Removed, journal: &Journal) -> Option<Duration> {
        match removed {
            Ok(removed) => {
                for what in removed {
                    journal.record(Event::NodeCleaned { what });
                }
                return None;
            }
            Err(why) if self.told.as_ref() == Some(&why) => {}
            Err(why) => {
                self.told = Some(why.clone());
                journal.record(Event::NodeNotCleaned { why });
            }
        }
        let pause = self.pause;
        self.pause = (pause * 2).min(RETRY.1);
        Some(pause)
    }
}

/// Removes everything, retrying until nothing is left, and records the results.
pub(super) async fn removed(former: Arc<Former>, journal: Journal) {
    let mut attempts = Attempts::begin();
    loop {
        let of_thread = Arc::clone(&former);
        let removed = tokio::task::spawn_blocking(move || of_thread.remove()).await;
        let removed = removed.unwrap_or_else(|e| Err(e.to_string()));
        match attempts.ended(removed, &journal) {
            Some(pause) => tokio::time::sleep(pause).await,
            None => return,
        }
    }
}
