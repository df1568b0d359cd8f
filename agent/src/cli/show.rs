//! `weir show` and `weir clean`

use super::args::{CleanArgs, ShowArgs, ShowEngine};
use super::failure::Failure;
use super::{output, sidecar, source};
use serde_json::json;
use weir_cni::redirection::{Sandbox, TABLES};
use weir_netfilter::nft::Family;

/// `weir show`: any namespace may be looked at, the host's too.
pub(super) fn show(a: &ShowArgs) -> Result<u8, Failure> {
    let netns = source::netns(&a.target).map_err(Failure::unknown)?;
    let nft = match a.engine {
        ShowEngine::Xtables | ShowEngine::Ipset => None,
        _ => Some(Sandbox::show(&netns).map_err(Failure::unknown)?),
    };
    let legacy = match a.engine {
        ShowEngine::Nft | ShowEngine::Ipset => None,
        _ => Some(Sandbox::show_legacy(&netns).map_err(Failure::unknown)?),
    };
    let with_sets = matches!(a.engine, ShowEngine::Ipset | ShowEngine::All);
    if a.json {
        let sets = with_sets.then(|| Sandbox::show_sets(&netns)).transpose();
        let sets = sets.map_err(Failure::unknown)?;
        let is_ours = |t: &weir_netfilter::nft::Table| {
            t.family == Family::Inet && TABLES.contains(&t.name.as_str())
        };
        return output::json(&json!({
            "netns": netns.id().to_string(),
            "nft": nft.map(|rules| output::ruleset(&rules, is_ours)),
            "xtables": legacy.map(|rules| output::xtables(&rules)),
            "ipset": sets.map(|sets| output::sets(&sets)),
        }));
    }
    let sets = with_sets
        .then(|| Sandbox::show_sets_text(&netns))
        .transpose();
    let sets = sets.map_err(Failure::unknown)?;
    output::stream(|out| {
        nft.iter().try_for_each(|r| write!(out, "{r}"))?;
        legacy.iter().try_for_each(|r| write!(out, "{r}"))?;
        sets.iter().try_for_each(|text| out.write_all(text))
    })
}

/// `weir clean`
pub(super) fn clean(a: &CleanArgs) -> Result<u8, Failure> {
    let sandbox = source::sandbox(&a.target).map_err(Failure::failed)?;
    let changes = sandbox.clean(None).map_err(Failure::failed)?;
    sidecar::report(&changes, &sandbox, None, a.json, false)
}
