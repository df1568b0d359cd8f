//! The socket: requests, dumps and batches.

use super::batch::{Batch, BatchIndex, Failure};
use super::message::{
    self, NFGENMSG_LEN, NLM_F_ACK, NLM_F_DUMP, NLM_F_DUMP_INTR, NLMSG_DONE, NLMSG_ERROR,
    NLMSG_HDRLEN, NLMSG_OVERRUN, Received,
};
use super::reply::{Ack, Reply};
use crate::attr::{AttrSet, Writer};
use crate::transport::{Kernel, Patience, Transport};
use crate::{Error, InForce, Result};
use std::io;
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
    patience: Patience,
}

/// When an exchange began, and how long it may take.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Deadline {
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
    pub(crate) fn error(&self, operation: &str, what: &str, e: &io::Error) -> Error {
        match e.kind() {
            io::ErrorKind::TimedOut => Error::timed_out(operation, what, self.begun.elapsed()),
            _ => Error::io(operation, what, e),
        }
    }
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

/// What answered a batch.
struct Answers {
    failures: Vec<Failure>,
    acknowledged: bool,
    /// The first answer that could not be had, or not be read.
    lost: Option<Error>,
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
            patience: Patience::default(),
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

    /// Every object that the kernel lists.
    ///
    /// # Errors
    /// `EINTR` when the list changed meanwhile: begin again ([`Error::errno`]); `ENOBUFS` when a part of it was lost;
    /// [`Error::is_timed_out`]; `ENOENT` and others as the kernel answers. What was listed until then is not the whole.
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
        let deadline = self.deadline();
        let seq = self.request(kind, NLM_F_DUMP, family, attrs, what)?;
        let mut interrupted = false;
        let mut done = false;
        let mut bytes: usize = 0;
        while !done {
            let datagram = self
                .receive(&deadline)
                .map_err(|e| deadline.error("list", what, &e))?;
            bytes = bytes.saturating_add(datagram.len());
            if bytes > ANSWER {
                let reason = format!(
                    "there are more than {ANSWER} bytes of it; delete what makes it so large"
                );
                return Err(Error::refused("list", what, reason));
            }
            each(&datagram, what, |m| {
                if m.seq != seq {
                    return Ok(());
                }
                interrupted |= m.flags & NLM_F_DUMP_INTR != 0;
                match answer(m, what)? {
                    Answer::Object(reply) => f(reply)?,
                    Answer::Done => done = true,
                    // A listing ends with NLMSG_DONE and with nothing else; how much of it came before this?
                    Answer::Ack(_, ack) if ack.errno == 0 => {
                        let detail =
                            "the kernel acknowledged the question in the middle of the answer";
                        return Err(Error::malformed("list", what, detail));
                    }
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
        let deadline = self.deadline();
        let seq = self.request(kind, NLM_F_ACK, family, attrs, what)?;
        let mut object = None;
        loop {
            let datagram = self
                .receive(&deadline)
                .map_err(|e| deadline.error("read", what, &e))?;
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
    /// commit of another writer that is under way is over: the subsystem has one lock for both.
    ///
    /// # Errors
    /// The inner error: what the kernel refused, in the order of the messages; nothing of the
    /// batch is in force then. The outer one says it itself ([`Error::in_force`]): no when it could not be sent; not
    /// known when it was sent and an answer was lost or cannot be read.
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
        let unsent = self.send("send", &datagram, what).err();
        let mut answers = Answers {
            failures: Vec::new(),
            // Only a message that was pushed asks for an acknowledgement.
            acknowledged: index.is_empty(),
            lost: None,
        };
        self.answers(&mut answers, &index, &datagram, what);
        let Answers {
            mut failures,
            acknowledged,
            lost,
        } = answers;
        if !failures.is_empty() {
            failures.sort_by_key(|f| f.index);
            return Ok(Err(failures));
        }
        // Of a batch that was not sent there is no answer. If there is one, it was.
        match (unsent, lost) {
            (Some(e), _) if index.is_empty() || !acknowledged => Err(e),
            (_, Some(e)) if index.is_empty() => Err(e),
            // An acknowledgement alone proves nothing: the refusal before it may be what was lost.
            (_, Some(e)) => Err(e.with_in_force(InForce::Unknown)),
            _ if acknowledged => Ok(Ok(())),
            _ => {
                let detail = "the kernel acknowledged nothing and refused nothing";
                let error = Error::malformed("commit", what, detail);
                Err(error.with_in_force(InForce::Unknown))
            }
        }
    }

    /// Reads what answers a batch. The commit ran inside the send: every answer is queued by now.
    fn answers(&mut self, found: &mut Answers, index: &BatchIndex, datagram: &[u8], what: &str) {
        let mut losses = 0;
        loop {
            let read = match self.receive_queued() {
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => break,
                Err(e) => Err(Error::io("read the answer to", what, &e)),
                Ok(reply) => each(&reply, what, |m| {
                    match answer(m, what)? {
                        Answer::Ack(seq, ack) if ack.errno == 0 => {
                            found.acknowledged |= seq == index.last();
                        }
                        Answer::Ack(seq, ack) if index.has(seq) => {
                            found.failures.push(index.failure(seq, ack, datagram));
                        }
                        Answer::Ack(..) | Answer::Object(_) | Answer::Done => {}
                    }
                    Ok(())
                }),
            };
            // What comes behind a loss may say why the batch failed, if it did.
            if let Err(e) = read {
                found.lost.get_or_insert(e);
                losses += 1;
                if losses > LOSSES {
                    return;
                }
            }
        }
        self.unread = false;
    }

    /// Every answer was read.
    pub(crate) fn settled(&mut self) {
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
    pub(crate) fn numbers(&mut self, n: usize) -> u32 {
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
    pub(crate) fn send(&mut self, operation: &str, datagram: &[u8], what: &str) -> Result<()> {
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

    pub(crate) fn deadline(&self) -> Deadline {
        Deadline {
            begun: Instant::now(),
            patience: self.patience,
        }
    }

    /// The next datagram of an exchange; `ETIMEDOUT` when none comes in time.
    pub(crate) fn receive(&mut self, deadline: &Deadline) -> io::Result<Vec<u8>> {
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
    pub(crate) fn receive_queued(&mut self) -> io::Result<Vec<u8>> {
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
