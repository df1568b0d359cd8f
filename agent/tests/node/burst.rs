//! Many broken pods at once.

use crate::api_server::{Answer, ApiServer, Asked};
use crate::repair::{broken, start};
use crate::support::Node;
use std::collections::BTreeSet;
use std::time::Duration;

const PODS: u8 = 60;

/// Checks that the agent acts on all pods while the API server accepts every request but never answers those for events.
fn all_are_asked_for(setting: (&str, &str), is_action: fn(&Asked) -> bool) {
    let server = ApiServer::start();
    server.fault(|asked| {
        let hangs = Answer::Drip(Duration::from_secs(60));
        asked.path.ends_with("/events").then_some(hangs)
    });
    for n in 0..PODS {
        server.put(broken(&format!("many-{n}"), &format!("192.0.2.{n}")));
    }
    let node = Node::new();
    let agent = start(&node, &server, &[setting]);
    agent.until("all", || {
        let asked = server.asked().into_iter().filter(is_action);
        let paths: BTreeSet<String> = asked.map(|asked| asked.path).collect();
        paths.len() == usize::from(PODS)
    });
    // The agent waits ten seconds for one event, and there is one event for each pod.
    let given_up = agent.metric("weir_events_total{result=\"failed\"}");
    assert!(given_up < u64::from(PODS) / 2, "{given_up}");
}

#[test]
fn deletions_wait_for_no_event() {
    all_are_asked_for(("REPAIR_DELETE_PODS", "true"), |a| a.method == "DELETE");
}

#[test]
fn labels_wait_for_no_event() {
    all_are_asked_for(("REPAIR_LABEL_PODS", "true"), |a| a.method == "PATCH");
}
