//! Pins of other writers: anywhere in the bpf file system, except in the directory of weir.

use crate::pins::Bpffs;
use std::collections::BTreeMap;
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
    /// True if there are more entries than were read.
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
            let list = std::fs::read_dir(&folder).into_iter().flatten().flatten();
            for entry in list.filter(|entry| entry.path() != weir) {
                let Some(less) = left.checked_sub(1) else {
                    found.is_cut = true;
                    return found;
                };
                left = less;
                match entry.file_type() {
                    Ok(kind) if kind.is_dir() && depth < DEPTH => {
                        folders.push((entry.path(), depth + 1));
                    }
                    Ok(kind) if kind.is_dir() => found.is_cut = true,
                    Ok(kind) if kind.is_file() => found.add(&entry.path()),
                    _ => {}
                }
            }
        }
        found
    }

    fn add(&mut self, path: &Path) {
        let Ok(pinned) = open_pin(path) else { return };
        let (ids, id) = match &pinned {
            Pinned::Link(link) => (&mut self.links, link.info().map(|info| info.id)),
            Pinned::Program(program) => (&mut self.programs, program.info().map(|info| info.id)),
            Pinned::Map(map) => (&mut self.maps, map.info().map(|info| info.id)),
        };
        if let Ok(id) = id {
            ids.entry(id).or_default().push(path.to_path_buf());
        }
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
