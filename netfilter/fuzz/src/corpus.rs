//! Reads the inputs of a corpus.

use std::io;
use std::path::{Path, PathBuf};

/// Every file of a folder and its content, sorted by name.
///
/// # Errors
/// The folder does not exist, or a file cannot be read; the error names the path.
pub fn corpus(folder: &Path) -> io::Result<Vec<(PathBuf, Vec<u8>)>> {
    let named = |path: &Path, e: io::Error| {
        io::Error::new(e.kind(), format!("cannot read {}: {e}", path.display()))
    };
    let entries = std::fs::read_dir(folder).map_err(|e| named(folder, e))?;
    let mut found = Vec::new();
    for entry in entries {
        let path = entry.map_err(|e| named(folder, e))?.path();
        let bytes = std::fs::read(&path).map_err(|e| named(&path, e))?;
        found.push((path, bytes));
    }
    found.sort();
    Ok(found)
}
