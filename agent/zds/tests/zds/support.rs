//! A node with its server, and a ztunnel that the test plays.

use nix::sys::socket::{ControlMessage, ControlMessageOwned, MsgFlags, recvmsg, sendmsg};
use prost::Message;
use socket2::{Domain, SockAddr, Socket, Type};
use std::fs::File;
use std::io::{ErrorKind, IoSlice, IoSliceMut};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use weir_testing::TempDir;
use weir_zds::message::{Request, WorkloadRequest};
use weir_zds::{Handle, Observer, Options, Server, Uid, Workload, Workloads};

pub(crate) const LONG: Duration = Duration::from_secs(20);
/// ztunnel's first message.
pub(crate) const HELLO: [u8; 2] = [0x08, 0x01];
/// The answer to an accepted request.
pub(crate) const ACK: [u8; 2] = [0x0a, 0x00];

/// The pods, and the recorded observations.
#[derive(Default)]
pub(crate) struct Node {
    pub(crate) pods: Mutex<Option<Vec<Workload>>>,
    pub(crate) said: Mutex<Vec<String>>,
    /// The number of connections whose report takes long.
    pub(crate) slow_at: Mutex<Option<usize>>,
}

impl Workloads for Node {
    fn all(&self) -> Option<Vec<Workload>> {
        self.pods.lock().unwrap().clone()
    }
}

impl Observer for Node {
    fn connections(&self, count: usize) {
        if *self.slow_at.lock().unwrap() == Some(count) {
            std::thread::sleep(Duration::from_millis(300));
        }
        self.say(format!("connections {count}"));
    }
    fn snapshot(&self, added: usize, kept: usize) {
        self.say(format!("snapshot {added} {kept}"));
    }
    fn snapshot_refused(&self, why: &str) {
        self.say(format!("end of the snapshot refused: {why}"));
    }
    fn refused(&self, uid: &str, why: &str) {
        self.say(format!("refused {uid}: {why}"));
    }
    fn answered(&self, uid: &Uid) {
        self.say(format!("answered {uid}"));
    }
    fn closed(&self, why: &str) {
        self.say(format!("closed: {why}"));
    }
    fn stranger(&self, why: &str) {
        self.say(format!("stranger: {why}"));
    }
    fn socket(&self, failure: Option<&str>) {
        self.say(format!("socket {failure:?}"));
    }
}

impl Node {
    fn say(&self, what: String) {
        self.said.lock().unwrap().push(what);
    }

    /// The observations that begin with this text.
    pub(crate) fn said(&self, begin: &str) -> Vec<String> {
        let said = self.said.lock().unwrap();
        let all = said.iter().filter(|s| s.starts_with(begin));
        all.cloned().collect()
    }

    pub(crate) fn says(&self, part: &str) {
        self.says_times(part, 1);
    }

    pub(crate) fn says_times(&self, part: &str, times: usize) {
        let begun = Instant::now();
        loop {
            let said = self.said.lock().unwrap().clone();
            if said.iter().filter(|s| s.contains(part)).count() >= times {
                return;
            }
            assert!(begun.elapsed() < LONG, "{part}: {said:?}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    pub(crate) fn set(&self, pods: &[Workload]) {
        *self.pods.lock().unwrap() = Some(pods.to_vec());
    }
}

pub(crate) struct Scene {
    pub(crate) node: Arc<Node>,
    pub(crate) server: Server,
    pub(crate) dir: TempDir,
}

impl Scene {
    pub(crate) fn new() -> Self {
        Self::with(|_| {})
    }

    pub(crate) fn with(change: impl FnOnce(&mut Options)) -> Self {
        let (node, dir) = (Arc::new(Node::default()), TempDir::new());
        node.set(&[]);
        let server = server(&node, dir.path(), change);
        Self { node, server, dir }
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.dir.path().join("ztunnel.sock")
    }

    pub(crate) fn handle(&self) -> Handle {
        self.server.handle()
    }

    /// Restarts the server for the same pods, without observations.
    pub(crate) fn restarted(self) -> Self {
        let pods = self.node.pods.lock().unwrap().clone();
        let Self {
            server: old, dir, ..
        } = self;
        drop(old);
        let node = Arc::new(Node::default());
        *node.pods.lock().unwrap() = pods;
        let server = server(&node, dir.path(), |_| {});
        Self { node, server, dir }
    }

    /// Waits until the condition holds for the connections.
    pub(crate) fn until(&self, what: &str, holds: impl Fn(&[weir_zds::Peer]) -> bool) {
        let (handle, begun) = (self.handle(), Instant::now());
        while !holds(&handle.peers()) {
            assert!(begun.elapsed() < LONG, "{what}: {:?}", handle.peers());
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

pub(crate) fn server(node: &Arc<Node>, dir: &Path, change: impl FnOnce(&mut Options)) -> Server {
    let mut options = Options::new(dir.join("ztunnel.sock"));
    change(&mut options);
    Server::start(options, Arc::clone(node) as _, Arc::clone(node) as _).unwrap()
}

pub(crate) fn namespace() -> Option<Arc<File>> {
    let netns = weir_testing::namespace()?;
    Some(Arc::new(File::open(netns.path()).unwrap()))
}

/// Creates a namespace, or prints a skip and ends the test.
#[macro_export]
macro_rules! namespace_or_skip {
    () => {{
        drop::<weir_netlink::Netns>(weir_testing::namespace_or_skip!());
        $crate::support::namespace().unwrap()
    }};
}

pub(crate) fn id(netns: &File) -> (u64, u64) {
    let meta = netns.metadata().unwrap();
    (meta.dev(), meta.ino())
}

pub(crate) fn pod(uid: &str, netns: Option<&Arc<File>>) -> Workload {
    Workload {
        uid: uid.into(),
        name: "web".into(),
        namespace: "shop".into(),
        service_account: "web".into(),
        netns: netns.map(|netns| Arc::clone(netns) as _),
    }
}

pub(crate) fn connect(path: &Path) -> Socket {
    let socket = Socket::new(Domain::UNIX, Type::SEQPACKET, None).unwrap();
    socket.connect(&SockAddr::unix(path).unwrap()).unwrap();
    socket
}

/// Sends a packet with these descriptors.
pub(crate) fn send(socket: &Socket, bytes: &[u8], fds: &[RawFd]) -> nix::Result<()> {
    let rights = [ControlMessage::ScmRights(fds)];
    let rights = if fds.is_empty() { &[] } else { &rights[..] };
    let (data, flags) = ([IoSlice::new(bytes)], MsgFlags::MSG_NOSIGNAL);
    sendmsg::<()>(socket.as_raw_fd(), &data, rights, flags, None).map(drop)
}

/// The bytes of a packet, and device and inode of each descriptor.
pub(crate) type Packet = (Vec<u8>, Vec<(u64, u64)>);

/// Receives a packet within [`LONG`], with the namespaces that its descriptors refer to. `None` if the other end has closed the connection.
pub(crate) fn receive(socket: &Socket) -> Option<Packet> {
    socket.set_read_timeout(Some(LONG)).unwrap();
    let mut bytes = vec![0; 2048];
    let mut space = nix::cmsg_space!([RawFd; 8]);
    let mut data = [IoSliceMut::new(&mut bytes)];
    let flags = MsgFlags::MSG_CMSG_CLOEXEC;
    let received = match recvmsg::<()>(socket.as_raw_fd(), &mut data, Some(&mut space), flags) {
        // The other end has closed the connection without reading everything.
        Err(nix::errno::Errno::ECONNRESET) => return None,
        received => received.map_err(|e| std::io::Error::from(e).kind()),
    };
    assert_ne!(
        received.as_ref().err(),
        Some(&ErrorKind::WouldBlock),
        "silence"
    );
    let received = received.unwrap();
    let mut netns = Vec::new();
    for message in received.cmsgs().unwrap() {
        if let ControlMessageOwned::ScmRights(fds) = message {
            for fd in fds {
                let meta = std::fs::metadata(format!("/proc/self/fd/{fd}")).unwrap();
                netns.push((meta.dev(), meta.ino()));
                nix::unistd::close(fd).unwrap();
            }
        }
    }
    let length = received.bytes;
    bytes.truncate(length);
    (length > 0).then_some((bytes, netns))
}

/// A ztunnel that the test plays.
pub(crate) struct Puppet(pub(crate) Socket);

impl Puppet {
    pub(crate) fn connect(path: &Path) -> Self {
        Self(connect(path))
    }

    /// Connects, sends the hello, and accepts this many requests.
    pub(crate) fn after(path: &Path, requests: usize) -> Self {
        let puppet = Self::connect(path);
        puppet.says(&HELLO);
        for _ in 0..requests {
            puppet.asked().unwrap();
            puppet.says(&ACK);
        }
        puppet
    }

    pub(crate) fn says(&self, bytes: &[u8]) {
        send(&self.0, bytes, &[]).unwrap();
    }

    /// The next request, with the namespace of an added pod. `None` if the server has closed the connection.
    pub(crate) fn asked(&self) -> Option<(Request, Option<(u64, u64)>)> {
        let (bytes, netns) = receive(&self.0)?;
        let request = WorkloadRequest::decode(&bytes[..])
            .unwrap()
            .payload
            .unwrap();
        let wanted = usize::from(matches!(request, Request::Add(_)));
        assert_eq!(netns.len(), wanted, "{request:?}");
        Some((request, netns.first().copied()))
    }
}
