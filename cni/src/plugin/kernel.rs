//! The backend that is the kernel.

use super::backend::{Applied, Backend, Wish};
use super::engine::choose_engine;
use crate::compile::{Compiled, Engine, Rules, compile};
use crate::config::{Intent, NameFiles, SidecarConfig};
use crate::fill::{FillSources, fill};
use crate::redirection::{self, Sandbox};

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
        let changes = prepared.sandbox.apply(&prepared.compiled).map_err(text)?;
        for change in &changes {
            wish.log.debug(&change.to_string());
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
        let changes = prepared.sandbox.plan(&prepared.compiled).map_err(text)?;
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
    let sandbox = Sandbox::open(wish.netns).map_err(text)?;
    let addresses = sandbox.addresses().map_err(text)?;
    let mut config = wish.config.clone();
    let warnings = fill(&mut config, &FillSources::new(wish.lookup, &addresses)).map_err(text)?;
    let intent = Intent::parse(&config, &NameFiles::default()).map_err(text)?;
    for warning in warnings.iter().chain(&intent.warnings) {
        wish.log.warn(warning);
    }
    let engine = choose_engine(config.native_nftables, &sandbox).map_err(text)?;
    let compiled = compile(&intent, engine);
    Ok(Prepared {
        sandbox,
        config,
        engine,
        compiled,
    })
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
