//! A list of our own: a copy of the primary configuration with our entry, for owned mode.

use super::desired::Desired;
use super::entry::is_ours;
use super::json::Json;
use super::listing::Listing;
use std::path::{Path, PathBuf};

/// A copy that an agent left which was in owned mode, where this one is not: it comes first for runtimes, and nobody
/// would tell it of what changes in the primary configuration. That one is there, and all of its plugins are in the copy;
/// any other file of that name is another component's.
pub(super) fn left<'a>(desired: &Desired, listing: &'a Listing) -> Option<&'a Path> {
    let name = desired.owned_name.as_str();
    let is_named = desired.conf_name.as_deref() == Some(name);
    if desired.owned.is_some() || !desired.chained || is_named {
        return None;
    }
    let path = desired.net_dir.join(name);
    let (path, copy) = listing.valid.iter().find(|(p, _)| *p == path)?;
    let plugins = copy.get("plugins").and_then(Json::as_array)?;
    let (_, primary) = listing.first(Some(name))?;
    let is_copy = plugins.iter().any(is_ours) && types_occur(primary, plugins).is_ok();
    is_copy.then_some(path)
}

/// The configuration that would be in force without a copy of it.
pub(super) fn primary<'a>(desired: &Desired, listing: &'a Listing) -> Option<&'a (PathBuf, Json)> {
    let is_copy = desired.owned.is_some() || left(desired, listing).is_some();
    listing.first(is_copy.then_some(desired.owned_name.as_str()))
}

/// Whether every plugin of the primary configuration is among these; the error is one that is not.
pub(super) fn types_occur(primary: &Json, plugins: &[Json]) -> Result<(), String> {
    let kind = |p: &Json| {
        p.get("type")
            .and_then(Json::as_str)
            .unwrap_or_default()
            .to_owned()
    };
    let wanted: Vec<String> = match primary.get("plugins").and_then(Json::as_array) {
        Some(list) => list.iter().map(kind).collect(),
        None => vec![kind(primary)],
    };
    match wanted
        .into_iter()
        .find(|t| !plugins.iter().any(|p| kind(p) == *t))
    {
        Some(missing) => Err(missing),
        None => Ok(()),
    }
}
