//! Notices at once that something changes the rules of a pod.
//!
//! A socket in each namespace listens for commits of nf_tables. Legacy tables tell nobody: for these there are the rounds.
//! A commit does not say what changed, and the agent's own are reported like those of other programs, so the rules are
//! compared after each.

use crate::journal::ambient::Writer;
use crate::reconcile::Uid;
use crate::sandboxes::Held;
use crate::thread::task::Tasks;
use std::collections::BTreeMap;
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::unix::AsyncFd;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use weir_netfilter::nft::Commits;
use weir_netlink::NetnsId;

/// Requests that wait to be taken.
const REQUESTS: usize = 1024;
/// A program that commits all the time wakes nobody more often.
const PAUSE: Duration = Duration::from_millis(50);

/// Is called when something committed to the rules of a pod, with the process if the kernel tells.
pub(crate) type OnCommit = Arc<dyn Fn(Uid, Option<Writer>) + Send + Sync>;

/// Where watches are begun; clones are the same.
#[derive(Clone)]
pub(crate) struct Drift(mpsc::Sender<Request>);

enum Request {
    Watch(Uid, NetnsId, Commits),
    Forget(Uid),
}

impl Drift {
    /// Begins to watch nothing.
    ///
    /// # Errors
    /// No thread, or no runtime.
    pub(crate) fn start(tasks: &Tasks, on_commit: OnCommit) -> std::io::Result<Self> {
        let (sender, mut requests) = mpsc::channel(REQUESTS);
        let work = async move {
            let mut watched = BTreeMap::<Uid, (NetnsId, Watch)>::new();
            while let Some(request) = requests.recv().await {
                match request {
                    Request::Watch(uid, netns, commits) => {
                        if let Some(watch) = Watch::begin(&uid, commits, &on_commit) {
                            watched.insert(uid, (netns, watch));
                        }
                    }
                    Request::Forget(uid) => _ = watched.remove(&uid),
                }
            }
        };
        tasks.start("drift", || {}, work)?;
        Ok(Self(sender))
    }

    /// Watches the rules in this namespace for the pod, and in no other. To be called before they are read: what changes
    /// from then on is told.
    ///
    /// # Errors
    /// The kernel has no nf_tables, or no descriptor is free; what changes is noticed by the next round.
    pub(crate) fn watch(&self, uid: &Uid, held: &Held) -> Result<(), String> {
        let opened = held.sandbox.visit(|_| Commits::open());
        let commits = opened
            .and_then(|opened| opened)
            .map_err(|e| e.to_string())?;
        let request = Request::Watch(Uid::clone(uid), held.id(), commits);
        self.0.try_send(request).map_err(|e| e.to_string())
    }

    /// The pod is watched no more.
    pub(crate) fn forget(&self, uid: &Uid) {
        // Without a place it is watched until another watch takes its place, or the process ends.
        let _ = self.0.try_send(Request::Forget(Uid::clone(uid)));
    }
}

/// A socket that is read until this is dropped.
struct Watch(JoinHandle<()>);

impl Drop for Watch {
    fn drop(&mut self) {
        self.0.abort();
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
    fn begin(uid: &Uid, commits: Commits, on_commit: &OnCommit) -> Option<Self> {
        let (uid, on_commit) = (Uid::clone(uid), Arc::clone(on_commit));
        #[expect(
            deprecated,
            reason = "what replaces it is unsafe; the socket is owned by what is registered"
        )]
        let mut socket = AsyncFd::new(Readable(commits)).ok()?;
        Some(Self(tokio::spawn(async move {
            loop {
                let Ok(mut ready) = socket.readable_mut().await else {
                    return;
                };
                let mut last = None;
                // What cannot be read was a commit, too.
                while let Some(commit) = ready
                    .get_inner_mut()
                    .0
                    .next(Duration::ZERO)
                    .unwrap_or_default()
                {
                    last = Some(commit);
                }
                ready.clear_ready();
                let Some(commit) = last else { continue };
                let writer = commit.pid.zip(commit.name);
                on_commit(
                    Uid::clone(&uid),
                    writer.map(|(pid, name)| Writer { pid, name }),
                );
                tokio::time::sleep(PAUSE).await;
            }
        })))
    }
}
