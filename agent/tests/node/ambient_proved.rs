//! The live proof of the redirection of pods of ambient mode: each answer in the metrics, the log and the events.

use crate::ambient::{SELDOM, Scene, states};
use crate::repair::{Sandbox, events};
use crate::support::{Agent, get};

pub(crate) const PROOF: (&str, &str) = ("WEIR_LIVE_PROOF", "true");

/// A pod with a route to other networks: with lo alone it sends no packets.
fn routed(name: &str) -> Option<(Sandbox, Scene)> {
    let (sandbox, scene) = Scene::of(name)?;
    sandbox.link("eth0", "10.98.0.2/24");
    sandbox.ip("route add default via 10.98.0.1");
    Some((sandbox, scene))
}

/// The numbers of proofs with the answers yes, unknown and no.
pub(crate) fn proved(agent: &Agent) -> [u64; 3] {
    ["yes", "unknown", "no"]
        .map(|answer| agent.metric(&format!("weir_ambient_proved_total{{answer=\"{answer}\"}}")))
}

/// The answer on the status page.
fn shown(agent: &Agent) -> serde_json::Value {
    let facts = agent.facts();
    facts["ambient"]["pods"][0]["proved"].clone()
}

// matrix: every
#[test]
fn where_the_connections_of_a_pod_land_is_proved_at_enrolment() {
    let Some((_sandbox, scene)) = routed("proved") else {
        return;
    };
    let mut agent = scene.start(&[("WEIR_LIVE_PROOF", "true")]);
    let ztunnel = scene.ztunnel();
    let proved = |agent: &Agent| proved(agent)[0];
    agent.until("proved", || {
        get(agent.metrics, "/metrics").is_some() && proved(&agent) == 1
    });
    agent.until("enrolled", || states(&agent, "enrolled") == 1);
    // The next agent finds everything in sync, but has no record of the proof.
    agent.signal(nix::sys::signal::Signal::SIGKILL);
    drop(agent);
    agent = scene.start(&[("WEIR_LIVE_PROOF", "true"), ("WEIR_VERIFY_INTERVAL", "1")]);
    ztunnel.snapshots(2);
    agent.until("proved again", || proved(&agent) == 1);
    let verified = || {
        let facts = agent.facts();
        facts["ambient"]["pods"][0]["verifiedAt"].clone()
    };
    for _ in 0..2 {
        let before = verified();
        agent.until("another round", || verified() != before);
    }
    assert_eq!(proved(&agent), 1, "once");
    agent.until("shown", || {
        let facts = agent.facts();
        facts["ambient"]["pods"][0]["proved"] == "yes"
    });
}

/// The rules are in force, and a foreign one comes before them.
#[test]
fn a_pod_whose_connections_a_foreign_rule_takes_is_told_of() {
    let Some((sandbox, scene)) = routed("diverted") else {
        return;
    };
    let chain = "{ type nat hook output priority -110 ; }";
    sandbox.tool("nft", &["add", "table", "inet", "t"]);
    sandbox.tool("nft", &["add", "chain", "inet", "t", "c", chain]);
    let rule = "add rule inet t c meta l4proto tcp redirect to :9999";
    sandbox.tool("nft", &rule.split(' ').collect::<Vec<_>>());
    let agent = scene.start(&[PROOF, SELDOM]);
    let _ztunnel = scene.ztunnel();
    agent.until("counted", || proved(&agent) == [0, 0, 1]);
    agent.until("shown", || shown(&agent) == "no");
    agent.says("is not redirected, although its rules are in force");
    let reason = "RedirectionNotProved";
    agent.until("the event", || events(&scene.server, reason).len() == 1);
    let event = &events(&scene.server, reason)[0];
    assert_eq!(event.body["involvedObject"]["uid"], "uid-diverted");
    let message = event.body["message"].to_string();
    assert!(message.contains("127.0.0.1:9999"), "{message}");
}

/// Nothing can be sent from a pod that has only loopback addresses.
#[test]
fn what_cannot_be_proved_is_unknown_and_no_event() {
    let Some((_sandbox, scene)) = Scene::of("mute") else {
        return;
    };
    let agent = scene.start(&[PROOF, SELDOM]);
    let _ztunnel = scene.ztunnel();
    agent.until("counted", || proved(&agent) == [0, 1, 0]);
    agent.until("shown", || shown(&agent) == "unknown");
    agent.says("cannot be proved to be redirected");
    agent.until("enrolled", || states(&agent, "enrolled") == 1);
    assert!(events(&scene.server, "RedirectionNotProved").is_empty());
}
