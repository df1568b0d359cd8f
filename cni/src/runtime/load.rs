//! Network configurations as files in a directory.

use std::path::{Path, PathBuf};

use super::error::{Error, Result};
use super::list::{NetworkList, object, plugin};

impl NetworkList {
    /// Reads a `.conf` or `.conflist` file. To a list are added the plugins of
    /// the directory that is called like the network (`*.conf`, by name), unless
    /// `loadOnlyInlinedPlugins` is set.
    ///
    /// # Errors
    /// [`Error::Config`], naming the file: unreadable, malformed, without any
    /// plugin, or with another ending.
    pub fn load(path: &Path) -> Result<Self> {
        let source = path.display().to_string();
        match path.extension().and_then(|e| e.to_str()) {
            Some("conf") => return Self::from_single(&read(path)?, &source),
            Some("conflist") => {}
            _ => {
                return Err(Error::config(
                    source,
                    "the file's name must end in .conf or .conflist",
                ));
            }
        }
        let mut list = Self::from_list(&read(path)?, &source)?;
        if !list.load_only_inlined_plugins {
            let dir = path.parent().unwrap_or(Path::new("")).join(&list.name);
            for file in files(&dir, &["conf"]).unwrap_or_default() {
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

    /// The network a container runtime would take from a directory: of the
    /// files ending in `.conf` or `.conflist`, by name, the first that loads.
    ///
    /// # Errors
    /// [`Error::Config`] when there is none; it names what is wrong with each.
    pub fn load_dir(dir: &Path) -> Result<Self> {
        Self::first_in(dir, None)
    }

    /// The network of this name: of the files ending in `.conf` or `.conflist`, by name, the first that bears it.
    ///
    /// # Errors
    /// [`Error::Config`] when there is none; it names the networks that are there, and what is wrong with other files.
    pub fn load_named(dir: &Path, name: &str) -> Result<Self> {
        Self::first_in(dir, Some(name))
    }

    fn first_in(dir: &Path, name: Option<&str>) -> Result<Self> {
        let source = dir.display().to_string();
        let files = files(dir, &["conf", "conflist"])
            .map_err(|error| Error::config(&source, format!("cannot list it: {error}")))?;
        let mut reasons = Vec::new();
        for file in &files {
            match Self::load(file) {
                Ok(list) if name.is_none_or(|name| name == list.name) => return Ok(list),
                Ok(list) => reasons.push(format!("{} is network {:?}", file.display(), list.name)),
                Err(error) => reasons.push(error.to_string()),
            }
        }
        let reason = if reasons.is_empty() {
            "there is no .conf or .conflist file in it".to_owned()
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

fn read(path: &Path) -> Result<String> {
    crate::files::read_text(path)
        .map_err(|error| Error::config(path.display().to_string(), error.to_string()))
}

/// Regular files with one of the endings, sorted by name bytewise.
fn files(dir: &Path, endings: &[&str]) -> std::io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir)? {
        let path = entry?.path();
        let ending = path
            .extension()
            .and_then(|e| e.to_str())
            .unwrap_or_default();
        if path.is_file() && endings.contains(&ending) {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}
