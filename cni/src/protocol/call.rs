//! One validated call, as passed to a handler.

use serde_json::{Map, Value};

use super::environment::Environment;

/// `CNI_COMMAND`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Command {
    /// A container joins the network.
    Add,
    /// Checks whether the container is still in the state that ADD left.
    Check,
    /// A container leaves the network.
    Del,
    /// Only the named attachments are still in use (1.1.0).
    Gc,
    /// Reports whether the plugin can serve ADD (1.1.0).
    Status,
    /// Lists the versions that the plugin supports.
    Version,
}

impl Command {
    /// Parses `ADD`, `CHECK`, `DEL`, `GC`, `STATUS` or `VERSION`, in this spelling only.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Some(match text {
            "ADD" => Self::Add,
            "CHECK" => Self::Check,
            "DEL" => Self::Del,
            "GC" => Self::Gc,
            "STATUS" => Self::Status,
            "VERSION" => Self::Version,
            _ => return None,
        })
    }

    /// Returns the value of `CNI_COMMAND`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Add => "ADD",
            Self::Check => "CHECK",
            Self::Del => "DEL",
            Self::Gc => "GC",
            Self::Status => "STATUS",
            Self::Version => "VERSION",
        }
    }
}

/// A request of a runtime, after all protocol checks.
#[derive(Debug, Clone)]
pub struct Call {
    /// The verb.
    pub command: Command,
    /// The variables the verb may use.
    pub env: Environment,
    /// The network configuration: a JSON object with a valid `name`.
    pub config: Map<String, Value>,
    /// Its `cniVersion`, one of [`SUPPORTED`](super::SUPPORTED).
    pub version: String,
}
