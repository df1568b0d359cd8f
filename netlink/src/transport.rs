//! The transport of datagrams to and from the kernel.
//!
//! [`Transport`] is a trait, so that tests can inject answers that no kernel gives on demand.

use crate::contention::deadline;
use crate::message::Protocol;
use crate::{Error, Netns, Result, sys};
use neli::consts::socket::{Msg, NlFamily};
use neli::socket::NlSocket;
use neli::utils::Groups;
use nix::sys::socket::{MsgFlags, NetlinkAddr, getsockopt, recvmsg, setsockopt, sockopt};
use nix::sys::time::TimeVal;
use std::io::{self, IoSliceMut};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::time::{Duration, Instant};

/// Deadlines of an exchange with the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patience {
    /// Time until the next datagram of an answer. The kernel handles a request during the send and queues the answer in
    /// the socket's buffer, so silence means that the answer was lost.
    pub silence: Duration,
    /// Time until the end of the whole answer: a dump that grows while it is read must end, too.
    pub whole: Duration,
}

impl Default for Patience {
    /// Ten and thirty seconds: a dump of 64 MiB takes less than one second.
    fn default() -> Self {
        Self {
            silence: Duration::from_secs(10),
            whole: Duration::from_secs(30),
        }
    }
}

/// A transport of datagrams to and from the kernel.
pub trait Transport {
    /// Sends one datagram. The kernel handles it before this returns.
    ///
    /// # Errors
    /// As `sendmsg(2)`; `EMSGSIZE` if the datagram is larger than the send buffer: the kernel accepted nothing.
    fn send(&self, datagram: &[u8]) -> io::Result<()>;

    /// Receives one datagram and returns its full length, which exceeds the length of `buf` if the datagram was truncated.
    ///
    /// # Errors
    /// As `recvmsg(2)`; `EAGAIN` if no datagram arrives within `wait`; `ENOBUFS` if the kernel had to drop answers.
    fn receive(&self, buf: &mut [u8], wait: Duration) -> io::Result<usize>;

    /// Enlarges the socket's buffers for a datagram of this size in bytes and the answers to it. Never shrinks them.
    ///
    /// # Errors
    /// As `setsockopt(2)`.
    fn reserve(&self, _bytes: usize) -> io::Result<()> {
        Ok(())
    }

    /// Another transport of the same type in the same network namespace, without pending answers or an unfinished
    /// dump.
    ///
    /// # Errors
    /// No transport can be opened in that namespace.
    fn reopen(&self) -> Result<Self>
    where
        Self: Sized;
}

/// An `AF_NETLINK` socket of the crate neli.
#[doc(alias = "AF_NETLINK")]
pub struct NetlinkSocket {
    socket: NlSocket,
    family: NlFamily,
}

impl std::fmt::Debug for NetlinkSocket {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Kernel")
            .field(&self.socket.as_raw_fd())
            .finish()
    }
}

impl NetlinkSocket {
    /// `socket(AF_NETLINK, SOCK_RAW, PROTOCOL)` with extended acks, in the network namespace of the calling thread.
    /// For `NETLINK_ROUTE` it enables strict dumps (`NETLINK_GET_STRICT_CHK`, since 4.20): the kernel then filters by table
    /// instead of sending everything.
    ///
    /// # Errors
    /// `EPROTONOSUPPORT` if the kernel has no such protocol (`CONFIG_NETFILTER_NETLINK`); `ENOPROTOOPT` for a routing socket
    /// on a kernel older than 4.20; `EMFILE` if the process has no free descriptor.
    pub fn open<P: Protocol>() -> Result<Self> {
        Self::of(NlFamily::from(P::NUMBER), P::NAME)
    }

    fn of(family: NlFamily, what: &str) -> Result<Self> {
        let fail = |e: io::Error| Error::io("open", what, &e);
        let socket = NlSocket::connect(family, None, Groups::empty()).map_err(fail)?;
        socket.enable_ext_ack(true).map_err(fail)?;
        if family == NlFamily::Route {
            socket.enable_strict_checking(true).map_err(fail)?;
        }
        Ok(Self { socket, family })
    }

    fn fd(&self) -> BorrowedFd<'_> {
        sys::borrow(&self.socket)
    }

    /// `setsockopt(NETLINK_ADD_MEMBERSHIP)` for each group.
    pub(crate) fn join(&self, groups: &[u32]) -> io::Result<()> {
        let groups = Groups::new_groups(groups);
        self.socket.add_mcast_membership(groups)
    }

    /// Receives one datagram of the kernel. Another process of the namespace with CAP_NET_ADMIN may also send to this socket;
    /// such a datagram is not an answer and is dropped (`None`).
    fn take(&self, buf: &mut [u8], flags: MsgFlags) -> io::Result<Option<usize>> {
        let mut parts = [IoSliceMut::new(buf)];
        let flags = flags | MsgFlags::MSG_TRUNC;
        let got = recvmsg::<NetlinkAddr>(self.socket.as_raw_fd(), &mut parts, None, flags)?;
        let is_kernel = got.address.is_some_and(|from| from.pid() == 0);
        Ok(is_kernel.then_some(got.bytes))
    }
}

impl AsFd for NetlinkSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd()
    }
}

/// How many datagrams of other processes are skipped before the next one of the kernel.
const FOREIGN: usize = 4096;

impl Transport for NetlinkSocket {
    fn send(&self, datagram: &[u8]) -> io::Result<()> {
        // The kernel accepts a netlink datagram as a whole or not at all, and without waiting for room: its socket has no
        // queue.
        self.socket.send(datagram, Msg::DONTWAIT).map(|_| ())
    }

    fn receive(&self, buf: &mut [u8], wait: Duration) -> io::Result<usize> {
        let until = deadline(wait);
        for _ in 0..FOREIGN {
            // The answer is nearly always queued already.
            let taken = match self.take(buf, MsgFlags::MSG_DONTWAIT) {
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                    let rest = until.saturating_duration_since(Instant::now());
                    if rest.is_zero() {
                        return Err(e);
                    }
                    // A timeout of zero would wait forever.
                    let micros = i64::try_from(rest.as_micros()).unwrap_or(i64::MAX).max(1);
                    let rest = TimeVal::new(micros / 1_000_000, micros % 1_000_000);
                    setsockopt(&self.fd(), sockopt::ReceiveTimeout, &rest)?;
                    match self.take(buf, MsgFlags::empty()) {
                        // The deadline is checked above.
                        Err(e) if e.kind() == io::ErrorKind::WouldBlock => None,
                        taken => taken?,
                    }
                }
                taken => taken?,
            };
            if let Some(length) = taken {
                return Ok(length);
            }
        }
        Err(io::Error::from_raw_os_error(libc::ENOBUFS))
    }

    fn reserve(&self, bytes: usize) -> io::Result<()> {
        // Twice the size, because the kernel also counts its own data structures.
        resize(self.fd(), bytes.saturating_mul(2))
    }

    fn reopen(&self) -> Result<Self> {
        let what = "another socket in the same network namespace";
        let fail = |e: io::Error| Error::io("open", what, &e);
        let open = || Self::of(self.family, what);
        let netns = Netns::from_fd(sys::socket_network_namespace(self.fd()).map_err(fail)?)?;
        // `setns(2)` needs a capability that a thread which is already in the namespace may lack.
        if Netns::current().is_ok_and(|own| own.id() == netns.id()) {
            return open();
        }
        netns.run(open)?
    }
}

/// Enlarges both buffers to `want` bytes; a larger buffer remains. `SO_*BUFFORCE` needs CAP_NET_ADMIN in the initial user
/// namespace; without it `net.core.wmem_max` is the limit, and a larger datagram is refused with `EMSGSIZE`.
fn resize(fd: BorrowedFd<'_>, want: usize) -> io::Result<()> {
    // socket(7): the kernel doubles the given value, and returns the doubled one.
    let there = want.saturating_mul(2);
    if getsockopt(&fd, sockopt::SndBuf)? < there
        && setsockopt(&fd, sockopt::SndBufForce, &want).is_err()
    {
        setsockopt(&fd, sockopt::SndBuf, &want)?;
    }
    if getsockopt(&fd, sockopt::RcvBuf)? < there
        && setsockopt(&fd, sockopt::RcvBufForce, &want).is_err()
    {
        setsockopt(&fd, sockopt::RcvBuf, &want)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::Netfilter;
    use nix::sys::socket::sendto;

    #[test]
    fn what_another_process_sends_is_no_answer() {
        let kernel = NetlinkSocket::open::<Netfilter>().unwrap();
        let other = NlSocket::connect(NlFamily::Netfilter, None, Groups::empty()).unwrap();
        let to = NetlinkAddr::new(kernel.socket.pid().unwrap(), 0);
        let message = [16_u32.to_ne_bytes(), [3, 0, 0, 0], [1, 0, 0, 0], [0; 4]].concat();
        let forge = || sendto(other.as_raw_fd(), &message, &to, MsgFlags::empty());
        match forge() {
            Ok(_) => {}
            Err(e @ (nix::Error::EPERM | nix::Error::ECONNREFUSED)) => {
                eprintln!("skipped: an unprivileged process cannot send to another: {e}");
                return;
            }
            Err(e) => panic!("{e}"),
        }
        let mut buf = [0; 64];
        for wait in [Duration::ZERO, Duration::from_millis(20)] {
            let begun = Instant::now();
            let error = kernel.receive(&mut buf, wait).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
            assert!(begun.elapsed() >= wait);
            forge().unwrap();
        }
    }

    #[test]
    fn room_is_never_lowered() {
        let kernel = NetlinkSocket::open::<Netfilter>().unwrap();
        let room = || {
            let send = getsockopt(&kernel.fd(), sockopt::SndBuf).unwrap();
            (send, getsockopt(&kernel.fd(), sockopt::RcvBuf).unwrap())
        };
        let before = room();
        kernel.reserve(1).unwrap();
        assert_eq!(room(), before);
        // Without CAP_NET_ADMIN in the initial namespace the default is the limit too.
        kernel.reserve(1 << 20).unwrap();
        let more = room();
        assert!(more.0 >= before.0 && more.1 >= before.1, "{more:?}");
        kernel.reserve(1 << 12).unwrap();
        assert_eq!(room(), more);
    }

    #[test]
    fn another_socket_is_opened_in_the_same_namespace() {
        let ns = match Netns::create() {
            Ok(ns) => ns,
            Err(e) => {
                assert!(e.is_permission(), "{e}");
                eprintln!("skipped: {e}");
                return;
            }
        };
        let kernel = ns.run(NetlinkSocket::open::<Netfilter>).unwrap().unwrap();
        let of = |k: &NetlinkSocket| {
            let fd = sys::socket_network_namespace(k.fd()).unwrap();
            Netns::from_fd(fd).unwrap().id()
        };
        // From a thread in another namespace, and from one in this namespace.
        assert_eq!(of(&kernel.reopen().unwrap()), ns.id());
        let again = ns.run(|| kernel.reopen().map(|k| of(&k))).unwrap();
        assert_eq!(again.unwrap(), ns.id());
    }
}
