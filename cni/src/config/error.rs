//! The error for everything that somebody wrote.

use std::fmt;

/// Something that was given cannot be used: which input, what in it, why, and what would be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InputError {
    /// Where it stands: a field, an annotation, a file, a path in a manifest.
    pub input: String,
    /// The part that is wrong, when one part is.
    pub value: Option<String>,
    /// Why it cannot be used.
    pub reason: String,
    /// What can be given instead; empty when the reason says it.
    pub accepted: String,
}

impl InputError {
    /// One wrong value.
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

    /// An input that is wrong as a whole.
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
