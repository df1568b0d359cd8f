//! Cases on the running kernel: a process of its own for each, in a network of its own.
use super::ran::Ran;
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::{Signal, killpg};
use nix::unistd::{Pid, getegid, geteuid};
use std::ffi::{OsStr, OsString};
use std::io::Read;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;
use weir_netlink::route::Routing;
use weir_vm::proto::Ending;
use weir_vm::{Error, Result};

/// `argv[1]` of this program when it is to enter namespaces and become another one; then come the parent's process
/// id, the program and its arguments.
const ENTER: &str = "enter-namespaces";
/// How long the output of a case that has ended is waited for.
const DRAIN: Duration = Duration::from_secs(10);

/// When the arguments say so, enters new namespaces, becomes a program there and does not return; else does nothing.
///
/// To be called in `main`, beside `become_qemu_if_asked` of weir-vm, while there is one thread: a process with several
/// cannot enter a user namespace.
pub fn enter_namespaces_if_asked() {
    let mut arguments = std::env::args_os().skip(1);
    if arguments.next().as_deref() == Some(OsStr::new(ENTER)) {
        let arguments: Vec<OsString> = arguments.collect();
        let reason = enter(&arguments);
        eprintln!("weir-vmtests {ENTER}: {reason}");
        std::process::exit(3);
    }
}

fn enter(arguments: &[OsString]) -> String {
    let [parent, program, rest @ ..] = arguments else {
        return "to be called by weir-vmtests itself".into();
    };
    if let Err(e) = set_pdeathsig(Signal::SIGKILL) {
        return format!("PR_SET_PDEATHSIG: {e}");
    }
    if parent.to_str() != Some(&std::os::unix::process::parent_id().to_string()) {
        return "the process that wanted this case is gone".into();
    }
    if let Err(reason) = namespaces() {
        return reason;
    }
    let e = Command::new(program).args(rest).exec();
    format!("{}: {e}", program.display())
}

/// As root a network and a mount namespace; as anybody else first a user namespace in which one is root.
fn namespaces() -> std::result::Result<(), String> {
    let said = |what: &'static str| move |e: &dyn std::fmt::Display| format!("{what}: {e}");
    let (uid, gid) = (geteuid(), getegid());
    if !uid.is_root() {
        let failed = said("unshare -Ur");
        unshare(CloneFlags::CLONE_NEWUSER).map_err(|e| failed(&e))?;
        for (file, text) in [
            ("setgroups", "deny".to_owned()),
            ("uid_map", format!("0 {uid} 1")),
            ("gid_map", format!("0 {gid} 1")),
        ] {
            std::fs::write(Path::new("/proc/self").join(file), text).map_err(|e| failed(&e))?;
        }
    }
    unshare(CloneFlags::CLONE_NEWNET | CloneFlags::CLONE_NEWNS)
        .map_err(|e| said("unshare -nm")(&e))?;
    let none: Option<&str> = None;
    mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none)
        .map_err(|e| said("mount --make-rprivate /")(&e))?;
    if !uid.is_root() {
        // The lock of iptables-legacy is in /run.
        mount(Some("tmpfs"), "/run", Some("tmpfs"), MsFlags::empty(), none)
            .map_err(|e| said("mount /run")(&e))?;
    }
    let up = || {
        let routing = Routing::open()?;
        let lo = routing.link("lo")?;
        routing.set_up(lo.index)
    };
    up().map_err(|e: weir_netlink::Error| said("lo")(&e))
}

/// Runs a program to its end; `ours` is this crate's binary.
///
/// # Errors
/// It cannot be started.
pub(super) fn run(ours: &Path, command: &weir_vm::proto::Run) -> Result<Ran> {
    let failed = |e: std::io::Error| {
        let program = command.argv.first().map(|p| p.display().to_string());
        Error::io(program.unwrap_or_default(), &e)
    };
    let mut child = Command::new(ours)
        .arg(ENTER)
        .arg(std::process::id().to_string())
        .args(&command.argv)
        .current_dir(&command.cwd)
        .env_clear()
        .envs(command.env.iter().map(|(name, value)| (name, value)))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .spawn()
        .map_err(failed)?;
    let group = i32::try_from(child.id()).map(Pid::from_raw);
    let (sender, pieces) = mpsc::channel();
    let (out, err) = (child.stdout.take(), child.stderr.take());
    read(out, sender.clone(), Piece::Out);
    read(err, sender.clone(), Piece::Err);
    std::thread::spawn(move || {
        let _ = sender.send(Piece::End(child.wait()));
    });
    let started = std::time::Instant::now();
    let mut until = started + Duration::from_millis(command.deadline_ms);
    let mut ran = Ran::default();
    let mut ending = None;
    // The channel closes when both outputs and the process have ended.
    loop {
        let left = until.saturating_duration_since(std::time::Instant::now());
        match pieces.recv_timeout(left) {
            Ok(Piece::Out(bytes)) => ran.out(&bytes),
            Ok(Piece::Err(bytes)) => ran.err(&bytes),
            Ok(Piece::End(status)) => {
                let status = status.map_err(failed)?;
                ending = Some(match (status.code(), status.signal()) {
                    (Some(code), _) => Ending::Status(code),
                    (None, signal) => Ending::Signal(signal.unwrap_or_default()),
                });
                // What it left behind must not hold its output open.
                if let Ok(group) = group {
                    let _ = killpg(group, Signal::SIGKILL);
                }
                until = std::time::Instant::now() + DRAIN;
            }
            Err(mpsc::RecvTimeoutError::Disconnected) => break,
            Err(mpsc::RecvTimeoutError::Timeout) if ending.is_some() => break,
            Err(mpsc::RecvTimeoutError::Timeout) => {
                ending = Some(Ending::TimedOut);
                if let Ok(group) = group {
                    let _ = killpg(group, Signal::SIGKILL);
                }
                break;
            }
        }
    }
    ran.ending = ending;
    Ok(ran)
}

enum Piece {
    Out(Vec<u8>),
    Err(Vec<u8>),
    End(std::io::Result<std::process::ExitStatus>),
}

fn read(
    pipe: Option<impl Read + Send + 'static>,
    to: mpsc::Sender<Piece>,
    piece: fn(Vec<u8>) -> Piece,
) {
    let Some(mut pipe) = pipe else { return };
    std::thread::spawn(move || {
        let mut bytes = [0; 64 << 10];
        while let Ok(got) = pipe.read(&mut bytes) {
            let some = bytes.get(..got).unwrap_or_default().to_vec();
            if got == 0 || to.send(piece(some)).is_err() {
                break;
            }
        }
    });
}
