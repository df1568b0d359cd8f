//! How grave a line is.

/// Levels, from talkative to silent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Level {
    /// For whoever looks for a defect.
    Debug,
    /// What was decided and done.
    Info,
    /// Something is wrong, the call goes on.
    Warn,
    /// The call fails.
    Error,
    /// The process ends.
    Fatal,
    /// As a configured level: say nothing.
    None,
}

impl Level {
    /// Reads `plugin_log_level`; `None` for any other text.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Some(match text {
            "debug" => Self::Debug,
            "info" => Self::Info,
            "warn" => Self::Warn,
            "error" => Self::Error,
            "fatal" => Self::Fatal,
            "none" => Self::None,
            _ => return None,
        })
    }

    /// The word in a line, lower case.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Debug => "debug",
            Self::Info => "info",
            Self::Warn => "warn",
            Self::Error => "error",
            Self::Fatal => "fatal",
            Self::None => "none",
        }
    }
}
