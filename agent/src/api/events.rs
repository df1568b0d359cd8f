//! Events about pods, sent in the background: repair never waits for the API server.
//!
//! What is sent waits in a queue of bounded length for a thread that has no capabilities. An event that finds the queue full is
//! dropped and counted, and so is one that the API server does not take in time.

use super::actions::Actions;
use crate::api::connection::Connection;
use crate::journal::{self, Notice, PodRef, Sink};
use crate::log::Log;
use crate::metrics::{EventResult, Metrics};
use crate::thread::{privilege, runtime};
use std::time::{Duration, SystemTime};
use tokio::sync::mpsc;

/// As Istio's agent calls itself in events about pods that it repairs.
pub(crate) const REPAIR: &str = "cni-repair";
/// Events that wait: one for each pod of a full node, and some more.
const QUEUE: usize = 512;
/// For one event, connecting included.
const LIMIT: Duration = Duration::from_secs(10);

struct Event {
    pod: PodRef,
    reason: &'static str,
    message: String,
}

/// Where events are put; they are sent as long as the process lives.
pub(crate) struct Events {
    queue: mpsc::Sender<Event>,
    metrics: Metrics,
}

impl Events {
    /// Begins to wait for events.
    ///
    /// # Errors
    /// No thread or runtime.
    pub(crate) fn start(
        connection: &Connection,
        node: &str,
        component: &'static str,
        metrics: &Metrics,
        log: &Log,
    ) -> Result<Self, String> {
        let (queue, waiting) = mpsc::channel(QUEUE);
        let runtime = runtime::of_one_thread().map_err(|e| e.to_string())?;
        let (connection, node) = (connection.clone(), node.to_owned());
        let (counts, log) = (metrics.clone(), log.clone());
        let work = move || {
            privilege::drop_all_of_thread(&log);
            runtime.block_on(async {
                let actions = Actions::new(&connection, &node, component);
                send(&actions, waiting, &counts, &log).await;
            });
        };
        let thread = std::thread::Builder::new().name("events".into());
        thread.spawn(work).map_err(|e| e.to_string())?;
        Ok(Self {
            queue,
            metrics: metrics.clone(),
        })
    }
}

impl Sink for Events {
    fn record(&self, _: SystemTime, event: &journal::Event) {
        let Some(Notice {
            pod,
            reason,
            message,
        }) = event.notice()
        else {
            return;
        };
        let event = Event {
            pod: pod.clone(),
            reason,
            message,
        };
        if self.queue.try_send(event).is_err() {
            self.metrics.event(EventResult::Dropped);
        }
    }
}

async fn send(actions: &Actions, mut waiting: mpsc::Receiver<Event>, metrics: &Metrics, log: &Log) {
    // A server that is gone is said once.
    let mut failing = false;
    while let Some(Event {
        pod,
        reason,
        message,
    }) = waiting.recv().await
    {
        let sent = tokio::time::timeout(LIMIT, actions.event(&pod, reason, &message)).await;
        let sent = sent.unwrap_or_else(|_| Err(format!("no answer within {LIMIT:?}")));
        let Err(why) = sent else {
            failing = false;
            metrics.event(EventResult::Sent);
            continue;
        };
        metrics.event(EventResult::Failed);
        let line = format!("no event {reason} on pod {pod}: {why}");
        match std::mem::replace(&mut failing, true) {
            false => log.warn(&line),
            true => log.debug(&line),
        }
    }
}
