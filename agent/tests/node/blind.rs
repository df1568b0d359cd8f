//! The agent reports what it cannot observe, and never reports it as good.

use crate::api_server::{Answer, ApiServer};
use crate::repair::{IN_PLACE, Sandbox, sidecar, start};
use crate::support::{Agent, BRIDGE, Node, get};
use nix::sys::ptrace;
use nix::unistd::Pid;
use serde_json::{Value, json};
use std::os::unix::net::{UnixListener, UnixStream};
use std::time::{Duration, Instant};
use weir_testing::sockets::left_over;

fn blind(agent: &Agent, of: &str) -> bool {
    agent.metric(&format!("weir_blind{{of=\"{of}\"}}")) == 1
}

fn ratio(agent: &Agent) -> String {
    let (_, text) = agent.page("/metrics");
    let value = |line: &str| {
        line.strip_prefix("weir_pods_verified_ratio ")
            .map(str::to_owned)
    };
    text.lines().find_map(value).unwrap()
}

#[test]
fn an_api_server_that_never_answers() {
    let server = ApiServer::start();
    server.fault(|_| Some(Answer::Status(500)));
    let node = Node::new();
    let agent = start(&node, &server, &[IN_PLACE]);
    agent.until("trouble", || {
        agent.facts()["podWatch"]["state"] == "trouble"
    });
    // Verification is not overdue before the pods are known: only the watch of pods fails.
    agent.until("blind", || blind(&agent, "watch"));
    assert!(!blind(&agent, "verification"));
    assert_eq!(ratio(&agent), "NaN");
    let told = agent.facts();
    assert_eq!(told["verification"]["ratio"], Value::Null, "{told}");
    let (_, page) = agent.page("/");
    assert!(
        page.contains("pods or namespaces are not watched") && !page.contains("all is well"),
        "{page}"
    );
    // Otherwise all agents would be unready at once, and none of them could do anything about it.
    assert_eq!(agent.probe("/readyz").0, 200);
    server.fault(|_| None);
    agent.until("seen", || {
        !blind(&agent, "watch") && !blind(&agent, "verification")
    });
    agent.until("known", || ratio(&agent) == "1.0");
    agent.until("well", || agent.page("/").1.contains("all is well"));
    // If the watch fails later, the known state is outdated.
    server.fault(|_| Some(Answer::Status(500)));
    server.end();
    agent.until("lost", || blind(&agent, "watch"));
    let (_, page) = agent.page("/");
    assert!(
        page.contains("pods or namespaces are not watched") && !page.contains("all is well"),
        "{page}"
    );
    assert!(
        page.contains("requested redirection when the pods were last known"),
        "{page}"
    );
}

/// It accepts connections, and answers nothing. The list counted as current for 50 s.
#[test]
fn an_api_server_that_freezes_after_the_watch_ended() {
    let server = ApiServer::start();
    let node = Node::new();
    let agent = start(&node, &server, &[]);
    agent.until("synced", || agent.metric("weir_pod_watch_synced") == 1);
    // A watch that is answered continues the list.
    server.end();
    let watches = || server.asked().iter().filter(|a| a.is_watch()).count();
    agent.until("watched again", || watches() > 3);
    server.fault(|asked| asked.is_watch().then_some(Answer::Hang));
    assert_eq!(agent.metric("weir_pod_watch_synced"), 1);
    let failures = "weir_pod_watch_restarts_total{reason=\"slow\"}";
    assert_eq!(agent.metric(failures), 0, "{}", agent.log());
    let begun = Instant::now();
    server.end();
    agent.until("lost", || blind(&agent, "watch"));
    assert!(begun.elapsed() < Duration::from_secs(30));
    assert_eq!(agent.metric("weir_pod_watch_synced"), 0);
    assert_eq!(agent.facts()["podWatch"]["state"], "trouble");
    agent.says("the next watch is not answered within 10s");
    assert!(agent.metric(failures) > 0);
}

#[test]
fn a_socket_for_the_plugin_that_cannot_be_had() {
    let server = ApiServer::start();
    server.put(sidecar("elsewhere", "192.0.2.7"));
    let node = Node::new();
    node.write("net.d/10-pods.conflist", BRIDGE);
    std::fs::create_dir_all(node.path("run/pods.sock/below")).unwrap();
    let env = server.env();
    let env: Vec<(&str, &str)> = env.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
    let agent = node.start(&env, &[]);
    let installed = || get(agent.health, "/healthz").is_some();
    agent.until("it lives", installed);
    agent.until("installed", || agent.metric("istio_cni_install_ready") == 1);
    agent.until("told", || {
        let (status, why) = agent.probe("/readyz");
        assert_eq!(status, 503);
        why.starts_with("sockets bound: the plugin cannot ask") && why.contains("pods.sock")
    });
    assert!(blind(&agent, "plugin"));
    let told = agent.facts();
    assert_eq!(told["podSocket"]["state"], "failed", "{told}");
    assert!(agent.page("/").1.contains("pods.sock"));
    // The watch of pods works nevertheless.
    agent.until("watched", || agent.metric("weir_pods_watched") == 1);
}

#[test]
fn a_socket_for_the_plugin_that_is_lost_is_bound_again() {
    let server = ApiServer::start();
    let node = Node::new();
    let agent = start(&node, &server, &[]);
    for name in ["pods.sock", "log.sock", "agent.sock"] {
        let path = node.path("run").join(name);
        let connects = || UnixStream::connect(&path).is_ok();
        assert!(connects(), "{name}");
        // The socket is deleted, and left behind by another agent that ended.
        for left in [false, true] {
            if left {
                // The agent binds a name again as soon as it is free.
                let beside = path.with_extension("left");
                left_over(&beside);
                std::fs::rename(&beside, &path).unwrap();
            } else {
                std::fs::remove_file(&path).unwrap();
            }
            agent.until("bound again", connects);
        }
        agent.says(&format!("{name} is lost"));
    }
    agent.until("ready again", || {
        agent.is_ready() && !blind(&agent, "plugin")
    });
    // If another process serves a socket of this name, the agent leaves the name to it and reports that.
    for name in ["pods.sock", "log.sock"] {
        let path = node.path("run").join(name);
        let beside = path.with_extension("other");
        let other = UnixListener::bind(&beside).unwrap();
        std::fs::rename(&beside, &path).unwrap();
        agent.until("blind", || {
            let (status, why) = agent.probe("/readyz");
            blind(&agent, "plugin") && status == 503 && why.contains(name)
        });
        agent.says(&format!("{name}: another process listens there"));
        drop(other);
        agent.until("ready again", || {
            agent.is_ready() && !blind(&agent, "plugin")
        });
    }
}

/// A tracer stops the thread that verifies, which then resembles a thread that hangs in the kernel.
struct Held(Pid);

impl Held {
    fn new(agent: &Agent) -> Option<Self> {
        let tasks = format!("/proc/{}/task", agent.pid());
        let of = |name: &str| std::fs::read_to_string(format!("{tasks}/{name}/comm"));
        let mut names = std::fs::read_dir(&tasks)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let thread = names.find(|name| of(name).is_ok_and(|comm| comm.trim() == "repair"));
        let pid = Pid::from_raw(thread.expect("it verifies").parse().unwrap());
        if let Err(e) = ptrace::seize(pid, ptrace::Options::empty()) {
            println!("skipped: this process may trace no other: {e}");
            return None;
        }
        ptrace::interrupt(pid).unwrap();
        Some(Self(pid))
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        // The thread stopped long ago, but the tracer must wait for it before it can detach.
        let flags = nix::sys::wait::WaitPidFlag::__WALL;
        let _ = nix::sys::wait::waitpid(self.0, Some(flags));
        let _ = ptrace::detach(self.0, None);
    }
}

#[test]
fn verification_that_hangs() {
    let Some(sandbox) = Sandbox::of("hangs") else {
        return;
    };
    let server = ApiServer::start();
    server.put(sidecar("hangs", &sandbox.address));
    let node = Node::new();
    let agent = start(&node, &server, &[IN_PLACE, ("WEIR_VERIFY_INTERVAL", "1")]);
    agent.until("verified", || agent.metric("weir_pods_verified") == 1);
    agent.until("ready", || {
        agent.is_ready() && !blind(&agent, "verification")
    });
    let Some(held) = Held::new(&agent) else {
        return;
    };
    let took = agent.until("not ready", || {
        let (status, why) = agent.probe("/readyz");
        status == 503 && why.starts_with("pods verified: no verification pass")
    });
    assert!(
        took > Duration::from_secs(3),
        "a slow round is none that hangs: {took:?}"
    );
    assert!(blind(&agent, "verification"));
    assert_eq!(agent.metric("istio_cni_install_ready"), 1);
    let told = agent.facts();
    assert_eq!(told["verification"]["state"], "overdue", "{told}");
    assert!(told["notReady"].is_string(), "{told}");
    let (_, page) = agent.page("/");
    assert!(page.contains("verification has stopped"), "{page}");
    // The earlier result does not describe the current state.
    let (v, pod) = (&told["verification"], &told["pods"][0]);
    assert_eq!(
        (&v["verified"], &v["expected"]),
        (&json!(0), &json!(1)),
        "{v}"
    );
    assert_eq!(
        (&v["ratio"], &pod["verified"]),
        (&json!(null), &json!(false))
    );
    assert!(
        pod["error"].is_string() && pod["verifiedAt"].is_string(),
        "{pod}"
    );
    assert!(!page.contains(">verified</span>"), "{page}");
    assert_eq!(
        (agent.metric("weir_pods_verified"), ratio(&agent)),
        (0, "NaN".into())
    );
    drop(held);
    agent.until("ready again", || agent.is_ready());
    agent.until("verified again", || {
        let told = agent.facts();
        let is_shown = told["pods"][0]["verified"] == true && told["notReady"].is_null();
        is_shown && agent.metric("weir_pods_verified") == 1 && ratio(&agent) == "1.0"
    });
}
