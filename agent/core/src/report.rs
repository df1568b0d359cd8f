//! Requests of an operator's command to a running agent, over a socket in its run directory.

use crate::sandboxes::place::Identity;
use serde::{Deserialize, Serialize};

/// Name of the socket in the run directory.
pub const SOCKET: &str = "agent.sock";
/// The settings in force, as `--explain-settings --json` prints them.
pub const SETTINGS: &str = "/settings";
/// The last lines of the log.
pub const LOG: &str = "/log";
/// The last events, one JSON object per line.
pub const EVENTS: &str = "/events";
/// The status, as on the metrics port, which need not be open.
pub const STATUS: &str = "/status.json";
/// The metrics, as on that port.
pub const METRICS: &str = "/metrics";
/// An array of [`Asking`].
pub const PODS: &str = "/pods";

/// A pod of this node that requests redirection.
#[derive(Debug, Serialize, Deserialize)]
pub struct Asking {
    /// `metadata.namespace`
    pub namespace: String,
    /// `metadata.name`
    pub name: String,
    /// The properties that identify its network namespace.
    #[serde(flatten)]
    pub identity: Identity,
}
