//! `weir plan|apply|verify sidecar`

use super::args::SidecarArgs;
use super::failure::{Failure, code};
use super::output::{self, line};
use super::source::{Addresses, Wish, engine, sandbox, wish};
use serde_json::json;
use std::net::IpAddr;
use weir_cni::compile::Engine;
use weir_cni::redirection::{Change, Sandbox};

/// `weir plan sidecar`
pub(super) fn plan(a: &SidecarArgs) -> Result<u8, Failure> {
    if a.target.is_some() || a.dry_run {
        return Err(Failure::usage(
            "plan asks no kernel: --netns, --pid and --dry-run belong to apply",
        ));
    }
    let engine = engine(a.engine);
    let addresses: Vec<IpAddr> = a.address.iter().map(ipnet::IpNet::addr).collect();
    match wish(&a.source, engine, &Addresses::Given(&addresses))? {
        Wish::Nothing(reason) => nothing(a, &reason),
        Wish::Redirect { compiled, .. } if a.json => {
            output::json(&output::compiled(&compiled, engine))
        }
        Wish::Redirect { compiled, .. } => output::text(&compiled.to_string()),
    }
}

fn nothing(a: &SidecarArgs, reason: &str) -> Result<u8, Failure> {
    if a.json {
        return output::json(&json!({ "redirected": false, "reason": reason }));
    }
    eprintln!("weir: {reason}");
    Ok(code::SUCCESS)
}

fn target(a: &SidecarArgs) -> Result<Sandbox, Failure> {
    if !a.address.is_empty() {
        return Err(Failure::usage(
            "--address belongs to plan: the namespace has its own addresses",
        ));
    }
    match &a.target {
        Some(target) => sandbox(target),
        None => Err(Failure::usage("one of --netns and --pid is needed")),
    }
}

fn refuse_xtables(engine: Engine) -> Result<(), Failure> {
    match engine {
        Engine::Nft => Ok(()),
        Engine::Xtables => Err(Failure::unknown(
            "the engine xtables is not built yet; `weir plan --engine xtables` prints its rules, \
             --engine nft applies",
        )),
    }
}

/// `weir apply sidecar`
pub(super) fn apply(a: &SidecarArgs) -> Result<u8, Failure> {
    let engine = engine(a.engine);
    refuse_xtables(engine)?;
    let sandbox = target(a).map_err(|f| Failure {
        code: f.code.min(code::USAGE),
        ..f
    })?;
    let (config, compiled) = match wish(&a.source, engine, &Addresses::Of(&sandbox))? {
        Wish::Nothing(reason) => return nothing(a, &reason),
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
    report(&changes, &sandbox, a.json, dry_run)
}

/// One line for each change.
pub(super) fn report(
    changes: &[Change],
    sandbox: &Sandbox,
    json: bool,
    dry_run: bool,
) -> Result<u8, Failure> {
    if json {
        let changes: Vec<String> = changes.iter().map(ToString::to_string).collect();
        return output::json(&json!({
            "netns": sandbox.netns().id().to_string(),
            "engine": Engine::Nft.to_string(),
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
pub(super) fn verify(a: &SidecarArgs) -> Result<u8, Failure> {
    let engine = engine(a.engine);
    refuse_xtables(engine)?;
    if a.dry_run {
        return Err(Failure::usage(
            "verify changes nothing: --dry-run belongs to apply",
        ));
    }
    let sandbox = target(a)?;
    let compiled = match wish(&a.source, engine, &Addresses::Of(&sandbox))? {
        Wish::Nothing(reason) => return nothing(a, &reason),
        Wish::Redirect { compiled, .. } => compiled,
    };
    let changes = sandbox.plan(&compiled).map_err(Failure::unknown)?;
    let netns = sandbox.netns().id();
    if a.json {
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
