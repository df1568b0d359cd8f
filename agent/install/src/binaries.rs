//! The programs to install: the plugin, and everything else in the same directory of the image.

use super::desired::Desired;
use super::files::{self, Stamp, Stop};
use nix::unistd::geteuid;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// A program to install.
#[derive(Debug, Clone)]
pub(super) struct Program {
    pub(super) source: PathBuf,
    pub(super) target: PathBuf,
    pub(super) mode: u32,
}

/// Lists the programs to copy, sorted by name.
pub(super) fn programs(desired: &Desired) -> Result<Vec<Program>, String> {
    let dir = &desired.bin_source_dir;
    let fail = |e: io::Error| {
        format!(
            "cannot read {}: {e}; WEIR_CNI_BIN_SOURCE_DIR names the programs to install",
            dir.display()
        )
    };
    let mut programs = Vec::new();
    for entry in std::fs::read_dir(dir).map_err(fail)? {
        let entry = entry.map_err(fail)?;
        if entry.file_type().map_err(fail)?.is_file() {
            let source = entry.path();
            let mode = files::mode(&source).map_err(fail)? & 0o777;
            if entry.metadata().map_err(fail)?.len() > files::LARGEST {
                let why = files::too_large();
                return Err(format!("cannot install {}: {why}", source.display()));
            }
            let target = desired.bin_dir.join(entry.file_name());
            programs.push(Program {
                source,
                target,
                mode,
            });
        }
    }
    programs.sort_by(|a, b| a.source.cmp(&b.source));
    match programs.is_empty() {
        true => Err(format!(
            "{} holds no programs; WEIR_CNI_BIN_SOURCE_DIR names the programs to install",
            dir.display()
        )),
        false => Ok(programs),
    }
}

impl Program {
    /// Returns the stamp of the program on the node: a file of ours that is neither a link, which another writer may change, nor
    /// writable for another owner. The error is the reason why it must be copied.
    pub(super) fn installed(&self, stop: Stop<'_>) -> Result<Stamp, &'static str> {
        match std::fs::symlink_metadata(&self.target) {
            Err(_) => Err("it is missing on the node"),
            Ok(meta) if !meta.is_file() => Err("the node has no regular file of this name"),
            Ok(meta) if meta.uid() != geteuid().as_raw() => Err("another user owns it"),
            Ok(meta) if meta.mode() & 0o7777 != self.mode => Err("its mode differs"),
            Ok(_) => match files::same_bytes(&self.source, &self.target, stop) {
                Ok(same) => same.ok_or("the node has another version"),
                Err(_) => Err("the node's version cannot be read"),
            },
        }
    }

    /// Copies the program next to its target and renames it, since a running program cannot be written to. Returns its stamp;
    /// `None` if `stop` ended the copy before it was complete.
    pub(super) fn copy(&self, stop: Stop<'_>) -> Result<Option<Stamp>, String> {
        files::copy(&self.source, &self.target, self.mode, stop).map_err(|e| {
            format!(
                "cannot copy {} to {}: {e}{}",
                self.source.display(),
                self.target.display(),
                hint(&e, &self.target)
            )
        })
    }
}

fn hint(error: &io::Error, target: &Path) -> String {
    let dir = target.parent().unwrap_or(Path::new("/"));
    match error.kind() {
        io::ErrorKind::ReadOnlyFilesystem => "; the node keeps its plugins elsewhere: set the platform (global.platform) or the directory (cniBinDir) of the chart".into(),
        io::ErrorKind::NotFound if !dir.exists() => format!("; {} is not mounted", dir.display()),
        io::ErrorKind::StorageFull => "; the disk of the node is full".into(),
        _ => String::new(),
    }
}
