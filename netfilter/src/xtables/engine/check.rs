//! A dry run of a script against the kernel's features, which changes nothing.
//!
//! Asks the kernel for the revision of every match and target in the script. A request that could make it load a
//! module is not sent, and the answer says so.

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
    /// What the kernel lacks, in the order of the lines.
    pub lacking: Vec<Error>,
    /// What could not be determined, and why.
    pub untold: Vec<String>,
}

impl<T: XtTransport> XtEngine<T> {
    /// Checks whether [`XtEngine::restore`] would succeed. Creates no table and loads no module; missing tables are
    /// taken as empty.
    ///
    /// # Errors
    /// The tables cannot be read; a command that cannot be executed, with its line. A feature that the kernel lacks
    /// is not an error but part of the answer.
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

/// Asks the kernel only for extensions that are loaded; assumes that it has those that it could load.
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
