//! A socket of one protocol: the common part of requests, dumps and batches.

mod dump;
mod many;
mod request;

pub(crate) use many::{Answers, Refused};
pub use request::Request;

use crate::contention::{deadline, left_for_exchange};
use crate::message::{Datagram, Protocol, Sent};
use crate::transport::{NetlinkSocket, Patience, Transport};
use crate::{Error, Result};
use std::cell::Cell;
use std::io;
use std::marker::PhantomData;
use std::time::Instant;

/// Size of the receive buffer of a thread in bytes. Datagrams of a dump have at most 32 KiB; an error repeats the refused
/// message, whose largest attribute has at most 64 KiB.
const RECEIVE_BUFFER: usize = 128 * 1024;
/// Initial size of the kernel's buffers of every socket in bytes; a larger datagram enlarges them.
const DEFAULT_SOCKET_BUFFER: usize = 128 * 1024;

/// How many lost answers are skipped to find a refusal after them. The kernel reports each loss once.
const LOSSES: usize = 16;
/// How many datagrams left by an earlier request are skipped before the socket is replaced by a new one.
const PASSED_OVER: usize = 64;
/// Upper bound of an answer in bytes: 256 MiB, more than any ruleset that is used on a node.
const ANSWER: usize = 256 << 20;
/// How many consecutive signals may interrupt the wait for one datagram.
const INTERRUPTIONS: usize = 256;

thread_local! {
    /// Receive buffer of all sockets of the thread; empty until first used. A program may have sockets in each of many
    /// namespaces, and opens several per pod one after another: they share the mapped pages.
    static BUFFER: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// A netlink socket for one protocol, in the network namespace of the thread that opened it. One exchange at a time.
#[derive(Debug)]
pub struct Socket<T, P> {
    transport: T,
    /// The last sequence number that was used. No two messages of a socket have the same number, so a late answer is never
    /// mistaken for the answer to another request.
    seq: u32,
    /// True if a request was sent and its answer was not read completely.
    unread: bool,
    /// True if a dump lost a datagram. If the kernel had no memory for the next one (`netlink_dump()`), the dump remains unfinished
    /// with nothing queued: no read continues it, and the kernel refuses every other dump on the socket (`EBUSY`).
    lost: bool,
    /// The largest size that was reserved; a reopened socket gets it too.
    room: usize,
    patience: Patience,
    protocol: PhantomData<P>,
}

/// Start of an exchange, and its time limits.
#[derive(Clone, Copy, Debug)]
struct Deadline {
    begun: Instant,
    patience: Patience,
}

impl Deadline {
    /// Deadline of the next datagram.
    fn next(&self) -> Instant {
        let left = self.patience.whole.saturating_sub(self.begun.elapsed());
        deadline(self.patience.silence.min(left))
    }

    fn is_over(&self) -> bool {
        self.begun.elapsed() >= self.patience.whole
    }

    /// Converts `e`; a timeout has its own error kind.
    fn error(&self, operation: &str, what: &str, e: &io::Error) -> Error {
        match e.kind() {
            io::ErrorKind::TimedOut => Error::timed_out(operation, what, self.begun.elapsed()),
            _ => Error::io(operation, what, e),
        }
    }
}

impl<P: Protocol> Socket<NetlinkSocket, P> {
    /// A socket over [`NetlinkSocket::open`].
    ///
    /// # Errors
    /// As [`NetlinkSocket::open`].
    pub fn open() -> Result<Self> {
        Ok(Self::with_transport(NetlinkSocket::open::<P>()?))
    }
}

impl<T: Transport, P> Socket<T, P> {
    /// Uses another transport.
    pub fn with_transport(transport: T) -> Self {
        Self {
            transport,
            seq: 0,
            unread: false,
            lost: false,
            room: 0,
            patience: Patience::default(),
            protocol: PhantomData,
        }
    }

    /// Sets other deadlines for every exchange.
    #[must_use]
    pub fn patience(mut self, patience: Patience) -> Self {
        self.patience = patience;
        self
    }

    /// Replaces this socket by a new one in the same network namespace, with the same limits and buffer sizes: answers
    /// that are still pending on the old one are discarded with it.
    ///
    /// # Errors
    /// As [`Transport::reopen`] and [`Socket::reserve`].
    pub fn reopen(&mut self) -> Result<()> {
        *self = self.twin()?;
        Ok(())
    }

    /// A new socket of the same kind.
    pub(crate) fn twin(&self) -> Result<Self> {
        let mut twin = Self::with_transport(self.transport.reopen()?).patience(self.patience);
        if self.room > 0 {
            twin.reserve(self.room)?;
        }
        Ok(twin)
    }

    /// Enlarges the socket's buffers for answers of this size in bytes, for use after `ENOBUFS`. Never shrinks them.
    ///
    /// # Errors
    /// As `setsockopt(2)`.
    pub fn reserve(&mut self, bytes: usize) -> Result<()> {
        self.reserve_for(bytes, "answers")
    }

    fn reserve_for(&mut self, bytes: usize, what: &str) -> Result<()> {
        let fail = |e| Error::io("enlarge the socket buffer for", what, &e);
        self.transport.reserve(bytes).map_err(fail)?;
        self.room = self.room.max(bytes);
        Ok(())
    }

    /// Assigns sequence numbers to the messages of a datagram and sends it. An error of the send is not final: if the kernel
    /// answers, the datagram was sent.
    pub(crate) fn post(
        &mut self,
        operation: &str,
        datagram: Datagram<P>,
        what: &str,
    ) -> Result<(Sent, Option<Error>)> {
        // This must be first: it may reopen the socket, which starts with new sequence numbers and buffers.
        self.read_leftovers(operation, what)?;
        let first = self.numbers(datagram.len());
        let sent = datagram
            .finish(first)
            .map_err(|e| Error::malformed("write", what, e.to_string()))?;
        if sent.bytes.len() > DEFAULT_SOCKET_BUFFER / 2 {
            self.reserve_for(sent.bytes.len(), what)?;
        }
        self.unread = true;
        let fail = |e: io::Error| Error::io(operation, what, &e);
        let unsent = self.transport.send(&sent.bytes).map_err(fail).err();
        Ok((sent, unsent))
    }

    /// The first of `n` unused sequence numbers; the kernel uses 0 for unsolicited messages.
    fn numbers(&mut self, n: usize) -> u32 {
        let n = u32::try_from(n).unwrap_or(u32::MAX);
        let (first, last) = match self.seq.checked_add(n) {
            Some(last) => (self.seq.saturating_add(1), last),
            None => (1, n),
        };
        self.seq = last;
        first
    }

    /// Reads the remaining answers to an earlier request: while a dump is unfinished, the kernel starts no other (`EBUSY`).
    fn read_leftovers(&mut self, operation: &str, what: &str) -> Result<()> {
        let fail = |e: io::Error| Error::io(operation, what, &e);
        let mut passed_over = 0;
        while self.unread {
            // Reading a queued datagram of an unfinished dump makes the kernel continue it; closing the socket ends it.
            if self.lost || passed_over == PASSED_OVER {
                return self.reopen();
            }
            match self.receive_queued().map_err(|e| (e.raw_os_error(), e)) {
                Ok(_) | Err((Some(libc::EMSGSIZE), _)) => passed_over += 1,
                Err((Some(libc::ENOBUFS), _)) => self.lost = true,
                Err((_, e)) if e.kind() == io::ErrorKind::WouldBlock => self.unread = false,
                Err((_, e)) => return Err(fail(e)),
            }
        }
        Ok(())
    }

    fn deadline(&self) -> Deadline {
        Deadline {
            begun: Instant::now(),
            patience: Patience {
                whole: left_for_exchange(self.patience.whole),
                ..self.patience
            },
        }
    }

    /// Receives the next datagram of an exchange; `ETIMEDOUT` if none arrives in time.
    fn receive(&mut self, deadline: &Deadline) -> io::Result<Vec<u8>> {
        let timed_out = || io::Error::from(io::ErrorKind::TimedOut);
        if deadline.is_over() {
            return Err(timed_out());
        }
        match self.receive_until(deadline.next()) {
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => Err(timed_out()),
            other => other,
        }
    }

    /// Receives a datagram that is already queued; `EAGAIN` if there is none.
    fn receive_queued(&mut self) -> io::Result<Vec<u8>> {
        self.receive_until(Instant::now())
    }

    fn receive_until(&mut self, until: Instant) -> io::Result<Vec<u8>> {
        for _ in 0..INTERRUPTIONS {
            let wait = until.saturating_duration_since(Instant::now());
            let mut buf = BUFFER.take();
            if buf.is_empty() {
                // Zeroed pages (calloc), not touched until the kernel writes to them; `resize` would write all of them.
                buf = vec![0; RECEIVE_BUFFER];
            }
            let received = self.transport.receive(&mut buf, wait).and_then(|n| {
                // A truncated datagram is reported as EMSGSIZE, never used.
                let cut = || io::Error::from_raw_os_error(libc::EMSGSIZE);
                buf.get(..n).map(<[u8]>::to_vec).ok_or_else(cut)
            });
            BUFFER.set(buf);
            match received {
                // `until` is absolute, so an interruption does not extend the wait.
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                received => return received,
            }
        }
        Err(io::Error::from_raw_os_error(libc::EINTR))
    }
}
