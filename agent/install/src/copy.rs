//! A list of our own: a copy of the primary configuration with our entry, for owned mode.

use super::config;
use super::desired::Desired;
use super::entry::is_ours;
use super::json::Json;
use super::listing::{self, Listing};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

/// The name of our own list where none is given, which is also the one of Istio's agent on every node: it does not read
/// the name that its chart sets.
pub(super) const DEFAULT: &str = "02-istio-cni.conflist";

/// Copies that agents left which had another setting: they come first for runtimes, and nobody would tell them of what
/// changes in the primary configuration. Each has our entry, and beside it is the one that it is of: another file, whose
/// plugins differ by additions alone. Under any other name nothing tells a copy from the network's own file that an agent
/// extended.
pub(super) fn left<'a>(desired: &Desired, listing: &'a Listing) -> Vec<&'a Path> {
    let is_known = |path: &Path| [desired.owned_name.as_str(), DEFAULT].contains(&name_of(path));
    let primaries = || {
        let others = listing.valid.iter().filter(|(path, _)| !is_known(path));
        others.filter(|(_, json)| !listing::is_only_ours(json))
    };
    let is_left = |(path, copy): &&(PathBuf, Json)| {
        let entries = copy.get("plugins").and_then(Json::as_array);
        let Some(entries) = entries.filter(|e| e.iter().any(is_ours)) else {
            return false;
        };
        let is_of = |primary: &Json| {
            types_occur(primary, entries).is_ok() || {
                let others = entries.iter().filter(|p| !is_ours(p)).cloned().collect();
                let others = Json::Object(vec![("plugins".to_owned(), Json::Array(others))]);
                types_occur(&others, plugins(primary)).is_ok()
            }
        };
        is_known(path) && primaries().any(|(_, primary)| is_of(primary))
    };
    let in_use = |path: &Path| {
        let named = desired.conf_name.as_deref();
        let named = named.map(|name| config::list_name(Path::new(name)));
        desired.owned.as_deref() == Some(name_of(path))
            || named.is_some_and(|named| path.file_name() == Some(named.as_os_str()))
    };
    let others = listing.valid.iter();
    let others = others.filter(|(p, json)| !in_use(p) && !listing::is_only_ours(json));
    others.filter(is_left).map(|(p, _)| p.as_path()).collect()
}

fn name_of(path: &Path) -> &str {
    path.file_name().and_then(OsStr::to_str).unwrap_or_default()
}

/// The plugins of a list, or the single one.
fn plugins(json: &Json) -> &[Json] {
    let plugins = json.get("plugins").and_then(Json::as_array);
    plugins.unwrap_or(std::slice::from_ref(json))
}

/// Whether an entry of ours is in it, or all of it.
pub(super) fn has_ours(json: &Json) -> bool {
    plugins(json).iter().any(is_ours)
}

/// The configuration that would be in force without copies of it: the first that gives pods a network, which ours alone
/// does not.
pub(super) fn primary<'a>(desired: &Desired, listing: &'a Listing) -> Option<&'a (PathBuf, Json)> {
    let left = left(desired, listing);
    let is_copy =
        |path: &Path| left.contains(&path) || desired.owned.as_deref() == Some(name_of(path));
    let mut others = listing.valid.iter().filter(|(path, _)| !is_copy(path));
    others.find(|(_, json)| !listing::is_only_ours(json))
}

/// Whether every plugin of the primary configuration is among these; the error is one that is not.
pub(super) fn types_occur(primary: &Json, plugins: &[Json]) -> Result<(), String> {
    let kind = |p: &Json| {
        p.get("type")
            .and_then(Json::as_str)
            .unwrap_or_default()
            .to_owned()
    };
    let wanted: Vec<String> = self::plugins(primary).iter().map(kind).collect();
    match wanted
        .into_iter()
        .find(|t| !plugins.iter().any(|p| kind(p) == *t))
    {
        Some(missing) => Err(missing),
        None => Ok(()),
    }
}
