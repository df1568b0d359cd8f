//! The pods of the node: the watch, and the look-up over the socket.
// matrix: none: about files, sockets and settings of a node, where no rule is made and no kernel is asked

use crate::api_server::{Answer, ApiServer, Asked, Streaming, namespace, pod};
use crate::support::{Agent, BRIDGE, Node, exchange};
use serde_json::{Value, json};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

const WATCHED: &str = "weir_pods_watched";
const SYNCED: &str = "weir_pod_watch_synced";

pub(crate) fn start(node: &Node, server: &ApiServer) -> Agent {
    node.write("net.d/10-pods.conflist", BRIDGE);
    let env = server.env();
    let env: Vec<(&str, &str)> = env.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
    node.ready(&env)
}

pub(crate) fn synced(agent: &Agent, pods: u64) {
    agent.until("synced", || {
        agent.metric(SYNCED) == 1 && agent.metric(WATCHED) == pods
    });
}

/// Sends the request of the plugin.
pub(crate) fn ask(node: &Node, namespace: &str, name: &str, uid: &str) -> (u16, String) {
    let question = json!({"namespace": namespace, "name": name, "uid": uid}).to_string();
    let stream = UnixStream::connect(node.path("run/pods.sock")).unwrap();
    let length = question.len();
    let head = format!("POST /pod HTTP/1.1\r\nHost: unix\r\nContent-Length: {length}\r\n\r\n");
    exchange(stream, &format!("{head}{question}")).expect("an answer")
}

pub(crate) fn lookups(agent: &Agent, result: &str) -> u64 {
    agent.metric(&format!(
        "weir_plugin_pod_lookups_total{{result=\"{result}\"}}"
    ))
}

fn restarts(agent: &Agent, reason: &str) -> u64 {
    agent.metric(&format!(
        "weir_pod_watch_restarts_total{{reason=\"{reason}\"}}"
    ))
}

#[test]
fn pods_are_followed_and_looked_up() {
    let server = ApiServer::start();
    for n in 0..120 {
        server.put(pod("shop", &format!("web-{n}"), &format!("uid-{n}")));
    }
    let mut elsewhere = pod("shop", "elsewhere", "uid-e");
    elsewhere["spec"]["nodeName"] = "node2".into();
    server.put(elsewhere);
    server.put(namespace("shop"));
    let node = Node::new();
    let agent = start(&node, &server);
    synced(&agent, 120);
    assert_eq!(node.mode("run/pods.sock"), 0o600);
    let (status, text) = ask(&node, "shop", "web-7", "uid-7");
    let answer: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(
        (status, &answer["pod"]["metadata"]["uid"]),
        (200, &json!("uid-7"))
    );
    // The agent requests only the metadata of namespaces.
    agent.until("the namespace", || {
        let (_, text) = ask(&node, "shop", "web-7", "uid-7");
        text.contains("kubernetes.io/metadata.name")
    });
    let asked = server.asked();
    let of_namespaces = asked
        .iter()
        .find(|a| a.path == "/api/v1/namespaces")
        .unwrap();
    assert!(of_namespaces.headers["accept"].contains("PartialObjectMetadata"));
    // Another pod with that name, and a pod of another node.
    for (name, uid) in [("web-7", "uid-8"), ("web-7", ""), ("elsewhere", "uid-e")] {
        let begun = Instant::now();
        assert_eq!(ask(&node, "shop", name, uid).0, 404, "{name} {uid}");
        assert!(
            begun.elapsed() >= Duration::from_millis(900),
            "it is waited for"
        );
    }
    server.remove(&pod("shop", "web-7", "uid-7"));
    synced(&agent, 119);
    assert_eq!(ask(&node, "shop", "web-7", "uid-7").0, 404);
    assert_eq!(lookups(&agent, "unknown"), 4);
    // Invalid requests on the socket do no harm.
    for body in ["", "{}{", "[1]", &"x".repeat(10_000)] {
        let stream = UnixStream::connect(node.path("run/pods.sock")).unwrap();
        let length = body.len();
        let request =
            format!("POST /pod HTTP/1.1\r\nHost: x\r\nContent-Length: {length}\r\n\r\n{body}");
        let status = exchange(stream, &request).map(|(status, _)| status);
        assert!(matches!(status, Some(400) | None), "{status:?}");
    }
    assert_eq!(ask(&node, "shop", "web-8", "uid-8").0, 200);
    // All of this took one list and one watch for each kind.
    let of_pods = server.asked().iter().filter(|a| a.is_for_pods()).count();
    assert_eq!(of_pods, 1, "{:?}", server.asked());
}

#[test]
fn a_pod_that_comes_is_waited_for() {
    let server = ApiServer::start();
    let node = Node::new();
    let agent = start(&node, &server);
    synced(&agent, 0);
    // On a busy machine the pod may arrive after the second that the agent waits.
    let is_found = (0..10).any(|n| {
        let (late, other) = (format!("late-{n}"), format!("other-{n}"));
        let begun = Instant::now();
        let answer = std::thread::scope(|scope| {
            let asking = scope.spawn(|| ask(&node, "shop", &late, "uid-1"));
            // A change of another pod does not end the wait.
            server.put(pod("shop", &other, "uid-2"));
            synced(&agent, 2 * n + 1);
            server.put(pod("shop", &late, "uid-1"));
            asking.join().unwrap()
        });
        synced(&agent, 2 * n + 2);
        let waited = begun.elapsed() >= Duration::from_secs(1);
        assert!(answer.0 == 200 || waited, "{answer:?}");
        answer.0 == 200
    });
    assert!(is_found, "{}", agent.log());
}

#[test]
fn servers_without_streaming_lists() {
    // The first case takes as long as the agent waits for the stream.
    for streaming in [
        Streaming::Ignored,
        Streaming::Invalid,
        Streaming::ErrorEvent,
        Streaming::StatusObject,
    ] {
        let server = ApiServer::start().with(streaming);
        for n in 0..120 {
            server.put(pod("shop", &format!("web-{n}"), "u"));
        }
        let node = Node::new();
        let agent = start(&node, &server);
        synced(&agent, 120);
        agent.says("no streaming lists");
        server.put(pod("shop", "new", "uid-n"));
        synced(&agent, 121);
        server.gone();
        server.put(pod("shop", "newer", "uid-n"));
        synced(&agent, 122);
        // The agent does not request a stream again.
        let asked = server.asked();
        let streams = asked
            .iter()
            .filter(|a| a.is_for_pods() && a.streams())
            .count();
        let lists = asked
            .iter()
            .filter(|a| a.is_for_pods() && !a.is_watch())
            .count();
        assert!(
            streams == 1 && lists >= 3,
            "{streaming:?}: {streams} {lists}"
        );
    }
}

#[test]
fn a_watch_that_misbehaves() {
    let huge = [
        b"{\"type\":\"ADDED\",\"object\":{\"x\":\"".to_vec(),
        vec![b'x'; 20 << 20],
    ]
    .concat();
    let faults = [
        Answer::Raw(b"220 mail.example.org ESMTP\r\n\r\n".to_vec()),
        Answer::Raw(Vec::new()),
        Answer::Status(500),
        Answer::Status(503),
        Answer::Status(429),
        Answer::Chunk(b"<html>login</html>\n".to_vec()),
        Answer::Chunk(b"\xff\xfe\0\n".to_vec()),
        Answer::Chunk(Vec::new()),
        Answer::Chunk(b"{\"type\":\"ADDED\",\"object\":{}}\n{\"type\":\"ADDED\"}\n".to_vec()),
        Answer::Half(b"{\"type\":\"ADDED\",\"object\":{\"metada".to_vec()),
        Answer::Chunk(huge),
        Answer::Drip(Duration::from_millis(300)),
    ];
    for fault in faults {
        let shown = format!("{fault:?}").chars().take(80).collect::<String>();
        let server = ApiServer::start();
        server.put(pod("shop", "web-0", "uid-0"));
        let count = AtomicU32::new(0);
        let again = fault.clone();
        // The fault affects the list, if there is one, and the watch after it.
        server.fault(move |asked| {
            let misbehaves = asked.is_for_pods() && count.fetch_add(1, Ordering::Relaxed) < 2;
            misbehaves.then(|| again.clone())
        });
        let node = Node::new();
        let agent = start(&node, &server);
        synced(&agent, 1);
        server.put(pod("shop", "web-1", "uid-1"));
        synced(&agent, 2);
        agent.until("ready", || agent.is_ready());
        let warnings = agent.log().matches("are not watched").count();
        assert!(warnings <= 2, "{shown}: {}", agent.log());
    }
}

#[test]
fn what_is_too_old_is_listed_anew() {
    let server = ApiServer::start();
    server.put(pod("shop", "web-0", "uid-0"));
    let node = Node::new();
    let agent = start(&node, &server);
    synced(&agent, 1);
    // No event reports these changes.
    for n in 1..4 {
        server.put(pod("shop", &format!("web-{n}"), "u"));
        server.gone();
    }
    agent.until("a list", || restarts(&agent, "gone") >= 1);
    synced(&agent, 4);
    // Every watch ends like this; the agent must make longer and longer pauses.
    server.fault(|asked| {
        let gone = b"{\"type\":\"ERROR\",\"object\":{\"code\":410,\"message\":\"\",\"reason\":\"Expired\",\"status\":\"Failure\"}}\n";
        asked.is_for_pods().then(|| Answer::Chunk(gone.to_vec()))
    });
    server.gone();
    let before = server.asked().len();
    agent.until("some rounds", || restarts(&agent, "gone") >= 4);
    assert!(server.asked().len() - before < 20, "no storm of our own");
    assert_eq!(agent.metric(WATCHED), 4, "what is known stays");
    assert_eq!(ask(&node, "shop", "web-3", "u").0, 200);
}

/// A proxy may answer from its cache with another status.
#[test]
fn a_list_with_another_status_than_200_is_no_list() {
    let server = ApiServer::start().with(Streaming::Invalid);
    server.put(pod("shop", "web-0", "uid-0"));
    let node = Node::new();
    let agent = start(&node, &server);
    synced(&agent, 1);
    for status in [203, 206] {
        let body = r#"{"kind": "PodList", "metadata": {"resourceVersion": "1"}, "items": []}"#;
        let length = body.len();
        let text = format!("HTTP/1.1 {status} X\r\nContent-Length: {length}\r\n\r\n{body}");
        server.fault(move |asked| {
            let is_list = asked.is_for_pods() && !asked.is_watch();
            is_list.then(|| Answer::Raw(text.clone().into_bytes()))
        });
        let before = restarts(&agent, "unreachable");
        server.gone();
        agent.until("refused", || restarts(&agent, "unreachable") > before);
        agent.says(&format!("status {status}"));
        assert_eq!(agent.metric(WATCHED), 1);
        server.fault(|_| None);
        synced(&agent, 1);
    }
}

fn garbage(agent: &Agent) -> u64 {
    restarts(agent, "garbage")
}

/// Otherwise all pods would count as deleted, and ztunnel would drop them.
#[test]
fn a_list_of_another_kind_is_no_list() {
    let rest = r#""metadata": {"resourceVersion": "1"}, "items": []}"#;
    for (path, head, words) in [
        (
            "/api/v1/pods",
            r#"{"kind": "NamespaceList","#,
            "kind NamespaceList instead of PodList",
        ),
        ("/api/v1/pods", "{", "no kind instead of PodList"),
        (
            "/api/v1/namespaces",
            r#"{"kind": "ConfigMapList","#,
            "kind ConfigMapList instead of PartialObjectMetadataList or NamespaceList",
        ),
    ] {
        let server = ApiServer::start().with(Streaming::Invalid);
        server.put(pod("shop", "web-0", "uid-0"));
        server.put(namespace("shop"));
        let node = Node::new();
        let agent = start(&node, &server);
        synced(&agent, 1);
        let is_known = || {
            let (status, text) = ask(&node, "shop", "web-0", "uid-0");
            status == 200 && text.contains("kubernetes.io/metadata.name")
        };
        agent.until("known", is_known);
        let body = format!("{head} {rest}");
        server.fault(move |asked| {
            let is_list = asked.path == path && !asked.is_watch();
            is_list.then(|| Answer::Chunk(body.clone().into_bytes()))
        });
        server.gone();
        agent.until("refused", || garbage(&agent) > 0);
        assert_eq!(agent.metric(WATCHED), 1, "{words}");
        assert!(is_known(), "{words}");
        if path.ends_with("pods") {
            agent.says(words);
            agent.until("shown", || agent.metric(SYNCED) == 0);
        }
        server.fault(|_| None);
        synced(&agent, 1);
    }
}

/// The agent takes nothing from such an event, and lists the pods to find what it missed.
#[test]
fn an_event_of_another_kind_is_none_of_a_pod() {
    let server = ApiServer::start();
    server.put(pod("shop", "web-0", "uid-0"));
    let node = Node::new();
    let agent = start(&node, &server);
    synced(&agent, 1);
    let mut other = pod("shop", "web-0", "uid-0");
    other["kind"] = "ConfigMap".into();
    other["metadata"]["resourceVersion"] = "1000".into();
    for (kind, next) in [("MODIFIED", 2), ("DELETED", 3)] {
        let event = json!({"type": kind, "object": other});
        let lines = format!("{event}\n").into_bytes();
        server.fault(move |asked| {
            let is_resumed = asked.is_for_pods() && asked.is_watch() && !asked.streams();
            is_resumed.then(|| Answer::Chunk(lines.clone()))
        });
        let before = garbage(&agent);
        server.end();
        agent.until("refused", || garbage(&agent) > before);
        agent.says("kind ConfigMap instead of Pod");
        assert_eq!(agent.metric(WATCHED), next - 1);
        assert_eq!(ask(&node, "shop", "web-0", "uid-0").0, 200);
        server.fault(|_| None);
        // When the agent has this pod, it has a new watch.
        server.put(pod("shop", &format!("web-{next}"), "uid-n"));
        synced(&agent, next);
    }
}

/// A busy server specifies how long to wait.
#[test]
fn a_server_that_wants_to_be_left_alone_is() {
    let server = ApiServer::start();
    server.put(pod("shop", "web-0", "uid-0"));
    let (asked, times) = std::sync::mpsc::channel();
    server.fault(move |request| {
        if !request.is_for_pods() {
            return None;
        }
        asked.send(Instant::now()).unwrap();
        // The body is plain text, as in answers that the API server sends before it authenticates the client.
        let answer = "HTTP/1.1 429 X\r\nRetry-After: 3\r\nContent-Length: 4\r\n\r\nbusy";
        Some(Answer::Raw(answer.into()))
    });
    let node = Node::new();
    let agent = start(&node, &server);
    let next = || times.recv_timeout(crate::support::PATIENCE).unwrap();
    let (first, second) = (next(), next());
    let since = second.duration_since(first);
    assert!(since >= Duration::from_secs(3), "{since:?}");
    server.fault(|_| None);
    synced(&agent, 1);
}

/// The next list contains the changes that a watch can no longer report.
#[test]
fn what_was_missed_is_listed_anew() {
    let later = br#"{"type":"BOOKMARK","object":{"kind":"Pod","apiVersion":"v1","metadata":{"resourceVersion":"1000"}}}"#;
    let unreadable = [b"{\"type\":\"ADDED\",\"object\":{}}\n", &later[..], b"\n"].concat();
    // The version is too old or unknown to this server, or events before it were unreadable.
    let refusals = [Answer::Status(410), Answer::Status(400)];
    for fault in refusals.into_iter().chain([Answer::Chunk(unreadable)]) {
        let server = ApiServer::start();
        server.put(pod("shop", "web-0", "uid-0"));
        let node = Node::new();
        let agent = start(&node, &server);
        synced(&agent, 1);
        server.fault(move |asked| {
            let resumed = asked.is_for_pods() && asked.is_watch() && !asked.streams();
            resumed.then(|| fault.clone())
        });
        server.end();
        let resumed = |server: &ApiServer| {
            let of_pods = |a: &&Asked| a.is_for_pods() && !a.streams();
            server.asked().iter().filter(of_pods).count()
        };
        agent.until("resumed", || resumed(&server) >= 1);
        server.put(pod("shop", "web-1", "uid-1"));
        synced(&agent, 2);
    }
}

/// kube's client takes a line that ends within its event for the end of the watch, and drops it.
#[test]
fn an_event_that_ends_within_its_line_is_listed_anew() {
    let later = br#"{"type":"BOOKMARK","object":{"kind":"Pod","apiVersion":"v1","metadata":{"resourceVersion":"1000"}}}"#;
    let cut = [b"{\"type\":\"ADDED\",\"obj\n", &later[..], b"\n"].concat();
    let server = ApiServer::start();
    server.put(pod("shop", "web-0", "uid-0"));
    let node = Node::new();
    let agent = start(&node, &server);
    synced(&agent, 1);
    let is_first = std::sync::atomic::AtomicBool::new(true);
    server.fault(move |asked| {
        let resumed = asked.is_for_pods() && asked.is_watch() && !asked.streams();
        let cuts = resumed && is_first.swap(false, Ordering::Relaxed);
        cuts.then(|| Answer::Chunk(cut.clone()))
    });
    let garbage = || restarts(&agent, "garbage");
    server.end();
    agent.until("told", || garbage() >= 1);
    server.put(pod("shop", "web-1", "uid-1"));
    synced(&agent, 2);
}

#[test]
fn a_token_that_was_renewed_is_used() {
    let server = ApiServer::start();
    server.put(pod("shop", "web-0", "uid-0"));
    server.accept("token-2");
    let node = Node::new();
    let agent = start(&node, &server);
    agent.until("a refusal", || restarts(&agent, "unauthorized") >= 1);
    agent.says("is not accepted");
    assert_eq!(ask(&node, "shop", "web-0", "uid-0").0, 503);
    node.write("account/token", "token-2\n");
    synced(&agent, 1);
    assert_eq!(ask(&node, "shop", "web-0", "uid-0").0, 200);
}

#[test]
fn the_authority_may_be_renewed_too() {
    let server = ApiServer::start();
    server.put(pod("shop", "web-0", "uid-0"));
    let node = Node::new();
    node.write("account/ca.crt", &server.encrypt());
    let agent = start(&node, &server);
    synced(&agent, 1);
    let next = server.encrypt();
    server.gone();
    let remedy = "CA of the service account";
    agent.until("a refusal", || agent.log().contains(remedy));
    // The agent writes the log first.
    agent.until("counted", || restarts(&agent, "tls") >= 1);
    server.put(pod("shop", "web-1", "uid-1"));
    node.write("account/ca.crt", &next);
    synced(&agent, 2);
}

#[test]
fn without_an_api_server_what_is_known_is_served() {
    let mut server = ApiServer::start();
    server.put(pod("shop", "web-0", "uid-0"));
    let node = Node::new();
    let agent = start(&node, &server);
    synced(&agent, 1);
    server.stop();
    agent.until("noticed", || agent.metric(SYNCED) == 0);
    assert_eq!(ask(&node, "shop", "web-0", "uid-0").0, 200);
    agent.until("several attempts", || restarts(&agent, "unreachable") >= 3);
    let said = |agent: &Agent| agent.log().matches("node1 are not watched").count();
    agent.says("node1 are not watched");
    assert_eq!(said(&agent), 1, "said once: {}", agent.log());
    agent.until("ready", || agent.is_ready());
    // An API server that never answers: the agent installs and serves anyway.
    let second = Node::new();
    let agent = start(&second, &server);
    agent.until("said", || said(&agent) == 1);
    assert_eq!(ask(&second, "shop", "web-0", "uid-0").0, 503);
}

#[test]
fn repair_of_another_node_than_the_one_that_is_watched_is_warned_of() {
    let node = Node::new();
    node.write("net.d/10-pods.conflist", BRIDGE);
    for (name, is_warned) in [("node1", false), ("node2", true), ("", true)] {
        let agent = node.ready(&[("NODE_NAME", "node1"), ("REPAIR_NODE_NAME", name)]);
        let words = format!("REPAIR_NODE_NAME={name:?} is not NODE_NAME=\"node1\"");
        if is_warned {
            agent.says(&words);
        }
        assert_eq!(agent.log().contains(&words), is_warned, "{}", agent.log());
    }
}

#[test]
fn without_a_node_name_nothing_is_watched() {
    let node = Node::new();
    node.write("net.d/10-pods.conflist", BRIDGE);
    for (name, words) in [
        ("", "NODE_NAME is not set"),
        ("a&b", "not the name of a node"),
    ] {
        let agent = node.ready(&[("NODE_NAME", name)]);
        agent.says(words);
        assert!(!node.exists("run/pods.sock"));
    }
}
