//! Another program flushes the rules of a pod of ambient mode in a loop, inside of the pod's own network namespace.
//!
//! Between a flush and its repair the pod can send in plain text. The agent must repair the rules, count and report what happened, and
//! the pod must be captured again when the other program has ended. No request in plain text may go unreported: the state and the counter
//! are sampled all the time, and compared with what the pod printed in the meantime.

use crate::ambient::{
    ambient_mode, enabled, found, found_of, label, plain, stays_captured, uid, without_faults,
};
use crate::node::{Metrics, Node, PATIENCE, node, wait_for};
use crate::pods::Namespace;
use std::process::{Child, Stdio};
use std::time::Instant;

/// Flushes every table that a redirection can have, of both engines. On a busy machine a repair takes a tenth of a second; it ends
/// between two flushes, so that it counts as a repair and not as a failure.
const FLUSH: &str = "nft flush ruleset
    for table in nat mangle raw; do iptables-legacy -w -t $table -F; ip6tables-legacy -w -t $table -F; done
    sleep 0.5";
/// The same without a pause: repairs may fail.
const FLUSH_AT_ONCE: &str = "nft flush ruleset";
const HEALED: [&str; 2] = [
    "weir_ambient_healed_total{cause=\"missing\"}",
    "weir_ambient_healed_total{cause=\"changed\"}",
];
const CONTENTION: &str = "weir_ambient_contention_total";
/// A line in plain text is to be reported within this number of samples, each of which takes some tenths of a second.
const SOON: usize = 20;

/// A line of shell that is repeated in a namespace of the node until this value is dropped.
pub(crate) struct Loop(Child);

impl Loop {
    pub(crate) fn start(node: &Node, netns: &str, line: &str) -> Self {
        let script = format!("while :; do {line}\ndone");
        let mut quiet = node.entering(netns, &["sh", "-c", &script]);
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
pub(crate) fn legacy(node: &Node, netns: &str) -> String {
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

/// What the agent shows of a pod at one moment.
#[derive(Clone, Debug)]
struct Sample {
    state: String,
    /// Repairs so far.
    healed: f64,
    contended: f64,
    /// The number of lines that the pod had printed a moment later.
    lines: usize,
}

impl Sample {
    fn is_good(&self) -> bool {
        self.state == "enrolled"
    }
}

/// A pod, with all samples.
struct Watched<'a> {
    mesh: &'a Namespace,
    pod: &'a str,
    uid: String,
    metrics: Metrics<'a>,
    samples: Vec<Sample>,
}

impl<'a> Watched<'a> {
    fn new(mesh: &'a Namespace, pod: &'a str) -> Self {
        Self {
            mesh,
            pod,
            uid: uid(mesh, pod),
            metrics: mesh.node.metrics(),
            samples: Vec::new(),
        }
    }

    fn lines(&self) -> Vec<String> {
        found_of(self.mesh, self.pod, &self.uid)
    }

    fn look(&mut self) -> Option<Sample> {
        let [missing, changed, contended] = self.metrics.all([HEALED[0], HEALED[1], CONTENTION]);
        let status = self.metrics.status()?;
        let pods = status["ambient"]["pods"].as_array()?;
        let own = pods.iter().find(|pod| pod["uid"] == self.uid.as_str());
        let sample = Sample {
            state: own
                .map_or("none", |own| own["state"].as_str().unwrap_or("none"))
                .to_owned(),
            healed: missing? + changed?,
            contended: contended?,
            lines: self.lines().len(),
        };
        self.samples.push(sample.clone());
        Some(sample)
    }

    /// Takes samples until the condition holds for those from `from` on.
    #[track_caller]
    fn until(&mut self, what: &str, from: usize, holds: impl Fn(&[Sample]) -> bool) {
        let end = Instant::now() + PATIENCE;
        while !holds(&self.samples[from..]) {
            let now = self.look();
            assert!(Instant::now() < end, "{}: {what}: {now:?}", self.pod);
        }
    }
}

/// The lines in plain text that neither a repair nor a state reports. One that was printed after the last sample is not judged.
fn unreported(samples: &[Sample], lines: &[String]) -> Vec<usize> {
    let is_reported = |line: usize| {
        // One sample more: a pod may print the answer to a request after the repair of what let it pass.
        let first = samples.iter().take_while(|s| s.lines <= line).count();
        let (first, end) = (first.saturating_sub(2), first + SOON);
        let window = &samples[first..end.min(samples.len())];
        let mut of_window = window.iter();
        of_window.any(|s| !s.is_good() || s.healed > window[0].healed)
    };
    let judged = samples.last().map_or(0, |s| s.lines);
    let from = samples.first().map_or(0, |s| s.lines);
    let plain = (from..judged.min(lines.len())).filter(|n| lines[*n] == "plain");
    plain.filter(|n| !is_reported(*n)).collect()
}

fn is_flushed_in_a_loop(mesh: &Namespace, pod: &str, line: &str) {
    let node = mesh.node;
    let netns = node.netns_of(mesh.name, pod);
    let complete = rules(node, &netns);
    let mut watched = Watched::new(mesh, pod);
    watched.until("before the loop", 0, |all| all.len() == 2);
    let before = watched.samples[1].clone();
    let flushes = Loop::start(node, &netns, line);
    // While the loop runs, the pod is not shown as good all the time: its rules may be missing at any moment.
    watched.until("another state is shown", 2, |all| {
        all.iter().any(|s| !s.is_good())
    });
    if line == FLUSH {
        watched.until("repairs and contention", 2, |all| {
            let last = all.last();
            last.is_some_and(|s| s.healed > before.healed && s.contended > before.contended)
        });
    }
    let from = watched.samples.len();
    watched.until("it is observed", from, |all| all.len() == 5);
    drop(flushes);
    wait_for("the rules are complete again", || {
        watched.look();
        (rules(node, &netns) == complete).then_some(())
    });
    let from = watched.samples.len();
    watched.until("it is shown as enrolled", from, |all| {
        all.last().is_some_and(Sample::is_good)
    });
    let (lines, samples) = (watched.lines(), &watched.samples);
    let sent = &lines[before.lines..];
    assert!(sent.iter().any(|line| line == "plain"), "{pod}: {sent:?}");
    let unreported = unreported(samples, &lines);
    assert!(
        unreported.is_empty(),
        "{pod}: {unreported:?} of {lines:?} with {samples:?}"
    );
    stays_captured(mesh, pod, found(mesh, pod).len());
    let field = format!("involvedObject.name={pod}");
    let list = ["-n", mesh.name, "get", "events", "--field-selector", &field];
    let reasons = ["RedirectionRepaired", "RedirectionContended"];
    // Without a pause there may be one repair only, after the loop.
    let due = if line == FLUSH { 2 } else { 1 };
    for reason in &reasons[..due] {
        wait_for(&format!("{reason} of {pod}"), || {
            node.kubectl(&list).contains(reason).then_some(())
        });
    }
}

#[test]
fn a_loop_of_flushes_inside_of_a_pod_is_reported_and_ends_with_the_pod_captured() {
    let Some(node) = node() else { return };
    let mesh = Namespace::new(node, "flushed");
    let (policy, ztunnel) = ambient_mode(node, "");
    let pods = [
        ("nft", FLUSH),
        ("legacy", FLUSH),
        ("at-once", FLUSH_AT_ONCE),
    ];
    for (pod, _) in pods {
        plain(&mesh, pod);
    }
    mesh.ready(&pods.map(|(pod, _)| pod));
    // An agent stays with the engine that a namespace uses already.
    let netns = node.netns_of(mesh.name, "legacy");
    node.sh(&format!(
        "echo '{{\"config\":{{}},\"pod_overrides\":{{}}}}' |
         /node/weir/weir apply ambient --config - --engine xtables --netns {netns}"
    ));
    label(&mesh, "ambient");
    for (pod, line) in pods {
        enabled(&mesh, pod);
        let netns = node.netns_of(mesh.name, pod);
        let has_legacy = legacy(node, &netns).contains("ISTIO_");
        assert_eq!(has_legacy, pod == "legacy", "{}", rules(node, &netns));
        is_flushed_in_a_loop(&mesh, pod, line);
    }
    without_faults(&ztunnel, policy);
}

/// The comparison itself, without a node.
#[test]
fn plain_text_is_unreported_if_the_agent_neither_repairs_nor_shows_it() {
    let sample = |state: &str, healed: f64, lines| Sample {
        state: state.to_owned(),
        healed,
        contended: 0.0,
        lines,
    };
    let mut lines = vec!["captured".to_owned(); 200];
    lines[100] = "plain".to_owned();
    let all = |state: &dyn Fn(usize) -> &'static str, healed: &dyn Fn(usize) -> f64| {
        let samples: Vec<_> = (0..50)
            .map(|n| sample(state(n), healed(n), n * 4))
            .collect();
        unreported(&samples, &lines)
    };
    let (good, bad) = ("enrolled", "failed");
    assert_eq!(all(&|_| good, &|_| 3.0), [100]);
    // Too early, and too late.
    let since = |at: usize| move |n: usize| if n < at { 3.0 } else { 4.0 };
    assert_eq!(all(&|_| good, &since(20)), [100]);
    assert_eq!(all(&|_| good, &since(49)), [100]);
    assert_eq!(all(&|_| good, &since(27)), [0; 0]);
    let shown = |n| if n == 30 { bad } else { good };
    assert_eq!(all(&shown, &|_| 3.0), [0; 0]);
}
