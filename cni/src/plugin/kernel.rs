//! The backend that is the kernel.

use super::backend::{Applied, Backend, Wish};
use super::engine::choose_engine;
use super::phases::{Phase, Phases};
use crate::compile::{Compiled, Engine, Rules, compile};
use crate::config::{Intent, NameFiles, SidecarConfig};
use crate::fill::{FillSources, fill};
use crate::log::Level;
use crate::redirection::{self, Change, Sandbox};
use std::time::Instant;

/// Reads and writes the namespace itself.
#[derive(Debug, Clone, Copy, Default)]
pub struct Kernel;

/// A wish with everything that was found out for it.
struct Prepared {
    sandbox: Sandbox,
    config: SidecarConfig,
    engine: Engine,
    compiled: Compiled,
}

impl Backend for Kernel {
    fn apply(&self, wish: &Wish<'_>) -> Result<Applied, String> {
        let prepared = prepare(wish)?;
        if prepared.config.dry_run {
            return dry_run(wish, &prepared);
        }
        let changes = write(&prepared, wish.phases)?;
        if wish.log.hears(Level::Debug) {
            changes
                .iter()
                .for_each(|change| wish.log.debug(&change.to_string()));
        }
        let (engine, netns) = (prepared.engine, prepared.sandbox.netns().id());
        let summary = match changes.len() {
            0 => format!("the redirection by {engine} was in place in {netns}: nothing changed"),
            count => format!("redirected by {engine} in {netns}: {count} changes, verified"),
        };
        Ok(Applied { summary })
    }

    fn verify(&self, wish: &Wish<'_>) -> Result<Vec<String>, String> {
        let prepared = prepare(wish)?;
        let compare = || prepared.sandbox.plan(&prepared.compiled);
        let changes = wish.phases.measure(Phase::Verify, compare).map_err(text)?;
        let line =
            |change: &redirection::Change| format!("{}: {}", change.difference(), change.object());
        Ok(changes.iter().map(line).collect())
    }

    fn probe(&self) -> Result<(), String> {
        redirection::probe().map_err(text)
    }
}

/// Opens the namespace, fills the configuration from it, understands and
/// compiles it. Nothing is changed.
fn prepare(wish: &Wish<'_>) -> Result<Prepared, String> {
    let (facts, decide) = (Phase::Facts, Phase::Decide);
    let open = || {
        let sandbox = Sandbox::open(wish.netns)?;
        let addresses = sandbox.addresses()?;
        Ok::<_, weir_netlink::Error>((sandbox, addresses))
    };
    let (sandbox, addresses) = wish.phases.measure(facts, open).map_err(text)?;
    let understand = || {
        let mut config = wish.config.clone();
        let sources = FillSources::new(wish.lookup, &addresses);
        let warnings = fill(&mut config, &sources).map_err(text)?;
        let intent = Intent::parse(&config, &NameFiles::default()).map_err(text)?;
        for warning in warnings.iter().chain(&intent.warnings) {
            wish.log.warn(warning);
        }
        Ok::<_, String>((config, intent))
    };
    let (config, intent) = wish.phases.measure(decide, understand)?;
    let choose = || choose_engine(config.native_nftables, &sandbox).map_err(text);
    let engine = wish.phases.measure(facts, choose)?;
    let compiled = wish.phases.measure(decide, || compile(&intent, engine));
    Ok(Prepared {
        sandbox,
        config,
        engine,
        compiled,
    })
}

/// Makes the namespace what was prepared, and notes how long it took.
fn write(prepared: &Prepared, phases: &Phases) -> Result<Vec<Change>, String> {
    let begun = Instant::now();
    let done = prepared.sandbox.apply_measured(&prepared.compiled);
    let (changes, cost) = done.map_err(text)?;
    let read_back = cost.read_back.unwrap_or_default();
    phases.add(Phase::Apply, begun.elapsed().saturating_sub(read_back));
    if cost.read_back.is_some() {
        phases.add(Phase::Verify, read_back);
    }
    if let Some(waited) = cost.lock_wait {
        phases.add(Phase::LockWait, waited);
    }
    Ok(changes)
}

/// Writes the rules as text to `DRY_RUN_FILE_PATH` and leaves the kernel alone.
fn dry_run(wish: &Wish<'_>, prepared: &Prepared) -> Result<Applied, String> {
    let path = (wish.lookup)("DRY_RUN_FILE_PATH").unwrap_or_default();
    let mut plan = match &prepared.compiled.rules {
        Rules::Nft(ruleset) => ruleset.to_string(),
        Rules::Xtables(ruleset) => ruleset.to_string(),
    };
    for item in &prepared.compiled.routing {
        plan.push_str(&format!("{item}\n"));
    }
    std::fs::write(&path, plan).map_err(|error| {
        format!("cannot write the plan to {path:?}: {error}; correct or unset DRY_RUN_FILE_PATH")
    })?;
    let summary = format!("DRY_RUN_FILE_PATH is set: nothing changed, the plan is in {path}");
    Ok(Applied { summary })
}

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}
