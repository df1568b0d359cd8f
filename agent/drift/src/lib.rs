//! Notices at once that something changes the rules of a pod.
//!
//! A socket in each namespace listens for commits of nf_tables, another one for changes of routing (`routing`). The kernel
//! announces no change of legacy tables: where a pod is redirected by these, their sizes are asked for every second; what
//! leaves the sizes as they were is found by the rounds. A commit does not say what changed, and the agent's own are reported
//! like those of other programs, so the rules are compared after each. It reports no detached program of eBPF: the links of those are
//! looked at twice a second ([`Attached`]).
#![forbid(unsafe_code)]

mod attached;
pub mod heals;
mod routing;

pub use attached::Attached;

use routing::Reports;
use std::collections::BTreeMap;
use std::future::Future;
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::io::unix::AsyncFd;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout_at};
use weir_core::journal::pod::Writer;
use weir_core::pods::Pods;
use weir_core::sandboxes::Held;
use weir_core::thread::task::Tasks;
use weir_netfilter::nft::Commits;
use weir_netfilter::xtables::{XtOutline, XtSizes};
use weir_netlink::NetnsId;
use weir_reconcile::Uid;

/// Requests that wait to be taken.
const REQUESTS: usize = 1024;
/// A program that commits all the time wakes nobody more often.
const PAUSE: Duration = Duration::from_millis(50);
/// How often the sizes of legacy tables are asked for.
const TABLES: Duration = Duration::from_secs(1);

/// Pods whose rules something changed, and what that was, as far as it is known; clones are the same.
#[derive(Debug, Clone, Default)]
pub struct Drifted(Arc<Mutex<BTreeMap<Uid, Option<Writer>>>>);

impl Drifted {
    /// Something changed the rules of the pod.
    pub fn put(&self, uid: Uid, by: Option<Writer>) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let known = all.entry(uid).or_default();
        *known = by.or(known.take());
    }

    /// All of them, once.
    pub fn take(&self) -> BTreeMap<Uid, Option<Writer>> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Wakes what reconciles; clones are the same.
#[derive(Clone)]
pub struct Wake(Arc<watch::Sender<u64>>);

impl Default for Wake {
    fn default() -> Self {
        Self(Arc::new(watch::Sender::new(0)))
    }
}

impl Wake {
    /// Something changed.
    pub fn wake(&self) {
        self.0.send_modify(|n| *n = n.wrapping_add(1));
    }

    /// What changes with every call of [`Wake::wake`].
    pub fn subscribe(&self) -> watch::Receiver<u64> {
        self.0.subscribe()
    }
}

/// What changes about pods wakes it, too.
pub async fn follow(pods: Pods, wake: Wake) {
    let mut changes = pods.subscribe();
    wake.wake();
    while changes.changed().await.is_ok() {
        wake.wake();
    }
}

/// Commits to the rules of pods are kept until they are taken, and wake what takes them.
pub fn on_commit(drifted: Drifted, wake: Wake) -> OnCommit {
    Arc::new(move |uid, by| {
        drifted.put(uid, by);
        wake.wake();
    })
}

/// The name of the threads in which weir enters a namespace (`Netns::run`) and writes rules.
const THREAD: &str = "netns";
/// Commits under this name are reported after this time, unless another writer commits before. Mostly they are repairs, and
/// what reverts a repair at once is to be named instead.
const OWN: Duration = Duration::from_millis(200);
/// Commits that are read at once.
const COMMITS: usize = 1024;

/// Is called when something committed to the rules of a pod, with the process if the kernel tells.
pub type OnCommit = Arc<dyn Fn(Uid, Option<Writer>) + Send + Sync>;

/// Where watches are begun; clones are the same.
#[derive(Clone)]
pub struct Drift {
    requests: mpsc::Sender<Request>,
    /// The namespaces that are watched. A socket keeps its namespace alive, so that no other has the same identity.
    watched: Watched,
    tables: Arc<Mutex<BTreeMap<Uid, Tables>>>,
}

type Watched = Arc<Mutex<BTreeMap<Uid, NetnsId>>>;

/// Of one namespace.
struct Sockets {
    /// `None`: the kernel has no nf_tables.
    commits: Option<Commits>,
    routing: Reports,
}

enum Request {
    Watch(Uid, Sockets),
    Forget(Uid),
}

fn locked<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing in here panics half-way.
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Drift {
    /// Begins to watch nothing, on a thread of its own.
    ///
    /// # Errors
    /// No thread, or no runtime.
    pub fn start(tasks: &Tasks, on_commit: OnCommit) -> std::io::Result<Self> {
        let (drift, work) = Self::new(on_commit);
        tasks.start("drift", || {}, work)?;
        Ok(drift)
    }

    /// With the work that reads the sockets.
    pub fn new(on_commit: OnCommit) -> (Self, impl Future<Output = ()> + Send + 'static) {
        let (sender, mut requests) = mpsc::channel(REQUESTS);
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
                    locked(&tables).retain(|uid, of_pod| of_pod.ask(uid, &on_commit));
                    ask_at = Instant::now() + TABLES;
                }
                let request = match timeout_at(ask_at, requests.recv()).await {
                    Err(_) => continue,
                    Ok(None) => return,
                    Ok(Some(request)) => request,
                };
                match request {
                    Request::Watch(uid, sockets) => match Watch::begin(&uid, sockets, &on_commit) {
                        Some(watch) => _ = watches.insert(uid, watch),
                        // The next look tries again.
                        None => _ = locked(&watched).remove(&uid),
                    },
                    Request::Forget(uid) => _ = watches.remove(&uid),
                }
            }
        };
        (drift, work)
    }

    /// Watches the rules in this namespace for the pod, and in no other. To be called before they are read: what changes
    /// from then on is told. Of a namespace that is watched already nothing is to be done.
    ///
    /// # Errors
    /// No descriptor is free; what changes is noticed by the next round.
    pub fn watch(&self, uid: &Uid, held: &Held) -> Result<(), String> {
        if locked(&self.watched).get(uid) == Some(&held.id()) {
            return Ok(());
        }
        let open = || {
            let commits = Commits::open().ok();
            let routing = Reports::open()?;
            Ok(Sockets { commits, routing })
        };
        let opened = held.sandbox.visit(|_| open());
        let sockets = opened
            .and_then(|opened| opened)
            .map_err(|e: weir_netlink::Error| e.to_string())?;
        let mut watched = locked(&self.watched);
        let request = Request::Watch(Uid::clone(uid), sockets);
        self.requests.try_send(request).map_err(|e| e.to_string())?;
        watched.insert(Uid::clone(uid), held.id());
        Ok(())
    }

    /// How the legacy tables of the pod are, where they are watched: to be asked before they are compared.
    pub fn tables(&self, uid: &Uid, held: &Held) -> Option<XtOutline> {
        let mut tables = locked(&self.tables);
        let of_pod = tables.get_mut(uid).filter(|t| t.netns == held.id())?;
        of_pod.sizes.read().ok()
    }

    /// The legacy tables were compared and are in sync; `before` is what [`Drift::tables`] said then. They are watched from
    /// now on. What changed meanwhile leads to another comparison.
    ///
    /// # Errors
    /// The kernel refuses, or no descriptor is free; what changes is noticed by the next round.
    pub fn tables_in_sync(
        &self,
        uid: &Uid,
        held: &Held,
        before: Option<XtOutline>,
    ) -> Result<(), String> {
        if let Some(of_pod) = locked(&self.tables)
            .get_mut(uid)
            .filter(|t| t.netns == held.id())
        {
            let now = of_pod.sizes.read().ok();
            of_pod.good = before.filter(|before| now.as_ref() == Some(before));
            return Ok(());
        }
        let opened = held.sandbox.visit(|_| XtSizes::open());
        let tables = Tables {
            netns: held.id(),
            sizes: opened
                .and_then(|opened| opened)
                .map_err(|e| e.to_string())?,
            good: None,
        };
        locked(&self.tables).insert(Uid::clone(uid), tables);
        Ok(())
    }

    /// The pod is watched no more.
    pub fn forget(&self, uid: &Uid) {
        locked(&self.tables).remove(uid);
        let mut watched = locked(&self.watched);
        if watched.remove(uid).is_some() {
            // Without a place it is watched until another watch takes its place, or the process ends.
            let _ = self.requests.try_send(Request::Forget(Uid::clone(uid)));
        }
    }
}

/// The legacy tables of a pod.
struct Tables {
    /// The sockets keep the namespace alive, so that no other has the same identity.
    netns: NetnsId,
    sizes: XtSizes,
    /// How they were when they were in sync; `None` until a comparison during which nothing changed.
    good: Option<XtOutline>,
}

impl Tables {
    /// Reports what differs, until it is compared. Whether to ask again.
    fn ask(&mut self, uid: &Uid, on_commit: &OnCommit) -> bool {
        let Ok(now) = self.sizes.read() else {
            // The next look begins anew.
            return false;
        };
        if self.good.as_ref() != Some(&now) {
            // Which process it was, the kernel does not say.
            on_commit(Uid::clone(uid), None);
        }
        true
    }
}

/// Sockets that are read until this is dropped.
struct Watch(Vec<JoinHandle<()>>);

impl Drop for Watch {
    fn drop(&mut self) {
        self.0.iter().for_each(JoinHandle::abort);
    }
}

/// For the runtime.
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
            // When commits of weir alone are reported.
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

/// What made the commits that were read.
enum By {
    Nobody,
    /// Threads of weir, in the agent or in the plugin, and nothing else.
    Weir,
    /// The last other one, if the kernel says.
    Other(Option<Writer>),
}

/// What made the commits that are there, and whether these were all. What cannot be read was a commit, too.
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
