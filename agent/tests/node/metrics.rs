//! The metrics of a running agent, as Prometheus reads them.

use crate::adds::{assert_ok, new_netns, run, sidecar as to_add};
use crate::api_server::{ApiServer, pod};
use crate::repair::{IN_PLACE, Sandbox, sidecar, start};
use crate::servers::post;
use crate::support::{Agent, BRIDGE, Node, exchange};
use serde_json::json;

fn text(agent: &Agent) -> String {
    agent.page("/metrics").1
}

fn has(agent: &Agent, line: &str) -> bool {
    text(agent).lines().any(|l| l == line)
}

/// The number of measurements of a phase.
fn times(agent: &Agent, by: &str, phase: &str) -> u64 {
    agent.metric(&format!(
        "weir_phase_seconds_count{{by=\"{by}\",phase=\"{phase}\"}}"
    ))
}

/// The request header of Prometheus.
#[test]
fn openmetrics_are_for_those_who_ask_for_them() {
    let node = Node::new();
    node.write("net.d/10-pods.conflist", BRIDGE);
    let agent = node.ready(&[]);
    let classic = text(&agent);
    assert!(!classic.contains("# EOF"), "{classic}");
    let accept = "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.3";
    let request = format!("GET /metrics HTTP/1.1\r\nHost: x\r\nAccept: {accept}\r\n\r\n");
    let stream = std::net::TcpStream::connect(("127.0.0.1", agent.metrics)).unwrap();
    let (status, open) = exchange(stream, &request).unwrap();
    assert_eq!(status, 200);
    assert!(open.ends_with("# EOF\n"), "{open}");
    assert!(
        open.contains("\n# TYPE istio_cni_installs counter\n"),
        "{open}"
    );
}

#[test]
fn every_name_is_there_from_the_start() {
    let node = Node::new();
    node.write("net.d/10-pods.conflist", BRIDGE);
    let agent = node.ready(&[]);
    let text = text(&agent);
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let mut lines = vec![
        // Metrics of Istio: name, type, labels.
        "# TYPE istio_cni_install_ready gauge".to_owned(),
        "istio_cni_install_ready 1".to_owned(),
        "# TYPE istio_cni_installs_total counter".to_owned(),
        "istio_cni_installs_total{result=\"SUCCESS\"} 1".to_owned(),
        "# TYPE ztunnel_connected gauge".to_owned(),
        "ztunnel_connected 0".to_owned(),
        // Metrics of weir.
        format!("weir_kernel_info{{release=\"{}\"}} 1", release.trim()),
        "weir_engine_info{engine=\"nft\"} 0".to_owned(),
        "weir_engine_info{engine=\"xtables\"} 0".to_owned(),
        // The state is unknown, so the ratio must not look good.
        "weir_pods_verified_ratio NaN".to_owned(),
        "weir_blind{of=\"watch\"} 1".to_owned(),
        "weir_blind{of=\"verification\"} 0".to_owned(),
        "weir_blind{of=\"plugin\"} 0".to_owned(),
        "weir_events_total{result=\"dropped\"} 0".to_owned(),
        "weir_pods_unasked 0".to_owned(),
        "weir_pods_unasked_unseen 0".to_owned(),
        "weir_descriptors_exhausted 0".to_owned(),
        "weir_log_lines_dropped_total 0".to_owned(),
        "weir_unasked_removed_total 0".to_owned(),
        "weir_xtables_lock_wait_seconds_count 0".to_owned(),
        "weir_pod_watch_restarts_total{reason=\"forbidden\"} 0".to_owned(),
        "weir_plugin_pod_lookups_total{result=\"known\"} 0".to_owned(),
        "weir_drift_total{cause=\"changed\"} 0".to_owned(),
        "weir_repairs_total{cause=\"criteria\",result=\"fail\"} 0".to_owned(),
    ];
    let zero = |name: &str, label: &str, value: &str| format!("{name}{{{label}=\"{value}\"}} 0");
    for result in [
        "COPY_BINARIES_FAILURE",
        "CREATE_KUBECONFIG_FAILURE",
        "CREATE_CNI_CONFIG_FAILURE",
    ] {
        lines.push(zero("istio_cni_installs_total", "result", result));
    }
    for code in ["200", "400", "500"] {
        lines.push(zero(
            "istio_cni_plugin_requests_total",
            "response_code",
            code,
        ));
    }
    for kind in ["add", "update", "delete", "unknown"] {
        lines.push(zero("nodeagent_reconcile_events_total", "type", kind));
    }
    for action in ["delete", "repair", "label"] {
        for result in ["success", "skip", "fail"] {
            lines.push(format!(
                "istio_cni_repair_pods_repaired_total{{type=\"{action}\",result=\"{result}\"}} 0"
            ));
        }
    }
    for by in ["plugin", "agent"] {
        for phase in ["facts", "decide", "apply", "verify"] {
            lines.push(format!(
                "weir_phase_seconds_bucket{{le=\"0.001\",by=\"{by}\",phase=\"{phase}\"}} 0"
            ));
        }
    }
    for line in &lines {
        assert!(text.lines().any(|l| l == line), "{line}\n{text}");
    }
}

#[test]
fn the_plugin_tells_how_long_its_phases_took() {
    let Some(netns) = new_netns() else {
        return;
    };
    let server = ApiServer::start();
    server.put(to_add("web-0", "uid-0"));
    server.put(pod("shop", "plain-0", "uid-1"));
    let node = Node::new();
    node.write("net.d/10-pods.conflist", BRIDGE);
    let env = server.env();
    let env: Vec<(&str, &str)> = env.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
    let mut agent = node.start(&env, &["--log_output_level=info"]);
    agent.wait_ready();
    let known = || agent.metric("weir_pods_watched") == 2;
    agent.until("watched", known);
    assert_ok(&run(&node, "ADD", &netns, "web-0", "uid-0"));
    // The plugin waits for the answer to its log lines before it exits.
    for phase in ["facts", "decide", "apply", "verify"] {
        assert_eq!(times(&agent, "plugin", phase), 1, "{phase}");
        assert_eq!(times(&agent, "agent", phase), 0, "{phase}");
    }
    let sum = text(&agent)
        .lines()
        .find_map(|l| {
            let rest = l.strip_prefix("weir_phase_seconds_sum{by=\"plugin\",phase=\"apply\"} ")?;
            rest.parse::<f64>().ok()
        })
        .unwrap();
    assert!(sum > 0.000_01 && sum < 10.0, "{sum}");
    // The rules are in sync already, so the plugin neither writes nor verifies.
    assert_ok(&run(&node, "ADD", &netns, "web-0", "uid-0"));
    assert_eq!(times(&agent, "plugin", "apply"), 2);
    assert_eq!(times(&agent, "plugin", "verify"), 1);
    // For a pod that is not redirected, the plugin only collects facts and decides.
    assert_ok(&run(&node, "ADD", &netns, "plain-0", "uid-1"));
    let of = ["facts", "decide", "apply", "verify"].map(|p| times(&agent, "plugin", p));
    assert_eq!(of, [3, 3, 2, 1]);
    // The agent ignores values in log lines that are no valid durations.
    let line = |times: &str| {
        format!(r#"{{"level":"debug","time":"2026-11-20T21:15:02Z","msg":"phases",{times}}}"#)
    };
    let claims = [
        line(r#""facts_us":"-1""#),
        line(r#""facts_us":"1e3""#),
        line(r#""facts_us":"99999999999999""#),
        line(r#""facts_us":"<script>","apply_us":"1""#),
    ];
    let _ = post(&node, &json!(claims).to_string());
    let of = ["facts", "decide", "apply", "verify"].map(|p| times(&agent, "plugin", p));
    assert_eq!(of, [3, 3, 2, 1]);
    assert_eq!(agent.metric("weir_xtables_lock_wait_seconds_count"), 0);
    assert!(!agent.log().contains("phases"), "{}", agent.log());
    assert!(!node.read("run/istio-cni.log").contains("phases"));
}

#[test]
fn repairs_are_measured_and_pods_counted_by_engine() {
    let Some(sandbox) = Sandbox::of("web") else {
        return;
    };
    let server = ApiServer::start();
    server.put(sidecar("web", &sandbox.address));
    server.put(sidecar("gone", "192.0.2.7"));
    let node = Node::new();
    let agent = start(&node, &server, &[IN_PLACE, ("WEIR_VERIFY_INTERVAL", "1")]);
    agent.until("verified", || has(&agent, "weir_pods_verified 1"));
    for line in [
        "weir_pods_expected 2",
        "weir_pods_verified_ratio 0.5",
        "weir_engine_info{engine=\"nft\"} 1",
        "weir_engine_info{engine=\"xtables\"} 0",
    ] {
        agent.until(line, || has(&agent, line));
    }
    // If a repair takes longer than the interval, another comparison runs in between.
    for phase in ["facts", "decide", "verify"] {
        assert!(times(&agent, "agent", phase) >= 1, "{phase}");
    }
    assert_eq!(times(&agent, "agent", "apply"), 1);
    sandbox.tool("nft", &["delete", "table", "inet", "istio-proxy-nat"]);
    agent.until("repaired", || times(&agent, "agent", "apply") == 2);
    assert!(times(&agent, "agent", "verify") >= 2);
    assert_eq!(times(&agent, "plugin", "apply"), 0);
}
