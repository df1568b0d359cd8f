//! Real guests: what comes back from them, and that nothing of them stays.
//!
//! They need QEMU (ci/fetch-qemu) and a kernel (`weir-vmtests fetch`). Without, each test says so and passes, unless
//! `VMTESTS_REQUIRE` names a kernel.
#![allow(clippy::unwrap_used, clippy::print_stdout)]

use std::ffi::OsString;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant, SystemTime};
use weir_vmtests::proto::{Ending, Run};
use weir_vmtests::{
    Accel, Cache, Kernel, Kernels, Machine, Options, Origin, Payload, Result, Stream,
};

const PROGRAM: &str = env!("CARGO_BIN_EXE_weir-vmtests");

/// A kernel with virtio as modules: more has to work than for one with it built in.
const KERNELS: [&str; 5] = ["6.1", "5.10", "6.12", "6.18", "newest"];

fn cache() -> Cache {
    Cache::open(None).unwrap()
}

/// A kernel that is ready; None, and the reason on standard output, when there is none.
fn kernel() -> Option<Kernel> {
    let kernels = Kernels::open(&cache(), None).unwrap();
    let found = KERNELS
        .iter()
        .map(|name| kernels.get(name))
        .find_map(Result::ok);
    let required = std::env::var("VMTESTS_REQUIRE").is_ok_and(|r| !r.is_empty());
    let qemu = cache()
        .root()
        .parent()
        .unwrap()
        .join("qemu/qemu-system-x86_64");
    let qemu = qemu.exists()
        || Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../target/qemu/qemu-system-x86_64")
            .exists()
        || std::env::var_os("VMTESTS_QEMU").is_some();
    match found {
        Some(kernel) if qemu => Some(kernel),
        _ => {
            assert!(
                !required,
                "VMTESTS_REQUIRE is set, and there is no kernel or no QEMU"
            );
            println!("skip: needs ci/fetch-qemu and `weir-vmtests fetch`");
            None
        }
    }
}

/// Programs of this machine that the tests run in guests.
fn payload() -> Payload {
    let mut payload = Payload::new();
    for program in [
        "/bin/sh",
        "/bin/sleep",
        "/bin/cat",
        "/bin/date",
        "/bin/dd",
        "/bin/mkdir",
    ] {
        payload.program(program).unwrap();
    }
    payload
}

fn options() -> Options {
    static ACCEL: OnceLock<Accel> = OnceLock::new();
    let mut options = Options::new().unwrap();
    options.program = PROGRAM.into();
    // One trial of KVM for all caches of these tests.
    let accel = ACCEL.get_or_init(|| {
        let machine = Machine::start(&cache(), &kernel().unwrap(), &payload(), &options).unwrap();
        machine.accel()
    });
    options.accel = Some(*accel);
    options
}

fn start() -> Option<Machine> {
    Some(Machine::start(&cache(), &kernel()?, &payload(), &options()).unwrap())
}

fn sh(script: &str) -> Run {
    let words = ["/bin/sh", "-c", script];
    Run {
        argv: words.map(OsString::from).to_vec(),
        cwd: "/made/on/demand".into(),
        env: vec![
            ("PATH".into(), "/bin".into()),
            ("GREETING".into(), "hello".into()),
        ],
        is_isolated: false,
        deadline_ms: 30_000,
        stdin: None,
    }
}

fn run(machine: &mut Machine, run: &Run) -> (Ending, String, String) {
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let outcome = machine
        .run(run, &mut |stream, bytes| match stream {
            Stream::Out => out.extend_from_slice(bytes),
            Stream::Err => err.extend_from_slice(bytes),
        })
        .unwrap();
    assert_eq!(outcome.trouble, None);
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (outcome.exit.ending, text(out), text(err))
}

/// A cache of its own below the real one, for what would disturb others. The kernel comes from the real one.
struct Private(Cache);

impl Private {
    fn new(name: &str) -> Self {
        let folder = cache()
            .root()
            .join(format!("tests/{name}-{}", std::process::id()));
        Self(Cache::open(Some(folder)).unwrap())
    }

    fn start(&self) -> Machine {
        Machine::start(&self.0, &kernel().unwrap(), &payload(), &options()).unwrap()
    }

    /// The one saved state's file of that name.
    fn state_file(&self, name: &str) -> PathBuf {
        let mut found = fs::read_dir(self.0.states())
            .unwrap()
            .map(|e| e.unwrap().path().join(name));
        found.find(|p| p.exists()).unwrap()
    }
}

impl Drop for Private {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(self.0.root());
    }
}

#[test]
fn output_status_signal_and_environment_come_back() {
    let Some(mut m) = start() else { return };
    let (ending, out, err) = run(
        &mut m,
        &sh("echo $GREETING from $(pwd) >&2; cat /proc/version; exit 7"),
    );
    assert_eq!(ending, Ending::Status(7));
    assert!(out.starts_with("Linux version "), "{out}");
    assert_eq!(err, "hello from /made/on/demand\n");
    assert_eq!(run(&mut m, &sh("kill -SEGV $$")).0, Ending::Signal(11));
    let (ending, out, _) = run(
        &mut m,
        &sh("dd if=/dev/zero bs=1024 count=3000 2>/dev/null"),
    );
    assert_eq!((ending, out.len()), (Ending::Status(0), 3000 * 1024));
}

#[test]
fn a_program_that_is_not_there_is_named() {
    let Some(mut m) = start() else { return };
    let mut missing = sh("");
    missing.argv = vec!["/bin/nonexistent".into()];
    let e = m.run(&missing, &mut |_, _| {}).unwrap_err();
    assert!(
        e.input.contains("/bin/nonexistent") && e.reason.contains("No such file"),
        "{e}"
    );
    // And the guest goes on.
    assert_eq!(run(&mut m, &sh("exit 0")).0, Ending::Status(0));
}

#[test]
fn a_deadline_ends_the_program_and_all_that_it_started() {
    let Some(mut m) = start() else { return };
    let mut slow = sh("sleep 1000 & echo started; sleep 1000");
    slow.deadline_ms = 500;
    let start = Instant::now();
    let (ending, out, _) = run(&mut m, &slow);
    assert_eq!((ending, out.as_str()), (Ending::TimedOut, "started\n"));
    assert!(start.elapsed() < Duration::from_secs(10));
    // An orphan that holds the output open does not hold up the verdict, and does not stay.
    let orphan = sh("sleep 1000 & exit 3");
    assert_eq!(run(&mut m, &orphan).0, Ending::Status(3));
    let (_, out, _) = run(&mut m, &sh("cat /proc/[0-9]*/comm"));
    assert!(!out.contains("sleep"), "{out}");
}

#[test]
fn an_isolated_program_has_its_own_network_with_lo_up() {
    let Some(mut m) = start() else { return };
    let mut isolated = sh("cat /proc/sys/net/ipv4/ip_forward /proc/net/if_inet6; \
         echo 1 >/proc/sys/net/ipv4/ip_forward; mkdir /sys/fs/cgroup/x && echo made");
    isolated.is_isolated = true;
    for _ in 0..2 {
        let (ending, out, err) = run(&mut m, &isolated);
        assert_eq!(ending, Ending::Status(0), "{err}");
        assert!(out.starts_with("0\n") && out.contains("lo\n"), "{out}");
        isolated.argv[2] = "cat /proc/sys/net/ipv4/ip_forward /proc/net/if_inet6".into();
    }
}

#[test]
fn files_go_in_and_out() {
    let Some(mut m) = start() else { return };
    let bytes: Vec<u8> = (0..700_000u32).map(|i| (i % 251) as u8).collect();
    let path = Path::new("/a/new/folder/file");
    m.put(path, 0o755, &bytes).unwrap();
    assert_eq!(m.get(path).unwrap(), bytes);
    m.put(path, 0o755, b"#!/bin/sh\nexit 5\n").unwrap();
    let mut script = sh("");
    script.argv = vec![path.into()];
    assert_eq!(run(&mut m, &script).0, Ending::Status(5));
    let e = m.get(Path::new("/nonexistent")).unwrap_err();
    assert!(e.reason.contains("/nonexistent"), "{e}");
    let e = m.load(&[Path::new("/bin/cat")]).unwrap_err();
    assert!(e.reason.contains("module /bin/cat"), "{e}");
}

#[test]
fn copies_have_the_time_of_now_and_random_numbers_of_their_own() {
    let Some(mut one) = start() else { return };
    let mut two = start().unwrap();
    let script = sh("date +%s; cat /proc/sys/kernel/random/uuid");
    let draw = |m: &mut Machine| {
        let (_, out, _) = run(m, &script);
        let (seconds, uuid) = out.split_once('\n').unwrap();
        let now = SystemTime::now()
            .duration_since(SystemTime::UNIX_EPOCH)
            .unwrap()
            .as_secs();
        assert!(
            now.abs_diff(seconds.parse().unwrap()) <= 3,
            "{seconds}, now {now}"
        );
        uuid.to_owned()
    };
    let drawn = [draw(&mut one), draw(&mut two)];
    assert_ne!(drawn[0], drawn[1]);
    // A copy does not see what another wrote.
    one.put(Path::new("/bin/sh"), 0o755, b"gone").unwrap();
    assert_eq!(run(&mut two, &sh("exit 0")).0, Ending::Status(0));
    drop((one, two));
    assert_eq!(
        run(&mut start().unwrap(), &sh("exit 0")).0,
        Ending::Status(0)
    );
}

#[test]
fn a_panic_is_an_error_with_the_console() {
    let Some(mut m) = start() else { return };
    let start = Instant::now();
    let e = m
        .run(&sh("echo c >/proc/sysrq-trigger"), &mut |_, _| {})
        .unwrap_err();
    assert!(
        e.reason
            .contains("Kernel panic - not syncing: sysrq triggered crash"),
        "{e}"
    );
    assert!(
        e.reason.contains("without a verdict") && e.reason.contains("Call Trace"),
        "{e}"
    );
    assert!(
        start.elapsed() < Duration::from_secs(10),
        "a panic is not waited for"
    );
}

#[test]
fn a_warning_is_trouble_though_the_program_is_happy() {
    let Some(mut m) = start() else { return };
    let script = sh("echo '------------[ cut here ]------------' >/dev/kmsg");
    let outcome = m.run(&script, &mut |_, _| {}).unwrap();
    assert_eq!(outcome.exit.ending, Ending::Status(0));
    assert_eq!(outcome.trouble.unwrap().kind, "warning");
    // It belongs to that program, not to the next.
    assert_eq!(run(&mut m, &sh("exit 0")).0, Ending::Status(0));
}

#[test]
fn a_guest_that_hangs_is_given_up_at_the_hosts_deadline() {
    let Some(kernel) = kernel() else { return };
    let mut options = options();
    options.grace = Duration::from_millis(500);
    let mut m = Machine::start(&cache(), &kernel, &payload(), &options).unwrap();
    let pid = nix::unistd::Pid::from_raw(m.pid().try_into().unwrap());
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGSTOP).unwrap();
    let mut run = sh("exit 0");
    run.deadline_ms = 100;
    let e = m.run(&run, &mut |_, _| {}).unwrap_err();
    assert!(e.reason.contains("it hangs"), "{e}");
    drop(m);
    assert!(!Path::new(&format!("/proc/{pid}")).exists());
}

#[test]
fn a_damaged_state_is_made_anew() {
    if kernel().is_none() {
        return;
    }
    let private = Private::new("damaged");
    assert_eq!(*private.start().origin(), Origin::Saved);
    assert_eq!(*private.start().origin(), Origin::Restored);
    // Cut off: seen at once.
    File::options()
        .write(true)
        .open(private.state_file("memory"))
        .unwrap()
        .set_len(4096)
        .unwrap();
    let m = private.start();
    assert!(
        matches!(m.origin(), Origin::Renewed(why) if why.contains("memory has 4096")),
        "{:?}",
        m.origin()
    );
    // Of the right size, and nonsense: the guest does not answer.
    let memory = File::options()
        .write(true)
        .open(private.state_file("memory"))
        .unwrap();
    let size = memory.metadata().unwrap().len();
    memory.set_len(0).unwrap();
    memory.set_len(size).unwrap();
    memory.write_all_at(&[0xff; 4096], 0).unwrap();
    let mut m = private.start();
    assert!(matches!(m.origin(), Origin::Renewed(_)), "{:?}", m.origin());
    assert_eq!(run(&mut m, &sh("exit 0")).0, Ending::Status(0));
}

#[test]
fn two_runs_at_once_save_one_state() {
    if kernel().is_none() {
        return;
    }
    let private = Private::new("twice");
    let origins: Vec<Origin> = std::thread::scope(|scope| {
        let starts: Vec<_> = (0..3)
            .map(|_| scope.spawn(|| private.start().origin().clone()))
            .collect();
        starts.into_iter().map(|s| s.join().unwrap()).collect()
    });
    assert_eq!(
        origins.iter().filter(|o| **o == Origin::Saved).count(),
        1,
        "{origins:?}"
    );
    assert_eq!(
        origins.iter().filter(|o| **o == Origin::Restored).count(),
        2,
        "{origins:?}"
    );
}

#[test]
fn a_kernel_without_virtio_says_what_it_lacks() {
    let Some(mut kernel) = kernel() else { return };
    let before = kernel.modules.len();
    kernel.modules.retain(|m| m.name != "virtio_console");
    if kernel.modules.len() == before {
        println!("skip: kernel {} has virtio built in", kernel.name);
        return;
    }
    let private = Private::new("novirtio");
    let mut options = options();
    options.is_saved = false;
    let e = Machine::start(&private.0, &kernel, &payload(), &options).unwrap_err();
    assert!(e.reason.contains("no virtio-serial port"), "{e}");
    assert!(e.remedy.contains("CONFIG_VIRTIO_CONSOLE"), "{e}");
}

#[test]
fn a_file_that_is_no_kernel_is_an_error() {
    let Some(mut kernel) = kernel() else { return };
    kernel.image = "/etc/passwd".into();
    let private = Private::new("nokernel");
    let e = Machine::start(&private.0, &kernel, &payload(), &options()).unwrap_err();
    assert!(e.reason.contains("QEMU says"), "{e}");
    // No half state, no scratch.
    assert!(!fs::read_dir(private.0.scratches()).unwrap().any(|_| true));
}

/// `weir-vmtests run` of a program that does not end by itself.
fn sleeper() -> Child {
    let kernel = kernel().unwrap();
    Command::new(PROGRAM)
        .args(["run", "--kernel", &kernel.name, "--", "/bin/sleep", "1000"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

/// The QEMU that a process started.
fn qemu_of(child: &Child) -> Option<u32> {
    let tasks = fs::read_dir(format!("/proc/{}/task", child.id())).ok()?;
    tasks.flatten().find_map(|task| {
        let children = fs::read_to_string(task.path().join("children")).ok()?;
        children.split_whitespace().next()?.parse().ok()
    })
}

/// Waits for something with a deadline.
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
    use nix::sys::signal::{Signal, kill};
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
        // A zombie of another parent is gone as well.
        eventually("QEMU ends", || {
            let stat = fs::read_to_string(&status).unwrap_or_default();
            (stat.is_empty() || stat.contains(") Z ")).then_some(())
        });
    }
}
