//! A running QEMU.
use crate::{Error, Result};
use std::ffi::OsString;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command};
use std::sync::{OnceLock, mpsc};

/// `argv[1]` of this program when it is to become QEMU: see [`crate::process::become_another_if_asked`]. So QEMU dies with
/// us, however we die.
pub(crate) const LAUNCH: &str = "launch-qemu";

/// A QEMU process with its two sockets; killed when the value is dropped.
#[derive(Debug)]
pub(crate) struct Qemu {
    child: Child,
    /// The guest's port.
    pub(crate) ctl: UnixStream,
    /// QEMU's own monitor.
    pub(crate) qmp: UnixStream,
}

impl Qemu {
    /// Starts `qemu` through `program`, which is this crate's binary. What QEMU complains of goes to `stderr`.
    pub(crate) fn start(
        program: &Path,
        qemu: &Path,
        line: &[OsString],
        stderr: &Path,
    ) -> Result<Self> {
        let failed = |e: std::io::Error| {
            let remedy = "Is it a program that this user may start?";
            Error::new(qemu.display().to_string(), e, remedy)
        };
        let (ctl, guest_ctl) = UnixStream::pair().map_err(failed)?;
        let (qmp, guest_qmp) = UnixStream::pair().map_err(failed)?;
        let mut command = Command::new(program);
        command
            .arg(LAUNCH)
            .arg(std::process::id().to_string())
            .arg(qemu)
            .args(line)
            .stdin(OwnedFd::from(guest_ctl))
            .stdout(OwnedFd::from(guest_qmp))
            .stderr(File::create(stderr).map_err(failed)?);
        let child = spawn(command).map_err(failed)?;
        Ok(Self { child, ctl, qmp })
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Ends it at once and waits until it is gone.
    pub(crate) fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Qemu {
    fn drop(&mut self) {
        self.kill();
    }
}

type Order = (Command, mpsc::Sender<std::io::Result<Child>>);

/// Starts a process on a thread that never ends: PR_SET_PDEATHSIG means the end of the *thread* that started it, and
/// a machine may outlive the thread that wanted it.
fn spawn(command: Command) -> std::io::Result<Child> {
    static SPAWNER: OnceLock<mpsc::Sender<Order>> = OnceLock::new();
    let spawner = SPAWNER.get_or_init(|| {
        let (sender, orders) = mpsc::channel::<Order>();
        std::thread::spawn(move || {
            for (mut command, answer) in orders {
                let _ = answer.send(command.spawn());
                // The ends of the sockets that are QEMU's must not stay open here.
                drop(command);
            }
        });
        sender
    });
    let (answer, child) = mpsc::channel();
    let gone = |_| std::io::Error::other("the thread that starts processes is gone");
    spawner
        .send((command, answer))
        .map_err(|_| gone(mpsc::RecvError))?;
    child.recv().map_err(gone)?
}
