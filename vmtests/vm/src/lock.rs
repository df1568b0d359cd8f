//! `kernels.lock`: the build of each kernel that is used, with the hashes of its packages.
//!
//! The file names no host: paths are relative to the base URL of the archive.
use crate::{At, Error, Result};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::fs;
use std::path::{Path, PathBuf};

/// The lock at build time, for a program that is used away from its sources.
const TEXT: &str = include_str!("../kernels.lock");

const HEADER: &str = "# Which build of each kernel is used. The command `update` writes it; do not edit.\n\
                      # Paths count from the base of the archive, which the system's apt sources name.\n\n";

/// The content of `kernels.lock`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KernelLock {
    /// The kernels, in the order of `kernels.toml`.
    #[serde(rename = "kernel", default)]
    pub kernels: Vec<Locked>,
}

/// One build of a kernel.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Locked {
    /// Its name in `kernels.toml`.
    pub name: String,
    /// The series: `7.2` for `newest`.
    pub series: String,
    /// The Debian version of the package.
    pub version: String,
    /// The suite in which it was found.
    pub suite: String,
    /// The packages that form it.
    #[serde(rename = "part")]
    pub parts: Vec<Part>,
}

/// A package file.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Part {
    /// The path relative to the archive's base URL.
    pub path: String,
    /// Its size in bytes.
    pub size: u64,
    /// Its SHA-256, in hexadecimal.
    pub sha256: String,
}

impl Part {
    /// The last component of the path.
    pub fn file(&self) -> &str {
        self.path.rsplit('/').next().unwrap_or(&self.path)
    }
}

impl Locked {
    /// The kernel's name in the matrix: the series, if `kernels.toml` names none.
    pub fn environment(&self) -> Cow<'_, str> {
        match self.name.strip_prefix("newest") {
            Some(arch) => (self.series.clone() + arch).into(),
            None => self.name.as_str().into(),
        }
    }
}

impl KernelLock {
    /// Reads `path`; without one, the file in the sources, or the copy in this program.
    pub fn load(path: Option<&Path>) -> Result<Self> {
        let file = path.map_or_else(committed, Path::to_owned);
        let text = fs::read_to_string(&file);
        let text = match path {
            Some(_) => text.at(&file)?,
            None => text.if_there(&file)?.unwrap_or_else(|| TEXT.to_owned()),
        };
        Self::parse(&file.display().to_string(), &text)
    }

    /// Parses the text of the file `name`.
    pub fn parse(name: &str, text: &str) -> Result<Self> {
        let remedy = "Take the committed file again, or run `weir-vm update`";
        let lock: Self = toml::from_str(text).map_err(|e| Error::new(name, e, remedy))?;
        for part in lock.kernels.iter().flat_map(|k| &k.parts) {
            let hex = part.sha256.len() == 64 && part.sha256.bytes().all(|b| b.is_ascii_hexdigit());
            // The path becomes part of a URL, and its last component a file name.
            let inside = !part.path.starts_with('/')
                && part.path.split('/').all(|p| !p.is_empty() && p != "..");
            if !hex || !inside {
                let reason = format!("{:?} is not a path with a SHA-256", part.path);
                return Err(Error::new(name, reason, remedy));
            }
        }
        Ok(lock)
    }

    /// Formats the file.
    pub fn text(&self) -> Result<String> {
        let body = toml::to_string(self).map_err(|e| Error::new("kernels.lock", e, "Report it"))?;
        Ok(format!("{HEADER}{body}"))
    }

    /// Returns the entry of that name.
    pub fn find(&self, name: &str) -> Option<&Locked> {
        self.kernels.iter().find(|k| k.name == name)
    }

    /// Adds the entry, or replaces the one of the same name.
    pub fn set(&mut self, entry: Locked) {
        match self.kernels.iter_mut().find(|k| k.name == entry.name) {
            Some(old) => *old = entry,
            None => self.kernels.push(entry),
        }
    }
}

/// The path of the lock in the sources that this program was built from.
pub(crate) fn committed() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("kernels.lock")
}
