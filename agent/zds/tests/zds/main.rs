//! The server against a peer that follows the protocol, and against peers that do not. Real sockets and namespaces; in
//! `peers` also the real ztunnel, if ZTUNNEL names its program.
// Helpers are part of the tests: clippy.toml grants them the same exceptions.
#![cfg(test)]
#![allow(missing_docs)]

mod answers;
mod midway;
mod names;
mod peers;
mod socket;
mod stand_in;
mod support;

use socket2::Socket;
use std::fs::File;
use std::sync::Arc;
use std::time::Duration;
use support::{LONG, Node, Scene, connect, id, pod, server};
use weir_testing::TempDir;
use weir_testing::ztunnel::Ztunnel;
use weir_zds::message::Request;
use weir_zds::{AddError, Handle};

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
    // Another agent starts, which does not have the pods yet.
    drop(first);
    *node.pods.lock().unwrap() = None;
    let second = server(&node, dir.path(), |o| {
        o.patience = Duration::from_millis(300)
    });
    node.says("not known within");
    assert!(ztunnel.pods().contains_key("a"));
    // The agent has the pod, but not its namespace.
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
    // Longer than an answer takes on a busy machine.
    let scene = Scene::with(|o| o.limit = Duration::from_secs(1));
    let ztunnel = Ztunnel::connect(&scene.path());
    scene.node.says("snapshot");
    ztunnel.pause(Duration::from_millis(2500));
    let late = scene.handle().add(&pod("a", Some(&netns)), LONG);
    assert_eq!(late, Err(AddError::TimedOut));
    ztunnel.pause(Duration::ZERO);
    scene.node.set(&[pod("a", Some(&netns))]);
    ztunnel.snapshots(2);
    assert!(scene.handle().add(&pod("b", Some(&netns)), LONG).is_ok());
    assert_eq!(ztunnel.faults(), Vec::<String>::new());
}

/// A message may take its full limit, whatever the caller's timeout: there is only one request, and the next caller gets its answer.
#[test]
fn an_answer_after_who_asked_has_given_up_counts() {
    let (one, other) = (namespace_or_skip!(), namespace_or_skip!());
    let scene = Scene::with(|o| o.limit = LONG);
    let puppet = support::Puppet::after(&scene.path(), 1);
    scene.until("ready", |peers| peers.iter().any(|peer| peer.ready));
    let (handle, short) = (scene.handle(), Duration::from_millis(20));
    let (here, there) = (pod("a", Some(&one)), pod("a", Some(&other)));
    let is_add = |asked: Option<(Request, Option<(u64, u64)>)>, netns: &File| {
        let (request, of) = asked.unwrap();
        assert!(matches!(request, Request::Add(_)), "{request:?}");
        assert_eq!(of, Some(id(netns)));
    };
    let waits = Err(AddError::Waits);
    for _ in 0..3 {
        assert_eq!(handle.add(&here, short), waits);
    }
    is_add(puppet.asked(), &one);
    assert_eq!(handle.add(&here, short), waits);
    puppet.says(&support::ACK);
    scene.node.says("answered a");
    // This call sends nothing: the next request is a different one.
    assert_eq!(handle.add(&here, LONG), Ok(1));
    assert_eq!(handle.add(&there, short), waits);
    is_add(puppet.asked(), &other);
    // The pod is removed before the answer and added again: the requests keep their order.
    assert_eq!(handle.remove("a", short), Err(AddError::Waits));
    assert_eq!(handle.add(&here, short), waits);
    puppet.says(&support::ACK);
    is_add(puppet.asked(), &one);
    assert_eq!(handle.remove("a", short), Err(AddError::Waits));
    puppet.says(&support::ACK);
    assert!(matches!(puppet.asked().unwrap().0, Request::Del(_)));
    puppet.says(&support::ACK);
    scene.node.says_times("answered a", 2);
    assert_eq!(handle.remove("a", LONG), Ok(()));
    assert_eq!(scene.node.said("answered").len(), 2);
}

/// Both ztunnels answer one after the other, later than the caller's timeout.
#[test]
fn a_removal_is_asked_once_of_each_until_all_have_answered() {
    let scene = Scene::with(|o| o.limit = LONG);
    let (handle, short) = (scene.handle(), Duration::from_millis(20));
    let are_ready = |count: usize| {
        scene.until("ready", |peers| {
            peers.iter().filter(|peer| peer.ready).count() == count
        });
    };
    let one = support::Puppet::after(&scene.path(), 1);
    are_ready(1);
    let other = support::Puppet::after(&scene.path(), 1);
    are_ready(2);
    let waits = Err(AddError::Waits);
    let is_removal = |asked: Option<(Request, Option<(u64, u64)>)>| {
        matches!(asked, Some((Request::Del(_), None)))
    };
    for answered in 1..=2 {
        assert_eq!(handle.remove("a", short), waits);
        assert!(is_removal(one.asked()) && is_removal(other.asked()));
        one.says(&support::ACK);
        scene.node.says_times("answered a", 2 * answered - 1);
        // The first ztunnel has answered and gets no further request.
        assert_eq!(handle.remove("a", short), waits);
        assert_eq!(handle.remove("a", short), waits);
        other.says(&support::ACK);
        scene.node.says_times("answered a", 2 * answered);
        assert_eq!(handle.remove("a", LONG), Ok(()));
        assert_eq!(handle.peers().iter().map(|p| p.pending).sum::<usize>(), 0);
    }
}

/// A ztunnel that got the pod in its snapshot already has it.
#[test]
fn a_pod_of_the_snapshot_is_not_added_once_more() {
    let netns = namespace_or_skip!();
    let scene = Scene::new();
    scene.node.set(&[pod("a", Some(&netns))]);
    let ztunnel = Ztunnel::connect(&scene.path());
    scene.node.says("snapshot 1 0");
    let handle = scene.handle();
    assert_eq!(handle.add(&pod("a", Some(&netns)), LONG), Ok(1));
    assert_eq!(handle.add(&pod("b", Some(&netns)), LONG), Ok(1));
    let adds = ztunnel.adds();
    assert_eq!((adds["a"], adds["b"]), (1, 1));
}

/// The connection ends before the answer: the caller does not wait for the limit, and the disconnected ztunnel has no pod.
#[test]
fn who_waits_for_a_connection_that_ends_is_told_so() {
    let netns = namespace_or_skip!();
    let scene = Scene::with(|o| o.limit = Duration::from_secs(15));
    for what in ["add", "remove"] {
        // The only request before is the end of the snapshot.
        let puppet = support::Puppet::after(&scene.path(), 1);
        scene.until("ready", |peers| peers.iter().any(|peer| peer.ready));
        let (handle, pod) = (scene.handle(), pod("a", Some(&netns)));
        let asks = std::thread::spawn(move || match what {
            "add" => handle.add(&pod, LONG).map(drop),
            _ => handle.remove("a", LONG),
        });
        puppet.asked().unwrap();
        drop(puppet);
        let expected = match what {
            "add" => Err(AddError::Closed),
            _ => Ok(()),
        };
        assert_eq!(asks.join().unwrap(), expected, "{what}");
        scene.until("ended", <[weir_zds::Peer]>::is_empty);
    }
}

#[test]
fn one_that_never_says_hello_holds_up_who_asks_no_longer_than_asked() {
    let netns = namespace_or_skip!();
    let scene = Scene::with(|o| o.limit = Duration::from_secs(5));
    let silent = connect(&scene.path());
    scene.node.says("connections 1");
    let added = scene.handle().add(&pod("a", Some(&netns)), LONG);
    assert_eq!(added, Err(AddError::NoProxy));
    assert_eq!(
        scene.handle().remove("a", Duration::from_millis(100)),
        Err(AddError::Waits)
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
    // Silent peers do not keep a ztunnel from connecting, and each connection replaces only one.
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
    // The removal waits for the peer that has not sent its hello.
    let removed = handle.remove("c", Duration::from_millis(300));
    assert_eq!(removed, Err(AddError::Waits));
    let peers = handle.peers();
    let own = i32::try_from(std::process::id()).unwrap();
    assert!(peers.iter().all(|p| p.pid == own), "{peers:?}");
    let facts: Vec<_> = peers
        .iter()
        .map(|p| (p.id, p.version, p.ready, p.acked, p.pending))
        .collect();
    // Two pods, the end of the snapshot, the added pod, its removal.
    assert_eq!(
        facts,
        [(1, None, false, 0, 1), (2, Some(1), true, 5, 0)],
        "{peers:?}"
    );
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
    assert_eq!(removed, Err(AddError::Waits));
    ztunnel.carries("a", None);
    drop(silent);
}
