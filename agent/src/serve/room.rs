//! How many connections are served at once, and which of them has to go for another.

use std::collections::VecDeque;
use std::future::Future;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio::task::AbortHandle;

/// More connections at once wait in the backlog, unless one that is served can go.
const CONNECTIONS: usize = 256;
/// In a full room a client has this long to ask, and to read, before it has to go. One that asks right away has asked
/// when its connection is accepted; a kubelet gives up after a second, and in that time 12 800 silent clients that
/// connect again and again are let in before it and sent away.
const GRACE: Duration = Duration::from_millis(20);

/// What a connection does.
const SILENT: u8 = 0;
const ASKED: u8 = 1;
const ANSWERED: u8 = 2;

/// The place of one connection; given back when it is dropped.
pub(super) struct Place {
    state: Arc<AtomicU8>,
    _permit: OwnedSemaphorePermit,
    changed: Arc<Notify>,
}

impl Place {
    /// A request came whole.
    pub(super) fn asked(&self) {
        self.state.store(ASKED, Ordering::Relaxed);
    }

    /// The answer is on its way, as fast as the client reads.
    pub(super) fn answered(&self) {
        self.state.store(ANSWERED, Ordering::Relaxed);
        self.changed.notify_one();
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.changed.notify_one();
    }
}

struct Taken {
    state: Arc<AtomicU8>,
    since: Instant,
    task: AbortHandle,
}

/// Connections in the order in which they came.
pub(super) struct Room {
    free: Arc<Semaphore>,
    changed: Arc<Notify>,
    taken: Mutex<VecDeque<Taken>>,
}

impl Default for Room {
    fn default() -> Self {
        Self {
            free: Arc::new(Semaphore::new(CONNECTIONS)),
            changed: Arc::default(),
            taken: Mutex::default(),
        }
    }
}

impl Room {
    /// A place for a new connection. In a full room the oldest one that has asked nothing yet goes, or else the oldest
    /// that only has to read its answer; while all are being answered, accepting waits until one of them is done.
    pub(super) async fn place(&self) -> Place {
        loop {
            if let Ok(permit) = Arc::clone(&self.free).try_acquire_owned() {
                return Place {
                    state: Arc::new(AtomicU8::new(SILENT)),
                    _permit: permit,
                    changed: Arc::clone(&self.changed),
                };
            }
            self.shrink().await;
        }
    }

    /// Lets a connection go, if one can, and waits a moment for the end of any.
    pub(super) async fn shrink(&self) {
        self.make_room();
        // What is aborted gives its place back when the runtime drops it.
        let _ = tokio::time::timeout(GRACE, self.changed.notified()).await;
    }

    fn make_room(&self) {
        let mut taken = self.taken();
        taken.retain(|t| !t.task.is_finished());
        let of = |what| {
            let goes =
                |t: &Taken| t.state.load(Ordering::Relaxed) == what && t.since.elapsed() >= GRACE;
            taken.iter().position(goes)
        };
        let at = of(SILENT).or_else(|| of(ANSWERED));
        if let Some(taken) = at.and_then(|at| taken.remove(at)) {
            taken.task.abort();
        }
    }

    /// Serves a connection in the background; the place is its own.
    pub(super) fn spawn<F>(&self, place: Place, serve: impl FnOnce(Arc<Place>) -> F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let state = Arc::clone(&place.state);
        let task = tokio::spawn(serve(Arc::new(place))).abort_handle();
        let since = Instant::now();
        let mut taken = self.taken();
        taken.retain(|t| !t.task.is_finished());
        taken.push_back(Taken { state, since, task });
    }

    fn taken(&self) -> MutexGuard<'_, VecDeque<Taken>> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
