//! Sockets for requests to the legacy tables and `ip_set`: `getsockopt(2)` and `setsockopt(2)` with the structs of
//! `linux/netfilter_ipv4/ip_tables.h` and `linux/netfilter/ipset/ip_set.h`, which callers build and read.

mod inside;

pub use inside::REPLACE_INSIDE;

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

use nix::sys::socket::{AddressFamily, SockFlag, SockProtocol, SockType, socket};

/// `IPT_SO_SET_REPLACE` and `IP6T_SO_SET_REPLACE`.
const IPT_SO_SET_REPLACE: libc::c_int = 64;
/// `IPT_SO_SET_ADD_COUNTERS` and `IP6T_SO_SET_ADD_COUNTERS`.
const IPT_SO_SET_ADD_COUNTERS: libc::c_int = 65;
/// `SO_IP_SET`
const SO_IP_SET: libc::c_int = 83;
/// Offset in `struct ipt_replace` and `struct ip6t_replace` of `size`, the number of bytes of entries that follow.
const REPLACE_SIZE: usize = 40;
/// Offset of `num_counters`, the number of counters that the kernel may write.
const REPLACE_NUM_COUNTERS: usize = 84;
/// Offset of `counters`, the address that it writes them to.
const REPLACE_COUNTERS: usize = 88;
/// `sizeof(struct ipt_replace)`
const REPLACE_HEADER: usize = 96;
/// `sizeof(struct xt_counters)`
const XT_COUNTERS: usize = 16;

/// `socket(AF_INET or AF_INET6, SOCK_RAW, IPPROTO_RAW)`. It acts in the network namespace in which it was opened, from any
/// thread.
#[derive(Debug)]
#[doc(alias = "SO_GET_ENTRIES")]
pub struct RawSocket {
    fd: OwnedFd,
    is_v6: bool,
}

impl RawSocket {
    /// Opens a socket in the network namespace of the calling thread.
    ///
    /// # Errors
    /// `EPERM` without `CAP_NET_RAW`; `EAFNOSUPPORT` if the kernel lacks the family.
    pub fn open(is_v6: bool) -> io::Result<Self> {
        let family = match is_v6 {
            true => AddressFamily::Inet6,
            false => AddressFamily::Inet,
        };
        let (flags, protocol) = (SockFlag::SOCK_CLOEXEC, SockProtocol::Raw);
        let fd = socket(family, SockType::Raw, flags, protocol)?;
        Ok(Self { fd, is_v6 })
    }

    /// The level of the family's options.
    fn level(&self) -> libc::c_int {
        match self.is_v6 {
            true => libc::IPPROTO_IPV6,
            false => libc::IPPROTO_IP,
        }
    }

    /// `getsockopt(2)` of the legacy tables and of `ip_set`: sends the request in `value` and overwrites it with the answer.
    /// Returns the length of the answer in bytes.
    ///
    /// # Errors
    /// The errno of the kernel, such as `ENOPROTOOPT` if no module handles the option; `EINVAL` for options of other
    /// subsystems.
    pub fn get(&self, option: i32, value: &mut [u8]) -> io::Result<usize> {
        // Options of other subsystems may contain pointers.
        if !(64..=69).contains(&option) && (option != SO_IP_SET || self.is_v6) {
            return Err(io::Error::from_raw_os_error(libc::EINVAL));
        }
        let mut len = length(value)?;
        // SAFETY: libc takes a pointer and a length, which no safe function offers for these options. `value` is
        // ours alone during the call and `len` is its length; the kernel reads and writes at most that much, and
        // none of these requests holds a pointer.
        let done = unsafe {
            let (fd, value) = (self.fd.as_raw_fd(), value.as_mut_ptr().cast());
            libc::getsockopt(fd, self.level(), option, value, &raw mut len)
        };
        match done {
            0.. => Ok(len as usize),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// `setsockopt(IPT_SO_SET_REPLACE)`: replaces a whole table. `value` is a `struct ipt_replace` (or `ip6t_replace`) with its
    /// entries. The kernel writes the counters of the old entries to `counters`, 16 bytes each; this function writes their
    /// number and address to `value`.
    ///
    /// # Errors
    /// The errno of the kernel: `EAGAIN` if the table does not have as many entries as `counters` has room for.
    /// `EINVAL` if the size of `value` differs from the size stated in it.
    pub fn replace(&self, value: &mut [u8], counters: &mut [u8]) -> io::Result<()> {
        replace_request(value, counters)?;
        self.set(IPT_SO_SET_REPLACE, value)
        // The kernel wrote `number` counters, for which there is room: it was set just above, and from the
        // length of `counters`, which is ours alone during the call.
    }

    /// [`Self::replace`] from inside the user namespace that owns the network namespace: the kernel accepts the match `owner`
    /// only from a process in it. A child process makes the call. The socket may have been opened in another user namespace.
    ///
    /// # Errors
    /// As [`Self::replace`]; those of `setns(2)`: `EPERM` without `CAP_SYS_ADMIN` in that user namespace; those of `fork(2)`:
    /// `EAGAIN` if the limit of processes is reached. After an error without an errno, it is unknown whether the table was
    /// replaced, and `counters` are not those of the old table. `UnexpectedEof`: the child was killed, or missed the deadline
    /// and has exited since, so reading the table determines whether it was replaced. `TimedOut`: the child is still in the
    /// call after [`REPLACE_INSIDE`], and may replace the table at any time.
    ///
    /// # References
    /// `setns(2)`, `user_namespaces(7)`, `signal-safety(7)`.
    pub fn replace_inside(
        &self,
        user_ns: BorrowedFd<'_>,
        value: &mut [u8],
        counters: &mut [u8],
    ) -> io::Result<()> {
        replace_request(value, counters)?;
        inside::replace(self, user_ns, value, counters)
    }

    /// `setsockopt(IPT_SO_SET_ADD_COUNTERS)`: `value` is a `struct xt_counters_info` with its counters.
    ///
    /// # Errors
    /// The errno of the kernel: `EINVAL` if the table does not have as many entries.
    pub fn add_counters(&self, value: &[u8]) -> io::Result<()> {
        self.set(IPT_SO_SET_ADD_COUNTERS, value)
    }

    /// `setsockopt(2)`. It is private because a request to replace a table holds a pointer, which only [`Self::replace`] and
    /// [`Self::replace_inside`] may set.
    fn set(&self, option: libc::c_int, value: &[u8]) -> io::Result<()> {
        let len = length(value)?;
        // SAFETY: libc takes a pointer and a length, which no safe function offers for these options. The kernel
        // reads `len` bytes of `value`, which is borrowed for the call; before Linux 6.9 it reads as many as a request to
        // replace a table states itself, which `replace_request` has compared with its length. The one pointer in it is set
        // there, to memory that is borrowed for the call, with the number of counters that fit there.
        let done = unsafe {
            let (fd, value) = (self.fd.as_raw_fd(), value.as_ptr().cast());
            libc::setsockopt(fd, self.level(), option, value, len)
        };
        match done {
            0.. => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

/// Writes the number and the address of the counters to a `struct ipt_replace`, whose size must equal the size stated in it.
fn replace_request(value: &mut [u8], counters: &mut [u8]) -> io::Result<()> {
    let invalid = || io::Error::from_raw_os_error(libc::EINVAL);
    let number = u32::try_from(counters.len() / XT_COUNTERS).map_err(|_| invalid())?;
    let size = value.get(REPLACE_SIZE..).and_then(<[u8]>::first_chunk);
    let size = u32::from_ne_bytes(*size.ok_or_else(invalid)?) as usize;
    if value.len().checked_sub(REPLACE_HEADER) != Some(size) {
        return Err(invalid());
    }
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

fn length(value: &[u8]) -> io::Result<libc::socklen_t> {
    libc::socklen_t::try_from(value.len()).map_err(|_| io::Error::from_raw_os_error(libc::EINVAL))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Before Linux 6.9 the kernel reads as many bytes as a request states, even beyond the end of its memory.
    #[test]
    fn a_request_of_another_size_than_it_states_is_refused() {
        let refused = |len: usize, stated: u32| {
            let mut value = vec![0; len];
            if let Some(size) = value.get_mut(REPLACE_SIZE..REPLACE_SIZE + 4) {
                size.copy_from_slice(&stated.to_ne_bytes());
            }
            let done = replace_request(&mut value, &mut [0; XT_COUNTERS]);
            done.err().and_then(|e| e.raw_os_error())
        };
        for (len, stated) in [(96, 0), (104, 8)] {
            assert_eq!(refused(len, stated), None, "{len}, {stated}");
        }
        for (len, stated) in [
            (0, 0),
            (43, 0),
            (95, 0),
            (96, 8),
            (104, 0),
            (104, 9),
            (96, u32::MAX),
        ] {
            assert_eq!(refused(len, stated), Some(libc::EINVAL), "{len}, {stated}");
        }
    }
}
