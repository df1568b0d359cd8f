//! Executes a parsed text.

use super::{Checked, Command, ParseError, Parser, Statement, check};
use crate::ipset::engine::{Existing, IpsetEngine, Pipeline};
use crate::ipset::model::Entry;
use crate::ipset::raw;
use weir_netlink::{Error, Result, Transport};

/// What a restore did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Restored {
    /// Number of lines with a command.
    pub statements: usize,
    /// Number of entries added and deleted, after expansion of ranges.
    pub entries: usize,
}

fn not_understood(e: &ParseError) -> Error {
    Error::refused("restore", e.place(), e.reason.clone())
}

impl<T: Transport> IpsetEngine<T> {
    /// `ipset restore`: executes a text, after parsing all of it.
    ///
    /// # Errors
    /// After a syntax error, which names line and column, nothing was changed. If the kernel refused a line, the error names it, and the
    /// preceding lines are in force; a part of the line itself may be in force, for example some addresses of a range, or all of it
    /// if only the answer is missing. [`Error::in_force`] is `No` if nothing was changed, and `Unknown` otherwise.
    pub fn restore(&mut self, text: &str, existing: Existing) -> Result<Restored> {
        let known = self.headers(None)?.into_iter().map(|l| l.set.header);
        let checked = check(text, known.collect()).map_err(|e| not_understood(&e))?;
        self.restore_checked(&checked, existing)
    }

    /// As [`Self::restore`], for a text that was checked.
    ///
    /// # Errors
    /// The kernel refused a line, as for [`Self::restore`].
    pub fn restore_checked(&mut self, text: &Checked<'_>, existing: Existing) -> Result<Restored> {
        let mut pipeline = Pipeline::new();
        let entries = self
            .carry_out_all(text, existing, &mut pipeline)
            .map_err(|e| pipeline.error(e))?;
        Ok(Restored {
            statements: text.statements,
            entries,
        })
    }

    /// Executes all lines, and returns the number of entries that were added and deleted.
    fn carry_out_all(
        &mut self,
        checked: &Checked<'_>,
        existing: Existing,
        pipeline: &mut Pipeline<T, Entry>,
    ) -> Result<usize> {
        let mut changed = 0;
        let mut parser = Parser::new(checked.known.iter().cloned());
        for line in checked.text.lines() {
            let Some(s) = parser.line(line).map_err(|e| not_understood(&e))? else {
                continue;
            };
            let mode = match s.existing {
                Existing::Accept => Existing::Accept,
                Existing::Refuse => existing,
            };
            let message = match s.command {
                Command::Delete(..) => raw::IPSET_CMD_DEL,
                _ => raw::IPSET_CMD_ADD,
            };
            match s.command {
                Command::Add(set, entries) | Command::Delete(set, entries) => {
                    changed += entries.len();
                    entries.into_iter().try_for_each(|e| {
                        pipeline.push(self, (message, mode), &set, e, Some(s.line))
                    })?;
                }
                _ => {
                    pipeline.send(self)?;
                    self.carry_out(s, mode)?;
                    pipeline.begin();
                }
            }
        }
        pipeline.send(self)?;
        Ok(changed)
    }

    fn carry_out(&mut self, s: Statement, mode: Existing) -> Result<()> {
        let done = match s.command {
            Command::Create(header) => self.create(&header, mode),
            Command::Flush(Some(name)) => self.flush(&name),
            Command::Flush(None) => self.flush_all(),
            Command::Destroy(Some(name)) => self.destroy(&name),
            Command::Destroy(None) => self.destroy_all(),
            Command::Rename(from, to) => self.rename(&from, &to),
            Command::Swap(a, b) => self.swap(&a, &b),
            Command::Add(..) | Command::Delete(..) => Ok(()),
        };
        done.map_err(|e| Error {
            object: format!("line {}: {}", s.line, e.object),
            ..e
        })
    }
}
