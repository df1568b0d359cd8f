//! One request and everything that answers it.

use std::io;

use rtnetlink::packet_core::{
    ErrorMessage, NLM_F_ACK, NLM_F_CREATE, NLM_F_DUMP, NLM_F_EXCL, NLM_F_REQUEST, NetlinkMessage,
    NetlinkPayload,
};
use rtnetlink::packet_route::RouteNetlinkMessage;

use super::Routing;
use crate::contention::{Attempts, CONTENTION};
use crate::nfnetlink::{Deadline, NLMSG_HDRLEN, Socket, split};
use crate::transport::Transport;
use crate::{Error, ErrorKind, InForce, Result};

/// `NLM_F_DUMP_INTR` of `linux/netlink.h`: the objects changed during the dump.
const NLM_F_DUMP_INTR: u16 = 0x10;
/// `NLM_F_CAPPED`: an error repeats only the header of the request.
const NLM_F_CAPPED: u16 = 0x100;
/// `NLM_F_ACK_TLVS`: attributes follow in an error.
const NLM_F_ACK_TLVS: u16 = 0x200;
/// `NLMSGERR_ATTR_MSG`: the kernel's own words.
const NLMSGERR_ATTR_MSG: u16 = 1;

/// `enum` of `linux/rtnetlink.h`: of the four messages of an object, `RTM_GET*` is the third, and changes nothing.
const RTM_KINDS: u16 = 4;
const RTM_GET: u16 = 2;

/// Room for answers in bytes, after some were dropped.
const ROOM: usize = 4 << 20;

/// What a request answered with, before it is known to be whole.
#[derive(Default)]
struct Reply {
    messages: Vec<RouteNetlinkMessage>,
    interrupted: bool,
}

impl Routing {
    /// Creates something that must be new (`NLM_F_CREATE | NLM_F_EXCL`).
    pub(super) fn create(
        &self,
        message: RouteNetlinkMessage,
        operation: &str,
        object: &str,
    ) -> Result<()> {
        self.request(message, NLM_F_CREATE | NLM_F_EXCL, operation, object)
            .map(drop)
    }

    /// Like [`Routing::create`]; false when it is there already.
    pub(super) fn ensure(
        &self,
        message: RouteNetlinkMessage,
        operation: &str,
        object: &str,
    ) -> Result<bool> {
        match self.create(message, operation, object) {
            Ok(()) => Ok(true),
            Err(e) if e.is_exists() => Ok(false),
            Err(e) => Err(e),
        }
    }

    /// Deletes; false when it is not there.
    pub(super) fn remove(
        &self,
        message: RouteNetlinkMessage,
        operation: &str,
        object: &str,
    ) -> Result<bool> {
        match self.request(message, 0, operation, object) {
            Ok(_) => Ok(true),
            Err(e) if e.is_not_found() => Ok(false),
            Err(e) => Err(e),
        }
    }

    /// One request that is answered by an ack, and by objects before it.
    pub(super) fn request(
        &self,
        message: RouteNetlinkMessage,
        flags: u16,
        operation: &str,
        object: &str,
    ) -> Result<Vec<RouteNetlinkMessage>> {
        let flags = NLM_F_REQUEST | NLM_F_ACK | flags;
        let reply = exchange(&mut self.socket(), message, flags, operation, object)?;
        Ok(reply.messages)
    }

    /// A dump, repeated while the kernel says that it was interrupted.
    pub(super) fn dump(
        &self,
        message: &RouteNetlinkMessage,
        object: &str,
    ) -> Result<Vec<RouteNetlinkMessage>> {
        dump(
            &mut self.socket(),
            message,
            object,
            Attempts::begin(CONTENTION),
        )
    }
}

/// The first answer that is whole.
fn dump<T: Transport>(
    socket: &mut Socket<T>,
    message: &RouteNetlinkMessage,
    object: &str,
    mut attempts: Attempts,
) -> Result<Vec<RouteNetlinkMessage>> {
    let flags = NLM_F_REQUEST | NLM_F_DUMP;
    loop {
        let last = match exchange(socket, message.clone(), flags, "list", object) {
            Ok(reply) if !reply.interrupted => return Ok(reply.messages),
            Ok(_) => None,
            Err(e) if e.errno() == Some(libc::ENOBUFS) => {
                socket.reserve(ROOM)?;
                Some(e)
            }
            Err(e) => return Err(e),
        };
        if !attempts.again() {
            let what = format!(
                "they changed during each of {} dumps in {:?}; try again when the namespace is quiet",
                attempts.made(),
                attempts.limit()
            );
            return Err(last.unwrap_or_else(|| Error::exhausted("list", object, what)));
        }
    }
}

fn exchange<T: Transport>(
    socket: &mut Socket<T>,
    message: RouteNetlinkMessage,
    flags: u16,
    operation: &str,
    object: &str,
) -> Result<Reply> {
    let mut request = NetlinkMessage::from(message);
    request.header.flags = flags;
    request.header.sequence_number = socket.numbers(1);
    request.finalize();
    let mut bytes = vec![0; request.buffer_len()];
    request.serialize(&mut bytes);
    let question = Question {
        seq: request.header.sequence_number,
        is_dump: flags & NLM_F_DUMP == NLM_F_DUMP,
        operation,
        object,
    };
    let deadline = socket.deadline();
    let unsent = socket.send(operation, &bytes, object).err();
    // Of a request that was not sent there is no answer. If there is one, it was.
    let wait = match unsent {
        None => Some(&deadline),
        Some(_) => None,
    };
    let outcome = question.answer(socket, wait);
    let is_change = request.header.message_type % RTM_KINDS != RTM_GET;
    match (outcome, unsent) {
        (Ok(reply), _) => Ok(reply),
        (Err(Failure::Refused(e)), _) | (Err(Failure::Lost(_)), Some(e)) => Err(e),
        (Err(Failure::Lost(e)), None) if is_change => Err(e.with_in_force(InForce::Unknown)),
        (Err(Failure::Lost(e)), None) => Err(e),
    }
}

/// Why there is no answer to a request.
enum Failure {
    /// The kernel said no.
    Refused(Error),
    /// What it said is not known.
    Lost(Error),
}

struct Question<'a> {
    seq: u32,
    is_dump: bool,
    operation: &'a str,
    object: &'a str,
}

impl Question<'_> {
    /// Reads datagrams until the end of the answer; without a deadline only those that are there.
    fn answer<T: Transport>(
        &self,
        socket: &mut Socket<T>,
        deadline: Option<&Deadline>,
    ) -> Result<Reply, Failure> {
        let mut reply = Reply::default();
        loop {
            let datagram = match deadline {
                Some(deadline) => socket
                    .receive(deadline)
                    .map_err(|e| deadline.error(self.operation, self.object, &e)),
                None => socket
                    .receive_queued()
                    .map_err(|e: io::Error| Error::io(self.operation, self.object, &e)),
            };
            if self.read(&datagram.map_err(Failure::Lost)?, &mut reply)? {
                socket.settled();
                return Ok(reply);
            }
        }
    }

    /// Reads every message of a datagram. True when the answer is at its end.
    fn read(&self, datagram: &[u8], reply: &mut Reply) -> Result<bool, Failure> {
        let lost =
            |detail: String| Failure::Lost(Error::malformed(self.operation, self.object, detail));
        let mut rest = datagram;
        while rest.len() >= NLMSG_HDRLEN {
            let cut = || lost("a message of the answer is cut off".to_owned());
            let (received, next) = split(rest).ok_or_else(cut)?;
            let whole = rest.get(..NLMSG_HDRLEN + received.payload.len());
            rest = next;
            if received.seq != self.seq {
                continue;
            }
            let message: NetlinkMessage<RouteNetlinkMessage> =
                NetlinkMessage::deserialize(whole.ok_or_else(cut)?)
                    .map_err(|e| lost(format!("a message of the answer cannot be read: {e}")))?;
            let flags = message.header.flags;
            reply.interrupted |= flags & NLM_F_DUMP_INTR != 0;
            match message.payload {
                NetlinkPayload::InnerMessage(object) => reply.messages.push(object),
                NetlinkPayload::Done(done) if done.code < 0 => {
                    let errno = done.code.saturating_abs();
                    let error = Error::kernel(self.operation, self.object, errno);
                    return Err(Failure::Refused(error));
                }
                NetlinkPayload::Done(_) => return Ok(true),
                NetlinkPayload::Error(error) if error.code.is_some() => {
                    let error = kernel_error(self.operation, self.object, flags, &error);
                    return Err(Failure::Refused(error));
                }
                // The end of a dump is NLMSG_DONE and nothing else.
                NetlinkPayload::Error(_) if self.is_dump => {
                    return Err(lost(
                        "the kernel acknowledged the question in the middle of the answer".into(),
                    ));
                }
                NetlinkPayload::Error(_) => return Ok(true),
                NetlinkPayload::Overrun(_) => {
                    let error = Error::kernel(self.operation, self.object, libc::ENOBUFS);
                    return Err(Failure::Lost(error));
                }
                _ => {}
            }
        }
        Ok(false)
    }
}

/// The errno with the text of the extended ack, if there is one.
fn kernel_error(operation: &str, object: &str, flags: u16, error: &ErrorMessage) -> Error {
    let mut made = Error::kernel(operation, object, error.raw_code().saturating_abs());
    if let ErrorKind::Kernel { extack, .. } = &mut made.kind {
        *extack = message_text(flags, &error.header);
    }
    made
}

/// Reads `NLMSGERR_ATTR_MSG` behind the repeated request.
///
/// ```text
/// struct nlmsgerr { int error; struct nlmsghdr msg; }   `repeated` starts at msg
///   payload of the request                              unless NLM_F_CAPPED
///   attributes                                          if NLM_F_ACK_TLVS
/// ```
fn message_text(flags: u16, repeated: &[u8]) -> Option<String> {
    const NLMSG_HDRLEN: usize = 16;
    if flags & NLM_F_ACK_TLVS == 0 {
        return None;
    }
    let length = u32::from_ne_bytes(*repeated.first_chunk::<4>()?);
    let start = if flags & NLM_F_CAPPED != 0 {
        NLMSG_HDRLEN
    } else {
        usize::try_from(length).ok()?.checked_next_multiple_of(4)?
    };
    let mut rest = repeated.get(start..)?;
    while let Some((header, _)) = rest.split_first_chunk::<4>() {
        let [l0, l1, t0, t1] = *header;
        let length = usize::from(u16::from_ne_bytes([l0, l1]));
        let value = rest.get(4..length)?;
        if u16::from_ne_bytes([t0, t1]) == NLMSGERR_ATTR_MSG {
            let text = value.split(|&b| b == 0).next()?;
            return Some(String::from_utf8_lossy(text).into_owned());
        }
        rest = rest.get(length.next_multiple_of(4)..)?;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use rtnetlink::packet_route::link::LinkMessage;
    use std::cell::{Cell, RefCell};
    use std::collections::VecDeque;
    use std::rc::Rc;
    use std::time::Duration;

    /// `nlmsghdr` with a length, then whatever follows.
    fn repeated(length: u32, rest: &[u8]) -> Vec<u8> {
        let mut bytes = length.to_ne_bytes().to_vec();
        bytes.resize(16, 0);
        bytes.extend_from_slice(rest);
        bytes
    }

    fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
        let length = u16::try_from(value.len() + 4).expect("short");
        let mut bytes = [length.to_ne_bytes(), kind.to_ne_bytes()].concat();
        bytes.extend_from_slice(value);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes
    }

    type Answer = Vec<io::Result<Vec<u8>>>;

    /// Answers one question after the other, each with these datagrams.
    struct Script {
        answers: RefCell<VecDeque<Answer>>,
        current: RefCell<VecDeque<io::Result<Vec<u8>>>>,
        asked: Rc<Cell<u32>>,
    }

    impl Transport for Script {
        fn send(&self, _: &[u8]) -> io::Result<()> {
            self.asked.set(self.asked.get() + 1);
            let answer = self.answers.borrow_mut().pop_front();
            *self.current.borrow_mut() = answer.unwrap_or_default().into();
            Ok(())
        }
        fn receive(&self, buf: &mut [u8], _: Duration) -> io::Result<usize> {
            let next = self.current.borrow_mut().pop_front();
            let datagram = next.unwrap_or_else(|| Err(io::ErrorKind::WouldBlock.into()))?;
            buf[..datagram.len()].copy_from_slice(&datagram);
            Ok(datagram.len())
        }
        fn reopen(&self) -> Result<Self> {
            unreachable!("nothing is opened again")
        }
    }

    fn script(answers: Vec<Answer>) -> (Socket<Script>, Rc<Cell<u32>>) {
        let asked = Rc::new(Cell::new(0));
        let script = Script {
            answers: RefCell::new(answers.into()),
            current: RefCell::default(),
            asked: Rc::clone(&asked),
        };
        (Socket::with_transport(script), asked)
    }

    /// `struct nlmsghdr` and what follows.
    fn datagram(kind: u16, flags: u16, seq: u32, payload: &[u8]) -> io::Result<Vec<u8>> {
        let length = u32::try_from(NLMSG_HDRLEN + payload.len()).expect("short");
        let mut bytes = length.to_ne_bytes().to_vec();
        bytes.extend([kind.to_ne_bytes(), flags.to_ne_bytes()].concat());
        bytes.extend([seq.to_ne_bytes(), [0; 4]].concat());
        bytes.extend(payload);
        Ok(bytes)
    }

    const NLMSG_ERROR: u16 = 2;
    const NLMSG_DONE: u16 = 3;
    const NLMSG_OVERRUN: u16 = 4;
    const RTM_NEWLINK: u16 = 16;

    fn done(seq: u32, flags: u16) -> io::Result<Vec<u8>> {
        datagram(NLMSG_DONE, flags, seq, &[0; 4])
    }

    fn links() -> RouteNetlinkMessage {
        RouteNetlinkMessage::GetLink(LinkMessage::default())
    }

    fn listed(answers: Vec<Answer>) -> (Result<usize>, u32) {
        let (mut socket, asked) = script(answers);
        let attempts = Attempts::begin(Duration::from_millis(50));
        let found = dump(&mut socket, &links(), "the links", attempts);
        (found.map(|found| found.len()), asked.get())
    }

    #[test]
    fn an_interrupted_dump_is_repeated_but_not_for_ever() {
        let (found, asked) = listed(vec![vec![done(1, NLM_F_DUMP_INTR)], vec![done(2, 0)]]);
        assert_eq!((found.expect("whole"), asked), (0, 2));
        let without_end = (1..100_000)
            .map(|seq| vec![done(seq, NLM_F_DUMP_INTR)])
            .collect();
        let (error, asked) = listed(without_end);
        let error = error.expect_err("given up");
        assert!(matches!(error.kind, ErrorKind::Exhausted(_)), "{error}");
        assert!((5..50_000).contains(&asked), "{asked}");
    }

    #[test]
    fn a_dump_that_lost_something_is_not_taken_for_whole() {
        let link = || datagram(RTM_NEWLINK, 2, 1, &[0; 16]);
        assert_eq!(listed(vec![vec![link(), done(1, 0)]]).0.expect("whole"), 1);
        // Asked again, and then whole.
        for loss in [
            Err(io::Error::from_raw_os_error(libc::ENOBUFS)),
            datagram(NLMSG_OVERRUN, 0, 1, &[]),
        ] {
            let (found, asked) = listed(vec![vec![link(), loss], vec![done(2, 0)]]);
            assert_eq!((found.expect("whole"), asked), (0, 2));
        }
        for (answer, text) in [
            (datagram(RTM_NEWLINK, 2, 1, &[0; 3]), "cannot be read"),
            (datagram(NLMSG_ERROR, 0, 1, &[0; 20]), "in the middle"),
            (
                Ok(vec![99, 0, 0, 0, 3, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0]),
                "cut off",
            ),
            (Err(io::ErrorKind::WouldBlock.into()), "did not answer"),
        ] {
            let (error, _) = listed(vec![vec![link(), answer, done(1, 0)]]);
            let error = error.expect_err(text);
            assert!(error.to_string().contains(text), "{error}");
            assert_eq!(error.in_force(), InForce::No);
        }
    }

    #[test]
    fn a_lost_answer_leaves_open_what_is_in_force() {
        let add = |answers| {
            let (mut socket, _) = script(vec![answers]);
            let message = RouteNetlinkMessage::NewLink(LinkMessage::default());
            exchange(
                &mut socket,
                message,
                NLM_F_REQUEST | NLM_F_ACK,
                "add",
                "link x",
            )
            .map(drop)
        };
        let ack = |seq, errno: i32| {
            let payload = [errno.to_ne_bytes().as_slice(), &[0; 16]].concat();
            datagram(NLMSG_ERROR, 0, seq, &payload)
        };
        // What answers an older question does not answer this one.
        add(vec![ack(7, -17), ack(1, 0)]).expect("acknowledged");
        let refused = add(vec![ack(1, -17)]).expect_err("refused");
        assert!(refused.is_exists() && refused.in_force() == InForce::No);
        for answers in [
            vec![],
            vec![ack(7, 0)],
            vec![Err(io::Error::from_raw_os_error(libc::ENOBUFS))],
            vec![datagram(NLMSG_OVERRUN, 0, 1, &[])],
        ] {
            let error = add(answers).expect_err("lost");
            assert_eq!(error.in_force(), InForce::Unknown, "{error}");
        }
    }

    #[test]
    fn the_text_is_found_behind_other_attributes_and_the_repeated_request() {
        let attributes = [
            attribute(2, &[20, 0, 0, 0]),
            attribute(1, b"No such thing\0"),
        ]
        .concat();
        let whole = repeated(23, &[vec![0xa5; 8], attributes.clone()].concat());
        let text = Some("No such thing".to_owned());
        assert_eq!(message_text(NLM_F_ACK_TLVS, &whole), text);
        let capped = repeated(23, &attributes);
        assert_eq!(message_text(NLM_F_ACK_TLVS | NLM_F_CAPPED, &capped), text);
        assert_eq!(
            message_text(NLM_F_CAPPED, &capped),
            None,
            "no attributes announced"
        );
    }

    #[test]
    fn torn_attributes_are_no_text_and_no_panic() {
        for bytes in [vec![], vec![1, 2, 3], repeated(u32::MAX, &[1, 2, 3, 4, 5])] {
            assert_eq!(message_text(NLM_F_ACK_TLVS, &bytes), None);
        }
        for length in 0..8u16 {
            let torn = [length.to_ne_bytes(), 7u16.to_ne_bytes()].concat();
            assert_eq!(
                message_text(NLM_F_ACK_TLVS | NLM_F_CAPPED, &repeated(16, &torn)),
                None
            );
        }
    }
}
