//! The socket: requests, dumps and batches.

use super::batch::{Batch, Failure};
use super::message::{
    self, NFGENMSG_LEN, NLM_F_ACK, NLM_F_DUMP, NLM_F_DUMP_INTR, NLMSG_DONE, NLMSG_ERROR,
    NLMSG_HDRLEN, NLMSG_OVERRUN, Received,
};
use super::reply::{Ack, Reply};
use crate::attr::{AttrSet, Writer};
use crate::{Error, Result};
use neli::consts::socket::{Msg, NlFamily};
use neli::socket::NlSocket;
use neli::utils::Groups;
use nix::sys::socket::{setsockopt, sockopt};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// What carries datagrams to the kernel and back.
pub trait Transport {
    /// Sends one datagram.
    ///
    /// # Errors
    /// As `sendmsg(2)`; `EMSGSIZE` when it is larger than the send buffer.
    fn send(&self, datagram: &[u8]) -> io::Result<()>;

    /// Receives one datagram and returns its true length, which is more than `buf` holds when it
    /// was cut off. Without `wait` it answers `EAGAIN` when there is none.
    ///
    /// # Errors
    /// As `recvmsg(2)`; `ENOBUFS` when the kernel had to drop answers.
    fn receive(&self, buf: &mut [u8], wait: bool) -> io::Result<usize>;

    /// Makes room for a datagram of this size, and for the answers to it.
    ///
    /// # Errors
    /// As `setsockopt(2)`.
    fn reserve(&self, _bytes: usize) -> io::Result<()> {
        Ok(())
    }
}

/// An `AF_NETLINK` socket, through neli.
pub struct Kernel {
    socket: NlSocket,
}

impl std::fmt::Debug for Kernel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Kernel")
            .field(&self.socket.as_raw_fd())
            .finish()
    }
}

impl Kernel {
    /// `socket(AF_NETLINK, SOCK_RAW, NETLINK_NETFILTER)` with extended acknowledgements, in the network
    /// namespace of the calling thread.
    ///
    /// # Errors
    /// `EPROTONOSUPPORT`: the kernel has no nfnetlink (`CONFIG_NETFILTER_NETLINK`).
    pub fn open() -> Result<Self> {
        let fail = |e: io::Error| Error::io("open", "an nfnetlink socket", &e);
        let socket = NlSocket::connect(NlFamily::Netfilter, None, Groups::empty()).map_err(fail)?;
        socket.enable_ext_ack(true).map_err(fail)?;
        Ok(Self { socket })
    }
}

impl Transport for Kernel {
    fn send(&self, datagram: &[u8]) -> io::Result<()> {
        // A netlink datagram is accepted whole or not at all.
        self.socket.send(datagram, Msg::empty()).map(|_| ())
    }

    fn receive(&self, buf: &mut [u8], wait: bool) -> io::Result<usize> {
        let flags = if wait {
            Msg::TRUNC
        } else {
            Msg::TRUNC | Msg::DONTWAIT
        };
        self.socket.recv(buf, flags).map(|(n, _)| n)
    }

    fn reserve(&self, bytes: usize) -> io::Result<()> {
        // The kernel counts its own bookkeeping too, hence twice the size.
        let want = bytes.saturating_mul(2);
        let fd = crate::sys::borrow(&self.socket);
        resize(fd, want)
    }
}

/// Raises both buffers. `SO_*BUFFORCE` needs CAP_NET_ADMIN in the initial namespace; without it
/// `net.core.wmem_max` is the limit, and a datagram above it will be refused with `EMSGSIZE`.
fn resize(fd: BorrowedFd<'_>, want: usize) -> io::Result<()> {
    if setsockopt(&fd, sockopt::SndBufForce, &want).is_err() {
        setsockopt(&fd, sockopt::SndBuf, &want)?;
    }
    if setsockopt(&fd, sockopt::RcvBufForce, &want).is_err() {
        setsockopt(&fd, sockopt::RcvBuf, &want)?;
    }
    Ok(())
}

/// Datagrams of a dump are at most 32 KiB; an error repeats the refused message, which one attribute of at
/// most 64 KiB dominates.
const RECEIVE_BUFFER: usize = 128 * 1024;
/// Every socket gets this much at once; a datagram above it asks for more.
const DEFAULT_SOCKET_BUFFER: usize = 128 * 1024;

/// How many times in a row lost answers are passed over. The kernel reports each loss once.
const OVERRUNS: usize = 16;

/// An nfnetlink socket in the network namespace of the thread that opened it.
#[derive(Debug)]
pub struct Socket<T: Transport = Kernel> {
    transport: T,
    buf: Vec<u8>,
    /// The last sequence number that was used. No two messages of a socket have the same, so that an
    /// answer which comes late is never taken for the answer to another question.
    seq: u32,
    /// A question was asked and its answer not read to the end.
    unread: bool,
}

impl Socket<Kernel> {
    /// Over [`Kernel::open`].
    ///
    /// # Errors
    /// As there.
    pub fn open() -> Result<Self> {
        Ok(Self::with_transport(Kernel::open()?))
    }
}

/// What an answer to one datagram can be.
pub(super) enum Answer {
    Object(Reply),
    Ack(u32, Ack),
    Done,
}

impl<T: Transport> Socket<T> {
    /// On another transport.
    pub fn with_transport(transport: T) -> Self {
        Self {
            transport,
            buf: vec![0; RECEIVE_BUFFER],
            seq: 0,
            unread: false,
        }
    }

    /// Every object that the kernel lists.
    ///
    /// # Errors
    /// `EINTR` when the list changed meanwhile: begin again ([`Error::errno`]); `ENOENT` and others
    /// as the kernel answers.
    pub fn dump<A: AttrSet>(
        &mut self,
        kind: u16,
        family: u8,
        attrs: &A,
        what: &str,
    ) -> Result<Vec<Reply>> {
        let mut replies = Vec::new();
        self.dump_each(kind, family, attrs, what, |reply| {
            replies.push(reply);
            Ok(())
        })?;
        Ok(replies)
    }

    /// The same, one object at a time, for lists that nobody wants to hold as a whole.
    ///
    /// # Errors
    /// As [`Socket::dump`], after `f` has seen what was listed; what `f` fails with.
    pub fn dump_each<A: AttrSet>(
        &mut self,
        kind: u16,
        family: u8,
        attrs: &A,
        what: &str,
        mut f: impl FnMut(Reply) -> Result<()>,
    ) -> Result<()> {
        let seq = self.request(kind, NLM_F_DUMP, family, attrs, what)?;
        let mut interrupted = false;
        let mut done = false;
        while !done {
            let datagram = self
                .receive(true)
                .map_err(|e| Error::io("list", what, &e))?;
            each(&datagram, what, |m| {
                if m.seq != seq {
                    return Ok(());
                }
                interrupted |= m.flags & NLM_F_DUMP_INTR != 0;
                match answer(m, what)? {
                    Answer::Object(reply) => f(reply)?,
                    Answer::Done => done = true,
                    Answer::Ack(_, ack) if ack.errno == 0 => done = true,
                    Answer::Ack(_, ack) => return Err(failed("list", what, ack)),
                }
                Ok(())
            })?;
        }
        self.settled();
        if interrupted {
            return Err(Error::kernel("list", what, libc::EINTR));
        }
        Ok(())
    }

    /// One object.
    ///
    /// # Errors
    /// As the kernel answers: `ENOENT` when there is none.
    pub fn get<A: AttrSet>(
        &mut self,
        kind: u16,
        family: u8,
        attrs: &A,
        what: &str,
    ) -> Result<Reply> {
        let seq = self.request(kind, NLM_F_ACK, family, attrs, what)?;
        let mut object = None;
        loop {
            let datagram = self
                .receive(true)
                .map_err(|e| Error::io("read", what, &e))?;
            let mut ack = None;
            each(&datagram, what, |m| {
                if m.seq == seq {
                    match answer(m, what)? {
                        Answer::Object(reply) => object = Some(reply),
                        Answer::Ack(_, a) => ack = Some(a),
                        Answer::Done => {}
                    }
                }
                Ok(())
            })?;
            self.unread &= ack.is_none();
            match (ack, object.take()) {
                (Some(a), _) if a.errno != 0 => return Err(failed("read", what, a)),
                (Some(_), Some(reply)) => return Ok(reply),
                (Some(_), None) => {
                    return Err(Error::malformed(
                        "read",
                        what,
                        "the kernel answered nothing",
                    ));
                }
                (None, found) => object = found,
            }
        }
    }

    /// Sends a batch and reads every answer to it. One without messages changes nothing, and comes back when a
    /// commit that somebody else is in the middle of is over: the subsystem has one lock for both.
    ///
    /// # Errors
    /// The inner error: what the kernel refused, in the order of the messages; nothing of the
    /// batch is in force then. The outer one: it could not be sent or understood.
    pub fn commit(&mut self, batch: Batch) -> Result<Result<(), Vec<Failure>>> {
        let what = "a batch";
        // Begin, the messages, end.
        let first = self.numbers(batch.len().saturating_add(2));
        let (datagram, index) = batch
            .datagram(first)
            .map_err(|e| Error::malformed("write", what, e.to_string()))?;
        if datagram.len() > DEFAULT_SOCKET_BUFFER / 2 {
            let fail = |e| Error::io("make room for", what, &e);
            self.transport.reserve(datagram.len()).map_err(fail)?;
        }
        self.send("send", &datagram, what)?;
        // Only a message that was pushed asks for an acknowledgement.
        let (mut failures, mut acknowledged, mut overruns) = (Vec::new(), index.is_empty(), 0);
        // The commit ran inside the send: every answer is queued by now.
        loop {
            match self.receive(false) {
                Ok(reply) => each(&reply, what, |m| {
                    match answer(m, what)? {
                        Answer::Ack(seq, ack) if ack.errno == 0 => {
                            acknowledged |= seq == index.last();
                        }
                        Answer::Ack(seq, ack) if index.has(seq) => {
                            failures.push(index.failure(seq, ack, &datagram));
                        }
                        Answer::Ack(..) | Answer::Object(_) | Answer::Done => {}
                    }
                    Ok(())
                })?,
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => break,
                // Answers were dropped; what was read so far says why it failed, if it did.
                Err(e)
                    if e.raw_os_error() == Some(libc::ENOBUFS)
                        && !failures.is_empty()
                        && overruns < OVERRUNS =>
                {
                    overruns += 1;
                }
                Err(e) => return Err(Error::io("read the answer to", what, &e)),
            }
        }
        self.unread = false;
        failures.sort_by_key(|f| f.index);
        match (failures.is_empty(), acknowledged) {
            (false, _) => Ok(Err(failures)),
            (true, true) => Ok(Ok(())),
            (true, false) => Err(Error::malformed(
                "commit",
                what,
                "the kernel acknowledged nothing and refused nothing",
            )),
        }
    }

    /// Every answer was read.
    pub(super) fn settled(&mut self) {
        self.unread = false;
    }

    fn request<A: AttrSet>(
        &mut self,
        kind: u16,
        flags: u16,
        family: u8,
        attrs: &A,
        what: &str,
    ) -> Result<u32> {
        let seq = self.numbers(1);
        let mut w = Writer::new();
        message::write(&mut w, (kind, flags, seq), (family, 0), |w| attrs.encode(w));
        let request = w
            .finish()
            .map_err(|e| Error::malformed("write", what, e.to_string()))?;
        self.send("ask for", &request, what)?;
        Ok(seq)
    }

    /// The first of `n` sequence numbers that nobody has; 0 is what the kernel sends unasked.
    pub(super) fn numbers(&mut self, n: usize) -> u32 {
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
    pub(super) fn send(&mut self, operation: &str, datagram: &[u8], what: &str) -> Result<()> {
        let fail = |e: io::Error| Error::io(operation, what, &e);
        let mut overruns = 0;
        while self.unread {
            match self.receive(false) {
                Ok(_) => {}
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => self.unread = false,
                Err(e)
                    if matches!(e.raw_os_error(), Some(libc::ENOBUFS | libc::EMSGSIZE))
                        && overruns < OVERRUNS =>
                {
                    overruns += 1;
                }
                Err(e) => return Err(fail(e)),
            }
        }
        self.transport.send(datagram).map_err(fail)?;
        self.unread = true;
        Ok(())
    }

    pub(super) fn receive(&mut self, wait: bool) -> io::Result<Vec<u8>> {
        loop {
            match self.transport.receive(&mut self.buf, wait) {
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
                // A datagram larger than the buffer is cut off and its rest gone: never silently.
                Ok(n) => {
                    let cut = || io::Error::from_raw_os_error(libc::EMSGSIZE);
                    return self.buf.get(..n).map(<[u8]>::to_vec).ok_or_else(cut);
                }
            }
        }
    }
}

pub(super) fn each(
    datagram: &[u8],
    what: &str,
    mut f: impl FnMut(Received<'_>) -> Result<()>,
) -> Result<()> {
    let mut rest = datagram;
    while rest.len() >= NLMSG_HDRLEN {
        let Some((message, next)) = message::split(rest) else {
            return Err(Error::malformed(
                "read",
                what,
                "a message of the answer is cut off",
            ));
        };
        f(message)?;
        rest = next;
    }
    Ok(())
}

pub(super) fn answer(m: Received<'_>, what: &str) -> Result<Answer> {
    let short = || {
        Error::malformed(
            "read",
            what,
            format!("message type {} is too short", m.kind),
        )
    };
    match m.kind {
        // A dump that failed midway says so here.
        NLMSG_DONE => match Ack::parse(0, m.payload) {
            Some(ack) if ack.errno != 0 => Ok(Answer::Ack(m.seq, ack)),
            _ => Ok(Answer::Done),
        },
        NLMSG_ERROR => Ack::parse(m.flags, m.payload)
            .map(|a| Answer::Ack(m.seq, a))
            .ok_or_else(short),
        NLMSG_OVERRUN => Err(Error::kernel("read", what, libc::ENOBUFS)),
        kind if m.payload.len() >= NFGENMSG_LEN => Reply::parse(kind, m.payload)
            .map(Answer::Object)
            .ok_or_else(short),
        _ => Err(short()),
    }
}

fn failed(operation: &str, what: &str, ack: Ack) -> Error {
    let mut error = Error::kernel(operation, what, ack.errno);
    if let crate::ErrorKind::Kernel { extack, .. } = &mut error.kind {
        *extack = ack.message;
    }
    error
}
