//! The error object of the CNI specification.

use std::fmt;
use std::io::Write;

use serde::{Deserialize, Serialize};

/// Error codes: 1-99 belong to the specification, 100 and up to the plugin.
///
/// Reference: CNI specification 1.1.0, section 5, "Error".
pub mod code {
    /// The configuration's version is not supported, or too old for the command.
    pub const INCOMPATIBLE_VERSION: u32 = 1;
    /// The container is unknown or does not exist.
    pub const UNKNOWN_CONTAINER: u32 = 3;
    /// A required environment variable is missing or invalid.
    pub const INVALID_ENVIRONMENT: u32 = 4;
    /// Reading or writing failed.
    pub const IO_FAILURE: u32 = 5;
    /// The network configuration cannot be decoded.
    pub const DECODING_FAILURE: u32 = 6;
    /// The network configuration is invalid.
    pub const INVALID_NETWORK_CONFIG: u32 = 7;
    /// `CNI_NETNS` is the namespace the plugin itself runs in.
    pub const INVALID_NETNS: u32 = 8;
    /// STATUS: the plugin cannot serve ADD at the moment.
    pub const PLUGIN_NOT_AVAILABLE: u32 = 50;
    /// CHECK of this plugin: the redirection in the namespace is missing or
    /// differs from what the pod requests. `details` lists the differences.
    pub const REDIRECTION_DIFFERS: u32 = 100;
    /// Any other error, including crashes.
    pub const INTERNAL: u32 = 999;
}

/// An error object: what a plugin prints to stdout when it fails.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CniError {
    /// See [`code`].
    pub code: u32,
    /// One line of readable text; container runtimes show it in the pod's events.
    pub msg: String,
    /// More text, omitted if empty.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub details: String,
}

impl CniError {
    /// Creates an error without details.
    #[must_use]
    pub fn new(code: u32, msg: impl Into<String>) -> Self {
        Self {
            code,
            msg: msg.into(),
            details: String::new(),
        }
    }

    /// Creates an error with code 999 and the chain of causes as text.
    #[must_use]
    pub fn internal(msg: impl fmt::Display) -> Self {
        Self::new(code::INTERNAL, msg.to_string())
    }

    /// Adds details to the error.
    #[must_use]
    pub fn with_details(mut self, details: impl Into<String>) -> Self {
        self.details = details.into();
        self
    }

    /// Writes the object as the reference library does: indented by four
    /// spaces, no newline at the end.
    ///
    /// # Errors
    /// The error of `out`.
    pub fn write(&self, out: &mut dyn Write) -> std::io::Result<()> {
        let value = serde_json::to_value(self).map_err(std::io::Error::other)?;
        out.write_all(super::print(&value).as_bytes())?;
        out.flush()
    }
}

impl fmt::Display for CniError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (code {}", self.msg, self.code)?;
        if !self.details.is_empty() {
            write!(f, "; {}", self.details)?;
        }
        f.write_str(")")
    }
}

impl std::error::Error for CniError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn four_spaces_and_no_newline() {
        let mut out = Vec::new();
        CniError::new(7, "missing network name")
            .write(&mut out)
            .unwrap();
        assert_eq!(
            String::from_utf8(out).unwrap(),
            "{\n    \"code\": 7,\n    \"msg\": \"missing network name\"\n}"
        );
    }

    #[test]
    fn details_are_written_when_there_are_any() {
        let mut out = Vec::new();
        CniError::new(100, "a")
            .with_details("b")
            .write(&mut out)
            .unwrap();
        assert_eq!(
            String::from_utf8(out).unwrap(),
            "{\n    \"code\": 100,\n    \"details\": \"b\",\n    \"msg\": \"a\"\n}"
        );
    }
}
