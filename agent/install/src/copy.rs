//! A list of our own: a copy of the primary configuration with our entry, for owned mode.

use super::config;
use super::desired::Desired;
use super::entry::is_ours;
use super::files;
use super::insert::{insert, without};
use super::json::Json;
use super::listing::{self, Listing};
use super::own_names;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

/// The name of our own list where none is given, which is also the one of Istio's agent on every node: it does not read
/// the name that its chart sets.
pub(super) const DEFAULT: &str = "02-istio-cni.conflist";

/// Modes of lists of our own, see `CNI_CONF_GROUP_READ`. One that was extended in place has the mode that it had.
const MODES: [u32; 2] = [0o600, 0o640];

/// Copies that agents left which had another setting: they come first for runtimes, and nobody would tell them of what
/// changes in the primary configuration. Each has our entry, and beside it is another file that gives pods a network. By its
/// name it is one, if an agent wrote a list of its own under it on this node, or if it is the usual name and the plugins of
/// the other file differ by additions alone. Under any other name it is, if without our entry it is the other file,
/// word by word.
pub(super) fn left<'a>(desired: &Desired, listing: &'a Listing) -> Vec<&'a Path> {
    let written = own_names::read(desired);
    let is_written = |path: &Path| written.iter().any(|name| name == name_of(path));
    let is_usual = |path: &Path| [desired.owned_name.as_str(), DEFAULT].contains(&name_of(path));
    let primaries = || {
        let others = listing.valid.iter();
        let others = others.filter(|(path, _)| !is_written(path) && !is_usual(path));
        others.filter(|(_, json)| !listing::is_only_ours(json))
    };
    let is_left = |(path, copy): &&(PathBuf, Json)| {
        let entries = copy.get("plugins").and_then(Json::as_array);
        let Some(entries) = entries.filter(|e| e.iter().any(is_ours)) else {
            return false;
        };
        let resembles = |primary: &Json| {
            types_occur(primary, entries).is_ok() || {
                let others = entries.iter().filter(|p| !is_ours(p)).cloned().collect();
                let others = Json::Object(vec![("plugins".to_owned(), Json::Array(others))]);
                types_occur(&others, plugins(primary)).is_ok()
            }
        };
        primaries().any(|(other, primary)| {
            is_written(path)
                || (is_usual(path) && resembles(primary))
                || is_twin(desired, (path, copy), (other, primary))
        })
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

/// Whether one is what an agent makes of the other for a list of its own, but for our entry. A component that writes
/// `NAME.conf` does so again beside the list that an agent made of it.
fn is_twin(desired: &Desired, (path, copy): (&Path, &Json), (other, json): (&Path, &Json)) -> bool {
    let bare = |list: Json| without(list).ok().flatten();
    let made = || insert(json.clone(), &desired.entry).ok().and_then(bare);
    !has_ours(json)
        && config::list_name(other) != path
        && files::mode(path).is_ok_and(|mode| MODES.contains(&mode))
        && bare(copy.clone()).is_some_and(|copy| Some(copy) == made())
}

pub(super) fn name_of(path: &Path) -> &str {
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

/// What is to be said of a configuration of another component under the name of our own list.
pub(super) fn taken(desired: &Desired, listing: &Listing) -> Option<String> {
    let name = desired.owned.as_deref()?;
    let mut valid = listing.valid.iter();
    let taken = valid.any(|(path, json)| name_of(path) == name && !has_ours(json));
    taken.then(|| {
        format!(
            "; {name} is valid, but has the name of our own list, which is a copy of another one"
        )
    })
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
