//! What the kernel would say to a script, without the script being run and without anything changing.
//!
//! The kernel is asked for the revision of every match and target that the script has. Where the question could make
//! it load a module it is not asked, and the answer says so.

use super::commit::Asked;
use super::{Engine, Transport, plan_restore};
use crate::probe::{self, Answer};
use crate::xtables::ext::{Context, Form, Part, Revisions};
use crate::xtables::sets::Cached;
use crate::xtables::text::{Command, Script};
use crate::xtables::{Family, Rule, entry};
use std::cell::RefCell;
use std::collections::BTreeSet;
use weir_netlink::{Error, Result};

/// What a kernel would say to a script.
#[derive(Debug, Default)]
pub struct Checked {
    /// What it lacks, in the order of the lines.
    pub lacking: Vec<Error>,
    /// What could not be found out, and why not.
    pub untold: Vec<String>,
}

impl<T: Transport> Engine<T> {
    /// What [`Engine::restore`] would come to. No table comes into being by it and no module is loaded; tables
    /// that are not there yet are taken for empty.
    ///
    /// # Errors
    /// The tables cannot be read; a command that cannot be done, with its line. What the kernel lacks is no error
    /// but part of the answer.
    pub fn check(
        &mut self,
        script: &Script,
        keep: bool,
        kernel: &probe::Kernel,
    ) -> Result<Checked> {
        plan_restore(script, &self.read()?, keep)?;
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
            for (line, command) in &table.commands {
                let Some(rule) = new_rule(command) else {
                    continue;
                };
                if let Err(mut e) = entry::encode(rule, &cx) {
                    e.object = format!("line {line}: {}", e.object);
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

/// The rule that a command brings into a table.
fn new_rule(command: &Command) -> Option<&Rule> {
    match command {
        Command::Append(_, rule) | Command::Insert(_, _, rule) | Command::Replace(_, _, rule) => {
            Some(rule)
        }
        _ => None,
    }
}

/// Asks the kernel only for what it has at hand; takes for granted what it may have.
struct Careful<'a, T> {
    asked: Asked<'a, T>,
    kernel: &'a probe::Kernel,
    untold: RefCell<BTreeSet<String>>,
}

impl<T: Transport> Revisions for Careful<'_, T> {
    fn has(&self, family: Family, part: Part, form: Form) -> Result<bool> {
        let kind = match part {
            Part::Match => probe::xtables::Kind::Match,
            Part::Target => probe::xtables::Kind::Target,
        };
        let guard = probe::xtables::guard(self.kernel, kind, form.name, family == Family::Ip6);
        if let Some(Answer::Unknown(why)) = guard {
            let what = format!("{family} {part} {}: {why}", form.name);
            self.untold.borrow_mut().insert(what);
            return Ok(true);
        }
        self.asked.has(family, part, form)
    }
}
