//! The process itself.

use super::About;
use weir_cni::log::Level::Warn;

/// What happens to the process.
#[derive(Debug)]
pub(crate) enum Event {
    /// A capability is missing, or one that is not needed cannot be given up.
    Rights { why: String },
}

impl Event {
    pub(super) fn about(&self) -> About {
        match self {
            Self::Rights { why } => About::new(Warn, "rights", why),
        }
    }
}
