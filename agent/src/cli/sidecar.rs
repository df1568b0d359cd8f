//! `weir plan|apply|verify sidecar`

use super::args::{ApplyArgs, PlanArgs, VerifyArgs};
use super::failure::{Failure, code};
use super::output::{self, line};
use super::source::{Addresses, Wish, engine, engine_for, sandbox, wish};
use serde_json::json;
use std::net::IpAddr;
use weir_cni::compile::Engine;
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
        if dry_run {
            sandbox.plan_clean()
        } else {
            sandbox.clean()
        }
    } else if dry_run {
        sandbox.plan(&compiled)
    } else {
        sandbox.apply(&compiled)
    };
    let changes = changes.map_err(Failure::failed)?;
    report(&changes, sandbox, Some(engine), a.wish.json, dry_run)
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
    let text: String = changes
        .iter()
        .map(|c| format!("{verb}{}\n", line(&c.to_string())))
        .collect();
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
