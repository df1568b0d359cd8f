//! The server with a ztunnel, whatever that is: the stand-in, a program that stands for ztunnel, and the real one if `ZTUNNEL` names its
//! program. The programs have listeners in the namespaces of pods, readiness, and a dump of their configuration.

use crate::support::{ACK, HELLO, LONG, Scene, namespace, pod, receive, send};
use socket2::{Domain, SockAddr, Socket, Type};
use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use weir_netlink::Netns;
use weir_testing::TempDir;
use weir_testing::ztunnel::{Peer, Program, Ztunnel, programs, stands_for_ztunnel, until};
use weir_zds::AddError;

/// Starts a ztunnel that connects to this socket.
type Start<'a> = &'a dyn Fn(&Path) -> Box<dyn Peer>;

/// Runs a check with each program of ztunnel.
fn each_program(check: impl Fn(Start<'_>)) {
    drop(weir_testing::namespace_or_skip!());
    let dir = TempDir::new();
    for program in programs(&dir, "peers::the_program_that_stands_for_ztunnel") {
        println!("{}", program.display());
        check(&|socket| Box::new(Program::start(&program, socket).unwrap()));
    }
}

/// Runs a check with the stand-in and with each program of ztunnel.
fn each(check: impl Fn(Start<'_>)) {
    drop(weir_testing::namespace_or_skip!());
    check(&|socket| Box::new(Ztunnel::connect(socket)));
    each_program(check);
}

/// No test, but a program: see [`programs`].
#[test]
fn the_program_that_stands_for_ztunnel() {
    stands_for_ztunnel();
}

#[track_caller]
fn takes(peer: &dyn Peer, uid: &str, netns: &File) {
    until(peer, uid, |peer| peer.is_in(uid, netns));
}

#[track_caller]
fn leaves(peer: &dyn Peer, uid: &str, netns: &File) {
    let is_gone = |peer: &dyn Peer| peer.is_out_of(netns) && !peer.carried().contains_key(uid);
    until(peer, uid, is_gone);
}

#[track_caller]
fn is_ready(peer: &dyn Peer, expected: bool) {
    until(peer, "readiness", |peer| peer.is_ready() == expected);
}

fn two() -> [Arc<File>; 2] {
    [(); 2].map(|()| namespace().unwrap())
}

#[test]
fn pods_are_taken_moved_and_left() {
    each(|start| {
        let ([one, other], scene) = (two(), Scene::new());
        let handle = scene.handle();
        scene.node.set(&[pod("a", Some(&one))]);
        let ztunnel = start(&scene.path());
        let ztunnel = &*ztunnel;
        scene.node.says("snapshot 1 0");
        is_ready(ztunnel, true);
        takes(ztunnel, "a", &one);
        let of_a = ("shop/web".to_owned(), "web".to_owned());
        assert_eq!(ztunnel.carried(), [("a".to_owned(), of_a)].into());
        // The same once more changes nothing; in another namespace it is moved.
        let by = handle.add(&pod("a", Some(&one)), LONG);
        assert_eq!(by, Ok(1));
        takes(ztunnel, "a", &one);
        assert_eq!(handle.add(&pod("a", Some(&other)), LONG), by);
        takes(ztunnel, "a", &other);
        assert!(ztunnel.is_out_of(&one));
        assert_eq!(handle.add(&pod("b", Some(&one)), LONG), by);
        takes(ztunnel, "b", &one);
        for (uid, netns) in [("a", &other), ("b", &one), ("unknown", &one)] {
            assert_eq!(handle.remove(uid, LONG), Ok(()));
            leaves(ztunnel, uid, netns);
        }
        is_ready(ztunnel, true);
        assert_eq!(ztunnel.exited(), None);
    });
}

#[test]
fn it_is_ready_only_with_a_complete_snapshot() {
    each(|start| {
        let (dir, [netns, _]) = (TempDir::new(), two());
        let path = dir.path().join("ztunnel.sock");
        let ztunnel = start(&path);
        let listener = listen(&path);
        let agent = hello(&listener);
        asks(&agent, ADD, Some(&netns));
        takes(&*ztunnel, "u1", &netns);
        assert!(!ztunnel.is_ready());
        asks(&agent, SNAPSHOT_SENT, None);
        is_ready(&*ztunnel, true);
        drop(agent);
        is_ready(&*ztunnel, false);
        // An empty snapshot drops all pods.
        let agent = hello(&listener);
        assert!(ztunnel.is_in("u1", &netns));
        asks(&agent, SNAPSHOT_SENT, None);
        is_ready(&*ztunnel, true);
        leaves(&*ztunnel, "u1", &netns);
    });
}

#[test]
fn pods_outlive_the_agent_and_are_kept_or_dropped_by_the_next() {
    each(|start| {
        let ([one, other], scene) = (two(), Scene::new());
        scene
            .node
            .set(&[pod("a", Some(&one)), pod("b", Some(&other))]);
        let ztunnel = start(&scene.path());
        let ztunnel = &*ztunnel;
        takes(ztunnel, "a", &one);
        takes(ztunnel, "b", &other);
        let Scene { node, server, dir } = scene;
        drop(server);
        is_ready(ztunnel, false);
        assert!(ztunnel.is_in("a", &one) && ztunnel.is_in("b", &other));
        // The agent knows one of them, and not its namespace.
        node.set(&[pod("a", None)]);
        let server = crate::support::server(&node, dir.path(), |_| {});
        node.says("snapshot 0 1");
        is_ready(ztunnel, true);
        leaves(ztunnel, "b", &other);
        takes(ztunnel, "a", &one);
        drop(server);
        node.set(&[]);
        let _server = crate::support::server(&node, dir.path(), |_| {});
        leaves(ztunnel, "a", &one);
        assert_eq!(ztunnel.exited(), None);
    });
}

#[test]
fn of_two_the_newest_takes_pods_and_both_leave_them() {
    each(|start| {
        let ([one, other], scene) = (two(), Scene::new());
        let handle = scene.handle();
        scene.node.set(&[pod("a", Some(&one))]);
        let old = start(&scene.path());
        takes(&*old, "a", &one);
        is_ready(&*old, true);
        let new = start(&scene.path());
        // Both listen there.
        takes(&*new, "a", &one);
        scene.node.says_times("snapshot 1 0", 2);
        assert!(old.is_in("a", &one));
        handle.add(&pod("b", Some(&other)), LONG).unwrap();
        takes(&*new, "b", &other);
        assert!(old.is_out_of(&other));
        handle.remove("a", LONG).unwrap();
        leaves(&*old, "a", &one);
        leaves(&*new, "a", &one);
        drop(new);
        scene.node.says("closed");
        scene.until("one", |peers| peers.len() == 1);
        handle.add(&pod("b", Some(&other)), LONG).unwrap();
        takes(&*old, "b", &other);
    });
}

/// Only programs have listeners.
#[test]
fn a_pod_whose_ports_are_in_use_is_refused_and_the_connection_stays() {
    each_program(|start| {
        let ([one, other], scene) = (two(), Scene::new());
        let ztunnel = start(&scene.path());
        scene.node.says("snapshot");
        let inside = Netns::open(Path::new(&format!("/proc/self/fd/{}", one.as_raw_fd()))).unwrap();
        let bind = || std::net::TcpListener::bind("[::]:15001");
        let occupied = inside.run(bind).unwrap().unwrap();
        let refused = scene.handle().add(&pod("a", Some(&one)), LONG);
        assert!(
            matches!(&refused, Err(AddError::Refused(why)) if why.contains("failure to start proxy")),
            "{refused:?}"
        );
        drop(occupied);
        assert_eq!(scene.handle().add(&pod("b", Some(&other)), LONG), Ok(1));
        takes(&*ztunnel, "b", &other);
        assert_eq!(ztunnel.exited(), None);
    });
}

/// This shows that the other tests would notice a server out of order.
#[test]
fn a_request_out_of_order_ends_it_with_all_its_pods() {
    each(|start| {
        for (late, descriptor) in [
            (KEEP, false),
            (SNAPSHOT_SENT, false),
            (ADD_WITHOUT_IDENTITY, true),
        ] {
            let (dir, [netns, _]) = (TempDir::new(), two());
            let path = dir.path().join("ztunnel.sock");
            let ztunnel = start(&path);
            let agent = hello(&listen(&path));
            asks(&agent, ADD, Some(&netns));
            asks(&agent, SNAPSHOT_SENT, None);
            takes(&*ztunnel, "u1", &netns);
            let fds = [netns.as_raw_fd()];
            send(&agent, late, if descriptor { &fds } else { &[] }).unwrap();
            let refused = receive(&agent).map(|(bytes, _)| bytes);
            assert!(
                refused.as_ref().is_some_and(|bytes| *bytes != ACK),
                "{late:?}: {refused:?}, {}",
                ztunnel.log()
            );
            until(&*ztunnel, "ends", |peer| peer.exited() == Some(1));
            assert!(ztunnel.is_out_of(&netns), "{late:?}");
        }
    });
}

/// `add` of the pod `u1`, with an identity.
const ADD: &[u8] = b"\x0a\x11\x0a\x02u1\x12\x0b\x0a\x01p\x12\x02ns\x1a\x02sa";
const ADD_WITHOUT_IDENTITY: &[u8] = b"\x0a\x04\x0a\x02u2";
const KEEP: &[u8] = b"\x2a\x04\x0a\x02u1";
const SNAPSHOT_SENT: &[u8] = b"\x1a\x00";

/// The test is the server.
fn listen(path: &Path) -> Socket {
    let listener = Socket::new(Domain::UNIX, Type::SEQPACKET, None).unwrap();
    listener.bind(&SockAddr::unix(path).unwrap()).unwrap();
    listener.listen(1).unwrap();
    listener
        .set_read_timeout(Some(Duration::from_secs(30)))
        .unwrap();
    listener
}

/// The next connection, whose first message is the hello.
fn hello(listener: &Socket) -> Socket {
    let (socket, _) = listener.accept().unwrap();
    assert_eq!(receive(&socket).unwrap().0, HELLO);
    socket
}

/// A request that is acknowledged.
fn asks(socket: &Socket, bytes: &[u8], netns: Option<&File>) {
    let fds: Vec<_> = netns.iter().map(|netns| netns.as_raw_fd()).collect();
    send(socket, bytes, &fds).unwrap();
    assert_eq!(receive(socket).unwrap().0, ACK, "{bytes:?}");
}
