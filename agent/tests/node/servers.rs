//! Health, metrics, and the socket for the plugin's log lines, with the plugin's own client.
// matrix: none: about files, sockets and settings of a node, where no rule is made and no kernel is asked

use crate::support::{Agent, BRIDGE, Node, PATIENCE, exchange, get};
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};
use weir_cni::log::Logger;

fn node_and_agent(env: &[(&str, &str)], args: &[&str]) -> (Node, Agent) {
    let node = Node::new();
    node.write("net.d/10-pods.conflist", BRIDGE);
    let mut agent = node.start(env, args);
    agent.wait_ready();
    (node, agent)
}

pub(crate) fn post(node: &Node, body: &str) -> Option<(u16, String)> {
    let stream = UnixStream::connect(node.path("run/log.sock")).unwrap();
    let length = body.len();
    exchange(
        stream,
        &format!("POST /log HTTP/1.1\r\nHost: unix\r\nContent-Length: {length}\r\n\r\n{body}"),
    )
}

#[test]
fn health_and_metrics() {
    let node = Node::new();
    let mut agent = node.start(&[], &[]);
    agent.until("alive", || {
        get(agent.health, "/healthz").is_some_and(|(s, _)| s == 200)
    });
    agent.until("not ready", || {
        let (status, why) = agent.probe("/readyz");
        status == 503 && why.starts_with("plugin installed: ")
    });
    assert_eq!(agent.probe("/").0, 404);
    assert_eq!(agent.metric("istio_cni_install_ready"), 0);
    node.write("net.d/10-pods.conflist", BRIDGE);
    agent.wait_ready();
    assert_eq!(agent.metric("istio_cni_install_ready"), 1);
    assert_eq!(
        agent.metric("istio_cni_installs_total{result=\"SUCCESS\"}"),
        1
    );
    let (_, text) = agent.page("/metrics");
    assert!(
        text.ends_with('\n') && text.contains("weir_build_info{version="),
        "{text}"
    );
    // The agent also works without metrics, and if their port is in use.
    let other = Node::new();
    other.write("net.d/10-pods.conflist", BRIDGE);
    let taken = agent.metrics.to_string();
    let second = other.ready(&[("MONITORING_PORT", &taken)]);
    second.says("no metrics on port");
    let third = other.ready(&[("MONITORING_PORT", "0")]);
    drop((second, third));
}

#[test]
fn the_plugins_own_client_is_heard() {
    let (node, agent) = node_and_agent(&[], &[]);
    let log = Logger::new(Box::new(std::io::sink()));
    log.open_sinks("info", &node.path("plugin.log"), &node.path("run/log.sock"));
    log.label("pod", "shop/web-1");
    log.info("a pod is redirected\nforged\tline");
    log.debug("not for everybody");
    log.flush();
    agent.says("a pod is redirected\\nforged\\tline\tpod=shop/web-1");
    let text = agent.log();
    let line = text
        .lines()
        .find(|l| l.contains("a pod is redirected"))
        .unwrap();
    assert!(
        line.contains("\tinfo\tcni-plugin\ta pod is redirected\\nforged\\tline\tpod=shop/web-1"),
        "{line}"
    );
    assert!(!text.contains("not for everybody"));
    assert_eq!(node.mode("run/log.sock"), 0o666);
}

#[test]
fn lines_as_json_and_levels() {
    let args = [
        "--log_as_json",
        "--log_output_level=cni-agent:debug,cni-plugin:error",
    ];
    let (node, agent) = node_and_agent(&[], &args);
    // The level of the plugin's scope is written for the plugin; the agent logs at its own level.
    assert!(
        node.read("net.d/10-pods.conflist")
            .contains("\"plugin_log_level\": \"error\"")
    );
    let line =
        r#"{"level":"debug","time":"2026-11-20T21:15:02.000001Z","msg":"quiet","pod":"a/b"}"#;
    assert_eq!(
        post(&node, &serde_json::json!([line]).to_string()),
        Some((200, String::new()))
    );
    agent.says("quiet");
    let log = agent.log();
    // The agent may be writing the last line.
    let (whole, _) = log.rsplit_once('\n').unwrap();
    for text in whole.lines() {
        let line: serde_json::Value =
            serde_json::from_str(text).unwrap_or_else(|e| panic!("{text}: {e}"));
        for key in ["level", "time", "scope", "msg"] {
            assert!(line[key].is_string(), "{text}");
        }
        if line["msg"] == "quiet" {
            assert_eq!(
                (line["pod"].as_str(), line["time"].as_str()),
                (Some("a/b"), Some("2026-11-20T21:15:02.000001Z"))
            );
        }
    }
}

#[test]
fn peers_that_misbehave_are_survived() {
    let (node, agent) = node_and_agent(&[], &[]);
    let socket = node.path("run/log.sock");
    for body in ["", "{}", "[1]", "null", "\u{0}\u{1}", "[\"{}\"]"] {
        assert_eq!(post(&node, body), Some((200, String::new())), "{body:?}");
    }
    // This exceeds the limit of a batch, so the agent does not read all of it.
    let huge = format!("[\"{}\"]", "x".repeat(4 << 20));
    let _ = post(&node, &huge);
    // No HTTP, an incomplete request, an empty one, and one that exceeds the limit.
    let mut raw = UnixStream::connect(&socket).unwrap();
    let _ = raw.write_all(b"\x16\x03\x01 hello\r\n\r\n");
    let half = UnixStream::connect(&socket).unwrap();
    let _ = (&half).write_all(b"POST /log HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n[");
    let silent: Vec<_> = (0..40)
        .map(|_| UnixStream::connect(&socket).unwrap())
        .collect();
    let line = r#"{"level":"warn","time":"2026-11-20T21:15:02Z","msg":"still heard"}"#;
    agent.until("an answer", || {
        post(&node, &serde_json::json!([line]).to_string()).is_some()
    });
    agent.says("still heard");
    agent.until("ready", || agent.is_ready());
    drop((raw, half, silent));
    // The number of lines that are logged is bounded.
    let flood = serde_json::json!(vec![line; 9000]).to_string();
    assert_eq!(post(&node, &flood), Some((200, String::new())));
    assert!(agent.log().matches("still heard").count() < 6000);
    assert!(agent.metric("weir_plugin_log_lines_total{result=\"dropped\"}") > 3000);
}

#[test]
fn a_socket_that_was_left_is_replaced() {
    let node = Node::new();
    node.write("net.d/10-pods.conflist", BRIDGE);
    std::fs::create_dir(node.path("run")).unwrap();
    weir_testing::sockets::left_over(&node.path("run/log.sock"));
    let agent = node.ready(&[]);
    assert_eq!(post(&node, "[]"), Some((200, String::new())));
    drop(agent);
}

#[test]
fn the_agent_tells_root_its_settings_and_its_last_lines() {
    let secret = r#"{"k8s_auth_token": "planted"}"#;
    let (node, agent) = node_and_agent(
        &[("CNI_NETWORK_CONFIG", secret)],
        &["--log_output_level=cni-agent:debug"],
    );
    let socket = node.path("run/agent.sock");
    assert_eq!(node.mode("run/agent.sock"), 0o600);
    let ask = |path: &str| weir_cni::http::get(&socket, path, crate::support::PATIENCE).unwrap();
    let settings = ask("/settings");
    let settings: serde_json::Value = serde_json::from_str(&settings.body).unwrap();
    let of = |name: &str| {
        let found = settings.as_array().unwrap().iter();
        let one = found.into_iter().find(|s| s["name"] == name).unwrap();
        (one["value"].clone(), one["origin"].clone())
    };
    assert_eq!(
        of("--log_output_level"),
        ("cni-agent:debug".into(), "flag --log_output_level".into())
    );
    assert_eq!(of("POD_NAMESPACE").1, "environment POD_NAMESPACE");
    // The answer equals the log, and both leave out possible secrets.
    let last = ask("/log").body;
    agent.until("written", || agent.log().starts_with(&last));
    assert!(last.contains("weir agent") && last.contains("is installed and in force"));
    assert!(last.contains("setting CNI_NETWORK_CONFIG=(not logged)"));
    assert!(!agent.log().contains("planted"), "{}", agent.log());
    let events = ask("/events").body;
    let events = events
        .lines()
        .map(serde_json::from_str::<serde_json::Value>);
    let events: Vec<_> = events
        .collect::<Result<_, _>>()
        .expect("one object per line");
    let is_in_force = |e: &serde_json::Value| e["event"] == "installed" && e["time"].is_string();
    assert!(events.iter().any(is_in_force), "{events:?}");
    assert_eq!(ask("/").status, 404);
}

#[test]
fn a_port_that_is_none_costs_only_the_metrics() {
    let node = Node::new();
    node.write("net.d/10-a.conflist", BRIDGE);
    let agent = node.start(&[], &["--monitoring-port=70000"]);
    agent.until("ready", || agent.is_ready());
    agent.says("no metrics on port 70000");
}

/// It took the sockets of the agent that runs, and removed them when it ended.
#[test]
fn an_agent_whose_port_is_taken_leaves_the_sockets_to_the_other() {
    let (node, agent) = node_and_agent(&[], &[]);
    let inode = |name: &str| {
        std::fs::metadata(node.path("run").join(name))
            .unwrap()
            .ino()
    };
    let before = ["log.sock", "agent.sock"].map(inode);
    let port = agent.health.to_string();
    let mut second = node.start(&[("WEIR_HEALTH_PORT", &port)], &[]);
    assert_eq!(second.ended().code(), Some(1));
    second.says(&format!("cannot listen on port {port} for health"));
    assert_eq!(["log.sock", "agent.sock"].map(inode), before);
    assert!(agent.is_ready());
}

/// The kubelet gives up after a second.
///
/// A busy machine may miss that at times, so one answer in time is enough. Each attempt has new clients beside it.
fn is_answered<T>(port: u16, path: &str, clients: impl Fn() -> T) {
    let begun = Instant::now();
    loop {
        let _clients = clients();
        let asked = Instant::now();
        let answer = get(port, path);
        let took = asked.elapsed();
        // The agent disconnects a client that is slow.
        if let Some((status, _)) = answer {
            assert_eq!(status, 200);
            if took < Duration::from_secs(1) {
                return;
            }
        }
        assert!(begun.elapsed() < PATIENCE, "{path}: {took:?}");
    }
}

#[test]
fn connections_that_ask_nothing_do_not_keep_the_kubelet_out() {
    use std::net::TcpStream;
    let (_node, agent) = node_and_agent(&[], &[]);
    for (port, path) in [(agent.health, "/readyz"), (agent.metrics, "/metrics")] {
        is_answered(port, path, || {
            let connect = |_| TcpStream::connect(("127.0.0.1", port)).unwrap();
            let idle: Vec<TcpStream> = (0..100).map(connect).collect();
            // An incomplete request is not answered.
            for mut stream in &idle {
                stream.write_all(b"GET / HTTP/1.1\r\n").unwrap();
            }
            idle
        });
    }
}

/// Each of 400 clients connects again as soon as it is disconnected.
#[test]
fn clients_that_connect_again_and_again_do_not_keep_the_kubelet_out() {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};
    let (_node, agent) = node_and_agent(&[], &[]);
    for (port, path) in [(agent.health, "/readyz"), (agent.metrics, "/metrics")] {
        let over = Arc::new(AtomicBool::new(false));
        let connect = move || {
            let stream = std::net::TcpStream::connect(("127.0.0.1", port)).unwrap();
            stream.set_nonblocking(true).unwrap();
            stream
        };
        let clients = |over: Arc<AtomicBool>| {
            move || {
                let mut idle: Vec<_> = (0..100).map(|_| connect()).collect();
                while !over.load(Ordering::Relaxed) {
                    for stream in &mut idle {
                        let read = std::io::Read::read(stream, &mut [0]);
                        if !read.is_err_and(|e| e.kind() == std::io::ErrorKind::WouldBlock) {
                            *stream = connect();
                        }
                    }
                    std::thread::yield_now();
                }
            }
        };
        let threads: Vec<_> = (0..4)
            .map(|_| std::thread::spawn(clients(Arc::clone(&over))))
            .collect();
        for _ in 0..5 {
            is_answered(port, path, || ());
        }
        over.store(true, Ordering::Relaxed);
        threads.into_iter().for_each(|t| t.join().unwrap());
    }
}

#[test]
fn a_client_that_has_no_more_to_say_gets_its_answer() {
    use std::io::Read;
    let (_node, agent) = node_and_agent(&[], &[]);
    for (port, path) in [(agent.health, "/readyz"), (agent.metrics, "/metrics")] {
        let mut stream = std::net::TcpStream::connect(("127.0.0.1", port)).unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\n\r\n");
        stream.write_all(request.as_bytes()).unwrap();
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 200 "), "{path}: {answer:?}");
    }
}

/// The status of the answer to a request that a user sends. Prints the reason and returns `None` if setpriv or perl is missing.
///
/// Perl is an essential package of Debian, and an ordinary user may execute it wherever this clone is.
pub(crate) fn ask_as(user: &str, socket: &std::path::Path, request: &str) -> Option<String> {
    let script = r#"use Socket; $SIG{PIPE} = 'IGNORE'; my $s;
        socket($s, PF_UNIX, SOCK_STREAM, 0) && connect($s, sockaddr_un($ARGV[0])) || die "connect: $!";
        syswrite($s, $ARGV[1]);
        sysread($s, my $answer, 100);
        print((split / /, $answer)[1], "\n");"#;
    let mut setpriv = std::process::Command::new("setpriv");
    setpriv.args(["--reuid", user, "--regid", user, "--clear-groups"]);
    setpriv.args(["perl", "-e", script]).arg(socket);
    let out = match setpriv.arg(request).output() {
        Ok(out) => out,
        Err(e) => {
            println!("skipped: setpriv: {e}");
            return None;
        }
    };
    // env(1) exits with this code if it does not find the program.
    if out.status.code() == Some(127) {
        println!("skipped: perl: {out:?}");
        return None;
    }
    assert!(out.status.success(), "{out:?}");
    Some(String::from_utf8(out.stdout).unwrap())
}

/// The mode of the directory does not matter: `install-cni` uses the same mode for the socket itself.
#[test]
fn a_user_who_is_not_root_cannot_write_into_the_log() {
    use std::os::unix::fs::PermissionsExt;
    if !nix::unistd::geteuid().is_root() {
        return println!("skipped: only root can become another user");
    }
    let (node, agent) = node_and_agent(&[], &[]);
    for dir in [node.root.clone(), node.path("run")] {
        std::fs::set_permissions(dir, PermissionsExt::from_mode(0o755)).unwrap();
    }
    let line = r#"["{\"level\":\"info\",\"time\":\"2026-11-20T21:15:02Z\",\"msg\":\"forged\"}"]"#;
    let head = format!(
        "POST /log HTTP/1.1\r\nHost: x\r\nContent-Length: {}",
        line.len()
    );
    let request = format!("{head}\r\n\r\n{line}");
    let ask = |user: &str| ask_as(user, &node.path("run/log.sock"), &request);
    let Some(answer) = ask("0") else { return };
    assert_eq!(answer, "200\n");
    agent.until("root's line", || agent.log().contains("forged"));
    for _ in 0..3 {
        assert_eq!(ask("65534").unwrap(), "403\n");
    }
    agent.says("uid 65534");
    let log = agent.log();
    assert_eq!(log.matches("forged").count(), 1, "{log}");
    assert_eq!(
        log.matches("a user who is not root sends lines").count(),
        1,
        "{log}"
    );
    let refused = "weir_plugin_log_lines_total{result=\"refused\"}";
    assert_eq!(agent.metric(refused), 3);
}
