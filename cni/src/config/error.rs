//! The error for input from people and programs.

use std::fmt;

/// An input that cannot be used: its name, the invalid part, the reason, and the accepted values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InputError {
    /// The input: a field, an annotation, a file, a path in a manifest.
    pub input: String,
    /// The invalid part; `None` when the whole input is invalid.
    pub value: Option<String>,
    /// The reason why it cannot be used.
    pub reason: String,
    /// The accepted values; empty when the reason names them.
    pub accepted: String,
}

impl InputError {
    /// One invalid value.
    #[must_use]
    pub fn value(
        input: impl Into<String>,
        value: impl Into<String>,
        reason: impl Into<String>,
        accepted: impl Into<String>,
    ) -> Self {
        Self {
            input: input.into(),
            value: Some(value.into()),
            reason: reason.into(),
            accepted: accepted.into(),
        }
    }

    /// An input that is invalid as a whole.
    #[must_use]
    pub fn whole(
        input: impl Into<String>,
        reason: impl Into<String>,
        accepted: impl Into<String>,
    ) -> Self {
        Self {
            input: input.into(),
            value: None,
            reason: reason.into(),
            accepted: accepted.into(),
        }
    }
}

impl fmt::Display for InputError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.input)?;
        if let Some(value) = &self.value {
            write!(f, "{value:?} ")?;
        }
        f.write_str(&self.reason)?;
        if self.accepted.is_empty() {
            Ok(())
        } else {
            write!(f, "; accepted: {}", self.accepted)
        }
    }
}

impl std::error::Error for InputError {}
