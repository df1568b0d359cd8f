//! Files that are whole at every moment.

use nix::fcntl::{PosixFadviseAdvice, posix_fadvise};
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
pub(super) use weir_cni::files::{read as read_bytes, read_text};

/// In the names of our unfinished configurations and kubeconfigs, so that nobody else's are removed.
const MARK: &str = ".tmp.weir-";

/// What tells one state of a file from another without reading it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stamp {
    device: u64,
    inode: u64,
    size: u64,
    mode: u32,
    /// Seconds and nanoseconds; the kernel sets it at every change.
    changed: (i64, i64),
}

impl Stamp {
    /// `stat(2)`; `None` when there is no such file.
    #[must_use]
    pub fn of(path: &Path) -> Option<Self> {
        let meta = std::fs::metadata(path).ok()?;
        Some(Self {
            device: meta.dev(),
            inode: meta.ino(),
            size: meta.size(),
            mode: meta.mode(),
            changed: (meta.ctime(), meta.ctime_nsec()),
        })
    }
}

/// Replaces a file: written beside it, synced, renamed. When this fails the old file is as it was.
pub(crate) fn replace(path: &Path, bytes: &[u8], mode: u32) -> io::Result<()> {
    let (tmp, mut file) = create_beside(path, MARK)?;
    let written = file
        .write_all(bytes)
        .and_then(|()| finish(&file, mode))
        .and_then(|()| std::fs::rename(&tmp, path));
    if let Err(error) = written {
        let _ = std::fs::remove_file(&tmp);
        return Err(error);
    }
    sync_dir(path);
    Ok(())
}

/// Copies a file in the same way. Of neither file anything stays in the page cache: it counts as memory of
/// the agent's container.
pub(super) fn copy(source: &Path, target: &Path, mode: u32) -> io::Result<()> {
    let mut from = File::open(source)?;
    let (tmp, mut file) = create_beside(target, ".tmp.")?;
    let written = io::copy(&mut from, &mut file)
        .and_then(|_| finish(&file, mode))
        .and_then(|()| std::fs::rename(&tmp, target));
    if let Err(error) = written {
        let _ = std::fs::remove_file(&tmp);
        return Err(error);
    }
    sync_dir(target);
    forget(&from);
    forget(&file);
    Ok(())
}

/// Whether two files have the same bytes.
pub(super) fn same_bytes(a: &Path, b: &Path) -> io::Result<bool> {
    let (mut a, mut b) = (File::open(a)?, File::open(b)?);
    let same = a.metadata()?.len() == b.metadata()?.len() && same_content(&mut a, &mut b)?;
    forget(&a);
    forget(&b);
    Ok(same)
}

fn same_content(a: &mut File, b: &mut File) -> io::Result<bool> {
    let (mut left, mut right) = (vec![0; 64 << 10], vec![0; 64 << 10]);
    loop {
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

/// A file of its own name in the same directory, for its owner alone.
fn create_beside(path: &Path, mark: &str) -> io::Result<(PathBuf, File)> {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    loop {
        let mut name = path.file_name().unwrap_or_default().to_owned();
        let n = COUNT.fetch_add(1, Ordering::Relaxed);
        name.push(format!("{mark}{}-{n}", std::process::id()));
        let tmp = path.with_file_name(name);
        let made = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&tmp);
        match made {
            // Of an agent that was killed and had the same process id, as the first of a container has.
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => std::fs::remove_file(&tmp)?,
            other => return Ok((tmp, other?)),
        }
    }
}

fn finish(file: &File, mode: u32) -> io::Result<()> {
    file.set_permissions(std::fs::Permissions::from_mode(mode))?;
    file.sync_all()
}

/// The new name must be on the disk too. Where a directory cannot be synced the rename is still atomic.
fn sync_dir(path: &Path) {
    if let Some(Ok(dir)) = path.parent().map(File::open) {
        let _ = dir.sync_all();
    }
}

fn forget(file: &File) {
    // Only advice.
    let _ = posix_fadvise(file, 0, 0, PosixFadviseAdvice::POSIX_FADV_DONTNEED);
}

/// Removes what an agent that was killed left unfinished beside `path`; the failures come back.
pub(super) fn remove_unfinished(path: &Path) -> Vec<String> {
    remove_beginning_with(path, MARK)
}

/// The same for programs, whose unfinished copies may also be those of another installer.
pub(super) fn remove_unfinished_copies(path: &Path) -> Vec<String> {
    remove_beginning_with(path, ".tmp.")
}

fn remove_beginning_with(path: &Path, mark: &str) -> Vec<String> {
    let (Some(dir), Some(name)) = (path.parent(), path.file_name()) else {
        return Vec::new();
    };
    let start = format!("{}{mark}", name.to_string_lossy());
    let Ok(entries) = std::fs::read_dir(dir) else {
        return Vec::new();
    };
    let leftovers = entries
        .flatten()
        .filter(|e| e.file_name().to_string_lossy().starts_with(&start));
    leftovers
        .filter_map(|e| {
            let failed = std::fs::remove_file(e.path()).err()?;
            Some(format!(
                "unfinished {} cannot be removed: {failed}",
                e.path().display()
            ))
        })
        .collect()
}

/// Removes a file; absent is done. Says whether it was there.
pub(super) fn remove(path: &Path) -> io::Result<bool> {
    match std::fs::remove_file(path) {
        Ok(()) => {
            sync_dir(path);
            Ok(true)
        }
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(e) => Err(e),
    }
}

/// The permission bits of a file.
pub(super) fn mode(path: &Path) -> io::Result<u32> {
    Ok(std::fs::metadata(path)?.mode() & 0o7777)
}
