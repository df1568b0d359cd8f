//! Namespaces that are deleted during their hand-over: the other pods arrive, and no ztunnel drops a pod that it should keep.

use crate::support::{ACK, LONG, Puppet, Scene, connect, id, namespace, pod, send};
use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};
use weir_testing::ztunnel::Ztunnel;
use weir_zds::message::Request;
use weir_zds::{AddError, Workload};

fn uid(request: &Request) -> &str {
    match request {
        Request::Add(add) => &add.uid,
        Request::Keep(keep) => &keep.uid,
        Request::Del(del) => &del.uid,
        Request::SnapshotSent(_) => "",
    }
}

/// A short form of a request.
fn short(request: &Request) -> String {
    let what = match request {
        Request::Add(_) => "add",
        Request::Keep(_) => "keep",
        Request::Del(_) => "del",
        Request::SnapshotSent(_) => "end",
    };
    format!("{what} {}", uid(request)).trim_end().to_owned()
}

/// Whether the server has closed the namespace, perhaps only after the answer, so that the kernel can delete it.
fn is_released(netns: &Weak<File>) -> bool {
    let begun = Instant::now();
    while netns.strong_count() > 0 {
        if begun.elapsed() > LONG {
            return false;
        }
        std::thread::yield_now();
    }
    true
}

/// The pod is deleted between the list and its turn: the server removes it right after the snapshot.
#[test]
fn a_pod_that_goes_during_the_snapshot_is_gone_after_it_and_the_others_are_there() {
    let [a, b, c] = [(); 3].map(|()| namespace());
    let (Some(a), Some(b), Some(c)) = (a, b, c) else {
        return;
    };
    let scene = Scene::new();
    let (of_a, of_b, of_c) = (id(&a), id(&b), id(&c));
    let list = |c: Option<&Arc<File>>| -> Vec<Workload> {
        let c = c.map(|c| pod("c", Some(c)));
        [pod("a", Some(&a)), pod("b", Some(&b))]
            .into_iter()
            .chain(c)
            .collect()
    };
    scene.node.set(&list(Some(&c)));
    let ztunnel = Puppet::after(&scene.path(), 0);
    let mut seen = vec![ztunnel.asked().unwrap()];
    // The first pod has no answer yet when the last pod is deleted.
    scene.node.set(&list(None));
    let gone = Arc::downgrade(&c);
    drop(c);
    let handle = scene.handle();
    std::thread::scope(|scope| {
        let removed = scope.spawn(|| handle.remove("c", LONG));
        scene.until("it waits", |peers| peers[0].pending == 1);
        while seen
            .last()
            .is_some_and(|(request, _)| short(request) != "del c")
        {
            ztunnel.says(&ACK);
            seen.push(ztunnel.asked().unwrap());
        }
        ztunnel.says(&ACK);
        assert_eq!(removed.join().unwrap(), Ok(()));
    });
    let words: Vec<String> = seen.iter().map(|(request, _)| short(request)).collect();
    let without_c: Vec<&str> = words
        .iter()
        .map(String::as_str)
        .filter(|word| *word != "add c")
        .collect();
    assert_eq!(without_c, ["add a", "add b", "end", "del c"], "{words:?}");
    for (request, netns) in &seen {
        let expected = match short(request).as_str() {
            "add a" => Some(of_a),
            "add b" => Some(of_b),
            "add c" => Some(of_c),
            _ => None,
        };
        assert_eq!(*netns, expected, "{request:?}");
    }
    assert!(
        is_released(&gone),
        "the server keeps a namespace that is gone"
    );
    // A later ztunnel does not receive that pod.
    let next = Ztunnel::connect(&scene.path());
    next.snapshots(1);
    assert_eq!(Vec::from_iter(next.pods().into_keys()), ["a", "b"]);
    assert_eq!(next.faults(), Vec::<String>::new());
}

/// No other ztunnel is connected: a request during the snapshot waits for its end and does not fail.
#[test]
fn a_pod_that_comes_during_the_snapshot_is_added_after_it() {
    let netns = crate::namespace_or_skip!();
    let scene = Scene::with(|o| o.limit = LONG);
    scene.node.set(&[pod("a", Some(&netns)), pod("b", None)]);
    let ztunnel = Puppet::after(&scene.path(), 0);
    let mut words = vec![short(&ztunnel.asked().unwrap().0)];
    let handle = scene.handle();
    assert_eq!(handle.newest(), None);
    std::thread::scope(|scope| {
        let added = scope.spawn(|| handle.add(&pod("c", Some(&netns)), LONG));
        scene.until("it waits", |peers| peers[0].pending == 1);
        for _ in 0..3 {
            ztunnel.says(&ACK);
            words.push(short(&ztunnel.asked().unwrap().0));
        }
        ztunnel.says(&ACK);
        assert_eq!(added.join().unwrap(), Ok(handle.newest().unwrap()));
    });
    assert_eq!(words, ["add a", "keep b", "end", "add c"]);
}

/// Like upstream's agent, which continues after any refusal.
#[test]
fn a_ztunnel_that_refuses_the_end_of_the_snapshot_stays_and_gets_pods() {
    let netns = crate::namespace_or_skip!();
    let scene = Scene::with(|o| o.limit = LONG);
    let ztunnel = Puppet::after(&scene.path(), 0);
    assert_eq!(short(&ztunnel.asked().unwrap().0), "end");
    ztunnel.says(b"\x0a\x05\x0a\x03bad");
    scene.node.says("end of the snapshot refused: bad");
    let handle = scene.handle();
    std::thread::scope(|scope| {
        let added = scope.spawn(|| handle.add(&pod("a", Some(&netns)), LONG).map(drop));
        assert_eq!(short(&ztunnel.asked().unwrap().0), "add a");
        ztunnel.says(&ACK);
        assert_eq!(added.join().unwrap(), Ok(()));
    });
    let said = |what| scene.node.said(what).len();
    assert_eq!((said("snapshot"), said("closed")), (0, 0));
}

/// The caller's timeout has expired, and the pod is deleted while its request still waits.
#[test]
fn a_pod_that_goes_while_it_waits_in_line_is_not_sent() {
    let [x, y, z] = [(); 3].map(|()| namespace());
    let (Some(x), Some(y), Some(z)) = (x, y, z) else {
        return;
    };
    let scene = Scene::with(|o| o.limit = LONG);
    let ztunnel = Puppet::after(&scene.path(), 1);
    scene.node.says("snapshot 0 0");
    let handle = scene.handle();
    let add = |uid: &str, netns: &Arc<File>| handle.add(&pod(uid, Some(netns)), LONG).map(drop);
    std::thread::scope(|scope| {
        let first = scope.spawn(|| add("x", &x));
        assert_eq!(short(&ztunnel.asked().unwrap().0), "add x");
        let given_up = handle.add(&pod("y", Some(&y)), Duration::from_millis(50));
        assert_eq!(given_up, Err(AddError::Waits));
        let gone = Arc::downgrade(&y);
        drop(y);
        let removed = handle.remove("y", Duration::from_millis(50));
        assert_eq!(removed, Err(AddError::Waits));
        assert!(
            is_released(&gone),
            "the server keeps a namespace that is gone"
        );
        let last = scope.spawn(|| add("z", &z));
        scene.until("it waits", |peers| peers[0].pending == 2);
        for expected in [("del y", None), ("add z", Some(id(&z)))] {
            ztunnel.says(&ACK);
            let (request, netns) = ztunnel.asked().unwrap();
            assert_eq!((short(&request).as_str(), netns), expected);
        }
        ztunnel.says(&ACK);
        let answers = [first, last].map(|asked| asked.join().unwrap());
        assert_eq!(answers, [Ok(()), Ok(())]);
    });
}

/// A namespace may be deleted before ztunnel opens it: ztunnel refuses the pod, and the snapshot continues.
#[test]
fn a_pod_that_ztunnel_finds_gone_takes_no_other_with_it() {
    let (Some(one), Some(other)) = (namespace(), namespace()) else {
        return;
    };
    for gone in ["a", "b", "c"] {
        let scene = Scene::new();
        let ztunnel = Ztunnel::connect(&scene.path());
        ztunnel.snapshots(1);
        ztunnel.refuse(gone, Some("cannot enter it"));
        let pods = ["a", "b", "c"].map(|uid| pod(uid, Some(&one)));
        scene.node.set(&pods);
        let scene = scene.restarted();
        ztunnel.snapshots(2);
        scene.node.says("snapshot 2 0");
        assert_eq!(scene.node.said("refused").len(), 1, "{gone}");
        let carried = Vec::from_iter(ztunnel.pods().into_keys());
        assert!(carried.len() == 2 && !carried.iter().any(|uid| uid == gone));
        // The pod has another namespace now.
        ztunnel.refuse(gone, None);
        let added = scene.handle().add(&pod(gone, Some(&other)), LONG);
        assert!(added.is_ok(), "{added:?}");
        ztunnel.carries(gone, Some(id(&other)));
        assert_eq!(ztunnel.faults(), Vec::<String>::new());
    }
}

/// A descriptor that is closed before it is sent. Its number is so high that no other file gets it: lower ones are free.
#[derive(Debug)]
struct Closed(std::mem::ManuallyDrop<File>);

impl Closed {
    fn new() -> Self {
        let mut low = Vec::new();
        loop {
            let file = File::open("/proc/self/ns/net").unwrap();
            if file.as_raw_fd() >= 500 {
                drop(low);
                nix::unistd::close(file.as_raw_fd()).unwrap();
                return Self(std::mem::ManuallyDrop::new(file));
            }
            low.push(file);
        }
    }
}

impl AsFd for Closed {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Only the pod that cannot be sent is refused: the others are sent, and ztunnel keeps its state of this pod.
#[test]
fn a_descriptor_that_cannot_be_sent_makes_no_ztunnel_drop_a_pod() {
    let netns = crate::namespace_or_skip!();
    let scene = Scene::new();
    let good = ["a", "b", "c"].map(|uid| pod(uid, Some(&netns)));
    scene.node.set(&good);
    let ztunnel = Ztunnel::connect(&scene.path());
    ztunnel.snapshots(1);
    let mut bad = good.clone();
    bad[1].netns = Some(Arc::new(Closed::new()));
    scene.node.set(&bad);
    let scene = scene.restarted();
    ztunnel.snapshots(2);
    scene.node.says("snapshot 2 0");
    scene.node.says("its network namespace cannot be sent");
    assert_eq!(Vec::from_iter(ztunnel.pods().into_keys()), ["a", "b", "c"]);
    assert_eq!(ztunnel.faults(), Vec::<String>::new());
}

/// A ztunnel that never sends its hello, or never answers, does not delay the end of the agent.
#[test]
fn an_agent_ends_although_its_ztunnels_are_silent() {
    let scene = Scene::with(|o| o.limit = LONG);
    let _silent = connect(&scene.path());
    let puppet = Puppet::after(&scene.path(), 0);
    assert_eq!(short(&puppet.asked().unwrap().0), "end");
    let Scene { node, server, dir } = scene;
    let begun = Instant::now();
    drop(server);
    assert!(begun.elapsed() < LONG / 2, "{:?}", begun.elapsed());
    assert_eq!(node.said("closed: the agent ends").len(), 2);
    drop(dir);
}

/// An agent that ends during a snapshot leaves it incomplete.
#[test]
fn a_snapshot_ends_with_all_pods_or_not_at_all() {
    let netns = crate::namespace_or_skip!();
    let scene = Scene::new();
    let names: Vec<String> = (0..500).map(|n| format!("pod-{n}")).collect();
    let pods: Vec<Workload> = names.iter().map(|uid| pod(uid, Some(&netns))).collect();
    scene.node.set(&pods);
    let ztunnel = Puppet::after(&scene.path(), 1);
    let Scene { server, .. } = scene;
    let (mut told, mut is_complete) = (1, false);
    std::thread::scope(|scope| {
        scope.spawn(move || drop(server));
        while let Some((request, _)) = ztunnel.asked() {
            match request {
                Request::Add(_) => told += 1,
                Request::SnapshotSent(_) => is_complete = true,
                other => panic!("{other:?}"),
            }
            // The server may have closed, if this came late.
            let _ = send(&ztunnel.0, &ACK, &[]);
        }
    });
    assert!(!is_complete || told == names.len(), "{told}");
}
