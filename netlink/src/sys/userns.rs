//! `ioctl(2)` and `getsockopt(2)` for namespaces: the user namespace that owns a namespace, the network namespace of a socket,
//! and its cookie.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// The user namespace that owns a namespace: `ioctl(fd, NS_GET_USERNS)`. Since 4.9.
///
/// # Errors
/// `EPERM` if the owner is neither the caller's user namespace nor a descendant of it; `ENOTTY` if the descriptor is not a
/// namespace, or the kernel is older.
///
/// # References
/// `linux/nsfs.h`, `ioctl_ns(2)`.
pub(crate) fn owning_user_namespace(fd: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    // SAFETY: ioctl(2) is variadic, so libc cannot offer it as a safe function. NS_GET_USERNS takes no third
    // argument and touches no memory of ours; `fd` is open for the length of the call.
    let owner = unsafe { libc::ioctl(fd.as_raw_fd(), libc::NS_GET_USERNS) };
    if owner < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just opened this descriptor for this call (close-on-exec, open_namespace() in fs/nsfs.c)
    // and no other code knows its number.
    Ok(unsafe { OwnedFd::from_raw_fd(owner) })
}

/// `SIOCGSKNS` of `linux/sockios.h`, on every architecture.
const SIOCGSKNS: u32 = 0x894C;

/// The network namespace that a socket was opened in: `ioctl(fd, SIOCGSKNS)`. Since 4.10.
///
/// # Errors
/// `EPERM` without CAP_NET_ADMIN over the namespace; `ENOTTY` when the kernel is older.
///
/// # References
/// `sock_ioctl` in net/socket.c, `open_related_ns` in fs/nsfs.c.
pub(crate) fn socket_network_namespace(socket: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    // SAFETY: ioctl(2) is variadic, so libc cannot offer it as a safe function. SIOCGSKNS takes no third argument and
    // touches no memory of ours; `socket` is open for the length of the call.
    let netns = unsafe { libc::ioctl(socket.as_raw_fd(), SIOCGSKNS as _) };
    if netns < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just opened this descriptor for this call (close-on-exec, open_related_ns() in
    // fs/nsfs.c) and no other code knows its number.
    Ok(unsafe { OwnedFd::from_raw_fd(netns) })
}

/// `SO_NETNS_COOKIE` of `asm-generic/socket.h`, which all architectures that Rust's `std` supports use except SPARC.
const SO_NETNS_COOKIE: libc::c_int = 71;

/// The cookie of the network namespace that a socket was opened in: `getsockopt(SO_NETNS_COOKIE)`. Since 5.14.
///
/// # Errors
/// `ENOPROTOOPT` when the kernel is older.
///
/// # References
/// `sk_getsockopt` in net/core/sock.c, `net_gen_cookie` in net/core/net_namespace.c.
pub(crate) fn socket_netns_cookie(socket: BorrowedFd<'_>) -> io::Result<u64> {
    let mut cookie = 0_u64;
    let mut length = libc::socklen_t::try_from(size_of::<u64>()).unwrap_or_default();
    // SAFETY: the kernel writes at most `length` bytes to `cookie`, which has that size, and the new length to `length`; both live
    // through the call, and `socket` is open for its length.
    let answer = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            SO_NETNS_COOKIE,
            (&raw mut cookie).cast(),
            &raw mut length,
        )
    };
    match answer {
        0 => Ok(cookie),
        _ => Err(io::Error::last_os_error()),
    }
}
