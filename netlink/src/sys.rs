//! The system calls that no dependency offers as safe functions.
//!
//! # Safety
//!
//! This is the only module of the workspace that may say `unsafe`. For every
//! block below these hold:
//!
//! - a descriptor comes in as [`BorrowedFd`], so it is open during the call and
//!   nothing here closes it;
//! - memory that the kernel writes is owned by the calling function, at least as
//!   large as the kernel was told, and is read only after the call said how much
//!   of it is filled;
//! - no pointer outlives the call that it is passed to.
#![allow(unsafe_code)]

pub mod bpf;
mod inside;
mod random;
mod userns;

pub use inside::{XT_REPLACE_INSIDE, xt_replace_inside};
pub use random::{SEED_BYTES, random_seed};
pub(crate) use userns::{owning_user_namespace, socket_network_namespace};

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

use neli::socket::NlSocket;

/// One heap for all threads, grown in large steps: `mallopt(3)`. To be called before any thread is started.
///
/// A command or a plugin call is one short process with one worker thread at a time. glibc would give that
/// thread a heap of its own, and grow and shrink it by single pages, which costs such a process more system calls
/// than its work does. Large blocks, as the buffers that sockets receive into, are mapped one by one: most of such
/// a buffer is never written to, and a page that nobody touches costs nothing. Small blocks are merged when they are
/// freed and not kept in lists, which glibc would merge all at once with every larger block that is freed: a
/// twentieth of the time of a long listing. Without effect on another C library.
pub fn one_heap() {
    #[cfg(target_env = "gnu")]
    // SAFETY: mallopt(3) is an `extern` function that takes two integers and touches no memory of ours. It is not
    // thread-safe, which is why the caller has no other thread yet; a value it refuses changes nothing.
    unsafe {
        libc::mallopt(libc::M_ARENA_MAX, 1);
        libc::mallopt(libc::M_TOP_PAD, 1 << 20);
        libc::mallopt(libc::M_TRIM_THRESHOLD, 2 << 20);
        libc::mallopt(libc::M_MMAP_THRESHOLD, 64 << 10);
        libc::mallopt(libc::M_MXFAST, 0);
    }
}

/// The kind of a namespace: `ioctl(fd, NS_GET_NSTYPE)`.
///
/// The answer is one of the `CLONE_NEW*` flags of `clone(2)`.
///
/// # Errors
///
/// `ENOTTY` when the descriptor is not a namespace, or the kernel is older than
/// 4.11.
///
/// # References
///
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

/// The descriptor of a neli socket, which offers it only as a number.
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

/// `IPT_SO_SET_REPLACE` and `IP6T_SO_SET_REPLACE`.
const IPT_SO_SET_REPLACE: libc::c_int = 64;
/// `IPT_SO_SET_ADD_COUNTERS` and `IP6T_SO_SET_ADD_COUNTERS`.
const IPT_SO_SET_ADD_COUNTERS: libc::c_int = 65;
/// `SO_IP_SET`
const SO_IP_SET: libc::c_int = 83;
/// Where `struct ipt_replace` and `struct ip6t_replace` say how many counters the kernel may write.
const REPLACE_NUM_COUNTERS: usize = 84;
/// Where they say where to.
const REPLACE_COUNTERS: usize = 88;
/// `sizeof(struct xt_counters)`
const XT_COUNTERS: usize = 16;

/// A socket that the legacy tables are asked through: `socket(AF_INET or AF_INET6, SOCK_RAW, IPPROTO_RAW)`.
///
/// # Errors
///
/// `EPERM` without CAP_NET_RAW; `EAFNOSUPPORT` without that protocol.
pub fn raw_socket(is_v6: bool) -> io::Result<OwnedFd> {
    use nix::sys::socket::{AddressFamily, SockFlag, SockProtocol, SockType, socket};
    let family = if is_v6 {
        AddressFamily::Inet6
    } else {
        AddressFamily::Inet
    };
    let socket = socket(
        family,
        SockType::Raw,
        SockFlag::SOCK_CLOEXEC,
        SockProtocol::Raw,
    )?;
    Ok(socket)
}

/// The level that a family's options belong to.
fn xt_level(is_v6: bool) -> libc::c_int {
    if is_v6 {
        libc::IPPROTO_IPV6
    } else {
        libc::IPPROTO_IP
    }
}

/// `getsockopt(2)` of the legacy tables and of `ip_set`: reads the request in `value` and writes the answer
/// over it. The result is the answer's length.
///
/// # Errors
///
/// What the kernel answers; `EINVAL` for options that are not of those two.
///
/// # References
///
/// `linux/netfilter_ipv4/ip_tables.h`, `linux/netfilter/ipset/ip_set.h`.
pub fn xt_get(fd: BorrowedFd<'_>, is_v6: bool, option: i32, value: &mut [u8]) -> io::Result<usize> {
    // Options of others may hold pointers.
    if !(64..=69).contains(&option) && (option != SO_IP_SET || is_v6) {
        return Err(io::Error::from_raw_os_error(libc::EINVAL));
    }
    let mut len = length(value)?;
    // SAFETY: libc takes a pointer and a length, which no safe function offers for these options. `value` is
    // ours alone during the call and `len` is its length; the kernel reads and writes at most that much, and
    // none of these requests holds a pointer.
    let done = unsafe {
        libc::getsockopt(
            fd.as_raw_fd(),
            xt_level(is_v6),
            option,
            value.as_mut_ptr().cast(),
            &raw mut len,
        )
    };
    if done < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(len as usize)
    }
}

/// `setsockopt(IPT_SO_SET_REPLACE)`: a whole new table. `value` is a `struct ipt_replace` with its entries;
/// the counters of the entries before are written to `counters`, 16 bytes each, and their number and
/// address to `value`.
///
/// # Errors
///
/// What the kernel answers: `EAGAIN` when the table does not have as many entries as `counters` has room
/// for. `EINVAL` when `value` is too short.
///
/// # References
///
/// `linux/netfilter_ipv4/ip_tables.h`.
pub fn xt_replace(
    fd: BorrowedFd<'_>,
    is_v6: bool,
    value: &mut [u8],
    counters: &mut [u8],
) -> io::Result<()> {
    replace_request(value, counters)?;
    xt_set(fd, is_v6, IPT_SO_SET_REPLACE, value)
    // The kernel wrote `number` counters, for which there is room: it was set just above, and from the
    // length of `counters`, which is ours alone during the call.
}

/// Puts the number and the address of the counters into a `struct ipt_replace`.
fn replace_request(value: &mut [u8], counters: &mut [u8]) -> io::Result<()> {
    let invalid = || io::Error::from_raw_os_error(libc::EINVAL);
    let number = u32::try_from(counters.len() / XT_COUNTERS).map_err(|_| invalid())?;
    let mut put = |at: usize, bytes: &[u8]| -> io::Result<()> {
        let field = value.get_mut(at..at + bytes.len()).ok_or_else(invalid)?;
        field.copy_from_slice(bytes);
        Ok(())
    };
    put(REPLACE_NUM_COUNTERS, &number.to_ne_bytes())?;
    put(
        REPLACE_COUNTERS,
        &counters.as_mut_ptr().expose_provenance().to_ne_bytes(),
    )?;
    Ok(())
}

/// `setsockopt(IPT_SO_SET_ADD_COUNTERS)`: `value` is a `struct xt_counters_info` with its counters.
///
/// # Errors
///
/// What the kernel answers: `EINVAL` when the table does not have as many entries.
pub fn xt_add_counters(fd: BorrowedFd<'_>, is_v6: bool, value: &[u8]) -> io::Result<()> {
    xt_set(fd, is_v6, IPT_SO_SET_ADD_COUNTERS, value)
}

/// Private: a request to replace a table holds a pointer, which only [`xt_replace`] and
/// [`xt_replace_inside`] may set.
fn xt_set(fd: BorrowedFd<'_>, is_v6: bool, option: libc::c_int, value: &[u8]) -> io::Result<()> {
    let len = length(value)?;
    // SAFETY: libc takes a pointer and a length, which no safe function offers for these options. The kernel
    // reads `len` bytes of `value`, which is borrowed for the call. The one pointer in it is set by
    // `xt_replace`, to memory that is borrowed for the call, with the number of counters that fit there.
    let done = unsafe {
        libc::setsockopt(
            fd.as_raw_fd(),
            xt_level(is_v6),
            option,
            value.as_ptr().cast(),
            len,
        )
    };
    if done < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}

fn length(value: &[u8]) -> io::Result<libc::socklen_t> {
    libc::socklen_t::try_from(value.len()).map_err(|_| io::Error::from_raw_os_error(libc::EINVAL))
}
