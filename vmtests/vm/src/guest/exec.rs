//! Run one program, pass its output on, and leave nothing of it.
use super::port::Port;
use crate::process::{self, DRAIN};
use crate::proto::{Ending, Frame, Run};
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use std::io;
use std::process::Command;
use std::time::Instant;

/// Runs a program to its end. The outer error is the port's, the inner one says why the program did not start.
pub(super) fn run(port: &mut Port, run: &Run) -> io::Result<Result<Ending, String>> {
    let Some((program, arguments)) = run.argv.split_first() else {
        return Ok(Err("no program was named".into()));
    };
    if let Err(e) = std::fs::create_dir_all(&run.cwd) {
        return Ok(Err(format!("{}: {e}", run.cwd.display())));
    }
    let mut command = Command::new(program);
    command.args(arguments);
    let mut sent = Ok(());
    let ending = process::run(
        command,
        run,
        // Whatever it left behind, in whatever session: process 1 may end everything but itself.
        |_| _ = kill(Pid::from_raw(-1), Signal::SIGKILL),
        &mut |stream, bytes| {
            if sent.is_ok() {
                sent = port.send(&Frame::Output(stream, bytes));
            }
        },
    );
    reap();
    sent?;
    Ok(ending.map_err(|e| format!("{}: {e}", program.display())))
}

/// Takes the orphans, all of which have been killed.
fn reap() {
    let until = Instant::now() + DRAIN;
    while let Ok(status) = waitpid(Pid::from_raw(-1), Some(WaitPidFlag::WNOHANG)) {
        if status == WaitStatus::StillAlive {
            if Instant::now() >= until {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
    }
}
