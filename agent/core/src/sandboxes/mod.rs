//! Finds and holds the network namespaces of pods.
//!
//! `Sandboxes` holds the namespaces that were found, by the UID of the pod. Sources, in order of preference:
//!
//! - the plugin, to which the container runtime passes the namespace at ADD;
//! - the namespace that was found before, while it is still the pod's;
//! - the container runtime, if its socket is known (`cri`);
//! - the processes of the node (`place`).
//!
//! Whatever the source, a namespace is accepted only if it was not created inside the pod, in a user namespace of one of
//! the pod's users, and if it has all addresses of the pod; the host's namespace is refused
//! (`weir_cni::redirection::Sandbox`). An open descriptor keeps a namespace alive, so it is closed when the pod is gone.

mod cgroup;
pub mod claims;
pub mod cri;
mod find;
pub mod host;
mod identity;
pub mod named;
pub mod place;

pub use cgroup::is_of_pod;

use identity::owns;
use nix::errno::Errno;
use place::{Folder, FoundNetns, Identity, Processes, Scan};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;
use weir_cni::files::exists;
use weir_cni::plugin::NetnsOfPod;
use weir_cni::redirection::{Fingerprint, FingerprintReader, Sandbox};
use weir_netlink::{Netns, NetnsId};

/// Where a container of Istio's chart mounts parts of the node's root.
const HOST: &str = "/host";

/// The source that attributed a namespace to a pod.
#[derive(Debug)]
enum Source {
    /// The plugin, at ADD; with the path at which this process sees the namespace.
    Plugin(PathBuf),
    /// The container runtime; with the path at which this process sees the namespace.
    Runtime(PathBuf),
    /// A process of the pod that lives in it, and that process's `/proc` directory if it can be held open.
    Process(FoundNetns, Option<Folder>),
}

/// The network namespace of a pod, held open.
#[derive(Debug)]
pub struct Held {
    /// Checked not to be the host's.
    pub sandbox: Sandbox,
    source: Source,
    /// Opened by the first call of [`Held::fingerprint`], and kept.
    reader: Mutex<Option<FingerprintReader>>,
}

impl Held {
    fn new(sandbox: Sandbox, source: Source) -> Self {
        Self {
            sandbox,
            source,
            reader: Mutex::default(),
        }
    }

    /// Reads what [`Visit::fingerprint`](weir_cni::redirection::Visit::fingerprint) reads, without entering the namespace
    /// each time. `None` if it cannot be read; the next call opens a new reader.
    pub fn fingerprint(&self) -> Option<Fingerprint> {
        let mut reader = locked(&self.reader);
        let mut open = match reader.take() {
            Some(open) => open,
            None => self.sandbox.fingerprint_reader().ok()?,
        };
        let read = open.read().ok()?;
        *reader = Some(open);
        Some(read)
    }

    /// Returns the device and inode of the namespace.
    pub fn id(&self) -> NetnsId {
        self.sandbox.netns().id()
    }
}

impl AsFd for Held {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.sandbox.netns().as_fd()
    }
}

/// The known network namespaces of the pods of this node. Clones share their state.
#[derive(Debug, Clone)]
pub struct Sandboxes(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    processes: Processes,
    runtime: Option<cri::sandbox::Runtime>,
    state: Mutex<State>,
    /// The last scan of the node's processes, and when it began.
    scan: Mutex<Option<(Instant, Arc<Scan>)>>,
}

#[derive(Debug, Default)]
struct State {
    held: BTreeMap<String, Arc<Held>>,
    /// The namespace that the plugin announced last, by UID, until it is accepted.
    announced: BTreeMap<String, NetnsOfPod>,
    /// The path that the plugin reported last and the place where this process saw it, by UID.
    seen: BTreeMap<String, (NetnsOfPod, PathBuf)>,
    /// The announced namespace as [`Sandboxes::there`] read it, by UID, until [`Sandboxes::find`] uses it.
    read: BTreeMap<String, Read>,
}

/// A namespace and its addresses at some time.
#[derive(Debug)]
struct Read {
    began: Instant,
    announced: NetnsOfPod,
    held: Held,
    addresses: Vec<IpAddr>,
}

impl State {
    fn hold(&mut self, uid: &str, held: &Arc<Held>) {
        let before = self.held.insert(uid.to_owned(), Arc::clone(held));
        if let Some(before) = before {
            held.sandbox.remember(&before.sandbox);
        }
    }
}

fn locked<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    // No holder of these locks panics in the middle of a change.
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Sandboxes {
    /// Creates an empty collection for this node, without a container runtime.
    pub fn of_node() -> Self {
        Self::asking(None)
    }

    /// As [`Sandboxes::of_node`], with a container runtime to query.
    pub fn asking(runtime: Option<cri::sandbox::Runtime>) -> Self {
        Self(Arc::new(Shared {
            processes: Processes::of_node(),
            runtime,
            state: Mutex::default(),
            scan: Mutex::default(),
        }))
    }

    /// Records the namespace in which the plugin adds a pod to the mesh. A namespace known before belongs to an older sandbox.
    pub fn announce(&self, uid: &str, netns: NetnsOfPod) {
        let mut state = locked(&self.0.state);
        state.held.remove(uid);
        state.read.remove(uid);
        state.announced.insert(uid.to_owned(), netns);
    }

    /// As [`Sandboxes::announce`], for a plugin that reports only the path. A path that was announced before and no longer exists stays
    /// announced: [`Sandboxes::find`] reports it, and uses the other sources.
    ///
    /// # Errors
    /// There is no such file here or below the root of the node, and there was none before; it is not a network namespace, or it is the
    /// node's own.
    pub fn announce_path(&self, uid: &str, path: &Path) -> Result<(), String> {
        let (mut refused, mut hidden) = (None, String::new());
        if !path.is_absolute() {
            refused = Some("it is not an absolute path".to_owned());
        }
        for place in self.places(path) {
            let NetnsId { dev, ino } = match self.opened(&place) {
                Ok(sandbox) => sandbox.netns().id(),
                Err(e) if e.is_not_found() || e.errno() == Some(Errno::ENOTDIR as i32) => continue,
                // This agent may lack access to the root of the node, which says nothing about the path.
                Err(e) if e.is_permission() => {
                    hidden = format!(" ({e})");
                    continue;
                }
                Err(e) => {
                    refused.get_or_insert(e.to_string());
                    continue;
                }
            };
            let path = path.to_owned();
            let netns = NetnsOfPod { path, dev, ino };
            self.announce(uid, netns.clone());
            let seen = (netns, place);
            locked(&self.0.state).seen.insert(uid.to_owned(), seen);
            return Ok(());
        }
        let seen = locked(&self.0.state).seen.get(uid).cloned();
        let is_gone = |(netns, place): &(NetnsOfPod, PathBuf)| {
            netns.path == path && refused.is_none() && matches!(exists(place), Ok(false))
        };
        if let Some((netns, _)) = seen.filter(is_gone) {
            self.announce(uid, netns);
            return Ok(());
        }
        let (unseen, path) = (Self::unseen(path, &hidden), path.display());
        Err(match refused {
            Some(why) => format!(
                "the plugin names {path} as the pod's network namespace, which cannot be used as that: {why}"
            ),
            None => unseen,
        })
    }

    /// Opens a network namespace that may be a pod's. Refuses the node's, even if this process runs in another one.
    fn opened(&self, path: &Path) -> weir_netlink::Result<Sandbox> {
        let netns = Netns::open(path)?;
        let object = || format!("{} as a pod's network namespace", path.display());
        let is_host = self.0.processes.is_host(&netns);
        if is_host.map_err(|why| weir_netlink::Error::refused("use", object(), why))? {
            let reason =
                "it is the node's, and rules there would take the traffic of the whole node";
            return Err(weir_netlink::Error::refused("use", object(), reason));
        }
        Sandbox::of(netns)
    }

    fn unseen(path: &Path, hidden: &str) -> String {
        format!(
            "the network namespace {} is not seen by this agent{hidden}; its directory has to be mounted below {HOST}",
            path.display()
        )
    }

    /// Returns the paths at which this process may see a path of the runtime.
    fn places(&self, path: &Path) -> Vec<PathBuf> {
        let Ok(below) = path.strip_prefix("/") else {
            return Vec::new();
        };
        let of_node = self.0.processes.root_of_node().join(below);
        vec![path.to_owned(), Path::new(HOST).join(below), of_node]
    }

    /// Returns those of the addresses that the namespace announced by the plugin has. `None` if it cannot be read or has none
    /// of them.
    pub fn there(&self, pod: &Identity, addresses: &[IpAddr]) -> Option<Vec<IpAddr>> {
        let (uid, began) = (pod.uid()?, Instant::now());
        let announced = locked(&self.0.state).announced.get(uid).cloned()?;
        let held = self.announced(&announced, pod).ok()?;
        let have = held.sandbox.visit(|visit| visit.addresses(&[])).ok()?;
        let there = addresses.iter().filter(|address| have.contains(address));
        let there: Vec<IpAddr> = there.copied().collect();
        let read = Read {
            began,
            announced,
            held,
            addresses: have,
        };
        locked(&self.0.state).read.insert(uid.to_owned(), read);
        (!there.is_empty()).then_some(there)
    }

    /// Returns true if a path of the runtime is this namespace.
    pub fn is_at(&self, path: &Path, id: NetnsId) -> bool {
        let mut places = self.places(path).into_iter();
        places.any(|place| id_of(&place) == Some(id))
    }

    /// Returns true if a path of the runtime is a different namespace. A path that this process does not see may be the same
    /// one: false.
    pub fn is_elsewhere(&self, path: &Path, id: NetnsId) -> bool {
        let places = self.places(path);
        let open = |place: &PathBuf| Netns::open(place).ok();
        let seen: Vec<NetnsId> = places.iter().filter_map(open).map(|n| n.id()).collect();
        !seen.is_empty() && !seen.contains(&id)
    }

    /// Drops the namespaces of all pods that are not in `uids`.
    pub fn retain(&self, uids: &BTreeSet<&str>) {
        let mut state = locked(&self.0.state);
        state.held.retain(|uid, _| uids.contains(uid.as_str()));
        state.announced.retain(|uid, _| uids.contains(uid.as_str()));
        state.seen.retain(|uid, _| uids.contains(uid.as_str()));
        state.read.clear();
        drop(state);
        *locked(&self.0.scan) = None;
    }

    /// Closes the namespace of a pod: the descriptor would keep it alive after its last process.
    pub fn forget(&self, uid: &str) {
        let mut state = locked(&self.0.state);
        state.held.remove(uid);
        state.read.remove(uid);
    }

    /// Returns the namespace that was found before, if it is still certainly the pod's.
    pub fn kept(&self, pod: &Identity) -> Option<Arc<Held>> {
        let held = locked(&self.0.state).held.get(pod.uid()?).cloned()?;
        let is_there = match &held.source {
            // The control group was checked when the namespace was found, and is checked again before a write.
            Source::Process(_, Some(folder)) => folder.netns() == Some(held.id()),
            _ => self.is_there(&held, pod),
        };
        is_there.then_some(held)
    }

    /// Checks that the namespace is still the pod's, addresses included.
    ///
    /// # Errors
    /// It is not, or it cannot be read.
    pub fn check(&self, held: &Held, pod: &Identity) -> Result<(), String> {
        match (self.is_there(held, pod), &held.source) {
            (true, _) => is_owner(held, pod),
            (false, Source::Process(..)) => {
                Err("its process ended while its rules were read".to_owned())
            }
            (false, Source::Plugin(path) | Source::Runtime(path)) => Err(format!(
                "{} was removed while its rules were read",
                path.display()
            )),
        }
    }

    fn is_there(&self, held: &Held, pod: &Identity) -> bool {
        match &held.source {
            Source::Process(place, _) => self.0.processes.is_there(place, pod),
            // While the namespace is held, its inode number is not reused.
            Source::Plugin(path) | Source::Runtime(path) => {
                id_of(path).is_some_and(|id| id == held.id())
            }
        }
    }
}

/// Checks that the namespace has the pod's addresses. While a pod is added, only the runtime may know them; its statement
/// about the namespace is then sufficient.
fn is_owner(held: &Held, pod: &Identity) -> Result<(), String> {
    match (&held.source, pod.addresses.is_empty()) {
        (Source::Plugin(_) | Source::Runtime(_), true) => Ok(()),
        _ => Ok(owns(&held.sandbox, pod)?),
    }
}

fn id_of(path: &Path) -> Option<NetnsId> {
    let meta = std::fs::metadata(path).ok()?;
    Some(NetnsId {
        dev: meta.dev(),
        ino: meta.ino(),
    })
}

#[cfg(test)]
mod tests;
