//! Starts repair on its own thread with its own runtime.

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

/// Maximum time that the work for one pod delays other pods.
pub(super) const PATIENCE: Duration = Duration::from_secs(2);

/// Starts repair, which runs until the process ends.
///
/// # Errors
/// The address of the API server is invalid, or the thread or its runtime cannot be started.
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
