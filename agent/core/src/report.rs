//! What an operator's command asks a running agent, on a socket in its run directory.

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
/// The same as on the port of the metrics, which need not be open.
pub const STATUS: &str = "/status.json";
/// The same as there.
pub const METRICS: &str = "/metrics";
/// An array of [`Asking`].
pub const PODS: &str = "/pods";

/// A pod of this node that asks for redirection.
#[derive(Debug, Serialize, Deserialize)]
pub struct Asking {
    /// `metadata.namespace`
    pub namespace: String,
    /// `metadata.name`
    pub name: String,
    /// How its network namespace is told from others.
    #[serde(flatten)]
    pub identity: Identity,
}
