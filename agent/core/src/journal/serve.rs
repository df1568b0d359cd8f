//! Events of the servers: sockets, refused clients, file descriptors.

use super::About;
use std::path::PathBuf;
use weir_cni::log::Level::{Error, Info, Warn};

/// A socket of the run directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Socket {
    /// Log lines of the plugin.
    Lines,
    /// Look-ups of pods by the plugin.
    Pods,
    /// Ambient pods handed over by the plugin.
    Entry,
    /// Requests of operators about the agent.
    Agent,
}

impl Socket {
    /// Returns what does not work without it.
    fn without(self) -> &'static str {
        match self {
            Self::Lines => "the plugin's lines do not reach this log",
            Self::Pods => "the plugin asks the API server for every pod",
            Self::Entry => "pods of ambient mode do not start",
            Self::Agent => "no command can ask this agent about itself",
        }
    }
}

/// Result of a log line of the plugin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LineResult {
    Emitted,
    /// Below the log level.
    Quiet,
    /// Not a valid line.
    Malformed,
    /// Too many.
    Dropped,
    /// The client is not root.
    Refused,
}

/// Result of a look-up of a pod by the plugin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lookup {
    Known,
    Unknown,
    /// The list of pods is not complete yet.
    Unsynced,
    Malformed,
    /// The client is not root.
    Refused,
}

/// An event of the servers.
#[derive(Debug)]
pub enum Event {
    /// The socket's path no longer refers to the agent's socket; it is bound again.
    SocketLost {
        socket: Socket,
        path: PathBuf,
        why: String,
    },
    /// A lost socket cannot be bound again; the bind is retried.
    SocketNotBound {
        socket: Socket,
        path: PathBuf,
        why: String,
    },
    /// A socket was bound at start.
    SocketReady { socket: Socket },
    /// A socket cannot be bound at start.
    SocketMissing {
        socket: Socket,
        path: PathBuf,
        why: String,
    },
    /// A lost socket was bound again.
    SocketBound { socket: Socket, path: PathBuf },
    /// A client that is not root was refused; `more` counts suppressed events since the last one.
    Refused {
        does: &'static str,
        who: String,
        more: u64,
    },
    /// A log line of the plugin was received.
    PluginLine { result: LineResult },
    /// The plugin looked up a pod.
    PodLookup { result: Lookup },
    /// The metrics port cannot be bound.
    NoMetrics { port: i64, why: String },
    /// Log lines of the plugin were dropped: too many, or too long.
    PluginLinesDropped { lines: u64 },
    /// The process or the machine has no free file descriptor.
    DescriptorsExhausted { why: String },
    /// File descriptors are available again.
    DescriptorsFree,
    /// The thread for health and metrics could not get a separate file descriptor table.
    DescriptorsShared { why: String },
}

impl Event {
    /// For an event of a socket, returns the socket and the reason why clients cannot reach the agent (`None` if they can).
    /// Returns `None` for other events.
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
                let text = format!("{}; it is retried", failure());
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
