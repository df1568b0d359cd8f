//! A dry run of a script against the kernel's features, which changes nothing.
//!
//! The revision of every match and target in the script is requested from the kernel. A request that could load a module is
//! not sent, and the result names it.

use super::commit::Asked;
use super::plan::Change;
use super::read::readable;
use super::{XtEngine, XtTransport, plan_restore};
use crate::features::extensions::{self, XtObject};
use crate::features::{Answer, RunningKernel};
use crate::xtables::ext::{All, Context, Form, Part, Revisions};
use crate::xtables::sets::{Cached, Interned};
use crate::xtables::text::{Command, Script};
use crate::xtables::{Rule, XtFamily, entry};
use std::cell::RefCell;
use std::collections::BTreeSet;
use weir_netlink::{Error, Result};

/// The result of [`XtEngine::check`].
#[derive(Debug, Default)]
pub struct Checked {
    /// The features that the kernel lacks, in the order of the lines.
    pub lacking: Vec<Error>,
    /// The features that could not be determined, with the reason.
    pub untold: Vec<String>,
}

impl<T: XtTransport> XtEngine<T> {
    /// Checks whether [`XtEngine::restore`] would succeed. Creates no table and loads no module; missing tables are
    /// taken as empty.
    ///
    /// # Errors
    /// The tables cannot be read; a command that cannot be executed, with its line. A feature that the kernel lacks is not
    /// an error but part of the result.
    pub fn check(
        &mut self,
        script: &Script,
        keep: bool,
        kernel: &RunningKernel,
    ) -> Result<Checked> {
        let planned = plan_restore(script, &self.read()?, keep)?;
        for Change { new, .. } in &planned.changes {
            let cx = Context {
                family: script.family,
                sets: &Interned::default(),
                revisions: &All,
            };
            readable(new, new.encode(&cx)?.bytes.len())?;
        }
        let sets = Cached::new(self.sets.as_ref());
        let careful = Careful {
            asked: Asked {
                transport: RefCell::new(&mut self.transport),
                known: RefCell::new(&mut self.known),
            },
            kernel,
            untold: RefCell::default(),
        };
        let cx = Context {
            family: script.family,
            sets: &sets,
            revisions: &careful,
        };
        let mut lacking = Vec::new();
        for table in &script.tables {
            for (place, command) in &table.commands {
                let Some(rule) = new_rule(command) else {
                    continue;
                };
                if let Err(mut e) = entry::encode(rule, &cx) {
                    e.object = format!("line {}: {}", place.line, e.object);
                    lacking.push(e);
                }
            }
        }
        Ok(Checked {
            lacking,
            untold: careful.untold.into_inner().into_iter().collect(),
        })
    }
}

/// The rule that a command adds to a table.
pub(super) fn new_rule(command: &Command) -> Option<&Rule> {
    match command {
        Command::Append(_, rule) | Command::Insert(_, _, rule) | Command::Replace(_, _, rule) => {
            Some(rule)
        }
        _ => None,
    }
}

/// Requests only the revisions of extensions that are loaded; assumes that the kernel has those that it could load.
struct Careful<'a, T> {
    asked: Asked<'a, T>,
    kernel: &'a RunningKernel,
    untold: RefCell<BTreeSet<String>>,
}

impl<T: XtTransport> Revisions for Careful<'_, T> {
    fn has(&self, family: XtFamily, part: Part, form: Form) -> Result<bool> {
        let guard = extensions::guard(
            self.kernel,
            XtObject::from(part),
            form.name,
            family == XtFamily::Ip6,
        );
        if let Some(Answer::Unknown(why)) = guard {
            let what = format!("{family} {part} {}: {why}", form.name);
            self.untold.borrow_mut().insert(what);
            return Ok(true);
        }
        self.asked.has(family, part, form)
    }
}
