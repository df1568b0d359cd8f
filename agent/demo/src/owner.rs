//! Sockets with an owner: what `meta skuid` and `-m owner` look at.
//!
//! The kernel takes the owner of a packet from the credentials of the file that its
//! socket was opened as (`f_cred->fsuid`). `setfsuid(2)` changes those of one
//! thread, so a thread of its own opens the socket and nobody else's rights
//! change: no child, no `setuid` of the process.

use std::fmt;

use nix::unistd::{Gid, Uid, setfsgid, setfsuid};
use weir_netlink::Netns;
use weir_netlink::{Error, Result};

/// The user and the group that a socket is opened as.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Owner {
    /// `fsuid`.
    pub uid: u32,
    /// `fsgid`.
    pub gid: u32,
}

impl Owner {
    /// The mesh proxy: user and group 1337.
    pub const PROXY: Self = Self {
        uid: 1337,
        gid: 1337,
    };
    /// An application: user and group 1000.
    pub const APPLICATION: Self = Self {
        uid: 1000,
        gid: 1000,
    };
    /// The superuser.
    pub const ROOT: Self = Self { uid: 0, gid: 0 };

    /// Calls `f` in a namespace, on a thread that opens files as this owner.
    ///
    /// # Errors
    ///
    /// `EPERM` without `CAP_SETUID` and `CAP_SETGID`, or where the user namespace
    /// does not map the number; as [`Netns::run`].
    pub fn run<T: Send>(self, netns: &Netns, f: impl FnOnce() -> T + Send) -> Result<T> {
        netns.run(|| {
            self.become_it()?;
            Ok(f())
        })?
    }

    /// Makes the calling thread open sockets as this owner from now on. The group
    /// first: the calls answer with the number before, never with an
    /// error, so asking once more is the only way to know.
    pub(crate) fn become_it(self) -> Result<()> {
        let (uid, gid) = (Uid::from_raw(self.uid), Gid::from_raw(self.gid));
        setfsgid(gid);
        setfsuid(uid);
        if setfsgid(gid) == gid && setfsuid(uid) == uid {
            return Ok(());
        }
        Err(Error::kernel(
            "open sockets as",
            self.to_string(),
            nix::libc::EPERM,
        ))
    }
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.uid, self.gid)
    }
}
