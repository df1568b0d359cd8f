//! A demonstration that is ended by a signal leaves nothing, and what a killed one leaves goes with the next.
// matrix: smoke

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::fs::{File, create_dir};
use std::os::unix::fs::{DirBuilderExt, symlink};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use weir_testing::TempDir;

fn demo(tmp: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
    command.arg("demo").env("TMPDIR", tmp);
    command.stdout(Stdio::null()).stderr(Stdio::piped());
    command
}

/// Starts one and sends the signal as soon as it has its directory. Returns the exit code (`None`: the signal ended it) and the
/// directory's name; `None`, with the reason printed, where no demonstration runs.
fn ended_by(signal: Signal, tmp: &Path) -> Option<(Option<i32>, String)> {
    let mut child = demo(tmp).spawn().unwrap();
    let name = format!("weir-demo-{}", child.id());
    let begun = Instant::now();
    while !tmp.join(&name).join("cache").exists() {
        if child.try_wait().unwrap().is_some() {
            let output = child.wait_with_output().unwrap();
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            println!("skipped: no demonstration runs here: {said}");
            return None;
        }
        assert!(begun.elapsed() < Duration::from_secs(60), "no directory");
        std::thread::sleep(Duration::from_millis(1));
    }
    kill(Pid::from_raw(child.id().try_into().unwrap()), signal).unwrap();
    let output = child.wait_with_output().unwrap();
    Some((output.status.code(), name))
}

#[test]
fn a_signal_leaves_nothing() {
    for signal in [Signal::SIGINT, Signal::SIGTERM] {
        let tmp = TempDir::new();
        let Some((code, _)) = ended_by(signal, tmp.path()) else {
            return;
        };
        assert_eq!(code, Some(1), "{signal}");
        let left: Vec<_> = tmp.path().read_dir().unwrap().collect();
        assert!(left.is_empty(), "{signal}: {left:?}");
    }
}

#[test]
fn what_a_killed_one_left_goes_with_the_next() {
    let tmp = TempDir::new();
    let Some((code, name)) = ended_by(Signal::SIGKILL, tmp.path()) else {
        return;
    };
    assert_eq!(code, None);
    let at = |name: &str| tmp.path().join(name);
    assert!(at(&name).exists());
    // Those of others: without a lock, a link, one that others may write to, with another content, and one that is in use.
    let make = |name: &str, mode: u32, content: &str| {
        let mut builder = std::fs::DirBuilder::new();
        builder.mode(mode).create(at(name)).unwrap();
        std::fs::write(at(name).join("lock"), content).unwrap();
    };
    create_dir(at("weir-demo-1")).unwrap();
    make("elsewhere", 0o700, "weir-demo-2\n");
    symlink(at("elsewhere"), at("weir-demo-2")).unwrap();
    make("weir-demo-3", 0o700, "");
    std::fs::set_permissions(
        at("weir-demo-3"),
        std::os::unix::fs::PermissionsExt::from_mode(0o777),
    )
    .unwrap();
    std::fs::write(at("weir-demo-3/lock"), "weir-demo-3\n").unwrap();
    make("weir-demo-4", 0o700, "something else\n");
    make("weir-demo-5", 0o700, "weir-demo-5\n");
    let in_use = File::open(at("weir-demo-5/lock")).unwrap();
    in_use.lock().unwrap();
    make("weir-demo-x", 0o700, "weir-demo-x\n");
    let next = demo(tmp.path()).output().unwrap();
    let said = String::from_utf8_lossy(&next.stderr);
    assert_eq!(next.status.code(), Some(0), "{said}");
    assert!(said.contains(&format!("{name}, which a killed")), "{said}");
    let mut left: Vec<String> = tmp
        .path()
        .read_dir()
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    left.sort();
    let others = ["1", "2", "3", "4", "5", "x"].map(|n| format!("weir-demo-{n}"));
    assert_eq!(left, [&["elsewhere".to_owned()], &others[..]].concat());
    assert!(at("elsewhere/lock").exists());
}

/// Pins outlive the network namespaces, which the kernel deletes some time after the process has ended.
#[test]
fn pins_that_a_killed_one_left_go_with_the_next() {
    let Some(mounted) = weir_testing::BpfFs::mount() else {
        return;
    };
    // Pins of filters do not tell whether the namespace exists.
    if let Err(e) = weir_bpf::attached(1, weir_bpf::BPF_TCX_INGRESS) {
        return weir_testing::lacks::skip("attach tcx", "6.6", e);
    }
    // Other tests look for what is left in the directory of the machine.
    let tmp = TempDir::new();
    let demo = || {
        let mut command = demo(tmp.path());
        command.args(["--node-ambient", "--engine", "ebpf"]);
        command.env("WEIR_BPFFS", mounted.path());
        command
    };
    let namespaces = || -> Vec<std::path::PathBuf> {
        let list = mounted.path().join("weir/v2").read_dir();
        let found = list.into_iter().flatten().flatten();
        found.map(|entry| entry.path()).collect()
    };
    // Of the node and of the proxy, each with the pin of a program.
    let is_attached = |folder: &std::path::PathBuf| {
        let list = folder.read_dir().into_iter().flatten().flatten();
        let mut names = list.map(|entry| entry.file_name().to_string_lossy().into_owned());
        names.any(|name| name.contains("gress_"))
    };
    let until = Instant::now() + Duration::from_secs(60);
    let mut child = demo().spawn().unwrap();
    while namespaces().iter().filter(|f| is_attached(f)).count() < 2 {
        assert!(child.try_wait().unwrap().is_none() && Instant::now() < until);
        std::thread::sleep(Duration::from_millis(1));
    }
    kill(
        Pid::from_raw(child.id().try_into().unwrap()),
        Signal::SIGKILL,
    )
    .unwrap();
    child.wait().unwrap();
    assert_eq!(namespaces().len(), 2);
    loop {
        let next = demo().output().unwrap();
        let said = String::from_utf8_lossy(&next.stderr);
        assert_eq!(next.status.code(), Some(0), "{said}");
        if namespaces().is_empty() {
            return;
        }
        assert!(Instant::now() < until, "{:?}: {said}", namespaces());
    }
}
