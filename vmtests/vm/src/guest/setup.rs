//! Sets up what a program expects of a machine: file systems, host name, devices, modules, clock.
use super::MODULES_LIST;
use crate::proto::Hello;
use nix::errno::Errno;
use nix::kmod::{ModuleInitFlags, finit_module};
use nix::mount::{MsFlags, mount};
use nix::sys::time::TimeSpec;
use nix::time::{ClockId, clock_settime};
use std::fs::{self, File};
use std::path::Path;
use std::time::Duration;

/// The mounts: target, type, options, and whether a failure is reported.
const MOUNTS: &[(&str, &str, &str, bool)] = &[
    ("/proc", "proc", "", true),
    ("/sys", "sysfs", "", true),
    ("/dev", "devtmpfs", "", true),
    ("/dev/pts", "devpts", "", true),
    ("/dev/shm", "tmpfs", "mode=1777", true),
    ("/run", "tmpfs", "mode=755", true),
    ("/sys/fs/cgroup", "cgroup2", "", true),
    ("/sys/fs/bpf", "bpf", "", true),
    ("/sys/kernel/debug", "debugfs", "", false),
    ("/sys/kernel/tracing", "tracefs", "", false),
];

/// The path of the program that the kernel runs to load modules; empty: none.
const MODPROBE: &str = "/proc/sys/kernel/modprobe";

/// Mounts the file systems, sets the host name and loads the modules. A failure becomes a note: the host decides whether
/// it matters.
pub(super) fn prepare() -> Hello {
    let mut notes = Vec::new();
    mount_all(&mut notes);
    if let Err(e) = nix::unistd::sethostname("weir-vm") {
        notes.push(format!("sethostname: {e}"));
    }
    // devtmpfs does not have these links, but programs use them.
    for (link, target) in [
        ("fd", "/proc/self/fd"),
        ("stdin", "fd/0"),
        ("stdout", "fd/1"),
        ("stderr", "fd/2"),
    ] {
        let _ = std::os::unix::fs::symlink(target, Path::new("/dev").join(link));
    }
    // The guest has no modprobe. An empty path keeps the kernel from trying to start it, and lets a test find out that no
    // module can be loaded later.
    if let Err(e) = fs::write(MODPROBE, "\n")
        && Path::new(MODPROBE).exists()
    {
        notes.push(format!("{MODPROBE}: {e}"));
    }
    let list = fs::read_to_string(MODULES_LIST).unwrap_or_default();
    for file in list.lines() {
        notes.extend(load_module(Path::new(file)).err());
    }
    notes.extend(crate::process::loopback_up().err());
    let release = nix::sys::utsname::uname()
        .map(|u| u.release().to_string_lossy().into_owned())
        .unwrap_or_default();
    Hello {
        version: crate::proto::VERSION,
        release,
        notes,
    }
}

fn mount_all(notes: &mut Vec<String>) {
    for &(target, kind, options, is_needed) in MOUNTS {
        let _ = fs::create_dir_all(target);
        let options = (!options.is_empty()).then_some(options);
        // Device nodes work only below `/dev`.
        let mut flags = MsFlags::MS_NOSUID;
        flags.set(MsFlags::MS_NODEV, !["/dev", "/dev/pts"].contains(&target));
        let done = mount(Some(kind), target, Some(kind), flags, options);
        // The kernel may have mounted devtmpfs by itself (CONFIG_DEVTMPFS_MOUNT).
        if let Err(e) = done
            && e != Errno::EBUSY
            && is_needed
        {
            notes.push(format!("mount {kind} on {target}: {e}"));
        }
    }
}

/// Loads a module, as `insmod FILE`. EEXIST, for a module that is loaded already, is no error.
fn load_module(file: &Path) -> Result<(), String> {
    let failed = |e: &dyn std::fmt::Display| format!("module {}: {e}", file.display());
    let open = File::open(file).map_err(|e| failed(&e))?;
    match finit_module(open, c"", ModuleInitFlags::empty()) {
        Ok(()) | Err(Errno::EEXIST) => Ok(()),
        Err(e) => Err(failed(&e)),
    }
}

/// Sets the clock and seeds the random number generator: a saved state has old values of both, and every copy of it the
/// same ones.
pub(super) fn sync(unix_nanos: u64, seed: &[u8; 32]) -> Vec<String> {
    let mut notes = Vec::new();
    let now = TimeSpec::from_duration(Duration::from_nanos(unix_nanos));
    if let Err(e) = clock_settime(ClockId::CLOCK_REALTIME, now) {
        notes.push(format!("clock_settime: {e}"));
    }
    if let Err(e) = weir_netlink::tuning::seed_random(seed) {
        notes.push(format!("seeding the random numbers: {e}"));
    }
    notes
}
