//! Namespaces that the API server does not list, by whose labels pods of ambient mode are decided.

use crate::ambient::Scene;
use crate::api_server::{ApiServer, Fault};
use crate::support::{Agent, Node, get};

fn unlisted(server: &ApiServer) {
    server.fault(|asked| (asked.path == "/api/v1/namespaces").then_some(Fault::Status(403)));
}

fn blind(agent: &Agent) -> u64 {
    agent.metric("weir_blind{of=\"watch\"}")
}

fn refusals(agent: &Agent) -> u64 {
    agent.metric("weir_pod_watch_restarts_total{reason=\"forbidden\"}")
}

const TOLD: &str = "the namespaces are not watched: status 403";

/// A namespace that is labelled meanwhile has no effect: its pods send in plain text.
#[test]
fn that_namespaces_are_not_watched_is_told_and_shown() {
    let scene = Scene::new();
    let agent = scene.start(&[]);
    agent.until("seen", || blind(&agent) == 0);
    unlisted(&scene.server);
    scene.server.end();
    agent.until("shown", || blind(&agent) == 1);
    agent.until("several attempts", || refusals(&agent) >= 3);
    let log = agent.log();
    assert_eq!(log.matches(TOLD).count(), 1, "{log}");
    let watch = || agent.facts()["podWatch"].clone();
    assert_eq!(watch()["state"], "trouble");
    assert!(watch()["reason"].as_str().unwrap().starts_with(TOLD));
    let (_, page) = get(agent.metrics, "/").unwrap();
    assert!(
        page.contains("pods or namespaces are not watched"),
        "{page}"
    );
    // Pods are.
    agent.until("pods", || agent.metric("weir_pod_watch_synced") == 1);
    scene.server.fault(|_| None);
    agent.until("seen again", || {
        blind(&agent) == 0 && watch()["state"] == "synced"
    });
    assert!(agent.log().contains("the namespaces are watched again"));
}

/// Nothing is decided by them.
#[test]
fn without_ambient_mode_namespaces_may_be_unknown() {
    let server = ApiServer::start();
    unlisted(&server);
    let node = Node::new();
    let agent = crate::pods::start(&node, &server);
    agent.until("several attempts", || refusals(&agent) >= 2);
    agent.until("seen", || blind(&agent) == 0);
    assert_eq!(agent.facts()["podWatch"]["state"], "synced");
    assert!(!agent.log().contains(TOLD), "{}", agent.log());
}
