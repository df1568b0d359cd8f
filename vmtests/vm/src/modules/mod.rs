//! The modules of a guest: their selection, load order and form.
//!
//! Packages do not contain `modules.dep`. Each module lists its own dependencies in its section `.modinfo`
//! (include/linux/module.h, MODULE_INFO); following these gives the same order as depmod and modprobe.
mod info;

pub(crate) use info::{hide_section, module_name};

use info::{Info, without_signature};

use crate::catalogue::matches;
use crate::compress;
use crate::digest::sha256;
use crate::{At, Error, Result};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::{fs, io};

/// The relevant content of a directory: modules by name, compressed or not, and the files that belong to them.
#[derive(Debug, Default)]
pub(crate) struct Found {
    files: BTreeMap<String, PathBuf>,
    /// The modules that are built into the kernel: `modules.builtin`.
    pub(crate) builtin: BTreeSet<String>,
    /// `vmlinuz` or `vmlinuz-RELEASE`.
    pub(crate) image: Option<PathBuf>,
    /// `config` or `config-RELEASE`.
    pub(crate) config: Option<PathBuf>,
}

/// A module in the form in which it goes into the guest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Loadable {
    pub(crate) name: String,
    pub(crate) content: Vec<u8>,
    pub(crate) depends: Vec<String>,
}

/// What happens to the signature at the end of a module.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Signature {
    /// Removed. Checking one takes 20 ms under emulation; a missing one only taints the kernel (E).
    Cut,
    /// Kept, for a kernel with module.sig_enforce or in lockdown.
    Keep,
}

/// The state of a dependency traversal.
struct Walk<'a> {
    found: &'a Found,
    release: &'a str,
    signature: Signature,
    seen: BTreeSet<String>,
    closure: Vec<Loadable>,
}

impl Found {
    /// Reads a directory such as `/lib/modules/RELEASE`; also returns a text that identifies its present content.
    pub(crate) fn directory(root: &Path) -> Result<(Self, String)> {
        let mut found = Self::default();
        let mut state = String::new();
        let mut folders = vec![root.to_owned()];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(&folder).at(&folder)? {
                let entry = entry.at(&folder)?;
                // Symbolic links are not followed: `build` and `source` lead to the kernel's sources.
                let kind = entry.file_type().at(&folder)?;
                if kind.is_dir() {
                    folders.push(entry.path());
                } else if kind.is_file() && found.take(&entry.path()).at(&folder)? {
                    let (path, meta) = (entry.path(), entry.metadata().at(&folder)?);
                    state += &format!("{} {} {:?}\n", path.display(), meta.len(), meta.modified());
                }
            }
        }
        Ok((found, sha256(state.as_bytes())))
    }

    /// Records a file; false: the file is not relevant.
    pub(crate) fn take(&mut self, path: &Path) -> io::Result<bool> {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let is = |what: &str| name.split('-').next() == Some(what);
        if let Some(module) = module_name(&name) {
            self.files.insert(module, path.to_owned());
        } else if name == "modules.builtin" {
            let text = fs::read(path)?;
            let text = String::from_utf8_lossy(&text);
            self.builtin.extend(text.lines().filter_map(module_name));
        } else if is("vmlinuz") {
            self.image = Some(path.to_owned());
        } else if is("config") {
            self.config = Some(path.to_owned());
        } else {
            return Ok(false);
        }
        Ok(true)
    }

    /// Whether there is no module.
    pub(crate) fn is_empty(&self) -> bool {
        self.files.is_empty()
    }

    /// Whether there is a loadable module of that name.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.files.contains_key(name)
    }

    /// The modules of the kernel `release` that match the patterns, and their dependencies, in load order. A pattern without
    /// a match is no error: module names appear and disappear between releases.
    pub(crate) fn closure(
        &self,
        wanted: &[String],
        release: &str,
        signature: Signature,
    ) -> Result<Vec<Loadable>> {
        let mut walk = Walk {
            found: self,
            release,
            signature,
            seen: BTreeSet::new(),
            closure: Vec::new(),
        };
        for pattern in wanted {
            for name in self.files.keys().filter(|name| matches(pattern, name)) {
                walk.visit(name)?;
            }
        }
        Ok(walk.closure)
    }

    /// The modules for the name in a softdep, which may be an alias: libcrc32c requests "crc32c".
    ///
    /// Providers of an alias are searched only among modules whose names start with it, such as `crc32c_generic`: reading
    /// thousands of modules would take seconds. Providers for certain processors are excluded: they may refuse to load.
    fn named_or_alias(&self, name: &str) -> Vec<String> {
        if self.has(name) || self.builtin.contains(name) {
            return vec![name.to_owned()];
        }
        let start = self.files.range(name.to_owned()..);
        let start = start.take_while(|(file, _)| file.starts_with(name));
        let provides = |file: &str, path: &Path| {
            let info = Info::read(file, &unpacked(path).ok()?).ok()?;
            let general = !info.aliases.iter().any(|a| a.starts_with("cpu:"));
            (general && info.aliases.iter().any(|a| a == name)).then(|| file.to_owned())
        };
        let all = start.filter_map(|(file, path)| provides(file, path));
        all.collect()
    }
}

impl Walk<'_> {
    fn visit(&mut self, name: &str) -> Result<()> {
        let Some(path) = self.found.files.get(name) else {
            return Ok(());
        };
        if !self.seen.insert(name.to_owned()) {
            return Ok(());
        }
        let mut content = unpacked(path)?;
        let info = Info::read(name, &content)?;
        let refuse = |reason, remedy| Err(Error::new(format!("the module {name}"), reason, remedy));
        if info.release != self.release {
            let reason = format!(
                "it is for the kernel {}, not for {}",
                info.release, self.release
            );
            let remedy =
                "Give the modules directory that belongs to the kernel: lib/modules/RELEASE";
            return refuse(reason, remedy);
        }
        for needed in &info.depends {
            if !self.found.has(needed) && !self.found.builtin.contains(needed) {
                let reason = format!("it needs the module {needed}, which is not there");
                let remedy = "The set of packages or the modules directory is not complete: fetch it again, or give \
                     the one that belongs to this kernel";
                return refuse(reason, remedy);
            }
            self.visit(needed)?;
        }
        for before in &info.before {
            for name in self.found.named_or_alias(before) {
                self.visit(&name)?;
            }
        }
        if self.signature == Signature::Cut {
            content.truncate(without_signature(&content).len());
        }
        self.closure.push(Loadable {
            name: name.to_owned(),
            content,
            depends: info.depends,
        });
        Ok(())
    }
}

fn unpacked(path: &Path) -> Result<Vec<u8>> {
    let packed = fs::read(path).at(path)?;
    compress::unpack(&path.display().to_string(), &packed)
}
