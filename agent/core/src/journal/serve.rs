//! The servers: their sockets, who is refused, and the descriptors that they need.

use super::About;
use std::path::PathBuf;
use weir_cni::log::Level::{Error, Info, Warn};

/// A socket of the run directory, by what it is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Socket {
    /// Lines of the plugin.
    Lines,
    /// Questions of the plugin for pods.
    Pods,
    /// Pods of ambient mode that the plugin hands over.
    Entry,
    /// Questions of operators about the agent.
    Agent,
}

impl Socket {
    /// What does not work without it.
    fn without(self) -> &'static str {
        match self {
            Self::Lines => "the plugin's lines do not reach this log",
            Self::Pods => "the plugin asks the API server for every pod",
            Self::Entry => "pods of ambient mode do not start",
            Self::Agent => "no command can ask this agent about itself",
        }
    }
}

/// What became of a line of the plugin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LineResult {
    Emitted,
    /// Below the level.
    Quiet,
    /// Not a line.
    Malformed,
    /// Too many.
    Dropped,
    /// A connection of another user than root, whatever it would have said.
    Refused,
}

/// What became of a question of the plugin for a pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lookup {
    Known,
    Unknown,
    /// The pods are not listed yet.
    Unsynced,
    Malformed,
    /// Of another user than root.
    Refused,
}

/// What happens to the servers.
#[derive(Debug)]
pub enum Event {
    /// The name of a socket is no longer that of the agent's; it is bound again.
    SocketLost {
        socket: Socket,
        path: PathBuf,
        why: String,
    },
    /// A lost socket cannot be bound; it is tried again.
    SocketNotBound {
        socket: Socket,
        path: PathBuf,
        why: String,
    },
    /// A socket listens, from the start.
    SocketReady { socket: Socket },
    /// A socket cannot be bound at the start.
    SocketMissing {
        socket: Socket,
        path: PathBuf,
        why: String,
    },
    /// A lost socket listens again.
    SocketBound { socket: Socket, path: PathBuf },
    /// A user who is not root tried this; `more` times since the last such event.
    Refused {
        does: &'static str,
        who: String,
        more: u64,
    },
    /// A line of the plugin came.
    PluginLine { result: LineResult },
    /// The plugin asked for a pod.
    PodLookup { result: Lookup },
    /// The port of the metrics cannot be bound.
    NoMetrics { port: i64, why: String },
    /// Lines of the plugin: too many, or too long.
    PluginLinesDropped { lines: u64 },
    /// The process, or the machine, has no free descriptor.
    DescriptorsExhausted { why: String },
    /// There are free descriptors again.
    DescriptorsFree,
    /// The thread of health and metrics has no table of descriptors of its own.
    DescriptorsShared { why: String },
}

impl Event {
    /// Why clients do not reach the agent at a socket; `None` if they do. `None` for events that are not of a socket.
    pub fn of_socket(&self) -> Option<(Socket, Option<String>)> {
        Some(match self {
            Self::SocketLost { socket, path, why } => {
                (*socket, Some(format!("{} is lost: {why}", path.display())))
            }
            Self::SocketNotBound { socket, path, why }
            | Self::SocketMissing { socket, path, why } => {
                let why = format!("cannot listen on {}: {why}", path.display());
                (*socket, Some(why))
            }
            Self::SocketBound { socket, .. } | Self::SocketReady { socket } => (*socket, None),
            _ => return None,
        })
    }

    pub(super) fn about(&self) -> About {
        let failure = || {
            self.of_socket()
                .and_then(|(_, why)| why)
                .unwrap_or_default()
        };
        match self {
            Self::SocketLost { .. } => {
                let text = format!("{}; it is bound again", failure());
                About::new(Warn, "socket_lost", text)
            }
            Self::SocketNotBound { .. } => {
                let text = format!("{}; it is tried again", failure());
                About::new(Warn, "socket_not_bound", text)
            }
            Self::SocketMissing { socket, .. } => {
                let text = format!("{}; {}", failure(), socket.without());
                About::new(Warn, "socket_not_bound", text)
            }
            Self::SocketReady { .. } => About::silent("socket_ready"),
            Self::PluginLine { .. } => About::silent("plugin_line"),
            Self::PodLookup { .. } => About::silent("pod_lookup"),
            Self::NoMetrics { port, why } => {
                let text =
                    format!("no metrics on port {port}: {why}; MONITORING_PORT chooses another");
                About::new(Warn, "no_metrics", text)
            }
            Self::SocketBound { path, .. } => {
                let text = format!("listening on {} again", path.display());
                About::new(Info, "socket_bound", text)
            }
            Self::Refused { does, who, more } => {
                let more = match more {
                    0 => String::new(),
                    n => format!(", and {n} times more since this was said last"),
                };
                let text = format!("a user who is not root {does} and is refused: {who}{more}");
                About::new(Warn, "user_refused", text)
            }
            Self::PluginLinesDropped { lines } => {
                let text = format!(
                    "{lines} lines of the plugin were dropped: too many, or too long, at once; they are in the plugin's \
                     log file on the node"
                );
                About::new(Warn, "plugin_lines_dropped", text)
            }
            Self::DescriptorsExhausted { why } => {
                let text = format!(
                    "nothing can be opened: {why}; the agent installs, verifies and answers the plugin again when a \
                     descriptor is free. /proc/{}/fd shows what is open, /proc/{0}/limits how many may be",
                    std::process::id()
                );
                About::new(Error, "descriptors_exhausted", text)
            }
            Self::DescriptorsFree => {
                About::new(Info, "descriptors_free", "descriptors are free again")
            }
            Self::DescriptorsShared { why } => {
                let text = format!(
                    "health and metrics share the table of descriptors with the rest of the agent: {why}"
                );
                About::new(Warn, "descriptors_shared", text)
            }
        }
    }
}
