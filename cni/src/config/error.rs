//! The error for invalid input from users and programs.

use std::fmt;

/// Maximum number of characters that an error quotes of a value: the beginning suffices to recognize it.
const SHOWN: usize = 80;
/// Maximum number of characters of a parser's message, which may quote a value in the middle.
const SAID: usize = 400;

/// Quotes a value; of a long value only the beginning, with its length.
#[must_use]
pub fn quoted(value: &str) -> String {
    let shown = beginning(value, SHOWN);
    match shown.len() == value.len() {
        true => format!("{value:?}"),
        false => format!("{shown:?}... ({} bytes)", value.len()),
    }
}

/// Formats a parser's message; truncates it if it quotes a long value.
#[must_use]
pub fn said(reason: &impl fmt::Display) -> String {
    let text = reason.to_string();
    let shown = beginning(&text, SAID);
    match shown.len() == text.len() {
        true => text,
        false => format!("{shown}... ({} bytes)", text.len()),
    }
}

/// Returns at most this many characters from the beginning of a text.
pub(crate) fn beginning(text: &str, characters: usize) -> &str {
    let end = text.char_indices().nth(characters).map(|(end, _)| end);
    end.and_then(|end| text.get(..end)).unwrap_or(text)
}

/// An input that cannot be used: its name, the invalid part, the reason, and the accepted values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InputError {
    /// The input: a field, an annotation, a file, a path in a manifest.
    pub input: String,
    /// The invalid part; `None` if the whole input is invalid.
    pub value: Option<String>,
    /// The reason why it cannot be used.
    pub reason: String,
    /// The accepted values; empty if the reason names them.
    pub accepted: String,
}

impl InputError {
    /// Creates the error for one invalid value.
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

    /// Creates the error for an input that is invalid as a whole.
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
            write!(f, "{} ", quoted(value))?;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_value_is_shown_by_its_beginning() {
        let long = "\u{e9}".repeat(50_000);
        let error = InputError::value("x", &long, "is wrong", "less").to_string();
        let shown = "\u{e9}".repeat(80);
        assert_eq!(
            error,
            format!("x: \"{shown}\"... (100000 bytes) is wrong; accepted: less")
        );
        assert_eq!(quoted(&shown), format!("\"{shown}\""));
        assert!(said(&long).ends_with("... (100000 bytes)") && said(&long).len() < 1000);
        assert_eq!(said(&"short"), "short");
    }
}
