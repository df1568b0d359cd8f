//! The text of `iptables-restore` as values.
//!
//! [`Script::parse`] reads all of it before anything is done: what it cannot read is an error with its line
//! and column. [`plan_restore`](super::plan_restore) turns a script into a change.

mod names;
mod options;
mod restore;
mod rule;
mod words;

pub(super) use options::{Complaint, Given, Opt};
pub use restore::{Command, Script, ScriptTable};
pub(super) use rule::known_targets;

use std::fmt;

/// Where a text cannot be read, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseError {
    /// Counted from 1.
    pub line: usize,
    /// In characters, counted from 1.
    pub column: usize,
    /// What is wrong there, and what to write instead.
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
