//! Log levels.

/// Log levels, from the most to the least verbose.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Level {
    /// Details for debugging.
    Debug,
    /// Decisions and changes.
    Info,
    /// Something is wrong; the call continues.
    Warn,
    /// The call fails.
    Error,
    /// The process ends.
    Fatal,
    /// Only as a configured level: log nothing.
    None,
}

impl Level {
    /// Parses `plugin_log_level`; `None` for any other text.
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

    /// Returns the level's name in a line, in lower case.
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
