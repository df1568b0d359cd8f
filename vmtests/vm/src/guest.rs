//! The agent: `/init` of every guest.
//!
//! It is the same program as the host's, so both always speak the same version, and plain `cargo` builds it. As
//! process 1 it mounts what a program expects, loads the modules, and serves the frames of [`crate::proto`] until
//! its host is gone; then it powers off. There is no shell in the guest, and nothing here starts one.

mod exec;
mod files;
mod kmsg;
mod net;
mod port;
mod setup;

use crate::proto::{Frame, Hello, VERSION};
use kmsg::Kmsg;
use nix::sys::reboot::{RebootMode, reboot};
use port::{Next, Port};
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::time::Duration;

/// Where the agent is in the initramfs.
pub const INIT: &str = "/init";
/// The name of the virtio-serial port.
pub const PORT: &str = "ctl";
/// The modules to load, one path in a line.
pub const MODULES_LIST: &str = "/modules.list";

/// Is this process the agent: the first process, started as `/init`?
#[must_use]
pub fn is_init() -> bool {
    std::process::id() == 1 && std::env::args_os().next().is_some_and(|name| name == INIT)
}

/// Serves until the host is gone, then powers the guest off. For process 1 of a guest and nothing else.
pub fn main() {
    // The console is the only place to complain at: the port may be what does not work.
    if let Err(e) = serve() {
        let _ = writeln!(io::stderr(), "weir-vm: the agent gave up: {e}");
    }
    nix::unistd::sync();
    let e = reboot(RebootMode::RB_POWER_OFF);
    // Process 1 must not return while this fails: the kernel would panic and hide the reason.
    let _ = writeln!(io::stderr(), "weir-vm: power off: {e:?}");
    loop {
        std::thread::sleep(Duration::from_secs(3600));
    }
}

fn serve() -> io::Result<()> {
    let mut hello = setup::prepare();
    let mut log = Kmsg::open()?;
    let children = exec::children()?;
    let mut port = Port::open(PORT)?;
    while session(&mut port, &mut log, &children, &mut hello)? {
        // What the machine logged until it was saved belongs to that life.
        log.skip();
    }
    Ok(())
}

/// Serves one host. True: it said [`Frame::Park`], and another may follow.
fn session(
    port: &mut Port,
    log: &mut Kmsg,
    children: &nix::sys::signalfd::SignalFd,
    hello: &mut Hello,
) -> io::Result<bool> {
    let mut is_synced = false;
    loop {
        let frame = match port.next(is_synced)? {
            Next::Frame(frame) => frame,
            Next::Closed => return Ok(false),
        };
        match frame {
            Frame::Sync { unix_nanos, seed } => {
                is_synced = true;
                hello.version = VERSION;
                let notes = setup::sync(unix_nanos, &seed);
                let mut answer = hello.clone();
                answer.notes.extend(notes);
                port.send(&Frame::Hello(answer))?;
            }
            Frame::Load(files) => {
                let failed: Vec<String> = files
                    .iter()
                    .filter_map(|f| setup::load_module(f.as_ref()).err())
                    .collect();
                port.answer(if failed.is_empty() {
                    Ok(())
                } else {
                    Err(failed.join("\n"))
                })?;
            }
            Frame::File(piece) => {
                if let Some(answer) = files::write(&piece) {
                    port.answer(answer)?;
                }
            }
            Frame::Get(path) => files::send(port, path.as_ref())?,
            Frame::Run(run) => {
                log.mark();
                match exec::run(port, children.as_fd(), &run)? {
                    Ok(mut exit) => {
                        exit.kernel_log = log.since_mark();
                        port.send(&Frame::Exit(exit))?;
                    }
                    Err(why) => port.send(&Frame::Failed(why))?,
                }
            }
            Frame::Dmesg => port.send(&Frame::Log(log.all()))?,
            Frame::Park => {
                port.send(&Frame::Done)?;
                return Ok(true);
            }
            Frame::Quit => return Ok(false),
            other => {
                let kind = format!("{other:?}");
                let kind = kind.split([' ', '(', '{']).next().unwrap_or_default();
                port.answer(Err(format!("{kind} is not for a guest")))?;
            }
        }
    }
}
