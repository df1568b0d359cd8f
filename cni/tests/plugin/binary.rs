//! The real program: its output without a runtime, and after a crash.
// matrix: none: about values and programs, with no namespace, no rule and no kernel

use std::io::Write;
use std::os::unix::process::CommandExt;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use crate::common::TempDir;
use crate::common::agent::Agent;
use crate::common::api_server::{other_ca, write_kubeconfig};
use serde_json::{Value, json};

fn run(env: &[(&str, &str)], stdin: &str) -> Output {
    let mut plugin = Command::new(env!("CARGO_BIN_EXE_weir-cni"));
    output(plugin.env_clear(), env, stdin)
}

fn output(command: &mut Command, env: &[(&str, &str)], stdin: &str) -> Output {
    let mut child = command
        .envs(env.iter().copied())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // The pipe is closed when the program ends without reading its stdin.
    let _ = child.stdin.take().unwrap().write_all(stdin.as_bytes());
    child.wait_with_output().unwrap()
}

const ADD: [(&str, &str); 5] = [
    ("CNI_COMMAND", "ADD"),
    ("CNI_CONTAINERID", "c"),
    ("CNI_NETNS", "/run/netns/none"),
    ("CNI_IFNAME", "eth0"),
    ("CNI_PATH", "/opt/cni/bin"),
];

fn stdout(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn by_hand() {
    let output = run(&[], "");
    assert!(output.status.success() && output.stdout.is_empty());
    let stderr = String::from_utf8(output.stderr).unwrap();
    let about = concat!("CNI plugin weir-cni ", env!("CARGO_PKG_VERSION"), "\n");
    assert!(stderr.starts_with(about), "{stderr}");
}

/// The node agent installs it under upstream's name.
#[test]
fn by_the_name_of_upstreams_plugin() {
    for (called, name) in [
        ("/opt/cni/bin/istio-cni", "istio-cni"),
        ("/opt/cni/bin/other", "weir-cni"),
    ] {
        let mut plugin = Command::new(env!("CARGO_BIN_EXE_weir-cni"));
        let output = output(plugin.arg0(called).env_clear(), &[], "");
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert!(
            stderr.starts_with(&format!("CNI plugin {name} ")),
            "{stderr}"
        );
    }
}

/// Each is needed: the one to write rules, the other to enter the namespace of a pod.
#[test]
fn status_without_a_capability_is_50() {
    const STATUS: [(&str, &str); 2] = [("CNI_COMMAND", "STATUS"), ("CNI_PATH", "/opt/cni/bin")];
    let conf = json!({"cniVersion": "1.1.0", "name": "net", "type": "weir-cni"}).to_string();
    let without = |capability: &str| {
        let mut plugin = Command::new("setpriv");
        let (bounding, inherited) = ("--bounding-set", "--inh-caps");
        plugin.args([bounding, capability, inherited, capability]);
        plugin.arg(env!("CARGO_BIN_EXE_weir-cni"));
        output(&mut plugin, &STATUS, &conf)
    };
    let control = without("-mknod");
    if !control.status.success() {
        println!("skipped: no capabilities to drop: {control:?}");
        return;
    }
    for capability in ["-net_admin", "-sys_admin"] {
        let answer = stdout(&without(capability));
        assert_eq!(answer["code"], 50, "{capability}: {answer}");
        let msg = answer["msg"].as_str().unwrap();
        assert!(msg.contains("CAP_SYS_ADMIN to enter it"), "{msg}");
    }
}

#[test]
fn version_does_not_wait_for_stdin() {
    let output = run(&[("CNI_COMMAND", "VERSION")], "");
    assert_eq!(
        stdout(&output)["supportedVersions"]
            .as_array()
            .unwrap()
            .len(),
        7
    );
    assert!(output.status.success() && output.stderr.is_empty());
}

#[test]
fn an_error_is_on_stdout_and_log_lines_on_stderr() {
    let output = run(
        &ADD,
        r#"{"name":"n","cniVersion":"1.0.0","cni_agent_run_dir":"/no/such/dir"}"#,
    );
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(stdout(&output)["code"], 999);
    assert!(!output.stdout.ends_with(b"\n"));
    let stderr = String::from_utf8(output.stderr).unwrap();
    let mut lines = stderr.lines().map(serde_json::from_str::<Value>);
    let file = lines.next().unwrap().unwrap();
    assert_eq!(file["level"], "warn");
    assert!(file["msg"].as_str().unwrap().starts_with("no log file"));
    let line = lines.next().unwrap().unwrap();
    assert_eq!(line["level"], "error");
    assert!(
        line["msg"]
            .as_str()
            .unwrap()
            .contains("/no/such/dir/istio-cni-kubeconfig"),
        "{line}"
    );
}

#[test]
fn the_exit_is_not_held_up_by_the_agents_log() {
    let dir = TempDir::new();
    let _agent = Agent::listen(&dir.file("log.sock"), None);
    write_kubeconfig(&dir, 1, &other_ca());
    let config = json!({"name": "n", "cniVersion": "1.0.0", "cni_agent_run_dir": dir.path()});
    let started = Instant::now();
    let output = run(&ADD, &config.to_string());
    assert_eq!(stdout(&output), json!({"cniVersion": "1.0.0"}));
    assert!(
        started.elapsed() < Duration::from_secs(20),
        "{:?}",
        started.elapsed()
    );
    assert!(dir.read("istio-cni.log").contains("not a Kubernetes pod"));
}

/// The log is only a log, also where its file may not grow.
#[test]
fn a_limit_of_file_sizes_is_no_crash() {
    if Command::new("prlimit").arg("--version").output().is_err() {
        return println!("skipped: there is no prlimit of util-linux");
    }
    let dir = TempDir::new();
    write_kubeconfig(&dir, 1, &other_ca());
    let config = json!({"name": "n", "cniVersion": "1.0.0", "cni_agent_run_dir": dir.path()});
    let mut limited = Command::new("prlimit");
    limited.args(["--fsize=0", env!("CARGO_BIN_EXE_weir-cni")]);
    let output = output(&mut limited, &ADD, &config.to_string());
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert_eq!(stdout(&output), json!({"cniVersion": "1.0.0"}));
}
