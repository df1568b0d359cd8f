//! A running QEMU.
use crate::{Error, Result};
use std::ffi::OsString;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command};
use std::sync::{OnceLock, mpsc};

/// `argv[1]` of this program if it is to execute QEMU: see [`crate::process::become_another_if_asked`]. QEMU then dies with
/// this process, whatever ends it.
pub(crate) const LAUNCH: &str = "launch-qemu";

/// A QEMU process with its two sockets; it is killed on drop.
#[derive(Debug)]
pub(crate) struct Qemu {
    child: Child,
    /// The socket of the guest's port.
    pub(crate) ctl: UnixStream,
    /// The socket of QEMU's monitor.
    pub(crate) qmp: UnixStream,
}

impl Qemu {
    /// Starts `qemu` through `program`, which is this crate's binary. QEMU's messages go to `stderr`.
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

    /// Kills the process and waits until it has ended.
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

/// Starts a process from a thread that never ends: PR_SET_PDEATHSIG takes effect when the starting *thread* ends, and a
/// machine may outlive the thread that requested it.
fn spawn(command: Command) -> std::io::Result<Child> {
    static SPAWNER: OnceLock<mpsc::Sender<Order>> = OnceLock::new();
    let spawner = SPAWNER.get_or_init(|| {
        let (sender, orders) = mpsc::channel::<Order>();
        std::thread::spawn(move || {
            for (mut command, answer) in orders {
                let _ = answer.send(command.spawn());
                // QEMU's ends of the sockets must not stay open in this process.
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
