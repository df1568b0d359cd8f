//! Runs cases on the running kernel, each in its own process and network namespace.
use super::ran::Ran;
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::{getegid, geteuid};
use std::path::Path;
use std::process::Command;
use weir_vm::{At, Result, process};

/// `argv[1]` of this program if it is to enter namespaces and execute another program.
const ENTER: &str = "enter-namespaces";

/// If the arguments request it, enters new namespaces, executes a program there and does not return; otherwise does nothing.
///
/// Call it in `main`, next to `play_another_part_if_asked` of weir-vm, before any thread is started: unshare(2) with
/// CLONE_NEWUSER fails with EINVAL in a multithreaded process.
pub fn enter_namespaces_if_asked() {
    process::become_another_if_asked(ENTER, namespaces);
}

/// Enters a network and a mount namespace, as an ordinary user also a user namespace that maps the user to root.
fn namespaces() -> std::result::Result<(), String> {
    let (uid, gid) = (geteuid(), getegid());
    let own = |file: &str, text: String| {
        let path = Path::new("/proc/self").join(file);
        std::fs::write(path, text).map_err(|e| format!("unshare -Ur: {e}"))
    };
    if !uid.is_root() {
        unshare(CloneFlags::CLONE_NEWUSER).map_err(|e| format!("unshare -Ur: {e}"))?;
        own("setgroups", "deny".to_owned())?;
        own("uid_map", format!("0 {uid} 1"))?;
        own("gid_map", format!("0 {gid} 1"))?;
    }
    let flags = CloneFlags::CLONE_NEWNET | CloneFlags::CLONE_NEWNS;
    unshare(flags).map_err(|e| format!("unshare -nm: {e}"))?;
    let (none, flags) = (None::<&str>, MsFlags::MS_REC | MsFlags::MS_PRIVATE);
    let private = mount(none, "/", none, flags, none);
    private.map_err(|e| format!("mount --make-rprivate /: {e}"))?;
    if !uid.is_root() {
        // An ordinary user cannot write to /run, where iptables-legacy has its lock.
        let kind = Some("tmpfs");
        let run = mount(kind, "/run", kind, MsFlags::empty(), none);
        run.map_err(|e| format!("mount /run: {e}"))?;
    }
    process::loopback_up()
}

/// Runs a program to its end; `ours` is the path of this crate's binary.
pub(super) fn run(ours: &Path, run: &weir_vm::proto::Run) -> Result<Ran> {
    let mut command = Command::new(ours);
    command.arg(ENTER).arg(std::process::id().to_string());
    command.args(&run.argv);
    let mut ran = Ran::default();
    let ending = process::run(
        command,
        run,
        |group| _ = killpg(group, Signal::SIGKILL),
        &mut |stream, bytes| ran.add(stream, &bytes),
    );
    let program = run.argv.first().cloned().unwrap_or_default();
    ran.ending = Some(ending.at(program)?);
    Ok(ran)
}
