//! Kubernetes events about pods, sent in the background so that no caller waits for the API server.
//!
//! Events wait in a bounded queue for a thread without capabilities. An event that finds the queue full is
//! dropped and counted, and so is one that the API server does not accept in time.

use super::actions::Actions;
use crate::api::connection::Connection;
use crate::journal::api::Event as Outcome;
use crate::journal::{Event, Journal, Notice, PodRef, Sink, Subject};
use crate::thread::task::Tasks;
use std::time::{Duration, SystemTime};
use tokio::sync::mpsc;

/// Component name of Istio's agent in events about pods that it repairs.
const REPAIR: &str = "cni-repair";
/// Component name of Istio's agent in events about itself.
const INSTALL: &str = "install-cni";
/// Maximum number of queued events: more than one per pod of a full node.
const QUEUE: usize = 512;
/// Time limit for one event, including the connection.
const LIMIT: Duration = Duration::from_secs(10);

struct Waiting {
    pod: PodRef,
    component: &'static str,
    reason: &'static str,
    message: String,
}

/// A journal sink that sends events to the API server, for the lifetime of the process.
pub struct Recorder<F> {
    queue: mpsc::Sender<Waiting>,
    journal: Journal,
    own_pod: F,
}

impl<F: Fn() -> Option<PodRef>> Recorder<F> {
    /// Starts the task that sends events. `own_pod` finds the agent's pod.
    ///
    /// # Errors
    /// The thread or the Tokio runtime cannot be started.
    pub fn start(
        connection: &Connection,
        node: &str,
        own_pod: F,
        journal: &Journal,
        tasks: &Tasks,
    ) -> Result<Self, String> {
        let (queue, waiting) = mpsc::channel(QUEUE);
        let (connection, node) = (connection.clone(), node.to_owned());
        let told = journal.clone();
        let work = async move {
            let actions = Actions::new(&connection, &node);
            send(&actions, waiting, &told).await;
        };
        let begun = tasks.start("events", || {}, work);
        begun.map_err(|e| e.to_string())?;
        Ok(Self {
            queue,
            journal: journal.clone(),
            own_pod,
        })
    }
}

impl<F: Fn() -> Option<PodRef> + Send + Sync> Sink for Recorder<F> {
    fn record(&self, _: SystemTime, event: &Event) {
        let Some(Notice {
            about,
            reason,
            message,
        }) = event.about().notice
        else {
            return;
        };
        let (pod, component) = match about {
            Subject::Pod(pod) => (pod, REPAIR),
            Subject::Agent => match (self.own_pod)() {
                Some(pod) => (pod, INSTALL),
                None => return self.journal.record(Outcome::NoOwnPod { reason }),
            },
        };
        let waiting = Waiting {
            pod,
            component,
            reason,
            message,
        };
        if self.queue.try_send(waiting).is_err() {
            self.journal.record(Outcome::Dropped { reason });
        }
    }
}

async fn send(actions: &Actions, mut queue: mpsc::Receiver<Waiting>, journal: &Journal) {
    let mut failing = false;
    while let Some(waiting) = queue.recv().await {
        let Waiting {
            pod,
            component,
            reason,
            message,
        } = waiting;
        let sent = actions.event(&pod, component, reason, &message);
        let sent = tokio::time::timeout(LIMIT, sent).await;
        let sent = sent.unwrap_or_else(|_| Err(format!("no answer within {LIMIT:?}")));
        let repeated = std::mem::replace(&mut failing, sent.is_err());
        journal.record(match sent {
            Ok(()) => Outcome::Sent { pod, reason },
            Err(why) => Outcome::Failed {
                pod,
                reason,
                why,
                repeated,
            },
        });
    }
}
