//! The stand-in itself: it detects a server that violates the protocol, as the real ztunnel does. Here the test is the server.

use crate::support::{ACK, HELLO, LONG, id, namespace, receive, send};
use prost::Message;
use socket2::{Domain, SockAddr, Socket, Type};
use std::fs::File;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;
use std::time::{Duration, Instant};
use weir_testing::TempDir;
use weir_testing::ztunnel::Ztunnel;
use weir_zds::message::{Response, WorkloadResponse};

/// `add` of the pod `u1`, with an identity.
const ADD: &[u8] = b"\x0a\x11\x0a\x02u1\x12\x0b\x0a\x01p\x12\x02ns\x1a\x02sa";
const ADD_WITHOUT_IDENTITY: &[u8] = b"\x0a\x04\x0a\x02u2";
const DEL: &[u8] = b"\x12\x04\x12\x02u1";
const KEEP: &[u8] = b"\x2a\x04\x0a\x02u1";
const SNAPSHOT_SENT: &[u8] = b"\x1a\x00";

/// A server that the test plays, and a stand-in that has the pod `u1` from its snapshot.
struct Line {
    listener: Socket,
    socket: Socket,
    ztunnel: Ztunnel,
    netns: Arc<File>,
    _dir: TempDir,
}

impl Line {
    fn new(netns: &Arc<File>) -> Self {
        let dir = TempDir::new();
        let path = dir.path().join("ztunnel.sock");
        let listener = Socket::new(Domain::UNIX, Type::SEQPACKET, None).unwrap();
        listener.bind(&SockAddr::unix(&path).unwrap()).unwrap();
        listener.listen(1).unwrap();
        let ztunnel = Ztunnel::connect(&path);
        let line = Self {
            socket: accept(&listener),
            listener,
            ztunnel,
            netns: Arc::clone(netns),
            _dir: dir,
        };
        line.takes(ADD, 1);
        line.takes(SNAPSHOT_SENT, 0);
        line
    }

    fn send(&self, bytes: &[u8], descriptors: usize) {
        let fds: Vec<RawFd> = vec![self.netns.as_raw_fd(); descriptors];
        send(&self.socket, bytes, &fds).unwrap();
    }

    fn takes(&self, bytes: &[u8], descriptors: usize) {
        self.send(bytes, descriptors);
        assert_eq!(receive(&self.socket).unwrap().0, ACK, "{bytes:?}");
    }

    /// Checks that the stand-in reports a fault, closes the connection, and records the fault.
    fn refuses(&self, part: &str) {
        let (bytes, _) = receive(&self.socket).expect("an answer");
        let answer = WorkloadResponse::decode(&bytes[..]).unwrap().payload;
        assert!(
            matches!(&answer, Some(Response::Ack(ack)) if ack.error.contains(part)),
            "{part}: {answer:?}"
        );
        assert_eq!(receive(&self.socket), None, "{part}: it has closed");
        let faults = self.ztunnel.faults();
        assert!(
            faults.len() == 1 && faults[0].contains(part),
            "{part}: {faults:?}"
        );
    }
}

fn accept(listener: &Socket) -> Socket {
    let (socket, _) = listener.accept().unwrap();
    assert_eq!(receive(&socket).unwrap().0, HELLO);
    socket
}

#[test]
fn a_packet_that_it_cannot_use_is_a_fault_and_closes_the_connection() {
    let netns = crate::namespace_or_skip!();
    let long = [ADD, &vec![b'\x20'; 1100]].concat();
    let cases: [(&[u8], usize, &str); 12] = [
        (&[0xff; 4], 0, "cannot be read"),
        (&ADD[..ADD.len() - 1], 1, "cannot be read"),
        (b"\x22\x00", 0, "without payload"),
        (&long, 1, "more than 1024 bytes"),
        (ADD, 0, "0 descriptors"),
        (ADD, 2, "2 descriptors"),
        (ADD, 3, "3 descriptors"),
        (ADD, 253, "253 descriptors"),
        (KEEP, 1, "1 descriptors"),
        (DEL, 1, "1 descriptors"),
        (SNAPSHOT_SENT, 1, "1 descriptors"),
        (ADD_WITHOUT_IDENTITY, 2, "2 descriptors"),
    ];
    for (bytes, descriptors, part) in cases {
        let line = Line::new(&netns);
        line.send(bytes, descriptors);
        line.refuses(part);
        // It connects again, and still has its pods.
        let again = accept(&line.listener);
        assert_eq!(line.ztunnel.pods()["u1"].netns, id(&netns), "{part}");
        drop(again);
    }
}

#[test]
fn a_descriptor_of_something_else_is_a_fault() {
    let line = Line::new(&crate::namespace_or_skip!());
    let file = File::open("/dev/null").unwrap();
    send(&line.socket, ADD, &[file.as_raw_fd()]).unwrap();
    line.refuses("no namespace");
    drop(accept(&line.listener));
    assert!(line.ztunnel.pods().contains_key("u1"));
}

#[test]
fn after_a_request_out_of_order_it_drains_all_and_ends() {
    let netns = crate::namespace_or_skip!();
    for (bytes, descriptors, part) in [
        (KEEP, 0, "to be kept after the snapshot"),
        (SNAPSHOT_SENT, 0, "a second end"),
        (ADD_WITHOUT_IDENTITY, 1, "without identity"),
    ] {
        let line = Line::new(&netns);
        line.send(bytes, descriptors);
        line.refuses(part);
        assert!(line.ztunnel.pods().is_empty(), "{part}");
        // It has ended and does not connect any more.
        line.listener.set_nonblocking(true).unwrap();
        drop(line.ztunnel);
        assert!(line.listener.accept().is_err(), "{part}");
    }
}

/// The pauses between attempts double up to 15 s. The first ones are at the real scale, the later ones a thousand times shorter.
#[test]
fn it_tries_to_connect_less_and_less() {
    let dir = TempDir::new();
    let path = dir.path().join("ztunnel.sock");
    let pauses = |faster: u32, count: usize| {
        let ztunnel = Ztunnel::faster(&path, faster);
        let begun = Instant::now();
        while ztunnel.attempts().len() <= count {
            assert!(begun.elapsed() < LONG, "{:?}", ztunnel.attempts());
            std::thread::sleep(Duration::from_millis(1));
        }
        let at = ztunnel.attempts();
        let pauses = at.windows(2).map(|two| (two[1] - two[0]) * faster);
        pauses.take(count).collect::<Vec<_>>()
    };
    let real = pauses(1, 4);
    let millis = [20, 40, 80, 160].map(Duration::from_millis);
    assert!(
        real.iter().zip(millis).all(|(p, least)| *p >= least),
        "{real:?}"
    );
    let all = pauses(1000, 13);
    let longest = all
        .iter()
        .filter(|pause| **pause >= Duration::from_secs(15));
    assert!(longest.count() >= 3, "{all:?}");
}

/// All received descriptors are closed.
#[test]
fn it_keeps_no_descriptor() {
    let line = Line::new(&crate::namespace_or_skip!());
    let own = namespace().unwrap();
    let before = leading_to(&own);
    for _ in 0..3 {
        send(&line.socket, ADD, &[own.as_raw_fd()]).unwrap();
        assert_eq!(receive(&line.socket).unwrap().0, ACK);
    }
    send(&line.socket, KEEP, &[own.as_raw_fd(); 40]).unwrap();
    line.refuses("40 descriptors");
    assert_eq!((before, leading_to(&own)), (1, 1));
}

/// The number of descriptors of this process that refer to this namespace.
fn leading_to(netns: &File) -> usize {
    let all = std::fs::read_dir("/proc/self/fd").unwrap();
    let is_it = |path: std::path::PathBuf| {
        use std::os::unix::fs::MetadataExt;
        // Other descriptors are opened and closed in the meantime.
        std::fs::metadata(path).is_ok_and(|meta| (meta.dev(), meta.ino()) == id(netns))
    };
    all.filter(|entry| is_it(entry.as_ref().unwrap().path()))
        .count()
}
