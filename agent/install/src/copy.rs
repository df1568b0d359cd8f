//! Our own list in owned mode: a copy of the primary configuration with our entry.

use super::config;
use super::desired::Desired;
use super::entry::is_ours;
use super::json::Json;
use super::listing::{self, Listing};
use super::own_names;
use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};

/// The default name of our own list. Istio's agent uses it on every node, since it does not read the name that its chart
/// sets.
pub(super) const DEFAULT: &str = "02-istio-cni.conflist";

/// Returns copies left by agents with other settings. Runtimes load them first, and they are not updated when the primary
/// configuration changes. A copy has our entry, and another file beside it gives pods a network. A file is taken for a copy
/// if an agent recorded its name as that of its own list, or if it has the usual name and the plugins of one of the two
/// files include those of the other. Under any other name, a copy cannot be distinguished from the network's own file that
/// an agent extended.
///
/// # Errors
/// The recorded names cannot be read.
pub(super) fn left<'a>(desired: &Desired, listing: &'a Listing) -> io::Result<Vec<&'a Path>> {
    let written = own_names::read(desired)?;
    let is_written = |path: &Path| written.iter().any(|name| name == name_of(path));
    let is_usual = |path: &Path| [desired.owned_name.as_str(), DEFAULT].contains(&name_of(path));
    let primaries = || {
        let others = listing.valid.iter();
        let others = others.filter(|(path, _)| !is_written(path) && !is_usual(path));
        others.filter(|(_, json)| gives_network(json))
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
        primaries().any(|(_, primary)| is_written(path) || (is_usual(path) && resembles(primary)))
    };
    let in_use = |path: &Path| {
        let named = desired.conf_name.as_deref();
        let named = named.map(|name| config::list_name(Path::new(name)));
        desired.owned.as_deref() == Some(name_of(path))
            || named.is_some_and(|named| path.file_name() == Some(named.as_os_str()))
    };
    let others = listing.valid.iter();
    let others = others.filter(|(p, json)| !in_use(p) && !listing::is_only_ours(json));
    Ok(others.filter(is_left).map(|(p, _)| p.as_path()).collect())
}

pub(super) fn name_of(path: &Path) -> &str {
    path.file_name().and_then(OsStr::to_str).unwrap_or_default()
}

/// Returns the plugins of a list, or the single plugin.
fn plugins(json: &Json) -> &[Json] {
    let plugins = json.get("plugins").and_then(Json::as_array);
    plugins.unwrap_or(std::slice::from_ref(json))
}

/// Returns true if the configuration has, or is, an entry of ours.
pub(super) fn has_ours(json: &Json) -> bool {
    plugins(json).iter().any(is_ours)
}

/// Returns true if one of its plugins may connect pods to a network, which neither ours nor `loopback` does.
fn gives_network(json: &Json) -> bool {
    let is_loopback = |p: &Json| p.get("type").and_then(Json::as_str) == Some("loopback");
    plugins(json).iter().any(|p| !is_ours(p) && !is_loopback(p))
}

/// Returns the configuration that would be in force without our copies: the first that is not ours alone. For owned mode it
/// must give pods a network: a copy of one without could replace a copy of one with a network. In place, the configuration
/// that runtimes use is extended whatever it contains.
///
/// # Errors
/// As [`left`].
pub(super) fn primary<'a>(
    desired: &Desired,
    listing: &'a Listing,
) -> io::Result<Option<&'a (PathBuf, Json)>> {
    let left = left(desired, listing)?;
    let is_copy =
        |path: &Path| left.contains(&path) || desired.owned.as_deref() == Some(name_of(path));
    let mut others = listing.valid.iter().filter(|(path, _)| !is_copy(path));
    Ok(others.find(|(_, json)| match desired.owned {
        Some(_) => gives_network(json),
        None => !listing::is_only_ours(json),
    }))
}

/// Explains why valid configurations of other components are not copied to our own list.
pub(super) fn passed_over(desired: &Desired, listing: &Listing) -> String {
    let Some(owned) = desired.owned.as_deref() else {
        return String::new();
    };
    let others = listing.valid.iter().filter(|(_, json)| !has_ours(json));
    let why = |(path, json): &(PathBuf, Json)| {
        let why = match name_of(path) == owned {
            true => "has the name of our own list, which is a copy of another one",
            false if !gives_network(json) => "has no plugin that connects pods",
            false => return None,
        };
        Some(format!("; {} is valid, but {why}", name_of(path)))
    };
    others.filter_map(why).collect()
}

/// The file of our own list if another component may have written it: a configuration without our entry. With the content that
/// replaces it, it is removed at the end of the installation.
pub(super) fn foreign(desired: &Desired) -> Option<PathBuf> {
    let path = desired.net_dir.join(desired.owned.as_deref()?);
    let json = listing::read_json(&path).ok()?;
    (!has_ours(&json)).then_some(path)
}

/// Where the content of such a file is kept; runtimes ignore the extension.
pub(super) fn kept_as(path: &Path) -> PathBuf {
    let mut kept = path.as_os_str().to_owned();
    kept.push(".replaced");
    kept.into()
}

/// Keeps the content of such a file. Returns what was done.
///
/// # Errors
/// It cannot be kept: nothing is to be replaced then.
pub(super) fn keep(path: &Path) -> Result<String, String> {
    let (kept, path_) = (kept_as(path), path.display());
    std::fs::copy(path, &kept).map_err(|e| {
        format!(
            "{path_} has no entry of the plugin and cannot be kept as {}: {e}",
            kept.display()
        )
    })?;
    Ok(format!(
        "{path_} has no entry of the plugin: its content is kept as {}, and replaced",
        kept.display()
    ))
}

/// Checks that every plugin type of the primary configuration is among these; the error is a missing type.
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;
    use std::ffi::OsString;
    use weir_core::settings::resolve;

    const OURS: &str = r#"{"type": "istio-cni"}"#;
    const BRIDGE: &str = r#"{"type": "bridge", "bridge": "cni0"}"#;
    const LOOPBACK: &str = r#"{"type": "loopback"}"#;

    fn list(plugins: &[&str]) -> Json {
        let plugins = plugins.join(", ");
        Json::parse(&format!(r#"{{"name": "n", "plugins": [{plugins}]}}"#)).unwrap()
    }

    fn listing(files: &[(&str, Json)]) -> Listing {
        let files = files.iter().cloned();
        Listing {
            valid: files.map(|(name, json)| (name.into(), json)).collect(),
            invalid: Vec::new(),
        }
    }

    fn desired(run: &Path, owned: bool) -> Desired {
        let lookup = |asked: &str| match asked {
            "CNI_AGENT_RUN_DIR" => Some(OsString::from(run)),
            "ISTIO_OWNED_CNI_CONFIG" => Some(OsString::from(owned.to_string())),
            "AMBIENT_ENABLED" => Some("true".into()),
            _ => None,
        };
        Desired::of(&resolve(&BTreeMap::new(), &lookup), "info").unwrap()
    }

    #[test]
    fn a_copy_goes_only_where_another_file_has_a_network() {
        let run = std::env::temp_dir().join(format!("weir-copy-left-{}", std::process::id()));
        std::fs::create_dir_all(&run).unwrap();
        std::fs::write(run.join(own_names::FILE), "01-foo.conflist\n").unwrap();
        let single = |text: &str| Json::parse(text).unwrap();
        let with_ours = list(&[LOOPBACK, OURS]);
        for (other, has_network) in [
            (single(LOOPBACK), false),
            (list(&[LOOPBACK]), false),
            (with_ours, false),
            (single(OURS), false),
            (single(BRIDGE), true),
            (list(&[LOOPBACK, BRIDGE]), true),
        ] {
            for (name, is_known) in [
                ("01-foo.conflist", true),
                (DEFAULT, true),
                // The same file, which an agent extended beside another writer's copy of it.
                ("03-net.conflist", false),
            ] {
                let files = listing(&[
                    (name, list(&[LOOPBACK, BRIDGE, OURS])),
                    ("90-other.conflist", other.clone()),
                ]);
                let wanted = desired(&run, false);
                let gone = left(&wanted, &files).unwrap() == [Path::new(name)];
                assert_eq!(gone, has_network && is_known, "{name} {}", other.pretty());
            }
            // An owned list contains nothing else, and the reason is reported.
            let files = listing(&[("90-other.conflist", other.clone())]);
            let found = primary(&desired(&run, true), &files).unwrap().is_some();
            assert_eq!(found, has_network, "{}", other.pretty());
            let said = passed_over(&desired(&run, true), &files);
            let is_said =
                said == "; 90-other.conflist is valid, but has no plugin that connects pods";
            assert_eq!(is_said, !has_network && !has_ours(&other), "{said}");
            assert_eq!(passed_over(&desired(&run, false), &files), "");
            // Runtimes use it.
            let found = primary(&desired(&run, false), &files).unwrap().is_some();
            assert_eq!(found, other != single(OURS), "{}", other.pretty());
        }
        std::fs::remove_dir_all(&run).unwrap();
    }
}
