//! Addresses that several pods have one after the other: a pod outside the mesh is not captured because of its predecessor.

use crate::ambient::{MODE, Scene, states};
use crate::ambient_killed::{Uplink, by_programs};
use crate::ambient_node::{NODE, Pod, with_ztunnel};
use crate::support::Agent;
use weir_netlink::route::Routing;

/// Deletes the pod, its link first as network plugins do, and creates the next one with its address.
fn follow(scene: &Scene, old: Pod, name: &str) -> Pod {
    let routing = Routing::open_in(&scene.host).unwrap();
    routing
        .delete_link(routing.link("v1").unwrap().index)
        .unwrap();
    drop(old);
    Pod::new(name, 1, &scene.host).expect("there was one before")
}

/// The pod names become names of control groups, which parallel tests share.
fn moved(prefix: &str, settings: &[(&str, &str)]) {
    let [first, second, third, fourth, of_proxy] =
        ["one", "two", "three", "four", "proxy"].map(|name| format!("{prefix}-{name}"));
    let Some((scene, one, _proxy, listener)) = with_ztunnel((&first, 1), (&of_proxy, 2)) else {
        return;
    };
    let uplink = Uplink::of(&scene.host);
    scene.server.put(one.object("shop", &first));
    let agent = scene.start(settings);
    let is_enrolled = |agent: &Agent| states(agent, "enrolled") == 1;
    agent.until("enrolled", || is_enrolled(&agent));
    assert!(listener.gets(&one), "{}", agent.log());

    // The next pod is not in the mesh.
    let put = |pod: &Pod, name: &str, mode: &str| {
        let mut object = pod.object("shop", name);
        object["metadata"]["labels"][MODE] = mode.into();
        scene.server.put(object);
    };
    scene.server.remove(&one.object("shop", &first));
    let two = follow(&scene, one, &second);
    put(&two, &second, "none");
    agent.until("left alone", || uplink.gets(&two));
    assert!(!listener.gets(&two));
    // The pod joins the mesh.
    put(&two, &second, "ambient");
    agent.until("captured", || is_enrolled(&agent) && listener.gets(&two));
    assert!(!uplink.gets(&two));
    // The next pod is also in the mesh, and is captured as a pod of its own.
    scene.server.remove(&two.object("shop", &second));
    let three = follow(&scene, two, &third);
    put(&three, &third, "ambient");
    agent.until("captured", || is_enrolled(&agent) && listener.gets(&three));
    assert!(!uplink.gets(&three));

    // The same while no agent runs.
    drop(agent);
    scene.server.remove(&three.object("shop", &third));
    let four = follow(&scene, three, &fourth);
    put(&four, &fourth, "none");
    let agent = scene.start(settings);
    agent.until("left alone", || uplink.gets(&four));
    put(&four, &fourth, "ambient");
    agent.until("captured", || is_enrolled(&agent) && listener.gets(&four));
    assert!(!uplink.gets(&four));
}

#[test]
fn rules_at_the_node_know_whose_an_address_is() {
    moved("rules", &NODE);
}

#[test]
fn programs_at_the_node_know_whose_an_address_is() {
    let Some(mounted) = crate::ambient_node::programs_or_skip() else {
        return;
    };
    moved("programs", &by_programs(&mounted));
}
