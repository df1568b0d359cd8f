//! The agent: `/init` of every guest.
//!
//! The agent and the host are the same program, so both always have the same protocol version, and plain `cargo` builds
//! it. As process 1 it mounts the file systems that a program expects, loads the modules, and serves the frames of
//! [`crate::proto`] until its host is gone; then it powers the guest off. The guest has no shell.

mod exec;
mod kmsg;
mod port;
mod setup;

use crate::proto::{CHUNK, Exit, Frame, Hello};
use kmsg::Kmsg;
use nix::sys::reboot::{RebootMode, reboot};
use port::Port;
use std::fs::File;
use std::io::{self, Read, Write};
use std::path::Path;
use std::time::Duration;

/// The path of the agent in the initramfs.
pub const INIT: &str = "/init";
/// The name of the virtio-serial port.
pub const PORT: &str = "ctl";
/// The file that lists the modules to load, one path per line.
pub const MODULES_LIST: &str = "/modules.list";

/// Whether this process is the agent: process 1, started as `/init`.
pub fn is_init() -> bool {
    std::process::id() == 1 && std::env::args_os().next().is_some_and(|name| name == INIT)
}

/// Serves until the host is gone, then powers the guest off. Only process 1 of a guest may call it.
pub fn main() {
    // Errors go to the console, because the port itself may not work.
    if let Err(e) = serve() {
        let _ = writeln!(io::stderr(), "weir-vm: the agent gave up: {e}");
    }
    nix::unistd::sync();
    let e = reboot(RebootMode::RB_POWER_OFF);
    // Process 1 must not return if the power-off fails: the kernel would panic and hide the reason.
    let _ = writeln!(io::stderr(), "weir-vm: power off: {e:?}");
    loop {
        std::thread::sleep(Duration::from_secs(3600));
    }
}

fn serve() -> io::Result<()> {
    let hello = setup::prepare();
    let log = Kmsg::open()?;
    let mut port = Port::open(PORT)?;
    while session(&mut port, &log, &hello)? {
        // Messages from before the state was saved do not belong to this run.
        log.skip();
    }
    Ok(())
}

/// Serves one host. Returns true if it sent [`Frame::Park`] and another host may follow.
fn session(port: &mut Port, log: &Kmsg, hello: &Hello) -> io::Result<bool> {
    let mut is_synced = false;
    while let Some(frame) = port.next(is_synced)? {
        match frame {
            Frame::Sync { unix_nanos, seed } => {
                is_synced = true;
                let notes = setup::sync(unix_nanos, &seed);
                let mut answer = hello.clone();
                answer.notes.extend(notes);
                port.send(&Frame::Hello(answer))?;
            }
            Frame::Get(path) => send_file(port, path.as_ref())?,
            Frame::Run(run) => {
                log.mark();
                let ended = exec::run(port, &run)?;
                let kernel_log = log.since_mark();
                let exit = |ending| Frame::Exit(Exit { ending, kernel_log });
                port.send(&ended.map_or_else(Frame::Failed, exit))?;
            }
            Frame::Dmesg => port.send(&Frame::Log(log.all()))?,
            Frame::Park => {
                port.send(&Frame::Done)?;
                return Ok(true);
            }
            other => {
                let why = format!("{} is not for a guest", other.name());
                port.send(&Frame::Failed(why))?;
            }
        }
    }
    Ok(false)
}

/// Sends a file to the host.
fn send_file(port: &mut Port, path: &Path) -> io::Result<()> {
    let read = File::open(path).and_then(|file| {
        loop {
            let mut bytes = Vec::new();
            // The size of a file in /proc is unknown until its end, so an empty piece marks the end.
            let is_last = (&file).take(CHUNK as u64).read_to_end(&mut bytes)? == 0;
            port.send(&Frame::Piece { bytes, is_last })?;
            if is_last {
                return Ok(());
            }
        }
    });
    read.or_else(|e| port.send(&Frame::Failed(format!("{}: {e}", path.display()))))
}
