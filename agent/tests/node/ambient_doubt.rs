//! Ambient mode at the node: a pod stays captured while information about it is missing.

use crate::ambient::{Scene, event, post, running, until_it_listens, why};
use crate::ambient_killed::by_programs;
use crate::ambient_node::{NODE, address, programs_or_skip, with_ztunnel};
use crate::api_server::{Answer, Asked};
use crate::support::Agent;
use nix::sys::signal::Signal;
use serde_json::json;

/// The annotation that marks a pod as captured cannot be written.
fn is_annotation(asked: &Asked) -> bool {
    asked.method == "PATCH"
}

/// Starts the next agent, and waits until it has read the state of the node.
fn next(scene: &Scene, mut agent: Agent, settings: &[(&str, &str)]) -> Agent {
    let looked = |agent: &Agent| {
        let log = agent.log();
        log.matches("that capture pods are in force").count()
    };
    agent.signal(Signal::SIGKILL);
    agent.ended();
    let before = looked(&agent);
    drop(agent);
    let agent = scene.start(settings);
    agent.until("in force", || looked(&agent) > before);
    agent
}

/// Tests run in parallel, so `name` and the numbers must be unique.
fn stays_captured(name: &str, numbers: [u8; 2], settings: &[(&str, &str)]) {
    let proxy = format!("zt-{name}");
    let pods = with_ztunnel((name, numbers[0]), (&proxy, numbers[1]));
    let Some((scene, web, _zt, listener)) = pods else {
        return;
    };
    scene
        .server
        .fault(|asked| is_annotation(asked).then_some(Answer::Status(500)));
    scene.server.put(web.object("shop", name));
    let agent = scene.start(settings);
    agent.until("captured", || listener.gets(&web));

    // The API server lists the pod's address for another pod with a former sandbox, and the next agent starts.
    let stale = running("stale", &address(numbers[0], 10).to_string());
    scene.server.put(stale.clone());
    agent.until("captured", || listener.gets(&web));
    let agent = next(&scene, agent, settings);
    agent.until("claimed", || why(&agent, name).contains("claimed by"));
    agent.until("captured", || listener.gets(&web));

    // The next agent cannot list namespaces.
    scene.server.remove(&stale);
    scene.server.fault(|asked| {
        let is_refused = is_annotation(asked) || asked.path.starts_with("/api/v1/namespaces");
        is_refused.then_some(Answer::Status(500))
    });
    let agent = next(&scene, agent, settings);
    agent.until("unknown", || why(&agent, name).contains("not known yet"));
    agent.until("captured", || listener.gets(&web));
}

#[test]
fn by_rules_a_pod_stays_captured_while_something_is_not_known() {
    stays_captured("doubted", [61, 62], &NODE);
}

#[test]
fn by_programs_a_pod_stays_captured_while_something_is_not_known() {
    if let Some(mounted) = programs_or_skip() {
        stays_captured("doubted-too", [63, 64], &by_programs(&mounted));
    }
}

/// The plugin hands the pod over, while the API server has no address of it, or that of the previous sandbox. The next agent does not have
/// the request of the plugin.
fn stays_captured_after_a_hand_over(name: &str, numbers: [u8; 2], settings: &[(&str, &str)]) {
    let proxy = format!("zt-{name}");
    let pods = with_ztunnel((name, numbers[0]), (&proxy, numbers[1]));
    let Some((scene, web, _zt, listener)) = pods else {
        return;
    };
    let ips = json!([{"Address": {"IP": address(numbers[0], 10), "Mask": "////AA=="}}]);
    let told = event(name, web.sandbox.netns().path(), &ips);
    let old = address(numbers[0], 99);
    let of_old = json!({"phase": "Running", "podIP": old, "podIPs": [{"ip": old}]});
    for status in [json!({"phase": "Pending"}), of_old] {
        let mut object = web.object("shop", name);
        object["status"] = status;
        scene.server.put(object.clone());
        let agent = scene.start(settings);
        // The socket of the previous agent may still exist.
        until_it_listens(&agent, &scene.node);
        agent.until("handed over", || post(&scene.node, &told).0 == 200);
        agent.until("captured", || listener.gets(&web));
        let agent = next(&scene, agent, settings);
        agent.until("captured", || listener.gets(&web));
        drop(agent);
        scene.server.remove(&object);
    }
}

#[test]
fn by_rules_a_pod_that_was_handed_over_stays_captured_over_a_restart() {
    stays_captured_after_a_hand_over("told", [65, 66], &NODE);
}

#[test]
fn by_programs_a_pod_that_was_handed_over_stays_captured_over_a_restart() {
    if let Some(mounted) = programs_or_skip() {
        stays_captured_after_a_hand_over("told-too", [67, 68], &by_programs(&mounted));
    }
}
