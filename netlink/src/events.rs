//! Notifications: the messages that the kernel sends to the members of a multicast group.
//!
//! A blocking stream with a deadline, for a dedicated thread. In an async runtime, wait until the descriptor
//! ([`AsFd`]) is readable, then read with a deadline of zero until the queue is empty.

use crate::attr::DecodeError;
use crate::contention::deadline;
use crate::message::{
    Message, NLMSG_DONE, NLMSG_ERROR, NLMSG_NOOP, NLMSG_OVERRUN, Netfilter, Protocol, each,
};
use crate::nfnetlink::Reply;
use crate::transport::{NetlinkSocket, Transport};
use crate::{Error, Result};
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

const WHAT: &str = "notifications";
/// Size of the buffer in bytes. The kernel allocates a page or two per notification; a truncated one counts as lost.
const BUFFER: usize = 64 * 1024;
/// Maximum number of notifications that one call discards.
const DISCARDED: usize = 4096;

/// A protocol with notifications.
pub trait Notifies: Protocol {
    /// The value of one notification.
    type Event;

    /// Decodes one notification.
    ///
    /// # Errors
    /// The attributes do not match the declaration.
    fn event(kind: u16, flags: u16, payload: &[u8]) -> Result<Self::Event, DecodeError>;
}

impl Notifies for Netfilter {
    /// A message of a subsystem; the crate above decodes its attributes.
    type Event = Reply;

    fn event(kind: u16, flags: u16, payload: &[u8]) -> Result<Reply, DecodeError> {
        Message::of(kind, flags, payload)
    }
}

/// An item of the notification stream. Exhaustive: there is nothing between a notification and its loss.
#[derive(Clone, Debug, PartialEq, Eq)]
#[doc(alias = "NETLINK_ADD_MEMBERSHIP")]
pub enum Notification<E> {
    /// One notification.
    Event(E),
    /// Notifications were lost, `ENOBUFS`: read the whole state again. Notifications from before the loss may still
    /// follow.
    #[doc(alias = "ENOBUFS")]
    Overrun,
}

/// A stream of the notifications of some multicast groups, in the network namespace of the thread that opened it.
#[derive(Debug)]
#[doc(alias = "NETLINK_ADD_MEMBERSHIP")]
pub struct Events<P: Notifies, T: Transport = NetlinkSocket> {
    transport: T,
    buf: Vec<u8>,
    queue: VecDeque<Result<Notification<P::Event>>>,
}

impl<P: Notifies> Events<P> {
    /// `socket(AF_NETLINK, SOCK_RAW, PROTOCOL)` and `setsockopt(NETLINK_ADD_MEMBERSHIP)` for each group: `RTNLGRP_*`,
    /// `NFNLGRP_*`. Changes made after this returns are reported.
    ///
    /// # Errors
    /// As [`NetlinkSocket::open`]; `EINVAL` if the kernel has no such group; `EPERM` if the group needs a capability that the
    /// thread lacks.
    pub fn open(groups: &[u32]) -> Result<Self> {
        let kernel = NetlinkSocket::open::<P>()?;
        let fail = |e: io::Error| Error::io("listen to", format!("groups {groups:?}"), &e);
        kernel.join(groups).map_err(fail)?;
        Ok(Self::with_transport(kernel))
    }
}

impl<P: Notifies, T: Transport + AsFd> AsFd for Events<P, T> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.transport.as_fd()
    }
}

impl<P: Notifies, T: Transport> Events<P, T> {
    /// Uses another transport.
    pub fn with_transport(transport: T) -> Self {
        Self {
            transport,
            buf: Vec::new(),
            queue: VecDeque::new(),
        }
    }

    /// Enlarges the receive buffer to hold notifications of this many bytes, so that fewer notifications are lost.
    ///
    /// # Errors
    /// As `setsockopt(2)`.
    pub fn reserve(&self, bytes: usize) -> Result<()> {
        let fail = |e| Error::io("enlarge the socket buffer for", WHAT, &e);
        self.transport.reserve(bytes).map_err(fail)
    }

    /// Returns the next notification; `None` if none arrives within `wait`, which may be zero.
    ///
    /// # Errors
    /// A notification that cannot be decoded; the next call continues after it. As `recvmsg(2)`.
    pub fn next(&mut self, wait: Duration) -> Result<Option<Notification<P::Event>>> {
        let until = deadline(wait);
        loop {
            if let Some(next) = self.queue.pop_front() {
                return next.map(Some);
            }
            let rest = until.saturating_duration_since(Instant::now());
            if self.buf.is_empty() {
                // Zeroed pages, which take no memory until the kernel writes to them.
                self.buf = vec![0; BUFFER];
            }
            match self.transport.receive(&mut self.buf, rest) {
                Ok(n) if n > self.buf.len() => return Ok(Some(Notification::Overrun)),
                Ok(n) => self.take(n),
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                    // Free the buffer: a program may have one stream per network namespace, nearly all of them idle.
                    self.buf = Vec::new();
                    return Ok(None);
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted && !rest.is_zero() => {}
                Err(e) if e.raw_os_error() == Some(libc::ENOBUFS) => {
                    return Ok(Some(Notification::Overrun));
                }
                Err(e) => return Err(Error::io("read", WHAT, &e)),
            }
        }
    }

    /// Discards pending notifications without decoding them. Returns whether the state changed since the last call, or
    /// notifications were lost. It is cheaper than reading the state again to compare it.
    ///
    /// Stops after a bounded number of notifications; the remaining ones make the next call return `true`.
    ///
    /// # Errors
    /// As `recvmsg(2)`.
    pub fn discard(&mut self) -> Result<bool> {
        let mut any = !std::mem::take(&mut self.queue).is_empty();
        for _ in 0..DISCARDED {
            // Receiving one byte discards the whole datagram.
            match self.transport.receive(&mut [0], Duration::ZERO) {
                Ok(_) => any = true,
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => break,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) if e.raw_os_error() == Some(libc::ENOBUFS) => any = true,
                Err(e) => return Err(Error::io("read", WHAT, &e)),
            }
        }
        Ok(any)
    }

    /// Queues every message of a datagram.
    fn take(&mut self, length: usize) {
        let Self { buf, queue, .. } = self;
        let datagram = buf.get(..length).unwrap_or_default();
        let whole = each(datagram, WHAT, |m| {
            let event = match m.kind {
                NLMSG_NOOP | NLMSG_ERROR | NLMSG_DONE => return Ok(()),
                NLMSG_OVERRUN => Ok(Notification::Overrun),
                kind => P::event(kind, m.flags, m.payload)
                    .map(Notification::Event)
                    .map_err(|e| Error::malformed("read", WHAT, e)),
            };
            queue.push_back(event);
            Ok(())
        });
        queue.extend(whole.err().map(Err));
    }
}
