//! Another program flushes the rules of a pod of ambient mode in a loop, inside of the pod's own network namespace.
//!
//! Between a flush and its repair the pod can send in plain text. The agent must repair the rules, count and report what happened, and
//! the pod must be captured again when the other program has ended.

use crate::ambient::{annotation, found, label, plain, socket, stays_captured, uid};
use crate::broken_pods::Policy;
use crate::node::{Node, node, wait_for};
use crate::pods::Namespace;
use std::process::{Child, Command, Stdio};
use weir_testing::ztunnel::Ztunnel;

/// Flushes every table that a redirection can have, of both engines. On a busy machine a repair takes a tenth of a second; it ends
/// between two flushes, so that it counts as a repair and not as a failure.
const FLUSH: &str = "while :; do
    nft flush ruleset
    for table in nat mangle raw; do iptables-legacy -w -t $table -F; ip6tables-legacy -w -t $table -F; done
    sleep 0.5
done";
const HEALED: &str = "weir_ambient_healed_total{cause=\"missing\"}";
const CONTENTION: &str = "weir_ambient_contention_total";

/// The loop, until this value is dropped.
struct Loop(Child);

impl Loop {
    fn start(node: &Node, netns: &str) -> Self {
        let init = node.ok(&["pid"]).trim().to_owned();
        let (_, name) = netns.rsplit_once("/run/netns/").unwrap();
        let net = format!("--net=/proc/{init}/root/run/netns/{name}");
        let mut nsenter = Command::new("nsenter");
        let quiet = nsenter.args([&net, "sh", "-c", FLUSH]);
        let quiet = quiet.stdout(Stdio::null()).stderr(Stdio::null());
        Self(quiet.spawn().unwrap())
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        // It may have ended, if its namespace could not be entered: the test has failed by then.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The legacy rules of both families, without comments, which contain the time, and without counters.
fn legacy(node: &Node, netns: &str) -> String {
    let listed = ["iptables-legacy-save", "ip6tables-legacy-save"].map(|save| {
        let text = node.inside(netns, &[save]);
        let rules: Vec<&str> = text.lines().filter(|line| line.starts_with("-A")).collect();
        rules.join("\n")
    });
    listed.join("\n")
}

/// The pod's rules by both tools.
fn rules(node: &Node, netns: &str) -> String {
    let nft = node.inside(netns, &["nft", "--stateless", "list", "ruleset"]);
    format!("{nft}\n{}", legacy(node, netns))
}

fn is_flushed_in_a_loop(mesh: &Namespace, pod: &str) {
    let node = mesh.node;
    let netns = node.netns_of(mesh.name, pod);
    let complete = rules(node, &netns);
    let metrics = node.metrics();
    let (healed, contended) = (metrics.get(HEALED), metrics.get(CONTENTION));
    let more_than = |before: Option<f64>, now: f64| now > before.unwrap_or_default();
    let flushes = Loop::start(node, &netns);
    metrics.wait("repairs", HEALED, |now| more_than(healed, now));
    metrics.wait("contention", CONTENTION, |now| more_than(contended, now));
    // While the loop runs, the pod is not shown as good: its rules may be missing at any moment.
    let uid = uid(mesh, pod);
    wait_for("the status page shows contention", || {
        let status = node.status();
        let pods = status["ambient"]["pods"].as_array()?;
        let own = pods.iter().find(|pod| pod["uid"] == uid.as_str())?;
        (own["state"] != "enrolled").then_some(())
    });
    drop(flushes);
    wait_for("the rules are complete again", || {
        (rules(node, &netns) == complete).then_some(())
    });
    wait_for("the status page shows it as enrolled", || {
        let status = node.status();
        let pods = status["ambient"]["pods"].as_array()?;
        let own = pods.iter().find(|pod| pod["uid"] == uid.as_str())?;
        (own["state"] == "enrolled").then_some(())
    });
    stays_captured(mesh, pod, found(mesh, pod).len());
    let field = format!("involvedObject.name={pod}");
    let list = ["-n", mesh.name, "get", "events", "--field-selector", &field];
    for reason in ["RedirectionRepaired", "RedirectionContended"] {
        wait_for(&format!("{reason} of {pod}"), || {
            node.kubectl(&list).contains(reason).then_some(())
        });
    }
}

#[test]
fn a_loop_of_flushes_inside_of_a_pod_is_reported_and_ends_with_the_pod_captured() {
    let Some(node) = node() else { return };
    let mesh = Namespace::new(node, "flushed");
    let policy = Policy::set(node, r#""AMBIENT_ENABLED":"true""#);
    let ztunnel = Ztunnel::connect(&socket(node));
    for pod in ["nft", "legacy"] {
        plain(&mesh, pod);
    }
    mesh.ready(&["nft", "legacy"]);
    // An agent stays with the engine that a namespace uses already.
    let netns = node.netns_of(mesh.name, "legacy");
    node.sh(&format!(
        "echo '{{\"config\":{{}},\"pod_overrides\":{{}}}}' |
         /node/weir/weir apply ambient --config - --engine xtables --netns {netns}"
    ));
    label(&mesh, "ambient");
    for pod in ["nft", "legacy"] {
        wait_for("it is enrolled", || {
            (annotation(&mesh, pod) == "enabled").then_some(())
        });
        let netns = node.netns_of(mesh.name, pod);
        let has_legacy = legacy(node, &netns).contains("ISTIO_");
        assert_eq!(has_legacy, pod == "legacy", "{}", rules(node, &netns));
        is_flushed_in_a_loop(&mesh, pod);
    }
    assert_eq!(ztunnel.faults(), Vec::<String>::new());
    drop(policy);
}
