//! Processes that impersonate a pod: what an ordinary user of one pod can try in order to get the rules of another pod, or to keep that pod
//! from getting them.

use crate::api_server::{ApiServer, pod};
use crate::groups::Group;
use crate::repair::{IN_PLACE, Sandbox, sidecar, start};
use crate::rights::unmapped;
use crate::support::{Agent, Node};
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use weir_netlink::Netns;

/// The unprivileged user `nobody`.
const NOBODY: u32 = 65534;

/// The process of an ordinary user in user and network namespaces that it created, with an address of its choice.
pub(crate) struct Pretender {
    process: Child,
    pub(crate) netns: Netns,
    _group: Group,
}

impl Pretender {
    /// Starts the process in the control group of this pod. Prints the reason and returns `None` if an ordinary user cannot do that.
    pub(crate) fn of_pod(uid: &str, address: &str) -> Option<Self> {
        let script =
            format!("ip link set lo up && ip address add {address}/32 dev lo && echo && exec cat");
        Self::spawn(uid, &[], &script)
    }

    /// Runs a script that prints a line when it is ready.
    fn spawn(uid: &str, more: &[&str], script: &str) -> Option<Self> {
        if let Some(why) = unmapped([NOBODY]) {
            println!("skipped: {why}");
            return None;
        }
        let group = Group::of_pod(uid)?;
        let entered = "read -r _ && ";
        let mut process = Command::new("unshare")
            .args(["--user", "--map-root-user", "--net"])
            .args(more)
            .args(["sh", "-c", &format!("{entered}{script}")])
            .uid(NOBODY)
            .gid(NOBODY)
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("unshare is there");
        group.take(process.id());
        // The children that the script starts are in the control group as well.
        let go = process.stdin.as_mut().unwrap().write_all(b"\n");
        let mut ready = [0];
        let said = process.stdout.as_mut().unwrap().read(&mut ready).unwrap();
        if said == 0 || go.is_err() {
            let status = process.wait().unwrap();
            println!("skipped: an ordinary user may make no namespaces here: {status}");
            return None;
        }
        let netns = Netns::of_pid(process.id()).unwrap();
        Some(Self {
            process,
            netns,
            _group: group,
        })
    }

    /// Creates `count` network namespaces below one user namespace, each with a process; they end with the first one.
    fn crowd(uid: &str, count: usize) -> Option<Self> {
        let script = format!(
            "i=1; while [ $i -lt {count} ]; do i=$((i+1)); unshare --net sh -c 'echo; exec sleep 1000' & done; echo; exec cat"
        );
        let own = ["--pid", "--fork", "--kill-child"];
        let mut crowd = Self::spawn(uid, &own, &script)?;
        let mut ready = vec![0; count - 1];
        let said = crowd.process.stdout.as_mut().unwrap();
        said.read_exact(&mut ready).unwrap();
        Some(crowd)
    }

    pub(crate) fn rules(&self) -> String {
        let out = Command::new("nsenter")
            .arg(format!("--net={}", self.netns.path().display()))
            .args(["nft", "list", "ruleset"])
            .output()
            .unwrap();
        assert!(out.status.success(), "{out:?}");
        String::from_utf8(out.stdout).unwrap()
    }
}

impl Drop for Pretender {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

pub(crate) fn state_of(agent: &Agent, name: &str) -> Option<Value> {
    let facts = agent.facts();
    let mut pods = facts["pods"].as_array().unwrap().iter();
    pods.find(|p| p["name"] == name).cloned()
}

/// Waits until the state of a pod contains the reason for the refusal.
pub(crate) fn refused(agent: &Agent, name: &str, words: &[&str]) {
    let error = || {
        let state = state_of(agent, name).unwrap_or_default();
        state["error"].as_str().unwrap_or_default().to_owned()
    };
    let said = || words.iter().all(|word| error().contains(word));
    agent.until(&format!("{words:?} in the state of {name}"), said);
    let state = state_of(agent, name).unwrap();
    assert_eq!(state["verified"], false, "{state}");
}

const OFTEN: (&str, &str) = ("WEIR_VERIFY_INTERVAL", "1");

#[test]
fn an_ordinary_user_of_another_pod_takes_the_address() {
    let Some(victim) = Sandbox::of("robbed") else {
        return;
    };
    let Some(thief) = Sandbox::of("thief") else {
        return;
    };
    // The pretender is older than any process of the victim.
    let Some(pretender) = Pretender::of_pod("uid-thief", &victim.address) else {
        return;
    };
    let victim = victim.again();
    let server = ApiServer::start();
    server.put(sidecar("robbed", &victim.address));
    let mut plain = pod("shop", "thief", "uid-thief");
    plain["status"] = json!({"phase": "Running", "podIP": thief.address});
    server.put(plain);
    let node = Node::new();
    let agent = start(&node, &server, &[IN_PLACE, OFTEN]);
    agent.until("verified", || agent.metric("weir_pods_verified") == 1);
    assert!(victim.is_redirected());
    assert_eq!(pretender.rules(), "");
    assert_eq!(thief.rules(), "");
}

#[test]
fn an_ordinary_user_of_the_pod_itself_takes_its_address() {
    let Some(victim) = Sandbox::of("nested") else {
        return;
    };
    let Some(pretender) = Pretender::of_pod("uid-nested", &victim.address) else {
        return;
    };
    let victim = victim.again();
    let server = ApiServer::start();
    server.put(sidecar("nested", &victim.address));
    let node = Node::new();
    let agent = start(&node, &server, &[IN_PLACE, OFTEN]);
    agent.until("verified", || agent.metric("weir_pods_verified") == 1);
    assert!(victim.is_redirected());
    assert_eq!(pretender.rules(), "");
    drop(victim);
    // The pod's own namespace is gone. A namespace that a process of the pod created does not replace it.
    refused(&agent, "nested", &["made inside of the pod"]);
    assert_eq!(pretender.rules(), "");
}

/// Root of a pod may create control groups below that of the pod.
#[test]
fn a_group_that_is_named_after_another_pod() {
    let path = "kubepods/poduid-thief/c/kubepods/burstable/poduid-named";
    let Some(group) = Group::at(path) else { return };
    let Some(sandbox) = Sandbox::within(group) else {
        return;
    };
    let server = ApiServer::start();
    server.put(sidecar("named", &sandbox.address));
    let node = Node::new();
    let agent = start(&node, &server, &[IN_PLACE, OFTEN]);
    refused(&agent, "named", &["none of the ", "UID uid-named"]);
    assert_eq!(sandbox.rules(), "");
}

#[test]
fn two_namespaces_of_a_pod_with_its_address() {
    let Some(one) = Sandbox::of("twice") else {
        return;
    };
    let Some(two) = one.twin("twice") else { return };
    let server = ApiServer::start();
    server.put(sidecar("twice", &one.address));
    let node = Node::new();
    let agent = start(&node, &server, &[IN_PLACE, OFTEN]);
    refused(&agent, "twice", &["each have a process of the pod"]);
    assert_eq!((one.rules(), two.rules()), (String::new(), String::new()));
    drop(two);
    agent.until("repaired", || agent.metric("weir_pods_verified") == 1);
    assert!(one.is_redirected());
}

#[test]
fn an_address_that_the_api_server_has_for_two_pods() {
    let (Some(web), Some(plain)) = (Sandbox::of("stale"), Sandbox::of("stale-plain")) else {
        return;
    };
    let server = ApiServer::start();
    // The API server has an outdated address, which now belongs to a pod that requests no redirection.
    server.put(sidecar("stale", &plain.address));
    let mut other = pod("shop", "stale-plain", "uid-stale-plain");
    other["status"] = json!({"phase": "Running"});
    server.put(other.clone());
    let node = Node::new();
    let agent = start(&node, &server, &[IN_PLACE, OFTEN]);
    refused(&agent, "stale", &["does not have the addresses"]);
    other["status"]["podIP"] = plain.address.clone().into();
    server.put(other.clone());
    let claimed = || {
        let state = state_of(&agent, "stale").unwrap_or_default();
        let error = state["error"].as_str().unwrap_or_default();
        error.contains("claimed by pod shop/stale-plain too")
    };
    agent.until("the state says who", claimed);
    assert_eq!((web.rules(), plain.rules()), (String::new(), String::new()));
    // The same if both pods request redirection.
    let mut both = sidecar("stale-plain", &plain.address);
    both["metadata"]["uid"] = "uid-stale-plain".into();
    server.put(both);
    refused(&agent, "stale-plain", &["claimed by pod shop/stale too"]);
    assert_eq!(plain.rules(), "");
    // The API server has the current address now, which is enough for both.
    server.put(sidecar("stale", &web.address));
    agent.until("both", || agent.metric("weir_pods_verified") == 2);
    assert!(web.is_redirected() && plain.is_redirected());
}

/// There are more namespaces than the agent examines. An ordinary user of the pod can create them at no cost.
#[test]
fn a_crowd_of_namespaces_below_the_pod() {
    let Some(victim) = Sandbox::of("crowded") else {
        return;
    };
    let Some(_crowd) = Pretender::crowd("uid-crowded", 260) else {
        return;
    };
    let server = ApiServer::start();
    server.put(sidecar("crowded", &victim.address));
    let node = Node::new();
    let agent = start(&node, &server, &[IN_PLACE, OFTEN]);
    agent.until("verified", || agent.metric("weir_pods_verified") == 1);
    assert!(victim.is_redirected());
}

#[test]
fn a_pod_that_calls_itself_the_mirror_of_another() {
    let Some(victim) = Sandbox::of("mirrored") else {
        return;
    };
    let server = ApiServer::start();
    // The API server has no address of this pod yet.
    let mut plain = pod("shop", "mirrored", "uid-mirrored");
    plain["status"] = json!({"phase": "Running"});
    server.put(plain);
    let mut thief = sidecar("mirror", &victim.address);
    thief["metadata"]["annotations"]["kubernetes.io/config.mirror"] = "uid-mirrored".into();
    server.put(thief.clone());
    let node = Node::new();
    let agent = start(&node, &server, &[IN_PLACE, OFTEN]);
    refused(&agent, "mirror", &["UID uid-mirror"]);
    // The same if the pod claims that the kubelet created it.
    thief["metadata"]["ownerReferences"] = json!([{"kind": "Node", "name": "node1"}]);
    server.put(thief);
    refused(
        &agent,
        "mirror",
        &["config.mirror", "uid-mirrored of another pod"],
    );
    assert_eq!(victim.rules(), "");
}
