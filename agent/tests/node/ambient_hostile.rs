//! Labels and annotations of any form: each pod is in a visible state, and other pods lose nothing.

use crate::ambient::{MODE, Scene, id, is_captured, running, states, why};
use crate::repair::Sandbox;
use serde_json::Value;

const REROUTE: &str = "istio.io/reroute-virtual-interfaces";
const INGRESS: &str = "ambient.istio.io/bypass-inbound-capture";

#[test]
fn pods_with_hostile_labels_and_annotations_are_shown_and_their_neighbour_is_enrolled() {
    let names = ["healthy", "absurd", "nonsense", "large"];
    let sandboxes = names.map(Sandbox::of);
    let [Some(healthy), Some(absurd), Some(nonsense), Some(large)] = &sandboxes else {
        return;
    };
    let scene = Scene::new();
    let put = |name: &str, sandbox: &Sandbox, annotations: &[(&str, &str)]| {
        let mut pod = running(name, &sandbox.address);
        for (key, value) in annotations {
            pod["metadata"]["annotations"][*key] = (*value).into();
        }
        // A selector of the chart takes any value but `none`.
        pod["metadata"]["labels"][MODE] = format!("{name}\n\u{1f980}'; flush ruleset").into();
        scene.server.put(pod);
    };
    put("absurd", absurd, &[(REROUTE, "eth0, ../../a/b, \u{0}, *")]);
    put("nonsense", nonsense, &[(INGRESS, "perhaps\n")]);
    // 28,000 names that are valid: together nearly as many bytes as the API server accepts.
    let many: Vec<String> = (0..28_000).map(|n| format!("vm{n:06}")).collect();
    put("large", large, &[(REROUTE, &many.join(","))]);
    put("healthy", healthy, &[]);
    let agent = scene.start(&[]);
    let ztunnel = scene.ztunnel();
    ztunnel.carries("uid-healthy", Some(id(healthy)));
    let debug = |name: &str| {
        let (status, text) = agent.page("/debug");
        assert_eq!(status, 200, "{text}");
        let facts: Value = serde_json::from_str(&text).unwrap();
        let pods = facts["ambient"]["pods"].as_array().cloned();
        let mut pods = pods.into_iter().flatten();
        pods.find(|pod| pod["name"] == name).unwrap_or_default()
    };
    for (name, state) in [
        ("healthy", "enrolled"),
        ("nonsense", "enrolled"),
        ("absurd", "failed"),
        ("large", "failed"),
    ] {
        agent.until(&format!("{name} is {state}"), || {
            debug(name)["state"] == state
        });
        assert_eq!(debug(name)["uid"], format!("uid-{name}"));
        assert_eq!(debug(name)["namespace"], "shop");
    }
    assert!(is_captured(healthy) && is_captured(nonsense));
    for name in ["absurd", "large"] {
        let why = why(&agent, name);
        assert!(why.contains(REROUTE), "{name}: {why}");
        assert_eq!(debug(name)["engine"], Value::Null, "{name}");
    }
    agent.says("is not a boolean, and counts as not set");
    for name in ["healthy", "nonsense"] {
        assert_eq!(debug(name)["engine"], "nft", "{name}");
        assert!(debug(name)["verifiedAt"].is_string(), "{name}");
    }
    assert_eq!(
        (states(&agent, "enrolled"), states(&agent, "failed")),
        (2, 2)
    );
    assert_eq!(ztunnel.faults(), Vec::<String>::new());
}
