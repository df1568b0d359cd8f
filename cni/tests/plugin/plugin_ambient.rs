//! Ambient pods: the decision, and the hand-over to the node agent.
// matrix: none: about values and programs, with no namespace, no rule and no kernel

use std::time::{Duration, Instant};

use crate::common::agent::Agent;
use crate::common::api_server::{Answer, ApiServer};
use crate::common::call::FakeProcess;
use crate::common::node::Node;
use crate::common::pods;
use serde_json::{Value, json};
use weir_cni::plugin::EVENT_SOCKET;

const MODE: &str = "istio.io/dataplane-mode";

/// A node with the selectors that the chart writes.
fn ambient_node(server: &ApiServer) -> Node {
    let mut node = Node::with_server(server);
    node.config["cniVersion"] = "1.0.0".into();
    node.config["ambient_enabled"] = true.into();
    node.config["enable_ambient_detection_retry"] = false.into();
    let not_none = json!([{"key": MODE, "operator": "NotIn", "values": ["none"]}]);
    node.config["enablement_selectors"] = json!([
        {"podSelector": {"matchLabels": {MODE: "ambient"}}, "namespaceSelector": {}},
        {"podSelector": {"matchExpressions": not_none},
         "namespaceSelector": {"matchLabels": {MODE: "ambient"}}},
    ]);
    node.config["prevResult"] = json!({"cniVersion": "1.0.0", "ips": [
        {"address": "10.1.0.5/24", "gateway": "10.1.0.1", "interface": 2}]});
    node
}

fn agent(node: &Node, answer: Option<(u16, &str)>) -> Agent {
    Agent::listen(&node.dir.file(EVENT_SOCKET), answer)
}

fn server(pod_labels: Value, namespace_labels: Value) -> ApiServer {
    let pod = pods::plain("shop", "web-0", pod_labels);
    ApiServer::with_pod(pod, pods::namespace("shop", namespace_labels))
}

fn ambient() -> Value {
    json!({MODE: "ambient"})
}

#[test]
fn ambient_by_pod_or_by_namespace() {
    for (pod, namespace) in [
        (ambient(), json!({})),
        (json!({}), ambient()),
        (ambient(), ambient()),
    ] {
        let server = server(pod, namespace);
        let node = ambient_node(&server);
        let agent = agent(&node, Some((200, "")));
        let mut expected = node.config["prevResult"].clone();
        expected["cniVersion"] = "1.0.0".into();
        assert_eq!(node.verb("ADD").result(), expected);
        let (head, body) = agent.request();
        assert!(head.starts_with("POST /cmdadd HTTP/1.1\r\n"), "{head}");
        assert!(
            head.contains("Content-Type: application/json\r\n"),
            "{head}"
        );
        assert_eq!(
            serde_json::from_str::<Value>(&body).unwrap(),
            json!({"Netns": "/run/netns/does-not-exist", "PodName": "web-0",
                   "PodNamespace": "shop",
                   "IPs": [{"Interface": 2, "Gateway": "10.1.0.1",
                            "Address": {"IP": "10.1.0.5", "Mask": "////AA=="}}]})
        );
        assert!(
            node.backend.applied().is_empty(),
            "the sidecar part was reached"
        );
        assert!(agent.is_untouched());
    }
}

/// The plugin asks the agent, which compares the rules of the pod.
#[test]
fn check_is_what_the_agent_says_of_the_pod() {
    let server = server(ambient(), json!({}));
    for (answer, error) in [
        (Some((200, "")), None),
        // An older agent, or Istio's.
        (Some((404, "post a pod")), None),
        (
            Some((500, "it is failed: no rules")),
            Some("500: it is failed: no rules"),
        ),
        // The agent has not seen the pod yet, or it is being deleted.
        (Some((503, "told of no such pod")), None),
        // Without an answer CHECK reports no difference.
        (None, None),
    ] {
        let mut node = ambient_node(&server);
        node.limits.hand_over = match answer {
            Some(_) => node.limits.hand_over,
            None => Duration::from_millis(100),
        };
        let agent = agent(&node, answer);
        let checked = node.verb("CHECK");
        match error {
            None => checked.assert_silent(),
            Some(words) => {
                let error = checked.error();
                assert_eq!(error.code, 100);
                assert!(error.msg.contains(words), "{error}");
            }
        }
        let log = node.dir.read(weir_cni::plugin::LOG_FILE);
        let is_unknown = !matches!(answer, Some((200 | 500, _)));
        assert_eq!(log.contains("is not known"), is_unknown, "{log}");
        let (head, body) = agent.request();
        assert!(head.starts_with("POST /cmdcheck HTTP/1.1\r\n"), "{head}");
        let body: Value = serde_json::from_str(&body).unwrap();
        assert_eq!(
            (&body["PodName"], &body["PodNamespace"]),
            (&json!("web-0"), &json!("shop"))
        );
    }
    // Nothing listens on the socket.
    let node = ambient_node(&server);
    node.verb("CHECK").assert_silent();
}

#[test]
fn not_ambient() {
    let mut host = pods::plain("shop", "web-0", ambient());
    host["spec"]["hostNetwork"] = true.into();
    let sidecar = pods::sidecar("shop", "web-0");
    let none = pods::plain("shop", "web-0", json!({MODE: "none"}));
    let plain = pods::plain("shop", "web-0", json!({}));
    for (pod, namespace, redirected) in [
        (host, ambient(), 0),
        (sidecar, ambient(), 1),
        (none, ambient(), 0),
        (plain, json!({}), 0),
    ] {
        let server = ApiServer::with_pod(pod, pods::namespace("shop", namespace));
        let mut node = ambient_node(&server);
        // The first decision may use all the time; the second one has a pause's.
        node.limits.total = Duration::ZERO;
        node.limits.pause = Duration::from_secs(10);
        let agent = agent(&node, Some((200, "")));
        node.verb("ADD").result();
        assert!(agent.is_untouched());
        assert_eq!(node.backend.applied().len(), redirected);
    }
}

#[test]
fn no_previous_result_is_null() {
    let server = server(ambient(), json!({}));
    let mut node = ambient_node(&server);
    node.config["prevResult"] = Value::Null;
    let agent = agent(&node, Some((200, "")));
    assert_eq!(node.verb("ADD").result(), json!({"cniVersion": "1.0.0"}));
    let body: Value = serde_json::from_str(&agent.request().1).unwrap();
    assert_eq!(body.get("IPs"), Some(&Value::Null));
}

#[test]
fn the_agents_refusal_fails_the_add() {
    let server = server(ambient(), json!({}));
    for (status, text) in [(400, "unreadable"), (500, "no such pod"), (204, "what")] {
        let node = ambient_node(&server);
        let _agent = agent(&node, Some((status, text)));
        let error = node.verb("ADD").error();
        assert_eq!(error.code, 999);
        assert!(
            error.msg.contains(&status.to_string()) && error.msg.contains(text),
            "{error}"
        );
    }
}

/// The body adds nothing to the status, and may be late or broken.
#[test]
fn the_status_of_the_agents_answer_decides() {
    let server = server(ambient(), json!({}));
    let raw = |text: &str| Some(text.to_owned());
    for answer in [
        "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nshort",
        "HTTP/1.1 200 OK\r\nContent-Length: many\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nno size",
    ] {
        let node = ambient_node(&server);
        let _agent = Agent::listen_raw(&node.dir.file(EVENT_SOCKET), raw(answer));
        node.verb("ADD").result();
    }
    for (answer, words) in [
        (
            "HTTP/1.1 500 X\r\nContent-Length: 99\r\n\r\nno such pod",
            "status 500: no such pod",
        ),
        (
            "HTTP/1.1 503 X\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nlater\r\nx",
            "status 503: later",
        ),
        (
            "HTTP/1.1 400 X\r\nContent-Length: many\r\n\r\n",
            "status 400",
        ),
    ] {
        let node = ambient_node(&server);
        let _agent = Agent::listen_raw(&node.dir.file(EVENT_SOCKET), raw(answer));
        let error = node.verb("ADD").error();
        assert!(error.msg.contains(words), "{words}: {error}");
    }
    // An endless body is read up to its limit.
    let node = ambient_node(&server);
    let endless = format!("HTTP/1.1 500 X\r\n\r\n{}", "x".repeat(2 << 20));
    let _agent = Agent::listen_raw(&node.dir.file(EVENT_SOCKET), Some(endless));
    let error = node.verb("ADD").error();
    assert!(error.msg.contains("status 500: xxx"), "{}", error.code);
    assert!(
        error.msg.len() < (1 << 20) + 1000,
        "{} bytes",
        error.msg.len()
    );
}

#[test]
fn an_agent_that_is_away_or_silent() {
    let server = server(ambient(), json!({}));
    let mut node = ambient_node(&server);
    let error = node.verb("ADD").error();
    assert!(
        error.msg.contains(EVENT_SOCKET) && error.msg.contains("agent's pod"),
        "{error}"
    );
    let _agent = agent(&node, None);
    node.limits.hand_over = Duration::from_millis(100);
    let started = Instant::now();
    let error = node.verb("ADD").error();
    assert!(error.msg.contains("no answer within 100ms"), "{error}");
    assert!(started.elapsed() < Duration::from_secs(30));
}

#[test]
fn a_failed_decision_fails_or_falls_through() {
    // Pods can be read; namespaces cannot.
    let pod = pods::sidecar("shop", "web-0").to_string();
    let server = ApiServer::scripted(move |asked| match asked.path.contains("/pods/") {
        true => Answer::Body(200, pod.clone()),
        false => Answer::Status(403),
    });
    let mut node = ambient_node(&server);
    let namespace_requests = || {
        let asked = server.asked();
        asked.iter().filter(|a| !a.path.contains("/pods/")).count()
    };
    node.verb("ADD").result();
    assert_eq!(namespace_requests(), 2, "one retry");
    assert_eq!(node.backend.applied().len(), 1, "went on as a sidecar pod");
    for setting in [json!(true), Value::Null] {
        let before = namespace_requests();
        node.config["enable_ambient_detection_retry"] = setting;
        let error = node.verb("ADD").error();
        assert!(
            error.msg.contains("namespace shop") && error.msg.contains("403"),
            "{error}"
        );
        assert_eq!(namespace_requests() - before, 4);
    }
    assert_eq!(node.backend.applied().len(), 1);
}

#[test]
fn a_selector_that_does_not_compile() {
    let server = server(ambient(), json!({}));
    let mut node = ambient_node(&server);
    node.config["enablement_selectors"] =
        json!([{"podSelector": {"matchExpressions": [{"key": "a", "operator": "Like"}]}}]);
    node.verb("ADD").result();
    node.config["enable_ambient_detection_retry"] = true.into();
    let error = node.verb("ADD").error();
    assert!(error.msg.contains("AMBIENT_ENABLEMENT_SELECTOR"), "{error}");
    let place = "enablement_selectors[0].podSelector.matchExpressions[0].operator: \"Like\"";
    assert!(error.msg.contains(place), "{error}");
}

/// Upstream's plugin accepts keys in any case, too.
#[test]
fn keys_of_the_configuration_have_any_case() {
    let server = server(ambient(), json!({}));
    let node = ambient_node(&server);
    let agent = agent(&node, Some((200, "")));
    let config = json!({"CNIVersion": "1.0.0", "Name": "net", "TYPE": "istio-cni", "Ambient_Enabled": true,
        "CNI_Agent_Run_Dir": node.dir.path(), "Enablement_Selectors": [{"PodSelector": {"MatchLabels": {MODE: "ambient"}}}],
        "PrevResult": {"cniVersion": "1.0.0", "ips": [{"address": "10.1.0.5/24"}]}});
    let process = FakeProcess::new("ADD", &config.to_string()).pod("shop", "web-0");
    let result = node.run(&process).result();
    assert_eq!(result["ips"][0]["address"], "10.1.0.5/24");
    let body: Value = serde_json::from_str(&agent.request().1).unwrap();
    assert_eq!(body["IPs"][0]["Address"]["IP"], "10.1.0.5");
}
