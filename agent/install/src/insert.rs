//! Inserts our entry into a list of plugins, and removes it.

use super::entry::{Entry, is_ours, without_version};
use super::json::Json;

/// Version and name of a list that is made of a single plugin.
const VERSION: &str = "0.3.1";
const NAME: &str = "k8s-pod-network";

/// Returns the configuration with our entry as the last plugin. A single plugin becomes a list. All earlier entries of
/// ours are removed, since a remaining one would still be called after the removal of the installation.
///
/// # Errors
/// It is not an object, or its `plugins` are not an array of objects.
pub fn insert(existing: Json, entry: &Entry) -> Result<Json, String> {
    if existing.get("type").is_some() {
        let list = [
            ("cniVersion", Json::text(VERSION)),
            ("name", Json::text(NAME)),
            (
                "plugins",
                Json::Array(vec![without_version(existing), entry.chained()]),
            ),
        ];
        let pairs = list.map(|(key, value)| (key.to_owned(), value));
        return Ok(Json::Object(pairs.into()).sorted());
    }
    change(existing, |plugins| {
        plugins.retain(|p| !is_ours(p));
        plugins.push(entry.chained());
    })
}

/// Returns true for a list that [`insert`] made of a single plugin: that plugin has a name, which plugins of lists do not have.
pub(super) fn is_made_of_one(list: &Json) -> bool {
    let is = |key, text| list.get(key).and_then(Json::as_str) == Some(text);
    let plugins = list.get("plugins").and_then(Json::as_array);
    let is_made = |plugins: &[Json]| match plugins {
        [one, ours] => one.get("name").is_some() && is_ours(ours),
        _ => false,
    };
    is("cniVersion", VERSION) && is("name", NAME) && plugins.is_some_and(is_made)
}

/// Returns the list without our entries; `None` if it has none.
///
/// # Errors
/// As for [`insert`].
pub fn without(existing: Json) -> Result<Option<Json>, String> {
    let mut found = false;
    let list = change(existing, |plugins| {
        let before = plugins.len();
        plugins.retain(|p| !is_ours(p));
        found = plugins.len() < before;
    })?;
    Ok(found.then_some(list))
}

fn change(existing: Json, edit: impl FnOnce(&mut Vec<Json>)) -> Result<Json, String> {
    let Json::Object(mut pairs) = existing else {
        return Err("it is not a JSON object".into());
    };
    let plugins = pairs.iter_mut().find(|(key, _)| key == "plugins");
    let Some((_, Json::Array(plugins))) = plugins else {
        return Err("its plugins are not an array".into());
    };
    let other = plugins.iter().position(|p| !matches!(p, Json::Object(_)));
    if let Some(n) = other {
        return Err(format!("its plugins[{n}] is not an object"));
    }
    edit(plugins);
    Ok(Json::Object(pairs).sorted())
}
