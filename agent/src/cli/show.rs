//! `weir show` and `weir clean`

use super::args::{CleanArgs, ShowArgs, ShowEngine};
use super::failure::Failure;
use super::{output, sidecar, source};
use serde_json::json;
use weir_cni::redirection::{Sandbox, TABLES};
use weir_netfilter::nft::Family;

/// `weir show`: any namespace may be looked at, the host's too.
pub(super) fn show(a: &ShowArgs) -> Result<u8, Failure> {
    if a.engine == ShowEngine::Xtables {
        return Err(Failure::unknown(
            "legacy tables cannot be read yet; use --engine nft",
        ));
    }
    let netns = source::netns(&a.target).map_err(Failure::unknown)?;
    let ruleset = Sandbox::show(&netns).map_err(Failure::unknown)?;
    if a.json {
        let tables = output::ruleset(&ruleset, |t| {
            t.family == Family::Inet && TABLES.contains(&t.name.as_str())
        });
        return output::json(&json!({ "netns": netns.id().to_string(), "nft": tables }));
    }
    output::text(&ruleset.to_string())
}

/// `weir clean`
pub(super) fn clean(a: &CleanArgs) -> Result<u8, Failure> {
    let sandbox = source::sandbox(&a.target).map_err(Failure::failed)?;
    let changes = sandbox.clean().map_err(Failure::failed)?;
    sidecar::report(&changes, &sandbox, a.json, false)
}
