//! Transient errors of a node: what is installed stays, and the agent keeps running.

use crate::faults::Mount;
use crate::support::{Agent, BRIDGE, Node};
use nix::mount::MsFlags;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

const LIST: &str = "net.d/10-pods.conflist";

/// Checks that the agent survives a failure and keeps what it installed, and that it is ready again after `mend`.
fn survives(node: &Node, agent: &mut Agent, mend: impl FnOnce()) {
    agent.says("what is on the node stays");
    assert!(node.read(LIST).contains("istio-cni"), "{}", agent.log());
    assert!(node.exists("run/istio-cni-kubeconfig") && node.exists("bin/istio-cni"));
    mend();
    agent.wait_ready();
    agent.says("installing works again");
    assert!(agent.terminate().success());
    assert!(!node.read(LIST).contains("istio-cni"), "a signal removes");
}

#[test]
fn a_token_that_is_away_for_a_moment() {
    let node = Node::new();
    node.write(LIST, BRIDGE);
    let mut agent = node.ready(&[]);
    std::fs::rename(node.path("account/token"), node.path("account/away")).unwrap();
    agent.until("not ready", || !agent.is_ready());
    survives(&node, &mut agent, || {
        std::fs::rename(node.path("account/away"), node.path("account/token")).unwrap();
    });
}

#[test]
fn a_disk_that_is_full_for_a_while() {
    let node = Node::new();
    let Some(_mount) = Mount::tmpfs(&node.path("net.d"), MsFlags::empty(), "size=8k") else {
        return;
    };
    node.write(LIST, BRIDGE);
    let mut agent = node.ready(&[]);
    node.write("net.d/filler", &"x".repeat(4096));
    // The entry is changed in place, and the disk has no room for the temporary file that would replace it.
    let changed = node.read(LIST).replace("istio-system", "other");
    node.write(LIST, &changed);
    survives(&node, &mut agent, || {
        std::fs::remove_file(node.path("net.d/filler")).unwrap();
    });
}

/// Everything on the node is intact except that the new token cannot be written, which is the reason that readiness reports.
#[test]
fn a_disk_that_is_full_after_the_installation_is_the_reason_that_is_given() {
    let node = Node::new();
    std::fs::create_dir(node.path("run")).unwrap();
    let Some(_mount) = Mount::tmpfs(&node.path("run"), MsFlags::empty(), "size=64k") else {
        return;
    };
    node.write(LIST, BRIDGE);
    let mut agent = node.ready(&[]);
    let filler = || format!("run/filler-{}", node.names("run").len());
    while std::fs::write(node.path(&filler()), [b'x'; 4096]).is_ok() {}
    node.write("account/token", "token-2");
    // Between two checks, readiness may have another reason.
    let until_told = |start: &str, part: &str| {
        agent.until(start, || {
            let (_, why) = agent.probe("/readyz");
            why.starts_with(start) && why.contains(part)
        });
    };
    until_told(
        "plugin installed: the CNI plugin is installed; the last check failed: cannot write ",
        "No space left on device",
    );
    // A changed entry counts as not installed, whatever the state of the disk.
    node.write(LIST, BRIDGE);
    until_told(
        "plugin installed: the installation of the CNI plugin was changed: ",
        "our entry is missing",
    );
    for filler in node.names("run") {
        if filler.starts_with("filler") {
            std::fs::remove_file(node.path("run").join(filler)).unwrap();
        }
    }
    agent.wait_ready();
    assert!(node.read(LIST).contains("istio-cni"));
}

#[test]
fn no_descriptor_is_free() {
    let node = Node::new();
    node.write(LIST, BRIDGE);
    let mut agent = node.ready(&[]);
    let limit = |pid: u32, number: &str| {
        let limit = format!("--nofile={number}:1024");
        let mut prlimit = Command::new("prlimit");
        prlimit.args([format!("--pid={pid}"), limit]).status()
    };
    match limit(agent.pid(), &(lowest_spare(agent.pid()) + 1).to_string()) {
        Ok(status) => assert!(status.success()),
        Err(e) => return println!("skipped: prlimit of util-linux: {e}"),
    }
    // The existing watch reports this change.
    node.write(LIST, &node.read(LIST).replace("istio-system", "other"));
    agent.says("Too many open files");
    // The kubelet gives up after a second, even if other clients are connected.
    let silent: Vec<_> = (0..3).map(|_| connect(agent.health)).collect();
    for (port, path, status, says) in [
        (agent.health, "/healthz", 200, "ok"),
        (agent.health, "/readyz", 503, ""),
        (agent.metrics, "/metrics", 200, "weir_build_info"),
    ] {
        // On a busy machine one answer may be late.
        agent.until(path, || {
            ask(port, path).is_ok_and(|(answered, text)| answered == status && text.contains(says))
        });
    }
    drop(silent);
    agent.until("the metric", || {
        let answer = ask(agent.metrics, "/metrics");
        answer.is_ok_and(|(_, text)| text.contains("weir_descriptors_exhausted 1"))
    });
    // A descriptor may be free for a moment after another one was closed.
    agent.until("the reason", || {
        ask(agent.health, "/readyz").is_ok_and(|(_, why)| {
            why.contains("this agent can open nothing") && why.contains("Too many open files")
        })
    });
    agent.says("nothing can be opened");
    let pid = agent.pid();
    survives(&node, &mut agent, || {
        assert!(limit(pid, "1024").unwrap().success());
    });
    assert!(agent.log().contains("descriptors are free again"));
}

/// The lowest descriptor that the agent reserves. Other threads may leave free descriptors below it.
fn lowest_spare(pid: u32) -> u32 {
    let all = std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap();
    let is_spare = |entry: &std::fs::DirEntry| {
        std::fs::read_link(entry.path()).is_ok_and(|to| to == Path::new("/dev/null"))
    };
    let spares = all.map(Result::unwrap).filter(is_spare);
    let numbers = spares.map(|entry| entry.file_name().to_str().unwrap().parse().unwrap());
    numbers
        .filter(|n| *n > 2)
        .min()
        .expect("one that is held back")
}

fn connect(port: u16) -> TcpStream {
    let stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    let second = Some(Duration::from_secs(1));
    stream.set_read_timeout(second).unwrap();
    stream
}

/// Sends one request and waits as long as the kubelet does.
fn ask(port: u16, path: &str) -> std::io::Result<(u16, String)> {
    let mut stream = connect(port);
    write!(stream, "GET {path} HTTP/1.1\r\nHost: x\r\n\r\n")?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    let status = text.get(9..12).and_then(|s| s.parse().ok());
    Ok((status.unwrap_or(0), text))
}

#[test]
fn a_removal_that_fails_is_a_failure() {
    let node = Node::new();
    let Some(mount) = Mount::tmpfs(&node.path("net.d"), MsFlags::empty(), "size=64k") else {
        return;
    };
    node.write(LIST, BRIDGE);
    let mut agent = node.ready(&[]);
    mount.read_only();
    assert_eq!(agent.terminate().code(), Some(4), "{}", agent.log());
    assert!(agent.log().contains("the installation is not removed"));
}
