//! Runs the work for one pod on a separate thread, so that a blocked system call does not delay other pods.
//!
//! A few idle threads are kept for a while: in a pass over all pods, most jobs are shorter than the start of
//! a thread.

use std::sync::mpsc::{RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::oneshot;

/// Number of idle threads that are kept, and for how long.
const IDLE: usize = 4;
const STAY: Duration = Duration::from_secs(5);

type Work = Box<dyn FnOnce() + Send>;

/// The threads of one reconciler, with the capabilities of the thread that starts them.
#[derive(Default)]
pub(super) struct Threads(Arc<Mutex<Idle>>);

#[derive(Default)]
struct Idle {
    /// Idle threads with their numbers.
    threads: Vec<(u64, SyncSender<Work>)>,
    last: u64,
}

fn locked(idle: &Mutex<Idle>) -> MutexGuard<'_, Idle> {
    // No holder of the lock panics in the middle of a change.
    idle.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Threads {
    /// Starts the work. The result is sent when it ends; if the thread panics, the sender is dropped without a result.
    ///
    /// # Errors
    /// No thread can be started.
    pub(super) fn begin<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<oneshot::Receiver<T>, String> {
        let (sender, answer) = oneshot::channel();
        // The receiver may be gone.
        let mut run: Work = Box::new(move || _ = sender.send(work()));
        loop {
            let Some((_, idle)) = locked(&self.0).threads.pop() else {
                break;
            };
            match idle.try_send(run) {
                Ok(()) => return Ok(answer),
                Err(TrySendError::Full(back) | TrySendError::Disconnected(back)) => run = back,
            }
        }
        let all = Arc::clone(&self.0);
        std::thread::Builder::new()
            .name("pod".into())
            .spawn(move || serve(&all, run))
            .map_err(|e| format!("no thread to look at its namespace: {e}"))?;
        Ok(answer)
    }
}

/// Runs the work, then waits for more.
fn serve(all: &Mutex<Idle>, mut work: Work) {
    loop {
        work();
        let (sender, next) = sync_channel(1);
        let number = {
            let mut idle = locked(all);
            if idle.threads.len() >= IDLE {
                return;
            }
            idle.last += 1;
            let number = idle.last;
            idle.threads.push((number, sender));
            number
        };
        work = match next.recv_timeout(STAY) {
            Ok(work) => work,
            Err(RecvTimeoutError::Disconnected) => return,
            Err(RecvTimeoutError::Timeout) => {
                let mut idle = locked(all);
                let before = idle.threads.len();
                idle.threads.retain(|(other, _)| *other != number);
                if idle.threads.len() < before {
                    return;
                }
                drop(idle);
                // The thread was chosen at this moment; its work follows.
                match next.recv() {
                    Ok(work) => work,
                    Err(_) => return,
                }
            }
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_is_used_again_and_one_that_hangs_holds_up_nobody() {
        let threads = Threads::default();
        let id = || std::thread::current().id();
        let (go, wait) = sync_channel::<()>(0);
        let hangs = threads.begin(move || wait.recv()).unwrap();
        let first = threads.begin(id).unwrap().blocking_recv().unwrap();
        // The thread reports that it is idle after its result.
        while locked(&threads.0).threads.is_empty() {
            std::thread::yield_now();
        }
        let second = threads.begin(id).unwrap().blocking_recv().unwrap();
        assert_eq!(first, second);
        go.send(()).unwrap();
        assert!(hangs.blocking_recv().unwrap().is_ok());
    }

    #[test]
    fn work_that_panics_ends_its_thread_only() {
        let threads = Threads::default();
        let panics = threads
            .begin(|| std::panic::resume_unwind(Box::new(())))
            .unwrap();
        let answer: Result<(), _> = panics.blocking_recv();
        assert!(answer.is_err());
        assert_eq!(threads.begin(|| 1).unwrap().blocking_recv(), Ok(1));
    }
}
