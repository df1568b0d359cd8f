//! The start of a pod on a real node, with our agent in its pod and a real API server. `ci/node bench` runs this there.

use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::agent::{cpu, rss};
use crate::report::{Goal, Report};
use crate::run::{Call, Cost, Scratch, measure, micros, places};
use crate::setup::{Setup, call_of_plugin};
use crate::stats::{Ratio, median, ratio};
use crate::throughput::all;

const LISTS: &str = "/etc/cni/net.d";
const RUN_DIR: &str = "/var/run/istio-cni";
/// The namespace and name of a pod that the API server has; `ci/node bench` creates it.
const POD: (&str, &str) = ("bench", "one");
/// The pods that start at once: more than a kubelet runs by default (110).
const CROWD: usize = 250;
const BUSY: usize = 200;

pub(crate) fn run(
    setup: &Setup,
    scratch: &Scratch,
    samples: usize,
    report: &mut Report,
) -> Result<(), String> {
    let entry = entry()?;
    // A runtime passes the pod's UID; without it the plugin does not ask the agent.
    let uid = std::env::var("WEIR_BENCH_POD_UID")
        .map_err(|_| "WEIR_BENCH_POD_UID is not set: run ci/node bench")?;
    // A run directory without the agent's socket: the plugin asks the API server. It sends log lines in both cases.
    let without = scratch.path().join("without");
    std::fs::create_dir(&without).map_err(|e| e.to_string())?;
    for name in ["istio-cni-kubeconfig", "log.sock"] {
        std::os::unix::fs::symlink(Path::new(RUN_DIR).join(name), without.join(name))
            .map_err(|e| e.to_string())?;
    }
    let dirs = [PathBuf::from(RUN_DIR), without];
    let add = |netns: &str, dir: &Path| plugin(setup, &entry, netns, dir).of_pod(&uid);

    let pid = agent()?;
    idle(pid, report)?;
    let mut costs: [Vec<Cost>; 2] = Default::default();
    let places = places(samples * 2)?;
    for (n, place) in places.iter().enumerate() {
        let way = (n + n / 2) % 2;
        costs[way].push(measure(&[add(&place.path, &dirs[way])])?);
        redirected(setup, &place.path)?;
    }
    let wall = |way: usize| costs[way].iter().map(|c| c.wall).collect::<Vec<_>>();
    Report::heading("One pod's start by the plugin on a node, exec to exit");
    report.arm("ADD, pod from the agent, wall", "us", &wall(0));
    report.arm("ADD, pod from the API server, wall", "us", &wall(1));
    report.goal(
        "node: agent / API server, wall",
        ratio(&wall(0), &wall(1)),
        Goal::AtMost(0.5),
    );
    drop(places);

    throughput(setup, scratch, &|netns| add(netns, &dirs[0]), report)?;
    crowd(setup, &|netns| add(netns, &dirs[0]), report)?;
    Report::heading("The agent after that");
    report.arm("resident memory", "KiB", &[rss(pid)?]);
    let group = group_memory(pid)?;
    report.arm("memory of its group, page cache too", "KiB", &[group]);
    report.goal(
        "node: memory of its group / 30 MiB",
        Ratio::of_one(group / 30.0 / 1024.0),
        Goal::AtMost(1.0),
    );
    Ok(())
}

/// Measures the agent for ten seconds without requests.
fn idle(pid: u32, report: &mut Report) -> Result<(), String> {
    let (before, start) = (cpu(pid)?, Instant::now());
    std::thread::sleep(Duration::from_secs(10));
    let share = (cpu(pid)? - before) / micros(start.elapsed());
    Report::heading("The agent at rest, ten seconds");
    report.arm("processor time", "ppm", &[share * 1e6]);
    report.goal(
        "node: share of a processor / 0.1 %",
        Ratio::of_one(share / 0.001),
        Goal::AtMost(1.0),
    );
    Ok(())
}

/// Compares 200 pods, 16 at a time, with shell-outs that load the same rules and do not read the pod.
fn throughput(
    setup: &Setup,
    scratch: &Scratch,
    add: &(dyn Fn(&str) -> Call + Sync),
    report: &mut Report,
) -> Result<(), String> {
    let sample = places(1)?;
    add(&sample[0].path).run()?;
    let rules = setup.listing(&sample[0].path)?;
    let file = scratch.write("node.nft", rules.as_bytes())?;
    let mut rates: [Vec<f64>; 2] = Default::default();
    for round in 0..14 {
        let (way, places, start) = (round % 2, places(BUSY)?, Instant::now());
        let start = Instant::now().max(start);
        all(&places, |_, netns| match way {
            0 => add(netns).run(),
            _ => setup.shell_out(netns, &file).iter().try_for_each(Call::run),
        })?;
        rates[way].push(BUSY as f64 / start.elapsed().as_secs_f64());
        all(&places, |_, netns| redirected(setup, netns))?;
    }
    Report::heading(&format!("{BUSY} pods, 16 at a time"));
    report.arm("ADD, pod from the agent, rate", "pod/s", &rates[0]);
    report.arm("shell-out, no pod read, rate", "pod/s", &rates[1]);
    report.goal(
        "node: ADD / shell-out, rate",
        ratio(&rates[0], &rates[1]),
        Goal::AtLeast(2.0),
    );
    Ok(())
}

/// Starts all pods at once.
fn crowd(
    setup: &Setup,
    add: &(dyn Fn(&str) -> Call + Sync),
    report: &mut Report,
) -> Result<(), String> {
    let places = places(CROWD)?;
    let (times, failures) = (Mutex::new(Vec::new()), Mutex::new(Vec::new()));
    let start = Instant::now();
    std::thread::scope(|scope| {
        for place in &places {
            scope.spawn(|| match add(&place.path).run() {
                Ok(()) => times.lock().expect("times").push(micros(start.elapsed())),
                Err(e) => failures.lock().expect("failures").push(e),
            });
        }
    });
    let (mut times, failures) = (
        times.into_inner().expect("times"),
        failures.into_inner().expect("failures"),
    );
    if let Some(first) = failures.first() {
        return Err(format!("{} of {CROWD} failed: {first}", failures.len()));
    }
    for place in &places {
        redirected(setup, &place.path)?;
    }
    times.sort_by(f64::total_cmp);
    let late = times[times.len() * 99 / 100];
    Report::heading(&format!("{CROWD} pods at once, no failure"));
    report.arm("until a pod is started", "us", &times);
    report.goal(
        "node: 99th percentile / median",
        Ratio::of_one(late / median(&times)),
        Goal::AtMost(5.0),
    );
    Ok(())
}

/// Returns the plugin's configuration that the installer wrote.
fn entry() -> Result<(Value, Value), String> {
    for file in std::fs::read_dir(LISTS)
        .map_err(|e| format!("{LISTS}: {e}"))?
        .flatten()
    {
        let text = std::fs::read_to_string(file.path()).unwrap_or_default();
        let list: Value = serde_json::from_str(&text).unwrap_or_default();
        let plugins = list["plugins"].as_array().cloned().unwrap_or_default();
        if let Some(ours) = plugins.into_iter().find(|p| p["type"] == "istio-cni") {
            return Ok((list["cniVersion"].clone(), ours));
        }
    }
    Err(format!(
        "{LISTS}: no list has the plugin: install the agent first"
    ))
}

fn plugin(setup: &Setup, (version, entry): &(Value, Value), netns: &str, dir: &Path) -> Call {
    let mut config = entry.clone();
    config["cniVersion"] = version.clone();
    config["name"] = "pods".into();
    config["cni_agent_run_dir"] = dir.display().to_string().into();
    call_of_plugin(setup.weir_cni(), config, netns, POD)
}

fn redirected(setup: &Setup, netns: &str) -> Result<(), String> {
    let listing = setup.show(netns, "nft").output()?;
    listing
        .contains("15001")
        .then_some(())
        .ok_or_else(|| format!("no rules in {netns}"))
}

/// Returns the process id of the agent.
fn agent() -> Result<u32, String> {
    for entry in std::fs::read_dir("/proc")
        .map_err(|e| e.to_string())?
        .flatten()
    {
        let name = std::fs::read_to_string(entry.path().join("comm")).unwrap_or_default();
        if name.trim() == "install-cni" {
            return entry
                .file_name()
                .to_string_lossy()
                .parse()
                .map_err(|_| "no pid".to_owned());
        }
    }
    Err("no agent runs: install it first".to_owned())
}

/// The memory of the agent's control group, in KiB.
fn group_memory(pid: u32) -> Result<f64, String> {
    let path = format!("/proc/{pid}/cgroup");
    let groups = std::fs::read_to_string(&path).map_err(|e| format!("{path}: {e}"))?;
    let of = |line: &str| {
        let (_, rest) = line.split_once(':')?;
        let (controllers, group) = rest.split_once(':')?;
        let file = match controllers {
            "" => format!("/sys/fs/cgroup{group}/memory.current"),
            "memory" => format!("/sys/fs/cgroup/memory{group}/memory.usage_in_bytes"),
            _ => return None,
        };
        std::fs::read_to_string(file)
            .ok()?
            .trim()
            .parse::<f64>()
            .ok()
    };
    let bytes = groups.lines().find_map(of);
    Ok(bytes.ok_or("the memory of the agent's group cannot be read")? / 1024.0)
}
