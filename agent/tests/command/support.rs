//! Functions that run the command and the oracles.

use ipnet::IpNet;
use serde_json::{Value, json};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};
use weir_netlink::Netns;
use weir_netlink::route::{LOOPBACK_IFINDEX, RT_TABLE_LOCAL, Routing};

/// The output and the exit code of a run.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

/// Runs `weir`.
pub(crate) fn weir(args: &[&str]) -> Run {
    run(Command::new(env!("CARGO_BIN_EXE_weir")).args(args))
}

/// Runs `weir` with these variables.
pub(crate) fn weir_with(args: &[&str], variables: &[(&str, &str)]) -> Run {
    let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
    run(command.args(args).envs(variables.iter().copied()))
}

/// Runs `weir` with this stdin.
pub(crate) fn weir_fed(args: &[&str], stdin: &[u8]) -> Run {
    let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
    let piped = || std::process::Stdio::piped();
    command
        .args(args)
        .stdin(piped())
        .stdout(piped())
        .stderr(piped());
    let mut child = command.spawn().unwrap();
    write_to(&mut child, stdin);
    ended(child.wait_with_output().unwrap())
}

/// Writes to its stdin and closes it. A process with invalid arguments may have exited without reading.
pub(crate) fn write_to(child: &mut std::process::Child, stdin: &[u8]) {
    match child.stdin.take().unwrap().write_all(stdin) {
        Err(e) if e.kind() == std::io::ErrorKind::BrokenPipe => {}
        written => written.unwrap(),
    }
}

fn run(command: &mut Command) -> Run {
    ended(command.output().unwrap())
}

fn ended(out: std::process::Output) -> Run {
    Run {
        code: out.status.code().expect("ended by a signal"),
        stdout: String::from_utf8(out.stdout).unwrap(),
        stderr: String::from_utf8(out.stderr).unwrap(),
    }
}

/// Runs an oracle in a namespace.
pub(crate) fn inside(netns: &Netns, program: &str, args: &[&str]) -> String {
    let out = run(Command::new("nsenter")
        .arg(format!("--net={}", netns.path().display()))
        .arg(program)
        .args(args));
    assert_eq!(out.code, 0, "{program} {args:?}: {}", out.stderr);
    out.stdout
}

/// Creates a namespace with `lo` up. Prints a skip if this user may not create one.
macro_rules! pod_or_skip {
    () => {{
        let netns = weir_testing::namespace_or_skip!();
        $crate::support::lo_up(&netns);
        netns
    }};
}

/// Like `pod_or_skip`, for tests that write legacy tables.
///
/// A rule matches the proxy's user, which must be mapped here, and the tools need a lock file that belongs to the machine.
macro_rules! legacy_pod_or_skip {
    () => {{
        if let Some(reason) = $crate::rights::not_first_user_namespace() {
            eprintln!("skipped: {reason}");
            return;
        }
        pod_or_skip!()
    }};
}

pub(crate) fn lo_up(netns: &Netns) {
    let routing = Routing::open_in(netns).unwrap();
    let lo = routing.link("lo").unwrap();
    routing.set_up(lo.index).unwrap();
}

/// Waits for the routes to the addresses of `lo`: the kernel adds those of IPv6 later, from a work queue.
pub(crate) fn settle(netns: &Netns) {
    let routing = Routing::open_in(netns).unwrap();
    let begun = Instant::now();
    let is_settled = || {
        let local = routing.routes(RT_TABLE_LOCAL).unwrap();
        let mut held = routing.addresses().unwrap().into_iter();
        held.all(|a| {
            let itself = IpNet::from(a.net.addr());
            a.index != LOOPBACK_IFINDEX || local.iter().any(|r| r.dst == itself)
        })
    };
    while !is_settled() {
        let is_late = begun.elapsed() > Duration::from_secs(30);
        assert!(!is_late, "an address of lo without its route");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// The path by which other processes open the namespace.
pub(crate) fn path(netns: &Netns) -> String {
    netns.path().display().to_string()
}

/// A file that is deleted with this value.
pub(crate) struct TempFile(PathBuf);

impl TempFile {
    pub(crate) fn new(text: &str) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let n = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("weir-test-file-{}-{n}", std::process::id()));
        std::fs::write(&path, text).unwrap();
        Self(path)
    }

    pub(crate) fn path(&self) -> &str {
        self.0.to_str().unwrap()
    }
}

impl Drop for TempFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// A configuration that captures everything in both families, with these fields changed.
pub(crate) fn config(changes: &Value) -> TempFile {
    let mut config = json!({
        "proxy_uid": "1337",
        "proxy_gid": "1337",
        "inbound_ports_include": "*",
        "outbound_ip_ranges_include": "*",
        "enable_ipv6": true,
    });
    let fields = config.as_object_mut().unwrap();
    fields.extend(changes.as_object().unwrap().clone());
    TempFile::new(&config.to_string())
}

/// Like [`config`], for transparent proxying.
pub(crate) fn tproxy() -> TempFile {
    config(&json!({ "inbound_interception_mode": "TPROXY" }))
}

/// Whether a path exists.
pub(crate) fn exists(path: &str) -> bool {
    Path::new(path).exists()
}
