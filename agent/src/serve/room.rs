//! Limits the number of concurrent connections and chooses which one to drop for a new one.

use std::collections::VecDeque;
use std::future::Future;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio::task::AbortHandle;

/// Maximum number of concurrent connections. More of them wait in the backlog, unless a served one can be dropped.
const CONNECTIONS: usize = 256;
/// Minimum age of a connection before it may be dropped for a new one. A client that sends its request right away has sent it
/// by the time its connection is accepted. A kubelet gives up after one second; in that time 12 800 silent clients that
/// reconnect repeatedly can be accepted before it and dropped.
const GRACE: Duration = Duration::from_millis(20);

/// States of a connection.
const SILENT: u8 = 0;
const ASKED: u8 = 1;
const ANSWERED: u8 = 2;

/// The place of one connection; released when dropped.
pub(super) struct Place {
    state: Arc<AtomicU8>,
    _permit: OwnedSemaphorePermit,
    changed: Arc<Notify>,
}

impl Place {
    /// Marks that a complete request was received.
    pub(super) fn asked(&self) {
        self.state.store(ASKED, Ordering::Relaxed);
    }

    /// Marks that the answer is being sent; the client's reads set the pace.
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

/// The connections, oldest first.
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
    /// Returns a place for a new connection. If all places are taken, the oldest connection without a request is dropped, or else the
    /// oldest that only has to read its answer; while all are being answered, it waits until one of them is done.
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

    /// Drops a connection, if one can be dropped, and waits up to [`GRACE`] for any to end.
    pub(super) async fn shrink(&self) {
        self.make_room();
        // An aborted task releases its place when the runtime drops it.
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

    /// Serves a connection in a background task, which owns the place.
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
