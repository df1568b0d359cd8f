//! Runs one program, passes its output on, and kills what it leaves behind.
use super::port::Port;
use crate::process::{self, DRAIN};
use crate::proto::{Ending, Frame, Run};
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use std::io;
use std::process::Command;
use std::time::Instant;

/// Runs a program to its end. The outer error is that of the port; the inner one states why the program did not start.
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
        // Kills all processes that the program left behind, in any session: kill(-1) spares only process 1.
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

/// Reaps the orphans, all of which have been killed.
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
