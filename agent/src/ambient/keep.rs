//! Compares and repairs the node's network namespace continuously: at once when the kernel reports a routing change,
//! within half a second after a commit to its rules, and periodically for changes that neither of them shows.

use super::glance::{Glance, Seen};
use super::node::AtNode;
use super::probes::HostRules;
use futures::future::{Either, select};
use std::future::{Future, pending};
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until, timeout, timeout_at};
use weir_core::journal::Journal;
use weir_core::journal::ambient::{Event, Purpose};
use weir_core::thread::task::Tasks;
use weir_drift::listener::{Heard, Listener};
use weir_drift::repairs::Repairs;

/// The last reported state of one part of the node's network namespace; a state is reported once.
#[derive(Default)]
pub(super) struct Reported {
    failure: Option<Option<String>>,
    /// The last attempt succeeded, regardless of what another program has done since.
    is_good: bool,
    repairs: Repairs,
}

impl Reported {
    /// Returns true if it was in force after the last attempt.
    pub(super) fn is_good(&self) -> bool {
        self.is_good
    }

    /// Records a failure, or a repair of `healed`. With repeated repairs (contention) it counts as not in force.
    pub(super) fn tell(
        &mut self,
        journal: &Journal,
        purpose: Purpose,
        failure: Option<String>,
        healed: Option<String>,
    ) {
        let now = std::time::Instant::now();
        self.is_good = failure.is_none();
        let is_told = healed.as_ref().map(|change| self.repairs.made(change, now));
        let failure = failure.or_else(|| self.repairs.contention(now));
        let is_news = self.failure.as_ref() != Some(&failure);
        if is_news || healed.is_some() {
            self.failure = Some(failure.clone());
            journal.record(Event::Host {
                purpose,
                failure,
                healed,
                quiet: !is_news && is_told == Some(false),
            });
        }
    }
}

/// The intervals of comparisons.
#[derive(Clone, Copy)]
pub(super) struct Pace {
    /// Interval between full comparisons.
    pub(super) round: Duration,
    /// Delay of a retry after a failure.
    pub(super) retry: Duration,
    /// Interval between checks for commits to the rules, or for changes at the node that captures.
    pub(super) look: Duration,
    /// Minimum interval between checks triggered by notifications, regardless of their number: another writer may revert each repair.
    pub(super) least: Duration,
}

/// Minimum interval between comparisons of legacy tables that change continuously.
const LEGACY: Duration = Duration::from_secs(1);

pub(super) const PACE: Pace = Pace {
    round: Duration::from_secs(30),
    retry: Duration::from_secs(2),
    look: Duration::from_millis(500),
    least: Duration::from_millis(500),
};

type Reports = (Listener, watch::Receiver<Heard>);

/// Keeps the host's rules in sync, on a separate thread. Listens only for changes of policy rules, and only if the host may have some.
pub(super) fn host(
    host: HostRules,
    (listener, mut routing): Reports,
    pace: Pace,
    tasks: &Tasks,
) -> Result<(), String> {
    let of_first = host.clone();
    let listens = async move {
        let asked = tokio::task::spawn_blocking(move || of_first.has_enis()).await;
        match asked.unwrap_or(true) {
            true => listener.run().await,
            // The sender of its channel is kept.
            false => pending().await,
        }
    };
    let keeps = async move {
        let glance = Arc::default();
        loop {
            routing.borrow_and_update();
            let begun = Instant::now();
            // Read before the comparison: a change in the meantime triggers another comparison.
            let seen = look(&host, &glance).await;
            let of_thread = host.clone();
            let healed = tokio::task::spawn_blocking(move || of_thread.heal()).await;
            match healed {
                Ok(Ok(is_same)) => {
                    let seen = is_same.then_some(seen);
                    let quiet = while_quiet(&host, (&glance, seen), &mut routing, pace);
                    if let Ok(()) = timeout_at(begun + pace.round, quiet).await {
                        sleep_until(begun + pace.least).await;
                    }
                }
                _ => sleep(pace.retry).await,
            }
        }
    };
    both(tasks, listens, keeps)
}

async fn look(host: &HostRules, glance: &Arc<Mutex<Glance>>) -> Seen {
    let (host, glance) = (host.clone(), Arc::clone(glance));
    let look = move || {
        let (netns, engine) = host.in_use();
        // No code panics while holding the lock.
        let mut glance = glance.lock().unwrap_or_else(PoisonError::into_inner);
        glance.look(netns.as_deref(), engine)
    };
    let looked = tokio::task::spawn_blocking(look).await;
    looked.unwrap_or(Seen::Nothing)
}

/// Returns when a routing change is reported or the rules cannot be healed; commits to the rules in the meantime are healed here.
/// `seen` is the state that needs no repair: after a repair `None`, because another program may make the same change again.
async fn while_quiet(
    host: &HostRules,
    (glance, mut seen): (&Arc<Mutex<Glance>>, Option<Seen>),
    routing: &mut watch::Receiver<Heard>,
    pace: Pace,
) {
    loop {
        match timeout(pace.look, routing.changed()).await {
            Ok(Ok(())) => return,
            // The listener has ended, which is no reason to look at once.
            Ok(Err(_)) => sleep(pace.look).await,
            Err(_) => {}
        }
        let now = look(host, glance).await;
        if seen.as_ref() == Some(&now) {
            continue;
        }
        let is_legacy = matches!(now, Seen::Sizes(..));
        let of_thread = host.clone();
        let healed = tokio::task::spawn_blocking(move || of_thread.heal_rules()).await;
        let Ok(Ok(is_same)) = healed else {
            return;
        };
        seen = is_same.then_some(now);
        if is_legacy {
            // Tables used by kube-proxy may be large, and are read as a whole.
            sleep(LEGACY).await;
        }
    }
}

/// Keeps the node that captures in sync. Also triggered by changes of pods, because a proxy may become ready or disappear, and when
/// another program changes rules, programs or routing.
pub(super) fn node(
    node: AtNode,
    (listener, mut routing): Reports,
    pace: Pace,
    tasks: &Tasks,
) -> Result<(), String> {
    let mut pods = node.pods().subscribe();
    let keeps = async move {
        loop {
            pods.borrow_and_update();
            let heard = *routing.borrow_and_update();
            // Time of the last check triggered by a notification.
            let mut reported = Instant::now();
            let of_thread = node.clone();
            let healed = tokio::task::spawn_blocking(move || of_thread.heal()).await;
            let is_good = matches!(healed, Ok(Ok(())));
            let until = Instant::now() + if is_good { pace.round } else { pace.retry };
            while Instant::now() < until {
                let look = pace
                    .look
                    .min(until.saturating_duration_since(Instant::now()));
                match timeout(look, news(&mut pods, &mut routing)).await {
                    Ok(News::Pods) => {
                        // Bounds the number of comparisons if pods change continuously.
                        sleep_until(reported + pace.least).await;
                        break;
                    }
                    Ok(News::Routing) => {
                        sleep_until(reported + pace.least).await;
                        reported = Instant::now();
                    }
                    Err(_) => {}
                }
                if !is_good {
                    continue;
                }
                if routing.borrow_and_update().gaps != heard.gaps {
                    break;
                }
                let of_thread = node.clone();
                let changed = tokio::task::spawn_blocking(move || of_thread.has_changed()).await;
                if changed.unwrap_or(true) {
                    break;
                }
            }
        }
    };
    both(tasks, listener.run(), keeps)
}

enum News {
    Pods,
    Routing,
}

async fn news(pods: &mut watch::Receiver<u64>, routing: &mut watch::Receiver<Heard>) -> News {
    match select(pin!(pods.changed()), pin!(routing.changed())).await {
        Either::Left((Ok(()), _)) => News::Pods,
        Either::Right((Ok(()), _)) => News::Routing,
        // One of the channels is closed and would be ready forever.
        Either::Left((Err(_), _)) | Either::Right((Err(_), _)) => pending().await,
    }
}

/// Runs both on one thread; if either ends, the task ends.
fn both(
    tasks: &Tasks,
    listens: impl Future<Output = ()> + Send + 'static,
    keeps: impl Future<Output = ()> + Send + 'static,
) -> Result<(), String> {
    let work = async move {
        select(pin!(listens), pin!(keeps)).await;
    };
    tasks.start("host", || {}, work).map_err(|e| e.to_string())
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::ambient::hands::Probes;
    use crate::ambient::probes::tests::node_telling;
    use std::process::Command;
    use std::sync::mpsc;
    use std::time::SystemTime;
    use weir_core::journal::ambient::Event::Host;
    use weir_core::journal::{Event, Sink};
    use weir_drift::listener::Of;
    use weir_netlink::Netns;
    use weir_netlink::route::Routing;

    const HOUR: Duration = Duration::from_secs(3600);

    /// Nothing is triggered by time.
    pub(in crate::ambient) const NEVER: Pace = Pace {
        round: HOUR,
        retry: HOUR,
        look: HOUR,
        least: Duration::ZERO,
    };

    /// The events about the host: what was healed; `None`: it is in force.
    pub(in crate::ambient) struct Told(mpsc::Receiver<Option<String>>);

    struct Hears(mpsc::Sender<Option<String>>);

    impl Sink for Hears {
        fn record(&self, _: SystemTime, event: &Event) {
            if let Event::Ambient(Host {
                failure, healed, ..
            }) = event
            {
                assert_eq!(failure, &None);
                self.0.send(healed.clone()).unwrap();
            }
        }
    }

    impl Told {
        pub(in crate::ambient) fn journal() -> (Journal, Self) {
            let (hears, told) = mpsc::channel();
            let journal = Journal::default();
            journal.add(Hears(hears));
            (journal, Self(told))
        }

        pub(in crate::ambient) fn next(&self) -> Option<String> {
            self.0.recv_timeout(Duration::from_secs(30)).unwrap()
        }
    }

    pub(in crate::ambient) fn ip(netns: &Netns, arguments: &str) {
        let arguments = arguments.split(' ');
        let run = netns.run(|| Command::new("ip").args(arguments).output());
        let run = run.unwrap().unwrap();
        assert!(run.status.success(), "{run:?}");
    }

    #[test]
    fn rules_for_a_pod_behind_an_eni_are_written_again_because_it_is_reported() {
        let netns = weir_testing::namespace_or_skip!();
        let proc = weir_testing::TempDir::new();
        let (journal, told) = Told::journal();
        let rules = node_telling(&netns, proc.path(), journal.clone());
        rules.put("a", &["10.9.0.2".parse().unwrap()]).unwrap();
        let tasks = Tasks::new(journal.clone()).unwrap();
        let reports = Listener::new(Some(netns.path()), Of::Rules, journal);
        host(rules, reports, NEVER, &tasks).unwrap();
        assert_eq!(told.next(), None, "in force");
        let routing = Routing::open_in(&netns).unwrap();
        let count = || routing.rules().unwrap().len();
        let whole = count();
        for _ in 0..2 {
            ip(&netns, "rule del priority 512");
            assert!(told.next().is_some());
            assert_eq!(count(), whole);
        }
        assert_eq!(tasks.stop(Duration::from_secs(30)), Vec::<&str>::new());
    }
}
