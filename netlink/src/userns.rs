//! Whose a network namespace is: the user namespace that it was made in.

use std::os::fd::{AsFd, OwnedFd};

use nix::sys::stat::{fstat, stat};

use crate::{Error, Netns, Result, sys};

const OPERATION: &str = "find the owner of";
const OWN: &str = "/proc/thread-self/ns/user";
/// User namespaces lie in each other at most this deep (`create_user_ns()` in kernel/user_namespace.c: `level > 32`).
const DEEPEST: u32 = 33;

/// The user namespace that a network namespace belongs to, seen from this thread.
#[derive(Debug)]
pub enum Owner {
    /// That of this thread.
    Own,
    /// Another one, open.
    Other(OwnedFd),
    /// Neither ours nor one below ours: it cannot be opened.
    OutOfSight,
}

impl Netns {
    /// The user namespace that it belongs to.
    ///
    /// That of a Kubernetes pod with `hostUsers: false` is one of its own. A process outside has every right in it,
    /// but the kernel takes some things only from inside: in legacy tables the match `owner` with users or groups
    /// (`owner_check` in net/netfilter/xt_owner.c).
    ///
    /// Before 4.9 the kernel does not tell; then the answer is [`Owner::Own`].
    ///
    /// # Errors
    /// `/proc` is not there.
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
        let found = fstat(&owner).map_err(|e| Error::kernel(OPERATION, object(), e as i32))?;
        let own = stat(OWN).map_err(|e| Error::kernel("read", OWN, e as i32))?;
        let is_own = (found.st_dev, found.st_ino) == (own.st_dev, own.st_ino);
        Ok(if is_own {
            Owner::Own
        } else {
            Owner::Other(owner)
        })
    }

    /// Whether it belongs to the user namespace of this thread.
    ///
    /// # Errors
    /// As [`Netns::owner`].
    pub fn is_of_own_user_namespace(&self) -> Result<bool> {
        Ok(matches!(self.owner()?, Owner::Own))
    }

    /// How many user namespaces lie between the one of this thread and the owner of the network namespace: 0 when
    /// they are the same, 1 for one that was made right below ours, as a runtime does for a Kubernetes pod with
    /// `hostUsers: false`, 2 for one that was made below that. `None`: the owner is outside of what we can see.
    ///
    /// An ordinary user who calls `unshare(CLONE_NEWUSER | CLONE_NEWNET)` gets a network namespace that is one level
    /// deeper than the process that called.
    ///
    /// # Errors
    /// Before 4.9 the kernel does not tell (`ENOTTY`). `/proc` is not there.
    pub fn user_namespace_depth(&self) -> Result<Option<u32>> {
        let object = || format!("network namespace {}", self.id());
        let own = stat(OWN).map_err(|e| Error::kernel("read", OWN, e as i32))?;
        let mut owner: Option<OwnedFd> = None;
        for depth in 0..=DEEPEST {
            let of = owner.as_ref().map_or_else(|| self.as_fd(), AsFd::as_fd);
            // Of a user namespace the owner is its parent (userns_owner() in kernel/user_namespace.c).
            let above = match sys::owning_user_namespace(of) {
                Ok(above) => above,
                Err(e) if e.raw_os_error() == Some(libc::EPERM) => return Ok(None),
                Err(e) => return Err(Error::io(OPERATION, object(), &e)),
            };
            let seen = fstat(&above).map_err(|e| Error::kernel(OPERATION, object(), e as i32))?;
            if (seen.st_dev, seen.st_ino) == (own.st_dev, own.st_ino) {
                return Ok(Some(depth));
            }
            owner = Some(above);
        }
        Ok(None)
    }
}
