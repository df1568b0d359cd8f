//! For every answer, in every phase: a peer that answers wrongly is disconnected, and the others are still served.
//!
//! `WEIR_LONG` tries many answers, and `WEIR_SEED` repeats a run. Earlier failures are stored in `proptest-regressions` and run first.

mod random;

use crate::support::{ACK, HELLO, LONG, Puppet, Scene, connect, namespace, pod, send};
use proptest::prelude::*;
use proptest::test_runner::{FileFailurePersistence, RngSeed, TestRunner};
use random::{Answer, Phase, REQUESTS, answers, phases};
use std::cell::RefCell;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use weir_testing::effort;
use weir_testing::ztunnel::Ztunnel;
use weir_zds::{AddError, Workload};

/// A server with a ztunnel that follows the protocol. While a peer is tried, this ztunnel is the older of two.
struct Two {
    scene: Scene,
    good: Ztunnel,
    by: u64,
    netns: Arc<File>,
}

impl Two {
    fn new(netns: Arc<File>, limit: Duration) -> Self {
        let scene = Scene::with(|o| o.limit = limit);
        let pods = [
            pod("a", Some(&netns)),
            pod("b", None),
            pod("c", Some(&netns)),
        ];
        scene.node.set(&pods);
        let good = Ztunnel::connect(&scene.path());
        scene.node.says("snapshot 2 1");
        let by = scene.handle().newest().unwrap();
        Self {
            scene,
            good,
            by,
            netns,
        }
    }

    fn pod(&self, uid: &str) -> Workload {
        pod(uid, Some(&self.netns))
    }

    /// Checks that the ztunnel gets a pod.
    fn is_served(&self) {
        let added = self.scene.handle().add(&self.pod("good"), LONG);
        assert_eq!(added, Ok(self.by));
        assert!(self.good.pods().contains_key("good"));
    }

    /// Sends a request to a second peer while the first one is still served, and answers it with `answers`, which must end the connection.
    ///
    /// Returns the reason, the duration, and the result of the request.
    fn tries(&self, phase: Phase, answers: impl Fn(&Puppet)) -> Ended {
        let (path, handle) = (self.scene.path(), self.scene.handle());
        let before = self.scene.node.said("closed").len();
        let finish = |puppet: &Puppet| {
            let begun = Instant::now();
            answers(puppet);
            while puppet.asked().is_some() {}
            begun.elapsed()
        };
        let (took, asked) = match phase {
            Phase::Hello => {
                let puppet = Puppet::connect(&path);
                self.scene.until("accepted", |peers| peers.len() == 2);
                self.is_served();
                (finish(&puppet), None)
            }
            Phase::Snapshot(number) => {
                let puppet = Puppet::after(&path, number);
                puppet.asked().unwrap();
                self.is_served();
                (finish(&puppet), None)
            }
            Phase::Add | Phase::Remove => {
                let puppet = Puppet::after(&path, REQUESTS);
                let is_ready = |peers: &[weir_zds::Peer]| peers.iter().all(|p| p.ready);
                self.scene
                    .until("two", |peers| peers.len() == 2 && is_ready(peers));
                std::thread::scope(|scope| {
                    let asked = scope.spawn(|| match phase {
                        Phase::Add => handle.add(&self.pod("x"), LONG).map(drop),
                        _ => handle.remove("x", LONG),
                    });
                    puppet.asked().unwrap();
                    let took = finish(&puppet);
                    (took, Some(asked.join().unwrap()))
                })
            }
        };
        self.scene.node.says_times("closed", before + 1);
        let why = self.scene.node.said("closed").swap_remove(before);
        // Only the first peer is left, and it is unaffected.
        let peers = handle.peers();
        assert!(peers.len() == 1 && peers[0].id == self.by, "{peers:?}");
        self.is_served();
        assert_eq!(handle.remove("good", LONG), Ok(()));
        assert_eq!(self.good.faults(), Vec::<String>::new());
        Ended { why, took, asked }
    }
}

/// How a peer was disconnected.
#[derive(Debug)]
struct Ended {
    why: String,
    took: Duration,
    asked: Option<Result<(), AddError>>,
}

/// Tries this answer; returns a description of what is wrong, if anything.
fn differs(two: &Two, phase: Phase, answer: &Answer) -> Option<String> {
    let fault = answer.fault(phase);
    let ended = two.tries(phase, |puppet| {
        puppet.0.set_send_buffer_size(300 << 10).unwrap();
        let own = [two.netns.as_raw_fd()];
        let fds = if answer.is_rich { &own[..] } else { &[] };
        send(&puppet.0, &answer.bytes, fds).unwrap();
        if fault.is_err() {
            // The answer is valid, so another, unexpected one must end the connection.
            let _ = send(&puppet.0, &[0xff], &[]);
        }
    });
    let is_told = match &fault {
        Ok(why) => ended.why.contains(why),
        Err(_) => ["a packet without a request", "an answer cannot be read"]
            .iter()
            .any(|why| ended.why.contains(why)),
    };
    let is_answered = match (&ended.asked, &fault) {
        (None, _) => true,
        // The request ends before its own deadline. A disconnected ztunnel has no pod, so a removal succeeds.
        (Some(asked), Ok(_)) if phase == Phase::Remove => asked.is_ok(),
        (Some(asked), Ok(_)) => matches!(asked, Err(AddError::Closed)),
        (Some(asked), Err(text)) if text.is_empty() || phase == Phase::Remove => asked.is_ok(),
        (Some(asked), Err(_)) => matches!(asked, Err(AddError::Refused(_))),
    };
    let is_right = is_told && is_answered && ended.took < LONG;
    (!is_right).then(|| format!("{phase:?} {answer:?}: {fault:?} expected, {ended:?}"))
}

#[test]
fn whatever_a_peer_answers_it_is_disconnected_and_the_others_are_served() {
    // One server for all cases, because the server limits the rate of connections. After a failure there is a new one.
    let two = RefCell::new(Some(Two::new(crate::namespace_or_skip!(), LONG)));
    let usual = match std::env::var_os("WEIR_LONG") {
        Some(_) => 2_000,
        None => 40,
    };
    let (cases, seed) = (effort::cases(usual), effort::seed());
    println!("{cases} cases; the same again with WEIR_SEED={seed}");
    let kept = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/proptest-regressions/answers.txt"
    );
    let config = ProptestConfig {
        cases,
        // A case in which the connection does not end takes long.
        max_shrink_iters: 60,
        max_shrink_time: 30_000,
        failure_persistence: Some(Box::new(FileFailurePersistence::Direct(kept))),
        rng_seed: RngSeed::Fixed(seed),
        ..ProptestConfig::default()
    };
    let outcome = TestRunner::new(config).run(&(phases(), answers()), |(phase, answer)| {
        let of_now = two
            .take()
            .unwrap_or_else(|| Two::new(namespace().unwrap(), LONG));
        if let Some(text) = differs(&of_now, phase, &answer) {
            return Err(TestCaseError::fail(text));
        }
        two.replace(Some(of_now));
        Ok(())
    });
    if let Err(e) = outcome {
        panic!("WEIR_SEED={seed}: {e}");
    }
}

#[test]
fn a_peer_that_falls_silent_is_disconnected_in_time_in_every_phase() {
    let limit = Duration::from_secs(2);
    let two = Two::new(crate::namespace_or_skip!(), limit);
    let last = REQUESTS - 1;
    for phase in [
        Phase::Hello,
        Phase::Snapshot(0),
        Phase::Snapshot(last),
        Phase::Add,
        Phase::Remove,
    ] {
        let ended = two.tries(phase, |_| ());
        assert!(ended.why.contains("within 2s"), "{phase:?}: {ended:?}");
        assert!(ended.took < LONG / 2, "{phase:?}: {ended:?}");
        if let Some(asked) = &ended.asked {
            assert_eq!(asked, &Err(AddError::TimedOut), "{phase:?}");
        }
    }
}

#[test]
fn an_answer_before_its_request_and_a_descriptor_end_the_connection() {
    let scene = Scene::new();
    let early = connect(&scene.path());
    // The server waits for the list of pods, so the answer arrives before the request.
    *scene.node.pods.lock().unwrap() = None;
    early.send(&HELLO).unwrap();
    early.send(&ACK).unwrap();
    scene.node.says("a packet without a request");
    scene.node.set(&[]);
    let with_descriptor = connect(&scene.path());
    send(&with_descriptor, &HELLO, &[early.as_raw_fd()]).unwrap();
    scene.node.says("a descriptor");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    /// After any packets of a peer, a later ztunnel is served.
    #[test]
    fn nonsense(packets in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..2000), 1..6)) {
        // One server for all cases, because the server limits the rate of connections.
        static SCENE: Mutex<Option<Scene>> = Mutex::new(None);
        let mut scene = SCENE.lock().unwrap_or_else(|e| e.into_inner());
        let scene = scene.get_or_insert_with(|| Scene::with(|o| o.limit = Duration::from_millis(100)));
        let before = scene.node.said.lock().unwrap().iter().filter(|s| s.starts_with("closed")).count();
        let peer = connect(&scene.path());
        for packet in &packets {
            // The server may have closed the connection already.
            let _ = peer.send(packet);
        }
        scene.node.says_times("closed", before + 1);
        drop(peer);
        prop_assert_eq!(scene.handle().newest(), None);
    }
}
