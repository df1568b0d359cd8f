//! The process-related system calls of a run, as strace reports them.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A directory that is deleted with this value, also if the test fails.
struct TempDir(PathBuf);

impl TempDir {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("weir-{name}-{}", std::process::id()));
        std::fs::create_dir(&path).unwrap();
        Self(path)
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// The lines of `strace -f -e trace=process` of a run that must succeed.
///
/// Prints the reason and returns `None` if strace cannot be used.
fn trace(dir: &TempDir, program: &Path, arguments: &[&str]) -> Option<String> {
    let output = dir.0.join("trace");
    let strace = |command: &Path| {
        let mut strace = Command::new("strace");
        strace.args([
            "-f",
            "-qq",
            "-e",
            "trace=process",
            "-e",
            "signal=none",
            "-o",
        ]);
        strace.arg(&output).arg(command).stdin(Stdio::null());
        strace
    };
    let probe = strace(Path::new("/bin/true")).output();
    if !probe.as_ref().is_ok_and(|p| p.status.success()) {
        let reason = match probe {
            Ok(p) => String::from_utf8_lossy(&p.stderr).into_owned(),
            Err(e) => e.to_string(),
        };
        let required = std::env::var_os("WEIR_REQUIRE_TOOLS").is_some();
        assert!(!required, "strace cannot be used: {reason}");
        println!("skipped: strace cannot be used: {}", reason.trim());
        return None;
    }
    let mut command = strace(program);
    let ran = command
        .args(arguments)
        .env("CNI_COMMAND", "VERSION")
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&ran.stderr);
    assert!(
        ran.status.success(),
        "{} {arguments:?}: {errors}",
        program.display()
    );
    Some(std::fs::read_to_string(&output).unwrap())
}

/// The lines other than the start of the program, its threads and its exit.
fn offences(trace: &str) -> Vec<&str> {
    let mut started = false;
    let harmless = |line: &&str| {
        // "PID call(arguments) = result", "PID +++ exited", "PID <... call resumed>"
        let call = line
            .split_once(' ')
            .map_or("", |(_, rest)| rest.trim_start());
        let name = call
            .trim_start_matches("<... ")
            .split(['(', ' '])
            .next()
            .unwrap_or("");
        match name {
            "execve" => !std::mem::replace(&mut started, true),
            "clone" | "clone3" => call.starts_with("<...") || call.contains("CLONE_THREAD"),
            "exit" | "exit_group" | "+++" => true,
            _ => false,
        }
    };
    let mut harmless = harmless;
    trace.lines().filter(|line| !harmless(line)).collect()
}

#[test]
fn a_run_executes_nothing() {
    let netns = weir_testing::namespace_or_skip!();
    let dir = TempDir::new("no-exec");
    let config = dir.0.join("config.json");
    std::fs::write(
        &config,
        r#"{"inbound_ports_include": "*", "outbound_ip_ranges_include": "*"}"#,
    )
    .unwrap();
    let (config, netns) = (
        config.display().to_string(),
        netns.path().display().to_string(),
    );
    let sidecar = ["sidecar", "--config", &config, "--netns", &netns];
    let runs = [
        [&["apply"], &sidecar[..]].concat(),
        [&["verify"], &sidecar[..]].concat(),
        vec!["show", "--netns", &netns],
        vec!["clean", "--netns", &netns],
    ];
    for arguments in runs {
        let weir = Path::new(env!("CARGO_BIN_EXE_weir"));
        let Some(trace) = trace(&dir, weir, &arguments) else {
            return;
        };
        assert!(
            trace.contains("execve("),
            "a trace begins with the start:\n{trace}"
        );
        assert_eq!(offences(&trace), [""; 0], "weir {arguments:?}");
    }
    let Some(plugin) = super::plugin() else {
        return;
    };
    let Some(trace) = trace(&dir, &plugin, &[]) else {
        return;
    };
    assert_eq!(offences(&trace), [""; 0], "weir-cni VERSION");
}

#[test]
fn an_execution_is_seen() {
    let dir = TempDir::new("exec");
    let shell = Path::new("/bin/sh");
    let Some(seen) = trace(&dir, shell, &["-c", "/bin/true; /bin/true"]) else {
        return;
    };
    let offences = offences(&seen);
    let has = |what: &str| offences.iter().any(|line| line.contains(what));
    assert!(
        has("execve(\"/bin/true\"") && (has("fork") || has("clone")),
        "{seen}"
    );
}
