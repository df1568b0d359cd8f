//! The text of `iptables-restore` as values.
//!
//! [`Script::parse`] parses the whole text before anything is executed; a syntax error has a line and a column.
//! [`plan_restore`](super::plan_restore) turns a script into a change.

mod loadable;
mod names;
mod options;
mod restore;
mod rule;
mod words;

pub(super) use loadable::known;
pub(super) use options::{Complaint, Given, Opt, number};
pub use restore::{Command, Position, Script, ScriptTable};

use std::borrow::Cow;
use std::fmt;

/// The largest number of characters of a word or a rule in a message.
const SHOWN: usize = 200;

/// The most rules that lists of addresses may make: a rule has at least 152 bytes, and a table that weir reads at most 16 MiB.
const MOST_RULES: usize = (16 << 20) / 152;

/// The beginning of a text of untrusted length, for a message.
pub(super) fn shorten(text: &str) -> Cow<'_, str> {
    let end = text.char_indices().nth(SHOWN).map(|(at, _)| at);
    match end.and_then(|end| text.get(..end)) {
        Some(start) => Cow::Owned(format!("{start}..")),
        None => Cow::Borrowed(text),
    }
}

/// A syntax error: its position and reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseError {
    /// Counted from 1.
    pub line: usize,
    /// In characters, counted from 1.
    pub column: usize,
    /// The error, and the remedy.
    pub message: String,
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "line {}, column {}: {}",
            self.line, self.column, self.message
        )
    }
}

impl std::error::Error for ParseError {}

#[cfg(test)]
mod tests;
