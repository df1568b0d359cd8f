//! Ambient mode: a new ztunnel gets every pod whose namespace is certain, whatever state its rules are in.

use crate::ambient::{ANNOTATION, Scene, hand_over, id, is_captured, running, states, why};
use crate::repair::Sandbox;
use crate::support::Agent;
use nix::sys::signal::Signal;
use serde_json::{Value, json};
use std::time::Duration;
use weir_testing::ztunnel::Ztunnel;

impl Scene {
    /// Starts another ztunnel, which replaces this one.
    fn rolled_over(&self, old: Ztunnel) -> Ztunnel {
        let new = self.ztunnel();
        new.snapshots(1);
        drop(old);
        new
    }

    /// Kills this agent and starts the next one.
    fn next(&self, mut agent: Agent) -> Agent {
        agent.signal(Signal::SIGKILL);
        agent.ended();
        drop(agent);
        self.start(&[])
    }
}

fn engine_of(agent: &Agent, name: &str) -> Value {
    let facts = agent.facts();
    let pods = facts["ambient"]["pods"].as_array().cloned();
    let pod = pods.into_iter().flatten().find(|pod| pod["name"] == name);
    pod.map(|pod| pod["engine"].clone()).unwrap_or_default()
}

fn lose_rules(agent: &Agent, sandbox: &Sandbox) {
    sandbox.tool("nft", &["delete", "table", "inet", "istio-ambient-nat"]);
    agent.until("healed", || is_captured(sandbox));
}

#[test]
fn objects_of_another_writer_in_a_table_keep_no_pod_from_a_new_ztunnel() {
    let Some((sandbox, scene)) = Scene::of("counted") else {
        return;
    };
    let (agent, ztunnel) = scene.enrolled(1, &[]);
    sandbox.tool("nft", &["add counter inet istio-ambient-nat c1"]);
    let ztunnel = scene.rolled_over(ztunnel);
    ztunnel.carries("uid-counted", Some(id(&sandbox)));
    let agent = scene.next(agent);
    let ztunnel = scene.rolled_over(ztunnel);
    ztunnel.carries("uid-counted", Some(id(&sandbox)));
    agent.until("enrolled", || states(&agent, "enrolled") == 1);
    lose_rules(&agent, &sandbox);
    assert_eq!(ztunnel.faults(), Vec::<String>::new());
}

#[test]
fn a_pod_whose_rules_cannot_be_in_force_gets_the_new_ztunnel() {
    let Some((sandbox, scene)) = Scene::of("blocked") else {
        return;
    };
    let (agent, ztunnel) = scene.enrolled(1, &[]);
    // The sbr plugin uses tables from 100 on.
    let route = ["192.0.2.0/24", "dev", "lo", "table", "100"];
    sandbox.tool("ip", &[&["route", "add"], &route[..]].concat());
    agent.until("failed", || states(&agent, "failed") == 1);
    assert_eq!(engine_of(&agent, "blocked"), Value::Null);
    let ztunnel = scene.rolled_over(ztunnel);
    ztunnel.carries("uid-blocked", Some(id(&sandbox)));
    let agent = scene.next(agent);
    agent.until("failed", || states(&agent, "failed") == 1);
    let ztunnel = scene.rolled_over(ztunnel);
    ztunnel.carries("uid-blocked", Some(id(&sandbox)));
    assert!(scene.probed().contains("uid-blocked"), "{}", scene.probed());
    sandbox.tool("ip", &[&["route", "del"], &route[..]].concat());
    agent.until("enrolled", || states(&agent, "enrolled") == 1);
    assert_eq!(ztunnel.faults(), Vec::<String>::new());
}

#[test]
fn a_pod_that_disables_ipv6_stays_captured_and_gets_the_new_ztunnel() {
    let Some(sandbox) = Sandbox::of("dual") else {
        return;
    };
    let v6 = ["fd44::5/128", "dev", "lo"];
    sandbox.tool("ip", &[&["-6", "addr", "add"], &v6[..]].concat());
    let scene = Scene::new();
    let mut pod = running("dual", &sandbox.address);
    pod["status"]["podIPs"] = json!([{"ip": sandbox.address}, {"ip": "fd44::5"}]);
    scene.server.put(pod);
    let (agent, ztunnel) = scene.enrolled(1, &[]);
    sandbox.tool("sysctl", &["-qw", "net.ipv6.conf.all.disable_ipv6=1"]);
    lose_rules(&agent, &sandbox);
    let ztunnel = scene.rolled_over(ztunnel);
    ztunnel.carries("uid-dual", Some(id(&sandbox)));
    let agent = scene.next(agent);
    let ztunnel = scene.rolled_over(ztunnel);
    ztunnel.carries("uid-dual", Some(id(&sandbox)));
    lose_rules(&agent, &sandbox);
    // A pod that was never captured must have all of its addresses to be enrolled.
    let Some(other) = Sandbox::of("half") else {
        return;
    };
    let mut pod = running("half", &other.address);
    pod["status"]["podIPs"] = json!([{"ip": other.address}, {"ip": "fd44::6"}]);
    scene.server.put(pod);
    agent.until("refused", || {
        why(&agent, "half").contains("does not have the addresses")
    });
}

/// The control group proves which pod the namespace belongs to, while the API server still has the address of a deleted sandbox.
#[test]
fn a_captured_pod_is_healed_and_handed_over_while_another_one_claims_its_address() {
    let Some((sandbox, scene)) = Scene::of("owner") else {
        return;
    };
    let agent = scene.start(&[]);
    let ztunnel = scene.ztunnel();
    agent.until("annotated", || scene.annotation("owner") == "enabled");
    let stale = running("stale", &sandbox.address);
    scene.server.put(stale);
    agent.until("told", || why(&agent, "stale").contains("claimed by"));
    lose_rules(&agent, &sandbox);
    let agent = scene.next(agent);
    agent.until("told", || why(&agent, "stale").contains("claimed by"));
    let ztunnel = scene.rolled_over(ztunnel);
    ztunnel.carries("uid-owner", Some(id(&sandbox)));
    lose_rules(&agent, &sandbox);
    assert_eq!(scene.annotation("owner"), "enabled");
    assert_eq!(
        scene.server.annotations("shop", "stale")[ANNOTATION],
        Value::Null
    );
}

/// ztunnel answers one request at a time, long after the agent has finished the work on the pod.
#[test]
fn a_slow_ztunnel_is_asked_to_take_each_pod_once() {
    let names: Vec<String> = (0..8).map(|n| format!("slow-{n}")).collect();
    let sandboxes: Option<Vec<Sandbox>> = names.iter().map(|name| Sandbox::of(name)).collect();
    let Some(sandboxes) = sandboxes else {
        return;
    };
    let scene = Scene::new();
    let agent = scene.start(&[]);
    let ztunnel = scene.ztunnel();
    ztunnel.snapshots(1);
    ztunnel.pause(Duration::from_millis(700));
    for (name, sandbox) in names.iter().zip(&sandboxes) {
        scene.put(name, sandbox);
    }
    agent.until("enrolled", || states(&agent, "enrolled") == 8);
    let adds = ztunnel.adds();
    assert!(
        adds.len() == 8 && adds.values().all(|n| *n == 1),
        "{adds:?}"
    );
    assert_eq!(ztunnel.faults(), Vec::<String>::new());
}

/// The plugin waits for 5 s.
#[test]
fn a_pod_that_the_plugin_hands_over_starts_when_a_slow_ztunnel_has_it() {
    let Some(sandbox) = Sandbox::of("patient") else {
        return;
    };
    let scene = Scene::new();
    let agent = scene.start(&[]);
    let ztunnel = scene.ztunnel();
    ztunnel.snapshots(1);
    ztunnel.pause(Duration::from_millis(1500));
    scene.put("patient", &sandbox);
    agent.until("handed over", || {
        hand_over(&scene.node, "patient", &sandbox).0 == 200
    });
    assert_eq!(ztunnel.adds()["uid-patient"], 1);
    agent.says("is redirected, waits for ztunnel");
    assert!(is_captured(&sandbox));
}
