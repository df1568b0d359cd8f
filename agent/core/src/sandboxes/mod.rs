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
pub mod host;
mod identity;
pub mod named;
pub mod place;

pub use cgroup::is_of_pod;

use identity::{has_addresses, not_nested, owns};
use nix::errno::Errno;
use place::{Folder, FoundNetns, Identity, Processes, Scan};
use std::collections::{BTreeMap, BTreeSet};
use std::io::ErrorKind;
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

    /// As [`Sandboxes::announce`], for a plugin that reports only the path.
    ///
    /// # Errors
    /// There is no such file here or below the root of the node, it is not a network namespace, or it is the node's own.
    pub fn announce_path(&self, uid: &str, path: &Path) -> Result<(), String> {
        let (mut refused, mut hidden) = (None, String::new());
        if !path.is_absolute() {
            refused = Some("it is no absolute path".to_owned());
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
            self.announce(uid, NetnsOfPod { path, dev, ino });
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

    /// Returns the announced namespace if it is the pod's. Opens and reads it, unless [`Sandboxes::there`] has done that for this
    /// announcement after `since`.
    fn named(
        &self,
        announced: &NetnsOfPod,
        pod: &Identity,
        since: Instant,
    ) -> Result<Held, String> {
        let read = pod
            .uid()
            .and_then(|uid| locked(&self.0.state).read.remove(uid));
        match read.filter(|read| read.began >= since && read.announced == *announced) {
            Some(read) if pod.addresses.is_empty() => Ok(read.held),
            Some(Read {
                held, addresses, ..
            }) => {
                has_addresses(held.id(), &addresses, pod)?;
                Ok(held)
            }
            None => {
                let held = self.announced(announced, pod)?;
                is_owner(&held, pod).map(|()| held)
            }
        }
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

    /// Finds the namespace of a pod. Scans the processes of the node again if the last scan is older than `since`.
    ///
    /// # Errors
    /// No namespace is certainly the pod's, or several are; the text names the condition that does not hold.
    pub fn find(&self, pod: &Identity, since: Instant) -> Result<Arc<Held>, String> {
        let announced = pod
            .uid()
            .and_then(|uid| locked(&self.0.state).announced.get(uid).cloned());
        // Why the namespace announced by the plugin is not accepted; reported if no other source finds one.
        let mut refused = None;
        let named = announced.as_ref().and_then(|netns| {
            let held = self.named(netns, pod, since);
            let held = held.and_then(|held| self.taken_alone(held, pod));
            let path = netns.path.display();
            held.map_err(|why| {
                refused = Some(format!(
                    "the plugin named {path}, which is not taken: {why}"
                ));
            })
            .ok()
        });
        // The announcement stays until it is accepted: the addresses may appear later, or the known ones may be those of an
        // earlier sandbox.
        if let Some(uid) = pod.uid().filter(|_| named.is_some()) {
            let mut state = locked(&self.0.state);
            // The plugin may have announced another one in the meantime.
            if state.announced.get(uid) == announced.as_ref() {
                state.announced.remove(uid);
            }
        }
        let kept = || self.kept(pod).filter(|held| is_owner(held, pod).is_ok());
        let held = match named.or_else(kept) {
            Some(held) => held,
            None => self.by_others(pod, since).map_err(|why| match &refused {
                Some(refused) => format!("{refused}; {why}"),
                None => why,
            })?,
        };
        if let Some(uid) = pod.uid() {
            locked(&self.0.state).hold(uid, &held);
        }
        Ok(held)
    }

    /// Takes a namespace that the plugin named, unless it is held for another pod: the proxy would act for both in one namespace.
    fn taken_alone(&self, held: Held, pod: &Identity) -> Result<Arc<Held>, String> {
        let held = Arc::new(held);
        if let Some(uid) = pod.uid() {
            let mut state = locked(&self.0.state);
            let mut others = state.held.iter().filter(|(of, _)| *of != uid);
            if let Some((of, _)) = others.find(|(_, other)| other.id() == held.id()) {
                let id = held.id();
                return Err(format!("{id} is that of another pod, with the UID {of}"));
            }
            state.hold(uid, &held);
        }
        Ok(held)
    }

    /// Returns true if nothing of the pod runs here, after [`Sandboxes::find`] has found nothing: no process is in a control
    /// group of the pod, the container runtime knows no sandbox, and the announced namespace is gone. False if unknown.
    pub fn is_absent(&self, pod: &Identity, since: Instant) -> bool {
        let announced = pod
            .uid()
            .and_then(|uid| locked(&self.0.state).announced.get(uid).cloned());
        let is_named = announced.is_some_and(|netns| {
            let mut places = self.places(&netns.path).into_iter();
            places.any(|place| match exists(&place) {
                Ok(is_there) => is_there,
                // This agent may lack access to the root of the node, which says nothing about the path.
                Err(e) => e.kind() != ErrorKind::PermissionDenied,
            })
        });
        let runtime = self.0.runtime.as_ref();
        let is_unknown = runtime.is_none_or(|runtime| {
            let mut uids = pod.uids().iter();
            uids.all(|uid| matches!(runtime.netns(uid), Ok(None)))
        });
        !is_named && is_unknown && self.scan(since).is_ok_and(|scan| scan.has_none_of(pod))
    }

    fn by_process(&self, pod: &Identity, since: Instant) -> Result<Arc<Held>, String> {
        let place = self.0.processes.find(&*self.scan(since)?, pod)?;
        let sandbox = self.0.processes.open(&place, pod)?;
        let folder = self.0.processes.folder(&place);
        Ok(Arc::new(Held::new(sandbox, Source::Process(place, folder))))
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

    /// Finds the namespace by the container runtime, otherwise by the processes of the node.
    fn by_others(&self, pod: &Identity, since: Instant) -> Result<Arc<Held>, String> {
        match self.by_runtime(pod) {
            Ok(Some(held)) => Ok(Arc::new(held)),
            Ok(None) => self.by_process(pod, since),
            Err(of_runtime) => self
                .by_process(pod, since)
                .map_err(|why| format!("{why}; {of_runtime}")),
        }
    }

    /// Queries the container runtime. `None` if there is none to query, or it knows no sandbox of the pod.
    fn by_runtime(&self, pod: &Identity) -> Result<Option<Held>, String> {
        let Some(runtime) = &self.0.runtime else {
            return Ok(None);
        };
        let mut refused = None;
        for uid in pod.uids() {
            let Some(path) = runtime.netns(uid)? else {
                continue;
            };
            match self.named_by_runtime(&path, pod) {
                Ok(held) => return Ok(Some(held)),
                Err(why) => _ = refused.get_or_insert(why),
            }
        }
        refused.map_or(Ok(None), Err)
    }

    /// Opens the namespace that the container runtime names, at the first path where it is visible and is the pod's.
    fn named_by_runtime(&self, path: &Path, pod: &Identity) -> Result<Held, String> {
        let mut refused = None;
        for place in self.places(path) {
            if id_of(&place).is_none() {
                continue;
            }
            let held = self.opened(&place).map_err(|e| e.to_string());
            let held = held.and_then(|sandbox| {
                not_nested(sandbox.netns(), pod)?;
                let held = Held::new(sandbox, Source::Runtime(place));
                is_owner(&held, pod).map(|()| held)
            });
            match held {
                Ok(held) => return Ok(held),
                Err(why) => _ = refused.get_or_insert(why),
            }
        }
        Err(match refused {
            None => Self::unseen(path, ""),
            Some(why) => format!(
                "the container runtime names {}, which is not taken: {why}",
                path.display()
            ),
        })
    }

    /// Opens the namespace that the plugin announced, by its path here or below the root of the node.
    ///
    /// # Errors
    /// It is not visible here, is not the announced one, or cannot be a pod's; the caller then tries the other sources.
    fn announced(&self, netns: &NetnsOfPod, pod: &Identity) -> Result<Held, String> {
        let id = NetnsId {
            dev: netns.dev,
            ino: netns.ino,
        };
        let mut places = self.places(&netns.path).into_iter();
        let path = places
            .find(|path| id_of(path) == Some(id))
            .ok_or_else(|| format!("{id} is not seen there by this agent"))?;
        let sandbox = self.opened(&path).map_err(|e| e.to_string())?;
        if sandbox.netns().id() != id {
            return Err(format!("{id} was there, and another one is now"));
        }
        not_nested(sandbox.netns(), pod)?;
        Ok(Held::new(sandbox, Source::Plugin(path)))
    }

    fn scan(&self, since: Instant) -> Result<Arc<Scan>, String> {
        let mut scan = locked(&self.0.scan);
        if let Some((_, scan)) = scan.as_ref().filter(|(begun, _)| *begun >= since) {
            return Ok(Arc::clone(scan));
        }
        let begun = Instant::now();
        let new = Arc::new(self.0.processes.scan()?);
        *scan = Some((begun, Arc::clone(&new)));
        Ok(new)
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
