//! The owner of a network namespace: the user namespace that it was created in.

use std::os::fd::{AsFd, OwnedFd};

use nix::sys::stat::{fstat, stat};

use crate::{Error, Netns, Result, sys};

const OPERATION: &str = "find the owner of";
const OWN: &str = "/proc/thread-self/ns/user";
/// Maximum nesting of user namespaces (`create_user_ns()` in kernel/user_namespace.c: `level > 32`).
const DEEPEST: u32 = 33;

/// The user namespace that owns a network namespace, as seen from this thread. Exhaustive: these are all possible relations.
#[derive(Debug)]
pub enum Owner {
    /// The user namespace of this thread.
    Own,
    /// Another one, opened.
    Other(OwnedFd),
    /// Neither the user namespace of this thread nor a descendant of it, so it cannot be opened.
    OutOfSight,
}

impl Netns {
    /// The user namespace that owns the network namespace: `ioctl(NS_GET_USERNS)`.
    ///
    /// A container with a user namespace has a network namespace that this user namespace owns. A privileged process
    /// outside has every capability in it, but the kernel accepts some requests only from inside: in legacy tables the
    /// match `owner` with users or groups (`owner_check` in net/netfilter/xt_owner.c).
    ///
    /// A kernel before 4.9 does not report the owner; the result is then [`Owner::Own`].
    ///
    /// # Errors
    /// `/proc` is not mounted.
    pub fn owner(&self) -> Result<Owner> {
        let object = || format!("network namespace {}", self.id());
        let owner = match sys::owning_user_namespace(self.as_fd()) {
            Ok(owner) => owner,
            Err(e) => {
                return match e.raw_os_error() {
                    Some(libc::EPERM) => Ok(Owner::OutOfSight),
                    Some(libc::ENOTTY) => Ok(Owner::Own),
                    _ => Err(Error::io(OPERATION, object(), &e)),
                };
            }
        };
        Ok(match self.is_own(&owner)? {
            true => Owner::Own,
            false => Owner::Other(owner),
        })
    }

    /// Whether this is the user namespace of this thread.
    fn is_own(&self, user_ns: &OwnedFd) -> Result<bool> {
        let object = || format!("network namespace {}", self.id());
        let found = fstat(user_ns).map_err(|e| Error::kernel(OPERATION, object(), e as i32))?;
        let own = stat(OWN).map_err(|e| Error::kernel("read", OWN, e as i32))?;
        Ok((found.st_dev, found.st_ino) == (own.st_dev, own.st_ino))
    }

    /// Depth of the owner of the network namespace below the user namespace of this thread: 0 if they are the same, 1 for
    /// a direct child, as for a container with a user namespace, 2 for a child of that. `None` if the owner is not a
    /// descendant.
    ///
    /// An unprivileged user who calls `unshare(CLONE_NEWUSER | CLONE_NEWNET)` gets a network namespace that is one
    /// level deeper than the calling process.
    ///
    /// # Errors
    /// Before 4.9 the kernel does not report the owner (`ENOTTY`). `/proc` is not mounted.
    pub fn user_namespace_depth(&self) -> Result<Option<u32>> {
        let object = || format!("network namespace {}", self.id());
        let mut owner: Option<OwnedFd> = None;
        for depth in 0..=DEEPEST {
            let of = owner.as_ref().map_or_else(|| self.as_fd(), AsFd::as_fd);
            // The owner of a user namespace is its parent (userns_owner() in kernel/user_namespace.c).
            let above = match sys::owning_user_namespace(of) {
                Ok(above) => above,
                Err(e) if e.raw_os_error() == Some(libc::EPERM) => return Ok(None),
                Err(e) => return Err(Error::io(OPERATION, object(), &e)),
            };
            if self.is_own(&above)? {
                return Ok(Some(depth));
            }
            owner = Some(above);
        }
        Ok(None)
    }
}
