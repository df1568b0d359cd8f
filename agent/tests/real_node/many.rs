//! Many pods of ambient mode on one node: some in each run of the tests, and the maximum number in `ci/node scale`, which takes minutes.

use crate::ambient::{ambient_mode, label, without_faults};
use crate::node::{Node, node, wait_within};
use crate::pods::Namespace;
use std::time::{Duration, Instant};

/// A kubelet on two processors starts one or two pods per second.
const PATIENCE: Duration = Duration::from_secs(900);
/// Without `WEIR_NODE_PODS`.
const SOME: usize = 20;
/// Limit of the agent's resident memory with 250 pods.
const MEMORY: u64 = 25 * 1024;

/// The processor time of a process of the node, in ticks.
fn processor_time(node: &Node, pid: &str) -> u64 {
    let ticks = node.sh(&format!("cut -d' ' -f14,15 /proc/{pid}/stat"));
    let ticks = ticks.split_whitespace();
    ticks.map(|n| n.parse::<u64>().unwrap()).sum()
}

/// The agent's processor time in ticks. Its memory must not exceed the limit.
#[track_caller]
fn usage(node: &Node) -> u64 {
    let pid = node.agent_pid();
    let ticks = processor_time(node, &pid);
    let status = node.sh(&format!("cat /proc/{pid}/status"));
    let field = |name: &str| {
        let value = status.lines().find_map(|l| l.strip_prefix(name));
        let value = value.unwrap().trim().trim_end_matches(" kB");
        value.parse::<u64>().unwrap()
    };
    let (now, peak) = (field("VmRSS:"), field("VmHWM:"));
    println!("{} ms of CPU, {now} kB, at most {peak} kB", ticks * 10);
    assert!(now <= MEMORY, "{now} kB");
    ticks
}

#[test]
fn all_pods_are_enrolled_at_once_and_again_by_another_agent() {
    let count = match std::env::var("WEIR_NODE_PODS") {
        Ok(count) => count.parse().expect("WEIR_NODE_PODS: a number of pods"),
        Err(_) => SOME,
    };
    let Some(node) = node() else { return };
    let mesh = Namespace::new(node, "many");
    label(&mesh, "ambient");
    let (policy, ztunnel) = ambient_mode(node, "");
    let kubelet = || processor_time(node, node.sh("cat /run/kubelet.pid").trim());
    let before = (usage(node), kubelet());
    let begun = Instant::now();
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
    // The UIDs of all pods, each of which the host has in its sets.
    let all = |what| {
        let metrics = node.metrics();
        let uids: Vec<String> = wait_within(PATIENCE, what, || {
            let is_so = metrics.get(enrolled) == Some(count as f64);
            let uids = ztunnel.pods().into_keys();
            (is_so && uids.len() == count).then(|| uids.collect())
        });
        let of_host = node.of_host();
        let absent = uids.iter().filter(|uid| !of_host.contains(*uid));
        assert_eq!(absent.count(), 0, "{what}: {of_host}");
        uids
    };
    let uids = all("every pod is enrolled");
    println!("{count} pods started and enrolled in {:?}", begun.elapsed());
    let first = usage(node);
    // The kubelet started the same pods in the same time.
    let of_pods = (first - before.0, kubelet() - before.1);
    println!("ticks of the agent and of the kubelet: {of_pods:?}");
    assert!(of_pods.0 <= of_pods.1, "{of_pods:?}");
    let begun = Instant::now();
    node.restart();
    node.rolled_out();
    ztunnel.snapshots(2);
    assert_eq!(all("every pod is enrolled by another agent"), uids);
    println!("another agent has them in {:?}", begun.elapsed());
    // It only compares what the first one wrote; of few pods its start takes most of the time.
    let second = usage(node);
    assert!(second <= 2 * first, "{second} ticks after {first}");
    node.kubectl(&["-n", "many", "scale", "deployment/many", "--replicas=0"]);
    wait_within(PATIENCE, "all leave", || {
        ztunnel.pods().is_empty().then_some(())
    });
    wait_within(PATIENCE, "the host forgets them", || {
        let of_host = node.of_host();
        let is_left = uids.iter().any(|uid| of_host.contains(uid));
        (!is_left).then_some(())
    });
    without_faults(&ztunnel, policy);
}
