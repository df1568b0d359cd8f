//! A pod's start on a real node: our agent in its pod, a real API server. `ci/node bench` runs this there.

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
/// A pod that the API server has, by namespace and name; `ci/node bench` makes it.
const POD: (&str, &str) = ("bench", "one");
/// Pods that arrive at once: what a kubelet has at most, and more.
const CROWD: usize = 250;
const BUSY: usize = 200;

pub(crate) fn run(
    setup: &Setup,
    scratch: &Scratch,
    samples: usize,
    report: &mut Report,
) -> Result<(), String> {
    let entry = entry()?;
    // A runtime names it, and without it the agent is not asked.
    let uid = std::env::var("WEIR_BENCH_POD_UID")
        .map_err(|_| "WEIR_BENCH_POD_UID is not set: run ci/node bench")?;
    // The same without the agent's socket: the API server is asked. Lines are sent either way.
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

/// Ten seconds in which nobody asks it.
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

/// 200 pods, 16 at a time, beside the shell-outs that make the same rules and read no pod.
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

/// All at once.
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

/// What the installer wrote for us.
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

/// The agent's process.
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

/// What the kernel counts for the agent's control group, in KiB.
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
