//! The socket and its file: permissions, and recovery.

use crate::support::{LONG, Node, Scene, connect, server};
use socket2::{Domain, SockAddr, Socket, Type};
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Instant;
use weir_testing::Ends;
use weir_testing::ztunnel::Ztunnel;
use weir_zds::Server;

#[test]
fn a_socket_that_is_lost_comes_back() {
    let scene = Scene::new();
    std::fs::remove_file(scene.path()).unwrap();
    scene.node.says_times("socket None", 2);
    Ztunnel::connect(&scene.path()).snapshots(1);
}

/// The first was deleted. To the second no peer could connect.
#[test]
fn a_path_of_another_file_or_too_long_is_refused() {
    let dir = weir_testing::TempDir::new();
    let refused = |path: &std::path::Path| {
        let node = Arc::new(Node::default());
        let options = weir_zds::Options::new(path.to_owned());
        let server = Server::start(options, Arc::clone(&node) as _, node as _);
        server.err().expect("it is refused").to_string()
    };
    let file = dir.write("ztunnel.sock", "notes");
    let why = refused(&file);
    assert!(
        why.contains("not a socket") && why.contains("move it"),
        "{why}"
    );
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "notes");
    let long = dir.file(&"x".repeat(107));
    let why = refused(&long);
    assert!(why.contains("107") && why.contains("shorter"), "{why}");
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
    // A file that comes later stays, too.
    let scene = Scene::new();
    std::fs::rename(&file, scene.path()).unwrap();
    scene.node.says("not a socket");
    assert_eq!(std::fs::read_to_string(scene.path()).unwrap(), "notes");
    std::fs::remove_file(scene.path()).unwrap();
    scene.node.says_times("socket None", 2);
}

/// The temporary name of its file was longer than a path may be.
#[test]
fn the_longest_path_that_peers_can_connect_to_is_bound() {
    let dir = weir_testing::TempDir::new();
    let rest = 107 - dir.path().as_os_str().len() - "//z".len();
    let below = dir.file(&"x".repeat(rest));
    std::fs::create_dir(&below).unwrap();
    let (node, path) = (Arc::new(Node::default()), below.join("z"));
    assert_eq!(path.as_os_str().len(), 107);
    node.set(&[]);
    let _server = server(&node, &below, |o| o.path.clone_from(&path));
    Ztunnel::connect(&path).snapshots(1);
    assert_eq!(std::fs::read_dir(&below).unwrap().count(), 1);
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

/// The number that is reported last is that of the connections that are left.
#[test]
fn connections_that_end_at_once_are_counted_in_order() {
    let scene = Scene::new();
    let both = [connect(&scene.path()), connect(&scene.path())];
    scene.node.says("connections 2");
    *scene.node.slow_at.lock().unwrap() = Some(1);
    drop(both);
    scene.node.says_times("closed", 2);
    let counts = scene.node.said("connections");
    assert_eq!(counts.last().map(String::as_str), Some("connections 0"));
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
    // The file stays without a listener.
    scene.node.says_times("socket None", 2);
    ztunnel.snapshots(2);
}

/// In each container the agent may be process 1, and during an upgrade several agents use one directory.
#[test]
fn the_file_that_another_agent_is_binding_stays_and_one_that_was_left_over_goes() {
    use nix::sys::stat::{UtimensatFlags, utimensat};
    use nix::sys::time::TimeSpec;
    let dir = weir_testing::TempDir::new();
    let bound = |name: &str| {
        let path = dir.path().join(name);
        let socket = Socket::new(Domain::UNIX, Type::SEQPACKET, None).unwrap();
        socket.bind(&SockAddr::unix(&path).unwrap()).unwrap();
        path
    };
    let others: Vec<_> = (0..200)
        .map(|number| bound(&format!(".zds.{}.{number}", std::process::id())))
        .collect();
    let left_over = bound(".zds.1.0");
    let notes = dir.path().join(".zds.notes");
    std::fs::write(&notes, "").unwrap();
    let old = TimeSpec::new(1_000_000_000, 0);
    for path in [&left_over, &notes] {
        utimensat(
            nix::fcntl::AT_FDCWD,
            path,
            &old,
            &old,
            UtimensatFlags::NoFollowSymlink,
        )
        .unwrap();
    }
    let node = Arc::new(Node::default());
    let _server = server(&node, dir.path(), |_| {});
    let is_there = |path: &std::path::PathBuf| std::fs::symlink_metadata(path).is_ok();
    assert_eq!(others.iter().filter(|path| !is_there(path)).count(), 0);
    assert!(!is_there(&left_over) && is_there(&notes));
    let left = std::fs::read_dir(dir.path()).unwrap().count();
    assert_eq!(left, others.len() + 2, "nothing but the socket came");
}

/// Otherwise another agent would take the name from one that does not listen yet.
#[test]
fn the_name_leads_to_a_process_that_listens_at_every_moment() {
    use std::io::ErrorKind::{ConnectionRefused, NotFound};
    let scene = Scene::new();
    let (done, tries) = (AtomicBool::new(false), AtomicUsize::new(0));
    let connects = || {
        let mut lost = Vec::new();
        while !done.load(Ordering::Relaxed) {
            let socket = Socket::new(Domain::UNIX, Type::SEQPACKET, None).unwrap();
            socket.set_nonblocking(true).unwrap();
            let connected = socket.connect(&SockAddr::unix(scene.path()).unwrap());
            lost.extend(
                connected
                    .err()
                    .filter(|e| [NotFound, ConnectionRefused].contains(&e.kind())),
            );
            tries.fetch_add(1, Ordering::Relaxed);
        }
        lost
    };
    // Several attempts between any two agents, however busy the machine is.
    let next = || {
        let (server, begun) = (
            server(&scene.node, scene.dir.path(), |_| {}),
            Instant::now(),
        );
        let before = tries.load(Ordering::Relaxed);
        while tries.load(Ordering::Relaxed) < before + 2 {
            assert!(begun.elapsed() < LONG, "nobody tries");
            std::thread::yield_now();
        }
        server
    };
    let lost = std::thread::scope(|scope| {
        let _ends = Ends(&done);
        let connects = scope.spawn(connects);
        let all: Vec<Server> = (0..10).map(|_| next()).collect();
        done.store(true, Ordering::Relaxed);
        drop(all);
        connects.join().unwrap()
    });
    assert!(lost.is_empty(), "{lost:?}");
    let left = std::fs::read_dir(scene.dir.path()).unwrap();
    assert_eq!(left.count(), 1, "names that were in use before");
}
