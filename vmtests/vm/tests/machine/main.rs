//! Tests with real guests: their results, and that nothing of them is left behind.
//!
//! They need QEMU (ci/fetch-qemu) and a kernel (`weir-vm fetch`). Without these, each test prints the reason and passes,
//! unless `VMTESTS_REQUIRE` names a kernel.
// Helpers are tests, too: clippy.toml allows them the same.
#![cfg(test)]

mod command;
mod faults;
mod programs;
mod states;

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use weir_vm::proto::{Ending, Run};
use weir_vm::{Accel, Cache, Kernel, Kernels, Machine, Options, Payload, Result, Stream};

const PROGRAM: &str = env!("CARGO_BIN_EXE_weir-vm");

/// Kernels to use, in order of preference: those with virtio as modules come first, since they need more to work.
const KERNELS: [&str; 5] = ["6.1", "5.10", "6.12", "6.18", "newest"];

fn cache() -> Cache {
    Cache::open(None).unwrap()
}

/// A kernel that is ready to boot; without one, `None`, and the reason on standard output.
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
            .join("../../target/qemu/qemu-system-x86_64")
            .exists()
        || std::env::var_os("VMTESTS_QEMU").is_some();
    match found {
        Some(kernel) if qemu => Some(kernel),
        _ => {
            assert!(
                !required,
                "VMTESTS_REQUIRE is set, and there is no kernel or no QEMU"
            );
            println!("skip: needs ci/fetch-qemu and `weir-vm fetch`");
            None
        }
    }
}

/// Programs of the host that the tests run in guests.
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
    // One trial of KVM suffices for all caches of these tests.
    let accel = ACCEL.get_or_init(|| {
        let machine = Machine::start(&cache(), &kernel().unwrap(), &payload(), &options).unwrap();
        machine.accel
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
        deadline_ms: 30_000,
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
    assert_eq!(outcome.kernel_error, None);
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (outcome.exit.ending, text(out), text(err))
}

/// A separate cache below the real one, for tests that would disturb others. The kernel is from the real one.
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

    /// The path of a file in the only saved state.
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
