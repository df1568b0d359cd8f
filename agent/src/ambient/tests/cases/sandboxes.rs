//! New sandboxes of a pod, and addresses that several pods have one after the other.

use super::run;
use crate::ambient::pod::Annotation;
use crate::ambient::tests::histories::Step;
use crate::ambient::tests::{Fault, NETNS, Scene};
use serde_json::json;
use std::net::IpAddr;
use weir_core::journal::ambient::State;
use weir_netlink::route::{LOOPBACK_IFINDEX, Routing};
use weir_reconcile::{Reconciler, Uid};

/// The plugin starts the pod when it is told so.
#[test]
fn a_new_sandbox_is_enrolled_at_once_and_not_called_so_before() {
    let _ = weir_testing::namespace_or_skip!();
    let (mut scene, uid) = Scene::enrolled();
    scene.contend(&uid);
    scene.memory(&uid).annotate = Some(Some(Annotation::Pending));
    assert_eq!(scene.agent.keeper.verdict(&uid), Ok(()));
    scene.sandbox(1, false);
    let job = scene.begin();
    assert!(scene.agent.keeper.verdict(&uid).is_err());
    let done = run(job);
    scene.agent.keeper.done(&uid, Ok(done));
    assert_eq!(scene.agent.keeper.verdict(&uid), Ok(()));
}

/// After a reboot the API server has the addresses of the sandboxes before, until the kubelet has told it of the new ones.
#[test]
fn the_plugin_knows_the_addresses_of_a_new_sandbox_better_than_the_api_server() {
    let _ = weir_testing::namespace_or_skip!();
    let (mut scene, uid) = Scene::enrolled();
    let probed = |scene: &Scene| {
        let world = scene.shared.world();
        let all = world.probes.keys().map(ToString::to_string);
        all.collect::<Vec<_>>()
    };
    assert_eq!(probed(&scene), ["10.0.0.1"]);
    scene.birth(2);
    scene.change(2, |p| {
        p["status"] = json!({"phase": "Running", "podIP": "10.0.9.1"});
    });
    scene.hand_over(1, "10.0.9.1");
    let job = scene.begin();
    let done = run(job);
    scene.agent.keeper.done(&uid, Ok(done));
    // Also where the API server says that another pod has it, of which the plugin has told nothing.
    assert_eq!(scene.agent.keeper.verdict(&uid), Ok(()));
    assert_eq!(probed(&scene), ["10.0.9.1"]);
    // What was said before is no news, what is said now is.
    scene.publish(1);
    scene.agent.keeper.changes();
    assert_eq!(
        scene.memory(&uid).addresses(),
        ["10.0.9.1".parse::<IpAddr>().unwrap()]
    );
    scene.change(1, |p| {
        p["status"] = json!({"phase": "Running", "podIP": "10.0.1.1"});
    });
    scene.agent.keeper.changes();
    assert_eq!(
        scene.memory(&uid).addresses(),
        ["10.0.1.1".parse::<IpAddr>().unwrap()]
    );
}

/// One whose sandbox is gone has its address at the API server for as long as it is there.
#[test]
fn a_reused_address_stays_that_of_the_pod_that_has_it() {
    let _ = weir_testing::namespace_or_skip!();
    for [old, new] in [[1, 2], [2, 1]] {
        let mut scene = Scene::new();
        scene.namespace("ambient");
        scene.birth(old);
        scene.rest();
        let (gone, address) = (scene.uid(old).unwrap(), format!("10.0.0.{old}"));
        scene.shared.world().netns.remove(&*gone);
        scene.agent.drifted.put(Uid::clone(&gone), None);
        scene.work(10);
        assert_eq!(scene.memory(&gone).state, Some(State::Failed));
        scene.birth(new);
        let status = json!({"phase": "Running", "podIP": address});
        scene.change(new, |p| p["status"] = status);
        scene.hand_over(new, &address);
        scene.work(10);
        let uid = scene.uid(new).unwrap();
        let is_known = |scene: &Scene| {
            let world = scene.shared.world();
            world
                .probes
                .get(&address.parse().unwrap())
                .map(String::as_str)
                == Some(&*uid)
        };
        assert!(is_known(&scene), "{old}");
        scene.agent.keeper.round(true);
        assert!(is_known(&scene), "{old}: after a round");
        scene.hand_over(old, "10.0.9.9");
        scene.work(10);
        assert_eq!(scene.memory(&gone).state, Some(State::Enrolled));
        assert!(is_known(&scene), "{old}: after the other has another one");
    }
}

/// Multus calls the plugin for each network of a pod; the rules are those of its namespace.
#[test]
fn another_attachment_of_an_enrolled_pod_takes_nothing_away() {
    let Some(netns) = &*NETNS else { return };
    let foreign: IpAddr = "10.99.0.5".parse().unwrap();
    for is_handed_over in [true, false] {
        for addresses in [vec![], vec![foreign]] {
            let mut scene = Scene::new();
            scene.namespace("ambient");
            scene.birth(1);
            let uid = scene.uid(1).unwrap();
            if is_handed_over {
                scene.hand_over(1, "10.0.0.1");
            }
            let ino = netns.id().ino;
            scene.shared.world().netns.insert(uid.to_string(), ino);
            scene.rest();
            assert_eq!(scene.check(), Ok(()));
            let probes = scene.shared.world().probes.clone();
            scene.call(&uid, &netns.path(), addresses);
            // What would be told to the proxy is not.
            scene.step(&Step::Fault('p', Some(Fault::Fails)));
            scene.work(10);
            assert_eq!(scene.agent.keeper.verdict(&uid), Ok(()));
            assert_eq!(scene.shared.world().probes, probes);
            // Rules that are gone are made again before the answer.
            scene.shared.world().rules.clear();
            scene.call(&uid, &netns.path(), vec![]);
            scene.work(10);
            assert_eq!(scene.shared.world().rules.len(), 1);
            assert_eq!(scene.agent.keeper.verdict(&uid), Ok(()));
            scene.rest();
            assert_eq!(scene.check(), Ok(()));
            assert_eq!(scene.shared.world().probes, probes);
        }
    }
}

/// The pods cannot be watched, one is made anew, and the plugin hands it over: only its name is known, which is that of the one before.
#[test]
fn what_was_made_for_a_pod_under_the_uid_of_the_one_before_is_removed() {
    let (mut scene, old) = Scene::enrolled();
    scene.hand_over(1, "10.0.0.1");
    scene.work(10);
    if NETNS.is_none() {
        return;
    }
    assert_eq!(scene.shared.world().rules.len(), 1);
    {
        let mut world = scene.shared.world();
        let netns = world.netns.remove(&*old).unwrap();
        world.netns.insert("uid-next".into(), netns);
    }
    // Now they are watched, and it is no pod of the mesh.
    scene.change(1, |object| {
        object["metadata"]["uid"] = "uid-next".into();
        object["metadata"]["labels"] = json!({"m": "none"});
    });
    scene.rest();
    assert_eq!(scene.check(), Ok(()));
    assert!(scene.shared.world().rules.is_empty());
}

/// Its process has ended, and the node was restarted or its rules flushed: probes of the next one would be captured.
#[test]
fn an_enrolled_pod_without_a_namespace_has_its_addresses_at_the_host_after_a_restart() {
    let (mut scene, uid) = Scene::enrolled();
    scene.publish(1);
    let netns = scene.shared.world().netns.remove(&*uid).unwrap();
    scene.shared.world().probes.clear();
    scene.step(&Step::Restart);
    scene.work(10);
    assert_eq!(scene.memory(&uid).state, Some(State::Failed));
    let probes = scene.shared.world().probes.clone();
    assert_eq!(
        probes,
        [("10.0.0.1".parse().unwrap(), uid.to_string())].into()
    );
    // Another pod that surely has the address gets it.
    if NETNS.is_some() {
        scene.birth(2);
        let other = scene.uid(2).unwrap().to_string();
        scene.hand_over(2, "10.0.0.1");
        scene.work(10);
        scene.agent.keeper.round(true);
        let of_other = [("10.0.0.1".parse().unwrap(), other)].into();
        assert_eq!(scene.shared.world().probes, of_other);
        scene.death(2);
        scene.rest();
    }
    scene.shared.world().netns.insert(uid.to_string(), netns);
    scene.rest();
    assert_eq!(scene.check(), Ok(()));
    scene.death(1);
    scene.rest();
    assert_eq!(scene.shared.world().probes, [].into());
}

/// Its ADD failed, and the runtime removed the sandbox. It could never be captured again.
#[test]
fn a_pod_is_looked_for_elsewhere_when_the_path_that_the_plugin_reported_is_gone() {
    let _ = weir_testing::namespace_or_skip!();
    let (mut scene, uid) = Scene::joining();
    scene.step(&Step::Fault('r', Some(Fault::Fails)));
    scene.sandbox(1, false);
    scene.work(10);
    assert_eq!(scene.memory(&uid).state, Some(State::Failed));
    scene.make_untold(1);
    scene.rest();
    assert_eq!(scene.check(), Ok(()));
}

/// This path was never seen. The next sandbox is made while the pod is outside of the mesh.
#[test]
fn a_pod_that_left_is_not_looked_for_where_the_plugin_reported_it() {
    let (mut scene, uid) = Scene::joining();
    scene.call(&uid, "/weir/none".as_ref(), vec![]);
    scene.work(10);
    let why = scene.memory(&uid).why.clone().unwrap();
    assert!(why.contains("/weir/none is not seen"), "{why}");
    for mode in ["none", "ambient"] {
        scene.namespace(mode);
        scene.rest();
        assert_eq!(scene.check(), Ok(()), "{mode}");
    }
}

/// The result of the previous plugin may have that of the bridge at the host, whose own connections were taken for probes.
#[test]
fn an_address_that_a_new_sandbox_lacks_is_never_at_the_host() {
    let netns = weir_testing::namespace_or_skip!();
    let [own, of_bridge] = ["10.0.0.1", "10.0.0.254"].map(|a| a.parse::<IpAddr>().unwrap());
    let routing = Routing::open_in(&netns).unwrap();
    routing.set_up(LOOPBACK_IFINDEX).unwrap();
    assert!(routing.add_address(LOOPBACK_IFINDEX, own.into()).unwrap());
    let (mut scene, uid) = Scene::joining();
    scene.call(&uid, &netns.path(), vec![own, of_bridge]);
    let job = scene.begin();
    scene.agent.keeper.round(true);
    assert_eq!(scene.shared.world().probes, [].into());
    let done = run(job);
    let of_pod = [(own, uid.to_string())].into();
    for _ in 0..2 {
        assert_eq!(scene.shared.world().probes, of_pod);
        scene.agent.keeper.round(true);
    }
    scene.agent.keeper.done(&uid, Ok(done));
    scene.agent.keeper.round(true);
    assert_eq!(scene.shared.world().probes, of_pod);
}
