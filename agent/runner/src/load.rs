//! Network configurations as files in a directory.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use super::error::{Error, Result};
use super::list::{NetworkList, object, plugin};

impl NetworkList {
    /// Reads a `.conf`, `.json` or `.conflist` file. Plugins in the directory with the
    /// name of the network (`*.conf`, sorted by name) are appended to a list,
    /// unless `loadOnlyInlinedPlugins` is set.
    ///
    /// # Errors
    /// [`Error::Config`], naming the file: it is unreadable, malformed, without
    /// any plugin, or has another extension; or the directory exists and cannot be listed.
    pub fn load(path: &Path) -> Result<Self> {
        let source = path.display().to_string();
        if ends_in(path, &[".conf", ".json"]) {
            return Self::from_single(&read(path)?, &source);
        }
        if !ends_in(path, &[".conflist"]) {
            let reason = "the file's name must end in .conf, .json or .conflist";
            return Err(Error::config(source, reason));
        }
        let mut list = Self::from_list(&read(path)?, &source)?;
        if !list.load_only_inlined_plugins {
            let dir = path.parent().unwrap_or(Path::new("")).join(&list.name);
            let found = match files(&dir, &[".conf"]) {
                Err(error) if error.kind() == ErrorKind::NotFound => Vec::new(),
                found => found.map_err(|error| unlisted(&dir, &error))?,
            };
            for file in found {
                let source = file.display().to_string();
                list.plugins.push(plugin(
                    object(&read(&file)?, &source)?,
                    &source,
                    "the plugin",
                )?);
            }
        }
        if list.plugins.is_empty() {
            let reason = format!(
                "no plugins: neither \"plugins\" in it nor .conf files in the directory {}/ beside it",
                list.name
            );
            return Err(Error::config(source, reason));
        }
        Ok(list)
    }

    /// The network that a container runtime would use from a directory: the
    /// first by name of the `.conf`, `.json` and `.conflist` files that loads.
    ///
    /// # Errors
    /// [`Error::Config`] when there is none; it names the defect of each file.
    pub fn load_dir(dir: &Path) -> Result<Self> {
        Self::first_in(dir, None)
    }

    /// The network of this name: the first by file name of the `.conf`, `.json` and `.conflist` files that has it.
    ///
    /// # Errors
    /// [`Error::Config`] when there is none; it names the existing networks, and the defects of other files.
    pub fn load_named(dir: &Path, name: &str) -> Result<Self> {
        Self::first_in(dir, Some(name))
    }

    fn first_in(dir: &Path, name: Option<&str>) -> Result<Self> {
        let source = dir.display().to_string();
        let files = files(dir, &[".conf", ".json", ".conflist"]);
        let files = files.map_err(|error| unlisted(dir, &error))?;
        let mut reasons = Vec::new();
        for file in &files {
            match Self::load(file) {
                Ok(list) if name.is_none_or(|name| name == list.name) => return Ok(list),
                Ok(list) => reasons.push(format!("{} is network {:?}", file.display(), list.name)),
                Err(error) => reasons.push(error.to_string()),
            }
        }
        let reason = if reasons.is_empty() {
            "there is no .conf, .json or .conflist file in it".to_owned()
        } else {
            let reasons = reasons.join("; ");
            match name {
                None => format!("no file in it can be used: {reasons}"),
                Some(name) => format!("network {name:?} is not in it: {reasons}"),
            }
        };
        Err(Error::config(source, reason))
    }
}

fn unlisted(dir: &Path, error: &std::io::Error) -> Error {
    Error::config(
        dir.display().to_string(),
        format!("cannot list it: {error}"),
    )
}

fn read(path: &Path) -> Result<String> {
    weir_cni::files::read_text(path)
        .map_err(|error| Error::config(path.display().to_string(), error.to_string()))
}

/// Whether the name ends in one of these. libcni takes a file named `.conf` for one with that extension;
/// [`Path::extension`] does not.
fn ends_in(path: &Path, endings: &[&str]) -> bool {
    let name = path.file_name().unwrap_or_default().as_encoded_bytes();
    let mut endings = endings.iter();
    endings.any(|ending| name.ends_with(ending.as_bytes()))
}

/// Regular files with one of the endings, sorted by name bytewise.
fn files(dir: &Path, endings: &[&str]) -> std::io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir)? {
        let path = entry?.path();
        if path.is_file() && ends_in(&path, endings) {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}
