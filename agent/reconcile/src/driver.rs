//! The driver: connects the queue with the pods, the clock and the worker threads.

use super::queue::{Next, Queue, Start, Uid};
use super::work::Threads;
use futures::future::{BoxFuture, FutureExt, select};
use futures::stream::{FuturesUnordered, StreamExt};
use std::collections::{BTreeMap, BTreeSet};
use std::future::pending;
use std::pin::pin;
use std::time::{Duration, Instant};
use tokio::sync::{mpsc, oneshot, watch};

/// Delay in which changes are collected.
const GATHER: Duration = Duration::from_millis(50);
/// Minimum interval between two publications of the results, each of which iterates over all pods.
const SHOW: Duration = Duration::from_millis(200);
/// Capacity of the channel of a [`Handle`].
const QUESTIONS: usize = 256;

/// The work for pods, and the decision what follows from its result.
pub trait Reconciler {
    /// Result of a job.
    type Done: Send + 'static;

    /// Returns what changed since the last call; `None` while the pods are not known yet.
    fn changes(&mut self) -> Option<Changes>;

    /// Returns the job for a pod, or the outcome if there is nothing to do.
    fn job(&mut self, start: &Start) -> Result<Job<Self::Done>, Next>;

    /// Handles the end of a job; `Err`: it ended without a result, for this reason.
    fn done(&mut self, uid: &Uid, done: Result<Self::Done, String>) -> Next;

    /// Called when a job takes long. It continues, and [`Reconciler::done`] follows.
    fn late(&mut self, uid: &Uid);

    /// Called when a pass over all pods starts, and when it has ended: every pod was examined, or is late.
    fn round(&mut self, ended: bool);

    /// Publishes the results; every pod was examined once.
    fn show(&mut self);

    /// True if the last job of the pod gave no verdict: callers of [`Handle::settled`] wait for another one.
    fn is_undecided(&self, _uid: &Uid) -> bool {
        false
    }

    /// Returns the last verdict on a pod: in sync, or the reason why not.
    fn verdict(&self, uid: &Uid) -> Result<(), String>;
}

/// Changes to the set of pods.
pub struct Changes {
    /// All existing pods.
    pub all: BTreeSet<Uid>,
    /// Pods that may need work.
    pub changed: Vec<Uid>,
    /// Pods that no longer exist.
    pub gone: Vec<Uid>,
}

/// Work for one pod.
pub enum Job<D> {
    /// A function that runs on a worker thread.
    Thread(Box<dyn FnOnce() -> D + Send>),
    /// A request, which occupies no worker.
    Request(BoxFuture<'static, D>),
}

/// Limits of the work.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Maximum number of concurrent workers; late ones do not count.
    pub workers: usize,
    /// Interval between the starts of two passes over all pods; `None`: no passes.
    pub interval: Option<Duration>,
    /// Time after which a job counts as late.
    pub patience: Duration,
    /// Total time that late jobs of one pass may occupy workers; when it is used up, each job is late after [`Limits::least`].
    pub patience_of_round: Duration,
    /// The shortest patience.
    pub least: Duration,
}

impl Limits {
    /// The usual limits: four threads, because most of the time is spent in the kernel, one network namespace at a time.
    pub fn usual(interval: Option<Duration>, patience: Duration) -> Self {
        Self {
            workers: 4,
            interval,
            patience,
            patience_of_round: patience * 5,
            least: Duration::from_millis(50),
        }
    }
}

/// Requests the verdict on a pod.
#[derive(Clone)]
pub struct Handle(mpsc::Sender<Question>);

/// The other end of a [`Handle`].
pub struct Questions(mpsc::Receiver<Question>);

struct Question {
    uid: Uid,
    answer: oneshot::Sender<Result<(), String>>,
}

/// Creates a handle and its other end.
pub fn handle() -> (Handle, Questions) {
    let (sender, receiver) = mpsc::channel(QUESTIONS);
    (Handle(sender), Questions(receiver))
}

impl Handle {
    /// Requests an examination of the pod now, and waits for the verdict.
    ///
    /// # Errors
    /// The reason why it is not in sync; or the pod is gone, or the driver has ended.
    pub async fn settled(&self, uid: Uid) -> Result<(), String> {
        let gone = || "pods are not reconciled any more".to_owned();
        let (answer, result) = oneshot::channel();
        let asked = self.0.send(Question { uid, answer }).await;
        asked.map_err(|_| gone())?;
        result.await.unwrap_or_else(|_| Err(gone()))
    }
}

/// Runs until the process exits. `pods` wakes it when pods change.
pub async fn run<R: Reconciler>(
    reconciler: R,
    pods: watch::Receiver<u64>,
    questions: Questions,
    limits: Limits,
) {
    let mut driver = Driver {
        reconciler,
        limits,
        queue: Queue::new(limits.workers),
        threads: Threads::default(),
        running: FuturesUnordered::new(),
        deadlines: BTreeMap::new(),
        patience: limits.patience_of_round,
        known: false,
        all: BTreeSet::new(),
        round: None,
        was_round: false,
        waiting: BTreeMap::new(),
        is_dirty: false,
        shown: Instant::now(),
    };
    driver.run(pods, questions).await;
}

struct Driver<R: Reconciler> {
    reconciler: R,
    limits: Limits,
    queue: Queue,
    threads: Threads,
    running: FuturesUnordered<BoxFuture<'static, Ended<R::Done>>>,
    /// Start of each running job, and the time from which it is late.
    deadlines: BTreeMap<Uid, (Instant, Instant)>,
    /// Remaining part of [`Limits::patience_of_round`].
    patience: Duration,
    /// The set of pods is known.
    known: bool,
    all: BTreeSet<Uid>,
    /// Pods not examined yet in this pass.
    round: Option<BTreeSet<Uid>>,
    /// The first pass has ended.
    was_round: bool,
    waiting: BTreeMap<Uid, Vec<Waiting>>,
    /// Results changed since they were published at `shown`.
    is_dirty: bool,
    shown: Instant,
}

/// The end of a job, with or without a result.
type Ended<D> = (Uid, Result<D, String>);

/// A caller that waits for the verdict on a pod.
struct Waiting {
    /// A job was started after the request.
    begun: bool,
    answer: oneshot::Sender<Result<(), String>>,
}

enum Woken<D> {
    Pods,
    Question(Question),
    Ended(Uid, Result<D, String>),
    Time,
}

impl<R: Reconciler> Driver<R> {
    async fn run(&mut self, mut pods: watch::Receiver<u64>, Questions(mut questions): Questions) {
        let mut look_at = Some(Instant::now());
        let mut sweep_at = Instant::now();
        loop {
            let now = Instant::now();
            if look_at.is_some_and(|at| at <= now) {
                look_at = None;
                self.look(now);
            }
            let may_sweep = self.known && self.round.is_none();
            if let Some(interval) = self.limits.interval
                && may_sweep
                && sweep_at <= now
            {
                sweep_at = now + interval;
                self.sweep(now);
            }
            self.give_up_waiting(now);
            self.begin_work(now);
            let shown_at = self.show(now);
            let deadline = self.deadlines.values().map(|(_, late)| *late).min();
            let sweeps = self.limits.interval.is_some() && self.known && self.round.is_none();
            let sweep = sweeps.then_some(sweep_at);
            let next = [look_at, sweep, deadline, shown_at, self.queue.next()];
            let next = next.into_iter().flatten().min();
            match self.woken(&mut pods, &mut questions, next).await {
                Woken::Pods => look_at = look_at.or(Some(Instant::now() + GATHER)),
                Woken::Question(question) => self.ask(question),
                Woken::Ended(uid, done) => self.ended(&uid, done),
                Woken::Time => {}
            }
        }
    }

    async fn woken(
        &mut self,
        pods: &mut watch::Receiver<u64>,
        questions: &mut mpsc::Receiver<Question>,
        next: Option<Instant>,
    ) -> Woken<R::Done> {
        let running = &mut self.running;
        let ended = async {
            match running.next().await {
                Some((uid, done)) => Woken::Ended(uid, done),
                None => pending().await,
            }
        };
        let changed = async {
            match pods.changed().await {
                Ok(()) => Woken::Pods,
                // No more changes are reported: only timers remain.
                Err(_) => pending().await,
            }
        };
        let asked = async {
            match questions.recv().await {
                Some(question) => Woken::Question(question),
                None => pending().await,
            }
        };
        let changed = async { select(pin!(changed), pin!(asked)).await.factor_first().0 };
        let any = async { select(pin!(ended), pin!(changed)).await.factor_first().0 };
        match next {
            None => any.await,
            Some(at) => {
                let woken = tokio::time::timeout_at(at.into(), any).await;
                woken.unwrap_or(Woken::Time)
            }
        }
    }

    /// Publishes the results, at most once per [`SHOW`]. Returns when to call it again.
    fn show(&mut self, now: Instant) -> Option<Instant> {
        if !(self.was_round && self.is_dirty) {
            return None;
        }
        let at = self.shown + SHOW;
        if at > now {
            return Some(at);
        }
        (self.is_dirty, self.shown) = (false, now);
        self.reconciler.show();
        None
    }

    fn look(&mut self, now: Instant) {
        self.is_dirty = true;
        let Some(changes) = self.reconciler.changes() else {
            return;
        };
        self.patience = self.limits.patience_of_round;
        for uid in &changes.gone {
            self.queue.forget(uid);
            self.looked_at(uid);
            for waiting in self.waiting.remove(uid).into_iter().flatten() {
                let _ = waiting.answer.send(Err("the pod is gone".into()));
            }
        }
        for uid in &changes.changed {
            self.queue.changed(uid, now);
        }
        self.known = true;
        self.all = changes.all;
    }

    fn sweep(&mut self, now: Instant) {
        self.patience = self.limits.patience_of_round;
        self.reconciler.round(false);
        self.round = Some(self.all.clone());
        for uid in &self.all {
            self.queue.sweep(uid, now);
        }
        if self.all.is_empty() {
            self.end_round();
        }
    }

    /// Marks a pod as examined, late or gone in this pass.
    fn looked_at(&mut self, uid: &Uid) {
        let Some(round) = &mut self.round else {
            return;
        };
        round.remove(uid);
        if round.is_empty() {
            self.end_round();
        }
    }

    fn end_round(&mut self) {
        self.round = None;
        self.was_round = true;
        self.reconciler.round(true);
    }

    fn give_up_waiting(&mut self, now: Instant) {
        let is_late = |(_, (_, late)): &(&Uid, &(Instant, Instant))| *late <= now;
        let late = self.deadlines.iter().filter(is_late);
        let late: Vec<Uid> = late.map(|(uid, _)| uid.clone()).collect();
        for uid in late {
            if let Some((begun, _)) = self.deadlines.remove(&uid) {
                self.patience = self.patience.saturating_sub(begun.elapsed());
            }
            self.queue.late(&uid);
            self.reconciler.late(&uid);
            self.is_dirty = true;
            self.looked_at(&uid);
        }
    }

    fn begin_work(&mut self, now: Instant) {
        while let Some(start) = self.queue.start(now) {
            let uid = start.uid.clone();
            for waiting in self.waiting.get_mut(&uid).into_iter().flatten() {
                waiting.begun = true;
            }
            let job = match self.reconciler.job(&start) {
                Ok(job) => job,
                Err(next) => {
                    self.settle(&uid, next);
                    continue;
                }
            };
            let of = uid.clone();
            match job {
                Job::Thread(work) => match self.threads.begin(work) {
                    Ok(answer) => {
                        let limits = &self.limits;
                        let limit = limits.patience.min(self.patience).max(limits.least);
                        let begun = Instant::now();
                        self.deadlines.insert(uid, (begun, begun + limit));
                        let done = async move {
                            let done = answer.await;
                            (of, done.map_err(|_| "looking at it ended abruptly".into()))
                        };
                        self.running.push(done.boxed());
                    }
                    Err(why) => {
                        let next = self.reconciler.done(&uid, Err(why));
                        self.settle(&uid, next);
                    }
                },
                Job::Request(request) => {
                    self.queue.late(&uid);
                    self.looked_at(&uid);
                    self.running
                        .push(async move { (of, Ok(request.await)) }.boxed());
                }
            }
        }
    }

    fn ended(&mut self, uid: &Uid, done: Result<R::Done, String>) {
        self.deadlines.remove(uid);
        let next = self.reconciler.done(uid, done);
        self.settle(uid, next);
    }

    fn settle(&mut self, uid: &Uid, next: Next) {
        self.is_dirty = true;
        self.queue.done(uid, next, Instant::now());
        self.looked_at(uid);
        let is_undecided = self.reconciler.is_undecided(uid);
        let mut waiting = self.waiting.remove(uid).unwrap_or_default();
        waiting.retain(|waiting| !waiting.answer.is_closed());
        let is_answered = |waiting: &Waiting| waiting.begun && !is_undecided;
        let (answered, left): (Vec<_>, Vec<_>) = waiting.into_iter().partition(is_answered);
        for waiting in answered {
            // The caller may have given up.
            let _ = waiting.answer.send(self.reconciler.verdict(uid));
        }
        if !left.is_empty() {
            self.waiting.insert(uid.clone(), left);
        }
    }

    fn ask(&mut self, question: Question) {
        let Question { uid, answer } = question;
        self.queue.changed(&uid, Instant::now());
        let waiting = Waiting {
            begun: false,
            answer,
        };
        self.waiting.entry(uid).or_default().push(waiting);
    }
}

#[cfg(test)]
mod tests;
