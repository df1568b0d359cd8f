//! Additions and deletions of pods through the runner, while the agent is killed at random.
//!
//! After each addition a CHECK compares the rules with the pod's configuration. At the end no file, descriptor or memory may
//! be leaked.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::json;

use crate::agent::{Agent, answer, directories, rss};
use crate::report::Report;
use crate::run::{Call, Scratch, places};
use crate::setup::Setup;
use crate::stats::Random;
use weir_testing::api_server::ApiServer;

const AT_A_TIME: usize = 4;
/// The maximum number of pods between two kills of the agent.
const LIFE: usize = 60;
/// The allowed growth of an agent during the last quarter of the pods, in KiB: its allocator retains pages.
const GROWTH_KIB: f64 = 2048.0;

/// Runs the soak test.
///
/// # Errors
/// A pod failed, or something was leaked.
pub(crate) fn run(
    setup: &Setup,
    scratch: &Scratch,
    pods: usize,
    report: &mut Report,
) -> Result<(), String> {
    let seed = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .map_or(1, |d| d.as_nanos() as u64 | 1);
    println!("seed {seed}: when the agent is killed");
    let random = &mut Random::new(seed);
    let server = ApiServer::scripted(answer);
    let root = scratch.path().join("soak");
    directories(&root, &["plugins", "cache"])?;
    let list = chain(setup, &root)?;
    let before = files(&root);

    let mut agent = Agent::start(setup, &root, &server)?;
    // From here on the files that the plugin needs are on disk.
    agent.wait()?;
    let (mut killed, mut done) = (0, 0);
    while done < pods * 3 / 4 {
        let share = 1 + random.below(LIFE);
        // Not waited for: pods start while the agent starts.
        let next = || Agent::start(setup, &root, &server);
        let kill = random.below(share);
        let slot = Mutex::new(Some(agent));
        each(share, |n| {
            if n == kill {
                let mut slot = slot.lock().map_err(|e| e.to_string())?;
                drop(slot.take());
                *slot = Some(next()?);
            }
            pod(setup, &root, &list, done + n)
        })?;
        agent = slot
            .into_inner()
            .map_err(|e| e.to_string())?
            .ok_or("no agent")?;
        killed += 1;
        done += share;
    }
    agent.wait()?;
    let (descriptors, memory) = (open(agent.pid())?, rss(agent.pid())?);
    let rest = pods.saturating_sub(done);
    each(rest, |n| pod(setup, &root, &list, done + n))?;
    let (descriptors_now, memory_now) = (open(agent.pid())?, rss(agent.pid())?);
    drop(agent);

    Report::heading(&format!(
        "{} pods added, checked and deleted, the agent killed {killed} times",
        done + rest
    ));
    report.arm(
        "descriptors of the agent before its last pods",
        "",
        &[descriptors as f64],
    );
    report.arm("and after them", "", &[descriptors_now as f64]);
    report.arm("its memory before its last pods", "KiB", &[memory]);
    report.arm("and after them", "KiB", &[memory_now]);
    let left: Vec<_> = files(&root).difference(&before).cloned().collect();
    let allowed = ["log", "account/", "net.d/", "bin/", "source/", "run/"];
    let left: Vec<_> = left
        .iter()
        .filter(|f| !allowed.iter().any(|a| f.starts_with(a)))
        .collect();
    if !left.is_empty() {
        return Err(format!("files are left: {left:?}"));
    }
    if descriptors_now > descriptors {
        return Err(format!(
            "the agent has {descriptors_now} descriptors open, {descriptors} before"
        ));
    }
    if memory_now > memory + GROWTH_KIB {
        return Err(format!("the agent grew from {memory} to {memory_now} KiB"));
    }
    Ok(())
}

/// A list of two plugins: one that assigns an address, and ours.
fn chain(setup: &Setup, root: &Path) -> Result<String, String> {
    use std::os::unix::fs::PermissionsExt;
    let script = root.join("plugins/address");
    let result = json!({"cniVersion": "1.0.0", "interfaces": [{"name": "eth0", "sandbox": "$CNI_NETNS"}],
                        "ips": [{"address": "10.244.0.5/24", "interface": 0}]});
    let text =
        format!("#!/bin/sh\ncat >/dev/null\n[ $CNI_COMMAND != ADD ] || cat <<E\n{result}\nE\n");
    let file = root.join("10-soak.conflist");
    let list = json!({
        "cniVersion": "1.0.0", "name": "soak",
        "plugins": [
            {"type": "address"},
            {"type": "weir-cni", "native_nftables": true, "cni_agent_run_dir": root.join("run"),
             "pod_namespace": "istio-system", "exclude_namespaces": ["kube-system"]}
        ]
    });
    std::fs::write(&file, list.to_string()).map_err(|e| e.to_string())?;
    std::fs::write(&script, text).map_err(|e| e.to_string())?;
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755))
        .map_err(|e| e.to_string())?;
    std::os::unix::fs::symlink(setup.weir_cni(), root.join("plugins/weir-cni"))
        .map_err(|e| e.to_string())?;
    Ok(file.display().to_string())
}

/// Adds, checks and deletes one pod.
fn pod(setup: &Setup, root: &Path, list: &str, n: usize) -> Result<(), String> {
    let place = places(1)?;
    let (netns, id) = (place[0].path.as_str(), format!("soak-{n}"));
    let args = format!("K8S_POD_NAMESPACE=shop;K8S_POD_NAME=web-{}", n % 125);
    let (plugins, cache) = (root.join("plugins"), root.join("cache"));
    let call = |verb: &str| {
        Call::new(&[
            setup.weir(),
            "cni",
            verb,
            "--conf",
            list,
            "--netns",
            netns,
            "--id",
            &id,
            "--args",
            &args,
            "--bin-dir",
            &plugins.display().to_string(),
            "--cache-dir",
            &cache.display().to_string(),
        ])
        .run()
        .map_err(|e| format!("pod {n}: {e}"))
    };
    call("add")?;
    call("check")?;
    call("del")
}

/// Calls `work` for each number, several at a time. Returns the first failure.
fn each(count: usize, work: impl Fn(usize) -> Result<(), String> + Sync) -> Result<(), String> {
    let (next, failure) = (AtomicUsize::new(0), Mutex::new(None));
    std::thread::scope(|scope| {
        for _ in 0..AT_A_TIME {
            scope.spawn(|| {
                loop {
                    let n = next.fetch_add(1, Ordering::Relaxed);
                    if n >= count {
                        return;
                    }
                    if let Err(e) = work(n) {
                        failure.lock().expect("a failure").get_or_insert(e);
                        return;
                    }
                }
            });
        }
    });
    failure.into_inner().expect("a failure").map_or(Ok(()), Err)
}

/// Returns every file below a directory.
fn files(root: &Path) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut open = vec![root.to_owned()];
    while let Some(dir) = open.pop() {
        for entry in std::fs::read_dir(&dir).into_iter().flatten().flatten() {
            match entry.file_type() {
                Ok(kind) if kind.is_dir() => open.push(entry.path()),
                _ => {
                    let path = entry.path();
                    found.insert(
                        path.strip_prefix(root)
                            .unwrap_or(&path)
                            .display()
                            .to_string(),
                    );
                }
            }
        }
    }
    found
}

/// Returns the number of open descriptors of a process.
fn open(pid: u32) -> Result<usize, String> {
    let path = format!("/proc/{pid}/fd");
    Ok(std::fs::read_dir(&path)
        .map_err(|e| format!("{path}: {e}"))?
        .count())
}
