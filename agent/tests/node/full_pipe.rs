//! Nothing reads the log.
// matrix: none: about files, sockets and settings of a node, where no rule is made and no kernel is asked

use crate::api_server::{ApiServer, pod};
use crate::pods::{ask, synced};
use crate::servers::post;
use crate::support::{BRIDGE, Node, weir};
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use serde_json::json;
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::os::fd::OwnedFd;

const DROPPED: &str = "weir_log_lines_dropped_total";

/// Writes until the pipe is full; other writers block from then on.
fn fill(pipe: &File) {
    let flags = OFlag::from_bits_truncate(fcntl(pipe, FcntlArg::F_GETFL).unwrap());
    fcntl(pipe, FcntlArg::F_SETFL(flags | OFlag::O_NONBLOCK)).unwrap();
    for line in ["filled\n".repeat(100), "\n".to_owned()] {
        while (&mut &*pipe).write_all(line.as_bytes()).is_ok() {}
    }
    fcntl(pipe, FcntlArg::F_SETFL(flags)).unwrap();
}

#[test]
fn nothing_waits_for_a_log_that_nobody_reads() {
    let server = ApiServer::start();
    server.put(pod("shop", "web", "uid-1"));
    let node = Node::new();
    node.write("net.d/10-pods.conflist", BRIDGE);
    let (read, write): (OwnedFd, OwnedFd) = nix::unistd::pipe2(OFlag::O_CLOEXEC).unwrap();
    let write = File::from(write);
    fill(&write);
    let mut env = node.env();
    env.extend(server.env());
    // The default of --log_target, as that of install-cni.
    let stdout = write.try_clone().unwrap();
    let mut agent = node.start_to(stdout.into(), weir(), &env, &[]);
    agent.wait_ready();
    synced(&agent, 1);

    let text = "x".repeat(200);
    let line = json!({"level": "info", "time": "2026-11-20T21:15:02Z", "msg": text}).to_string();
    let batch = json!(vec![line; 3000]).to_string();
    for _ in 0..3 {
        assert_eq!(post(&node, &batch), Some((200, String::new())));
        assert_eq!(ask(&node, "shop", "web", "uid-1").0, 200);
        agent.until("ready", || agent.is_ready());
    }
    let dropped = agent.metric(DROPPED);
    assert!(dropped >= 2000, "{dropped}");

    // The agent writes queued lines when there is room, followed by the number of dropped lines.
    let mut lines = BufReader::new(File::from(read)).lines();
    let mut plugins = 0;
    let note = loop {
        let line = lines.next().unwrap().unwrap();
        if line.contains("lines are missing here") {
            break line;
        }
        plugins += u64::from(line.contains("cni-plugin"));
    };
    assert!(plugins >= 3000, "{plugins}");
    // The agent may have dropped lines of its own meanwhile.
    let told = note.split_once("\twarn\tcni-agent\t");
    let told = told.and_then(|(_, told)| told.split_once(" lines")?.0.parse().ok());
    let all = dropped..=agent.metric(DROPPED);
    assert!(
        told.is_some_and(|told| all.contains(&told)),
        "{all:?}: {note}"
    );

    fill(&write);
    assert!(agent.terminate().success());
    assert!(!node.read("net.d/10-pods.conflist").contains("istio-cni"));
}
