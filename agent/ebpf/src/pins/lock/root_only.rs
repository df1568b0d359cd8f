//! The lock of a network namespace that only root can take: one byte of a file that only root can open (`F_OFD_SETLK`). The byte at
//! the inode of the namespace stands for it, so that one empty file is enough, which is never deleted.

use super::LOCK_TIME;
use crate::failed;
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, fcntl};
use nix::libc::{F_UNLCK, F_WRLCK, O_NOFOLLOW, SEEK_SET, flock};
use std::fs::File;
use std::io::ErrorKind;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use weir_netlink::{Error, Netns, Result};
use weir_rules::of_node::lock_file;

/// The file, which is in the directory of the lock of the iptables tools: of the node, also in a container that can access that.
pub(super) fn file() -> PathBuf {
    let beside = lock_file().unwrap_or_else(|| PathBuf::from("/run/xtables.lock"));
    beside.with_file_name("weir.lock")
}

/// A locked byte. It is unlocked explicitly; see [`super::Flock`].
#[derive(Debug)]
pub(super) struct RootOnly(File, i64);

impl RootOnly {
    /// Locks the namespace in the file at `path`; waits up to 10 s for another writer. `None`: the file cannot be made, for example in
    /// a container or without privileges; then no writer has this lock.
    ///
    /// # Errors
    /// Another writer holds the lock for longer; or the file cannot be opened or locked.
    pub(super) fn wait(path: &Path, netns: &Netns, object: &str) -> Result<Option<Self>> {
        let object = format!("{} for {object}", path.display());
        let mut options = File::options();
        let options = options.write(true).create(true).truncate(false);
        let file = match options.mode(0o600).custom_flags(O_NOFOLLOW).open(path) {
            Err(e) if is_not_made(e.kind()) => return Ok(None),
            opened => opened.map_err(|e| failed("open", &object, &e))?,
        };
        let byte = i64::try_from(netns.id().ino).unwrap_or(i64::MAX);
        let begun = Instant::now();
        loop {
            match set(&file, F_WRLCK, byte) {
                Ok(_) => return Ok(Some(Self(file, byte))),
                Err(Errno::EAGAIN | Errno::EACCES) => {}
                Err(e) => return Err(Error::kernel("lock", object, e as i32)),
            }
            if begun.elapsed() > LOCK_TIME {
                let reason = "another command of weir, or an agent, changes that namespace; try again when it has ended";
                return Err(Error::exhausted("lock", object, reason.to_owned()));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for RootOnly {
    fn drop(&mut self) {
        // The file is closed in any case.
        let _ = set(&self.0, F_UNLCK, self.1);
    }
}

fn is_not_made(kind: ErrorKind) -> bool {
    matches!(
        kind,
        ErrorKind::NotFound
            | ErrorKind::PermissionDenied
            | ErrorKind::ReadOnlyFilesystem
            | ErrorKind::StorageFull
    )
}

fn set(file: &File, kind: i32, byte: i64) -> nix::Result<i32> {
    let lock = flock {
        l_type: i16::try_from(kind).unwrap_or_default(),
        l_whence: i16::try_from(SEEK_SET).unwrap_or_default(),
        l_start: byte,
        l_len: 1,
        l_pid: 0,
    };
    fcntl(file, FcntlArg::F_OFD_SETLK(&lock))
}
