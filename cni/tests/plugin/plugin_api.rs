//! Failures of the API server, its kubeconfig, and the connection.
// matrix: none: about values and programs, with no namespace, no rule and no kernel

use std::time::{Duration, Instant};

use crate::common::api_server::{Answer, ApiServer, other_ca, write_kubeconfig};
use crate::common::node::Node;
use crate::common::pods;
use serde_json::Value;

fn sidecar_server() -> ApiServer {
    ApiServer::with_pod(pods::sidecar("shop", "web-0"), Value::Null)
}

#[test]
fn failures_of_the_server_are_told_apart() {
    let status = |code, reason: &str| {
        Answer::Body(
            code,
            pods::status(code, reason, "the server says so").to_string(),
        )
    };
    let other = pods::sidecar("other", "web-0").to_string();
    for (answer, words) in [
        (status(401, "Unauthorized"), ["401", "token"]),
        (status(403, "Forbidden"), ["403", "ClusterRole"]),
        (status(404, "NotFound"), ["404", "deleted"]),
        (status(503, "Unavailable"), ["503", "the server says so"]),
        (
            Answer::Body(200, "<html>login</html>".into()),
            ["not the expected JSON", "<html>"],
        ),
        (
            Answer::Body(200, "{}".into()),
            ["not the expected JSON", "about"],
        ),
        (Answer::Body(200, other), ["not the expected JSON", "other"]),
        (
            Answer::Raw(b"220 mail.example.org ESMTP\r\n\r\n".to_vec()),
            ["request failed", "HTTP"],
        ),
    ] {
        let server = ApiServer::always(answer);
        let node = Node::with_server(&server);
        let error = node.verb("ADD").error();
        assert_eq!(error.code, 999);
        let common = ["shop/web-0", "istio-cni-kubeconfig", "https://127.0.0.1"];
        for word in words.iter().chain(&common) {
            assert!(error.msg.contains(word), "{word:?} is not in: {error}");
        }
        assert!(error.details.contains("3 attempts"), "{error}");
        assert_eq!(server.asked().len(), 3, "{error}");
        assert!(node.backend.applied().is_empty());
    }
}

/// Another request would get the same answer while the runtime waits.
#[test]
fn an_answer_that_stays_as_it_is_is_not_asked_for_again_and_again() {
    let mut text = pods::sidecar("shop", "web-0");
    text["spec"]["containers"][0]["securityContext"] = serde_json::json!({"runAsUser": "1337"});
    let mut number = pods::sidecar("shop", "web-0");
    number["metadata"]["annotations"]["a"] = 1.into();
    let mut long = pods::sidecar("shop", "web-0");
    long["metadata"]["annotations"]["a"] = "x".repeat(17 << 20).into();
    let mut quoted = pods::sidecar("shop", "web-0");
    quoted["spec"]["hostNetwork"] = "x".repeat(100_000).into();
    for (body, words) in [
        ("{\"spec\":[]}".to_owned(), ["spec", "other types"]),
        (text.to_string(), ["runAsUser", "in quotes"]),
        (number.to_string(), ["annotations", "in quotes"]),
        (quoted.to_string(), ["hostNetwork", "bytes)"]),
        (long.to_string(), ["more than 16 MiB", "no API server"]),
    ] {
        let server = ApiServer::always(Answer::Body(200, body));
        let mut node = Node::with_server(&server);
        node.limits.sidecar_attempts = 30;
        node.limits.request = Duration::from_secs(20);
        let error = node.verb("ADD").error();
        for word in words {
            assert!(error.msg.contains(word), "{word:?} is not in: {error}");
        }
        assert!(error.msg.len() < 2000, "{} bytes", error.msg.len());
        assert!(error.details.contains("2 attempts"), "{error}");
        assert_eq!(server.asked().len(), 2, "{error}");
    }
}

/// A server that starts may give another answer later.
#[test]
fn a_pod_that_is_gone_is_asked_for_five_times() {
    let gone = pods::status(404, "NotFound", "no such pod").to_string();
    for (answer, attempts) in [((404, gone), 5), ((503, "starting".to_owned()), 7)] {
        let server = ApiServer::always(Answer::Body(answer.0, answer.1));
        let mut node = Node::with_server(&server);
        node.limits.sidecar_attempts = 7;
        let error = node.verb("ADD").error();
        assert_eq!(server.asked().len(), attempts, "{error}");
    }
}

#[test]
fn a_server_that_is_not_there() {
    let node = Node::new();
    let (_nobody, port) = weir_testing::sockets::refusing();
    write_kubeconfig(&node.dir, port, &other_ca());
    let error = node.verb("ADD").error();
    assert!(
        error.msg.contains("not reachable") && error.msg.contains("refused"),
        "{error}"
    );
}

#[test]
fn a_server_of_another_authority() {
    let server = sidecar_server();
    let node = Node::new();
    write_kubeconfig(&node.dir, server.port, &other_ca());
    let error = node.verb("ADD").error();
    assert!(error.msg.contains("TLS handshake failed"), "{error}");
    assert!(
        server.asked().is_empty(),
        "the token was shown to a stranger"
    );
}

#[test]
fn a_server_that_hangs_costs_no_more_than_the_limits() {
    let server = ApiServer::always(Answer::Hang);
    let mut node = Node::with_server(&server);
    // Not each attempt needs to arrive: a handshake may take longer on a busy machine.
    node.limits.request = Duration::from_millis(700);
    let started = Instant::now();
    let error = node.verb("ADD").error();
    assert!(error.msg.contains("too slow"), "{error}");
    assert!(error.details.contains("3 attempts"), "{error}");
    node.limits.request = Duration::from_secs(60);
    node.limits.total = Duration::from_millis(100);
    let error = node.verb("ADD").error();
    assert!(error.details.contains("1 attempts"), "{error}");
    assert!(started.elapsed() < Duration::from_secs(30));
}

#[test]
fn a_server_that_comes_back() {
    let pod = pods::sidecar("shop", "web-0").to_string();
    let server = ApiServer::scripted(move |asked| match asked.number {
        1 => Answer::Body(500, "oops".into()),
        2 => Answer::Body(401, "{}".into()),
        _ => Answer::Body(200, pod.clone()),
    });
    let node = Node::with_server(&server);
    node.verb("ADD").result();
    assert_eq!(node.backend.applied().len(), 1);
}

#[test]
fn kubeconfigs_that_cannot_be_used() {
    let good = |user: &str| {
        format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: c\nclusters:\n- name: k\n  cluster:\n    \
             server: https://127.0.0.1:1\n    insecure-skip-tls-verify: true\ncontexts:\n- name: c\n  \
             context:\n    cluster: k\n    user: u\nusers:\n- name: u\n  user:\n{user}"
        )
    };
    let exec = "    exec:\n      apiVersion: client.authentication.k8s.io/v1\n      \
                command: /bin/touch\n      args: [MARK]\n      interactiveMode: Never\n";
    let provider = "    auth-provider:\n      name: gcp\n      config: {cmd-path: /bin/touch}\n";
    let no_context = good("    token: t\n").replace("current-context: c\n", "");
    let no_server = good("    token: t\n").replace("    server: https://127.0.0.1:1\n", "");
    for (text, word) in [
        (String::new(), "kubeconfig"),
        ("a: [".into(), "YAML"),
        (no_context, "context"),
        (no_server, "url"),
        (good(exec), "runs a program"),
        (good(provider), "runs a program"),
        (good("    username: a\n    password: b\n"), "password"),
        (good("    token: t\n    as: admin\n"), "another user"),
        (good("    token: \"a\\nX: y\"\n"), "token"),
        (good("    tokenFile: nowhere\n"), "nowhere"),
        (
            good("    token: t\n").replace("https://127.0.0.1:1", "http://10.96.0.1"),
            "https://",
        ),
        (
            good("    token: t\n")
                .replace("https://127.0.0.1:1", "ftp://a")
                .replace("    insecure-skip-tls-verify: true\n", ""),
            "does not begin with https://",
        ),
        (good("    client-key-data: eA==\n"), "half"),
        (
            good("    token: t\n").replace(
                "cluster:\n    server",
                "cluster:\n    certificate-authority-data: eA==\n    server",
            ),
            "only one can apply",
        ),
    ] {
        let node = Node::new();
        let mark = node.dir.file("mark");
        let text = text.replace("MARK", &mark.display().to_string());
        node.dir.write(weir_cni::plugin::KUBECONFIG, &text);
        let error = node.verb("ADD").error();
        assert_eq!(error.code, 999, "{error}");
        assert!(
            error.msg.contains(word) && error.msg.contains("node agent"),
            "{error}"
        );
        assert!(!mark.exists(), "a program was run");
    }
}

/// The error reaches the runtime, and from there the pod's events.
#[test]
fn a_token_is_never_in_an_error() {
    let user = |text: &str| format!("users:\n- name: u\n  user:\n{text}");
    for (text, place) in [
        (user("    token: s3cr3t-t0k3n\n   x: y\n"), "line 5"),
        (
            user("    token: [s3cr3t-t0k3n]\n"),
            "users[0].user.token is of the wrong type",
        ),
        (user("    token: s3cr3t-t0k3n\n    token: b\n"), "line 5"),
        (user("    s3cr3t-t0k3n\n"), "users[0].user is of"),
        ("[s3cr3t-t0k3n]\n".into(), "it is not a kubeconfig ("),
        (user("    token: \"s3cr3t-t0k3n\n"), "line"),
    ] {
        let node = Node::new();
        node.dir.write(weir_cni::plugin::KUBECONFIG, &text);
        let error = node.verb("ADD").error().to_string();
        assert!(!error.contains("s3cr3t"), "{error}");
        assert!(error.contains(place), "{error}");
    }
}

/// Every form of authority and token in a kubeconfig that the plugin supports.
#[test]
fn kubeconfigs_that_can_be_used() {
    let server = sidecar_server();
    let files = [
        "    certificate-authority: ca.crt\n",
        "    insecure-skip-tls-verify: true\n",
        "    certificate-authority: ca.crt\n    tls-server-name: 127.0.0.1\n",
    ];
    for (cluster, user) in files.iter().zip([
        "    token: the-token\n",
        "    tokenFile: token\n",
        "    token: the-token\n",
    ]) {
        let node = Node::new();
        node.dir.write("ca.crt", &server.ca_pem());
        node.dir.write("token", "the-token\n");
        let text = format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: c\nclusters:\n- name: k\n  cluster:\n    \
             server: https://127.0.0.1:{}/\n{cluster}contexts:\n- name: c\n  context:\n    \
             cluster: k\n    user: u\nusers:\n- name: u\n  user:\n{user}",
            server.port
        );
        node.dir.write(weir_cni::plugin::KUBECONFIG, &text);
        node.verb("ADD").result();
        let request = server.asked().pop().unwrap();
        assert_eq!(request.headers["authorization"], "Bearer the-token");
    }
}

#[test]
fn a_certificate_for_somebody_else() {
    let server = sidecar_server();
    let node = Node::with_server(&server);
    let text = node.dir.read(weir_cni::plugin::KUBECONFIG);
    let text = text.replace(
        "  name: local",
        "    tls-server-name: api.example.org\n  name: local",
    );
    node.dir.write(weir_cni::plugin::KUBECONFIG, &text);
    let error = node.verb("ADD").error();
    assert!(error.msg.contains("TLS handshake failed"), "{error}");
    assert!(server.asked().is_empty());
}
