//! What an agent in ambient mode left at the node, for one that is not, and for `weir uninstall`.
//!
//! An upgrade keeps what captures pods and lets probes through. When the agent that follows has ambient mode off, nobody
//! else knows whose it is. Rules in pods stay, as they do upstream.

use super::settings::bpffs_of;
use super::start::Removed;
use std::path::PathBuf;
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

/// After an attempt that failed the next one comes after the first of these, then after twice as long each time, up to the
/// second.
const RETRY: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));

/// Where it is.
pub(crate) struct Former {
    /// The namespace of the node, if it is not this process's own.
    netns: Option<PathBuf>,
    bpffs: PathBuf,
    /// One removal at a time.
    lock: Mutex<()>,
}

impl Former {
    /// From the settings.
    pub(crate) fn of(r: &Resolved) -> Self {
        let bpffs = Some(r.text("WEIR_BPFFS")).filter(|path| !path.is_empty());
        Self {
            netns: netns_of(r).1,
            bpffs: bpffs_of(bpffs.map(PathBuf::from)),
            lock: Mutex::default(),
        }
    }

    /// The namespace, for people.
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

    /// What is there, in words.
    ///
    /// # Errors
    /// It cannot be looked at.
    pub(crate) fn left(&self) -> Result<Vec<&'static str>> {
        self.at_host(|host| {
            let has_programs = match Bpffs::if_mounted(&self.bpffs)? {
                Some(bpffs) => Node::of(host, &bpffs).is_present([])?,
                None => false,
            };
            let enis = eni::made_here(&Routing::open()?)?;
            let found = [
                (
                    weir_node_ambient::is_present(host)?,
                    "rules and routing of redirection at the node",
                ),
                (has_programs, "programs of redirection at the node"),
                (host::is_present()?, "rules for probes of ambient mode"),
                (!enis.is_empty(), "policy rules for branch ENIs"),
            ];
            let found = found.into_iter().filter(|(is_there, _)| *is_there);
            Ok(found.map(|(_, what)| what).collect())
        })
    }

    /// Removes it. What cannot be removed keeps none of the rest. Returns what was removed, a line each.
    ///
    /// # Errors
    /// What may be there still.
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

fn enis() -> Result<Vec<String>> {
    let rules = BranchEnis::default().remove_others(&Routing::open()?)?;
    let line = |rule| format!("delete policy rule {rule}");
    Ok(rules.iter().map(line).collect())
}

/// Removes what lets probes through where pods are captured in their own namespaces: rules, sets and policy rules for branch
/// ENIs. Returns what was removed, a line each.
///
/// # Errors
/// What may be there still.
pub(super) fn remove_probes(host: &Netns) -> Removed {
    let removed = host.run(|| all(&[&host::remove, &enis]));
    told(removed.map_err(|e| e.to_string())?)
}

type Part<'a> = &'a dyn Fn() -> Result<Vec<String>>;

/// What was removed, and the first failure; what cannot be removed keeps none of the rest.
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

/// Attempts at a removal, told in the journal: each failure once, and all that was removed.
pub(super) struct Attempts {
    pause: Duration,
    told: Option<String>,
}

impl Attempts {
    pub(super) fn begin() -> Self {
        let (pause, told) = (RETRY.0, None);
        Self { pause, told }
    }

    /// Tells how one went. How long to wait before the next; `None`: nothing is left.
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

/// Removes it once, with further attempts until nothing is left, and tells of it.
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
