//! The system calls that no dependency offers as safe functions.
//!
//! # Safety
//!
//! Only this module and the crate weir-bpf may use `unsafe`. For every block below, these conditions hold:
//!
//! - a descriptor is passed as [`BorrowedFd`], so it is open during the call and nothing here closes it;
//! - memory that the kernel writes is owned by the calling function, is at least as large as the kernel was told, and
//!   is read only after the call reported how much of it is filled;
//! - no pointer outlives the call that it is passed to.
#![allow(unsafe_code)]

pub mod tuning;
mod userns;
pub mod xtables;

pub(crate) use userns::{owning_user_namespace, socket_netns_cookie, socket_network_namespace};

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use neli::socket::NlSocket;

/// The type of a namespace: `ioctl(fd, NS_GET_NSTYPE)`. Since 4.11.
///
/// Returns one of the `CLONE_NEW*` flags of `clone(2)`.
///
/// # Errors
/// `ENOTTY` if the descriptor is not a namespace, or the kernel is older.
///
/// # References
/// `linux/nsfs.h`, `ioctl_ns(2)`.
pub fn namespace_type(fd: BorrowedFd<'_>) -> io::Result<i32> {
    // SAFETY: ioctl(2) is variadic, so libc cannot offer it as a safe function.
    // NS_GET_NSTYPE takes no third argument and touches no memory of ours; `fd`
    // is open for the length of the call.
    let kind = unsafe { libc::ioctl(fd.as_raw_fd(), libc::NS_GET_NSTYPE) };
    if kind < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(kind)
    }
}

/// The descriptor of a neli socket, which exposes it only as a number.
///
/// The parameter is the socket itself rather than anything `AsRawFd`: a bare
/// number is `AsRawFd` too, and may be closed or -1.
#[must_use]
pub(crate) fn borrow(socket: &NlSocket) -> BorrowedFd<'_> {
    // SAFETY: neli has no AsFd. An NlSocket owns its descriptor, which is not -1,
    // and closes it only when it is dropped; the result borrows the socket, so it
    // cannot be used after that.
    unsafe { BorrowedFd::borrow_raw(socket.as_raw_fd()) }
}
