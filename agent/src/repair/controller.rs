//! When it is looked: after every change of the pods, when an attempt is due, and from time to time.
//!
//! A thread of its own with a runtime of its own: reading and writing rules is synchronous work.

use super::RepairSettings;
use super::pass::Repairer;
use crate::api::access::Access;
use crate::api::actions::Actions;
use crate::api::connection::Connection;
use crate::journal::Journal;
use crate::journal::pod::Event;
use crate::pods::Pods;
use crate::sandboxes::place::Processes;
use crate::thread::runtime;
use futures::future::select;
use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Changes come in groups.
const GATHER: Duration = Duration::from_millis(50);

/// Begins to look, for as long as the process lives.
///
/// # Errors
/// The API server's address cannot be used; no thread or runtime.
pub(crate) fn start(
    settings: RepairSettings,
    access: &Access,
    node: &str,
    pods: Pods,
    journal: Journal,
) -> Result<(), String> {
    let connection = Connection::of_actions(access)?;
    let runtime = runtime::of_one_thread().map_err(|e| e.to_string())?;
    let node = node.to_owned();
    let work = async move {
        let repairer = Repairer {
            actions: Actions::new(&connection, &node),
            done: Arc::default(),
            processes: Processes::of_node(),
            memory: BTreeMap::new(),
            settings,
            pods,
            journal,
        };
        run(repairer).await;
    };
    std::thread::Builder::new()
        .name("repair".into())
        .spawn(move || runtime.block_on(work))
        .map_err(|e| e.to_string())?;
    Ok(())
}

async fn run(mut repairer: Repairer) {
    let mut changes = repairer.pods.subscribe();
    let interval = repairer.settings.interval;
    let (mut sweep_at, mut began) = (Instant::now(), false);
    loop {
        changes.borrow_and_update();
        let mut next = None;
        if repairer.pods.synced() {
            // From here on the first round has a deadline.
            if let Some(interval) = interval.filter(|_| !std::mem::replace(&mut began, true)) {
                repairer.journal.record(Event::RoundsBegin { interval });
            }
            let sweep = interval.is_some() && sweep_at <= Instant::now();
            next = repairer.pass(sweep).await;
            if let Some(interval) = interval.filter(|_| sweep) {
                sweep_at = Instant::now() + interval;
            }
            if interval.is_some() {
                next = next.into_iter().chain([sweep_at]).min();
            }
        }
        let done = Arc::clone(&repairer.done);
        let changed = async {
            let seen = async {
                if changes.changed().await.is_err() {
                    // Nobody watches any more: time alone decides.
                    std::future::pending::<()>().await;
                }
            };
            select(pin!(seen), pin!(done.notified())).await;
            tokio::time::sleep(GATHER).await;
        };
        match next {
            None => changed.await,
            Some(at) => _ = tokio::time::timeout_at(at.into(), changed).await,
        }
    }
}
