//! `weir-vm run` and `boot`, called as by Cargo and by a user.
use super::*;
use nix::sys::signal::{Signal, kill};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// `weir-vm run --kernel X -- WORDS`; `None` without a kernel.
fn run_command(words: &[&str]) -> Option<Output> {
    let kernel = kernel()?;
    options();
    let mut command = Command::new(PROGRAM);
    command
        .args(["run", "--kernel", &kernel.name, "--"])
        .args(words);
    command
        .env("VM_FROM_HOST", "yes")
        .env("CARGO_MANIFEST_DIR", env!("CARGO_MANIFEST_DIR"));
    Some(command.output().unwrap())
}

#[test]
fn a_list_is_made_on_the_host() {
    // The kernel does not exist: --list must not look it up.
    let words = [
        "run",
        "--kernel",
        "none",
        "--",
        "/bin/echo",
        "--list",
        "here",
    ];
    let out = Command::new(PROGRAM).args(words).output().unwrap();
    assert!(out.status.success());
    assert_eq!(out.stdout, b"--list here\n");
}

#[test]
fn a_runner_passes_everything_on() {
    let script = "echo $VM_FROM_HOST; read -r line <$CARGO_MANIFEST_DIR/Cargo.toml; echo $line; \
         pwd >&2; exit 42";
    let Some(out) = run_command(&["/bin/sh", "-c", script]) else {
        return;
    };
    assert_eq!(out.status.code(), Some(42), "{out:?}");
    assert_eq!(out.stdout, b"yes\n[package]\n");
    let here = std::env::current_dir().unwrap();
    assert!(String::from_utf8_lossy(&out.stderr).ends_with(&format!("{}\n", here.display())));
}

#[test]
fn a_signal_ends_the_runner_too() {
    let Some(out) = run_command(&["/bin/sh", "-c", "kill -SEGV $$"]) else {
        return;
    };
    assert_eq!(out.status.signal(), Some(Signal::SIGSEGV as i32), "{out:?}");
}

#[test]
fn a_person_is_asked_line_by_line() {
    use std::io::Write;
    let Some(kernel) = kernel() else { return };
    let mut child = Command::new(PROGRAM)
        .args(["boot", "--kernel", &kernel.name, "--with", "/bin/sh"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = "sh -c 'echo one two'\n\n.cat /proc/sys/kernel/hostname\n.nonsense\nnosuch\nsh -c 'exit 5'\n";
    child
        .stdin
        .take()
        .unwrap()
        .write_all(lines.as_bytes())
        .unwrap();
    let out = child.wait_with_output().unwrap();
    assert_eq!(String::from_utf8(out.stdout).unwrap(), "one two\nweir-vm\n");
    let stderr = String::from_utf8(out.stderr).unwrap();
    assert!(stderr.contains(".nonsense: no such command"), "{stderr}");
    assert!(stderr.contains("nosuch on kernel"), "{stderr}");
    assert_eq!(out.status.code(), Some(5), "{stderr}");
}

/// `weir-vm run` of a program that does not end by itself.
fn sleeper() -> Child {
    let kernel = kernel().unwrap();
    Command::new(PROGRAM)
        .args(["run", "--kernel", &kernel.name, "--", "/bin/sleep", "1000"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

/// The QEMU that a process started; the process also has children that list libraries.
fn qemu_of(child: &Child) -> Option<u32> {
    let tasks = fs::read_dir(format!("/proc/{}/task", child.id())).ok()?;
    let is_qemu = |pid: &u32| {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&line).contains("qemu-system")
    };
    tasks.flatten().find_map(|task| {
        let children = fs::read_to_string(task.path().join("children")).ok()?;
        let mut children = children
            .split_whitespace()
            .filter_map(|pid| pid.parse().ok());
        children.find(is_qemu)
    })
}

/// Polls a condition with a deadline.
fn eventually<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(
            start.elapsed() < Duration::from_secs(60),
            "{what}: not within a minute"
        );
        std::thread::yield_now();
    }
}

#[test]
fn no_qemu_outlives_its_parent_however_that_ends() {
    if kernel().is_none() {
        return;
    }
    options();
    for signal in [Signal::SIGKILL, Signal::SIGINT, Signal::SIGTERM] {
        let mut child = sleeper();
        let qemu = eventually("QEMU starts", || qemu_of(&child));
        let status = format!("/proc/{qemu}/stat");
        let pid = nix::unistd::Pid::from_raw(child.id().try_into().unwrap());
        kill(pid, signal).unwrap();
        child.wait().unwrap();
        // A zombie whose parent has not reaped it has ended as well.
        eventually("QEMU ends", || {
            let stat = fs::read_to_string(&status).unwrap_or_default();
            (stat.is_empty() || stat.contains(") Z ")).then_some(())
        });
        // After SIGKILL nothing can clean up; the next run does.
        let prefix = format!("{pid}-");
        let mut scratches = fs::read_dir(cache().scratches()).unwrap().flatten();
        let left = scratches.any(|e| e.file_name().to_str().unwrap().starts_with(&prefix));
        assert!(!left || signal == Signal::SIGKILL, "{signal}");
    }
}
