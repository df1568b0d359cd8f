//! The backend that is the kernel.

use std::net::IpAddr;

use weir_netlink::netns::Netns;
use weir_netlink::route::Routing;

use super::backend::{Applied, Backend, Wish};
use super::engine::choose_engine;
use super::{routing, rules};
use crate::compile::{Compiled, Engine, compile};
use crate::config::{Intent, NameFiles, SidecarConfig};
use crate::fill::{FillSources, fill};

/// Reads and writes the namespace itself.
#[derive(Debug, Clone, Copy, Default)]
pub struct Kernel;

/// A wish with everything that was found out for it.
struct Prepared {
    netns: Netns,
    routing: Routing,
    config: SidecarConfig,
    engine: Engine,
    compiled: Compiled,
}

impl Backend for Kernel {
    /// Rules first, in one transaction; then addresses, policy rules and routes.
    /// When one of those fails the rules are there: the runtime removes the
    /// namespace after a failed ADD, and an ADD that is tried again finds them.
    fn apply(&self, wish: &Wish<'_>) -> Result<Applied, String> {
        let prepared = prepare(wish)?;
        if prepared.config.dry_run {
            return dry_run(wish, &prepared);
        }
        let Prepared {
            netns,
            routing,
            engine,
            compiled,
            ..
        } = prepared;
        let written = rules::apply(&netns, &compiled.rules)?;
        let added = routing::add(&routing, &compiled.routing).map_err(text)?;
        Ok(Applied {
            summary: format!(
                "redirected by {engine} in {}: {written}; {added} addresses, policy rules and \
                 routes added",
                netns.id()
            ),
        })
    }

    fn verify(&self, wish: &Wish<'_>) -> Result<Vec<String>, String> {
        let Prepared {
            netns,
            routing,
            compiled,
            ..
        } = prepare(wish)?;
        let mut differences = rules::verify(&netns, &compiled.rules)?;
        differences.extend(routing::missing(&routing, &compiled.routing).map_err(text)?);
        Ok(differences)
    }

    fn probe(&self) -> Result<(), String> {
        rules::probe()
    }
}

/// Opens the namespace, fills the configuration from it, understands and
/// compiles it. Nothing is changed.
fn prepare(wish: &Wish<'_>) -> Result<Prepared, String> {
    let netns = Netns::open(wish.netns).map_err(text)?;
    netns.refuse_host().map_err(text)?;
    let routing = Routing::open_in(&netns).map_err(text)?;
    let found: Vec<IpAddr> = routing
        .addresses()
        .map_err(text)?
        .iter()
        .map(|address| address.net.addr())
        .collect();
    let mut config = wish.config.clone();
    let warnings = fill(&mut config, &FillSources::new(wish.lookup, &found)).map_err(text)?;
    let intent = Intent::parse(&config, &NameFiles::default()).map_err(text)?;
    for warning in warnings.iter().chain(&intent.warnings) {
        wish.log.warn(warning);
    }
    let (engine, note) = choose_engine(config.native_nftables);
    if let Some(note) = note {
        wish.log.info(note);
    }
    let compiled = compile(&intent, engine);
    Ok(Prepared {
        netns,
        routing,
        config,
        engine,
        compiled,
    })
}

/// Writes the rules as text to `DRY_RUN_FILE_PATH` and leaves the kernel alone.
fn dry_run(wish: &Wish<'_>, prepared: &Prepared) -> Result<Applied, String> {
    let path = (wish.lookup)("DRY_RUN_FILE_PATH").unwrap_or_default();
    let mut plan = rules::print(&prepared.compiled.rules);
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
