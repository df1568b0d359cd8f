//! The rules in a report of the node.

use crate::api_server::{ApiServer, pod};
use crate::bundle::{bundle, node, read, stderr, unpack};
use crate::repair::{Sandbox, sidecar, start};
use crate::support::{Node, names};
use serde_json::Value;
use weir_netlink::Netns;

#[test]
fn rules_of_a_namespace_that_is_named() {
    let netns = match Netns::create() {
        Ok(netns) => netns,
        Err(e) => return println!("skipped: {e}"),
    };
    let path = netns.path().display().to_string();
    let node = node();
    node.write(
        "config.json",
        r#"{"inbound_ports_include": "*", "outbound_ip_ranges_include": "*"}"#,
    );
    let config = node.path("config.json").display().to_string();
    let out = node.run(
        &["apply", "sidecar", "--config", &config, "--netns", &path],
        &[],
    );
    assert!(out.status.success(), "{}", stderr(&out));
    let out = bundle(&node, &["--netns", &path]);
    assert_eq!(out.status.code(), Some(0), "{}", stderr(&out));
    let top = unpack(&node, &node.path("report.tar"));
    let rules = read(&top, "rules/namespace.txt");
    let shown = node.run(&["show", "--netns", &path, "--engine", "nft"], &[]);
    let shown = String::from_utf8(shown.stdout).unwrap();
    assert!(
        shown.contains("istio-proxy-nat") && rules.contains(&shown),
        "{rules}"
    );
    assert!(
        rules.starts_with(&format!("# {} at ", netns.id())),
        "{rules}"
    );
    // One that is not there costs only itself.
    let out = bundle(&node, &["--netns", "/run/netns/none-of-this-name"]);
    assert_eq!(out.status.code(), Some(0), "{}", stderr(&out));
    assert!(
        String::from_utf8_lossy(&out.stdout).contains("could not be had: rules/namespace.txt: ")
    );
}

#[test]
fn rules_of_the_pods_that_the_agent_knows() {
    let Some(sandbox) = Sandbox::of("web") else {
        return;
    };
    let node = Node::new();
    let server = ApiServer::start();
    server.put(sidecar("web", &sandbox.address));
    server.put(sidecar("elsewhere", "192.0.2.77"));
    server.put(pod("shop", "without", "uid-without"));
    let agent = start(&node, &server, &[("REPAIR_REPAIR_PODS", "true")]);
    agent.until("the pod is repaired", || {
        agent.metric("weir_pods_verified") == 1
    });
    let out = bundle(&node, &[]);
    assert_eq!(out.status.code(), Some(0), "{}", stderr(&out));
    let top = unpack(&node, &node.path("report.tar"));
    let rules = read(&top, "rules/pods/shop/web.txt");
    assert!(rules.contains("redirect to :15001"), "{rules}");
    let list = read(&top, "rules/pods.txt");
    let lines: Vec<&str> = list.lines().collect();
    assert_eq!(lines[0], "# 2 pods of this node ask for redirection");
    assert!(
        lines[1].starts_with("shop/elsewhere 192.0.2.77: none of the "),
        "{list}"
    );
    let here = format!("shop/web {}: net:[", sandbox.address);
    assert!(lines[2].starts_with(&here) && lines.len() == 3, "{list}");
    assert_eq!(names(&top.join("rules/pods/shop")), ["web.txt"]);
    let status: Value = serde_json::from_str(&read(&top, "agent/status.json")).unwrap();
    let verified = status["pods"].as_array().unwrap().iter();
    let mut verified = verified.filter(|p| p["verified"] == true);
    assert_eq!(verified.next().unwrap()["name"], "web");
    assert!(read(&top, "agent/metrics.txt").contains("weir_pods_verified 1\n"));
}
