//! A socket of one protocol: what is common to requests, dumps and batches.

mod dump;
mod many;
mod request;

pub(crate) use many::{Answers, Refused};
pub use request::Request;

use crate::message::{Datagram, Protocol, Sent};
use crate::transport::{Kernel, Patience, Transport};
use crate::{Error, Result};
use std::io;
use std::marker::PhantomData;
use std::time::Instant;

/// Datagrams of a dump are at most 32 KiB; an error repeats the refused message, which one attribute of at
/// most 64 KiB dominates.
const RECEIVE_BUFFER: usize = 128 * 1024;
/// Every socket gets this much at once; a datagram above it asks for more.
const DEFAULT_SOCKET_BUFFER: usize = 128 * 1024;

/// How many lost answers are passed over to find a refusal behind them. The kernel reports each loss once.
const LOSSES: usize = 16;
/// How many datagrams that an earlier question left behind are passed over before the socket is given up for a fresh one.
const PASSED_OVER: usize = 64;
/// How many bytes answer one question: 256 MiB, more than any ruleset that a node works with.
const ANSWER: usize = 256 << 20;
/// How many signals in a row may interrupt the wait for one datagram.
const INTERRUPTIONS: usize = 256;

/// A netlink socket for one protocol, in the network namespace of the thread that opened it. One exchange at a time.
#[derive(Debug)]
pub struct Socket<T, P> {
    transport: T,
    buf: Vec<u8>,
    /// The last sequence number that was used. No two messages of a socket have the same, so that an
    /// answer which comes late is never taken for the answer to another question.
    seq: u32,
    /// A question was asked and its answer not read to the end.
    unread: bool,
    patience: Patience,
    protocol: PhantomData<P>,
}

/// When an exchange began, and how long it may take.
#[derive(Clone, Copy, Debug)]
struct Deadline {
    begun: Instant,
    patience: Patience,
}

impl Deadline {
    /// For the next datagram.
    fn next(&self) -> Instant {
        (Instant::now() + self.patience.silence).min(self.begun + self.patience.whole)
    }

    fn is_over(&self) -> bool {
        self.begun.elapsed() >= self.patience.whole
    }

    /// `e` in words; that nothing came has a kind of its own.
    fn error(&self, operation: &str, what: &str, e: &io::Error) -> Error {
        match e.kind() {
            io::ErrorKind::TimedOut => Error::timed_out(operation, what, self.begun.elapsed()),
            _ => Error::io(operation, what, e),
        }
    }
}

impl<P: Protocol> Socket<Kernel, P> {
    /// Over [`Kernel::open`].
    ///
    /// # Errors
    /// As there.
    pub fn open() -> Result<Self> {
        Ok(Self::with_transport(Kernel::open::<P>()?))
    }
}

impl<T: Transport, P> Socket<T, P> {
    /// On another transport.
    pub fn with_transport(transport: T) -> Self {
        Self {
            transport,
            buf: vec![0; RECEIVE_BUFFER],
            seq: 0,
            unread: false,
            patience: Patience::default(),
            protocol: PhantomData,
        }
    }

    /// With other limits of time for every exchange.
    #[must_use]
    pub fn patience(mut self, patience: Patience) -> Self {
        self.patience = patience;
        self
    }

    /// A new socket in the same network namespace takes the place of this one: answers that are still under way to
    /// the old one are gone with it.
    ///
    /// # Errors
    /// As [`Transport::reopen`].
    pub fn reopen(&mut self) -> Result<()> {
        *self = self.twin()?;
        Ok(())
    }

    /// The new socket, beside this one.
    pub(crate) fn twin(&self) -> Result<Self> {
        Ok(Self::with_transport(self.transport.reopen()?).patience(self.patience))
    }

    /// Makes room for answers of this size, after [`Error::errno`] was `ENOBUFS`.
    ///
    /// # Errors
    /// As `setsockopt(2)`.
    pub fn reserve(&mut self, bytes: usize) -> Result<()> {
        let fail = |e| Error::io("make room for", "answers", &e);
        self.transport.reserve(bytes).map_err(fail)
    }

    /// Every answer was read.
    fn settled(&mut self) {
        self.unread = false;
    }

    /// Gives the messages of a datagram their sequence numbers and sends it. What the error says may be wrong: if the
    /// kernel answers, it was sent.
    pub(crate) fn post(
        &mut self,
        operation: &str,
        datagram: Datagram<P>,
        what: &str,
    ) -> Result<(Sent, Option<Error>)> {
        let first = self.numbers(datagram.len());
        let sent = datagram
            .finish(first)
            .map_err(|e| Error::malformed("write", what, e.to_string()))?;
        if sent.bytes.len() > DEFAULT_SOCKET_BUFFER / 2 {
            let fail = |e| Error::io("make room for", what, &e);
            self.transport.reserve(sent.bytes.len()).map_err(fail)?;
        }
        let unsent = self.send(operation, &sent.bytes, what).err();
        Ok((sent, unsent))
    }

    /// The first of `n` sequence numbers that nobody has; 0 is what the kernel sends unasked.
    fn numbers(&mut self, n: usize) -> u32 {
        let n = u32::try_from(n).unwrap_or(u32::MAX);
        let (first, last) = match self.seq.checked_add(n) {
            Some(last) => (self.seq.saturating_add(1), last),
            None => (1, n),
        };
        self.seq = last;
        first
    }

    /// Sends, after what an earlier question left behind is read: while a dump is not at its end, the
    /// kernel begins no other (`EBUSY`).
    fn send(&mut self, operation: &str, datagram: &[u8], what: &str) -> Result<()> {
        let fail = |e: io::Error| Error::io(operation, what, &e);
        let mut losses = 0;
        let mut passed_over = 0;
        while self.unread {
            match self.receive_queued() {
                // To read a dump to its end is to make the kernel go on with it.
                Ok(_) if passed_over == PASSED_OVER => self.reopen()?,
                Ok(_) => passed_over += 1,
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => self.unread = false,
                Err(e)
                    if matches!(e.raw_os_error(), Some(libc::ENOBUFS | libc::EMSGSIZE))
                        && losses < LOSSES =>
                {
                    losses += 1;
                }
                Err(e) => return Err(fail(e)),
            }
        }
        self.unread = true;
        self.transport.send(datagram).map_err(fail)
    }

    fn deadline(&self) -> Deadline {
        Deadline {
            begun: Instant::now(),
            patience: self.patience,
        }
    }

    /// The next datagram of an exchange; `ETIMEDOUT` when none comes in time.
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

    /// A datagram that is there already; `EAGAIN` when there is none.
    fn receive_queued(&mut self) -> io::Result<Vec<u8>> {
        self.receive_until(Instant::now())
    }

    fn receive_until(&mut self, until: Instant) -> io::Result<Vec<u8>> {
        for _ in 0..INTERRUPTIONS {
            let wait = until.saturating_duration_since(Instant::now());
            match self.transport.receive(&mut self.buf, wait) {
                // The time that is over stays over.
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
                // A datagram larger than the buffer is cut off and its rest gone: never silently.
                Ok(n) => {
                    let cut = || io::Error::from_raw_os_error(libc::EMSGSIZE);
                    return self.buf.get(..n).map(<[u8]>::to_vec).ok_or_else(cut);
                }
            }
        }
        Err(io::Error::from_raw_os_error(libc::EINTR))
    }
}
