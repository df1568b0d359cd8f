//! The directory of the throwaway node. Its lock is held as long as its process lives: the next demonstration recognizes
//! the directory of a killed one, also across PID namespaces.

use super::redirection::step;
use nix::libc::{O_NOFOLLOW, O_NONBLOCK};
use nix::unistd::geteuid;
use std::fs::{DirBuilder, File, Metadata, OpenOptions};
use std::io::{ErrorKind, Read, Result, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

const PREFIX: &str = "weir-demo-";
const LOCK: &str = "lock";

/// The directory; removed on drop.
#[derive(Debug)]
pub(super) struct Scratch {
    dir: PathBuf,
    lock: Option<File>,
}

impl Scratch {
    /// The path of the directory of this process.
    pub(super) fn path_of_own() -> PathBuf {
        std::env::temp_dir().join(format!("{PREFIX}{}", std::process::id()))
    }

    /// Creates it, for this user alone.
    ///
    /// # Errors
    /// `EEXIST` if there is one of that name; those of mkdir(2) and open(2).
    pub(super) fn create() -> Result<Self> {
        let dir = Self::path_of_own();
        DirBuilder::new().mode(0o700).create(&dir)?;
        let mut made = Self { dir, lock: None };
        let unlocked = made.dir.join("lock.new");
        let mut lock = File::create_new(&unlocked)?;
        lock.write_all(content(&made.dir).as_bytes())?;
        lock.lock()?;
        // The file never has this name without being locked, unless its process has ended.
        std::fs::rename(&unlocked, made.dir.join(LOCK))?;
        made.lock = Some(lock);
        Ok(made)
    }

    pub(super) fn path(&self) -> &Path {
        &self.dir
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        remove(&self.dir);
    }
}

/// The content of the lock file.
fn content(dir: &Path) -> String {
    let name = dir.file_name().unwrap_or_default();
    format!("{}\n", name.to_string_lossy())
}

fn remove(dir: &Path) {
    match std::fs::remove_dir_all(dir) {
        Err(e) if e.kind() != ErrorKind::NotFound => {
            step(&format!("cannot remove {}: {e}; delete it", dir.display()));
        }
        _ => {}
    }
}

/// Removes the directories of killed demonstrations, and nothing that may be something else.
pub(super) fn remove_left() {
    // A directory that cannot be read is reported when it is needed.
    let list = std::fs::read_dir(std::env::temp_dir());
    for path in list.into_iter().flatten().flatten().map(|e| e.path()) {
        if let Some(_lock) = lock_of_killed(&path) {
            step(&format!(
                "remove {}, which a killed demonstration left",
                path.display()
            ));
            remove(&path);
        }
    }
}

/// Takes the lock of a directory whose process has ended. `None`: it has not, or the directory is not certainly one of ours.
fn lock_of_killed(path: &Path) -> Option<File> {
    let name = path.file_name()?.to_str()?;
    let pid = name.strip_prefix(PREFIX)?;
    let is_pid = !pid.is_empty() && pid.bytes().all(|b| b.is_ascii_digit());
    let is_own = |meta: &Metadata| meta.uid() == geteuid().as_raw() && meta.mode() & 0o022 == 0;
    let meta = std::fs::symlink_metadata(path).ok()?;
    if !(is_pid && meta.is_dir() && is_own(&meta)) {
        return None;
    }
    let mut options = OpenOptions::new();
    let options = options.read(true).custom_flags(O_NOFOLLOW | O_NONBLOCK);
    let lock = options.open(path.join(LOCK)).ok()?;
    let meta = lock.metadata().ok()?;
    let (expected, mut text) = (content(path), String::new());
    let most = u64::try_from(expected.len() + 1).ok()?;
    (&lock).take(most).read_to_string(&mut text).ok()?;
    let is_ours = meta.is_file() && is_own(&meta) && text == expected;
    (is_ours && lock.try_lock().is_ok()).then_some(lock)
}
