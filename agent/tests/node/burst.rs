//! Many broken pods at once.

use crate::api_server::{ApiServer, Asked, Fault};
use crate::repair::{broken, start};
use crate::support::Node;
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

const PODS: u8 = 60;

/// An API server that takes everything but events, and of these says nothing.
fn all_are_asked_for(setting: (&str, &str), is_action: fn(&Asked) -> bool) {
    let server = ApiServer::start();
    server.fault(|asked| {
        let hangs = Fault::Drip(Duration::from_secs(60));
        asked.path.ends_with("/events").then_some(hangs)
    });
    for n in 0..PODS {
        server.put(broken(&format!("many-{n}"), &format!("192.0.2.{n}")));
    }
    let node = Node::new();
    let begun = Instant::now();
    let off = ("WEIR_VERIFY_INTERVAL", "0");
    let agent = start(&node, &server, &[setting, off]);
    agent.until("all", || {
        let asked = server.asked().into_iter().filter(is_action);
        let paths: BTreeSet<String> = asked.map(|asked| asked.path).collect();
        paths.len() == usize::from(PODS)
    });
    // One event alone is waited for ten seconds.
    assert!(begun.elapsed().as_secs() < 10, "{:?}", begun.elapsed());
}

#[test]
fn deletions_wait_for_no_event() {
    all_are_asked_for(("REPAIR_DELETE_PODS", "true"), |a| a.method == "DELETE");
}

#[test]
fn labels_wait_for_no_event() {
    all_are_asked_for(("REPAIR_LABEL_PODS", "true"), |a| a.method == "PATCH");
}
