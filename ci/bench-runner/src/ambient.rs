//! Ambient mode: the cost of a pod's enrolment in the agent, compared with upstream's way to write the same rules.
//!
//! The agent runs as on a node: with an API server in this process, namespaces with processes in control groups, and a fake
//! ztunnel that only speaks ZDS and acknowledges everything. An enrolment starts with the plugin's call (`/cmdadd`) and ends
//! with its answer: the rules are in force and verified, and ztunnel has acknowledged the pod. Upstream's way is a netfilter
//! tool with a file of the same rules, run through nsenter; it neither reads the rules back nor configures routing nor hands
//! anything over. So the part of an enrolment that writes and verifies rules and routing is also measured separately.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use weir_ambient::{AMBIENT, Redirect, Request};
use weir_cni::compile::Engine;
use weir_cni::redirection::{Failure, Sandbox, Visit};
use weir_netlink::Netns;
use weir_testing::api_server::{Answer, ApiServer, Asked};
use weir_testing::pods;
use weir_testing::ztunnel::Ztunnel;

use crate::agent::{Agent, PODS, address, directories, list, rss, uid};
use crate::dataplane::cpu as process_cpu;
use crate::report::{Goal, Report};
use crate::run::{Cost, Place, Scratch, measure, micros};
use crate::running::Pod;
use crate::setup::{Setup, entered};
use crate::stats::{Ratio, median, ratio};

/// The pods that the plugin hands over, one at a time.
const NEW: usize = 100;
/// The seconds between two sweeps, and the number of measured sweeps.
const INTERVAL: u64 = 2;
const SWEEPS: u64 = 10;
/// The goals.
const START_US: f64 = 3e6;
const SWEEP_US: f64 = 50e3;
const RSS_KIB: f64 = 25.0 * 1024.0;
const SELECTOR: &str = "[{namespaceSelector: {matchLabels: {istio.io/dataplane-mode: ambient}}}]";

pub(crate) fn run(setup: &Setup, scratch: &Scratch, report: &mut Report) -> Result<(), String> {
    let server = ApiServer::scripted(answer);
    let root = scratch.path().join("ambient");
    directories(&root, &[])?;
    let host = Netns::create().map_err(|e| e.to_string())?;
    let old = start_pods("old", PODS)?;
    let scene = Scene {
        setup,
        root: &root,
        server: &server,
        host: host.path().display().to_string(),
        ztunnel: root.join("ztunnel.sock"),
    };

    let agent = scene.start(INTERVAL)?;
    let ztunnel = Ztunnel::connect(&scene.ztunnel);
    let enrolled = format!("weir_ambient_pods{{state=\"enrolled\"}} {PODS}\n");
    agent.wait_for(&enrolled)?;
    let spent = cpu(agent.pid())?;
    Report::heading(&format!(
        "An agent starts where {PODS} pods of ambient mode run"
    ));
    report.arm("cpu until all are enrolled", "us", &[spent]);
    report.goal(
        "cpu until all are enrolled / 3 s",
        Ratio::of_one(spent / START_US),
        Goal::AtMost(1.0),
    );
    sweeps(setup, &agent, &old, report)?;
    drop(agent);

    // The rules exist already, so this start only verifies them. The long interval keeps a sweep out of the measurement.
    let agent = scene.start(600)?;
    agent.wait_for(&enrolled)?;
    report.arm(
        "cpu of a restart, until all are enrolled",
        "us",
        &[cpu(agent.pid())?],
    );
    enrolments(&scene, &agent, scratch, report)?;
    match &ztunnel.faults()[..] {
        [] => Ok(()),
        faults => Err(format!("the agent broke the protocol: {faults:?}")),
    }
}

fn start_pods(kind: &str, count: usize) -> Result<Vec<Pod>, String> {
    let first = if kind == "new" { PODS } else { 0 };
    (0..count)
        .map(|n| Pod::start_named(&format!("{kind}-{n}"), first + n))
        .collect()
}

struct Scene<'a> {
    setup: &'a Setup,
    root: &'a Path,
    server: &'a ApiServer,
    host: String,
    ztunnel: std::path::PathBuf,
}

impl Scene<'_> {
    fn start(&self, interval: u64) -> Result<Agent, String> {
        let (socket, interval) = (self.ztunnel.display().to_string(), interval.to_string());
        let settings = [
            ("AMBIENT_ENABLED", "true"),
            ("AMBIENT_ENABLEMENT_SELECTOR", SELECTOR),
            ("AMBIENT_DNS_CAPTURE", "true"),
            ("AMBIENT_IPV6", "true"),
            ("NATIVE_NFTABLES", "true"),
            ("ZTUNNEL_UDS_ADDRESS", &socket),
            ("WEIR_HOST_NETNS", &self.host),
            ("WEIR_VERIFY_INTERVAL", &interval),
        ];
        Agent::start_with(self.setup, self.root, self.server, &settings)
    }

    /// Makes the plugin's call and returns the time until its answer.
    fn hand_over(&self, name: &str, pod: &Pod, n: usize) -> Result<Duration, String> {
        let address = json!({"IP": address(n).to_string(), "Mask": "/////w=="});
        let body = json!({"Netns": pod.path, "PodName": name, "PodNamespace": "shop",
            "IPs": [{"Interface": 0, "Gateway": "", "Address": address}]})
        .to_string();
        let failed = |e: std::io::Error| format!("pluginevent.sock: {e}");
        let begun = Instant::now();
        let mut stream =
            UnixStream::connect(self.root.join("run/pluginevent.sock")).map_err(failed)?;
        let limit = Some(Duration::from_secs(20));
        stream.set_read_timeout(limit).map_err(failed)?;
        let head = "POST /cmdadd HTTP/1.1\r\nHost: unix\r\nConnection: close\r\nContent-Length:";
        write!(stream, "{head} {}\r\n\r\n{body}", body.len()).map_err(failed)?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).map_err(failed)?;
        match answer.starts_with("HTTP/1.1 200") {
            true => Ok(begun.elapsed()),
            false => Err(format!("{name} was not enrolled: {answer}")),
        }
    }
}

/// Measures sweeps, in which the agent verifies pods that are in order.
fn sweeps(setup: &Setup, agent: &Agent, pods: &[Pod], report: &mut Report) -> Result<(), String> {
    let handles = || -> Result<Vec<String>, String> {
        let looked_at = pods.iter().step_by(25);
        looked_at.map(|pod| rules(&pod.path)).collect()
    };
    let written = handles()?;
    // The work that follows an enrolment ends first: annotations, first comparisons.
    std::thread::sleep(Duration::from_secs(2 * INTERVAL));
    let before = cpu(agent.pid())?;
    std::thread::sleep(Duration::from_secs(SWEEPS * INTERVAL));
    let spent = (cpu(agent.pid())? - before) / SWEEPS as f64;
    if handles()? != written {
        return Err("a sweep over healthy pods wrote rules".to_owned());
    }
    report.arm("cpu of a sweep over all of them", "us", &[spent]);
    report.goal(
        "cpu of a sweep / 50 ms",
        Ratio::of_one(spent / SWEEP_US),
        Goal::AtMost(1.0),
    );
    let resident = rss(agent.pid())?;
    report.arm("resident memory", "KiB", &[resident]);
    report.goal(
        "resident memory / 25 MiB",
        Ratio::of_one(resident / RSS_KIB),
        Goal::AtMost(1.0),
    );
    // Checked with nft, which shares no code with the agent.
    let text = setup.listing(&pods[0].path)?;
    match text.contains("istio-ambient") {
        true => Ok(()),
        false => Err(format!("a pod that is enrolled has no rules: {text}")),
    }
}

/// Lists the rules with their handles: a rewritten rule has another handle.
fn rules(netns: &str) -> Result<String, String> {
    entered(netns, &["nft", "-a", "-s", "list", "ruleset"]).output()
}

/// Measures the enrolment of one pod after another, alternating with tools that load the same rules.
fn enrolments(
    scene: &Scene<'_>,
    agent: &Agent,
    scratch: &Scratch,
    report: &mut Report,
) -> Result<(), String> {
    let (pods, others) = (start_pods("new", NEW)?, crate::run::places(3 * NEW)?);
    let mut parts = Vec::new();
    let (mut walls, mut nft, mut legacy) = (Vec::new(), Vec::new(), Vec::new());
    let (mut spent, mut in_kernel) = (0.0, 0.0);
    let mut files = None;
    for (n, (pod, places)) in pods.iter().zip(others.chunks_exact(3)).enumerate() {
        let before = times(agent.pid())?;
        walls.push(micros(scene.hand_over(
            &format!("new-{n}"),
            pod,
            PODS + n,
        )?));
        let after = times(agent.pid())?;
        (spent, in_kernel) = (spent + after.0 - before.0, in_kernel + after.1 - before.1);
        let [rules, v4, v6] = match &files {
            Some(files) => files,
            None => files.insert(same_rules(scene.setup, pod, scratch)?),
        };
        parts.push(redirected(&places[2])?);
        nft.push(measure(&[entered(&places[0].path, &["nft", "-f", rules])])?);
        legacy.push(measure(&[
            scene
                .setup
                .own_lock(entered(&places[1].path, &["iptables-legacy-restore", v4])),
            scene
                .setup
                .own_lock(entered(&places[1].path, &["ip6tables-legacy-restore", v6])),
        ])?);
    }
    let (spent, in_kernel) = (spent / NEW as f64, in_kernel / NEW as f64);
    let wall = |costs: &[Cost]| costs.iter().map(|c| c.wall).collect::<Vec<_>>();
    let of_cpu = |costs: &[Cost]| costs.iter().map(|c| c.cpu).collect::<Vec<_>>();
    Report::heading("One pod is enrolled: rules written and verified, acknowledged by ztunnel");
    report.arm("enrolment, wall", "us", &walls);
    report.arm("enrolment, cpu of the agent, mean", "us", &[spent]);
    report.arm("enrolment, cpu in system calls, mean", "us", &[in_kernel]);
    report.goal(
        "enrolment, wall / its system calls",
        Ratio::of_one(median(&walls) / in_kernel),
        Goal::AtMost(3.0),
    );
    report.arm("of it the rules and routing, wall", "us", &wall(&parts));
    report.arm("of it the rules and routing, cpu", "us", &of_cpu(&parts));
    for (name, costs) in [
        ("nsenter nft -f", &nft),
        ("nsenter iptables-restore, both families", &legacy),
    ] {
        report.arm(&format!("{name}, wall"), "us", &wall(costs));
        report.arm(&format!("{name}, cpu"), "us", &of_cpu(costs));
        for (part, walls, cpu) in [
            ("rules and routing", &wall(&parts), median(&of_cpu(&parts))),
            ("the whole enrolment", &walls, spent),
        ] {
            let (walls, cpus) = (
                ratio(walls, &wall(costs)),
                Ratio::of_one(cpu / median(&of_cpu(costs))),
            );
            report.goal(&format!("{part} / {name}, wall"), walls, Goal::AtMost(0.3));
            report.goal(&format!("{part} / {name}, cpu"), cpus, Goal::AtMost(0.2));
        }
    }
    Ok(())
}

/// The agent's work in the namespace of a new pod: it reads the existing rules, writes, and reads back.
fn redirected(place: &Place) -> Result<Cost, String> {
    let given = json!({"config": {"enable_ipv6": true, "redirect_dns": true}, "pod_overrides": {}});
    let given = Request::from_json(&given.to_string(), "the benchmark");
    let given = given.map_err(|e| e.to_string())?;
    let redirect = Redirect::new(given.config, &given.pod_overrides).map_err(|e| e.to_string())?;
    let (before, begun) = (process_cpu(), Instant::now());
    let sandbox = Netns::open(Path::new(&place.path)).and_then(Sandbox::of);
    let sandbox = sandbox.map_err(|e| e.to_string())?;
    let inside = |visit: &Visit<'_>| {
        let (_, is_in_use) = visit.engine_to_try()?;
        let done = visit.apply_intent(&redirect, Some(Engine::Nft))?;
        let fingerprint = visit.fingerprint_of(&done);
        Ok((is_in_use, fingerprint.is_some() && !done.changes.is_empty()))
    };
    let done = sandbox.visit_for(&AMBIENT, inside);
    let done: Result<_, Failure> = done.map_err(|e| e.to_string())?;
    if done.map_err(|e| e.to_string())? != (false, true) {
        return Err(format!("{} had rules already, or got none", place.path));
    }
    Ok(Cost {
        wall: micros(begun.elapsed()),
        cpu: process_cpu() - before,
    })
}

/// The rules of an enrolled pod as a file for `nft -f`, and those of xtables for both families.
fn same_rules(setup: &Setup, pod: &Pod, scratch: &Scratch) -> Result<[String; 3], String> {
    let rules = setup.listing(&pod.path)?;
    let config =
        json!({"config": {"enable_ipv6": true, "redirect_dns": true}, "pod_overrides": {}});
    let config = scratch.write("ambient.json", config.to_string().as_bytes())?;
    let place = &crate::run::places(1)?[0];
    let engine = ["--engine", "xtables", "--netns", &place.path];
    let apply = [setup.weir(), "apply", "ambient", "--config", &config];
    setup
        .own_lock(crate::run::Call::new(&[&apply[..], &engine[..]].concat()))
        .run()?;
    let saved = |tool: &str| setup.own_lock(entered(&place.path, &[tool])).output();
    Ok([
        scratch.write("ambient.nft", rules.as_bytes())?,
        scratch.write("ambient.v4", saved("iptables-legacy-save")?.as_bytes())?,
        scratch.write("ambient.v6", saved("ip6tables-legacy-save")?.as_bytes())?,
    ])
}

/// Processor time of a process in microseconds, and the part of it in system calls. It includes threads that have ended; most
/// threads work for one pod. The kernel counts in ticks, so only a sum is meaningful.
fn times(pid: u32) -> Result<(f64, f64), String> {
    let path = format!("/proc/{pid}/stat");
    let text = std::fs::read_to_string(&path).map_err(|e| format!("{path}: {e}"))?;
    // The values are fields 14 and 15; field 2, the name, ends with the last parenthesis.
    let after = text.rsplit_once(')').map_or("", |(_, rest)| rest);
    let ticks: Vec<f64> = after
        .split_whitespace()
        .skip(11)
        .take(2)
        .flat_map(str::parse)
        .collect();
    match ticks[..] {
        // USER_HZ is 100 on every architecture that weir runs on.
        [user, system] => Ok(((user + system) * 1e4, system * 1e4)),
        _ => Err(format!("{path}: no processor times")),
    }
}

fn cpu(pid: u32) -> Result<f64, String> {
    times(pid).map(|(all, _)| all)
}

/// Answers for a namespace in ambient mode with pods: running ones, and ones that have no address yet.
fn answer(asked: &Asked) -> Answer {
    let parts: Vec<&str> = asked.path.split('/').collect();
    match parts[..] {
        _ if asked.streams() => Answer::Status(422),
        _ if asked.is_watch() => Answer::Hang,
        ["", "api", "v1", "pods"] => {
            let old = (0..PODS).map(|n| pod(&format!("old-{n}")));
            let new = (0..NEW).map(|n| pod(&format!("new-{n}")));
            list("PodList", old.chain(new).collect())
        }
        ["", "api", "v1", "namespaces"] => list("NamespaceList", vec![namespace()]),
        ["", "api", "v1", "namespaces", "shop"] => Answer::Body(200, namespace().to_string()),
        ["", "api", "v1", "namespaces", _, "pods", name] => {
            Answer::Body(200, pod(name).to_string())
        }
        // The annotation is written; a pod without it would mean that a webhook has removed it.
        ["", "api", "v1", "namespaces", _, "pods", _, "status"] => {
            Answer::Body(200, "{}".to_owned())
        }
        _ => Answer::Status(404),
    }
}

fn namespace() -> Value {
    pods::namespace("shop", json!({"istio.io/dataplane-mode": "ambient"}))
}

fn pod(name: &str) -> Value {
    let mut pod = pods::plain("shop", name, json!({"app": name}));
    pod["metadata"]["resourceVersion"] = "5".into();
    pod["metadata"]["uid"] = uid(name).into();
    pod["spec"]["nodeName"] = "node1".into();
    pod["spec"]["serviceAccountName"] = "web".into();
    pod["status"] = json!({"phase": "Pending"});
    if let Some(n) = name.strip_prefix("old-").and_then(|n| n.parse().ok()) {
        let ip = address(n).to_string();
        pod["status"] = json!({"phase": "Running", "podIP": ip, "podIPs": [{"ip": ip}]});
    }
    pod
}
