//! The server against a peer that keeps the protocol, and against peers that do not. Real sockets and namespaces; against
//! the real ztunnel when ZTUNNEL names its program.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    missing_docs
)]

use proptest::prelude::*;
use socket2::{Domain, SockAddr, Socket, Type};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use weir_netlink::Netns;
use weir_testing::TempDir;
use weir_testing::ztunnel::Ztunnel;
use weir_zds::{AddError, Handle, Observer, Options, Server, Workload, Workloads};

const LONG: Duration = Duration::from_secs(20);

/// Pods, and what was observed.
#[derive(Default)]
struct Node {
    pods: Mutex<Option<Vec<Workload>>>,
    said: Mutex<Vec<String>>,
}

impl Workloads for Node {
    fn all(&self) -> Option<Vec<Workload>> {
        self.pods.lock().unwrap().clone()
    }
}

impl Observer for Node {
    fn connections(&self, count: usize) {
        self.say(format!("connections {count}"));
    }
    fn snapshot(&self, added: usize, kept: usize) {
        self.say(format!("snapshot {added} {kept}"));
    }
    fn refused(&self, uid: &str, why: &str) {
        self.say(format!("refused {uid}: {why}"));
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

    fn says(&self, part: &str) {
        self.says_times(part, 1);
    }

    fn says_times(&self, part: &str, times: usize) {
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

    fn set(&self, pods: &[Workload]) {
        *self.pods.lock().unwrap() = Some(pods.to_vec());
    }
}

struct Scene {
    node: Arc<Node>,
    server: Server,
    dir: TempDir,
}

impl Scene {
    fn new() -> Self {
        Self::with(|_| {})
    }

    fn with(change: impl FnOnce(&mut Options)) -> Self {
        let (node, dir) = (Arc::new(Node::default()), TempDir::new());
        node.set(&[]);
        let server = server(&node, dir.path(), change);
        Self { node, server, dir }
    }

    fn path(&self) -> PathBuf {
        self.dir.path().join("ztunnel.sock")
    }

    fn handle(&self) -> Handle {
        self.server.handle()
    }
}

fn server(node: &Arc<Node>, dir: &Path, change: impl FnOnce(&mut Options)) -> Server {
    let mut options = Options::new(dir.join("ztunnel.sock"));
    change(&mut options);
    Server::start(options, Arc::clone(node) as _, Arc::clone(node) as _).unwrap()
}

fn namespace() -> Option<Arc<std::fs::File>> {
    let netns = weir_testing::namespace()?;
    Some(Arc::new(std::fs::File::open(netns.path()).unwrap()))
}

/// A namespace, or a printed skip.
macro_rules! namespace_or_skip {
    () => {{
        drop::<Netns>(weir_testing::namespace_or_skip!());
        namespace().unwrap()
    }};
}

fn id(netns: &std::fs::File) -> (u64, u64) {
    let meta = netns.metadata().unwrap();
    (meta.dev(), meta.ino())
}

fn pod(uid: &str, netns: Option<&Arc<std::fs::File>>) -> Workload {
    Workload {
        uid: uid.into(),
        name: "web".into(),
        namespace: "shop".into(),
        service_account: "web".into(),
        netns: netns.map(|netns| Arc::clone(netns) as _),
    }
}

#[test]
fn pods_are_handed_over_moved_and_removed() {
    let (one, other) = (namespace_or_skip!(), namespace_or_skip!());
    let scene = Scene::new();
    let handle = scene.handle();
    assert_eq!(handle.newest(), None);
    assert_eq!(
        handle.add(&pod("a", Some(&one)), LONG),
        Err(AddError::NoProxy)
    );
    assert_eq!(
        handle.remove("a", LONG),
        Ok(()),
        "there is nobody who knows it"
    );
    scene.node.set(&[pod("a", Some(&one)), pod("kept", None)]);
    let ztunnel = Ztunnel::connect(&scene.path());
    scene.node.says("snapshot");
    assert_eq!(ztunnel.pods().len(), 1);
    assert_eq!(ztunnel.pods()["a"].netns, id(&one));
    assert_eq!(ztunnel.pods()["a"].name, "shop/web");
    scene.node.says("snapshot 1 1");
    let by = handle.newest().unwrap();
    assert_eq!(handle.add(&pod("b", Some(&one)), LONG), Ok(by));
    assert_eq!(handle.add(&pod("b", Some(&other)), LONG), Ok(by));
    ztunnel.carries("b", Some(id(&other)));
    assert_eq!(handle.remove("b", LONG), Ok(()));
    ztunnel.carries("b", None);
    assert_eq!(ztunnel.faults(), Vec::<String>::new());
}

#[test]
fn pods_that_are_not_known_yet_are_waited_for_and_nobody_loses_them() {
    let netns = namespace_or_skip!();
    let node = Arc::new(Node::default());
    let dir = TempDir::new();
    let path = dir.path().join("ztunnel.sock");
    node.set(&[pod("a", Some(&netns))]);
    let first = server(&node, dir.path(), |_| {});
    let ztunnel = Ztunnel::connect(&path);
    ztunnel.snapshots(1);
    // Another agent begins, and does not know the pods.
    drop(first);
    *node.pods.lock().unwrap() = None;
    let second = server(&node, dir.path(), |o| {
        o.patience = Duration::from_millis(300)
    });
    node.says("not known within");
    assert!(ztunnel.pods().contains_key("a"));
    // It knows that there is one, and not where.
    node.set(&[pod("a", None)]);
    ztunnel.snapshots(2);
    assert!(ztunnel.pods().contains_key("a"));
    node.set(&[]);
    drop(second);
    let _third = server(&node, dir.path(), |_| {});
    ztunnel.snapshots(3);
    assert!(ztunnel.pods().is_empty());
    assert_eq!(ztunnel.faults(), Vec::<String>::new());
}

#[test]
fn of_two_the_newest_gets_pods_and_both_lose_them() {
    let netns = namespace_or_skip!();
    let scene = Scene::new();
    let handle = scene.handle();
    let old = Ztunnel::connect(&scene.path());
    scene.node.says("snapshot");
    let of_old = handle.newest().unwrap();
    handle.add(&pod("a", Some(&netns)), LONG).unwrap();
    scene.node.set(&[pod("a", Some(&netns))]);
    let new = Ztunnel::connect(&scene.path());
    scene.node.says_times("snapshot", 2);
    let of_new = handle.add(&pod("b", Some(&netns)), LONG).unwrap();
    assert!(of_new > of_old);
    assert!(new.pods().contains_key("b") && !old.pods().contains_key("b"));
    handle.remove("a", LONG).unwrap();
    old.carries("a", None);
    new.carries("a", None);
    drop(new);
    scene.node.says("closed: ztunnel has closed it");
    assert_eq!(handle.add(&pod("c", Some(&netns)), LONG), Ok(of_old));
    old.carries("c", Some(id(&netns)));
}

#[test]
fn a_refusal_of_any_length_ends_nothing() {
    let netns = namespace_or_skip!();
    let scene = Scene::new();
    let ztunnel = Ztunnel::connect(&scene.path());
    scene.node.says("snapshot");
    let long = format!("cannot listen\n{}", "backtrace ".repeat(6000));
    ztunnel.refuse("a", Some(&long));
    let refused = scene.handle().add(&pod("a", Some(&netns)), LONG);
    assert_eq!(refused, Err(AddError::Refused("cannot listen".into())));
    ztunnel.refuse("a", None);
    assert!(scene.handle().add(&pod("a", Some(&netns)), LONG).is_ok());
    assert_eq!(
        scene
            .node
            .said
            .lock()
            .unwrap()
            .iter()
            .filter(|s| s.starts_with("closed"))
            .count(),
        0
    );
}

#[test]
fn a_late_answer_ends_the_connection_and_is_taken_for_no_other() {
    let netns = namespace_or_skip!();
    let scene = Scene::with(|o| o.limit = Duration::from_millis(200));
    let ztunnel = Ztunnel::connect(&scene.path());
    scene.node.says("snapshot");
    ztunnel.pause(Duration::from_millis(600));
    let late = scene.handle().add(&pod("a", Some(&netns)), LONG);
    assert_eq!(late, Err(AddError::TimedOut));
    ztunnel.pause(Duration::ZERO);
    scene.node.set(&[pod("a", Some(&netns))]);
    ztunnel.snapshots(2);
    assert!(scene.handle().add(&pod("b", Some(&netns)), LONG).is_ok());
    assert_eq!(ztunnel.faults(), Vec::<String>::new());
}

#[test]
fn one_that_never_says_hello_holds_up_who_asks_no_longer_than_asked() {
    let netns = namespace_or_skip!();
    let scene = Scene::with(|o| o.limit = Duration::from_secs(1));
    let silent = connect(&scene.path());
    scene.node.says("connections 1");
    let added = scene.handle().add(&pod("a", Some(&netns)), LONG);
    assert_eq!(added, Err(AddError::NoProxy));
    assert_eq!(
        scene.handle().remove("a", Duration::from_millis(100)),
        Err(AddError::TimedOut)
    );
    scene.node.says("its hello");
    drop(silent);
}

#[test]
fn a_name_that_ztunnel_cannot_read_is_not_sent() {
    let netns = namespace_or_skip!();
    let scene = Scene::new();
    let _ztunnel = Ztunnel::connect(&scene.path());
    scene.node.says("snapshot");
    let mut long = pod("a", Some(&netns));
    long.name = "n".repeat(1200).into();
    let refused = scene.handle().add(&long, LONG);
    assert!(
        matches!(&refused, Err(AddError::Refused(why)) if why.contains("1023")),
        "{refused:?}"
    );
    assert!(scene.handle().add(&pod("b", Some(&netns)), LONG).is_ok());
}

#[test]
fn a_socket_that_is_lost_comes_back() {
    let scene = Scene::new();
    std::fs::remove_file(scene.path()).unwrap();
    scene.node.says_times("socket None", 2);
    Ztunnel::connect(&scene.path()).snapshots(1);
}

#[test]
fn strangers_are_refused() {
    let scene = Scene::with(|o| o.users = vec![12345]);
    let stranger = connect(&scene.path());
    scene.node.says("is not ztunnel");
    let mut byte = [std::mem::MaybeUninit::new(0)];
    stranger.set_read_timeout(Some(LONG)).unwrap();
    assert_eq!(stranger.recv(&mut byte).unwrap(), 0);
    assert_eq!(scene.handle().newest(), None);
}

#[test]
fn of_many_at_once_the_newest_replaces_the_oldest() {
    let netns = namespace_or_skip!();
    let scene = Scene::with(|o| o.limit = Duration::from_secs(15));
    let handle = scene.handle();
    let all: Vec<Socket> = (0..9).map(|_| connect(&scene.path())).collect();
    scene.node.says("a newer one has replaced it");
    let mut byte = [std::mem::MaybeUninit::new(0)];
    all[0].set_read_timeout(Some(LONG)).unwrap();
    assert_eq!(all[0].recv(&mut byte).unwrap(), 0, "the oldest is closed");
    let ids = |handle: &Handle| handle.peers().iter().map(|p| p.id).collect::<Vec<_>>();
    assert_eq!(ids(&handle), Vec::from_iter(2..=9));
    // Silent ones keep no ztunnel out, and each has replaced no more than one.
    let ztunnel = Ztunnel::connect(&scene.path());
    ztunnel.snapshots(1);
    scene.node.says_times("a newer one has replaced it", 2);
    assert_eq!(handle.add(&pod("a", Some(&netns)), LONG), Ok(10));
    assert_eq!(ids(&handle), Vec::from_iter(3..=10));
    assert_eq!(ztunnel.faults(), Vec::<String>::new());
}

#[test]
fn who_is_connected_and_what_was_acknowledged() {
    let netns = namespace_or_skip!();
    let scene = Scene::with(|o| o.limit = Duration::from_secs(15));
    let handle = scene.handle();
    assert_eq!(handle.peers(), []);
    let _silent = connect(&scene.path());
    scene.node.says("connections 1");
    scene.node.set(&[pod("a", Some(&netns)), pod("b", None)]);
    let _ztunnel = Ztunnel::connect(&scene.path());
    scene.node.says("snapshot 1 1");
    handle.add(&pod("c", Some(&netns)), LONG).unwrap();
    // It stays in line for the one that has not said hello.
    let removed = handle.remove("c", Duration::from_millis(300));
    assert_eq!(removed, Err(AddError::TimedOut));
    let peers = handle.peers();
    let own = i32::try_from(std::process::id()).unwrap();
    assert!(peers.iter().all(|p| p.pid == own), "{peers:?}");
    let facts: Vec<_> = peers
        .iter()
        .map(|p| (p.id, p.version, p.ready, p.acked, p.pending))
        .collect();
    // Two pods, the end of the snapshot, the pod that was added, its removal.
    assert_eq!(
        facts,
        [(1, None, false, 0, 1), (2, Some(1), true, 5, 0)],
        "{peers:?}"
    );
}

#[test]
fn the_file_of_the_socket_is_for_its_owner_alone() {
    use std::os::unix::fs::PermissionsExt;
    let scene = Scene::new();
    let mode = || {
        std::fs::symlink_metadata(scene.path())
            .unwrap()
            .permissions()
            .mode()
            & 0o777
    };
    assert_eq!(mode(), 0o600);
    std::fs::remove_file(scene.path()).unwrap();
    scene.node.says_times("socket None", 2);
    assert_eq!(mode(), 0o600, "after it was bound again");
}

#[test]
fn a_silent_connection_takes_no_time_of_the_others() {
    let netns = namespace_or_skip!();
    let scene = Scene::with(|o| o.limit = Duration::from_secs(15));
    let silent = connect(&scene.path());
    scene.node.says("connections 1");
    let ztunnel = Ztunnel::connect(&scene.path());
    ztunnel.snapshots(1);
    scene.handle().add(&pod("a", Some(&netns)), LONG).unwrap();
    ztunnel.carries("a", Some(id(&netns)));
    let removed = scene.handle().remove("a", Duration::from_millis(300));
    assert_eq!(removed, Err(AddError::TimedOut));
    ztunnel.carries("a", None);
    drop(silent);
}

#[test]
fn an_agent_that_took_over_keeps_the_socket_until_it_ends() {
    let scene = Scene::new();
    let next = Arc::new(Node::default());
    next.set(&[]);
    let second = server(&next, scene.dir.path(), |_| {});
    let inode = || std::fs::symlink_metadata(scene.path()).unwrap().ino();
    let of_second = inode();
    scene.node.says("another process listens there");
    assert_eq!(inode(), of_second);
    let ztunnel = Ztunnel::connect(&scene.path());
    next.says("snapshot 0 0");
    ztunnel.snapshots(1);
    drop(second);
    // Its file stays behind, and nobody listens there.
    scene.node.says_times("socket None", 2);
    ztunnel.snapshots(2);
}

/// Ends a thread also where the test fails.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// An agent that looked meanwhile would take the name from one that does not listen yet.
#[test]
fn the_name_leads_to_a_process_that_listens_at_every_moment() {
    use std::io::ErrorKind::{ConnectionRefused, NotFound};
    let scene = Scene::new();
    let done = AtomicBool::new(false);
    let connects = || {
        let (mut tries, mut lost) = (0, Vec::new());
        while !done.load(Ordering::Relaxed) {
            let socket = Socket::new(Domain::UNIX, Type::SEQPACKET, None).unwrap();
            socket.set_nonblocking(true).unwrap();
            let connected = socket.connect(&SockAddr::unix(scene.path()).unwrap());
            lost.extend(
                connected
                    .err()
                    .filter(|e| [NotFound, ConnectionRefused].contains(&e.kind())),
            );
            tries += 1;
        }
        (tries, lost)
    };
    let (tries, lost) = std::thread::scope(|scope| {
        let _ends = Ends(&done);
        let connects = scope.spawn(connects);
        let next: Vec<Server> = (0..10)
            .map(|_| server(&scene.node, scene.dir.path(), |_| {}))
            .collect();
        done.store(true, Ordering::Relaxed);
        drop(next);
        connects.join().unwrap()
    });
    assert!(tries > 10 && lost.is_empty(), "{tries}: {lost:?}");
    let left = std::fs::read_dir(scene.dir.path()).unwrap();
    assert_eq!(left.count(), 1, "names that were in use before");
}

#[test]
fn an_answer_before_its_request_and_a_descriptor_end_the_connection() {
    use nix::sys::socket::{ControlMessage, MsgFlags, sendmsg};
    use std::os::fd::AsRawFd;
    let scene = Scene::new();
    let hello = [0x08, 0x01];
    let early = connect(&scene.path());
    // The list is not known, so that the answer is there before the request.
    *scene.node.pods.lock().unwrap() = None;
    early.send(&hello).unwrap();
    early.send(&[0x0a, 0x00]).unwrap();
    scene.node.says("not asked for");
    scene.node.set(&[]);
    let with_descriptor = connect(&scene.path());
    let raw = [early.as_raw_fd()];
    let rights = [ControlMessage::ScmRights(&raw)];
    let data = [std::io::IoSlice::new(&hello)];
    let flags = MsgFlags::empty();
    sendmsg::<()>(with_descriptor.as_raw_fd(), &data, &rights, flags, None).unwrap();
    scene.node.says("a descriptor");
}

fn connect(path: &Path) -> Socket {
    let socket = Socket::new(Domain::UNIX, Type::SEQPACKET, None).unwrap();
    socket.connect(&SockAddr::unix(path).unwrap()).unwrap();
    socket
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    /// Whatever a peer says, a ztunnel that comes after it is served.
    #[test]
    fn nonsense(packets in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..2000), 1..6)) {
        // One server for all of them: connections are paced.
        static SCENE: Mutex<Option<Scene>> = Mutex::new(None);
        let mut scene = SCENE.lock().unwrap_or_else(|e| e.into_inner());
        let scene = scene.get_or_insert_with(|| Scene::with(|o| o.limit = Duration::from_millis(100)));
        let before = scene.node.said.lock().unwrap().iter().filter(|s| s.starts_with("closed")).count();
        let peer = connect(&scene.path());
        for packet in &packets {
            // It may have been closed already.
            let _ = peer.send(packet);
        }
        scene.node.says_times("closed", before + 1);
        drop(peer);
        prop_assert_eq!(scene.handle().newest(), None);
    }
}

/// The same protocol, spoken by the real program.
#[test]
fn the_real_ztunnel() {
    let Some(program) = std::env::var_os("ZTUNNEL") else {
        println!(
            "skipped: ZTUNNEL names no program of ztunnel: the server was tried against the stand-in only"
        );
        return;
    };
    let netns = namespace_or_skip!();
    let scene = Scene::new();
    scene.node.set(&[pod("a", Some(&netns))]);
    let mut child = std::process::Command::new(program)
        .env("PROXY_MODE", "shared")
        .env("INPOD_UDS", scene.path())
        .env("XDS_ADDRESS", "")
        .env("RUST_LOG", "info")
        .spawn()
        .unwrap();
    let tried = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        scene.node.says("snapshot 1 0");
        let added = scene.handle().add(&pod("b", Some(&netns)), LONG);
        assert!(added.is_ok(), "{added:?}");
        assert_eq!(scene.handle().remove("b", LONG), Ok(()));
    }));
    child.kill().unwrap();
    child.wait().unwrap();
    tried.unwrap();
}
