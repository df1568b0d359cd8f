//! The process itself.

use super::About;
use weir_cni::log::Level::Warn;

/// What happens to the process.
#[derive(Debug)]
pub(crate) enum Event {
    /// A capability is missing, or one that is not needed cannot be given up.
    Rights { why: String },
    /// Lines of the log that a target did not take. The log says so itself, in their place.
    LinesDropped { lines: u64 },
}

impl Event {
    pub(super) fn about(&self) -> About {
        match self {
            Self::Rights { why } => About::new(Warn, "rights", why),
            Self::LinesDropped { lines } => {
                let text = format!("{lines} lines of the log are lost");
                About::new(None, "log_lines_dropped", text)
            }
        }
    }
}
