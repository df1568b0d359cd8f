//! Proofs that fail, and losses whose repair fails: what is recorded of them, and how often.

use crate::ambient::tests::histories::Step;
use crate::ambient::tests::{Fault, Scene};
use std::time::Duration;
use weir_core::journal::ambient::{Event, State};
use weir_core::journal::pod::Writer;
use weir_live::{Answer, Proof};
use weir_netlink::NetnsId;
use weir_reconcile::Uid;

/// It is made again at each look, and told of once.
#[test]
fn a_proof_that_failed_is_made_again() {
    let mut scene = Scene::new();
    let told = scene.hears(told);
    let netns = NetnsId { dev: 4, ino: 1 };
    let mut look = |proof: Proof| {
        scene.shared.world().proof = Some(proof);
        if scene.uid(1).is_none() {
            scene.namespace("ambient");
            scene.birth(1);
            scene.rest();
        }
        scene.step(&Step::Round);
        scene.work(10);
        let uid = scene.uid(1).unwrap();
        let member = scene.memory(&uid).member().unwrap();
        let events: Vec<String> = told.try_iter().collect();
        let made = std::mem::take(&mut scene.shared.world().proofs);
        (made > 0, events, member.proved)
    };
    let unknown = Some(Answer::Unknown);
    let of = |why: &str| vec![format!("proved: {why}")];
    let failed = |why: &str| Proof::failed(netns, why);
    assert_eq!(look(failed("busy")), (true, of("busy"), unknown));
    assert_eq!(look(failed("busy")), (true, vec![], unknown));
    assert_eq!(look(failed("full")), (true, of("full"), unknown));
    let made = Proof {
        failure: None,
        ..failed("")
    };
    let none = of("no connection could be made");
    assert_eq!(look(made.clone()), (true, none, unknown));
    assert_eq!(look(made), (false, vec![], unknown));
}

/// Drifts that are counted, and proofs.
fn told(event: &Event) -> Option<String> {
    match event {
        Event::Healed(healed) => {
            let by = healed.by.as_ref().map_or("", |by| by.name.as_str());
            let is = |is: bool, word| if is { word } else { "" };
            let (new, failed) = (is(healed.is_new, "counted "), is(healed.failed, "failed"));
            Some(format!("{new}{failed} {by}"))
        }
        Event::Proved { proof, .. } => {
            Some(format!("proved: {}", proof.reason().unwrap_or_default()))
        }
        Event::Contention(_) => Some("contention".to_owned()),
        _ => None,
    }
}

/// Of legacy rules and programs no writer is known, and something else may have failed before.
#[test]
fn each_loss_is_counted_once_also_if_the_repair_fails() {
    for is_known in [true, false] {
        let (mut scene, uid) = Scene::enrolled();
        let told = scene.hears(told);
        let writer = |name: &str| {
            let name = name.to_owned();
            is_known.then_some(Writer { pid: 7, name })
        };
        let flush = |scene: &mut Scene, name: &str| {
            scene.flush(1);
            scene.agent.drifted.put(Uid::clone(&uid), writer(name));
            scene.work(1);
        };
        let counted = || told.try_iter().collect::<Vec<_>>();
        let name =
            |text: &str, name: &str| vec![format!("{text} {}", if is_known { name } else { "" })];
        // Something else fails.
        scene.step(&Step::Fault('r', Some(Fault::AnswerLost)));
        scene.agent.drifted.put(Uid::clone(&uid), None);
        scene.work(1);
        assert_eq!(scene.memory(&uid).state, Some(State::Failed));
        assert_eq!(counted(), [""; 0]);
        // The rules are written, and that is not the whole of it.
        for _ in 0..2 {
            flush(&mut scene, "iptables");
            assert_eq!(counted(), name("counted failed", "iptables"));
            scene.agent.drifted.put(Uid::clone(&uid), None);
            scene.work(1);
            assert_eq!(counted(), [""; 0]);
        }
        // They cannot be written, whatever other programs do.
        scene.step(&Step::Fault('r', Some(Fault::Fails)));
        flush(&mut scene, "iptables");
        assert_eq!(counted(), name("counted failed", "iptables"));
        for _ in 0..2 {
            scene.agent.drifted.put(Uid::clone(&uid), writer("dockerd"));
            scene.now += Duration::from_secs(61);
            scene.work(1);
        }
        assert_eq!(counted(), [""; 0]);
        scene.rest();
        assert_eq!(scene.check(), Ok(()));
        assert_eq!(counted(), [" "]);
    }
}
