//! What `weir apply`, `weir verify` and `weir clean` print.

use super::failure::{Failure, code, warn};
use super::output;
use serde_json::json;
use std::fmt::Display;
use weir_cni::compile::Engine;
use weir_cni::log::count;
use weir_cni::redirection::{Change, Difference, Sandbox, Visit};

/// Argument of [`report`] for a removal: no engine, no warnings.
pub(super) const NO_ENGINE: (Option<Engine>, Vec<String>) = (None, Vec::new());

pub(super) fn nothing(json: bool, reason: &str) -> Result<u8, Failure> {
    if json {
        return output::json(&json!({ "redirected": false, "reason": reason }));
    }
    eprintln!("weir: {reason}");
    Ok(code::SUCCESS)
}

/// Prints one line per change, and warnings to stderr.
pub(super) fn report(
    changes: &[impl Display],
    sandbox: &Sandbox,
    (engine, warnings): (Option<impl Display>, Vec<String>),
    json: bool,
    dry_run: bool,
) -> Result<u8, Failure> {
    for warning in &warnings {
        warn(warning);
    }
    let changed = !changes.is_empty() && !dry_run;
    let text = if json {
        let changes: Vec<String> = changes.iter().map(ToString::to_string).collect();
        output::json_text(&json!({
            "netns": sandbox.netns().id().to_string(),
            "engine": engine.map(|e| e.to_string()),
            "dryRun": dry_run,
            "changed": changed,
            "changes": changes,
            "warnings": warnings,
        }))
    } else if changes.is_empty() {
        "unchanged\n".to_owned()
    } else {
        let verb = if dry_run { "would " } else { "" };
        let mut text = String::with_capacity(changes.len() * 128);
        for change in changes {
            text += verb;
            output::push_line(&mut text, change);
        }
        text
    };
    match changed {
        true => output::report(&text, "the change is made and in force"),
        false => output::text(&text),
    }
}

/// Changes of eBPF and of rules, as text.
pub(super) fn lines(programs: &[impl Display], rules: &[impl Display]) -> Vec<String> {
    let programs = programs.iter().map(ToString::to_string);
    programs
        .chain(rules.iter().map(ToString::to_string))
        .collect()
}

/// Differences as JSON.
pub(super) fn differences(changes: &[Change], programs: &[String]) -> Vec<serde_json::Value> {
    let one = |difference: Difference, object: &str| json!({ "difference": difference.to_string(), "object": object });
    let changes = changes.iter().map(|c| one(c.difference(), &c.object()));
    let programs = programs.iter().map(|p| one(Difference::Unexpected, p));
    changes.chain(programs).collect()
}

/// Prints the result of `verify` and returns the exit code. Hindrances are not drift: `apply` does not change them. `programs`: what
/// weir has of eBPF beside the rules, if that was looked for, or the warning that this is unknown, which was printed.
pub(super) fn verified(
    found: Vec<Change>,
    (programs, unknown): (Option<&[String]>, Option<&str>),
    visit: &Visit<'_>,
    engine: Engine,
    json: bool,
) -> Result<u8, Failure> {
    let is_complete = programs.is_some();
    let programs = programs.unwrap_or_default();
    let is_hindrance = |change: &Change| matches!(change, Change::Hindrance(_));
    let (hindrances, changes): (Vec<Change>, Vec<Change>) =
        found.into_iter().partition(is_hindrance);
    let mut warnings: Vec<String> = hindrances.iter().map(Change::object).collect();
    let is_in_sync = changes.is_empty() && programs.is_empty();
    let is_good = is_in_sync && warnings.is_empty();
    let netns = visit.sandbox().netns().id();
    let is_lacking =
        // A blocked object is not simply missing: print the line that names the foreign object.
        |c: &Change| c.difference() == Difference::Missing && !matches!(c, Change::Overtake(..) | Change::Blocked(..));
    if json {
        warnings.extend(unknown.map(str::to_owned));
        output::json(&json!({
            "netns": netns.to_string(),
            "engine": engine.to_string(),
            "verified": is_good,
            "differences": differences(&changes, programs),
            "warnings": warnings,
        }))?;
    } else if is_in_sync && !is_good {
        output::text(&conflict(netns))?;
    } else if is_in_sync {
        let alone = match unknown {
            Some(_) => ", and it is unknown whether eBPF programs capture as well",
            None if is_complete => " and no other object of ambient mode",
            None => "",
        };
        output::text(&format!("verified: {netns} holds the redirection{alone}\n"))?;
    } else if programs.is_empty()
        && changes.iter().all(is_lacking)
        && visit.plan_clean(None).map_err(Failure::unknown)?.is_empty()
    {
        output::text(&format!(
            "drift: {netns} holds no part of the redirection ({} {} missing); `weir apply` adds it\n",
            count(changes.len(), "object"),
            if changes.len() == 1 { "is" } else { "are" }
        ))?;
    } else {
        output::text(&output::differences(&changes, programs, &netns.to_string()))?;
    }
    if !json {
        output::text(&warned(&warnings))?;
    }
    Ok(match is_good {
        true => code::SUCCESS,
        false => code::FAILED,
    })
}

/// The redirection is complete, but foreign rules keep packets from it.
pub(super) fn conflict(netns: impl Display) -> String {
    format!("conflict: {netns} holds the redirection, and foreign rules keep packets from it\n")
}

/// One line per warning.
pub(super) fn warned(warnings: &[String]) -> String {
    let mut text = String::new();
    for warning in warnings {
        output::push_line(&mut text, &format!("warning: {warning}"));
    }
    text
}
