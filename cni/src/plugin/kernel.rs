//! The backend that writes to the kernel.

use super::backend::{Backend, DesiredRedirection, Deviation};
use super::phases::Phase;
use crate::compile::{Engine, compile};
use crate::config::{Intent, NameFiles};
use crate::fill::NodeEnvironment;
use crate::log::Level;
use crate::redirection::{self, Change, Sandbox, Visit};
use std::path::Path;
use std::time::{Duration, Instant};
use weir_netlink::NetnsId;

/// Reads and writes the namespace itself.
#[derive(Debug, Clone, Copy, Default)]
pub struct KernelBackend;

impl Backend for KernelBackend {
    fn apply(&self, desired: &DesiredRedirection<'_>) -> Result<String, String> {
        if let Some(file) = desired.dry_run_file {
            return dry_run(file, desired);
        }
        let engine = desired.engine;
        let written = visit(desired, |visit, intent| write(visit, intent, engine))?;
        Ok(written.report(desired))
    }

    fn verify(&self, desired: &DesiredRedirection<'_>) -> Result<Vec<Deviation>, String> {
        let engine = desired.engine;
        let compared = visit(desired, |visit, intent| compare(visit, intent, engine))?;
        Ok(compared.report(desired))
    }

    fn probe(&self) -> Result<(), String> {
        redirection::probe().map_err(text)
    }
}

/// The changes, the namespace, and the time that writing took.
struct Written {
    done: redirection::AppliedRedirection,
    netns: NetnsId,
    took: Duration,
}

fn write(visit: &Visit<'_>, intent: &Intent, engine: Option<Engine>) -> Result<Written, String> {
    let begun = Instant::now();
    Ok(Written {
        done: visit.apply_intent(intent, engine).map_err(text)?,
        netns: visit.sandbox().netns().id(),
        took: begun.elapsed(),
    })
}

impl Written {
    /// Reports the changes to the log and the phases.
    fn report(&self, desired: &DesiredRedirection<'_>) -> String {
        let (cost, phases) = (self.done.cost, desired.phases);
        let read_back = cost.read_back.unwrap_or_default();
        phases.add(Phase::Apply, self.took.saturating_sub(read_back));
        if cost.read_back.is_some() {
            phases.add(Phase::Verify, read_back);
        }
        if let Some(waited) = cost.lock_wait {
            phases.add(Phase::LockWait, waited);
        }
        let changes = &self.done.changes;
        if desired.log.hears(Level::Debug) {
            changes
                .iter()
                .for_each(|change| desired.log.debug(&change.to_string()));
        }
        for kept in &self.done.kept {
            desired
                .log
                .warn(&format!("{}; CHECK reports it", kept.object()));
        }
        let (engine, netns) = (self.done.engine, self.netns);
        match changes.len() {
            0 => format!("the redirection by {engine} was in place in {netns}: nothing changed"),
            count => format!("redirected by {engine} in {netns}: {count} changes, verified"),
        }
    }
}

/// The differences, and the time that choosing the engine and comparing took.
struct Compared {
    changes: Vec<Change>,
    choice: Duration,
    comparison: Duration,
}

fn compare(visit: &Visit<'_>, intent: &Intent, engine: Option<Engine>) -> Result<Compared, String> {
    let begun = Instant::now();
    let to_try = || visit.engine_to_try().map(|(engine, _)| engine);
    let engine = engine.map_or_else(to_try, Ok);
    let engine = engine.map_err(text)?;
    let chosen = Instant::now();
    Ok(Compared {
        changes: visit.verify(&compile(intent, engine)).map_err(text)?,
        choice: chosen - begun,
        comparison: chosen.elapsed(),
    })
}

impl Compared {
    /// Adds the times to the phases and converts the differences.
    fn report(&self, desired: &DesiredRedirection<'_>) -> Vec<Deviation> {
        desired.phases.add(Phase::Facts, self.choice);
        desired.phases.add(Phase::Verify, self.comparison);
        let deviation = |change: &Change| Deviation {
            difference: change.difference(),
            object: change.object(),
        };
        self.changes.iter().map(deviation).collect()
    }
}

/// Enters the namespace once, derives the intent from its addresses, and calls `work`.
fn visit<T: Send>(
    desired: &DesiredRedirection<'_>,
    work: impl FnOnce(&Visit<'_>, &Intent) -> Result<T, String> + Send,
) -> Result<T, String> {
    let begun = Instant::now();
    let sandbox = Sandbox::open(desired.netns).map_err(text)?;
    let group = NameFiles::default().group;
    let environment = NodeEnvironment::read(desired.lookup, &group).map_err(text)?;
    let redirect = desired.redirect;
    let inside = |visit: &Visit<'_>| {
        let entered = Instant::now();
        let intent = redirect.intent(&environment, &visit.addresses());
        let intent = intent.map_err(text)?;
        let decide = entered.elapsed();
        let done = work(visit, &intent)?;
        Ok::<_, String>((entered, decide, done))
    };
    let (entered, decide, done) = sandbox.visit(inside).map_err(text)??;
    desired.phases.add(Phase::Facts, entered - begun);
    desired.phases.add(Phase::Decide, decide);
    Ok(done)
}

/// Writes the rules as text to `DRY_RUN_FILE_PATH` and nothing to the kernel.
fn dry_run(file: &Path, desired: &DesiredRedirection<'_>) -> Result<String, String> {
    let named = desired.engine;
    let compiled = |visit: &Visit<'_>, intent: &Intent| {
        let choose = || visit.choose_engine(intent);
        let engine = named.map_or_else(choose, Ok).map_err(text)?;
        Ok(compile(intent, engine).to_string())
    };
    let plan = visit(desired, compiled)?;
    let shown = file.display();
    std::fs::write(file, plan).map_err(|error| {
        format!("cannot write the plan to {shown}: {error}; correct or unset DRY_RUN_FILE_PATH")
    })?;
    Ok(format!(
        "DRY_RUN_FILE_PATH is set: nothing changed, the plan is in {shown}"
    ))
}

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}
