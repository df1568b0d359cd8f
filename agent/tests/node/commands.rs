//! Commands that do not need a running agent, and manual removal.
// matrix: none: about files, sockets and settings of a node, where no rule is made and no kernel is asked

use crate::support::{BRIDGE, Node, weir};
use serde_json::Value;
use std::process::Output;

const LIST: &str = "net.d/10-pods.conflist";

fn stdout(out: &Output) -> String {
    assert!(out.status.success(), "{out:?}");
    String::from_utf8(out.stdout.clone()).unwrap()
}

fn json(out: &Output) -> Value {
    serde_json::from_slice(&out.stdout).unwrap_or_else(|e| panic!("{e}: {out:?}"))
}

/// A shell on the node does not have the settings of the agent's container.
#[test]
fn a_pod_is_planned_with_the_settings_of_the_running_agent() {
    let node = Node::new();
    node.write(LIST, BRIDGE);
    let pod = r#"{"kind": "Pod", "apiVersion": "v1", "metadata": {"name": "web", "namespace": "shop"}, "spec": {"containers": []}}"#;
    node.write("pod.json", pod);
    let sidecar = r#"{"kind": "Pod", "apiVersion": "v1", "metadata": {"name": "web", "annotations": {"sidecar.istio.io/status": "{}"}},
        "spec": {"containers": [{"name": "istio-proxy"}, {"name": "app"}]}, "status": {"podIP": "10.0.0.2"}}"#;
    node.write("sidecar.json", sidecar);
    let plan = |kind: &str, file: &str, env: &[(&str, &str)]| {
        let file = node.path(file);
        let args = ["plan", kind, "--pod", file.to_str().unwrap()];
        let out = node.run(&args, env);
        let said = String::from_utf8_lossy(&out.stderr).into_owned();
        (stdout(&out), said)
    };
    let (ipv6, dns) = (("AMBIENT_IPV6", "true"), ("AMBIENT_DNS_CAPTURE", "true"));
    // Without an agent, `plan` names the settings that it takes as unset, but not those that are set.
    let (rules, said) = plan("ambient", "pod.json", &[]);
    assert!(!rules.contains("15053"), "{rules}");
    for part in [
        "AMBIENT_IPV6=false",
        "AMBIENT_DNS_CAPTURE=false",
        "agent.sock",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
    let (full, said) = plan("ambient", "pod.json", &[ipv6, dns]);
    assert!(full.contains("15053") && said.is_empty(), "{full}{said}");
    let groups = ("ISTIO_OUTBOUND_OWNER_GROUPS_EXCLUDE", "4243");
    let _agent = node.ready(&[ipv6, dns, groups]);
    assert_eq!(plan("ambient", "pod.json", &[]), (full, String::new()));
    // Variables of the shell take precedence.
    let off = ("AMBIENT_DNS_CAPTURE", "false");
    let (rules, said) = plan("ambient", "pod.json", &[off]);
    assert!(!rules.contains("15053") && said.is_empty(), "{rules}{said}");
    let (rules, said) = plan("sidecar", "sidecar.json", &[]);
    assert!(rules.contains("meta skgid 4243"), "{rules}{said}");
}

#[test]
fn settings_are_explained() {
    let node = Node::new();
    let env = [
        ("ISTIO_OWNED_CNI_CONF_FILENAME", "01-x.conflist"),
        ("SKIP_TLS_VERIFY", "yes"),
    ];
    let args = ["agent", "--explain-settings", "--chained-cni-plugin=false"];
    let text = stdout(&node.run(&args, &env));
    for line in [
        "CHAINED_CNI_PLUGIN=\"false\"  (flag --chained-cni-plugin; used)",
        "ISTIO_OWNED_CNI_CONFIG_FILENAME=\"01-x.conflist\"  (environment ISTIO_OWNED_CNI_CONF_FILENAME; used)",
        "LOG_LEVEL=\"warn\"  (default; accepted, unused)",
        "    note: \"yes\" is not a boolean and counts as false; use true or false",
    ] {
        assert!(text.lines().any(|l| l == line), "{line}\n{text}");
    }
    let value = json(&node.run(&["agent", "--explain-settings", "--json"], &env));
    let find = |name: &str| {
        value
            .as_array()
            .unwrap()
            .iter()
            .find(|s| s["name"] == name)
            .unwrap()
            .clone()
    };
    assert_eq!(find("KUBECONFIG_MODE")["value"], "0600");
    let usage = |name: &str| find(name)["usage"].clone();
    assert_eq!(usage("AMBIENT_ENABLE_AWS_BRANCH_ENI_PROBE"), "used");
    assert_eq!(usage("GOMEMLIMIT"), "accepted, unused");
    assert_eq!(find("--log_target")["origin"], "default");
    assert!(value.as_array().unwrap().len() > 55);
    // `--explain-settings` explains settings that an agent would refuse, and fails as well.
    for (name, value) in [
        ("AMBIENT_ENABLED", "true"),
        ("KUBECONFIG_MODE", "rw"),
        ("CNI_CONF_NAME", "../x"),
    ] {
        for further in [&[][..], &["--json"]] {
            let args = [&["agent", "--explain-settings"], further].concat();
            let out = node.run(&args, &[(name, value)]);
            assert_eq!(out.status.code(), Some(1), "{name}");
            let (text, why) = (
                String::from_utf8_lossy(&out.stdout),
                String::from_utf8_lossy(&out.stderr),
            );
            assert!(text.contains(value) && why.contains(name), "{text}{why}");
        }
    }
    let levels = ["agent", "--explain-settings", "--log_output_level=loud"];
    assert_eq!(node.run(&levels, &[]).status.code(), Some(1));
}

#[test]
fn flags_as_the_chart_and_people_write_them() {
    let node = Node::new();
    let args = [
        "agent",
        "--explain-settings",
        "--json",
        "--cni-conf-name",
        "a",
        "--cni-conf-name=b",
        "--skip-tls-verify",
        "--monitoring-port",
        "-1",
        "--log_output_level=info",
        "--log_as_json",
        "--log_target=stdout",
        "--log_target",
        "/dev/null",
        "--log_caller",
        "-x",
        "--ctrlz_port=1",
    ];
    let value = json(&node.run(&args, &[]));
    let find = |name: &str| {
        value
            .as_array()
            .unwrap()
            .iter()
            .find(|s| s["name"] == name)
            .unwrap()["value"]
            .clone()
    };
    assert_eq!(
        (
            find("CNI_CONF_NAME"),
            find("SKIP_TLS_VERIFY"),
            find("MONITORING_PORT")
        ),
        ("b".into(), "true".into(), "-1".into())
    );
    assert_eq!(find("--log_as_json"), "true");
    assert_eq!(find("--log_target"), "stdout,/dev/null");
    assert_eq!(find("--log_caller"), "-x");
    let host = nix::sys::utsname::uname().unwrap();
    assert_eq!(
        find("KUBERNETES_NODE_NAME"),
        host.nodename().to_str().unwrap()
    );
}

#[test]
fn a_dry_run_says_what_a_pass_would_do_and_writes_nothing() {
    let node = Node::new();
    node.write(
        "net.d/10-pods.conf",
        r#"{"cniVersion": "0.4.0", "type": "ptp"}"#,
    );
    let out = node.run(&["agent", "--dry-run"], &[]);
    let text = stdout(&out);
    let path = |name: &str| node.path(name).display().to_string();
    for line in [
        format!(
            "write  {} (mode 0755): from {}: it is missing on the node",
            path("bin/istio-cni"),
            path("source/istio-cni")
        ),
        format!(
            "write  {} (mode 0600): there is none",
            path("run/istio-cni-kubeconfig")
        ),
        format!(
            "write  {} (mode 0644): extends {}: it is the first valid one",
            path("net.d/10-pods.conflist"),
            path("net.d/10-pods.conf")
        ),
        format!(
            "remove {}: {} takes its place",
            path("net.d/10-pods.conf"),
            path("net.d/10-pods.conflist")
        ),
        "    token: REDACTED".to_owned(),
    ] {
        assert!(
            text.lines().any(|l| l.trim_start() == line.trim_start()),
            "{line}\n{text}"
        );
    }
    assert!(!text.contains("token-1") && node.names("bin").is_empty() && !node.exists("run"));
    assert_eq!(node.names("net.d"), ["10-pods.conf"]);
    // A pass does what `--dry-run` announced, and then nothing is left to do.
    let planned = json(&node.run(&["agent", "--dry-run", "--json"], &[]));
    let agent = node.ready(&[]);
    for step in planned
        .as_array()
        .unwrap()
        .iter()
        .filter(|s| s["path"].as_str().unwrap().ends_with("conflist"))
    {
        assert_eq!(
            node.read("net.d/10-pods.conflist"),
            step["text"].as_str().unwrap()
        );
    }
    let again = json(&node.run(&["agent", "--dry-run", "--json"], &[]));
    assert!(
        again
            .as_array()
            .unwrap()
            .iter()
            .all(|s| s["action"] == "keep"),
        "{again}"
    );
    drop(agent);
    // The error that a pass would end with, and what it would wait for.
    std::fs::remove_file(node.path("account/token")).unwrap();
    let out = node.run(
        &["agent", "--dry-run", "--json"],
        &[("CNI_CONF_NAME", "x.conf")],
    );
    assert_eq!(out.status.code(), Some(1));
    let actions: Vec<Value> = json(&out)
        .as_array()
        .unwrap()
        .iter()
        .map(|s| s["action"].clone())
        .collect();
    // The pass ends there.
    assert_eq!(actions, ["keep", "fail"]);
    node.write("account/token", "token-1");
    let name = ("CNI_CONF_NAME", "x.conf");
    let out = node.run(&["agent", "--dry-run", "--json"], &[name]);
    assert_eq!(json(&out)[2]["action"], "wait");
    let no_server = ("KUBERNETES_SERVICE_HOST", "");
    let out = node.run(&["agent", "--dry-run", "--json"], &[no_server]);
    let steps = json(&out);
    let last = steps.as_array().unwrap().last().unwrap();
    assert_eq!(
        (out.status.code(), steps.as_array().unwrap().len()),
        (Some(1), 2)
    );
    assert_eq!(last["action"], "fail");
    // In ambient mode an agent ends before it writes anything.
    let ambient = [
        no_server,
        ("AMBIENT_ENABLED", "true"),
        ("NODE_NAME", "node1"),
    ];
    let out = node.run(&["agent", "--dry-run"], &ambient);
    assert!(
        out.status.code() == Some(1) && out.stdout.is_empty(),
        "{out:?}"
    );
}

/// What cannot be looked at is neither there nor gone.
#[test]
fn an_uninstallation_tells_what_is_not_known() {
    let _may_look = weir_testing::namespace_or_skip!();
    let node = Node::new();
    node.write(LIST, BRIDGE);
    let mut agent = node.ready(&[]);
    agent.signal(nix::sys::signal::Signal::SIGKILL);
    agent.ended();
    node.write("net.d/20-large.conflist", &" ".repeat(5 << 20));
    let out = node.run(&["uninstall", "--json"], &[]);
    assert_eq!(out.status.code(), Some(3), "{out:?}");
    assert!(!node.exists("run/istio-cni-kubeconfig") && !node.read(LIST).contains("istio-cni"));
    let verify = node.run(&["uninstall", "--verify", "--json"], &[]);
    assert_eq!(verify.status.code(), Some(3));
    let left = &json(&verify)["left"][0];
    assert_eq!(left["unknown"], true);
    assert!(
        left["path"]
            .as_str()
            .unwrap()
            .ends_with("20-large.conflist")
    );
    std::fs::remove_dir_all(node.path("net.d")).unwrap();
    let out = node.run(&["uninstall", "--verify", "--json"], &[]);
    assert_eq!(
        (out.status.code(), &json(&out)["error"]),
        (Some(0), &Value::Null)
    );
    std::fs::remove_dir_all(node.path("bin")).unwrap();
    let out = node.run(&["uninstall", "--verify", "--json"], &[]);
    assert_eq!(out.status.code(), Some(3));
    let why = json(&out)["error"].to_string();
    assert!(why.contains("MOUNTED_CNI_NET_DIR"), "{why}");
    // Without --verify the same is unknown, and told once.
    let out = node.run(&["uninstall", "--json"], &[]);
    assert_eq!(out.status.code(), Some(3), "{out:?}");
    assert_eq!(json(&out)["error"].to_string(), why);
}

/// A running agent would install everything again at once.
#[test]
fn nothing_is_removed_beside_an_agent_that_runs() {
    let _may_look = weir_testing::namespace_or_skip!();
    let node = Node::new();
    node.write(LIST, BRIDGE);
    let mut agent = node.ready(&[]);
    let is_there = || node.read(LIST).contains("istio-cni");
    let refused = || {
        let out = node.run(&["uninstall"], &[]);
        let why = String::from_utf8(out.stderr).unwrap();
        assert_eq!(out.status.code(), Some(1), "{why}");
        assert!(why.contains("log.sock answers"), "{why}");
        assert!(why.contains("nothing was removed"), "{why}");
    };
    refused();
    assert!(is_there());
    // `--verify` removes nothing and is therefore permitted.
    let verify = node.run(&["uninstall", "--verify", "--json"], &[]);
    assert_eq!(json(&verify)["left"].as_array().unwrap().len(), 3);
    // A stopped agent counts as running, too.
    agent.signal(nix::sys::signal::Signal::SIGSTOP);
    refused();
    assert!(is_there());
    agent.signal(nix::sys::signal::Signal::SIGKILL);
    agent.ended();
    // The socket file of the ended agent still exists.
    assert!(node.run(&["uninstall"], &[]).status.success());
    assert!(!is_there());
}

#[test]
fn uninstall_finds_everything_and_verifies() {
    // Uninstall also reads what ambient mode left in the node's namespace.
    let _may_look = weir_testing::namespace_or_skip!();
    let node = Node::new();
    node.write(LIST, BRIDGE);
    let mut agent = node.ready(&[]);
    agent.signal(nix::sys::signal::Signal::SIGKILL);
    agent.ended();
    // Entries in files that the agent no longer reads.
    node.write(
        "net.d/20-old.conflist",
        &node.read(LIST).replace("\"name\": \"pods\",", ""),
    );
    node.write(
        "net.d/30-alone.conf",
        r#"{"type": "istio-cni", "name": "istio-cni"}"#,
    );
    node.write(
        "net.d/40-only.conflist",
        r#"{"name": "o", "plugins": [{"type": "istio-cni"}]}"#,
    );
    let verify = node.run(&["uninstall", "--verify", "--json"], &[]);
    assert_eq!(verify.status.code(), Some(1));
    assert_eq!(json(&verify)["left"].as_array().unwrap().len(), 6);
    assert!(node.read(LIST).contains("istio-cni"), "--verify only looks");
    let out = node.run(&["uninstall"], &[]);
    let text = stdout(&out);
    assert!(text.contains("(may stay)"), "{text}");
    assert_eq!(node.names("net.d"), ["10-pods.conflist", "20-old.conflist"]);
    assert!(
        !node.read(LIST).contains("istio") && !node.read("net.d/20-old.conflist").contains("istio")
    );
    assert_eq!(node.names("bin"), ["istio-cni"]);
    let all = [("WEIR_KEEP_PLUGIN", "false")];
    assert_eq!(
        node.run(&["uninstall", "--verify"], &all).status.code(),
        Some(1)
    );
    assert!(stdout(&node.run(&["uninstall"], &all)).contains("nothing is left"));
    // A second removal succeeds as well.
    assert!(stdout(&node.run(&["uninstall"], &all)).contains("nothing is left"));
    assert!(node.names("bin").is_empty());
}

#[test]
fn called_as_install_cni_it_is_the_agent() {
    let node = Node::new();
    let link = node.path("install-cni");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_weir"), &link).unwrap();
    let run = |args: &[&str]| {
        std::process::Command::new(&link)
            .args(args)
            .env_clear()
            .envs(node.env())
            .output()
            .unwrap()
    };
    assert!(stdout(&run(&["version"])).contains(env!("CARGO_PKG_VERSION")));
    assert!(
        stdout(&run(&["--explain-settings", "--log_output_level=info"])).contains("CNI_CONF_NAME")
    );
    let number = concat!(env!("CARGO_PKG_VERSION"), "\n");
    assert_eq!(stdout(&run(&["version", "--short"])), number);
    assert_eq!(
        json(&run(&["version", "-o", "json"]))["clientVersion"]["version"],
        env!("CARGO_PKG_VERSION")
    );
    assert!(stdout(&run(&["version", "--output=yaml"])).starts_with("clientVersion:\n"));
    assert_eq!(run(&["version", "-o", "xml"]).status.code(), Some(1));
    for bad in ["--no-such-flag", "--chained-cni-plugin=", "nonsense"] {
        assert_eq!(run(&[bad]).status.code(), Some(1), "{bad}");
    }
    assert_eq!(run(&["--help"]).status.code(), Some(0));
    assert!(
        stdout(&weir().args(["agent", "--help"]).output().unwrap()).contains("--repair-enabled")
    );
}
