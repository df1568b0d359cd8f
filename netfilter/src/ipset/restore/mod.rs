//! The text that `ipset save` writes and `ipset restore` reads.
//!
//! ```text
//! Parser::line           one line -> Statement, given the sets of the kernel and of the preceding lines
//! check                  a whole text: an error in any line refuses all
//! IpsetEngine::restore   check, then execute
//! ```
//! The parser supports create, add, del, flush, destroy, rename and swap with all their spellings, `-exist`, `COMMIT`, the older names of
//! types (`iphash`) and the older options of sets (`from`, `to`, `network`, `-6`). It expands ranges to single entries or networks, as the
//! kernel would store them. It refuses names of hosts and services, because it looks nothing up.

mod command;
mod entry;
mod options;
mod range;
mod run;
mod token;

pub use crate::text::ParseError;
pub(super) use options::number;
pub(super) use range::{address, bounds, port_range};
pub use run::Restored;
pub(super) use token::Token;

use super::engine::Existing;
use super::model::{Entry, Header};
use crate::text;
use std::collections::HashMap;

/// The command of a line.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Command {
    /// `create`
    Create(Box<Header>),
    /// `add`; a range is expanded to several entries.
    Add(String, Vec<Entry>),
    /// `del`
    Delete(String, Vec<Entry>),
    /// `flush`: one set, or all sets without a name.
    Flush(Option<String>),
    /// `destroy`: one set, or all sets without a name.
    Destroy(Option<String>),
    /// `rename`
    Rename(String, String),
    /// `swap`
    Swap(String, String),
}

/// A line with its command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Statement {
    /// Counted from 1.
    pub line: usize,
    /// Whether the line has `-exist`.
    pub existing: Existing,
    /// The command.
    pub command: Command,
}

/// The column of an error, and the reason.
pub(super) type Wrong = (usize, String);

pub(super) fn wrong<T>(token: &Token<'_>, reason: impl Into<String>) -> Result<T, Wrong> {
    Err((token.column, reason.into()))
}

/// Parses lines. The notation of an entry depends on its set, which exists in the kernel or was created by an earlier line.
#[derive(Clone, Debug, Default)]
pub struct Parser {
    sets: HashMap<String, Header>,
    line: usize,
}

impl Parser {
    /// A parser that knows the existing sets.
    #[must_use]
    pub fn new(known: impl IntoIterator<Item = Header>) -> Self {
        Self {
            sets: known.into_iter().map(|h| (h.name.clone(), h)).collect(),
            line: 0,
        }
    }

    /// Parses the next line, without its terminator; `None` if it has no command.
    ///
    /// # Errors
    /// A syntax error, or a value that the kernel would refuse.
    pub fn line(&mut self, text: &str) -> Result<Option<Statement>, ParseError> {
        self.line += 1;
        let line = self.line;
        self.statement(text).map_err(|(column, reason)| ParseError {
            line,
            column,
            reason,
        })
    }

    fn statement(&mut self, text: &str) -> Result<Option<Statement>, Wrong> {
        if text.trim_start().starts_with('#') {
            return Ok(None);
        }
        if let Some(column) = text::zero(text) {
            return Err((column, text::ZERO.into()));
        }
        let mut tokens = token::split(text)?;
        let exist = |t: &Token<'_>| t.is_bare && matches!(&*t.text, "-exist" | "-!" | "--exist");
        let before = tokens.len();
        tokens.retain(|t| !exist(t));
        let existing = if tokens.len() < before {
            Existing::Accept
        } else {
            Existing::Refuse
        };
        let Some((verb, rest)) = tokens.split_first() else {
            return Ok(None);
        };
        if verb.text == "COMMIT" && rest.is_empty() {
            return Ok(None);
        }
        let command = self.command(verb, rest)?;
        self.remember(&command);
        Ok(Some(Statement {
            line: self.line,
            existing,
            command,
        }))
    }

    /// Updates the known sets as this command does.
    fn remember(&mut self, command: &Command) {
        match command {
            Command::Create(header) => {
                self.sets.insert(header.name.clone(), Header::clone(header));
            }
            Command::Destroy(None) => self.sets.clear(),
            Command::Destroy(Some(name)) => {
                self.sets.remove(name);
            }
            Command::Rename(from, to) => {
                if let Some(header) = self.sets.remove(from) {
                    self.call(to, header);
                }
            }
            Command::Swap(a, b) => {
                // A swap of a set with itself changes nothing.
                if let (Some(x), Some(y)) = (self.sets.get(a).cloned(), self.sets.get(b).cloned()) {
                    self.call(a, y);
                    self.call(b, x);
                }
            }
            Command::Add(..) | Command::Delete(..) | Command::Flush(_) => {}
        }
    }

    /// A known set has this name now.
    fn call(&mut self, name: &str, mut header: Header) {
        name.clone_into(&mut header.name);
        self.sets.insert(name.to_owned(), header);
    }
}

/// A text without syntax errors, and the sets that it was parsed for. It is parsed again when it is executed: the statements of a large
/// text would occupy many times its memory.
#[derive(Clone, Debug)]
pub struct Checked<'a> {
    text: &'a str,
    known: Vec<Header>,
    statements: usize,
    created: Vec<(usize, Header)>,
}

impl Checked<'_> {
    /// The number of lines with a command.
    #[must_use]
    pub fn statements(&self) -> usize {
        self.statements
    }

    /// The sets that it creates, with their lines.
    #[must_use]
    pub fn created(&self) -> &[(usize, Header)] {
        &self.created
    }
}

/// The most entries of a text beyond one for each line: a short text of ranges would take hours.
const MOST_FURTHER: usize = 1 << 24;

/// Parses a whole text, given the existing sets, for [`IpsetEngine::restore_checked`](super::IpsetEngine::restore_checked).
///
/// # Errors
/// The first line with an error.
pub fn check(text: &str, known: Vec<Header>) -> Result<Checked<'_>, ParseError> {
    let mut parser = Parser::new(known.iter().cloned());
    let (mut statements, mut created, mut further) = (0, Vec::new(), 0);
    for line in text.lines() {
        let Some(statement) = parser.line(line)? else {
            continue;
        };
        statements += 1;
        if let Command::Add(_, entries) | Command::Delete(_, entries) = &statement.command {
            further += entries.len().saturating_sub(1);
        }
        if further > MOST_FURTHER {
            let why = format!(
                "the ranges up to here stand for more than {MOST_FURTHER} entries; divide the text, or use networks"
            );
            return Err(ParseError {
                line: statement.line,
                column: 1,
                reason: why,
            });
        }
        if let Command::Create(header) = statement.command {
            created.push((statement.line, *header));
        }
    }
    Ok(Checked {
        text,
        known,
        statements,
        created,
    })
}

#[cfg(test)]
mod tests;
