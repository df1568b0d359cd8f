//! The handling of answers by an nfnetlink socket: answers of a real kernel, and answers that no kernel can be made to give.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::io;
use std::rc::Rc;
use std::time::{Duration, Instant};
use weir_netlink::attr::{Be32, Path, Step, Str};
use weir_netlink::message::{NL_ATTR_TYPES, Netfilter};
use weir_netlink::message::{NLM_F_CREATE, NLM_F_DUMP_INTR};
use weir_netlink::nfnetlink::{
    Batch, NFNL_SUBSYS_NFTABLES, Refusal, Reply, Requests, Socket, message_type,
};
use weir_netlink::{InForce, Result, attributes};
use weir_netlink::{NetlinkSocket, Patience, Transport};
use weir_testing::namespace_or_skip;

const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
const NLMSG_OVERRUN: u16 = 4;
const NLM_F_ACK_TLVS: u16 = 0x200;

attributes! {
    /// `enum nft_gen_attributes`
    struct Gen {
        id: Be32 = NFTA_GEN_ID 1,
    }
    /// `enum nft_table_attributes`
    struct Table {
        name: Str = NFTA_TABLE_NAME 1,
        flags: Be32 = NFTA_TABLE_FLAGS 2,
    }
}

const NFT_MSG_NEWTABLE: u16 = 0;
const NFT_MSG_GETTABLE: u16 = 1;

/// Gives answers that no kernel can be made to give.
struct Script(RefCell<VecDeque<io::Result<Vec<u8>>>>);

impl Script {
    fn socket(answers: Vec<io::Result<Vec<u8>>>) -> Socket<Self> {
        Socket::with_transport(Self(RefCell::new(answers.into())))
    }
}

impl Transport for Script {
    fn reopen(&self) -> Result<Self> {
        Ok(Self(RefCell::default()))
    }
    fn send(&self, _: &[u8]) -> io::Result<()> {
        Ok(())
    }
    fn receive(&self, buf: &mut [u8], _: Duration) -> io::Result<usize> {
        match self.0.borrow_mut().pop_front() {
            None => Err(io::ErrorKind::WouldBlock.into()),
            Some(Err(e)) => Err(e),
            Some(Ok(d)) => {
                let n = d.len().min(buf.len());
                buf[..n].copy_from_slice(&d[..n]);
                Ok(d.len())
            }
        }
    }
}

fn header(kind: u16, flags: u16, seq: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(16 + payload.len()).unwrap();
    let mut m = length.to_ne_bytes().to_vec();
    m.extend(kind.to_ne_bytes());
    m.extend(flags.to_ne_bytes());
    m.extend(seq.to_ne_bytes());
    m.extend([0; 4]);
    m.extend(payload);
    m
}

const OBJECT: u16 = message_type(NFNL_SUBSYS_NFTABLES, NFT_MSG_NEWTABLE);

fn done(seq: u32) -> Vec<u8> {
    header(NLMSG_DONE, 2, seq, &[0; 4])
}

fn tables(answers: Vec<io::Result<Vec<u8>>>) -> Result<Vec<Reply>> {
    let kind = message_type(NFNL_SUBSYS_NFTABLES, NFT_MSG_GETTABLE);
    Script::socket(answers).dump(kind, 1, &Table::default(), "tables")
}

#[test]
fn every_message_of_every_datagram_is_read() {
    let object = header(OBJECT, 2, 1, &[1, 0, 0, 7]);
    let two = [object.clone(), object.clone()].concat();
    let got = tables(vec![Ok(two), Ok([object, done(1)].concat())]).unwrap();
    assert_eq!(got.len(), 3);
    assert_eq!((got[0].header.family, got[0].header.res_id), (1, 7));
}

#[test]
fn a_dump_is_interrupted_when_any_message_says_so() {
    let torn = header(OBJECT, 2 | NLM_F_DUMP_INTR, 1, &[1, 0, 0, 7]);
    let error = tables(vec![Ok(torn), Ok(done(1))]).unwrap_err();
    assert_eq!(error.errno(), Some(nix::libc::EINTR));
}

#[test]
fn answers_that_cannot_be_are_errors() {
    for (answer, text) in [
        (
            Ok(vec![40, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0]),
            "cut off",
        ),
        (Ok(header(OBJECT, 0, 1, &[1])), "too short"),
        (Ok(header(NLMSG_ERROR, 0, 1, &[1])), "too short"),
        (Ok(vec![0; 200 * 1024]), "EMSGSIZE"),
        (
            Err(io::Error::from_raw_os_error(nix::libc::ENOBUFS)),
            "ENOBUFS",
        ),
        // Only NLMSG_DONE ends a complete dump.
        (
            Ok(header(NLMSG_ERROR, 0, 1, &[0; 20])),
            "acknowledged the request",
        ),
        (Ok(header(NLMSG_OVERRUN, 0, 1, &[])), "ENOBUFS"),
        (
            Ok(header(NLMSG_DONE, 0, 1, &(-105i32).to_ne_bytes())),
            "ENOBUFS",
        ),
    ] {
        let error = tables(vec![answer]).unwrap_err().to_string();
        assert!(error.contains(text), "{error}");
    }
}

fn batch(names: &[&str]) -> Batch {
    let mut batch = Batch::new(NFNL_SUBSYS_NFTABLES, None);
    for name in names {
        let table = Table {
            name: Some((*name).into()),
            flags: Some(0),
            ..Table::default()
        };
        batch.push(NFT_MSG_NEWTABLE, NLM_F_CREATE, 1, &table);
    }
    batch
}

#[test]
fn silence_after_a_batch_is_not_success() {
    let error = Script::socket(vec![]).commit(batch(&["a"])).unwrap_err();
    assert!(
        error.to_string().contains("acknowledged nothing"),
        "{error}"
    );
}

#[test]
fn a_failure_names_its_message_attribute_and_words() {
    let request = batch(&["first", "second"]).datagram(1).unwrap();
    // The offset of the flags attribute in the second message: header 16, nfgenmsg 4, then the name with its padding.
    let offset = 16 + 4 + 4 + 8;
    let mut payload = (-17i32).to_ne_bytes().to_vec();
    let first = 20 + (16 + 4 + 4 + 8 + 8);
    let second = &request[first..first + 40];
    payload.extend(second);
    payload.extend([8, 0, 2, 0, offset, 0, 0, 0]);
    payload.extend([7, 0, 1, 0, b'o', b'h', 0, 0]);
    let answer = header(NLMSG_ERROR, NLM_F_ACK_TLVS, 3, &payload);
    let ok = header(NLMSG_ERROR, 0, 2, &[0; 20]);
    let failures = Script::socket(vec![Ok(ok), Ok(answer)])
        .commit(batch(&["first", "second"]))
        .unwrap();
    let want = Refusal {
        index: Some(1),
        errno: nix::libc::EEXIST,
        extack: Some("oh".into()),
        attribute: Some(Path::from(Step::Attribute {
            number: 2,
            name: Some("NFTA_TABLE_FLAGS"),
        })),
        echo: second.get(20..).unwrap().to_vec(),
    };
    assert_eq!(failures, Err(vec![want]));
}

#[test]
fn a_late_answer_is_not_taken_for_another() {
    let acknowledged = |seq: u32| Ok(header(NLMSG_ERROR, 0, seq, &[0; 20]));
    let refused = |seq: u32| Ok(header(NLMSG_ERROR, 0, seq, &[0xff; 20]));
    let lost = || Err(io::Error::from_raw_os_error(nix::libc::ENOMEM));
    let none = || Err(io::ErrorKind::WouldBlock.into());
    // Request 1 gets no answer in time. The batch uses the sequence numbers 2 (begin), 3 and 4 (end).
    let mut socket = Script::socket(vec![
        lost(),
        refused(1),
        none(),
        refused(1),
        acknowledged(3),
    ]);
    let kind = message_type(NFNL_SUBSYS_NFTABLES, 16);
    let error = socket
        .get(kind, 0, &Gen::default(), "the generation")
        .unwrap_err();
    assert_eq!(error.errno(), Some(nix::libc::ENOMEM));
    assert_eq!(socket.commit(batch(&["a"])).unwrap(), Ok(()));
    // An acknowledgement of another request does not count.
    let mut socket = Script::socket(vec![acknowledged(1), acknowledged(3)]);
    assert!(socket.commit(batch(&["a"])).is_err());
}

#[test]
fn losses_without_end_leave_the_refusal() {
    let lost = || Err(io::Error::from_raw_os_error(nix::libc::ENOBUFS));
    let refused = Ok(header(NLMSG_ERROR, 0, 2, &(-17i32).to_ne_bytes().repeat(5)));
    let answers = [refused]
        .into_iter()
        .chain((0..100).map(|_| lost()))
        .collect();
    let refused = Script::socket(answers).commit(batch(&["a"])).unwrap();
    assert_eq!(refused.unwrap_err()[0].errno, nix::libc::EEXIST);
}

fn errno(n: i32) -> io::Error {
    io::Error::from_raw_os_error(n)
}

/// The state of a batch with one message (2, between begin and end) after these answers.
fn known(answers: Vec<io::Result<Vec<u8>>>) -> Option<InForce> {
    let outcome = Script::socket(answers).commit(batch(&["a"]));
    match outcome {
        Ok(Ok(())) => None,
        Ok(Err(refused)) => {
            assert_eq!(refused.len(), 1);
            Some(InForce::No)
        }
        Err(e) => Some(e.in_force),
    }
}

#[test]
fn a_lost_answer_leaves_open_what_is_in_force() {
    let acknowledged = || Ok(header(NLMSG_ERROR, 0, 2, &[0; 20]));
    let refused = || Ok(header(NLMSG_ERROR, 0, 2, &[0xff; 20]));
    let lost = || Err(errno(nix::libc::ENOBUFS));
    let torn = || Ok(vec![40, 0, 0, 0, 2, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(known(vec![acknowledged()]), None);
    assert_eq!(known(vec![refused()]), Some(InForce::No));
    // A refusal is certain, whatever else is lost.
    assert_eq!(known(vec![lost(), refused()]), Some(InForce::No));
    assert_eq!(known(vec![torn(), refused(), lost()]), Some(InForce::No));
    // An acknowledgement of the last message does not exclude that a refusal was lost.
    for answers in [
        vec![],
        vec![lost()],
        vec![torn()],
        vec![Err(errno(nix::libc::ENOMEM))],
        vec![lost(), acknowledged()],
        vec![acknowledged(), lost()],
        vec![Ok(header(NLMSG_OVERRUN, 0, 2, &[])), acknowledged()],
    ] {
        let text = format!("{answers:?}");
        assert_eq!(known(answers), Some(InForce::Unknown), "{text}");
    }
    let error = Script::socket(vec![lost()]).exchange(requests(1), "tables");
    assert_eq!(error.unwrap_err().in_force, InForce::Unknown);
}

/// A transport whose `send` fails.
struct Broken(Script);

impl Transport for Broken {
    fn send(&self, _: &[u8]) -> io::Result<()> {
        Err(errno(nix::libc::EPERM))
    }
    fn receive(&self, buf: &mut [u8], wait: Duration) -> io::Result<usize> {
        self.0.receive(buf, wait)
    }
    fn reopen(&self) -> Result<Self> {
        Ok(Self(self.0.reopen()?))
    }
}

#[test]
fn what_was_not_sent_is_not_in_force_unless_it_was_answered() {
    let broken = |answers: Vec<io::Result<Vec<u8>>>| {
        let script = Script(RefCell::new(answers.into()));
        Socket::with_transport(Broken(script)).commit(batch(&["a"]))
    };
    let error = broken(vec![]).unwrap_err();
    assert_eq!(error.in_force, InForce::No);
    assert_eq!(error.errno(), Some(nix::libc::EPERM));
    let acknowledged = Ok(header(NLMSG_ERROR, 0, 2, &[0; 20]));
    assert_eq!(broken(vec![acknowledged]).unwrap(), Ok(()));
}

/// A transport that discards every request.
struct Mute(NetlinkSocket);

impl Transport for Mute {
    fn send(&self, _: &[u8]) -> io::Result<()> {
        Ok(())
    }
    fn receive(&self, buf: &mut [u8], wait: Duration) -> io::Result<usize> {
        self.0.receive(buf, wait)
    }
    fn reopen(&self) -> Result<Self> {
        Ok(Self(self.0.reopen()?))
    }
}

#[test]
fn an_answer_that_does_not_come_is_not_waited_for_for_ever() {
    let patience = Patience {
        silence: Duration::from_millis(60),
        ..Patience::default()
    };
    let mut socket = Socket::with_transport(Mute(NetlinkSocket::open::<Netfilter>().unwrap()))
        .patience(patience);
    let begun = Instant::now();
    let kind = message_type(NFNL_SUBSYS_NFTABLES, 16);
    let error = socket.get(kind, 0, &Gen::default(), "the generation");
    let error = error.unwrap_err();
    assert!(error.is_timed_out(), "{error}");
    let text = error.to_string();
    assert!(
        text.contains("the generation") && text.contains("ms; try"),
        "{text}"
    );
    let kind = message_type(NFNL_SUBSYS_NFTABLES, NFT_MSG_GETTABLE);
    let error = socket.dump(kind, 0, &Table::default(), "tables");
    assert!(error.unwrap_err().is_timed_out());
    let waited = begun.elapsed();
    assert!(
        waited >= 2 * patience.silence && waited < Duration::from_secs(5),
        "{waited:?}"
    );
}

/// A dump that never ends.
struct Endless;

impl Transport for Endless {
    fn send(&self, _: &[u8]) -> io::Result<()> {
        Ok(())
    }
    fn receive(&self, buf: &mut [u8], _: Duration) -> io::Result<usize> {
        std::thread::sleep(Duration::from_millis(1));
        let object = header(OBJECT, 2, 1, &[1, 0, 0, 7]);
        buf[..object.len()].copy_from_slice(&object);
        Ok(object.len())
    }
    fn reopen(&self) -> Result<Self> {
        unreachable!("nothing is opened again")
    }
}

#[test]
fn a_list_without_an_end_is_not_read_for_ever() {
    let patience = Patience {
        silence: Duration::from_millis(100),
        whole: Duration::from_millis(120),
    };
    let mut socket = Socket::with_transport(Endless).patience(patience);
    let begun = Instant::now();
    let kind = message_type(NFNL_SUBSYS_NFTABLES, NFT_MSG_GETTABLE);
    let error = socket.dump_each(kind, 0, &Table::default(), "tables", |_| Ok(()));
    let error = error.unwrap_err();
    assert!(error.is_timed_out(), "{error}");
    assert!(begun.elapsed() < Duration::from_secs(5));
}

/// The reserved room when a datagram was sent, and the datagram.
type WithRoom = (usize, Vec<u8>);

/// The old socket has endless leftovers; a new one receives no answer. The new one records the reserved room with each datagram.
struct Leftovers {
    is_fresh: bool,
    room: Cell<usize>,
    sent: Rc<RefCell<Vec<WithRoom>>>,
}

impl Transport for Leftovers {
    fn send(&self, datagram: &[u8]) -> io::Result<()> {
        if self.is_fresh {
            let sent = (self.room.get(), datagram.to_vec());
            self.sent.borrow_mut().push(sent);
        }
        Ok(())
    }
    fn receive(&self, buf: &mut [u8], _: Duration) -> io::Result<usize> {
        if self.is_fresh {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let object = header(OBJECT, 2, 999, &[1, 0, 0, 7]);
        buf[..object.len()].copy_from_slice(&object);
        Ok(object.len())
    }
    fn reserve(&self, bytes: usize) -> io::Result<()> {
        self.room.set(self.room.get().max(bytes));
        Ok(())
    }
    fn reopen(&self) -> Result<Self> {
        Ok(Self {
            is_fresh: true,
            room: Cell::new(0),
            sent: Rc::clone(&self.sent),
        })
    }
}

#[test]
fn a_fresh_socket_has_the_room_of_the_old_one_and_numbers_of_its_own() {
    let sent = Rc::new(RefCell::new(Vec::new()));
    let patience = Patience {
        silence: Duration::from_millis(10),
        whole: Duration::from_millis(10),
    };
    let mut socket = Socket::with_transport(Leftovers {
        is_fresh: false,
        room: Cell::new(0),
        sent: Rc::clone(&sent),
    })
    .patience(patience);
    socket.reserve(1 << 20).unwrap();
    let kind = message_type(NFNL_SUBSYS_NFTABLES, NFT_MSG_GETTABLE);
    let error = socket.dump(kind, 0, &Table::default(), "tables");
    assert!(error.unwrap_err().is_timed_out());
    // The first batch needs more room than was reserved; the second needs no reservation.
    for n in [40_000, 3] {
        socket.exchange(requests(n), "tables").unwrap_err();
    }
    let sent = sent.borrow();
    let [(first_room, first), (second_room, second)] = &sent[..] else {
        panic!("{} datagrams", sent.len());
    };
    assert!(first.len() > 1 << 20 && *first_room >= first.len());
    assert!(*second_room >= first.len());
    let number = |at: &[u8]| u32::from_ne_bytes(at[8..12].try_into().unwrap());
    let size = |at: &[u8]| u32::from_ne_bytes(at[..4].try_into().unwrap()) as usize;
    let mut last = first.as_slice();
    while size(last) < last.len() {
        last = &last[size(last)..];
    }
    assert!(number(second) > number(last), "a number is used twice");
    assert!(number(last) >= number(first));
}

/// Interrupts every wait with EINTR and records its length.
#[derive(Default)]
struct Signals(RefCell<Vec<Duration>>);

impl Transport for Signals {
    fn send(&self, _: &[u8]) -> io::Result<()> {
        Ok(())
    }
    fn receive(&self, _: &mut [u8], wait: Duration) -> io::Result<usize> {
        self.0.borrow_mut().push(wait);
        if wait.is_zero() {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        std::thread::sleep(wait.min(Duration::from_millis(5)));
        Err(errno(nix::libc::EINTR))
    }
    fn reopen(&self) -> Result<Self> {
        unreachable!("nothing is opened again")
    }
}

#[test]
fn a_signal_does_not_start_the_clock_anew() {
    let patience = Patience {
        silence: Duration::from_millis(100),
        ..Patience::default()
    };
    let mut socket = Socket::with_transport(Signals::default()).patience(patience);
    let begun = Instant::now();
    let kind = message_type(NFNL_SUBSYS_NFTABLES, NFT_MSG_GETTABLE);
    let error = socket.dump(kind, 0, &Table::default(), "tables");
    assert!(error.unwrap_err().is_timed_out());
    assert!(begun.elapsed() < Duration::from_secs(5));
}

#[test]
fn the_kernel_has_a_generation() {
    let mut socket = match Socket::open() {
        Ok(s) => s,
        Err(e) => panic!("{e}"),
    };
    let kind = message_type(NFNL_SUBSYS_NFTABLES, 16);
    match socket.get(kind, 0, &Gen::default(), "the generation") {
        Ok(reply) => assert!(reply.decode::<Gen>().unwrap().id.is_some()),
        Err(e) if e.is_permission() => eprintln!("skipped: {e}"),
        Err(e) => panic!("{e}"),
    }
}

fn requests(n: u32) -> Requests {
    let mut requests = Requests::new(NFNL_SUBSYS_NFTABLES);
    for flags in 0..n {
        let table = Table {
            name: Some("t".into()),
            flags: Some(flags),
            ..Table::default()
        };
        requests.push(NFT_MSG_NEWTABLE, 0, 1, &table);
    }
    requests
}

#[test]
fn requests_are_refused_one_by_one() {
    let ok = |seq| Ok(header(NLMSG_ERROR, 0, seq, &[0; 20]));
    // The refusal contains the request: header, nfgenmsg, then attributes that the kernel may have changed.
    let mut payload = (-17i32).to_ne_bytes().to_vec();
    payload.extend(header(OBJECT, 5, 2, &[1, 0, 0, 0, 8, 0, 2, 0, 9, 9, 9, 9]));
    let refused = Ok(header(NLMSG_ERROR, 0, 2, &payload));
    let stranger = Ok(header(NLMSG_ERROR, 0, 77, &payload));
    let mut socket = Script::socket(vec![stranger, ok(3), refused, ok(1)]);
    let refusals = socket.exchange(requests(3), "tables").unwrap();
    let want = Refusal {
        index: Some(1),
        errno: nix::libc::EEXIST,
        extack: None,
        attribute: None,
        echo: vec![8, 0, 2, 0, 9, 9, 9, 9],
    };
    assert_eq!(refusals, [want]);
    assert_eq!(socket.exchange(requests(0), "nothing").unwrap(), []);
}

#[test]
fn a_request_without_an_answer_is_not_success() {
    let ok = |seq| Ok(header(NLMSG_ERROR, 0, seq, &[0; 20]));
    let error = Script::socket(vec![ok(1)])
        .exchange(requests(2), "tables")
        .unwrap_err();
    assert!(error.to_string().contains("did not answer"), "{error}");
    let lost = Err(io::Error::from_raw_os_error(nix::libc::ENOBUFS));
    let error = Script::socket(vec![ok(1), lost])
        .exchange(requests(2), "tables")
        .unwrap_err();
    assert_eq!(error.errno(), Some(nix::libc::ENOBUFS));
}

#[test]
fn a_refused_value_says_what_the_kernel_takes() {
    let netns = namespace_or_skip!();
    let failures = netns
        .run(|| {
            Socket::open()
                .unwrap()
                .commit(batch(&[&"a".repeat(300)]))
                .unwrap()
        })
        .unwrap()
        .unwrap_err();
    let Some(path) = failures[0].attribute.clone() else {
        // nfnetlink up to 6.12 validates attributes without an extended ack.
        let probe = "nfnetlink extended ack about a refused attribute";
        return weir_testing::lacks::skip(probe, "6.18", format!("{:?}", failures[0]));
    };
    let step = Step::Attribute {
        number: 1,
        name: Some("NFTA_TABLE_NAME"),
    };
    assert_eq!(path.steps(), [step]);
    // Since 5.10 the kernel also reports the attribute policy.
    if let Some(policy) = path.policy() {
        let kind = usize::try_from(policy.kind.expect("a type")).unwrap();
        assert_eq!(NL_ATTR_TYPES[kind], "STRING");
        assert!(policy.max_len.is_some_and(|n| n < 300), "{path}");
        assert!(
            path.to_string()
                .contains("the kernel takes NL_ATTR_TYPE_STRING"),
            "{path}"
        );
    }
}
