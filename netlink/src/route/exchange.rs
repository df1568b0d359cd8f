//! One request and all messages that answer it.

use super::Routing;
use crate::attr::{AttrSet, DecodeError};
use crate::contention::{Attempts, CONTENTION};
use crate::message::{FamilyHeader, Message, NLM_F_CREATE, NLM_F_EXCL, NLM_F_REPLACE, Rtnetlink};
use crate::socket::{Request, Socket};
use crate::transport::Transport;
use crate::{Error, Result};

/// Size in bytes to which the receive buffer is enlarged after answers were dropped.
const ROOM: usize = 4 << 20;

/// A family header of `NETLINK_ROUTE`.
pub(super) trait RouteHeader: FamilyHeader<Protocol = Rtnetlink> {}
impl<H: FamilyHeader<Protocol = Rtnetlink>> RouteHeader for H {}

/// How often a dump that lost answers is repeated. With a buffer of [`ROOM`], a busy writer is not the cause of losses.
const LOSSES: u32 = 3;

/// The flags of a request that adds an object, which must be new.
pub(super) const NEW: u16 = NLM_F_CREATE | NLM_F_EXCL;
/// The flags of a request that adds an object, or replaces the one with the same key.
pub(super) const IN_PLACE: u16 = NLM_F_CREATE | NLM_F_REPLACE;

impl Routing {
    /// Adds an object; false if it already exists.
    pub(super) fn add<H: RouteHeader, A: AttrSet>(
        &self,
        kind: u16,
        about: (H, A),
        object: &str,
    ) -> Result<bool> {
        match self.change((kind, NEW), about, "add", object) {
            Err(e) if e.is_exists() => Ok(false),
            done => done.map(|()| true),
        }
    }

    /// Deletes an object; false if it does not exist.
    pub(super) fn delete<H: RouteHeader, A: AttrSet>(
        &self,
        kind: u16,
        about: (H, A),
        object: &str,
    ) -> Result<bool> {
        match self.change((kind, 0), about, "delete", object) {
            Err(e) if e.is_not_found() => Ok(false),
            done => done.map(|()| true),
        }
    }

    /// Sends a change and waits for its acknowledgement; `flags` are added to those of every request.
    pub(super) fn change<H: RouteHeader, A: AttrSet>(
        &self,
        (kind, flags): (u16, u16),
        (header, attrs): (H, A),
        operation: &str,
        object: &str,
    ) -> Result<()> {
        let mut request = Request::new(kind, (header, &attrs), operation, object);
        request.flags = flags;
        self.socket().change(&request).map(drop)
    }

    /// The one object that answers a request. It is not a dump, so it cannot be interrupted.
    pub(super) fn find<H: RouteHeader, A: AttrSet, V>(
        &self,
        kind: u16,
        (header, attrs): (H, A),
        object: &str,
        read: impl Fn(&Message<H>) -> Result<Option<V>, DecodeError>,
    ) -> Result<V> {
        let request = Request::new(kind, (header, &attrs), "find", object);
        for message in &self.socket().look_up(&request)? {
            let read = read(message).map_err(|e| Error::malformed("find", object, e));
            if let Some(value) = read? {
                return Ok(value);
            }
        }
        let detail = "the kernel's answer has no such object";
        Err(Error::malformed("find", object, detail))
    }

    /// A dump, repeated while the kernel reports an interruption. Objects of another kind are skipped.
    pub(super) fn list<H: RouteHeader, A: AttrSet, V>(
        &self,
        kind: u16,
        (header, attrs): (H, A),
        object: &str,
        read: impl Fn(&Message<H>) -> Result<Option<V>, DecodeError>,
    ) -> Result<Vec<V>> {
        let request = Request::new(kind, (header, &attrs), "list", object);
        let attempts = Attempts::begin(CONTENTION);
        list(&mut self.socket(), &request, read, attempts)
    }
}

/// The first complete answer.
fn list<T: Transport, H: RouteHeader, A: AttrSet, V>(
    socket: &mut Socket<T, Rtnetlink>,
    request: &Request<'_, H, A>,
    read: impl Fn(&Message<H>) -> Result<Option<V>, DecodeError>,
    mut attempts: Attempts,
) -> Result<Vec<V>> {
    let (operation, object) = (request.operation, request.object);
    let mut losses = 0;
    loop {
        let mut found = Vec::new();
        let listed = socket.list(request, |message| {
            let read = read(&message);
            found.extend(read.map_err(|e| Error::malformed(operation, object, e))?);
            Ok(())
        });
        let last = match listed {
            Ok(()) => return Ok(found),
            Err(e) if e.errno() == Some(libc::EINTR) => None,
            Err(e) if e.errno() == Some(libc::ENOBUFS) && losses < LOSSES => {
                losses += 1;
                socket.reserve(ROOM)?;
                Some(e)
            }
            Err(e) => return Err(e),
        };
        let again = attempts.try_again(operation, object);
        again.map_err(|e| last.unwrap_or(e))?;
    }
}

#[cfg(test)]
mod tests {
    use super::super::link::LinkAttrs;
    use super::super::number::{RTM_GETLINK, RTM_NEWLINK};
    use super::*;
    use crate::attr::Step;
    use crate::message::{
        IfInfoMsg, NLM_F_DUMP_INTR, NLMSG_DONE, NLMSG_ERROR, NLMSG_HDRLEN, NLMSG_OVERRUN,
    };
    use crate::{ErrorKind, InForce};
    use std::cell::{Cell, RefCell};
    use std::collections::VecDeque;
    use std::io;
    use std::rc::Rc;
    use std::time::Duration;

    type Answer = Vec<io::Result<Vec<u8>>>;

    /// Answers one request after the other, each with these datagrams.
    #[derive(Default)]
    struct Script {
        answers: RefCell<VecDeque<Answer>>,
        current: RefCell<VecDeque<io::Result<Vec<u8>>>>,
        asked: Rc<Cell<u32>>,
        /// As in the kernel, a dump for which there was no memory remains unfinished, and every other one is refused.
        is_stuck: Cell<bool>,
    }

    impl Transport for Script {
        fn send(&self, request: &[u8]) -> io::Result<()> {
            self.asked.set(self.asked.get() + 1);
            let seq = u32::from_ne_bytes(request[8..12].try_into().expect("four"));
            let answer = match self.is_stuck.get() {
                true => vec![ack(seq, -libc::EBUSY)],
                false => self.answers.borrow_mut().pop_front().unwrap_or_default(),
            };
            *self.current.borrow_mut() = answer.into();
            Ok(())
        }
        fn receive(&self, buf: &mut [u8], _: Duration) -> io::Result<usize> {
            let next = self.current.borrow_mut().pop_front();
            let next = next.unwrap_or_else(|| Err(io::ErrorKind::WouldBlock.into()));
            let is_loss = matches!(&next, Err(e) if e.raw_os_error() == Some(libc::ENOBUFS));
            self.is_stuck.set(self.is_stuck.get() || is_loss);
            let datagram = next?;
            buf[..datagram.len()].copy_from_slice(&datagram);
            Ok(datagram.len())
        }
        fn reopen(&self) -> Result<Self> {
            Ok(Self {
                answers: RefCell::new(self.answers.take()),
                asked: Rc::clone(&self.asked),
                ..Self::default()
            })
        }
    }

    fn script(answers: Vec<Answer>) -> (Socket<Script, Rtnetlink>, Rc<Cell<u32>>) {
        let script = Script {
            answers: RefCell::new(answers.into()),
            ..Script::default()
        };
        let asked = Rc::clone(&script.asked);
        (Socket::with_transport(script), asked)
    }

    /// `struct nlmsghdr` and its payload.
    fn datagram(kind: u16, flags: u16, seq: u32, payload: &[u8]) -> io::Result<Vec<u8>> {
        let length = u32::try_from(NLMSG_HDRLEN + payload.len()).expect("short");
        let mut bytes = length.to_ne_bytes().to_vec();
        bytes.extend([kind.to_ne_bytes(), flags.to_ne_bytes()].concat());
        bytes.extend([seq.to_ne_bytes(), [0; 4]].concat());
        bytes.extend(payload);
        Ok(bytes)
    }

    fn done(seq: u32, flags: u16) -> io::Result<Vec<u8>> {
        datagram(NLMSG_DONE, flags, seq, &[0; 4])
    }

    fn ack(seq: u32, errno: i32) -> io::Result<Vec<u8>> {
        let payload = [errno.to_ne_bytes().as_slice(), &[0; 16]].concat();
        datagram(NLMSG_ERROR, 0, seq, &payload)
    }

    fn request<'a>(
        kind: u16,
        operation: &'a str,
        attrs: &'a LinkAttrs,
    ) -> Request<'a, IfInfoMsg, LinkAttrs> {
        Request::new(kind, (IfInfoMsg::default(), attrs), operation, "links")
    }

    fn listed(answers: Vec<Answer>) -> (Result<usize>, u32) {
        listed_within(Duration::from_secs(60), answers)
    }

    fn listed_within(limit: Duration, answers: Vec<Answer>) -> (Result<usize>, u32) {
        let (mut socket, asked) = script(answers);
        let attempts = Attempts::begin(limit);
        let attrs = LinkAttrs::default();
        let read = |m: &Message<IfInfoMsg>| m.decode::<LinkAttrs>().map(Some);
        let found = list(
            &mut socket,
            &request(RTM_GETLINK, "list", &attrs),
            read,
            attempts,
        );
        (found.map(|found| found.len()), asked.get())
    }

    #[test]
    fn an_interrupted_dump_is_repeated_but_not_for_ever() {
        let (found, asked) = listed(vec![vec![done(1, NLM_F_DUMP_INTR)], vec![done(2, 0)]]);
        assert_eq!((found.expect("whole"), asked), (0, 2));
        let without_end = (1..100_000)
            .map(|seq| vec![done(seq, NLM_F_DUMP_INTR)])
            .collect();
        let (error, asked) = listed_within(Duration::from_millis(50), without_end);
        let error = error.expect_err("given up");
        assert!(matches!(error.kind, ErrorKind::Exhausted(_)), "{error}");
        assert!(asked < 50_000, "{asked}");
    }

    #[test]
    fn a_dump_that_lost_something_is_not_taken_for_whole() {
        let link = || datagram(RTM_NEWLINK, 2, 1, &[0; 16]);
        assert_eq!(listed(vec![vec![link(), done(1, 0)]]).0.expect("whole"), 1);
        // The dump is repeated on a new socket, and then complete.
        for loss in [
            Err(io::Error::from_raw_os_error(libc::ENOBUFS)),
            datagram(NLMSG_OVERRUN, 0, 1, &[]),
        ] {
            let (found, asked) = listed(vec![vec![link(), loss], vec![done(1, 0)]]);
            assert_eq!((found.expect("whole"), asked), (0, 2));
        }
        // Without memory for it, no repetition helps.
        let loss = || vec![Err(io::Error::from_raw_os_error(libc::ENOBUFS))];
        let (error, asked) = listed((0..1000).map(|_| loss()).collect());
        let errno = error.expect_err("given up").errno();
        assert_eq!((errno, asked), (Some(libc::ENOBUFS), 1 + LOSSES));
        let torn = [&[0; 16][..], &[7, 0, 3, 0, 1]].concat();
        for (answer, text) in [
            (datagram(RTM_NEWLINK, 2, 1, &[0; 3]), "too short"),
            (datagram(RTM_NEWLINK, 2, 1, &torn), "cut off"),
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
            assert_eq!(error.in_force, InForce::No);
        }
    }

    /// The first dump is given up before the loss, so that the loss is found among its leftovers.
    #[test]
    fn a_dump_that_was_given_up_and_lost_something_does_not_stop_the_next() {
        let failed = |n| Err(io::Error::from_raw_os_error(n));
        let link = datagram(RTM_NEWLINK, 2, 1, &[0; 16]);
        let given_up = vec![failed(libc::ENOMEM), link, failed(libc::ENOBUFS)];
        let (mut socket, _) = script(vec![given_up, vec![done(1, 0)]]);
        let attrs = LinkAttrs::default();
        let mut list = || socket.list(&request(RTM_GETLINK, "list", &attrs), |_| Ok(()));
        assert_eq!(list().expect_err("given up").errno(), Some(libc::ENOMEM));
        list().expect("whole");
    }

    #[test]
    fn an_answer_that_cannot_be_decoded_keeps_the_path_to_its_attribute() {
        // IFLA_LINKINFO > IFLA_INFO_KIND, and in it an attribute with an impossible length.
        let info = [8, 0, 18, 0, 9, 0, 1, 0];
        let mtu = [7, 0, 4, 0, 1, 2, 3, 0];
        for (attrs, numbers) in [(info, vec![18]), (mtu, vec![4])] {
            let link = datagram(RTM_NEWLINK, 2, 1, &[[0; 16].as_slice(), &attrs].concat());
            let error = listed(vec![vec![link, done(1, 0)]]).0.expect_err("torn");
            let ErrorKind::Malformed(detail) = &error.kind else {
                panic!("{error:?}")
            };
            let found = detail.path.steps().iter().map(|step| match step {
                Step::Attribute { number, .. } => *number,
                other => panic!("{other:?}"),
            });
            assert_eq!(found.collect::<Vec<_>>(), numbers);
            assert!(error.to_string().contains("IFLA_"), "{error}");
        }
    }

    #[test]
    fn a_lost_answer_leaves_open_what_is_in_force() {
        let add = |answers| {
            let (mut socket, _) = script(vec![answers]);
            let attrs = LinkAttrs::default();
            socket
                .change(&request(RTM_NEWLINK, "add", &attrs))
                .map(drop)
        };
        // An answer to an earlier request does not answer this one.
        add(vec![ack(7, -17), ack(1, 0)]).expect("acknowledged");
        let refused = add(vec![ack(1, -17)]).expect_err("refused");
        assert!(refused.is_exists() && refused.in_force == InForce::No);
        for answers in [
            vec![],
            vec![ack(7, 0)],
            vec![Err(io::Error::from_raw_os_error(libc::ENOBUFS))],
            vec![datagram(NLMSG_OVERRUN, 0, 1, &[])],
        ] {
            let error = add(answers).expect_err("lost");
            assert_eq!(error.in_force, InForce::Unknown, "{error}");
        }
    }
}
