//! Detects changes to the redirection of a pod.
//!
//! Each network namespace has one socket that receives commits of nf_tables and one that receives changes of routing
//! (`routing`). The kernel sends no notifications for legacy tables: for a pod redirected by them, their sizes are polled every
//! second, and changes that keep the sizes are found by the periodic comparison. A commit does not say what changed, and commits
//! of the agent are reported like those of other programs, so the rules are compared after each commit. The kernel sends no
//! notification for a detached eBPF program either: links are polled twice per second ([`Attached`]). For the node's own network
//! namespace, [`listener`] only counts the changes of routing.
//!
//! [`Drift`] starts and stops the watch of a pod. It calls an [`OnCommit`] after each change; [`on_commit()`] returns one that
//! stores the pod in [`Drifted`] and wakes the reconciler by [`Wake`]. Start with [`Drift`].
//!
//! ```
//! use weir_drift::{Drift, Drifted, Wake, on_commit};
//!
//! let (drifted, wake) = (Drifted::default(), Wake::default());
//! let reconciler = wake.subscribe();
//! let on_commit = on_commit(drifted.clone(), wake);
//! // `work` is a future that reads the sockets of all pods for which `drift.watch` is called.
//! let (drift, work) = Drift::new(on_commit.clone());
//! on_commit("uid-1".into(), None);
//! assert!(reconciler.has_changed().is_ok_and(|changed| changed));
//! assert!(drifted.take().contains_key("uid-1"));
//! # drop((drift, work));
//! ```
#![forbid(unsafe_code)]

mod attached;
pub mod heals;
pub mod listener;
pub mod repairs;
mod routing;
mod tables;
mod wake;

pub use attached::Attached;
pub use wake::{Drifted, Wake, follow, on_commit};

use routing::Reports;
use std::collections::BTreeMap;
use std::future::Future;
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tables::Tables;
use tokio::io::unix::AsyncFd;
use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TrySendError;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout_at};
use weir_cni::redirection::Visit;
use weir_core::journal::pod::Writer;
use weir_core::sandboxes::Held;
use weir_core::thread::task::Tasks;
use weir_netfilter::nft::Commits;
use weir_netfilter::xtables::XtOutline;
use weir_netlink::NetnsId;
use weir_reconcile::Uid;

/// Of a kernel without nf_tables (`CONFIG_NETFILTER_NETLINK`).
const EPROTONOSUPPORT: i32 = 93;
/// Capacity of the queue of pods to watch.
const REQUESTS: usize = 1024;
/// Minimum interval between two reports for one pod, even if a program commits constantly.
const PAUSE: Duration = Duration::from_millis(50);
/// Interval between two polls of the sizes of legacy tables, after which sockets of forgotten pods are closed.
const TABLES: Duration = Duration::from_secs(1);

/// Name of the threads in which weir enters a network namespace (`Netns::run`) and writes rules.
const THREAD: &str = "netns";
/// Delay before commits made by threads of that name are reported, unless another writer commits first. They are mostly
/// repairs, and a writer that reverts a repair immediately should be named instead.
const OWN: Duration = Duration::from_millis(200);
/// Maximum number of commits read per wake-up.
const COMMITS: usize = 1024;

/// Called after each change to the rules or routing of a pod, with the process that made it, if the kernel reports it.
pub type OnCommit = Arc<dyn Fn(Uid, Option<Writer>) + Send + Sync>;

/// Starts and stops watches. Clones share the same state.
#[derive(Clone)]
pub struct Drift {
    requests: mpsc::Sender<(Uid, Sockets)>,
    /// The watched network namespaces. A socket keeps its namespace alive, so its identity is not reused.
    watched: Watched,
    tables: Arc<Mutex<BTreeMap<Uid, Tables>>>,
}

type Watched = Arc<Mutex<BTreeMap<Uid, NetnsId>>>;

/// The sockets of one network namespace.
struct Sockets {
    /// `None`: the kernel has no nf_tables.
    commits: Option<Commits>,
    routing: Reports,
}

fn locked<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    // No holder of the lock panics in the middle of a change.
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Without nf_tables there are no commits. Any other error may be gone the next time.
fn if_supported<T>(opened: weir_netlink::Result<T>) -> weir_netlink::Result<Option<T>> {
    match opened {
        Err(e) if e.errno() == Some(EPROTONOSUPPORT) => Ok(None),
        opened => opened.map(Some),
    }
}

impl Drift {
    /// Starts the thread that reads the sockets; no pod is watched yet.
    ///
    /// # Errors
    /// The thread or its runtime cannot be created.
    pub fn start(tasks: &Tasks, on_commit: OnCommit) -> std::io::Result<Self> {
        let (drift, work) = Self::new(on_commit);
        tasks.start("drift", || {}, work)?;
        Ok(drift)
    }

    /// Returns the handle, and the future that reads the sockets.
    pub fn new(on_commit: OnCommit) -> (Self, impl Future<Output = ()> + Send + 'static) {
        Self::with_queue(on_commit, REQUESTS)
    }

    fn with_queue(
        on_commit: OnCommit,
        capacity: usize,
    ) -> (Self, impl Future<Output = ()> + Send + 'static) {
        let (sender, mut requests) = mpsc::channel(capacity);
        let drift = Self {
            requests: sender,
            watched: Watched::default(),
            tables: Arc::default(),
        };
        let (watched, tables) = (Arc::clone(&drift.watched), Arc::clone(&drift.tables));
        let work = async move {
            let mut watches = BTreeMap::<Uid, Watch>::new();
            let mut ask_at = Instant::now() + TABLES;
            loop {
                if Instant::now() >= ask_at {
                    // A pod is inserted in `watched` before this lock can be taken: see `watch`.
                    watches.retain(|uid, _| locked(&watched).contains_key(uid));
                    locked(&tables).retain(|uid, of_pod| of_pod.ask(uid, &on_commit));
                    ask_at = Instant::now() + TABLES;
                }
                let (uid, sockets) = match timeout_at(ask_at, requests.recv()).await {
                    Err(_) => continue,
                    Ok(None) => return,
                    Ok(Some(request)) => request,
                };
                match Watch::begin(&uid, sockets, &on_commit) {
                    Some(watch) => _ = watches.insert(uid, watch),
                    // The next comparison tries again.
                    None => _ = locked(&watched).remove(&uid),
                }
            }
        };
        (drift, work)
    }

    /// Watches the rules of the pod in the visited network namespace, and no longer in any other. Call it before the rules are read, so
    /// that no later change is missed. Does nothing if the namespace is already watched.
    ///
    /// # Errors
    /// No file descriptor is free (`EMFILE`, `ENFILE`), the kernel refuses, or the queue is full. Changes are then found by the
    /// periodic comparison, and the next call tries again.
    pub fn watch(&self, uid: &Uid, visit: &Visit<'_>) -> Result<(), String> {
        let netns = visit.sandbox().netns().id();
        if locked(&self.watched).get(uid) == Some(&netns) {
            return Ok(());
        }
        let open = || {
            let commits = if_supported(Commits::open())?;
            let routing = Reports::open()?;
            Ok(Sockets { commits, routing })
        };
        let sockets = open().map_err(|e: weir_netlink::Error| e.to_string())?;
        let mut watched = locked(&self.watched);
        let request = (Uid::clone(uid), sockets);
        // Nothing reads any more only while the agent ends.
        if let Err(TrySendError::Full(_)) = self.requests.try_send(request) {
            return Err("too many requests wait".into());
        }
        watched.insert(Uid::clone(uid), netns);
        Ok(())
    }

    /// Returns the outline of the pod's legacy tables if they are watched. Call it before they are compared.
    pub fn tables(&self, uid: &Uid, held: &Held) -> Option<XtOutline> {
        let mut tables = locked(&self.tables);
        let of_pod = tables.get_mut(uid).filter(|t| t.are_of(held))?;
        of_pod.outline()
    }

    /// Watches the legacy tables of a pod that was found in sync; `before` is the result of [`Drift::tables`] before the
    /// comparison. A change made during the comparison causes another one.
    ///
    /// # Errors
    /// The kernel refuses, or no file descriptor is free. Changes are then found by the periodic comparison.
    pub fn tables_in_sync(
        &self,
        uid: &Uid,
        held: &Held,
        before: Option<XtOutline>,
    ) -> Result<(), String> {
        if let Some(of_pod) = locked(&self.tables).get_mut(uid).filter(|t| t.are_of(held)) {
            of_pod.in_sync(before);
            return Ok(());
        }
        let tables = Tables::open(held)?;
        locked(&self.tables).insert(Uid::clone(uid), tables);
        Ok(())
    }

    /// Stops watching the pod. Its sockets, which keep its network namespace alive, are closed within a second.
    pub fn forget(&self, uid: &Uid) {
        locked(&self.tables).remove(uid);
        locked(&self.watched).remove(uid);
    }
}

/// The tasks that read the sockets of one pod; dropping it aborts them.
struct Watch(Vec<JoinHandle<()>>);

impl Drop for Watch {
    fn drop(&mut self) {
        self.0.iter().for_each(JoinHandle::abort);
    }
}

/// Required by `AsyncFd`.
struct Readable(Commits);

impl AsRawFd for Readable {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_fd().as_raw_fd()
    }
}

impl Watch {
    fn begin(uid: &Uid, sockets: Sockets, on_commit: &OnCommit) -> Option<Self> {
        let mut watch = Self(vec![sockets.routing.begin(uid, on_commit)?]);
        if let Some(commits) = sockets.commits {
            watch.0.push(Self::commits(uid, commits, on_commit)?);
        }
        Some(watch)
    }

    fn commits(uid: &Uid, commits: Commits, on_commit: &OnCommit) -> Option<JoinHandle<()>> {
        let (uid, on_commit) = (Uid::clone(uid), Arc::clone(on_commit));
        #[expect(
            deprecated,
            reason = "what replaces it is unsafe; the socket is owned by what is registered"
        )]
        let mut socket = AsyncFd::new(Readable(commits)).ok()?;
        Some(tokio::spawn(async move {
            // Time at which pending commits of weir are reported.
            let mut own_at: Option<Instant> = None;
            loop {
                let readable = socket.readable_mut();
                let ready = match own_at {
                    None => Ok(readable.await),
                    Some(at) => timeout_at(at, readable).await,
                };
                let by = match ready {
                    Ok(Ok(mut ready)) => {
                        let (by, is_all) = read(&mut ready.get_inner_mut().0);
                        if is_all {
                            ready.clear_ready();
                        }
                        by
                    }
                    Ok(Err(_)) => return,
                    Err(_) => By::Other(None),
                };
                match by {
                    By::Nobody => continue,
                    By::Weir => {
                        own_at = own_at.or(Some(Instant::now() + OWN));
                        continue;
                    }
                    By::Other(writer) => on_commit(Uid::clone(&uid), writer),
                }
                own_at = None;
                tokio::time::sleep(PAUSE).await;
            }
        }))
    }
}

/// The origin of the commits that were read.
enum By {
    Nobody,
    /// Only threads of weir, in the agent or the plugin.
    Weir,
    /// The last foreign writer, if the kernel reports it.
    Other(Option<Writer>),
}

/// Reads the queued commits. Returns their origin, and true if the queue is empty. A read error counts as a commit.
fn read(commits: &mut Commits) -> (By, bool) {
    let mut by = By::Nobody;
    for _ in 0..COMMITS {
        let commit = match commits.next(Duration::ZERO) {
            Ok(None) => return (by, true),
            Ok(Some(commit)) => commit,
            Err(_) => return (By::Other(None), false),
        };
        let is_own = commit.name.as_deref() == Some(THREAD);
        by = match (by, is_own) {
            (By::Nobody, true) => By::Weir,
            (by, true) => by,
            (_, false) => {
                let writer = commit.pid.zip(commit.name);
                By::Other(writer.map(|(pid, name)| Writer { pid, name }))
            }
        };
    }
    (by, false)
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_netlink::Error;

    /// Its sockets would keep the network namespace of a deleted pod until the agent ends.
    #[test]
    fn a_pod_is_forgotten_also_while_the_queue_is_full() {
        let on_commit: OnCommit = Arc::new(|_, _| {});
        let (drift, work) = Drift::with_queue(Arc::clone(&on_commit), 1);
        let uid = Uid::from("a");
        let routing = Reports::open().unwrap();
        let sockets = Sockets {
            commits: None,
            routing,
        };
        let id = NetnsId { dev: 0, ino: 0 };
        locked(&drift.watched).insert(Uid::clone(&uid), id);
        let sent = drift.requests.try_send((Uid::clone(&uid), sockets));
        assert!(sent.is_ok() && drift.requests.capacity() == 0);
        drift.forget(&uid);
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        runtime.enable_all().build().unwrap().block_on(async {
            let work = tokio::spawn(work);
            let end = Instant::now() + Duration::from_secs(60);
            // Each task that reads sockets has a reference, besides the one of `work` and the one here.
            while drift.requests.capacity() == 0 || Arc::strong_count(&on_commit) > 2 {
                assert!(Instant::now() < end, "its sockets are still read");
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            work.abort();
        });
    }

    #[test]
    fn only_a_kernel_without_nf_tables_has_no_commits() {
        let opened = |errno| if_supported::<()>(Err(Error::kernel("open", "a socket", errno)));
        assert_eq!(opened(EPROTONOSUPPORT).unwrap(), None);
        // ENOENT, EPERM, ENOMEM, EMFILE
        for errno in [2, 1, 12, 24] {
            assert_eq!(opened(errno).unwrap_err().errno(), Some(errno));
        }
    }
}
