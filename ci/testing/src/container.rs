//! Mounts as in a container, for the remaining lifetime of the calling thread.

use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use std::path::Path;

/// Gives the calling thread its own private mount namespace.
fn own_mounts() -> nix::Result<()> {
    unshare(CloneFlags::CLONE_NEWNS)?;
    let none = None::<&str>;
    mount(none, "/", none, MsFlags::MS_PRIVATE | MsFlags::MS_REC, none)
}

/// Makes `of` and everything in it read-only for the calling thread.
///
/// # Errors
/// `EPERM` for an unprivileged user.
pub fn read_only(of: &Path) -> nix::Result<()> {
    own_mounts()?;
    let none = None::<&str>;
    mount(Some(of), of, none, MsFlags::MS_BIND, none)?;
    let again = MsFlags::MS_BIND | MsFlags::MS_REMOUNT | MsFlags::MS_RDONLY;
    mount(none, of, none, again, none)
}

/// Makes `of` empty and read-only for the calling thread.
///
/// # Errors
/// As [`read_only`].
pub fn empty(of: &Path) -> nix::Result<()> {
    own_mounts()?;
    mount(
        Some("none"),
        of,
        Some("tmpfs"),
        MsFlags::MS_RDONLY,
        None::<&str>,
    )
}
