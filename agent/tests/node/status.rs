//! The status page of a running agent and its JSON; also the page in a real browser.
// matrix: none: about a page, also in a browser; the rules that it shows are made in repair

use crate::api_server::{Answer, ApiServer};
use crate::chromium::{Chromium, Scheme};
use crate::repair::{IN_PLACE, Sandbox, sidecar, start};
use crate::support::{Agent, BRIDGE, Node};
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Command;

const HOSTILE: &str = "<script>document.title='mine'</script>";

fn page(agent: &Agent) -> String {
    let (status, text) = agent.page("/");
    assert_eq!(status, 200);
    text
}

/// Waits until the kernel has been probed, which readiness does not wait for.
fn asked(agent: &Agent) -> Value {
    agent.until("the kernel asked", || {
        agent.facts()["kernelJobs"]["state"] != "asking"
    });
    agent.facts()["kernelJobs"].clone()
}

fn pod_of<'a>(facts: &'a Value, name: &str) -> &'a Value {
    let pods = facts["pods"].as_array().unwrap();
    let found = pods.iter().find(|p| p["name"] == name);
    found.unwrap_or_else(|| panic!("{name}: {pods:?}"))
}

/// Three pods in namespaces of their own, one without a namespace, and one with invalid annotations.
struct Scene {
    // Declared first, so that it is dropped before the server and the sandboxes.
    agent: Agent,
    _node: Node,
    _server: ApiServer,
    sandboxes: Vec<Sandbox>,
}

impl Scene {
    fn new(odd_name: &str, odd_port: &str) -> Option<Self> {
        let names = ["cart-7d4b9c6f5-x2vqp", "web-5f6d8c7b9-4hnzt", "db-0"];
        let sandboxes: Option<Vec<_>> = names.iter().map(|name| Sandbox::of(name)).collect();
        let sandboxes = sandboxes?;
        let server = ApiServer::start();
        for (name, sandbox) in names.iter().zip(&sandboxes) {
            let mut pod = sidecar(name, &sandbox.address);
            if *name == "db-0" {
                pod["metadata"]["annotations"]["sidecar.istio.io/interceptionMode"] =
                    "TPROXY".into();
            }
            server.put(pod);
        }
        server.put(sidecar("gone-1", "192.0.2.7"));
        let mut odd = sidecar(odd_name, "192.0.2.8");
        odd["metadata"]["annotations"]["traffic.sidecar.istio.io/includeInboundPorts"] =
            odd_port.into();
        server.put(odd);
        let node = Node::new();
        let agent = start(&node, &server, &[IN_PLACE, ("WEIR_VERIFY_INTERVAL", "1")]);
        let scene = Self {
            agent,
            _node: node,
            _server: server,
            sandboxes,
        };
        scene.agent.until("verified", || {
            let facts = scene.agent.facts();
            let v = &facts["verification"];
            let pods = facts["pods"].as_array().unwrap();
            let wrong = pods.iter().filter(|pod| pod["error"].is_string()).count();
            v["verified"] == 3 && v["expected"] == 5 && wrong == 2
        });
        asked(&scene.agent);
        Some(scene)
    }
}

/// The metrics that have another value than the same number in `/status.json`.
fn disagreements(agent: &Agent) -> Vec<String> {
    let facts = agent.facts();
    let v = &facts["verification"];
    let mut wanted = vec![
        ("weir_pods_expected".to_owned(), &v["expected"]),
        ("weir_pods_verified".to_owned(), &v["verified"]),
    ];
    for r in v["repairs"].as_array().unwrap() {
        let (cause, result) = (&r["cause"], &r["result"]);
        let line = format!("weir_repairs_total{{cause={cause},result={result}}}");
        wanted.push((line, &r["count"]));
    }
    for d in v["drift"].as_array().unwrap() {
        let line = format!("weir_drift_total{{cause={}}}", d["cause"]);
        wanted.push((line, &d["count"]));
    }
    let differs = |(line, count): (String, &Value)| {
        let metric = agent.metric(&line);
        (Some(metric) != count.as_u64()).then(|| format!("{line}: {metric}, not {count}"))
    };
    wanted.into_iter().filter_map(differs).collect()
}

#[test]
fn the_page_and_its_json_agree_with_the_metrics() {
    let Some(scene) = Scene::new("<img src=x>", HOSTILE) else {
        return;
    };
    let agent = &scene.agent;
    let all = agent.facts();
    for (name, value) in [
        ("node", "node1"),
        ("version", env!("CARGO_PKG_VERSION")),
        (
            "kernel",
            std::fs::read_to_string("/proc/sys/kernel/osrelease")
                .unwrap()
                .trim(),
        ),
    ] {
        assert_eq!(all[name], value, "{name}");
    }
    assert_eq!(all["podWatch"]["state"], "synced", "{all}");
    assert_eq!(all["install"]["ready"], true, "{all}");
    let v = &all["verification"];
    assert_eq!(v["ratio"].as_f64(), Some(0.6), "{v}");
    // The agent may try another repair between two requests.
    agent.until("the page agrees with the metrics", || {
        let differences = disagreements(agent);
        differences.iter().for_each(|line| println!("{line}"));
        differences.is_empty()
    });
    assert_eq!(agent.metric("weir_drift_total{cause=\"missing\"}"), 3);
    let db = pod_of(&all, "db-0");
    assert_eq!(db["namespace"], "shop");
    assert_eq!(
        (&db["mode"], &db["engine"]),
        (&json!("TPROXY"), &json!("nft"))
    );
    assert_eq!(
        (&db["verified"], &db["error"]),
        (&json!(true), &Value::Null)
    );
    let gone = pod_of(&all, "gone-1");
    assert_eq!(
        (&gone["mode"], &gone["engine"]),
        (&json!("REDIRECT"), &Value::Null)
    );
    assert_eq!(
        (&gone["verified"], &gone["verifiedAt"]),
        (&json!(false), &Value::Null)
    );
    let error = gone["error"].as_str().unwrap();
    assert!(error.contains("has the addresses 192.0.2.7"), "{error}");
    // Names and texts of pods are escaped.
    let odd = pod_of(&all, "<img src=x>");
    assert!(odd["error"].as_str().unwrap().contains(HOSTILE), "{odd}");
    let text = page(agent);
    assert!(
        !text.contains("<img") && !text.contains("<script"),
        "{text}"
    );
    for shown in [
        "3 of 5",
        "60 %",
        "2 pods are not verified",
        "&lt;img src=x&gt;",
        "&lt;script&gt;document.title=&#39;mine&#39;&lt;/script&gt;",
        "none of the ",
        "TPROXY",
        "sidecar-tproxy",
    ] {
        assert!(text.contains(shown), "{shown}: {text}");
    }
    // A pod that is no longer verified shows when it was last verified.
    let at = pod_of(&all, "db-0")["verifiedAt"].clone();
    agent.until("checked again", || {
        pod_of(&agent.facts(), "db-0")["verifiedAt"] != at
    });
    let [.., last] = &scene.sandboxes[..] else {
        panic!("there are three");
    };
    let address = format!("{}/32", last.address);
    last.tool("ip", &["address", "del", &address, "dev", "lo"]);
    last.tool("nft", &["flush", "ruleset"]);
    agent.until("seen to be wrong", || {
        let facts = agent.facts();
        let db = pod_of(&facts, "db-0");
        let is_wrong = db["verified"] == false && db["error"].is_string();
        is_wrong && agent.metric("weir_pods_verified") == 2
    });
    let all = agent.facts();
    let db = pod_of(&all, "db-0");
    assert_eq!(db["engine"], "nft");
    assert!(db["verifiedAt"].is_string(), "{db}");
}

#[test]
fn headers_forbid_everything_but_the_style() {
    let node = Node::new();
    node.write("net.d/10-pods.conflist", BRIDGE);
    let agent = node.ready(&[]);
    let whole = |path: &str| {
        let mut stream = TcpStream::connect(("127.0.0.1", agent.metrics)).unwrap();
        write!(stream, "GET {path} HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        text
    };
    let policy = "content-security-policy: default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; \
        form-action 'none'; frame-ancestors 'none'";
    for (path, kind) in [
        ("/", "text/html; charset=utf-8"),
        ("/status.json", "application/json"),
        ("/debug", "application/json"),
        ("/metrics", "text/plain; version=0.0.4; charset=utf-8"),
    ] {
        let text = whole(path);
        let (head, _) = text.split_once("\r\n\r\n").unwrap();
        for line in [
            "HTTP/1.1 200 OK",
            policy,
            "x-content-type-options: nosniff",
            &format!("content-type: {kind}"),
        ] {
            assert!(head.lines().any(|l| l == line), "{path}: {line}: {head}");
        }
    }
    let (status, text) = agent.page("/other");
    assert!(
        status == 404 && text.starts_with("ask / for a page"),
        "{text}"
    );
}

#[test]
fn what_is_missing_is_said_in_words() {
    // There is no configuration to extend, no watch, and nothing to verify.
    let node = Node::new();
    let agent = node.start(&[], &[]);
    agent.until("the reason", || {
        agent.facts()["install"]["lastFailure"].is_object()
    });
    let all = agent.facts();
    assert_eq!(all["install"]["ready"], false);
    assert_eq!(
        all["podWatch"],
        json!({"state": "off", "reason": "NODE_NAME is not set"})
    );
    assert_eq!(all["verification"]["state"], "off");
    let text = page(&agent);
    for shown in [
        "not installed",
        "a node without NODE_NAME",
        "NODE_NAME is not set",
        "No pod is verified: none of REPAIR_REPAIR_PODS",
        all["install"]["lastFailure"]["reason"].as_str().unwrap(),
    ] {
        assert!(text.contains(shown), "{shown}: {text}");
    }
    // The API server refuses with a message of its own.
    let server = ApiServer::start();
    server.fault(|_| Some(Answer::Status(403)));
    let node = Node::new();
    let agent = start(&node, &server, &[IN_PLACE]);
    agent.until("refused", || {
        agent.facts()["podWatch"]["state"] == "trouble"
    });
    let why = agent.facts()["podWatch"]["reason"].clone();
    assert!(
        why.as_str().unwrap().contains("list and watch on pods"),
        "{why}"
    );
    assert!(page(&agent).contains("They have not been examined yet"));
    server.fault(|_| None);
    agent.until("synced", || agent.facts()["podWatch"]["state"] == "synced");
    assert_eq!(agent.facts()["podWatch"]["reason"], Value::Null);
    agent.until("seen", || {
        page(&agent).contains("No pod of this node requests")
    });
}

#[test]
fn the_kernel_is_judged_as_preflight_does() {
    let node = Node::new();
    node.write("net.d/10-pods.conflist", BRIDGE);
    let agent = node.ready(&[]);
    let kernel = asked(&agent);
    let preflight = node.run(&["preflight", "--json"], &[]);
    let preflight: Value = serde_json::from_slice(&preflight.stdout).unwrap();
    for job in ["sidecar", "sidecar-tproxy", "ambient"] {
        let of = |jobs: &Value| {
            let jobs = jobs.as_array().unwrap();
            jobs.iter().find(|j| j["job"] == job).cloned().unwrap()
        };
        assert_eq!(of(&kernel["jobs"]), of(&preflight["jobs"]), "{job}");
    }
    // The agent may not create a namespace.
    let mut command = Command::new("setpriv");
    command.env_clear();
    command.args(["--bounding-set", "-sys_admin"]);
    command.arg(env!("CARGO_BIN_EXE_weir"));
    let other = Node::new();
    other.write("net.d/10-pods.conflist", BRIDGE);
    let mut agent = other.start_by(command, &[], &[]);
    agent.wait_ready();
    let kernel = asked(&agent);
    let why = kernel["reason"].as_str().unwrap();
    assert!(why.contains("cannot create a throwaway namespace"), "{why}");
    assert_eq!(kernel["jobs"][0]["verdict"], "unknown", "{kernel}");
    let text = page(&agent);
    for shown in [
        "cannot create a throwaway namespace",
        "unknown",
        "this process lacks CAP_SYS_ADMIN",
    ] {
        assert!(text.contains(shown), "{shown}: {text}");
    }
}

/// `WEIR_STATUS_PICTURE=FILE` stores the page as the browser shows it: `ci/status-picture`.
#[test]
fn a_browser_shows_the_page_and_has_nothing_to_refuse() {
    let Some(browser) = Chromium::find() else {
        return;
    };
    let picture = std::env::var_os("WEIR_STATUS_PICTURE");
    let (name, port) = match picture {
        Some(_) => ("orders-66c9f5d4b-m8kls", "http"),
        None => ("<img src='https://192.0.2.1/image'>", HOSTILE),
    };
    let Some(scene) = Scene::new(name, port) else {
        return;
    };
    let address = format!("http://127.0.0.1:{}/", scene.agent.metrics);
    for scheme in [Scheme::Light, Scheme::Dark] {
        let visit = browser.visit_address(&address, scheme);
        assert_eq!(visit.console, [""; 0]);
        for text in [
            "3 of 5",
            "web-5f6d8c7b9-4hnzt",
            "Jobs that this kernel allows",
        ] {
            assert!(visit.dom.contains(text), "{text}: {}", visit.dom);
        }
        assert!(!visit.dom.contains("<img") && !visit.dom.contains("<script"));
        assert!(visit.dom.contains("<title>weir on node1</title>"));
    }
    let pages = [("status".to_owned(), page(&scene.agent))];
    for scheme in [Scheme::Light, Scheme::Dark] {
        assert_eq!(browser.complaints(&pages, scheme), "");
    }
    if let Some(file) = picture {
        let picture = browser.picture(&address, Scheme::Light, (900, 930), "webp");
        std::fs::write(file, picture).unwrap();
    }
}
