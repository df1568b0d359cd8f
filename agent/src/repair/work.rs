//! Work in the namespace of one pod, on a thread of its own: what hangs there holds up nobody else.

use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Notify, oneshot};

/// Work that has begun.
#[derive(Debug)]
pub(super) struct Work<T> {
    answer: oneshot::Receiver<T>,
}

/// How far it is.
pub(super) enum Progress<T> {
    Done(T),
    /// It goes on.
    Late(Work<T>),
    /// Its thread is gone without an answer.
    Lost,
}

impl<T: Send + 'static> Work<T> {
    /// Begins. `done` is notified when it ends, also when nobody waits any more.
    ///
    /// # Errors
    /// There is no thread for it.
    pub(super) fn begin(
        done: &Arc<Notify>,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<Self, String> {
        let (sender, answer) = oneshot::channel();
        let done = Arc::clone(done);
        let run = move || {
            // Who began may have forgotten the pod meanwhile.
            let _ = sender.send(work());
            done.notify_one();
        };
        let thread = std::thread::Builder::new().name("pod".into());
        thread
            .spawn(run)
            .map_err(|e| format!("no thread to look at its namespace: {e}"))?;
        Ok(Self { answer })
    }

    /// Waits for it, at most this long.
    pub(super) async fn wait(mut self, limit: Duration) -> Progress<T> {
        match tokio::time::timeout(limit, &mut self.answer).await {
            Ok(Ok(answer)) => Progress::Done(answer),
            Ok(Err(_)) => Progress::Lost,
            Err(_) => Progress::Late(self),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::thread::runtime;

    #[test]
    fn what_hangs_is_late_and_its_answer_is_not_lost() {
        let steps = async {
            let done = Arc::new(Notify::new());
            let (release, held) = std::sync::mpsc::channel::<u32>();
            let work = Work::begin(&done, move || held.recv()).unwrap();
            let short = Duration::from_millis(10);
            let Progress::Late(work) = work.wait(short).await else {
                panic!("it cannot be done");
            };
            let Progress::Late(work) = work.wait(Duration::ZERO).await else {
                panic!("it cannot be done");
            };
            release.send(7).unwrap();
            done.notified().await;
            let Progress::Done(Ok(7)) = work.wait(Duration::ZERO).await else {
                panic!("its answer is lost");
            };
        };
        runtime::of_one_thread().unwrap().block_on(steps);
    }

    #[test]
    fn a_thread_that_ends_without_an_answer() {
        let steps = async {
            let end = || std::panic::resume_unwind(Box::new(1));
            let work = Work::<u32>::begin(&Arc::default(), end).unwrap();
            let Progress::Lost = work.wait(Duration::from_secs(30)).await else {
                panic!("it has no answer");
            };
        };
        runtime::of_one_thread().unwrap().block_on(steps);
    }
}
