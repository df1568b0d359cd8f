//! Looks the pod up at the node agent, and at the API server if the agent does not answer.
// matrix: none: about values and programs, with no namespace, no rule and no kernel

use std::io::ErrorKind;
use std::os::unix::net::UnixListener;
use std::time::{Duration, Instant};

use crate::common::agent::Agent;
use crate::common::api_server::{Answer, ApiServer};
use crate::common::call::Outcome;
use crate::common::node::Node;
use crate::common::pods;
use serde_json::{Value, json};
use weir_cni::plugin::{EVENT_SOCKET, KUBECONFIG, LOG_FILE, LOG_SOCKET, POD_SOCKET};
use weir_testing::sockets::left_over;

const UID: &str = "5c7f9b1e-0000-4000-8000-000000000001";

/// An API server that fails the test on any request.
fn no_server() -> ApiServer {
    ApiServer::always(Answer::Body(500, String::new()))
}

fn sidecar_server() -> ApiServer {
    ApiServer::with_pod(
        pods::sidecar("shop", "web-0"),
        pods::namespace("shop", json!({})),
    )
}

fn known(pod: &Value) -> String {
    json!({"pod": pod, "namespace": pods::namespace("shop", json!({}))}).to_string()
}

fn with_uid(node: &Node, verb: &str, uid: &str) -> Outcome {
    let args =
        format!("IgnoreUnknown=1;K8S_POD_NAMESPACE=shop;K8S_POD_NAME=web-0;K8S_POD_UID={uid}");
    node.run(&node.process(verb).set("CNI_ARGS", &args))
}

fn agent(node: &Node, answer: Option<(u16, &str)>) -> Agent {
    Agent::listen(&node.dir.file(POD_SOCKET), answer)
}

#[test]
fn a_pod_that_the_agent_knows_needs_no_api_server() {
    let server = no_server();
    let node = Node::with_server(&server);
    let agent = agent(&node, Some((200, &known(&pods::sidecar("shop", "web-0")))));
    with_uid(&node, "ADD", UID).result();
    assert_eq!(node.backend.applied().len(), 1);
    let (head, body) = agent.request();
    assert!(head.starts_with("POST /pod HTTP/1.1\r\n"), "{head}");
    assert_eq!(
        serde_json::from_str::<Value>(&body).unwrap(),
        json!({"namespace": "shop", "name": "web-0", "uid": UID})
    );
    with_uid(&node, "CHECK", UID).assert_silent();
    assert!(server.asked().is_empty(), "{:?}", server.asked());
}

/// The node agent runs, but has not written the kubeconfig yet, or another writer has changed it.
#[test]
fn a_kubeconfig_that_cannot_be_used_matters_only_where_the_server_is_asked() {
    for broken in [false, true] {
        let node = Node::new();
        if broken {
            node.dir.write(KUBECONFIG, "clusters: [");
        }
        let socket = node.dir.file(POD_SOCKET);
        let known = known(&pods::sidecar("shop", "web-0"));
        let answering = Agent::listen(&socket, Some((200, &known)));
        with_uid(&node, "ADD", UID).result();
        with_uid(&node, "CHECK", UID).assert_silent();
        assert_eq!(node.backend.applied().len(), 1);
        drop(answering);
        std::fs::remove_file(&socket).unwrap();
        let _unknowing = Agent::listen(&socket, Some((404, "no such pod")));
        // It is not retried.
        let started = Instant::now();
        let error = with_uid(&node, "ADD", UID).error();
        assert!(
            error.code == 999 && error.msg.contains(KUBECONFIG),
            "{error}"
        );
        assert!(started.elapsed() < Duration::from_secs(10));
    }
}

/// The API server and the kubelet have different UIDs for such a pod.
#[test]
fn a_pod_that_a_kubelet_made_from_a_file() {
    let server = no_server();
    let node = Node::with_server(&server);
    let mut pod = pods::sidecar("shop", "web-0");
    pod["metadata"]["annotations"]["kubernetes.io/config.mirror"] = "of-the-file".into();
    pod["spec"]["nodeName"] = "node1".into();
    pod["metadata"]["ownerReferences"] = json!([{"kind": "Node", "name": "node1"}]);
    let _agent = agent(&node, Some((200, &known(&pod))));
    with_uid(&node, "ADD", "of-the-file").result();
    assert_eq!(node.backend.applied().len(), 1);
}

#[test]
fn what_is_no_answer_leads_to_the_api_server() {
    let right = pods::sidecar("shop", "web-0");
    let mut other_uid = right.clone();
    other_uid["metadata"]["uid"] = "older".into();
    let other_name = pods::sidecar("shop", "web-1");
    let http = |status: u16, body: &str| {
        let length = body.len();
        format!("HTTP/1.1 {status} X\r\nContent-Length: {length}\r\n\r\n{body}")
    };
    let whole = http(200, &known(&right));
    let half = whole[..whole.len() - 10].to_owned();
    let mut large = right.clone();
    large["metadata"]["annotations"]["x"] = "x".repeat(2 << 20).into();
    for (answer, word) in [
        (http(404, "no such pod"), "no such pod"),
        (http(503, "not yet"), "not yet"),
        (http(403, "only root"), "403"),
        (http(500, ""), "500"),
        (http(200, ""), "does not answer the question"),
        (http(200, "{}"), "does not answer the question"),
        (http(200, "{\"pod\":{}}"), "it is about"),
        (http(200, "{\"pod\":{\"spec\":[]}}"), "spec"),
        (http(200, "\u{0}\u{1}"), "does not answer the question"),
        (http(200, &known(&other_uid)), "older"),
        (http(200, &known(&other_name)), "web-1"),
        (http(200, &known(&large)), "does not answer the question"),
        (half, "cut off"),
        (String::new(), "gives no answer"),
        ("HTTP/1.1 200".into(), "gives no answer"),
        ("220 mail.example.org ESMTP\r\n\r\n".into(), "not HTTP"),
    ] {
        let shown: String = answer.chars().take(120).collect();
        let server = sidecar_server();
        let node = Node::with_server(&server);
        let agent = Agent::listen_raw(&node.dir.file(POD_SOCKET), Some(answer));
        with_uid(&node, "ADD", UID).result();
        assert_eq!(node.backend.applied().len(), 1, "{shown}");
        assert_eq!(server.asked().len(), 1, "{shown}");
        let log = node.dir.read(LOG_FILE);
        let line = log.lines().find(|l| l.contains("asked instead"));
        let line = line.unwrap_or_else(|| panic!("{shown}: {log}"));
        assert!(line.contains(word), "{shown}: {line}");
        drop(agent);
    }
}

/// A StatefulSet recreates its pods under the same name, perhaps with another configuration.
#[test]
fn an_older_pod_of_the_same_name_at_the_api_server() {
    let old = pods::plain("shop", "web-0", json!({}));
    let of = |uid: &str| {
        let mut pod = pods::sidecar("shop", "web-0");
        pod["metadata"]["uid"] = uid.into();
        pod.to_string()
    };
    let (older, new) = (of("older"), of(UID));
    let server = ApiServer::scripted(move |asked| match asked.number {
        1 => Answer::Body(200, old.to_string()),
        2 => Answer::Body(200, older.clone()),
        _ => Answer::Body(200, new.clone()),
    });
    let node = Node::with_server(&server);
    let _agent = agent(&node, Some((404, "no such pod")));
    with_uid(&node, "ADD", UID).result();
    assert_eq!(server.asked().len(), 3);
    assert_eq!(node.backend.applied().len(), 1);
}

#[test]
fn a_pod_that_neither_agent_nor_api_server_knows() {
    let limits = weir_cni::plugin::Limits::default();
    // Upstream's plugin makes one attempt per second; the limit must have room for all of them.
    assert!(limits.total > limits.pause * limits.ambient_strict_attempts);
    assert!(limits.total <= Duration::from_secs(40));
    let missing = pods::status(404, "NotFound", "no such pod").to_string();
    let mut other = pods::sidecar("shop", "web-0");
    other["metadata"]["uid"] = "older".into();
    for (answer, words) in [
        (Answer::Body(404, missing), &["404 Not Found"][..]),
        (
            Answer::Body(200, other.to_string()),
            &["not this pod yet", "older", UID],
        ),
    ] {
        let server = ApiServer::always(answer);
        let mut node = Node::with_server(&server);
        node.limits.sidecar_attempts = u32::MAX;
        node.limits.total = Duration::from_secs(2);
        node.limits.pause = Duration::from_millis(500);
        let _agent = agent(&node, Some((404, "no such pod")));
        let begun = Instant::now();
        let error = with_uid(&node, "ADD", UID).error();
        assert!(words.iter().all(|word| error.msg.contains(word)), "{error}");
        assert!(server.asked().len() > 1, "it may be known a moment later");
        // One attempt may be in progress when the limit has passed.
        assert!(
            begun.elapsed() < Duration::from_secs(20),
            "{:?}",
            begun.elapsed()
        );
        assert!(node.backend.applied().is_empty());
    }
}

#[test]
fn no_agent_or_a_socket_that_nobody_serves() {
    for left in [false, true] {
        let server = sidecar_server();
        let node = Node::with_server(&server);
        if left {
            left_over(&node.dir.file(POD_SOCKET));
        }
        with_uid(&node, "ADD", UID).result();
        assert_eq!((node.backend.applied().len(), server.asked().len()), (1, 1));
        assert!(node.dir.read(LOG_FILE).contains("does not listen"));
    }
}

#[test]
fn a_silent_agent_is_asked_once() {
    let status = pods::status(503, "Unavailable", "not now").to_string();
    let pod = pods::sidecar("shop", "web-0").to_string();
    let server = ApiServer::scripted(move |asked| match asked.number {
        1 | 2 => Answer::Body(503, status.clone()),
        _ => Answer::Body(200, pod.clone()),
    });
    let mut node = Node::with_server(&server);
    node.limits.look_up = Duration::from_millis(200);
    let agent = agent(&node, None);
    let begun = Instant::now();
    with_uid(&node, "ADD", UID).result();
    let took = begun.elapsed();
    assert!(
        took >= Duration::from_millis(200) && took < Duration::from_secs(20),
        "{took:?}"
    );
    assert_eq!(server.asked().len(), 3);
    agent.request();
    assert!(agent.is_untouched(), "once");
    // The default is short compared with the kubelet's timeout.
    assert!(weir_cni::plugin::Limits::default().look_up <= Duration::from_secs(2));
}

/// A name alone may be that of an older pod.
#[test]
fn without_a_uid_the_agent_is_not_asked() {
    let server = sidecar_server();
    let node = Node::with_server(&server);
    let agent = agent(&node, Some((200, &known(&pods::sidecar("shop", "web-0")))));
    node.verb("ADD").result();
    assert!(agent.is_untouched());
    assert_eq!(server.asked().len(), 1);
}

#[test]
fn ambient_takes_the_namespace_from_where_it_is_known() {
    let labels = json!({"istio.io/dataplane-mode": "ambient"});
    let mut pod = pods::plain("shop", "web-0", json!({}));
    pod["metadata"]["uid"] = UID.into();
    let namespace = pods::namespace("shop", labels);
    let other = pods::namespace("other", json!({}));
    for (given, requests) in [(namespace.clone(), 0), (Value::Null, 1), (other, 1)] {
        let server = ApiServer::with_pod(Value::Null, namespace.clone());
        let mut node = Node::with_server(&server);
        node.config["ambient_enabled"] = true.into();
        node.config["enablement_selectors"] = json!([{"podSelector": {}, "namespaceSelector":
            {"matchLabels": {"istio.io/dataplane-mode": "ambient"}}}]);
        let answer = json!({"pod": pod, "namespace": given}).to_string();
        let _pods = agent(&node, Some((200, &answer)));
        let events = Agent::listen(&node.dir.file(EVENT_SOCKET), Some((200, "")));
        with_uid(&node, "ADD", UID).result();
        assert!(events.request().1.contains("web-0"));
        assert_eq!(server.asked().len(), requests, "{given}");
    }
}

/// The agent could never start after a reboot if its own pod waited for it.
#[test]
fn the_agents_own_pod_opens_neither_file_nor_socket() {
    for ambient in [false, true] {
        let mut node = Node::new();
        node.config["ambient_enabled"] = ambient.into();
        // A kubeconfig that would be an error to read, and sockets that count connections.
        std::fs::create_dir(node.dir.file(KUBECONFIG)).unwrap();
        let sockets = [POD_SOCKET, EVENT_SOCKET, LOG_SOCKET].map(|name| {
            let socket = UnixListener::bind(node.dir.file(name)).unwrap();
            socket.set_nonblocking(true).unwrap();
            socket
        });
        let args = format!(
            "K8S_POD_NAMESPACE=istio-system;K8S_POD_NAME=istio-cni-node-x7x2p;K8S_POD_UID={UID}"
        );
        let process = node.process("ADD").set("CNI_ARGS", &args);
        node.run(&process).result();
        for socket in &sockets {
            assert_eq!(socket.accept().unwrap_err().kind(), ErrorKind::WouldBlock);
        }
        assert!(!node.dir.file(LOG_FILE).exists());
        // The same call for another pod connects to every socket, and gets no answer.
        node.limits.look_up = Duration::from_millis(100);
        let args = args.replace("istio-cni-node-x7x2p", "web-0");
        let process = node.process("ADD").set("CNI_ARGS", &args);
        assert!(node.run(&process).error().msg.contains(KUBECONFIG));
    }
}
