//! Pins of other writers: anywhere in the bpf file system, except in the directory of weir.

use crate::libc_errno;
use crate::pins::Bpffs;
use std::collections::BTreeMap;
use std::io::{ErrorKind, Result};
use std::path::{Path, PathBuf};
use weir_bpf::{Pinned, open_pin};

/// Maximum number of entries that are read in all directories; a node with Cilium has a few hundred.
const ENTRIES: usize = 4096;
/// Maximum depth of directories.
const DEPTH: usize = 8;

/// The paths of pins, by the ids of the pinned objects.
#[derive(Debug, Default)]
pub(super) struct Elsewhere {
    links: BTreeMap<u32, Vec<PathBuf>>,
    programs: BTreeMap<u32, Vec<PathBuf>>,
    maps: BTreeMap<u32, Vec<PathBuf>>,
    /// True if not all entries were read: there are too many, or reading one failed.
    pub(super) is_cut: bool,
}

impl Elsewhere {
    /// Reads the pins. A file that cannot be opened, because it is gone or of another kind, is left out.
    pub(super) fn read(bpffs: &Bpffs) -> Self {
        let (root, weir) = (bpffs.root(), bpffs.weir());
        let mut found = Self::default();
        let mut folders = vec![(root.to_path_buf(), 0)];
        let mut left = ENTRIES;
        while let Some((folder, depth)) = folders.pop() {
            let list = match std::fs::read_dir(&folder) {
                Ok(list) => list,
                Err(e) => {
                    found.is_cut |= e.kind() != ErrorKind::NotFound;
                    continue;
                }
            };
            for entry in list {
                let Some(less) = left.checked_sub(1) else {
                    found.is_cut = true;
                    return found;
                };
                left = less;
                let Ok(entry) = entry else {
                    // Reading the directory cannot be continued.
                    found.is_cut = true;
                    break;
                };
                if entry.path() == weir {
                    continue;
                }
                match entry.file_type() {
                    Ok(kind) if kind.is_dir() && depth < DEPTH => {
                        folders.push((entry.path(), depth + 1));
                    }
                    Ok(kind) if kind.is_dir() => found.is_cut = true,
                    Ok(kind) if kind.is_file() => found.is_cut |= found.add(&entry.path()).is_err(),
                    Ok(_) => {}
                    Err(e) => found.is_cut |= e.kind() != ErrorKind::NotFound,
                }
            }
        }
        found
    }

    fn add(&mut self, path: &Path) -> Result<()> {
        let pinned = match open_pin(path) {
            Ok(pinned) => pinned,
            Err(e) => {
                let is_no_pin = [libc_errno::EACCES, libc_errno::EINVAL].map(Some);
                let is_left_out =
                    e.kind() == ErrorKind::NotFound || is_no_pin.contains(&e.raw_os_error());
                return if is_left_out { Ok(()) } else { Err(e) };
            }
        };
        let (ids, id) = match &pinned {
            Pinned::Link(link) => (&mut self.links, link.info()?.id),
            Pinned::Program(program) => (&mut self.programs, program.info()?.id),
            Pinned::Map(map) => (&mut self.maps, map.info()?.id),
        };
        ids.entry(id).or_default().push(path.to_path_buf());
        Ok(())
    }

    /// Returns the pins of an attached program and of its link.
    pub(super) fn of_program(&self, id: u32, link: Option<u32>) -> Vec<PathBuf> {
        let of_link = link.and_then(|link| self.links.get(&link));
        let all = of_link.into_iter().chain(self.programs.get(&id)).flatten();
        all.cloned().collect()
    }

    /// Returns the pins of a map.
    pub(super) fn of_map(&self, id: u32) -> &[PathBuf] {
        self.maps.get(&id).map_or(&[], Vec::as_slice)
    }
}

/// Returns `, pinned at A and B`, or an empty string.
pub(super) fn words(pins: &[PathBuf]) -> String {
    let paths: Vec<String> = pins.iter().map(|pin| pin.display().to_string()).collect();
    match paths.is_empty() {
        true => String::new(),
        false => format!(", pinned at {}", paths.join(" and ")),
    }
}
