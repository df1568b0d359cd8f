//! The network namespace of a pod: where it is, and how that is known.
//!
//! `Sandboxes` holds the namespaces that were found, by the UID of the pod. Sources, the best first:
//!
//! - the plugin, which the container runtime gave the namespace at ADD;
//! - what was found before, while it is still the pod's;
//! - the container runtime, where its socket is known (`cri`);
//! - the processes of the node (`place`).
//!
//! Whatever the source is, a namespace is only a pod's when it was not made below the pod, in a user namespace that one of
//! its users made, and has all addresses of the pod; the host's is none (`weir_cni::redirection::Sandbox` refuses it). A descriptor keeps
//! a namespace alive, so it is closed when the pod is gone.

mod cgroup;
pub mod claims;
pub mod cri;
pub mod host;
mod identity;
pub mod named;
pub mod place;

pub use cgroup::is_of_pod;

use nix::errno::Errno;
use place::{Folder, Identity, Place, Processes, Scan, not_nested, owns};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;
use weir_cni::plugin::NetnsOfPod;
use weir_cni::redirection::{Fingerprint, FingerprintReader, Sandbox};
use weir_netlink::{Netns, NetnsId};

/// Where a container of Istio's chart has parts of the node's root.
const HOST: &str = "/host";

/// How it is known whose namespace it is.
#[derive(Debug)]
enum Source {
    /// The plugin said so at ADD; the file by which this process sees it.
    Plugin(PathBuf),
    /// The container runtime says so; the same.
    Runtime(PathBuf),
    /// A process of the pod lives in it. Its folder, where that can be held.
    Process(Place, Option<Folder>),
}

/// A namespace that is a pod's.
#[derive(Debug)]
pub struct Held {
    /// Checked to be none of the host.
    pub sandbox: Sandbox,
    source: Source,
    /// Opened when its fingerprint is asked for, and kept.
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

    /// What [`Visit::fingerprint`](weir_cni::redirection::Visit::fingerprint) reads, without entering the namespace
    /// each time. `None`: it cannot be read; the next call begins anew.
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

    /// What tells it from every other one.
    pub fn id(&self) -> NetnsId {
        self.sandbox.netns().id()
    }
}

impl AsFd for Held {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.sandbox.netns().as_fd()
    }
}

/// All that are known; clones are the same.
#[derive(Debug, Clone)]
pub struct Sandboxes(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    processes: Processes,
    runtime: Option<cri::sandbox::Runtime>,
    state: Mutex<State>,
    /// The processes of the node, and when the look at them began.
    scan: Mutex<Option<(Instant, Arc<Scan>)>>,
}

#[derive(Debug, Default)]
struct State {
    held: BTreeMap<String, Arc<Held>>,
    /// What the plugin said last, until it was looked at.
    announced: BTreeMap<String, NetnsOfPod>,
}

fn locked<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing in here panics half-way.
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Sandboxes {
    /// Of this node; none is known yet.
    pub fn of_node() -> Self {
        Self::asking(None)
    }

    /// The same with a container runtime that is asked, too.
    pub fn asking(runtime: Option<cri::sandbox::Runtime>) -> Self {
        Self(Arc::new(Shared {
            processes: Processes::of_node(),
            runtime,
            state: Mutex::default(),
            scan: Mutex::default(),
        }))
    }

    /// The plugin adds a pod to the mesh in this namespace. What was known of the pod before is of an older sandbox.
    pub fn announce(&self, uid: &str, netns: NetnsOfPod) {
        let mut state = locked(&self.0.state);
        state.held.remove(uid);
        state.announced.insert(uid.to_owned(), netns);
    }

    /// The same from a plugin that tells the path only.
    ///
    /// # Errors
    /// There is no such file here or below the root of the node, it is no network namespace, or it is the node's own.
    pub fn announce_path(&self, uid: &str, path: &Path) -> Result<(), String> {
        let (mut refused, mut hidden) = (None, String::new());
        for place in self.places(path) {
            let NetnsId { dev, ino } = match self.opened(&place) {
                Ok(sandbox) => sandbox.netns().id(),
                Err(e) if e.is_not_found() || e.errno() == Some(Errno::ENOTDIR as i32) => continue,
                // Of the places the root of the node may be closed to this agent, which says nothing about the path.
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

    /// A network namespace that may be a pod's. One that is the node's is refused, also where this process has another one.
    fn opened(&self, path: &Path) -> weir_netlink::Result<Sandbox> {
        let netns = Netns::open(path)?;
        if self.0.processes.host() == Some(netns.id()) {
            let object = format!("{} as a pod's network namespace", path.display());
            let reason =
                "it is the node's, and rules there would take the traffic of the whole node";
            return Err(weir_netlink::Error::refused("use", object, reason));
        }
        Sandbox::of(netns)
    }

    fn unseen(path: &Path, hidden: &str) -> String {
        format!(
            "the network namespace {} is not seen by this agent{hidden}; its directory has to be mounted below {HOST}",
            path.display()
        )
    }

    /// Where a path of the runtime may be seen by this process.
    fn places(&self, path: &Path) -> Vec<PathBuf> {
        let Ok(below) = path.strip_prefix("/") else {
            return Vec::new();
        };
        let of_node = self.0.processes.root_of_node().join(below);
        vec![path.to_owned(), Path::new(HOST).join(below), of_node]
    }

    /// Which of these addresses the namespace has that the plugin named. `None`: it cannot be read, or has none of them.
    pub fn there(&self, pod: &Identity, addresses: &[IpAddr]) -> Option<Vec<IpAddr>> {
        let announced = locked(&self.0.state).announced.get(pod.uid()?).cloned()?;
        let held = self.announced(&announced, pod).ok()?;
        let have = held.sandbox.visit(|visit| visit.addresses()).ok()?;
        let there = addresses.iter().filter(|address| have.contains(address));
        let there: Vec<IpAddr> = there.copied().collect();
        (!there.is_empty()).then_some(there)
    }

    /// Whether a path of the runtime is this namespace.
    pub fn is_at(&self, path: &Path, id: NetnsId) -> bool {
        let mut places = self.places(path).into_iter();
        places.any(|place| id_of(&place) == Some(id))
    }

    /// Whether a path of the runtime is another namespace than this one. One that is not seen here may be this one.
    pub fn is_elsewhere(&self, path: &Path, id: NetnsId) -> bool {
        let places = self.places(path);
        let open = |place: &PathBuf| Netns::open(place).ok();
        let seen: Vec<NetnsId> = places.iter().filter_map(open).map(|n| n.id()).collect();
        !seen.is_empty() && !seen.contains(&id)
    }

    /// Forgets the namespaces of all other pods.
    pub fn retain(&self, uids: &BTreeSet<&str>) {
        let mut state = locked(&self.0.state);
        state.held.retain(|uid, _| uids.contains(uid.as_str()));
        state.announced.retain(|uid, _| uids.contains(uid.as_str()));
        drop(state);
        *locked(&self.0.scan) = None;
    }

    /// Lets go of the namespace of a pod, which a descriptor would keep alive after its last process.
    pub fn forget(&self, uid: &str) {
        let mut state = locked(&self.0.state);
        state.held.remove(uid);
    }

    /// The namespace that was found before, while it is surely the pod's.
    pub fn kept(&self, pod: &Identity) -> Option<Arc<Held>> {
        let held = locked(&self.0.state).held.get(pod.uid()?).cloned()?;
        let is_there = match &held.source {
            // Its control group was looked at when it was found, and is again before anything is written.
            Source::Process(_, Some(folder)) => folder.netns() == Some(held.id()),
            _ => self.is_there(&held, pod),
        };
        is_there.then_some(held)
    }

    /// The namespace of a pod. The processes of the node are listed anew when that was not done since `since`.
    ///
    /// # Errors
    /// There is none that is surely the pod's, or there are several; which condition does not hold.
    pub fn find(&self, pod: &Identity, since: Instant) -> Result<Arc<Held>, String> {
        let announced = pod
            .uid()
            .and_then(|uid| locked(&self.0.state).announced.get(uid).cloned());
        // Why what the plugin named is not taken, told where nothing else is found.
        let mut refused = None;
        let named = announced.as_ref().and_then(|netns| {
            let held = self.announced(netns, pod).and_then(|held| {
                is_owner(&held, pod)?;
                Ok(Arc::new(held))
            });
            let path = netns.path.display();
            held.map_err(|why| {
                refused = Some(format!(
                    "the plugin named {path}, which is not taken: {why}"
                ));
            })
            .ok()
        });
        // It is asked again until it is taken: its addresses may come later, or those that are known be of a sandbox before.
        if let Some(uid) = pod.uid().filter(|_| named.is_some()) {
            let mut state = locked(&self.0.state);
            // Another may have been named meanwhile.
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
            let mut state = locked(&self.0.state);
            let before = state.held.insert(uid.to_owned(), Arc::clone(&held));
            if let Some(before) = before {
                held.sandbox.remember(&before.sandbox);
            }
        }
        Ok(held)
    }

    /// Whether nothing of the pod runs here, after [`Sandboxes::find`] has found nothing: no process is in a control group of
    /// it, the container runtime knows no sandbox, and what the plugin named is gone. What cannot be found out is no yes.
    pub fn is_absent(&self, pod: &Identity, since: Instant) -> bool {
        let announced = pod
            .uid()
            .and_then(|uid| locked(&self.0.state).announced.get(uid).cloned());
        let is_named = announced.is_some_and(|netns| {
            let mut places = self.places(&netns.path).into_iter();
            places.any(|place| id_of(&place).is_some())
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

    /// That the namespace is still the pod's, addresses included.
    ///
    /// # Errors
    /// It is not, or that cannot be read.
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
            // While it is held, nothing else gets its number.
            Source::Plugin(path) | Source::Runtime(path) => {
                id_of(path).is_some_and(|id| id == held.id())
            }
        }
    }

    /// As the container runtime or the processes of the node tell.
    fn by_others(&self, pod: &Identity, since: Instant) -> Result<Arc<Held>, String> {
        match self.by_runtime(pod) {
            Ok(Some(held)) => Ok(Arc::new(held)),
            Ok(None) => self.by_process(pod, since),
            Err(of_runtime) => self
                .by_process(pod, since)
                .map_err(|why| format!("{why}; {of_runtime}")),
        }
    }

    /// What the container runtime knows of the pod. `None`: it is not asked, or knows no sandbox of it.
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

    /// What the container runtime names, wherever it is seen and is the pod's.
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

    /// What the plugin saw, opened by its path here or below the root of the node.
    ///
    /// # Errors
    /// It is not seen here, is not what the plugin saw, or cannot be a pod's; the other sources are asked then.
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

/// Whether the namespace has the pod's addresses. While a pod is added nobody may know them but the runtime, whose word
/// about the namespace is enough then.
fn is_owner(held: &Held, pod: &Identity) -> Result<(), String> {
    match (&held.source, pod.addresses.is_empty()) {
        (Source::Plugin(_) | Source::Runtime(_), true) => Ok(()),
        _ => owns(&held.sandbox, pod),
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
