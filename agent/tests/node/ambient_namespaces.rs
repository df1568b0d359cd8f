//! The API server does not list namespaces, whose labels decide whether pods belong to ambient mode.

use crate::ambient::{
    MODE, Scene, hand_over, has_no_rules, id, is_captured, labelled, running, states, why,
};
use crate::api_server::{Answer, ApiServer};
use crate::repair::Sandbox;
use crate::support::{Agent, Node};

fn unlisted(server: &ApiServer) {
    server.fault(|asked| (asked.path == "/api/v1/namespaces").then_some(Answer::Status(403)));
}

fn blind(agent: &Agent) -> u64 {
    agent.metric("weir_blind{of=\"watch\"}")
}

fn refusals(agent: &Agent) -> u64 {
    agent.metric("weir_pod_watch_restarts_total{reason=\"forbidden\"}")
}

const TOLD: &str = "the namespaces are not watched: status 403";

/// A label that a namespace gets meanwhile has no effect: its pods send in plain text.
#[test]
fn that_namespaces_are_not_watched_is_told_and_shown() {
    let scene = Scene::new();
    let agent = scene.start(&[]);
    agent.until("seen", || blind(&agent) == 0);
    unlisted(&scene.server);
    scene.server.end();
    agent.until("shown", || blind(&agent) == 1);
    agent.until("several attempts", || refusals(&agent) >= 3);
    agent.says(TOLD);
    let log = agent.log();
    assert_eq!(log.matches(TOLD).count(), 1, "{log}");
    let watch = || agent.facts()["podWatch"].clone();
    agent.until("the reason", || {
        let watch = watch();
        let reason = watch["reason"].as_str().unwrap_or_default();
        watch["state"] == "trouble" && reason.starts_with(TOLD)
    });
    agent.until("the page", || {
        let (_, page) = agent.page("/");
        page.contains("pods or namespaces are not watched")
    });
    // The watch of pods works.
    agent.until("pods", || agent.metric("weir_pod_watch_synced") == 1);
    scene.server.fault(|_| None);
    agent.until("seen again", || {
        blind(&agent) == 0 && watch()["state"] == "synced"
    });
    agent.says("the namespaces are watched again");
}

/// Other modes do not use labels of namespaces.
#[test]
fn without_ambient_mode_namespaces_may_be_unknown() {
    let server = ApiServer::start();
    unlisted(&server);
    let node = Node::new();
    let agent = crate::pods::start(&node, &server);
    agent.until("several attempts", || refusals(&agent) >= 2);
    agent.until("seen", || {
        blind(&agent) == 0 && agent.facts()["podWatch"]["state"] == "synced"
    });
    assert!(!agent.log().contains(TOLD), "{}", agent.log());
}

/// Other nodes send to these pods by HBONE, and without a proxy they have no network.
#[test]
fn pods_that_an_earlier_agent_enrolled_are_looked_after_while_no_namespace_is_known() {
    let names = ["by-namespace", "by-label", "new-by-label", "new"];
    let sandboxes = names.map(Sandbox::of);
    let [
        Some(by_namespace),
        Some(by_label),
        Some(new_by_label),
        Some(new),
    ] = &sandboxes
    else {
        return;
    };
    let selected = |name: &str, sandbox: &Sandbox| {
        let mut pod = running(name, &sandbox.address);
        pod["metadata"]["labels"][MODE] = "ambient".into();
        pod
    };
    let scene = Scene::new();
    scene.put("by-namespace", by_namespace);
    scene.server.put(selected("by-label", by_label));
    let (mut agent, ztunnel) = scene.enrolled(2, &[]);
    agent.signal(nix::sys::signal::Signal::SIGKILL);
    agent.ended();
    unlisted(&scene.server);
    for sandbox in [by_namespace, by_label] {
        sandbox.tool("nft", &["flush", "ruleset"]);
    }
    agent = scene.start(&[]);
    agent.until("healed", || {
        is_captured(by_namespace) && is_captured(by_label) && states(&agent, "enrolled") == 2
    });
    by_namespace.tool("nft", &["flush", "ruleset"]);
    agent.until("healed again", || is_captured(by_namespace));
    drop(ztunnel);
    let next = scene.ztunnel();
    next.carries("uid-by-namespace", Some(id(by_namespace)));
    next.carries("uid-by-label", Some(id(by_label)));
    // New pods are captured if no label of the namespace affects the decision.
    scene.server.put(selected("new-by-label", new_by_label));
    agent.until("handed over", || {
        hand_over(&scene.node, "new-by-label", new_by_label).0 == 200
    });
    assert!(is_captured(new_by_label));
    scene.put("new", new);
    agent.until("waits", || {
        why(&agent, "new").contains("the labels of its namespace shop are not known yet")
    });
    assert!(has_no_rules(new));
    assert_eq!(blind(&agent), 1);
    // The pod left the mesh in the meantime.
    scene.server.put(labelled("none"));
    scene.server.fault(|_| None);
    agent.until("left", || has_no_rules(by_namespace));
    next.carries("uid-by-namespace", None);
    assert!(is_captured(by_label) && has_no_rules(new));
}
