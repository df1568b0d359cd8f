//! The backend that is the kernel.

use super::backend::{Applied, Backend, Desired, Deviation};
use super::phases::{Phase, Phases};
use crate::compile::compile;
use crate::config::{Intent, NameFiles};
use crate::fill::Environment;
use crate::log::Level;
use crate::redirection::{self, Applied as Written, Sandbox, Visit};
use std::path::Path;
use std::time::{Duration, Instant};

/// Reads and writes the namespace itself.
#[derive(Debug, Clone, Copy, Default)]
pub struct Kernel;

impl Backend for Kernel {
    fn apply(&self, desired: &Desired<'_>) -> Result<Applied, String> {
        if let Some(file) = desired.dry_run_file {
            return dry_run(file, desired);
        }
        let engine = desired.engine;
        let write = |visit: &Visit<'_>, intent: &Intent| {
            let begun = Instant::now();
            let written = visit.apply_intent(intent, engine).map_err(text)?;
            Ok((written, begun.elapsed()))
        };
        let (sandbox, (written, took)) = visit(desired, write)?;
        note(&written, took, desired.phases);
        let Written {
            engine, changes, ..
        } = written;
        if desired.log.hears(Level::Debug) {
            changes
                .iter()
                .for_each(|change| desired.log.debug(&change.to_string()));
        }
        let netns = sandbox.netns().id();
        let summary = match changes.len() {
            0 => format!("the redirection by {engine} was in place in {netns}: nothing changed"),
            count => format!("redirected by {engine} in {netns}: {count} changes, verified"),
        };
        Ok(Applied { summary })
    }

    fn verify(&self, desired: &Desired<'_>) -> Result<Vec<Deviation>, String> {
        let named = desired.engine;
        let compare = |visit: &Visit<'_>, intent: &Intent| {
            let begun = Instant::now();
            let choose = || visit.engine_to_try();
            let engine = named.map_or_else(choose, Ok).map_err(text)?;
            let chosen = Instant::now();
            let changes = visit.verify(&compile(intent, engine)).map_err(text)?;
            Ok((changes, chosen - begun, chosen.elapsed()))
        };
        let (_, (changes, facts, verify)) = visit(desired, compare)?;
        desired.phases.add(Phase::Facts, facts);
        desired.phases.add(Phase::Verify, verify);
        let deviation = |change: &redirection::Change| Deviation {
            difference: change.difference(),
            object: change.object(),
        };
        Ok(changes.iter().map(deviation).collect())
    }

    fn probe(&self) -> Result<(), String> {
        redirection::probe().map_err(text)
    }
}

/// Enters the namespace once, understands what is desired in it, and does the work.
fn visit<T: Send>(
    desired: &Desired<'_>,
    work: impl FnOnce(&Visit<'_>, &Intent) -> Result<T, String> + Send,
) -> Result<(Sandbox, T), String> {
    let begun = Instant::now();
    let sandbox = Sandbox::open(desired.netns).map_err(text)?;
    let group = NameFiles::default().group;
    let environment = Environment::read(desired.lookup, &group).map_err(text)?;
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
    Ok((sandbox, done))
}

/// How long the parts of what was written took.
fn note(written: &Written, took: Duration, phases: &Phases) {
    let cost = written.cost;
    let read_back = cost.read_back.unwrap_or_default();
    phases.add(Phase::Apply, took.saturating_sub(read_back));
    if cost.read_back.is_some() {
        phases.add(Phase::Verify, read_back);
    }
    if let Some(waited) = cost.lock_wait {
        phases.add(Phase::LockWait, waited);
    }
}

/// Writes the rules as text to `DRY_RUN_FILE_PATH` and leaves the kernel alone.
fn dry_run(file: &Path, desired: &Desired<'_>) -> Result<Applied, String> {
    let named = desired.engine;
    let compiled = |visit: &Visit<'_>, intent: &Intent| {
        let choose = || visit.choose_engine(intent);
        let engine = named.map_or_else(choose, Ok).map_err(text)?;
        Ok(compile(intent, engine).to_string())
    };
    let (_, plan) = visit(desired, compiled)?;
    let shown = file.display();
    std::fs::write(file, plan).map_err(|error| {
        format!("cannot write the plan to {shown}: {error}; correct or unset DRY_RUN_FILE_PATH")
    })?;
    let summary = format!("DRY_RUN_FILE_PATH is set: nothing changed, the plan is in {shown}");
    Ok(Applied { summary })
}

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}
