//! The rules in a report of the node.
// matrix: none: about files, sockets and settings of a node, where no rule is made and no kernel is asked

use crate::api_server::{ApiServer, pod};
use crate::bundle::{bundle, node, read, stderr, unpack};
use crate::repair::{Sandbox, sidecar, start};
use crate::support::{Node, names};
use serde_json::Value;
use weir_netlink::Netns;

/// Rules of another writer, with a secret in every free text.
const FOREIGN: &str = r#"
nft 'add table ip theirs { comment "pLaNtEd"; }'
nft 'add set ip theirs pLaNtEd { type ipv4_addr; comment "pLaNtEd"; elements = { 1.2.3.4 comment "pLaNtEd" }; }'
nft 'add chain ip theirs c { type filter hook input priority 1; comment "pLaNtEd"; }'
nft 'add chain ip theirs d'
nft 'add rule ip theirs c log prefix "psk=pLaNtEd"'
nft 'add rule ip theirs c ip saddr 10.0.0.1 accept comment "pLaNtEd"'
nft 'add rule ip theirs c jump d'
iptables-legacy -A INPUT -p tcp --dport 80 -m comment --comment pLaNtEd -j ACCEPT
iptables-legacy -A INPUT -p tcp --dport 81 -j DROP
iptables-legacy -A INPUT -m string --algo bm --string pLaNtEd -j ACCEPT
iptables-legacy -A INPUT -j LOG --log-prefix pLaNtEd
nft 'add table ip k3y-4f9d8e7a6b5c4d3e2f1a'
nft 'add chain ip theirs k3y-4f9d8e7a6b5c4d3e2f1a'
iptables-legacy -N k3y-4f9d8e7a6b5c4d3e2f1a
iptables-legacy -A INPUT -j k3y-4f9d8e7a6b5c4d3e2f1a
ipset create pLaNtEd hash:ip comment
ipset add pLaNtEd 1.2.3.4 comment pLaNtEd
"#;

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
    let planted = std::process::Command::new("nsenter")
        .args([&format!("--net={path}"), "sh", "-ec", FOREIGN])
        .output()
        .unwrap();
    assert!(planted.status.success(), "{}", stderr(&planted));
    let out = bundle(&node, &["--netns", &path]);
    assert_eq!(out.status.code(), Some(0), "{}", stderr(&out));
    let top = unpack(&node, &node.path("report.tar"));
    let rules = read(&top, "rules/namespace.txt");
    let shown = node.run(&["show", "--netns", &path, "--engine", "nft"], &[]);
    let shown = String::from_utf8(shown.stdout).unwrap();
    // Rules of weir are listed completely, and before those of another writer.
    let (ours, theirs) = shown.split_once("table ip theirs").unwrap();
    assert!(
        ours.contains("istio-proxy-nat") && rules.contains(ours) && theirs.contains("pLaNtEd"),
        "{rules}"
    );
    for line in [
        "table ip theirs {",
        "type filter hook input priority filter + 1; policy accept;",
        "# ip theirs is another writer's: 1 sets with 1 elements and 0 objects (left out)",
        "# ip theirs c: 3 rules (left out), of which 1 accept, 1 end otherwise, 1 jump",
        "-A INPUT -p tcp -m tcp --dport 80 -j ACCEPT  # parts (left out)",
        "-A INPUT -p tcp -m tcp --dport 81 -j DROP\n",
        "-A INPUT -j LOG  # parts (left out)",
        "1 of type hash:ip family inet; names and entries (left out)",
    ] {
        assert!(rules.contains(line), "{line}: {rules}");
    }
    assert!(!rules.contains("pLaNtEd"), "{rules}");
    // The report leaves out names, which may be keys.
    assert!(!rules.contains("k3y-"), "{rules}");
    assert!(
        rules.contains("-A INPUT -j (left out 3)  # parts (left out)"),
        "{rules}"
    );
    assert!(
        rules.starts_with(&format!("# {} at ", netns.id())),
        "{rules}"
    );
    // If this namespace does not exist, the report only lacks its rules.
    let out = bundle(&node, &["--netns", "/run/netns/none-of-this-name"]);
    assert_eq!(out.status.code(), Some(0), "{}", stderr(&out));
    assert!(String::from_utf8_lossy(&out.stdout).contains("not available: rules/namespace.txt: "));
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
    assert_eq!(lines[0], "# 2 pods of this node request redirection");
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
