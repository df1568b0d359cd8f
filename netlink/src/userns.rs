//! Whose a network namespace is: the user namespace that it was made in.

use std::os::fd::AsFd;

use nix::sys::stat::{fstat, stat};

use crate::{Error, Netns, Result, sys};

const OPERATION: &str = "find the owner of";
const OWN: &str = "/proc/thread-self/ns/user";

impl Netns {
    /// Whether it belongs to the user namespace of this thread.
    ///
    /// The network namespace of a Kubernetes pod with `hostUsers: false` does not. A process outside has every
    /// right in it, but the kernel takes some things only from inside: in legacy tables the match `owner`
    /// with users or groups (`owner_check` in net/netfilter/xt_owner.c).
    ///
    /// Before 4.9 the kernel does not tell; then the answer is yes.
    ///
    /// # Errors
    /// `/proc` is not there.
    pub fn is_of_own_user_namespace(&self) -> Result<bool> {
        let object = || format!("network namespace {}", self.id());
        let owner = match sys::owning_user_namespace(self.as_fd()) {
            Ok(owner) => owner,
            Err(e) => {
                return match e.raw_os_error() {
                    // Further out than we can see.
                    Some(libc::EPERM) => Ok(false),
                    Some(libc::ENOTTY) => Ok(true),
                    _ => Err(Error::io(OPERATION, object(), &e)),
                };
            }
        };
        let owner = fstat(&owner).map_err(|e| Error::kernel(OPERATION, object(), e as i32))?;
        let own = stat(OWN).map_err(|e| Error::kernel("read", OWN, e as i32))?;
        Ok((owner.st_dev, owner.st_ino) == (own.st_dev, own.st_ino))
    }
}
