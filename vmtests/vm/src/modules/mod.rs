//! Modules: which ones, in which order, and in which form they go into the guest.
//!
//! No package carries `modules.dep`. Each module names what it needs itself, in its section `.modinfo`
//! (include/linux/module.h, MODULE_INFO); walking that gives the order that depmod and modprobe would.
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

/// What is in a directory: modules, packed or not, by name, and what belongs to them.
#[derive(Debug, Default)]
pub(crate) struct Found {
    files: BTreeMap<String, PathBuf>,
    /// The modules that are part of the kernel: `modules.builtin`.
    pub(crate) builtin: BTreeSet<String>,
    /// `vmlinuz` or `vmlinuz-RELEASE`.
    pub(crate) image: Option<PathBuf>,
    /// `config` or `config-RELEASE`.
    pub(crate) config: Option<PathBuf>,
}

/// A module as it goes into the guest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Loadable {
    pub(crate) name: String,
    pub(crate) content: Vec<u8>,
    pub(crate) depends: Vec<String>,
}

/// What becomes of the signature at the end of a module.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Signature {
    /// Cut off. Checking one takes 20 ms under emulation; without it the kernel is tainted (E).
    Cut,
    /// Kept, for a kernel with module.sig_enforce or in lockdown.
    Keep,
}

/// The way through what modules need.
struct Walk<'a> {
    found: &'a Found,
    release: &'a str,
    signature: Signature,
    seen: BTreeSet<String>,
    closure: Vec<Loadable>,
}

impl Found {
    /// All of a directory such as `/lib/modules/RELEASE`, and what tells this state of it from another.
    pub(crate) fn directory(root: &Path) -> Result<(Self, String)> {
        let mut found = Self::default();
        let mut state = String::new();
        let mut folders = vec![root.to_owned()];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(&folder).at(&folder)? {
                let entry = entry.at(&folder)?;
                // The links `build` and `source` lead to the kernel's sources.
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

    /// Remembers a file; false: it is of no use.
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

    /// No module at all?
    pub(crate) fn is_empty(&self) -> bool {
        self.files.is_empty()
    }

    /// Is it there to be loaded?
    pub(crate) fn has(&self, name: &str) -> bool {
        self.files.contains_key(name)
    }

    /// The modules of the kernel `release` that the patterns name, as far as there are such, and all that they need, in load
    /// order: each module after those that it needs. Names come and go between releases.
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

    /// The module that a softdep names: by its name, or by an alias. libcrc32c asks for "crc32c" so.
    ///
    /// A provider of an alias is looked for among those whose names start with it, `crc32c_generic`: reading
    /// thousands of modules would take seconds. One that is for certain processors may refuse to be loaded.
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
