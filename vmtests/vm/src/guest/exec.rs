//! Run one program, pass its output on, and leave nothing of it.
use super::net;
use super::port::Port;
use crate::proto::{CHUNK, Ending, Exit, Frame, Run};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal, kill};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use std::fs::{self, File};
use std::io::{self, PipeReader, Read};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// How long the output of a program that has ended is waited for. All that could still write is killed by then, so
/// this is for a process that the kernel cannot end.
const DRAIN: Duration = Duration::from_secs(10);

/// A descriptor that becomes readable when a child ends.
pub(super) fn children() -> io::Result<SignalFd> {
    let mut set = SigSet::empty();
    set.add(Signal::SIGCHLD);
    set.thread_block()?;
    Ok(SignalFd::with_flags(
        &set,
        SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC,
    )?)
}

struct Output {
    pipe: Option<PipeReader>,
    frame: fn(Vec<u8>) -> Frame,
}

/// Runs a program to its end. The outer error is the port's, the inner one says why the program did not start.
pub(super) fn run(
    port: &mut Port,
    children: BorrowedFd<'_>,
    run: &Run,
) -> io::Result<Result<Exit, String>> {
    let start = Instant::now();
    let (child, mut outputs) = match start_it(run) {
        Ok(started) => started,
        Err(why) => return Ok(Err(why)),
    };
    let deadline = start + Duration::from_millis(run.deadline_ms);
    let mut ending = None;
    let mut give_up = deadline;
    let mut elapsed_ms = 0;
    loop {
        if let Some(status) = reap(child)
            && ending.is_none()
        {
            ending = Some(status);
        }
        let now = Instant::now();
        if ending.is_some() && elapsed_ms == 0 {
            elapsed_ms = u64::try_from(start.elapsed().as_millis())
                .unwrap_or(u64::MAX)
                .max(1);
            // Whatever it left behind, in whatever session: process 1 may end everything but itself.
            let _ = kill(Pid::from_raw(-1), Signal::SIGKILL);
            give_up = now + DRAIN;
        }
        if ending.is_some() && (outputs.iter().all(|o| o.pipe.is_none()) || now >= give_up) {
            break;
        }
        if ending.is_none() && now >= deadline {
            ending = Some(Ending::TimedOut);
            continue;
        }
        wait(
            port,
            children,
            &mut outputs,
            give_up.saturating_duration_since(now),
        )?;
    }
    reap(child);
    Ok(Ok(Exit {
        ending: ending.unwrap_or(Ending::TimedOut),
        elapsed_ms,
        kernel_log: String::new(),
    }))
}

/// Waits until something happens, and passes output on. An error when the host is gone.
fn wait(
    port: &mut Port,
    children: BorrowedFd<'_>,
    outputs: &mut [Output],
    most: Duration,
) -> io::Result<()> {
    let ready = {
        let mut fds = vec![
            // No event but POLLHUP, which poll(2) always reports.
            PollFd::new(port.as_fd(), PollFlags::empty()),
            PollFd::new(children, PollFlags::POLLIN),
        ];
        fds.extend(
            outputs
                .iter()
                .filter_map(|o| o.pipe.as_ref())
                .map(|p| PollFd::new(p.as_fd(), PollFlags::POLLIN)),
        );
        let most = most + Duration::from_millis(1);
        match poll(
            &mut fds,
            PollTimeout::try_from(most).unwrap_or(PollTimeout::MAX),
        ) {
            Ok(_) => {}
            Err(Errno::EINTR) => return Ok(()),
            Err(e) => return Err(e.into()),
        }
        fds.iter()
            .map(|fd| fd.any().unwrap_or(true))
            .collect::<Vec<_>>()
    };
    let mut ready = ready.into_iter();
    if ready.next() == Some(true) {
        return Err(io::Error::other("the host is gone"));
    }
    // The signal itself says nothing: waitpid(2) does.
    if ready.next() == Some(true) {
        let mut info = [0; 128];
        while nix::unistd::read(children, &mut info).is_ok_and(|got| got > 0) {}
    }
    for output in outputs.iter_mut().filter(|o| o.pipe.is_some()) {
        if ready.next() == Some(true) {
            let mut bytes = vec![0; CHUNK];
            let got = output
                .pipe
                .as_mut()
                .map_or(Ok(0), |p| p.read(&mut bytes))
                .unwrap_or(0);
            bytes.truncate(got);
            if got == 0 {
                output.pipe = None;
            } else {
                port.send(&(output.frame)(bytes))?;
            }
        }
    }
    Ok(())
}

/// Takes every child that has ended, orphans too; tells how `child` did.
fn reap(child: Pid) -> Option<Ending> {
    let mut ending = None;
    while let Ok(status) = waitpid(Pid::from_raw(-1), Some(WaitPidFlag::WNOHANG)) {
        match status {
            WaitStatus::Exited(pid, status) if pid == child => {
                ending = Some(Ending::Status(status))
            }
            WaitStatus::Signaled(pid, signal, _) if pid == child => {
                ending = Some(Ending::Signal(signal as i32));
            }
            WaitStatus::StillAlive => break,
            _ => {}
        }
    }
    ending
}

fn start_it(run: &Run) -> Result<(Pid, [Output; 2]), String> {
    let Some((program, arguments)) = run.argv.split_first() else {
        return Err("no program was named".into());
    };
    let failed = |e: io::Error| format!("{}: {e}", program.display());
    fs::create_dir_all(&run.cwd).map_err(|e| format!("{}: {e}", run.cwd.display()))?;
    let stdin = match &run.stdin {
        Some(path) => File::open(path)
            .map_err(|e| format!("{}: {e}", path.display()))?
            .into(),
        None => Stdio::null(),
    };
    let (out, out_end) = io::pipe().map_err(failed)?;
    let (err, err_end) = io::pipe().map_err(failed)?;
    let mut command = Command::new(program);
    command
        .args(arguments)
        .current_dir(&run.cwd)
        .env_clear()
        .envs(run.env.iter().map(|(name, value)| (name, value)))
        .stdin(stdin)
        .stdout(out_end)
        .stderr(err_end)
        .process_group(0);
    // A namespace belongs to a thread, and what a thread starts is in its namespaces. This one ends at once; its
    // child keeps them.
    let is_isolated = run.is_isolated;
    let mut spawn = move || {
        if is_isolated {
            net::isolate()?;
        }
        command.spawn().map_err(|e| e.to_string())
    };
    let child = if is_isolated {
        std::thread::spawn(spawn)
            .join()
            .unwrap_or_else(|_| Err("the thread that starts it panicked".into()))
    } else {
        spawn()
    };
    let child = child.map_err(|why| format!("{}: {why}", program.display()))?;
    let pid = i32::try_from(child.id()).map_err(|e| format!("{}: {e}", program.display()))?;
    let outputs = [
        Output {
            pipe: Some(out),
            frame: Frame::Out,
        },
        Output {
            pipe: Some(err),
            frame: Frame::Err,
        },
    ];
    Ok((Pid::from_raw(pid), outputs))
}
