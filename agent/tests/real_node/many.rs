//! The maximum number of pods of ambient mode on one node. This takes minutes: `ci/node scale` runs it.

use crate::ambient::{label, socket};
use crate::broken_pods::Policy;
use crate::node::{node, wait_within};
use crate::pods::Namespace;
use std::time::{Duration, Instant};
use weir_testing::ztunnel::Ztunnel;

/// A kubelet on two processors starts one or two pods per second.
const PATIENCE: Duration = Duration::from_secs(900);

#[test]
fn all_pods_are_enrolled_at_once_and_again_by_another_agent() {
    let Ok(count) = std::env::var("WEIR_NODE_PODS") else {
        return println!("skipped: WEIR_NODE_PODS is not set: ci/node scale starts so many pods");
    };
    let count: usize = count.parse().expect("WEIR_NODE_PODS: a number of pods");
    let Some(node) = node() else { return };
    let mesh = Namespace::new(node, "many");
    label(&mesh, "ambient");
    let policy = Policy::set(node, r#""AMBIENT_ENABLED":"true""#);
    let ztunnel = Ztunnel::connect(&socket(node));
    node.apply(&format!(
        r#"
apiVersion: apps/v1
kind: Deployment
metadata: {{name: many, namespace: many}}
spec:
  replicas: {count}
  selector: {{matchLabels: {{app: many}}}}
  template:
    metadata: {{labels: {{app: many}}}}
    spec:
      terminationGracePeriodSeconds: 0
      automountServiceAccountToken: false
      containers:
      - {{name: app, image: localhost/busybox:1, command: [sleep, "100000"]}}
"#
    ));
    let enrolled = "weir_ambient_pods{state=\"enrolled\"}";
    let all = |what| {
        let metrics = node.metrics();
        wait_within(PATIENCE, what, || {
            let is_so =
                metrics.get(enrolled) == Some(count as f64) && ztunnel.pods().len() == count;
            is_so.then_some(())
        });
    };
    let usage = || {
        let pid = node.agent_pid();
        let ticks = node.sh(&format!("cut -d' ' -f14,15 /proc/{pid}/stat"));
        let ticks: u64 = ticks
            .split_whitespace()
            .map(|n| n.parse::<u64>().unwrap())
            .sum();
        let status = node.sh(&format!("grep -E '^(VmRSS|VmHWM)' /proc/{pid}/status"));
        format!(
            "{} ms of CPU, {}",
            ticks * 10,
            status.split_whitespace().collect::<Vec<_>>().join(" ")
        )
    };
    let begun = Instant::now();
    all("every pod is enrolled");
    println!(
        "{count} pods started and enrolled in {:?}: {}",
        begun.elapsed(),
        usage()
    );
    let begun = Instant::now();
    let restart = [
        "-n",
        "istio-system",
        "rollout",
        "restart",
        "daemonset/istio-cni-node",
    ];
    node.kubectl(&restart);
    node.rolled_out();
    ztunnel.snapshots(2);
    all("every pod is enrolled by another agent");
    println!(
        "another agent has them in {:?}: {}",
        begun.elapsed(),
        usage()
    );
    node.kubectl(&["-n", "many", "scale", "deployment/many", "--replicas=0"]);
    wait_within(PATIENCE, "all leave", || {
        ztunnel.pods().is_empty().then_some(())
    });
    assert_eq!(ztunnel.faults(), Vec::<String>::new());
    let left = node.inside("/proc/1/ns/net", &["ipset", "list"]);
    assert!(!left.contains("uid"), "{left}");
    drop(policy);
}
