//! Work in the namespace of one pod, on a thread of its own: what hangs there holds up nobody else.
//!
//! A few threads that have nothing to do stay for a while: in a round over all pods most of the work is shorter than the start of
//! a thread.

use std::sync::mpsc::{RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::oneshot;

/// How many threads stay when they have nothing to do, and how long.
const IDLE: usize = 4;
const STAY: Duration = Duration::from_secs(5);

type Work = Box<dyn FnOnce() + Send>;

/// The threads of one reconciler, with the capabilities of the thread that starts them.
#[derive(Default)]
pub(super) struct Threads(Arc<Mutex<Idle>>);

#[derive(Default)]
struct Idle {
    /// By number.
    threads: Vec<(u64, SyncSender<Work>)>,
    last: u64,
}

fn locked(idle: &Mutex<Idle>) -> MutexGuard<'_, Idle> {
    // Nothing in here panics half-way.
    idle.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Threads {
    /// Begins. The answer comes when the work ends; the sender is dropped without one if its thread ends abruptly.
    ///
    /// # Errors
    /// There is no thread for it.
    pub(super) fn begin<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<oneshot::Receiver<T>, String> {
        let (sender, answer) = oneshot::channel();
        // Nobody may wait for the answer any more.
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

/// Works, and then waits for more.
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
                // It was chosen in this moment, and its work comes.
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
        // It says that it is idle after its answer.
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
