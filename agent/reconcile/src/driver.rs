//! Joins the queue with the pods, the clock and the threads.

use super::queue::{Next, Queue, Start, Uid};
use super::work::Threads;
use futures::future::{BoxFuture, FutureExt, select};
use futures::stream::{FuturesUnordered, StreamExt};
use std::collections::{BTreeMap, BTreeSet};
use std::future::pending;
use std::pin::pin;
use std::time::{Duration, Instant};
use tokio::sync::{mpsc, oneshot, watch};

/// Changes come in groups.
const GATHER: Duration = Duration::from_millis(50);
/// Questions that wait to be taken.
const QUESTIONS: usize = 256;

/// Knows what is to be done for a pod, and what follows from what was found.
pub trait Reconciler {
    /// What work ends with.
    type Done: Send + 'static;

    /// What changed since the last call. `None`: the pods are not known yet.
    fn changes(&mut self) -> Option<Changes>;

    /// What is to be done for a pod now. Without a job, how it ended at once.
    fn job(&mut self, start: &Start) -> Result<Job<Self::Done>, Next>;

    /// The job of a pod has ended; `Err`: without an answer, for this reason.
    fn done(&mut self, uid: &Uid, done: Result<Self::Done, String>) -> Next;

    /// The job of a pod takes long. It goes on, and its answer comes.
    fn late(&mut self, uid: &Uid);

    /// A round over all pods begins, or has ended: each pod was looked at, or is late.
    fn round(&mut self, ended: bool);

    /// What is known may be shown: every pod was looked at once.
    fn show(&mut self);

    /// Whether the last job of the pod has left that open: who asks waits for another one.
    fn is_undecided(&self, _uid: &Uid) -> bool {
        false
    }

    /// Whether all is as it should be with a pod, as far as is known.
    fn verdict(&self, uid: &Uid) -> Result<(), String>;
}

/// What changed about the pods.
pub struct Changes {
    /// All that are there now.
    pub all: BTreeSet<Uid>,
    /// Those for which work may be necessary.
    pub changed: Vec<Uid>,
    /// Those that are not there any more.
    pub gone: Vec<Uid>,
}

/// Work for one pod.
pub enum Job<D> {
    /// On a thread.
    Thread(Box<dyn FnOnce() -> D + Send>),
    /// A request, which holds no worker.
    Request(BoxFuture<'static, D>),
}

/// Bounds of the work.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// How many threads work at once, those that are late not counted.
    pub workers: usize,
    /// From the beginning of one round over all pods to that of the next; `None`: there are no rounds.
    pub interval: Option<Duration>,
    /// After so long work is late.
    pub patience: Duration,
    /// All works of one round together may be; beyond that, each is late after [`Limits::least`].
    pub patience_of_round: Duration,
    /// The shortest patience.
    pub least: Duration,
}

impl Limits {
    /// As most work needs it: four threads, because most of the time the kernel works, one namespace at a time.
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

/// Asks for the result of a pod.
#[derive(Clone)]
pub struct Handle(mpsc::Sender<Question>);

/// The other end of a [`Handle`].
pub struct Questions(mpsc::Receiver<Question>);

struct Question {
    uid: Uid,
    answer: oneshot::Sender<Result<(), String>>,
}

/// A handle and its other end.
pub fn handle() -> (Handle, Questions) {
    let (sender, receiver) = mpsc::channel(QUESTIONS);
    (Handle(sender), Questions(receiver))
}

impl Handle {
    /// Has the pod looked at now, and waits for the result.
    ///
    /// # Errors
    /// Why it is not as it should be; the pod is gone, or nobody reconciles any more.
    pub async fn settled(&self, uid: Uid) -> Result<(), String> {
        let gone = || "pods are not reconciled any more".to_owned();
        let (answer, result) = oneshot::channel();
        let asked = self.0.send(Question { uid, answer }).await;
        asked.map_err(|_| gone())?;
        result.await.unwrap_or_else(|_| Err(gone()))
    }
}

/// Works until the process ends. `pods` wakes when they change.
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
    /// When work began, and when it is late.
    deadlines: BTreeMap<Uid, (Instant, Instant)>,
    /// What is left of [`Limits::patience_of_round`].
    patience: Duration,
    /// The pods that there are are known.
    known: bool,
    all: BTreeSet<Uid>,
    /// Pods that were not looked at yet in this round.
    round: Option<BTreeSet<Uid>>,
    /// A round has ended.
    was_round: bool,
    waiting: BTreeMap<Uid, Vec<Waiting>>,
    /// Something changed since it was shown, and when that was.
    is_dirty: bool,
    shown: Instant,
}

/// A job that has ended, with or without an answer.
type Ended<D> = (Uid, Result<D, String>);

/// Who waits for a pod.
struct Waiting {
    /// Work began since.
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
                // Nobody watches any more: time alone decides.
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

    /// Shows what is known, at once when nothing is being done, else not more often than changes are gathered. When to
    /// call it again.
    fn show(&mut self, now: Instant) -> Option<Instant> {
        if !(self.was_round && self.is_dirty) {
            return None;
        }
        let at = self.shown + GATHER;
        if !self.running.is_empty() && at > now {
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

    /// The pod was looked at, or is late, or gone.
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
            // Who asked may have given up.
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
