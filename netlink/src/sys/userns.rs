//! `ioctl(2)` on a namespace: which user namespace it belongs to.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// The user namespace that owns a namespace: `ioctl(fd, NS_GET_USERNS)`. Since 4.9.
///
/// # Errors
///
/// `EPERM` when the owner is outside of the caller's user namespace and those below it; `ENOTTY` when the
/// descriptor is not a namespace, or the kernel is older.
///
/// # References
///
/// `linux/nsfs.h`, `ioctl_ns(2)`.
pub fn owning_user_namespace(fd: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    // SAFETY: ioctl(2) is variadic, so libc cannot offer it as a safe function. NS_GET_USERNS takes no third
    // argument and touches no memory of ours; `fd` is open for the length of the call.
    let owner = unsafe { libc::ioctl(fd.as_raw_fd(), libc::NS_GET_USERNS) };
    if owner < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just opened this descriptor for us (close-on-exec, open_namespace() in fs/nsfs.c)
    // and nobody else knows its number.
    Ok(unsafe { OwnedFd::from_raw_fd(owner) })
}
