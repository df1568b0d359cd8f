//! The backend that is the kernel.

use super::backend::{Applied, Backend, Desired, Deviation};
use super::phases::{Phase, Phases};
use crate::compile::{Compiled, Engine, compile};
use crate::config::{Intent, NameFiles};
use crate::fill::Environment;
use crate::log::Level;
use crate::redirection::{self, Applied as Written, Sandbox};
use std::path::Path;
use std::time::Instant;

/// Reads and writes the namespace itself.
#[derive(Debug, Clone, Copy, Default)]
pub struct Kernel;

/// What is desired, with everything that was found out for it.
struct Prepared {
    sandbox: Sandbox,
    intent: Intent,
    /// The engine that is named, if any.
    engine: Option<Engine>,
}

impl Prepared {
    /// Its rules, by the engine that is named, else by the one that `choose` gives.
    fn compiled(
        &self,
        choose: impl FnOnce() -> weir_netlink::Result<Engine>,
    ) -> Result<Compiled, String> {
        let engine = self.engine.map_or_else(choose, Ok).map_err(text)?;
        Ok(compile(&self.intent, engine))
    }
}

impl Backend for Kernel {
    fn apply(&self, desired: &Desired<'_>) -> Result<Applied, String> {
        let prepared = prepare(desired)?;
        if let Some(file) = desired.dry_run_file {
            return dry_run(file, &prepared);
        }
        let Written {
            engine, changes, ..
        } = write(&prepared, desired.phases)?;
        if desired.log.hears(Level::Debug) {
            changes
                .iter()
                .for_each(|change| desired.log.debug(&change.to_string()));
        }
        let netns = prepared.sandbox.netns().id();
        let summary = match changes.len() {
            0 => format!("the redirection by {engine} was in place in {netns}: nothing changed"),
            count => format!("redirected by {engine} in {netns}: {count} changes, verified"),
        };
        Ok(Applied { summary })
    }

    fn verify(&self, desired: &Desired<'_>) -> Result<Vec<Deviation>, String> {
        let prepared = prepare(desired)?;
        let choose = || prepared.compiled(|| prepared.sandbox.engine_to_try());
        let compiled = desired.phases.measure(Phase::Facts, choose)?;
        let compare = || prepared.sandbox.verify(&compiled);
        let changes = desired
            .phases
            .measure(Phase::Verify, compare)
            .map_err(text)?;
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

/// Opens the namespace and understands what is desired in it. Nothing is changed.
fn prepare(desired: &Desired<'_>) -> Result<Prepared, String> {
    let (facts, decide) = (Phase::Facts, Phase::Decide);
    let open = || {
        let sandbox = Sandbox::open(desired.netns)?;
        let addresses = sandbox.addresses()?;
        Ok::<_, weir_netlink::Error>((sandbox, addresses))
    };
    let (sandbox, addresses) = desired.phases.measure(facts, open).map_err(text)?;
    let understand = || {
        let environment = Environment::read(desired.lookup, &NameFiles::default().group)?;
        desired.redirect.intent(&environment, &addresses)
    };
    let intent = desired.phases.measure(decide, understand).map_err(text)?;
    for warning in &intent.warnings {
        desired.log.warn(warning);
    }
    Ok(Prepared {
        sandbox,
        intent,
        engine: desired.engine,
    })
}

/// Makes the namespace what was prepared, and notes how long it took.
fn write(prepared: &Prepared, phases: &Phases) -> Result<Written, String> {
    let begun = Instant::now();
    let (sandbox, engine) = (&prepared.sandbox, prepared.engine);
    let written = sandbox
        .apply_intent(&prepared.intent, engine)
        .map_err(text)?;
    let cost = written.cost;
    let read_back = cost.read_back.unwrap_or_default();
    phases.add(Phase::Apply, begun.elapsed().saturating_sub(read_back));
    if cost.read_back.is_some() {
        phases.add(Phase::Verify, read_back);
    }
    if let Some(waited) = cost.lock_wait {
        phases.add(Phase::LockWait, waited);
    }
    Ok(written)
}

/// Writes the rules as text to `DRY_RUN_FILE_PATH` and leaves the kernel alone.
fn dry_run(file: &Path, prepared: &Prepared) -> Result<Applied, String> {
    let choose = || prepared.sandbox.choose_engine(&prepared.intent);
    let plan = prepared.compiled(choose)?.to_string();
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
