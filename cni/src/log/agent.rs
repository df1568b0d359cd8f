//! The log lines for the node agent: collected, and sent once at the end.

use std::path::PathBuf;
use std::time::Duration;

use serde_json::Value;

use crate::http::post;

/// Time limit for sending the lines: the maximum by which the agent's log server can delay the end of the process.
pub const SEND_LIMIT: Duration = Duration::from_secs(1);

/// Lines for `log.sock`.
#[derive(Debug)]
pub(super) struct Batch {
    socket: PathBuf,
    lines: Vec<Value>,
}

impl Batch {
    pub(super) fn new(socket: PathBuf) -> Self {
        Self {
            socket,
            lines: Vec::new(),
        }
    }

    pub(super) fn push(&mut self, line: &str) {
        self.lines.push(line.into());
    }

    /// Sends `POST /log` with a JSON array of strings, each one line with its newline. Ignores failures: the same lines are
    /// in the file.
    pub(super) fn send(self) {
        if !self.lines.is_empty() {
            let body = Value::Array(self.lines).to_string();
            let _ = post(&self.socket, "/log", body, SEND_LIMIT);
        }
    }
}
