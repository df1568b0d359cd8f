//! Chooses the configuration that gets our entry, and writes it.

use super::check::Remembered;
use super::copy;
use super::desired::Desired;
use super::files;
use super::insert::{insert, is_made_of_one, without};
use super::json::Json;
use super::listing;
use std::io;
use std::path::{Path, PathBuf};

/// The choice of the configuration to extend.
#[derive(Debug)]
pub(crate) enum Choice {
    /// None: ours is a separate configuration.
    Alone,
    /// This one.
    Extend(PathBuf, Json),
    /// There is none yet, for this reason.
    Wait(String),
}

/// A prepared write of a configuration.
#[derive(Debug)]
pub(crate) struct Written {
    /// The file.
    pub(crate) path: PathBuf,
    /// Its new text.
    pub(crate) text: String,
    /// Its mode.
    pub(crate) mode: u32,
    /// The configuration from which it was made, as it was read.
    pub(crate) source: Option<(PathBuf, Json)>,
    /// A file under another name that it replaces.
    pub(crate) replaces: Option<PathBuf>,
    /// Other configurations with an earlier entry of ours, as they were read.
    pub(crate) strays: Vec<Stray>,
    /// The data by which later checks recognize it.
    pub(crate) remembered: Remembered,
}

/// A configuration with an earlier entry of ours.
#[derive(Debug)]
pub(crate) struct Stray {
    pub(crate) path: PathBuf,
    /// Its content, as it was read.
    json: Json,
    /// Its text without the entry; `None` for a file to be removed, which has nothing else or is a copy.
    pub(crate) text: Option<String>,
}

/// Chooses a configuration from the current content of the directory.
///
/// # Errors
/// The directory, or the record of our own names, cannot be read.
pub(crate) fn choose(desired: &Desired) -> io::Result<Choice> {
    if !desired.chained {
        return Ok(Choice::Alone);
    }
    let listing = listing::list(&desired.net_dir)?;
    let dir = desired.net_dir.display();
    let Some(name) = &desired.conf_name else {
        return Ok(match copy::primary(desired, &listing)? {
            Some((path, json)) => Choice::Extend(path.clone(), json.clone()),
            None => Choice::Wait(format!(
                "waiting for a valid CNI configuration in {dir}{}{}",
                copy::passed_over(desired, &listing),
                listing.reasons()
            )),
        });
    };
    Ok(match named(&desired.net_dir.join(name)) {
        Ok((path, json)) => Choice::Extend(path, json),
        Err(reason) => Choice::Wait(format!("waiting for {name} in {dir}: {reason}")),
    })
}

/// Returns the file, or the one with the same stem and the other of the two extensions. A `.conf` that runtimes load has
/// precedence over the list that was made of it: it sorts first, and the component wrote it after the list was made.
/// A list in a `.conf` is accepted although no runtime would load it: an operator who names a file knows its content.
pub(super) fn named(path: &Path) -> Result<(PathBuf, Json), String> {
    let mut paths = vec![path.to_owned()];
    if listing::ends_in(path, ".conf") {
        paths.push(listing::as_list(path));
    } else if let Some(text) = path.to_str().and_then(|p| p.strip_suffix("list"))
        && listing::ends_in(Path::new(text), ".conf")
    {
        let conf = PathBuf::from(text);
        let is_loaded = || listing::read(&conf).is_ok_and(|json| !listing::is_only_ours(&json));
        let is_made = listing::extendable(path).is_ok_and(|list| is_made_of_one(&list));
        paths.insert(usize::from(!(is_made && is_loaded())), conf);
    }
    let mut reason = "there is no such file".to_owned();
    for path in paths {
        match listing::extendable(&path) {
            Ok(json) => return Ok((path, json)),
            Err(why) if path.exists() => reason = format!("{} {why}", path.display()),
            Err(_) => {}
        }
    }
    Err(reason)
}

/// Prepares the write for a choice. `None` if there is nothing to extend yet, or the caller must choose again.
///
/// # Errors
/// The configuration cannot be extended, or its mode cannot be read.
pub(crate) fn prepare(desired: &Desired, choice: Choice) -> Result<Option<Written>, String> {
    let (source, existing) = match choice {
        Choice::Wait(_) => return Ok(None),
        Choice::Alone => {
            let name = desired.conf_name.as_deref().unwrap_or("YYY-istio-cni.conf");
            let path = desired.net_dir.join(name);
            let json = desired.entry.standalone().clone();
            return Ok(Some(Written {
                text: json.pretty(),
                mode: desired.mode,
                source: None,
                replaces: None,
                strays: strays(desired, &[&path])?,
                remembered: Remembered {
                    path: path.clone(),
                    entry: Some(json),
                    copy_of: None,
                },
                path,
            }));
        }
        Choice::Extend(path, json) => (path, json),
    };
    let list = insert(existing.clone(), &desired.entry)
        .map_err(|e| format!("{} cannot take the plugin: {e}", source.display()))?;
    let (path, mode) = match &desired.owned {
        Some(name) => (desired.net_dir.join(name), desired.mode),
        None => {
            let mode = match files::mode(&source) {
                // Another writer removed the file; the caller chooses again.
                Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
                mode => mode.map_err(|e| format!("{}: {e}", source.display()))?,
            };
            (list_name(&source), mode)
        }
    };
    let owned = desired.owned.is_some();
    let replaces = (!owned && path != source).then(|| source.clone());
    let strays = strays(desired, &[&path, &source])?;
    Ok(Some(Written {
        text: list.pretty(),
        mode,
        replaces,
        strays,
        remembered: Remembered {
            path: path.clone(),
            entry: Some(desired.entry.chained()),
            copy_of: owned.then(|| source.clone()),
        },
        source: Some((source, existing)),
        path,
    }))
}

/// Returns the name under which the list is written: runtimes load lists only from a `.conflist`.
pub(super) fn list_name(source: &Path) -> PathBuf {
    match listing::ends_in(source, ".conf") {
        true => listing::as_list(source),
        false => source.to_owned(),
    }
}

/// Returns other configurations with stale entries of ours. When another configuration comes into force, or ours is a
/// separate configuration, no other one may keep an entry that is not updated. If the one to extend is named, and in
/// owned mode, only copies left by earlier agents and configurations with our entry alone are removed: the others were not
/// chosen here.
fn strays(desired: &Desired, except: &[&PathBuf]) -> Result<Vec<Stray>, String> {
    let listing = listing::list(&desired.net_dir).map_err(|e| unlisted(desired, &e))?;
    let left = copy::left(desired, &listing).map_err(|e| e.to_string())?;
    let left: Vec<PathBuf> = left.into_iter().map(Path::to_owned).collect();
    let only_left = desired.chained && (desired.conf_name.is_some() || desired.owned.is_some());
    let others = listing
        .valid
        .into_iter()
        .filter(|(p, _)| !except.contains(&p));
    let cleaned = others.filter_map(|(path, json)| {
        let text = match left.contains(&path) || listing::is_only_ours(&json) {
            true => None,
            false if only_left => return None,
            false => Some(without(json.clone()).ok()??.pretty()),
        };
        Some(Stray { path, json, text })
    });
    Ok(cleaned.collect())
}

/// Describes that the directory of configurations cannot be read, with the remedy.
pub(super) fn unlisted(desired: &Desired, e: &io::Error) -> String {
    let dir = desired.net_dir.display();
    format!("cannot read {dir}: {e}; MOUNTED_CNI_NET_DIR names the node's directory")
}

/// Replaces a list by the same one without our entries. Returns false if another writer changed it in the meantime.
pub(super) fn take_out(path: &Path, text: &str, mode: u32) -> io::Result<bool> {
    let is_same = || {
        let now = listing::read_object(path).and_then(without);
        now.is_ok_and(|list| list.is_some_and(|list| list.pretty() == text))
    };
    files::replace_if(path, text.as_bytes(), mode, Some(path), is_same)
}

/// Returns true if a list still has plugins.
pub(super) fn has_plugins(list: &Json) -> bool {
    list.get("plugins")
        .and_then(Json::as_array)
        .is_some_and(|p| !p.is_empty())
}

impl Written {
    /// Writes the file, then removes what it replaces. A file that is already in sync is left alone.
    /// Returns false if another writer replaced a file that was read: the caller must choose again.
    pub(super) fn apply(&self) -> Result<bool, String> {
        let fail = |path: &Path, e: io::Error| {
            format!(
                "cannot write {}: {e}; the file is unchanged",
                path.display()
            )
        };
        let is_same = || {
            let source = self.source.as_ref();
            source.is_none_or(|(path, json)| listing::read_object(path).as_ref() == Ok(json))
        };
        let is_written = match self.is_there() {
            true => is_same(),
            false => {
                let (path, text) = (&self.path, self.text.as_bytes());
                files::replace_if(path, text, self.mode, self.like(), is_same)
                    .map_err(|e| fail(path, e))?
            }
        };
        if !is_written {
            return Ok(false);
        }
        if let Some(old) = &self.replaces {
            if !is_same() {
                return Ok(false);
            }
            files::remove(old).map_err(|e| format!("cannot remove {}: {e}", old.display()))?;
        }
        let mut are_same = true;
        for Stray { path, json, text } in &self.strays {
            let Some(text) = text else {
                if listing::read_object(path).as_ref() != Ok(json) {
                    are_same = false;
                    continue;
                }
                files::remove(path)
                    .map_err(|e| format!("cannot remove {}: {e}", path.display()))?;
                continue;
            };
            let mode = match files::mode(path) {
                Err(e) if e.kind() == io::ErrorKind::NotFound => continue,
                mode => mode.map_err(|e| fail(path, e))?,
            };
            are_same &= take_out(path, text, mode).map_err(|e| fail(path, e))?;
        }
        Ok(are_same)
    }

    /// Returns why runtimes may use another configuration once this one is written, from the current content of the directory.
    pub(super) fn preempted(&self, desired: &Desired) -> Option<String> {
        let listing = match listing::list(&desired.net_dir) {
            Ok(listing) => listing,
            Err(e) => return Some(unlisted(desired, &e)),
        };
        let valid = listing.valid.iter().map(|(path, _)| path);
        let invalid = listing.invalid.iter().map(|(path, _)| path);
        let stays = |path: &&PathBuf| {
            let is_removed = |stray: &Stray| stray.path == **path && stray.text.is_none();
            self.replaces.as_ref() != Some(*path) && !self.strays.iter().any(is_removed)
        };
        let before = |path: &&PathBuf| path.as_os_str() < self.path.as_os_str() && stays(path);
        let first = valid.chain(invalid).filter(before).min()?;
        Some(format!(
            "runtimes may use {}, which sorts before it, so that pods start without the plugin",
            first.display()
        ))
    }

    /// Returns the extended file, whose owner is kept. Our own list does not take the owner of the copied one.
    fn like(&self) -> Option<&Path> {
        let source = self.source.as_ref().map(|(path, _)| path.as_path());
        source.filter(|_| self.remembered.copy_of.is_none())
    }

    /// Returns true if the write would change nothing.
    pub(super) fn is_there(&self) -> bool {
        files::read_text(&self.path).is_ok_and(|t| t == self.text)
            && files::mode(&self.path).is_ok_and(|m| m == self.mode)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;
    use std::ffi::OsString;
    use weir_core::settings::resolve;

    fn list(bridge: &str) -> String {
        format!(r#"{{"name": "n", "plugins": [{{"type": "bridge", "bridge": "{bridge}"}}]}}"#)
    }

    fn desired(dir: &Path, name: &str) -> Desired {
        let lookup = |asked: &str| match asked {
            "MOUNTED_CNI_NET_DIR" => Some(OsString::from(dir)),
            "CNI_CONF_NAME" => Some(OsString::from(name)),
            _ => None,
        };
        Desired::of(&resolve(&BTreeMap::new(), &lookup), "info").unwrap()
    }

    /// The component that the file is of may have to write it again.
    #[test]
    fn a_file_keeps_its_owner_and_mode() {
        use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
        let dir = std::env::temp_dir().join(format!("weir-owner-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        for name in ["10-a.conflist", "20-b.conf"] {
            let (file, desired) = (dir.join(name), desired(&dir, name));
            std::fs::write(&file, list("one")).unwrap();
            std::fs::set_permissions(&file, PermissionsExt::from_mode(0o640)).unwrap();
            if chown(&file, Some(4711), Some(815)).is_err() {
                eprintln!("skip: only root gives files away");
                continue;
            }
            let state = |path: &Path| {
                let meta = std::fs::metadata(path).unwrap();
                (meta.uid(), meta.gid(), meta.mode() & 0o777)
            };
            let made = prepare(&desired, choose(&desired).unwrap())
                .unwrap()
                .unwrap();
            assert!(made.apply().unwrap());
            let extended = list_name(&file);
            assert_eq!(state(&extended), (4711, 815, 0o640), "{name}");
            let without = without(listing::read_object(&extended).unwrap())
                .unwrap()
                .unwrap();
            assert!(take_out(&extended, &without.pretty(), 0o640).unwrap());
            assert_eq!(state(&extended), (4711, 815, 0o640), "{name}");
        }
        std::fs::remove_dir_all(&dir).unwrap();
    }

    /// Installers of networks often write twice at the start of a node.
    #[test]
    fn what_another_writer_wrote_meanwhile_is_not_overwritten() {
        let dir = std::env::temp_dir().join(format!("weir-meanwhile-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let name = "10-a.conflist";
        let file = dir.join(name);
        std::fs::write(&file, list("one")).unwrap();
        let desired = desired(&dir, name);
        let made = || {
            prepare(&desired, choose(&desired).unwrap())
                .unwrap()
                .unwrap()
        };
        let late = made();
        std::fs::write(&file, list("two")).unwrap();
        assert!(!late.apply().unwrap());
        assert_eq!(std::fs::read_to_string(&file).unwrap(), list("two"));
        assert!(made().apply().unwrap());
        let text = std::fs::read_to_string(&file).unwrap();
        assert!(text.contains("two") && text.contains("istio-cni"), "{text}");
        // The same for one that had our entry alone.
        let stray = dir.join("05-b.conflist");
        std::fs::write(
            &stray,
            r#"{"name": "n", "plugins": [{"type": "istio-cni"}]}"#,
        )
        .unwrap();
        let late = made();
        std::fs::write(&stray, list("four")).unwrap();
        assert!(!late.apply().unwrap());
        assert_eq!(std::fs::read_to_string(&stray).unwrap(), list("four"));
        std::fs::remove_file(&stray).unwrap();
        // The same for what an entry is taken out of, and for one that is gone.
        let json = listing::read_object(&file).unwrap();
        let without = without(json).unwrap().unwrap().pretty();
        std::fs::write(&file, list("three")).unwrap();
        assert!(!take_out(&file, &without, 0o600).unwrap());
        assert_eq!(std::fs::read_to_string(&file).unwrap(), list("three"));
        std::fs::remove_file(&file).unwrap();
        assert!(!take_out(&file, &without, 0o600).unwrap());
        assert!(!file.exists());
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
