//! Atomic file operations.

use super::unfinished::Unfinished;
use nix::fcntl::{PosixFadviseAdvice, posix_fadvise};
use std::fs::{File, Metadata};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, fchown};
use std::path::Path;
pub(super) use weir_cni::files::{exists, is_absence, read as read_bytes, read_text};

/// Maximum size in bytes of a copied program. The plugin has at most 4 MiB, upstream's 60: a larger file is a mistake, and
/// could fill the node's disk.
pub(super) const LARGEST: u64 = 256 << 20;
/// Number of bytes copied between two checks for a signal.
const CHUNK: u64 = 4 << 20;

/// Returns true to cancel an operation; called between chunks.
pub(super) type Stop<'a> = &'a dyn Fn() -> bool;

/// Metadata that identifies a state of a file without reading it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stamp {
    device: u64,
    inode: u64,
    size: u64,
    mode: u32,
    /// `ctime` in seconds and nanoseconds, which the kernel updates at every change.
    changed: (i64, i64),
}

impl Stamp {
    /// Calls `stat(2)`. `None` if there is no such file.
    #[must_use]
    pub fn of(path: &Path) -> Option<Self> {
        std::fs::metadata(path).ok().map(|meta| Self::from(&meta))
    }
}

impl From<&Metadata> for Stamp {
    fn from(meta: &Metadata) -> Self {
        Self {
            device: meta.dev(),
            inode: meta.ino(),
            size: meta.size(),
            mode: meta.mode(),
            changed: (meta.ctime(), meta.ctime_nsec()),
        }
    }
}

/// Replaces a file: writes a new one next to it, syncs and renames it. If this fails, the old file is unchanged. A symbolic
/// link is replaced too, as by upstream's installer, and its target is left alone: it may be outside of the directory, where
/// no file is expected, and cannot be replaced atomically through the link. Returns the stamp of the written file, whatever
/// is at the path by now.
///
/// # Errors
/// A file cannot be created beside it, written, synced or renamed.
pub fn replace(path: &Path, bytes: &[u8], mode: u32) -> io::Result<Stamp> {
    let (unfinished, mut file) = Unfinished::beside(path)?;
    file.write_all(bytes)?;
    unfinished.finish(file, mode)
}

/// As [`replace`], with owner and group of the file `like` if this process may change them. `still` is called after the sync,
/// right before the rename: another writer may have replaced the source of the content in the meantime. Returns its result.
pub(super) fn replace_if(
    path: &Path,
    bytes: &[u8],
    mode: u32,
    like: Option<&Path>,
    still: impl FnOnce() -> bool,
) -> io::Result<bool> {
    let (unfinished, mut file) = Unfinished::beside(path)?;
    file.write_all(bytes)?;
    if let Some(Ok(of)) = like.map(std::fs::metadata) {
        // Istio's manifest does not grant CAP_CHOWN; the file then keeps our owner.
        let _ = fchown(&file, Some(of.uid()), Some(of.gid()));
    }
    Ok(unfinished.finish_if(file, mode, still)?.is_some())
}

/// Copies a file of at most [`LARGEST`] bytes in the same way. Returns `None` if `stop` cancelled the copy. Drops both files
/// from the page cache, which counts as memory of the agent's container.
pub(super) fn copy(
    source: &Path,
    target: &Path,
    mode: u32,
    stop: Stop<'_>,
) -> io::Result<Option<Stamp>> {
    let from = File::open(source)?;
    let (unfinished, file) = Unfinished::beside(target)?;
    if !copy_chunks(&from, &file, stop)? {
        return Ok(None);
    }
    let stamp = unfinished.finish(file, mode)?;
    forget(&from);
    Ok(Some(stamp))
}

fn copy_chunks(mut from: &File, mut to: &File, stop: Stop<'_>) -> io::Result<bool> {
    let mut left = LARGEST + 1;
    while !stop() {
        let copied = io::copy(&mut Read::take(&mut from, left.min(CHUNK)), &mut to)?;
        left -= copied;
        match (copied, left) {
            (_, 0) => return Err(too_large()),
            (0, _) => return Ok(true),
            _ => {}
        }
    }
    Ok(false)
}

pub(super) fn too_large() -> io::Error {
    let why = format!(
        "it has more than {} MiB, the maximum size of a copied program; remove it from the image, or make it smaller",
        LARGEST >> 20
    );
    io::Error::new(io::ErrorKind::FileTooLarge, why)
}

/// Returns the stamp of `b`, taken before the comparison, if two files have the same content; `None` also if `stop` cancelled
/// the comparison.
pub(super) fn same_bytes(a: &Path, b: &Path, stop: Stop<'_>) -> io::Result<Option<Stamp>> {
    let (mut a, mut b) = (File::open(a)?, File::open(b)?);
    let meta = b.metadata()?;
    let same = a.metadata()?.len() == meta.len() && same_content(&mut a, &mut b, stop)?;
    forget(&a);
    forget(&b);
    Ok(same.then(|| Stamp::from(&meta)))
}

fn same_content(a: &mut File, b: &mut File, stop: Stop<'_>) -> io::Result<bool> {
    let (mut left, mut right) = (vec![0; 64 << 10], vec![0; 64 << 10]);
    loop {
        if stop() {
            return Ok(false);
        }
        let n = a.read(&mut left)?;
        let (Some(left), Some(right)) = (left.get(..n), right.get_mut(..n)) else {
            return Ok(false);
        };
        match b.read_exact(right) {
            Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => return Ok(false),
            other => other?,
        }
        if left != right {
            return Ok(false);
        }
        if n == 0 {
            return Ok(true);
        }
    }
}

/// Syncs the directory, so that the new name is on disk too. If that fails, the rename is still atomic.
pub(super) fn sync_dir(path: &Path) {
    if let Some(Ok(dir)) = path.parent().map(File::open) {
        let _ = dir.sync_all();
    }
}

pub(super) fn forget(file: &File) {
    // The call is only advice to the kernel.
    let _ = posix_fadvise(file, 0, 0, PosixFadviseAdvice::POSIX_FADV_DONTNEED);
}

/// Removes a file, if it exists. Returns true if it did.
pub(super) fn remove(path: &Path) -> io::Result<bool> {
    match std::fs::remove_file(path) {
        Ok(()) => {
            sync_dir(path);
            Ok(true)
        }
        // A read-only file system refuses before it looks whether there is such a file.
        Err(_) if is_missing(path) => Ok(false),
        Err(e) => Err(e),
    }
}

fn is_missing(path: &Path) -> bool {
    std::fs::symlink_metadata(path).is_err_and(|e| is_absence(&e))
}

/// Returns the permission bits of a file.
pub(super) fn mode(path: &Path) -> io::Result<u32> {
    Ok(std::fs::metadata(path)?.mode() & 0o7777)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    #[test]
    fn a_copy_stops_between_chunks_and_leaves_nothing() {
        let dir = std::env::temp_dir().join(format!("weir-copy-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let (source, target) = (dir.join("source"), dir.join("target"));
        let file = File::create(&source).unwrap();
        file.set_len(3 * CHUNK).unwrap();
        std::fs::write(&target, "the old one").unwrap();
        for (after, done) in [(0, false), (1, false), (3, false), (4, true)] {
            let asked = Cell::new(0);
            let stop = || asked.replace(asked.get() + 1) >= after;
            let copied = copy(&source, &target, 0o755, &stop).unwrap();
            assert_eq!(copied.is_some(), done, "{after}");
            assert!(copied.is_none() || copied == Stamp::of(&target), "{after}");
            let old = std::fs::metadata(&target).unwrap().len() < CHUNK;
            assert_eq!(old, !done, "{after}");
            assert_eq!(std::fs::read_dir(&dir).unwrap().count(), 2, "{after}");
        }
        let same = same_bytes(&source, &target, &|| false).unwrap();
        assert!(same.is_some() && same == Stamp::of(&target));
        assert_eq!(same_bytes(&source, &target, &|| true).unwrap(), None);
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
