//! Events about pods, sent in the background: repair never waits for the API server.
//!
//! What is sent waits in a queue of bounded length for a thread that has no capabilities. An event that finds the queue full is
//! dropped and counted, and so is one that the API server does not take in time.

use super::actions::Actions;
use crate::api::connection::Connection;
use crate::log::Log;
use crate::metrics::{EventResult, Metrics};
use crate::pods::PodView;
use crate::thread::{privilege, runtime};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;

/// Events that wait: one for each pod of a full node, and some more.
const QUEUE: usize = 512;
/// For one event, connecting included.
const LIMIT: Duration = Duration::from_secs(10);

struct Event {
    view: Arc<PodView>,
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

    /// An event of type Warning about a pod; returns before it is sent.
    pub(crate) fn tell(&self, view: &Arc<PodView>, reason: &'static str, message: String) {
        let event = Event {
            view: Arc::clone(view),
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
        view,
        reason,
        message,
    }) = waiting.recv().await
    {
        let sent = tokio::time::timeout(LIMIT, actions.event(&view, reason, &message)).await;
        let sent = sent.unwrap_or_else(|_| Err(format!("no answer within {LIMIT:?}")));
        let Err(why) = sent else {
            failing = false;
            metrics.event(EventResult::Sent);
            continue;
        };
        metrics.event(EventResult::Failed);
        let (namespace, name) = (view.namespace(), view.name());
        let line = format!("no event {reason} on pod {namespace}/{name}: {why}");
        match std::mem::replace(&mut failing, true) {
            false => log.warn(&line),
            true => log.debug(&line),
        }
    }
}
