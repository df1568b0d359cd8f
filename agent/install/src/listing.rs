//! Lists the files of the directory that a container runtime would load.

use super::entry::is_ours;
use super::files::{is_absence, read_bytes};
use super::json::Json;
use super::typed;
use std::fmt;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The configurations of a directory, bytewise sorted as runtimes sort them.
#[derive(Debug, Default)]
pub struct Listing {
    /// Configurations that a runtime would load.
    pub valid: Vec<(PathBuf, Json)>,
    /// The others, with the reason why not.
    pub invalid: Vec<(PathBuf, String)>,
}

impl Listing {
    /// Returns a valid configuration by its path.
    #[must_use]
    pub fn get(&self, path: &Path) -> Option<&Json> {
        self.valid
            .iter()
            .find(|(p, _)| p == path)
            .map(|(_, json)| json)
    }

    /// Returns a text with the reasons of all invalid files.
    #[must_use]
    pub fn reasons(&self) -> String {
        let one = |(path, why): &(PathBuf, String)| format!("; {} {why}", path.display());
        self.invalid.iter().map(one).collect()
    }
}

/// Reads the files of the directory that end in exactly `.conf` or `.conflist`. A plugin in a `.json` is not used, as in
/// Istio's agent, but containerd and CRI-O load it, so it is listed as invalid.
///
/// # Errors
/// The directory cannot be read.
pub fn list(dir: &Path) -> io::Result<Listing> {
    // If the node deleted the directory, the container's mount shows it as empty, even if the node has a new one there.
    if std::fs::metadata(dir)?.nlink() == 0 {
        let why = "it was deleted on the node; only a new container mounts its replacement";
        return Err(io::Error::new(io::ErrorKind::NotFound, why));
    }
    let mut listing = Listing::default();
    for path in candidates(dir)? {
        match read(&path) {
            Ok(_) if ends_in(&path, ".json") => {
                let why = "ends in .json, and only .conf and .conflist are extended".to_owned();
                listing.invalid.push((path, why));
            }
            Err(_) if ends_in(&path, ".json") => {}
            Ok(json) => listing.valid.push((path, json)),
            Err(why) => listing.invalid.push((path, why)),
        }
    }
    Ok(listing)
}

/// Returns true if the name ends in `ending`. Runtimes treat a file named `.conf` as having that extension;
/// [`Path::extension`] does not.
pub(crate) fn ends_in(path: &Path, ending: &str) -> bool {
    let name = path.file_name().unwrap_or_default();
    name.as_bytes().ends_with(ending.as_bytes())
}

/// Returns true if a runtime would read a file of this name.
pub(crate) fn is_candidate(path: &Path) -> bool {
    let mut endings = [".conf", ".conflist", ".json"].into_iter();
    endings.any(|ending| ends_in(path, ending))
}

/// Returns `NAME.conflist` for `NAME.conf`.
pub(super) fn as_list(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push("list");
    name.into()
}

fn candidates(dir: &Path) -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir)? {
        let entry = entry?;
        let path = entry.path();
        // libcni skips directories, but neither symbolic links nor pipes, on which a runtime blocks forever.
        if is_candidate(&path) && !entry.file_type()?.is_dir() {
            found.push(path);
        }
    }
    found.sort_by(|a, b| a.as_os_str().as_bytes().cmp(b.as_os_str().as_bytes()));
    Ok(found)
}

/// Reads a file named by a setting, with any extension. The error is the reason why our entry cannot be added.
pub(super) fn extendable(path: &Path) -> Result<Json, String> {
    let json = read_object(path)?;
    match json.get("type") {
        Some(_) => typed::plugin(&json, "")?,
        None => {
            typed::list(&json)?;
            typed::plugins(json.get("plugins").ok_or("has neither type nor plugins")?)?;
        }
    }
    Ok(json)
}

/// Reads a file. The error is the reason why a runtime would not load it.
pub(super) fn read(path: &Path) -> Result<Json, String> {
    let json = read_object(path)?;
    if ends_in(path, ".conflist") {
        list_is_valid(path, &json)?;
    } else {
        typed::plugin(&json, "")?;
    }
    Ok(json)
}

/// Reads a file of any name as a JSON object.
pub(super) fn read_object(path: &Path) -> Result<Json, String> {
    // Opening a pipe would block forever.
    if path.exists() && !path.is_file() {
        return Err("is not a file".into());
    }
    let json = read_json(path).map_err(|e| match e {
        Unread::File(e) => format!("cannot be read: {e}"),
        Unread::Json(e) => format!("is not JSON: {e}"),
    })?;
    match json {
        Json::Object(_) => Ok(json),
        _ => Err("is not a JSON object".into()),
    }
}

/// The reason why a file cannot be read.
pub(super) enum Unread {
    File(io::Error),
    Json(String),
}

impl fmt::Display for Unread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(e) => e.fmt(f),
            Self::Json(e) => e.fmt(f),
        }
    }
}

/// Reads the value in a file. Invalid UTF-8 within a string becomes U+FFFD, as in runtimes.
pub(super) fn read_json(path: &Path) -> Result<Json, Unread> {
    let bytes = read_bytes(path).map_err(Unread::File)?;
    Json::parse(&String::from_utf8_lossy(&bytes)).map_err(Unread::Json)
}

/// Returns true for a configuration without any plugin but ours, left by an agent that was killed.
pub(super) fn is_only_ours(json: &Json) -> bool {
    let plugins = json.get("plugins").and_then(Json::as_array);
    is_ours(json) || plugins.is_some_and(|p| !p.is_empty() && p.iter().all(is_ours))
}

/// Returns true if a plugin has a type.
pub(super) fn has_type(json: &Json) -> bool {
    json.get("type")
        .and_then(Json::as_str)
        .is_some_and(|t| !t.is_empty())
}

/// `libcni`'s rules for a network configuration list.
fn list_is_valid(path: &Path, json: &Json) -> Result<(), String> {
    typed::list(json)?;
    let name = json
        .get("name")
        .and_then(Json::as_str)
        .ok_or("has no name")?;
    if let Some(plugins) = json.get("plugins") {
        return typed::plugins(plugins);
    }
    let only_inlined = json.get("loadOnlyInlinedPlugins").and_then(typed::switch) == Some(true);
    let plain = !name.is_empty() && !name.contains('/') && name != "." && name != "..";
    let dir = path.parent().unwrap_or(Path::new("")).join(name);
    let files = match only_inlined || !plain {
        true => Vec::new(),
        false => match candidates(&dir) {
            Err(e) if !is_absence(&e) => {
                return Err(format!("has plugins that cannot be read: {e}"));
            }
            found => found.unwrap_or_default(),
        },
    };
    let loads = |f: &PathBuf| ends_in(f, ".conf") && read(f).is_ok();
    match files.iter().any(loads) {
        true => Ok(()),
        false => Err("has no plugins".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plugin_in_a_json_is_named_and_not_used() {
        let dir = std::env::temp_dir().join(format!("weir-dot-json-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let plugin = r#"{"type": "bridge"}"#;
        for (name, text) in [
            ("05-a.json", plugin),
            ("06-notes.json", r#"{"plugins": []}"#),
            ("10-b.conf", plugin),
        ] {
            std::fs::write(dir.join(name), text).unwrap();
        }
        let listing = list(&dir).unwrap();
        let valid: Vec<_> = listing.valid.iter().map(|(path, _)| path).collect();
        assert_eq!(valid, [&dir.join("10-b.conf")]);
        let [(path, why)] = &listing.invalid[..] else {
            panic!("{:?}", listing.invalid);
        };
        assert_eq!(*path, dir.join("05-a.json"));
        assert!(why.contains("ends in .json"), "{why}");
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
