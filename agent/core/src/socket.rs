//! The file of a listening Unix socket of this process.

use nix::fcntl::OFlag;
use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};
use nix::unistd::Pid;
use socket2::{Domain, SockAddr, Socket, Type};
use std::fs::{File, Metadata, OpenOptions, symlink_metadata};
use std::io::{Error, ErrorKind, Result};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

/// The reason why a path does not lead to the file any more.
pub const REPLACED: &str = "another process put something in its place";

/// The file of a bound socket. It is held open: a file system may reuse the inode number of a deleted file immediately, and both
/// files may have the same timestamp.
#[derive(Debug)]
pub struct SocketFile(File);

impl SocketFile {
    /// Returns the file that this process has bound at the path and listens at. Another process may have put its own there since:
    /// a connection shows to whose socket the file belongs. It ends before it is accepted.
    ///
    /// # Errors
    /// The file belongs to another process, or to none ([`REPLACED`]); or one of open(2) or connect(2).
    pub fn bound_at(path: &Path) -> Result<Self> {
        let flags = (OFlag::O_PATH | OFlag::O_NOFOLLOW).bits();
        let mut options = OpenOptions::new();
        let file = options.read(true).custom_flags(flags).open(path)?;
        let client = Socket::new(Domain::UNIX, Type::STREAM, None)?;
        client.set_nonblocking(true)?;
        let open = format!("/proc/self/fd/{}", file.as_raw_fd());
        match client.connect(&SockAddr::unix(open)?) {
            Ok(()) if getsockopt(&client, PeerCredentials)?.pid() == Pid::this().as_raw() => {}
            // Full of connections already.
            Err(e) if e.kind() == ErrorKind::WouldBlock => {}
            Err(e) if e.kind() != ErrorKind::ConnectionRefused => return Err(e),
            Ok(()) | Err(_) => return Err(Error::other(REPLACED)),
        }
        Ok(Self(file))
    }

    /// Returns true if the path leads to this file. A symbolic link at its end is not followed.
    ///
    /// # Errors
    /// One of stat(2): `ENOENT` if there is no file.
    pub fn is_at(&self, path: &Path) -> Result<bool> {
        let id = |of: Metadata| (of.dev(), of.ino());
        Ok(id(symlink_metadata(path)?) == id(self.0.metadata()?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixListener;

    /// It was taken for the agent's own, and the path was never bound again.
    #[test]
    fn the_file_of_another_socket_is_not_taken_for_ours() {
        let dir = weir_testing::TempDir::new();
        let (path, beside) = (dir.file("socket"), dir.file("beside"));
        let ours = UnixListener::bind(&path).unwrap();
        let file = SocketFile::bound_at(&path).unwrap();
        assert!(file.is_at(&path).unwrap());
        // Nothing comes from the connection by which it is known.
        let (client, _) = ours.accept().unwrap();
        assert_eq!(std::io::read_to_string(client).unwrap(), "");
        weir_testing::sockets::left_over(&beside);
        std::fs::rename(&beside, &path).unwrap();
        let why = SocketFile::bound_at(&path).unwrap_err();
        assert_eq!(why.to_string(), REPLACED);
        assert!(!file.is_at(&path).unwrap());
    }
}
