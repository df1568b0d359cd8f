//! `weir plan|apply|verify sidecar`

use super::args::{ApplyArgs, DesiredArgs, VerifyArgs, address};
use super::failure::{Failure, code, warn};
use super::output;
use super::report::{differences, nothing, report, verified};
use super::source::{Addresses, Declined, Desired, Redirect, Text, desired};
use super::target::sandbox;
use clap::Args;
use serde_json::json;
use std::net::IpAddr;
use weir_cni::compile::{Engine, compile};
use weir_cni::config::IdRange;
use weir_cni::log::count;
use weir_cni::redirection::{Change, Desired as Intended, Visit};
use weir_live::Owner;
use weir_live::probe::Probe;
use weir_netlink::Netns;
use weir_rules::strays;

#[derive(Debug, Args)]
pub(super) struct PlanArgs {
    #[command(flatten)]
    pub(super) desired: DesiredArgs,
    /// An address of the pod, with or without a prefix length; may be repeated [default: those in the pod's status]
    #[arg(long, value_name = "ADDRESS", conflicts_with = "config", value_parser = address)]
    pub(super) address: Vec<IpAddr>,
}

/// `weir plan sidecar`
pub(super) fn plan(a: &PlanArgs) -> Result<u8, Failure> {
    let addresses = Addresses::Given(&a.address);
    let redirect = match desired(&Text::of(&a.desired.source)?, a.desired.engine, &addresses)? {
        Desired::Nothing(declined) => return nothing(a.desired.json, &declined.reason),
        Desired::Redirect(redirect) => redirect,
    };
    if redirect.config.cleanup_only {
        eprintln!("weir: warning: cleanup_only: `weir apply` removes these rules");
    }
    let (compiled, engine) = redirect.compiled(&addresses)?;
    match a.desired.json {
        true => output::json(&output::compiled(&compiled, engine)),
        false => output::text(&compiled.to_string()),
    }
}

/// Lists the objects of a redirection in the namespace of a pod that asks for none. Empty if the pod's init container makes its own.
fn left_over(declined: &Declined, visit: &Visit<'_>) -> weir_netlink::Result<Vec<Change>> {
    match declined.has_own {
        true => Ok(Vec::new()),
        false => Ok(strays(visit)?.unwrap_or_default().changes),
    }
}

/// `weir apply` for a pod that asks for no redirection. It removes nothing.
fn left_alone(declined: &Declined, visit: &Visit<'_>, json: bool) -> Result<u8, Failure> {
    let left = left_over(declined, visit).map_err(Failure::failed)?;
    if left.is_empty() {
        return nothing(json, &declined.reason);
    }
    let netns = visit.sandbox().netns().id();
    let (reason, objects) = (&declined.reason, count(left.len(), "object"));
    let warning = format!(
        "{reason}, and {netns} holds a redirection ({objects}), which stays in force; `weir clean` removes it"
    );
    warn(&warning);
    match json {
        true => {
            output::json(&json!({ "redirected": true, "reason": reason, "warnings": [warning] }))
        }
        false => Ok(code::SUCCESS),
    }
}

/// `weir apply sidecar`
pub(super) fn apply(a: &ApplyArgs) -> Result<u8, Failure> {
    let sandbox = sandbox(&a.target, |e| Failure::failed(e))?;
    let given = Text::of(&a.desired.source)?;
    sandbox
        .visit(|visit| apply_in(a, &given, visit))
        .map_err(Failure::failed)?
}

fn apply_in(a: &ApplyArgs, given: &Text, visit: &Visit<'_>) -> Result<u8, Failure> {
    let failed = |e: &weir_netlink::Error| Failure::failed(e);
    let addresses = Addresses::Of { visit, failed };
    let sandbox = visit.sandbox();
    let redirect = match desired(given, a.desired.engine, &addresses)? {
        Desired::Nothing(declined) => return left_alone(&declined, visit, a.desired.json),
        Desired::Redirect(redirect) => redirect,
    };
    let Redirect { config, intent, .. } = &*redirect;
    let dry_run = a.dry_run || config.dry_run;
    let probe = match config.run_validation && !dry_run && !config.cleanup_only {
        true => Some(probe(&redirect, sandbox.netns())?),
        false => None,
    };
    let (changes, engine, warnings) = if config.skip_rule_apply {
        (Vec::new(), redirect.engine(&addresses)?, Vec::new())
    } else if config.cleanup_only {
        let engine = redirect.engine(&addresses)?;
        let of = compile(intent, Engine::Xtables);
        let changes = match dry_run {
            true => visit.plan_clean(Some(&of)).map_err(Failure::failed)?,
            false => visit.clean(Some(&of)).map_err(Failure::failed)?,
        };
        (changes, engine, Vec::new())
    } else {
        written(visit, &*redirect, redirect.named, dry_run)?
    };
    let by = (Some(engine), warnings);
    let reported = report(&changes, sandbox, by, a.desired.json, dry_run);
    let Some(probe) = probe else {
        return reported;
    };
    probe.run().map_err(|why| Failure {
        code: code::PROBE,
        message: format!(
            "the probe of run_validation failed: {why}; the applied rules stay. See `weir verify`, and who \
             else listens at the proxy's ports"
        ),
    })?;
    reported
}

/// Applies a redirection, or with `dry_run` only plans it. The returned texts are warnings: problems that remain and that
/// `weir verify` reports, too.
pub(super) fn written<D: Intended>(
    visit: &Visit<'_>,
    redirect: &D,
    named: Option<Engine>,
    dry_run: bool,
) -> Result<(Vec<Change>, Engine, Vec<String>), Failure> {
    let (changes, engine, compiled, kept) = if dry_run {
        let engine = named.map_or_else(|| visit.choose_engine(redirect), Ok);
        let engine = engine.map_err(Failure::failed)?;
        let compiled = redirect.compile_for(named, engine);
        let changes = visit.dry_run(&compiled).map_err(Failure::failed)?;
        (changes, engine, compiled, Vec::new())
    } else {
        let applied = visit.apply_intent(redirect, named);
        let applied = applied.map_err(Failure::failed)?;
        let compiled = redirect.compile_for(named, applied.engine);
        (applied.changes, applied.engine, compiled, applied.kept)
    };
    let is_kept = |kept: &Change| format!("{}; `weir verify` reports it", kept.object());
    let mut warnings: Vec<String> = kept.iter().map(is_kept).collect();
    let found = visit.hindrances(&compiled);
    warnings.extend(found.unwrap_or_else(|why| vec![why]));
    Ok((changes, engine, warnings))
}

/// Prepares the probe of `run_validation`.
fn probe(redirect: &Redirect, netns: &Netns) -> Result<Probe, Failure> {
    let Redirect { config, intent, .. } = redirect;
    let first = |ids: &[IdRange]| ids.first().map(|range| *range.0.start());
    let (uid, gid) = (first(&intent.proxy_uids), first(&intent.proxy_gids));
    let (Some(uid), Some(gid)) = (uid.or(gid), gid.or(uid)) else {
        return Err(Failure::usage(
            "run_validation: only traffic of the proxy's user or group can prove the redirection, and \
             proxy_uid and proxy_gid are empty; give one of them",
        ));
    };
    // Nothing is applied yet.
    let owner = Owner { uid, gid }.inside(netns);
    Ok(Probe {
        owner: owner.map_err(|e| Failure::usage(format!("run_validation: {e}")))?,
        ipv6: config.host_ip.is_some_and(|ip| ip.is_ipv6()),
        listen: [intent.proxy_port, intent.inbound_capture_port],
        port: config.iptables_probe_port,
        limit: config.probe_timeout,
    })
}

/// `weir verify sidecar`
pub(super) fn verify(a: &VerifyArgs) -> Result<u8, Failure> {
    let failed = |e: &weir_netlink::Error| Failure::unknown(e);
    let sandbox = sandbox(&a.target, failed)?;
    let given = Text::of(&a.desired.source)?;
    sandbox
        .visit(|visit| verify_in(a, &given, visit))
        .map_err(Failure::unknown)?
}

fn verify_in(a: &VerifyArgs, given: &Text, visit: &Visit<'_>) -> Result<u8, Failure> {
    let failed = |e: &weir_netlink::Error| Failure::unknown(e);
    let addresses = Addresses::Of { visit, failed };
    let redirect = match desired(given, a.desired.engine, &addresses)? {
        Desired::Nothing(declined) => {
            let left = left_over(&declined, visit).map_err(Failure::unknown)?;
            return unexpected(&left, visit, &declined.reason, a.desired.json);
        }
        Desired::Redirect(redirect) => redirect,
    };
    if redirect.config.cleanup_only {
        let of = compile(&redirect.intent, Engine::Xtables);
        let left = visit.plan_clean(Some(&of)).map_err(Failure::unknown)?;
        let reason = "cleanup_only: the configuration asks for no redirection";
        return unexpected(&left, visit, reason, a.desired.json);
    }
    let (compiled, engine) = redirect.compiled(&addresses)?;
    let found = visit.verify_either(&compiled, || redirect.other(engine));
    let found = found.map_err(Failure::unknown)?;
    verified(found, (None, None), visit, engine, a.desired.json)
}

/// Prints the result of `verify` if no redirection is desired.
fn unexpected(left: &[Change], visit: &Visit<'_>, reason: &str, json: bool) -> Result<u8, Failure> {
    if left.is_empty() {
        return nothing(json, reason);
    }
    let netns = visit.sandbox().netns().id().to_string();
    match json {
        true => output::json(&json!({
            "netns": netns,
            "redirected": true,
            "reason": reason,
            "verified": false,
            "differences": differences(left, &[]),
        }))?,
        false => {
            eprintln!("weir: {reason}; `weir clean` removes the redirection that is in force");
            output::text(&output::differences(left, &[], &netns))?
        }
    };
    Ok(code::FAILED)
}
