//! The plugin's log file on the node.

use std::fs::{File, OpenOptions};
use std::io::{Error, ErrorKind, Result, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use nix::fcntl::OFlag;

/// A file of this size is renamed to the backup.
pub const SIZE_LIMIT: u64 = 10 << 20;
/// Time for which the only backup is kept after its last line.
pub const KEEP_BACKUP: Duration = Duration::from_secs(2 * 24 * 3600);

/// A log file that many short processes append to.
///
/// Size and age are checked when the file is opened: a process writes only a few lines. The backup is `NAME.1`.
#[derive(Debug)]
pub struct RollingFile {
    file: File,
}

impl RollingFile {
    /// Opens the file for appending (mode 0600), and rolls over a full file first.
    ///
    /// # Errors
    /// The error of `open(2)` or `rename(2)`.
    pub fn open(path: &Path) -> Result<Self> {
        let backup = backup(path);
        let old = |meta: std::fs::Metadata| {
            let age = meta
                .modified()
                .ok()
                .and_then(|t| SystemTime::now().duration_since(t).ok());
            age.is_some_and(|age| age > KEEP_BACKUP)
        };
        if std::fs::metadata(&backup).is_ok_and(old) {
            // Another process may have rolled the file over already.
            let _ = std::fs::remove_file(&backup);
        }
        let file = append(path)?;
        if file.metadata()?.len() < SIZE_LIMIT {
            return Ok(Self { file });
        }
        // Only the process that holds the lock renames the file, and only the file that it locked: otherwise two processes
        // could overwrite the backup with an empty file.
        let inode = file.metadata()?.ino();
        // Closing the file unlocks it.
        if file.try_lock().is_ok() && std::fs::metadata(path).is_ok_and(|meta| meta.ino() == inode)
        {
            std::fs::rename(path, &backup)?;
        }
        Ok(Self {
            file: append(path)?,
        })
    }

    /// Appends one line in one `write(2)`, so that lines of several processes do not interleave.
    ///
    /// # Errors
    /// The error of `write(2)`.
    pub fn append(&mut self, line: &str) -> Result<()> {
        self.file.write_all(line.as_bytes())
    }
}

/// Opens the plugin's own file. Does not follow a symbolic link, which may lead to any file of the node, and does not
/// block on a pipe without a reader.
fn append(path: &Path) -> Result<File> {
    let flags = OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK | OFlag::O_NOCTTY;
    let file = OpenOptions::new()
        .append(true)
        .create(true)
        .mode(0o600)
        .custom_flags(flags.bits())
        .open(path)?;
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(Error::new(ErrorKind::InvalidInput, "it is not a file")),
    }
}

fn backup(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".1");
    name.into()
}
