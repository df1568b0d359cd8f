//! `weir plan|apply|verify sidecar`

use super::args::{ApplyArgs, PlanArgs, VerifyArgs};
use super::failure::{Failure, code};
use super::output;
use super::source::{Addresses, Wish, engine, engine_for, sandbox, wish};
use serde_json::json;
use std::net::IpAddr;
use weir_cni::compile::{Compiled, Engine, compile};
use weir_cni::config::{Intent, NameFiles, SidecarConfig};
use weir_cni::redirection::{Change, Sandbox};

/// `weir plan sidecar`
pub(super) fn plan(a: &PlanArgs) -> Result<u8, Failure> {
    let engine = engine(a.wish.engine);
    let addresses: Vec<IpAddr> = a.address.iter().map(ipnet::IpNet::addr).collect();
    match wish(&a.wish.source, engine, &Addresses::Given(&addresses))? {
        Wish::Nothing(reason) => nothing(a.wish.json, &reason),
        Wish::Redirect { compiled, .. } if a.wish.json => {
            output::json(&output::compiled(&compiled, engine))
        }
        Wish::Redirect { compiled, .. } => output::text(&compiled.to_string()),
    }
}

fn nothing(json: bool, reason: &str) -> Result<u8, Failure> {
    if json {
        return output::json(&json!({ "redirected": false, "reason": reason }));
    }
    eprintln!("weir: {reason}");
    Ok(code::SUCCESS)
}

/// `weir apply sidecar`
pub(super) fn apply(a: &ApplyArgs) -> Result<u8, Failure> {
    let sandbox = sandbox(&a.target).map_err(Failure::failed)?;
    // One thread for all that has to be done inside.
    sandbox
        .netns()
        .run(|| apply_in(a, &sandbox))
        .map_err(Failure::failed)?
}

fn apply_in(a: &ApplyArgs, sandbox: &Sandbox) -> Result<u8, Failure> {
    let engine = engine_for(a.wish.engine, sandbox).map_err(Failure::failed)?;
    let (config, compiled) = match wish(&a.wish.source, engine, &Addresses::Of(sandbox))? {
        Wish::Nothing(reason) => return nothing(a.wish.json, &reason),
        Wish::Redirect { config, compiled } => (config, compiled),
    };
    let dry_run = a.dry_run || config.dry_run;
    let changes = if config.skip_rule_apply {
        Ok(Vec::new())
    } else if config.cleanup_only {
        let of = as_legacy(&config)?;
        if dry_run {
            sandbox.plan_clean(Some(&of))
        } else {
            sandbox.clean(Some(&of))
        }
    } else if dry_run {
        sandbox
            .check(&compiled)
            .and_then(|()| sandbox.plan(&compiled))
    } else {
        sandbox.apply(&compiled)
    };
    let changes = changes.map_err(Failure::failed)?;
    report(&changes, sandbox, Some(engine), a.wish.json, dry_run)
}

/// What the installer of upstream makes of a configuration, and what it takes away again by the same one.
fn as_legacy(config: &SidecarConfig) -> Result<Compiled, Failure> {
    let intent = Intent::parse(config, &NameFiles::default()).map_err(Failure::usage)?;
    Ok(compile(&intent, Engine::Xtables))
}

/// One line for each change.
pub(super) fn report(
    changes: &[Change],
    sandbox: &Sandbox,
    engine: Option<Engine>,
    json: bool,
    dry_run: bool,
) -> Result<u8, Failure> {
    if json {
        let changes: Vec<String> = changes.iter().map(ToString::to_string).collect();
        return output::json(&json!({
            "netns": sandbox.netns().id().to_string(),
            "engine": engine.map(|e| e.to_string()),
            "dryRun": dry_run,
            "changed": !changes.is_empty() && !dry_run,
            "changes": changes,
        }));
    }
    if changes.is_empty() {
        return output::text("unchanged\n");
    }
    let verb = if dry_run { "would " } else { "" };
    let mut text = String::with_capacity(changes.len() * 128);
    for change in changes {
        text += verb;
        output::push_line(&mut text, change);
    }
    output::text(&text)
}

/// `weir verify sidecar`
pub(super) fn verify(a: &VerifyArgs) -> Result<u8, Failure> {
    let sandbox = sandbox(&a.target).map_err(Failure::unknown)?;
    let engine = engine_for(a.wish.engine, &sandbox).map_err(Failure::unknown)?;
    let compiled = match wish(&a.wish.source, engine, &Addresses::Of(&sandbox))? {
        Wish::Nothing(reason) => return nothing(a.wish.json, &reason),
        Wish::Redirect { compiled, .. } => compiled,
    };
    let changes = sandbox.plan(&compiled).map_err(Failure::unknown)?;
    let netns = sandbox.netns().id();
    if a.wish.json {
        let differences: Vec<_> = changes
            .iter()
            .map(|c| json!({ "difference": c.difference().to_string(), "object": c.object() }))
            .collect();
        output::json(&json!({
            "netns": netns.to_string(),
            "engine": engine.to_string(),
            "verified": changes.is_empty(),
            "differences": differences,
        }))?;
    } else if changes.is_empty() {
        output::text(&format!(
            "verified: {netns} holds the redirection and nothing else of ours\n"
        ))?;
    } else {
        output::text(&output::differences(&changes, &netns.to_string()))?;
    }
    Ok(if changes.is_empty() {
        code::SUCCESS
    } else {
        code::FAILED
    })
}
