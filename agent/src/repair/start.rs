//! Begins to repair: a thread of its own with a runtime of its own.

use super::RepairSettings;
use super::keeper::Keeper;
use std::time::Duration;
use weir_core::api::access::Access;
use weir_core::api::actions::Actions;
use weir_core::api::connection::Connection;
use weir_core::journal::Journal;
use weir_core::pods::Pods;
use weir_core::sandboxes::Sandboxes;
use weir_core::thread::task::Tasks;
use weir_drift::{Drift, Drifted, Wake, follow, on_commit};
use weir_reconcile::Limits;

/// How long the work for one pod keeps others waiting.
pub(super) const PATIENCE: Duration = Duration::from_secs(2);

/// Looks at pods for as long as the process lives.
///
/// # Errors
/// The API server's address cannot be used; no thread or runtime.
pub(crate) fn start(
    settings: RepairSettings,
    access: &Access,
    node: &str,
    (pods, sandboxes): (Pods, Sandboxes),
    journal: Journal,
    tasks: &Tasks,
) -> Result<(), String> {
    let connection = Connection::of_actions(access)?;
    let node = node.to_owned();
    let limits = Limits::usual(settings.interval, PATIENCE);
    let work = async move {
        let (wake, drifted) = (Wake::default(), Drifted::default());
        let changes = wake.subscribe();
        let (drift, notices) = Drift::new(on_commit(drifted.clone(), wake.clone()));
        tokio::spawn(notices);
        tokio::spawn(follow(pods.clone(), wake));
        let actions = Actions::new(&connection, &node);
        let keeper = Keeper::new(
            settings,
            (pods, sandboxes),
            actions,
            (drift, drifted),
            journal,
        );
        let (_handle, questions) = weir_reconcile::handle();
        weir_reconcile::run(keeper, changes, questions, limits).await;
    };
    let begun = tasks.start("repair", || {}, work);
    begun.map_err(|e| e.to_string())
}
