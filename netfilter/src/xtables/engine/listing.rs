//! The text of every table, written in pieces.

use super::read::{MAX_READ_SIZE, entries_in};
use super::{XtEngine, XtTransport};
use crate::xtables::XtFamily;
use crate::xtables::ext::{All, Context};
use crate::xtables::ruleset::family_line;
use crate::xtables::sets::{Cached, Sets};
use crate::xtables::table::{self, Info, Pieces};
use std::{fmt, io};
use weir_netlink::Result;

/// Every table of a network namespace as the kernel returned it, to be written as the text of a
/// [`Ruleset`](crate::xtables::Ruleset).
pub struct XtListing {
    tables: Vec<(XtFamily, String, Info, Vec<u8>)>,
    sets: Box<dyn Sets + Send>,
}

impl fmt::Debug for XtListing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = self.tables.iter().map(|(family, name, ..)| (family, name));
        f.debug_list().entries(names).finish()
    }
}

impl<T: XtTransport> XtEngine<T> {
    /// Reads every existing table, as [`XtEngine::ruleset`], to be written as text. Only one rule at a time is decoded: for
    /// many rules it takes two thirds of the time, and little more memory than the kernel's answers.
    ///
    /// # Errors
    /// As [`XtEngine::read`].
    pub fn listing(mut self) -> Result<XtListing> {
        let mut tables = Vec::new();
        for (family, name) in self.tables()? {
            let (info, value) = self.entries(family, &name, MAX_READ_SIZE)?;
            tables.push((family, name, info, value));
        }
        let sets = self.sets;
        Ok(XtListing { tables, sets })
    }
}

impl XtListing {
    /// Passes the text to `take` in pieces of whole lines, until it returns an error.
    ///
    /// # Errors
    /// The error of `take`; if a table cannot be decoded, one that contains a [`weir_netlink::Error`].
    pub fn write(&self, mut take: impl FnMut(&str) -> io::Result<()>) -> io::Result<()> {
        let (mut out, mut last) = (Pieces::new(&mut take), None);
        for (family, name, info, value) in &self.tables {
            if last.replace(*family) != Some(*family) {
                out.push(format_args!("{}", family_line(*family)))?;
            }
            let cached = Cached::new(self.sets.as_ref());
            let cx = Context {
                family: *family,
                sets: &cached,
                revisions: &All,
            };
            table::text(name, info, entries_in(value), &cx, &mut out)?;
        }
        out.end()
    }
}
