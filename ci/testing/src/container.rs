//! Mounts as a container has them, for the rest of the calling thread's life.

use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use std::path::Path;

/// Gives the calling thread mounts of its own, of which others see nothing.
fn own_mounts() -> nix::Result<()> {
    unshare(CloneFlags::CLONE_NEWNS)?;
    let none = None::<&str>;
    mount(none, "/", none, MsFlags::MS_PRIVATE | MsFlags::MS_REC, none)
}

/// `of` is read-only for the calling thread, with all that is in it.
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

/// `of` is empty and read-only for the calling thread.
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
