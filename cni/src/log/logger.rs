//! The logger: three sinks behind one handle.

use std::io::Write;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use super::agent::Batch;
use super::level::Level;
use super::line::Line;
use super::rolling::RollingFile;

/// Writes log lines to its sinks. Shared by reference between threads.
pub struct Logger {
    inner: Mutex<Inner>,
}

struct Inner {
    level: Level,
    labels: Vec<(&'static str, String)>,
    stderr: Box<dyn Write + Send>,
    file: Option<RollingFile>,
    agent: Option<Batch>,
}

impl Inner {
    fn hears(&self, level: Level) -> bool {
        level >= self.level || (level >= Level::Info && self.file.is_some())
    }
}

impl Logger {
    /// Creates a logger with one sink, `stderr`, at level info.
    #[must_use]
    pub fn new(stderr: Box<dyn Write + Send>) -> Self {
        let inner = Inner {
            level: Level::Info,
            labels: Vec::new(),
            stderr,
            file: None,
            agent: None,
        };
        Self {
            inner: Mutex::new(inner),
        }
    }

    /// Creates a logger that logs nothing.
    #[must_use]
    pub fn silent() -> Self {
        let logger = Self::new(Box::new(std::io::sink()));
        logger.inner().level = Level::None;
        logger
    }

    /// Adds the file and, if the agent's socket exists, the agent.
    ///
    /// `level` applies to stderr and the lines for the agent; the file always gets info and above.
    pub fn open_sinks(&self, level: &str, file: &Path, socket: &Path) {
        let opened = RollingFile::open(file);
        let mut inner = self.inner();
        if let Some(level) = Level::parse(level) {
            inner.level = level;
        }
        // If it is not known, the agent is tried.
        if socket.try_exists().unwrap_or(true) {
            inner.agent = Some(Batch::new(socket.into()));
        }
        let failed = match opened {
            Ok(opened) => {
                inner.file = Some(opened);
                return;
            }
            Err(error) => error,
        };
        drop(inner);
        self.warn(&format!("no log file {}: {failed}", file.display()));
    }

    /// Adds a key to all further lines.
    pub fn label(&self, key: &'static str, value: impl Into<String>) {
        self.inner().labels.push((key, value.into()));
    }

    /// True if any sink accepts lines of this level: otherwise a caller can skip a line that is costly to format.
    #[must_use]
    pub fn hears(&self, level: Level) -> bool {
        self.inner().hears(level)
    }

    /// Logs a line at level debug.
    pub fn debug(&self, msg: &str) {
        self.say(Level::Debug, msg);
    }

    /// Logs a line at level info.
    pub fn info(&self, msg: &str) {
        self.say(Level::Info, msg);
    }

    /// Logs a line at level warn.
    pub fn warn(&self, msg: &str) {
        self.say(Level::Warn, msg);
    }

    /// Logs a line at level error.
    pub fn error(&self, msg: &str) {
        self.say(Level::Error, msg);
    }

    /// Sends a line to the agent only: a measurement for its metrics. The line has level debug, which an agent at level info
    /// does not print, and these labels in addition to the others. At levels above info no line is sent: a pod without any
    /// message costs no exchange with the agent.
    pub(crate) fn measured(&self, msg: &str, labels: impl FnOnce() -> Vec<(&'static str, String)>) {
        let mut inner = self.inner();
        if inner.level > Level::Info || inner.agent.is_none() {
            return;
        }
        let all = [inner.labels.clone(), labels()].concat();
        let line = Line {
            level: Level::Debug,
            time: SystemTime::now(),
            msg,
            labels: &all,
        };
        let line = line.encode();
        if let Some(agent) = &mut inner.agent {
            agent.push(&line);
        }
    }

    /// Sends the collected lines to the agent; takes at most [`SEND_LIMIT`](super::SEND_LIMIT). Later lines reach only the
    /// other sinks.
    pub fn flush(&self) {
        let agent = self.inner().agent.take();
        if let Some(agent) = agent {
            agent.send();
        }
    }

    pub(crate) fn say(&self, level: Level, msg: &str) {
        let mut inner = self.inner();
        let inner = &mut *inner;
        if !inner.hears(level) {
            return;
        }
        let time = SystemTime::now();
        let line = Line {
            level,
            time,
            msg,
            labels: &inner.labels,
        }
        .encode();
        // A log that cannot be written must not fail the pod.
        if level >= inner.level {
            let _ = inner.stderr.write_all(line.as_bytes());
            if let Some(agent) = &mut inner.agent {
                agent.push(&line);
            }
        }
        if level >= Level::Info
            && let Some(file) = &mut inner.file
        {
            let _ = file.append(&line);
        }
    }

    /// Ignores a poisoned lock: lines are complete even if a thread panicked while it held the lock.
    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
