//! Jobs that go on one operation at a time, so that anything can happen in between, also the end of the agent.

use crate::ambient::keeper::Done;
use futures::FutureExt;
use futures::future::BoxFuture;
use std::cell::RefCell;
use std::panic::resume_unwind;
use std::sync::mpsc::{Receiver, Sender, channel};
use weir_reconcile::Job;

thread_local! {
    /// Set on the thread of such a job.
    static GATE: RefCell<Option<Gate>> = const { RefCell::new(None) };
}

struct Gate {
    reached: Sender<Option<Done>>,
    go: Receiver<()>,
}

/// Waits until the job may go on. False: the agent has ended.
fn may_go_on() -> bool {
    GATE.with_borrow(|gate| {
        let Some(gate) = gate else { return true };
        gate.reached.send(None).is_ok() && gate.go.recv().is_ok()
    })
}

/// An operation of a job: at its begin and at its end (drop) the job waits.
pub(super) struct Operation;

impl Operation {
    pub(super) fn begin() -> Self {
        Self::midway();
        Self
    }

    /// Also waits here. An agent that has ended does nothing more.
    pub(super) fn midway() {
        if !may_go_on() {
            resume_unwind(Box::new(()));
        }
    }
}

impl Drop for Operation {
    fn drop(&mut self) {
        may_go_on();
    }
}

/// A job that has begun. Dropped, it does nothing more.
pub(super) enum Running {
    Thread {
        go: Sender<()>,
        reached: Receiver<Option<Done>>,
    },
    Request(BoxFuture<'static, Done>),
    Ended(Done),
}

impl Running {
    pub(super) fn begin(job: Job<Done>) -> Self {
        let work = match job {
            Job::Request(request) => return Self::Request(request),
            Job::Thread(work) => work,
        };
        let ((go, of_thread), (reaches, reached)) = (channel(), channel());
        std::thread::spawn(move || {
            let reached = reaches.clone();
            let gate = Gate {
                reached,
                go: of_thread,
            };
            GATE.set(Some(gate));
            let _ = reaches.send(Some(work()));
        });
        Self::Thread { go, reached }.waited()
    }

    fn waited(self) -> Self {
        match &self {
            Self::Thread { reached, .. } => {
                let done = reached.recv().expect("a job does not panic");
                done.map_or(self, Self::Ended)
            }
            _ => self,
        }
    }

    /// Goes on with the next part of an operation.
    pub(super) fn next(self) -> Self {
        match self {
            Self::Thread { ref go, .. } => {
                go.send(()).expect("it waits");
                self.waited()
            }
            Self::Request(request) => Self::Ended(request.now_or_never().expect("answered")),
            Self::Ended(done) => Self::Ended(done),
        }
    }
}
