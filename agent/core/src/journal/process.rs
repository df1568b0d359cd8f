//! The process itself.

use super::About;
use weir_cni::log::Level::{Error, Warn};

/// What happens to the process.
#[derive(Debug)]
pub enum Event {
    /// A capability is missing, or one that is not needed cannot be given up.
    Rights { why: String },
    /// A task ended that runs for as long as the process does, or panicked.
    TaskEnded { tasks: String },
    /// Tasks that did not stop in time at the end.
    NotStopped { tasks: String },
    /// Lines of the log that a target did not take. The log says so itself, in their place.
    LinesDropped { lines: u64 },
}

impl Event {
    pub(super) fn about(&self) -> About {
        match self {
            Self::Rights { why } => About::new(Warn, "rights", why),
            Self::TaskEnded { tasks } => {
                let text = format!(
                    "a part of the agent ended unexpectedly: {tasks}; the process ends, and nothing is removed"
                );
                About::new(Error, "task_ended", text)
            }
            Self::NotStopped { tasks } => {
                let text = format!("parts of the agent did not stop in time: {tasks}");
                About::new(Warn, "tasks_not_stopped", text)
            }
            Self::LinesDropped { lines } => {
                let text = format!("{lines} lines of the log are lost");
                About::new(None, "log_lines_dropped", text)
            }
        }
    }
}
