//! The plugin as a runtime calls it, while an agent runs.

use crate::api_server::{ApiServer, Asked, pod};
use crate::pods::{lookups, start, synced};
use crate::rights::unmapped;
use crate::support::{Node, PATIENCE, exchange};
use nix::sys::signal::Signal;
use serde_json::{Value, json};
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};
use weir_netlink::Netns;
use weir_netlink::route::Routing;

pub(crate) fn sidecar(name: &str, uid: &str) -> Value {
    let mut pod = pod("shop", name, uid);
    pod["metadata"]["annotations"] = json!({"sidecar.istio.io/status": "{}"});
    pod["spec"]["containers"] = json!([
        {"name": "app", "env": [{"name": "PASSWORD", "value": "secret"}]},
        {"name": "istio-proxy", "args": ["proxy", "sidecar"]}
    ]);
    pod
}

/// Starts the plugin with the configuration that the agent has written.
fn spawn(node: &Node, verb: &str, netns: &Netns, name: &str, uid: &str) -> Child {
    let list: Value = serde_json::from_str(&node.read("net.d/10-pods.conflist")).unwrap();
    let plugins = list["plugins"].as_array().unwrap();
    let mut config = plugins.last().unwrap().clone();
    assert_eq!(config["type"], "istio-cni");
    config["cniVersion"] = "1.0.0".into();
    config["name"] = "pods".into();
    let program = node.path("weir-cni");
    if !program.exists() {
        std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_weir"), &program).unwrap();
    }
    let args =
        format!("IgnoreUnknown=1;K8S_POD_NAMESPACE=shop;K8S_POD_NAME={name};K8S_POD_UID={uid}");
    let mut child = Command::new(program)
        .env_clear()
        .env("CNI_COMMAND", verb)
        .env("CNI_CONTAINERID", "c1")
        .env("CNI_NETNS", netns.path())
        .env("CNI_IFNAME", "eth0")
        .env("CNI_ARGS", args)
        .env("CNI_PATH", node.path("bin"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(config.to_string().as_bytes()).unwrap();
    child
}

pub(crate) fn run(node: &Node, verb: &str, netns: &Netns, name: &str, uid: &str) -> Output {
    spawn(node, verb, netns, name, uid)
        .wait_with_output()
        .unwrap()
}

/// Creates a namespace with an address, as other plugins leave it. Prints a skip and returns `None` if this user may not create one.
pub(crate) fn new_netns() -> Option<Netns> {
    let netns = weir_testing::namespace()?;
    let routing = Routing::open_in(&netns).unwrap();
    let lo = routing.link("lo").unwrap();
    routing.set_up(lo.index).unwrap();
    let address = "10.244.0.5/24".parse().unwrap();
    routing.add_address(lo.index, address).unwrap();
    Some(netns)
}

pub(crate) fn assert_ok(out: &Output) {
    assert!(out.status.success(), "{out:?}");
}

#[test]
fn a_pod_starts_without_the_api_server() {
    let mut server = ApiServer::start();
    server.put(sidecar("web-0", "uid-0"));
    server.put(pod("shop", "plain-0", "uid-1"));
    let node = Node::new();
    let agent = start(&node, &server);
    synced(&agent, 2);
    let asked = |server: &ApiServer| {
        let of_pod = |a: &&Asked| a.path.contains("/pods/");
        server.asked().iter().filter(of_pod).count()
    };
    let before = asked(&server);
    let Some(netns) = new_netns() else {
        return;
    };
    let differs = run(&node, "CHECK", &netns, "web-0", "uid-0");
    assert!(!differs.status.success(), "nothing is redirected yet");
    server.stop();
    assert_ok(&run(&node, "ADD", &netns, "web-0", "uid-0"));
    assert_ok(&run(&node, "CHECK", &netns, "web-0", "uid-0"));
    let Some(other) = new_netns() else {
        return;
    };
    assert_ok(&run(&node, "ADD", &other, "plain-0", "uid-1"));
    assert_eq!(lookups(&agent, "known"), 4);
    assert_eq!(asked(&server), before, "no request for any of them");
    let log = node.read("run/istio-cni.log");
    assert!(
        log.contains("no container istio-proxy") && !log.contains("asked instead"),
        "{log}"
    );
}

/// The API server has a pod of this name on another node, so the agent does not have it.
#[test]
fn an_agent_that_ends_during_an_add() {
    let server = ApiServer::start();
    let mut moved = sidecar("web-0", "uid-0");
    moved["spec"]["nodeName"] = "node2".into();
    server.put(moved);
    let node = Node::new();
    let mut agent = start(&node, &server);
    synced(&agent, 0);
    let Some(netns) = new_netns() else {
        return;
    };
    // The agent waits for the pod in vain; then the plugin asks the API server.
    assert_ok(&run(&node, "ADD", &netns, "web-0", "uid-0"));
    assert_eq!(lookups(&agent, "unknown"), 1);
    let begun = Instant::now();
    let asked = |server: &ApiServer| {
        let of_pod = |a: &&Asked| a.path.ends_with("/pods/web-0");
        server.asked().iter().filter(of_pod).count()
    };
    // A stopped agent accepts no connection, but a client can connect. The kernel then lists two sockets with this path.
    let socket = node.path("run/pods.sock").display().to_string();
    let sockets = || {
        let all = std::fs::read_to_string("/proc/net/unix").unwrap();
        all.lines().filter(|l| l.ends_with(&socket)).count()
    };
    // The agent may close the previous connection a moment later.
    agent.until("one socket", || sockets() == 1);
    agent.signal(Signal::SIGSTOP);
    let child = spawn(&node, "ADD", &netns, "web-0", "uid-0");
    agent.until("connected", || sockets() == 2);
    agent.signal(Signal::SIGKILL);
    assert!(!agent.ended().success());
    assert_ok(&child.wait_with_output().unwrap());
    assert_eq!(asked(&server), 2);
    // The same without an agent.
    assert_ok(&run(&node, "ADD", &netns, "web-0", "uid-0"));
    assert_eq!(asked(&server), 3);
    assert!(begun.elapsed() < PATIENCE);
    let log = node.read("run/istio-cni.log");
    assert!(
        log.contains("does not know the pod") && log.contains("does not listen"),
        "{log}"
    );
}

#[test]
fn a_stopped_agent_costs_little_time() {
    let server = ApiServer::start();
    server.put(sidecar("web-0", "uid-0"));
    let node = Node::new();
    let agent = start(&node, &server);
    synced(&agent, 1);
    agent.signal(Signal::SIGSTOP);
    let Some(netns) = new_netns() else {
        return;
    };
    let begun = Instant::now();
    assert_ok(&run(&node, "ADD", &netns, "web-0", "uid-0"));
    let took = begun.elapsed();
    agent.signal(Signal::SIGCONT);
    assert!(
        took >= Duration::from_secs(2) && took < PATIENCE,
        "{took:?}"
    );
    assert!(node.read("run/istio-cni.log").contains("no answer within"));
}

/// Names the socket for [`as_somebody_else`], which is this program, started again as another user.
const SOCKET: &str = "WEIR_TEST_POD_SOCKET";

#[test]
fn only_root_is_answered() {
    if !nix::unistd::geteuid().is_root() {
        println!("skipped: only root can become somebody else");
        return;
    }
    if let Some(why) = unmapped([65534]) {
        println!("skipped: {why}");
        return;
    }
    let server = ApiServer::start();
    server.put(sidecar("web-0", "uid-0"));
    let node = Node::new();
    let agent = start(&node, &server);
    synced(&agent, 1);
    let ask = || {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command
            .args(["--exact", "adds::as_somebody_else", "--nocapture"])
            .env(SOCKET, node.path("run/pods.sock"))
            .current_dir("/")
            .uid(65534)
            .gid(65534);
        let out = command.output().unwrap();
        assert!(out.status.success(), "{out:?}");
        String::from_utf8(out.stdout).unwrap()
    };
    // The modes of directory and socket deny other users access.
    assert!(ask().contains("PermissionDenied"));
    assert_eq!(lookups(&agent, "refused"), 0);
    // The agent refuses them as well if the modes are changed.
    for (file, mode) in [("run", 0o755), ("run/pods.sock", 0o666)] {
        std::fs::set_permissions(node.path(file), PermissionsExt::from_mode(mode)).unwrap();
    }
    let answer = ask();
    // A closed connection may lose the last answer.
    assert!(
        answer.contains("403") || answer.contains("None"),
        "{answer}"
    );
    assert!(!answer.contains("uid-0"), "{answer}");
    assert_eq!(lookups(&agent, "refused"), 1);
    agent.says("uid 65534");
}

#[test]
fn as_somebody_else() {
    let Some(socket) = std::env::var_os(SOCKET) else {
        return;
    };
    match UnixStream::connect(socket) {
        Err(e) => println!("{:?}", e.kind()),
        Ok(stream) => {
            let body = r#"{"namespace":"shop","name":"web-0","uid":"uid-0"}"#;
            let length = body.len();
            let head = format!("POST /pod HTTP/1.1\r\nHost: x\r\nContent-Length: {length}\r\n\r\n");
            println!("{:?}", exchange(stream, &format!("{head}{body}")));
        }
    }
}
