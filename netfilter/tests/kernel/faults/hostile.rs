//! Answers that no kernel gives.

use crate::faults::scene::prepared;
use crate::faults::transport::{Plan, faulty};
use proptest::prelude::*;
use std::cell::RefCell;
use std::io;
use std::rc::Rc;
use std::time::Duration;
use weir_netfilter::nft::NftEngine;
use weir_netlink::Transport;
use weir_netlink::nfnetlink::Socket;
use weir_testing::namespace_or_skip;

/// Returns one recorded conversation, changed, and then nothing.
struct Replay(RefCell<std::collections::VecDeque<Vec<u8>>>);

impl Transport for Replay {
    fn reopen(&self) -> weir_netlink::Result<Self> {
        Ok(Self(RefCell::default()))
    }
    fn send(&self, _: &[u8]) -> io::Result<()> {
        Ok(())
    }
    fn receive(&self, buf: &mut [u8], wait: Duration) -> io::Result<usize> {
        // A batch that changes nothing gets no answer.
        if wait.is_zero() {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let datagram = self.0.borrow_mut().pop_front();
        let datagram = datagram.ok_or(io::ErrorKind::WouldBlock)?;
        buf[..datagram.len()].copy_from_slice(&datagram);
        Ok(datagram.len())
    }
}

/// All datagrams that are received while a ruleset is read.
fn conversation() -> Vec<Vec<u8>> {
    let ns = prepared();
    ns.run(|| {
        let plan = Rc::new(Plan::new(None));
        let seen = Rc::new(RefCell::new(Vec::new()));
        let keep = Rc::clone(&seen);
        *plan.received.borrow_mut() = Box::new(move |_, d| keep.borrow_mut().push(d.clone()));
        let snapshot = faulty(&plan).read().unwrap();
        let seen = seen.borrow().clone();
        // The unchanged conversation gives the same ruleset.
        let replay = Replay(RefCell::new(seen.clone().into()));
        assert_eq!(
            NftEngine::with_socket(Socket::with_transport(replay))
                .read()
                .unwrap(),
            snapshot
        );
        seen
    })
    .unwrap()
}

#[test]
fn no_answer_makes_reading_panic_or_wait() {
    let _probe = namespace_or_skip!();
    let datagrams = conversation();
    let change = (
        any::<prop::sample::Index>(),
        any::<prop::sample::Index>(),
        any::<u8>(),
        0..4u8,
    );
    let changes = proptest::collection::vec(change, 1..12);
    let file = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/proptest-regressions/faults.txt"
    );
    let config = ProptestConfig {
        cases: 2000,
        failure_persistence: Some(Box::new(
            proptest::test_runner::FileFailurePersistence::Direct(file),
        )),
        ..ProptestConfig::default()
    };
    let run = |changes: Vec<(prop::sample::Index, prop::sample::Index, u8, u8)>| {
        let mut datagrams = datagrams.clone();
        for (which, at, byte, what) in changes {
            let d = which.get(&datagrams).clone();
            let i = which.index(datagrams.len());
            if d.is_empty() {
                continue;
            }
            let at = at.index(d.len());
            match what {
                0 => datagrams[i][at] = byte,
                1 => datagrams[i].truncate(at),
                2 => {
                    let other = at % datagrams.len();
                    datagrams.swap(i, other);
                }
                _ => datagrams[i].splice(at..at, [byte; 4]).for_each(drop),
            }
            datagrams.iter_mut().for_each(|d| d.truncate(120_000));
        }
        let replay = Replay(RefCell::new(datagrams.into()));
        let mut engine = NftEngine::with_socket(Socket::with_transport(replay));
        if let Ok(snapshot) = engine.read() {
            let _ = snapshot.ruleset.to_string();
        }
        Ok(())
    };
    proptest::test_runner::TestRunner::new(config)
        .run(&changes, run)
        .unwrap();
}
