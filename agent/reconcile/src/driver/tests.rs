//! The driver with work that the test holds.

use super::*;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc as blocking;
use std::sync::{Arc, Mutex};

/// What happened, in order.
type Seen = Arc<Mutex<Vec<String>>>;

/// Pods by name; work for one that is held takes until it is released.
struct Fake {
    pods: Vec<&'static str>,
    told: bool,
    held: BTreeMap<String, Arc<Mutex<blocking::Receiver<()>>>>,
    seen: Seen,
    undecided: Arc<AtomicBool>,
}

impl Fake {
    fn say(&self, line: String) {
        self.seen.lock().unwrap().push(line);
    }
}

impl Reconciler for Fake {
    type Done = String;

    fn changes(&mut self) -> Option<Changes> {
        let all: BTreeSet<Uid> = self.pods.iter().map(|name| (*name).into()).collect();
        let changed = match std::mem::replace(&mut self.told, true) {
            true => Vec::new(),
            false => all.iter().cloned().collect(),
        };
        Some(Changes {
            all,
            changed,
            gone: Vec::new(),
        })
    }

    fn job(&mut self, start: &Start) -> Result<Job<String>, Next> {
        let (uid, held) = (start.uid.to_string(), self.held.get(&*start.uid).cloned());
        Ok(Job::Thread(Box::new(move || {
            held.map(|held| held.lock().unwrap().recv());
            uid
        })))
    }

    fn done(&mut self, uid: &Uid, done: Result<String, String>) -> Next {
        assert_eq!(done.as_deref(), Ok(&**uid));
        self.say(format!("done {uid}"));
        Next::Settled
    }

    fn late(&mut self, uid: &Uid) {
        self.say(format!("late {uid}"));
    }

    fn round(&mut self, ended: bool) {
        if ended {
            self.say("round".into());
        }
    }

    fn show(&mut self) {}

    fn is_undecided(&self, _: &Uid) -> bool {
        self.undecided.load(Ordering::SeqCst)
    }

    fn verdict(&self, uid: &Uid) -> Result<(), String> {
        Err(format!("{uid} was looked at"))
    }
}

const LIMITS: Limits = Limits {
    workers: 1,
    interval: Some(Duration::from_secs(3600)),
    patience: Duration::from_millis(20),
    patience_of_round: Duration::from_secs(10),
    least: Duration::from_millis(1),
};

/// Work that hangs is late and holds up neither the other pods, though there is one worker, nor the round; its answer is
/// not lost.
#[test]
fn what_hangs_is_late_and_holds_up_nobody() {
    let (release, held) = blocking::channel();
    let seen = Seen::default();
    let fake = Fake {
        pods: vec!["a", "b"],
        told: false,
        held: BTreeMap::from([("a".to_owned(), Arc::new(Mutex::new(held)))]),
        seen: Arc::clone(&seen),
        undecided: Arc::default(),
    };
    let (_pods, changes) = watch::channel(0);
    let (handle, questions) = handle();
    let steps = async move {
        let asked = async {
            let answer = handle.settled("b".into()).await;
            assert_eq!(answer, Err("b was looked at".into()));
            let until = |line: &'static str| {
                let seen = Arc::clone(&seen);
                async move {
                    while !seen.lock().unwrap().iter().any(|l| l == line) {
                        tokio::task::yield_now().await;
                    }
                }
            };
            until("late a").await;
            until("round").await;
            release.send(()).unwrap();
            until("done a").await;
        };
        select(pin!(run(fake, changes, questions, LIMITS)), pin!(asked)).await;
    };
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_time().build().unwrap();
    let limited = async { tokio::time::timeout(Duration::from_secs(30), steps).await };
    runtime.block_on(limited).expect("all of it happens");
}

/// Who asks waits past the end of a job that decides nothing.
#[test]
fn who_asks_waits_while_it_is_undecided() {
    let (seen, undecided) = (Seen::default(), Arc::new(AtomicBool::new(true)));
    let fake = Fake {
        pods: vec!["a"],
        told: true,
        held: BTreeMap::new(),
        seen: Arc::clone(&seen),
        undecided: Arc::clone(&undecided),
    };
    let (_pods, changes) = watch::channel(0);
    let (handle, questions) = handle();
    let answer = || Err("a was looked at".to_owned());
    let steps = async move {
        let first = async {
            assert_eq!(handle.settled("a".into()).await, answer());
            assert!(!undecided.load(Ordering::SeqCst));
        };
        let second = async {
            // One job is that of the first round.
            while seen
                .lock()
                .unwrap()
                .iter()
                .filter(|l| *l == "done a")
                .count()
                < 2
            {
                let asked = handle.settled("a".into());
                let asked = tokio::time::timeout(Duration::from_millis(50), asked).await;
                assert!(asked.is_err(), "{asked:?}");
            }
            undecided.store(false, Ordering::SeqCst);
            assert_eq!(handle.settled("a".into()).await, answer());
        };
        let asked = futures::future::join(first, second);
        select(pin!(run(fake, changes, questions, LIMITS)), pin!(asked)).await;
    };
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_time().build().unwrap();
    let limited = async { tokio::time::timeout(Duration::from_secs(30), steps).await };
    runtime.block_on(limited).expect("all of it happens");
}
