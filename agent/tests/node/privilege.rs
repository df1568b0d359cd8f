//! The capabilities and limits of the process.
// matrix: none: about files, sockets and settings of a node, where no rule is made and no kernel is asked

use crate::api_server::ApiServer;
use crate::attacks::{refused, state_of};
use crate::repair::{IN_PLACE, Sandbox, sidecar};
use crate::support::{Agent, BRIDGE, Node, get};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::process::Command;

const DAC_OVERRIDE: u64 = 1 << 1;
const NET_ADMIN: u64 = 1 << 12;
/// `CAP_DAC_OVERRIDE`, `CAP_NET_ADMIN`, `CAP_NET_RAW`, `CAP_SYS_PTRACE`, `CAP_SYS_ADMIN` (linux/capability.h).
const NEEDED: u64 = DAC_OVERRIDE | NET_ADMIN | 1 << 13 | 1 << 19 | 1 << 21;

/// The capability sets of each thread in `/proc/PID/task/TID/status`, with its name.
fn sets(agent: &Agent) -> Vec<(String, BTreeMap<String, u64>)> {
    let tasks = std::fs::read_dir(format!("/proc/{}/task", agent.pid())).unwrap();
    let of_task = |task: std::io::Result<std::fs::DirEntry>| {
        // A thread may end in the meantime.
        let status = std::fs::read_to_string(task.unwrap().path().join("status")).ok()?;
        let field = |line: &str| {
            let (name, value) = line.split_once(":\t")?;
            Some((name.to_owned(), value.to_owned()))
        };
        let fields: BTreeMap<String, String> = status.lines().filter_map(field).collect();
        let set = |(name, value): (&String, &String)| {
            let bits = u64::from_str_radix(value, 16).ok()?;
            let name = match name.as_str() {
                "NoNewPrivs" => name,
                name => name.strip_prefix("Cap")?,
            };
            Some((name.to_owned(), bits))
        };
        Some((
            fields["Name"].clone(),
            fields.iter().filter_map(set).collect(),
        ))
    };
    tasks.filter_map(of_task).collect()
}

#[test]
fn what_is_not_needed_is_given_up_by_every_thread() {
    let node = Node::new();
    node.write("net.d/10-pods.conflist", BRIDGE);
    let server = ApiServer::start();
    let (socket, env) = (node.path("ztunnel.sock"), server.env());
    let socket = socket.display().to_string();
    let host = weir_netlink::Netns::create().unwrap();
    let host = host.path().display().to_string();
    let mut env: Vec<(&str, &str)> = env.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
    env.extend([
        IN_PLACE,
        ("AMBIENT_ENABLED", "true"),
        ("ZTUNNEL_UDS_ADDRESS", &socket),
        ("WEIR_HOST_NETNS", &host),
    ]);
    let agent = node.ready(&env);
    // Waits until the probes of the kernel have ended.
    agent.until("the kernel was asked", || {
        let (_, body) = get(agent.metrics, "/status.json").unwrap_or_default();
        body.contains("\"state\": \"asked\"")
    });
    // A thread that has just begun has the name and the capabilities of the thread that started it.
    let before = RefCell::default();
    let all_right = || {
        let now = unexpected(&sets(&agent));
        if *before.borrow() != now {
            println!("{now:#?}");
        }
        before.replace(now);
        before.borrow().is_empty()
    };
    agent.until("every thread has what it needs and no more", all_right);
    assert!(
        !agent.log().contains("is missing: it is for"),
        "{}",
        agent.log()
    );
}

/// The threads that have other capability sets than they need, and those that are missing.
fn unexpected(of_threads: &[(String, BTreeMap<String, u64>)]) -> Vec<String> {
    let mut wrong = Vec::new();
    for (thread, sets) in of_threads {
        let may = match thread.as_str() {
            // Threads that serve clients, or only write, have no capability.
            "servers" | "health" | "log" | "events" | "owner" => 0,
            "weir" => DAC_OVERRIDE,
            // The sizes of legacy tables require CAP_NET_ADMIN.
            "drift" => NET_ADMIN,
            // `survey` and `netns` end with their work, and need not be there.
            "repair" | "ambient" | "pod" | "host" | "zds" | "survey" | "netns" => {
                NEEDED & !DAC_OVERRIDE
            }
            other => {
                wrong.push(format!("no thread of this name is known: {other}"));
                continue;
            }
        };
        let wanted = [
            ("Eff", may),
            ("Prm", may),
            ("Inh", 0),
            ("Amb", 0),
            ("Bnd", NEEDED),
            ("NoNewPrivs", 1),
        ];
        for (set, wanted) in wanted {
            let is = sets.get(set);
            if is != Some(&wanted) {
                wrong.push(format!("{thread}: {set} is {is:x?}, not {wanted:x}"));
            }
        }
    }
    let known = [
        "weir", "servers", "health", "log", "drift", "events", "repair", "ambient", "host", "zds",
    ];
    for name in known {
        if !of_threads.iter().any(|(thread, _)| thread == name) {
            wrong.push(format!("{name} is missing"));
        }
    }
    wrong
}

/// The kubelet gets its answer even if the rest of the agent exhausts the descriptors.
///
/// Descriptors that are opened after the start of the health thread, such as the sockets for the plugin, are not in its table.
#[test]
fn health_has_a_table_of_descriptors_of_its_own() {
    let node = Node::new();
    node.write("net.d/10-pods.conflist", BRIDGE);
    let agent = node.ready(&[]);
    let tasks = format!("/proc/{}/task", agent.pid());
    let tables = std::fs::read_dir(tasks).unwrap().map(|task| {
        let path = task.unwrap().path();
        let name = std::fs::read_to_string(path.join("comm")).unwrap_or_default();
        // A thread may end in the meantime.
        let all = std::fs::read_dir(path.join("fd")).into_iter().flatten();
        let inotify = all.flatten().filter(|fd| {
            std::fs::read_link(fd.path()).is_ok_and(|to| to.ends_with("anon_inode:inotify"))
        });
        (name.trim().to_owned(), inotify.count())
    });
    let tables: BTreeMap<String, usize> = tables.collect();
    assert!(tables["servers"] > 0 && tables["health"] == 0, "{tables:?}");
}

/// A program that a thread has open for writing cannot be executed (`ETXTBSY`): no pod of the node could start.
#[test]
fn no_thread_keeps_an_installed_program_open() {
    let node = Node::new();
    node.write("net.d/10-pods.conflist", BRIDGE);
    let agent = node.ready(&[]);
    let programs = node.path("bin");
    assert!(programs.join("istio-cni").exists());
    // A check that reads the programs has them open for a moment.
    agent.until("none is open", || {
        let tasks = std::fs::read_dir(format!("/proc/{}/task", agent.pid())).unwrap();
        let tables = tasks.filter_map(|task| std::fs::read_dir(task.ok()?.path().join("fd")).ok());
        let open: Vec<_> = tables
            .flatten()
            .filter_map(|fd| std::fs::read_link(fd.ok()?.path()).ok())
            .collect();
        assert!(!open.is_empty());
        !open.iter().any(|file| file.starts_with(&programs))
    });
}

#[test]
fn what_is_missing_is_named_with_its_purpose() {
    let node = Node::new();
    node.write("net.d/10-pods.conflist", BRIDGE);
    let mut command = Command::new("setpriv");
    command.env_clear();
    command.args(["--bounding-set", "-sys_ptrace,-net_raw"]);
    command.arg(env!("CARGO_BIN_EXE_weir"));
    let mut agent = node.start_by(command, &[("REPAIR_REPAIR_PODS", "true")], &[]);
    agent.wait_ready();
    agent.says("CAP_SYS_PTRACE is missing");
    agent.says("CAP_NET_RAW is missing");
    let log = agent.log();
    for (name, fails) in [
        (
            "CAP_SYS_PTRACE",
            "without it pods none of whose processes runs as root",
        ),
        (
            "CAP_NET_RAW",
            "without it pods whose rules are in legacy tables",
        ),
    ] {
        let line = log
            .lines()
            .find(|l| l.contains(&format!("{name} is missing: it is for ")));
        assert!(line.is_some_and(|l| l.contains(fails)), "{log}");
    }
    assert_eq!(log.matches("is missing: it is for").count(), 2, "{log}");
    let without = NEEDED & !(1 << 13 | 1 << 19);
    let (_, of_main) = sets(&agent)
        .into_iter()
        .find(|(name, _)| name == "weir")
        .unwrap();
    assert_eq!(of_main["Bnd"], without);
}

/// The state of the pod names the missing capability, and does not mention the kubelet or the runtime.
#[test]
fn a_pod_that_may_not_be_looked_at_blames_the_missing_capability() {
    let Some(sandbox) = Sandbox::of("unseen") else {
        return;
    };
    let server = ApiServer::start();
    server.put(sidecar("unseen", &sandbox.address));
    let node = Node::new();
    node.write("net.d/10-pods.conflist", BRIDGE);
    let mut command = Command::new("setpriv");
    command.env_clear();
    command.args(["--bounding-set", "-sys_ptrace"]);
    command.arg(env!("CARGO_BIN_EXE_weir"));
    let env = server.env();
    let mut env: Vec<(&str, &str)> = env.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
    env.extend([("REPAIR_NODE_NAME", "node1"), ("NATIVE_NFTABLES", "true")]);
    env.extend([IN_PLACE, ("WEIR_VERIFY_INTERVAL", "1")]);
    let mut agent = node.start_by(command, &env, &[]);
    agent.wait_ready();
    refused(
        &agent,
        "unseen",
        &[
            "the network namespace of this pod's processes may not be looked at",
            "this agent lacks CAP_SYS_PTRACE; add it",
        ],
    );
    let state = state_of(&agent, "unseen").unwrap();
    let error = state["error"].as_str().unwrap_or_default();
    for other in ["cgroupsPerQOS", "none of the", "has the addresses"] {
        assert!(!error.contains(other), "{error}");
    }
    assert_eq!(sandbox.rules(), "");
}

/// The agent writes only to the directories of the node.
#[test]
fn a_root_that_cannot_be_written_will_do() {
    let node = Node::new();
    node.write("net.d/10-pods.conflist", BRIDGE);
    let root = node.root.display().to_string();
    let mut command = Command::new("unshare");
    let script = "mount --bind \"$1\" \"$1\" && mount -o remount,bind,ro / && shift && exec \"$@\"";
    command
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap());
    command.args(["--mount", "sh", "-c", script, "sh", &root]);
    command.arg(env!("CARGO_BIN_EXE_weir"));
    let mut agent = node.start_by(command, &[], &[]);
    agent.wait_ready();
    assert!(node.read("net.d/10-pods.conflist").contains("istio-cni"));
}
