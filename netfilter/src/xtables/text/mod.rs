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

pub use crate::text::ParseError;
pub(super) use loadable::known;
pub(super) use options::{Complaint, Given, Opt};
pub use restore::{Command, Position, Script, ScriptTable};

use std::borrow::Cow;

/// The largest number of characters of a word or a rule in a message.
const SHOWN: usize = 200;

/// The most rules that lists of addresses make of a line: a rule has at least 152 bytes, and a table that weir reads at most 16 MiB.
const MOST_RULES: usize = (16 << 20) / 152;

/// The most commands of a text: enough to replace every rule of the largest table. Parsing and planning keep more than a kilobyte of each.
const MOST_COMMANDS: usize = 2 * MOST_RULES;

/// The beginning of a text of untrusted length, for a message.
pub(super) fn shorten(text: &str) -> Cow<'_, str> {
    let end = text.char_indices().nth(SHOWN).map(|(at, _)| at);
    match end.and_then(|end| text.get(..end)) {
        Some(start) => Cow::Owned(format!("{start}..")),
        None => Cow::Borrowed(text),
    }
}

#[cfg(test)]
mod tests;
