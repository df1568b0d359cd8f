//! Runs one program to its end and kills what is left of it; used on the host and, by `/init`, in a guest.
use crate::proto::{Ending, Run};
use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::Signal;
use nix::unistd::Pid;
use serde::{Deserialize, Serialize};
use std::ffi::OsStr;
use std::io::{self, Read};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::mpsc::{RecvTimeoutError, SyncSender, sync_channel};
use std::time::{Duration, Instant};
use weir_netlink::route::Routing;

/// How long to wait for the output of a program that has ended. All processes that could still write have been killed by
/// then, so this only expires if the kernel cannot end one of them.
pub(crate) const DRAIN: Duration = Duration::from_secs(10);
/// How many pieces of output may be queued for the reader.
const WAITING: usize = 16;

/// The output stream that a program wrote to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Stream {
    /// Standard output.
    Out,
    /// Standard error.
    Err,
}

enum Event {
    Output(Stream, Vec<u8>),
    End(io::Result<ExitStatus>),
}

/// Runs a program in the directory and environment of `run`, in its own process group, and passes its output on as it
/// arrives. At its end or deadline it calls `kill_rest` with the group; `kill_rest` must kill the remaining processes.
pub fn run(
    mut command: Command,
    run: &Run,
    kill_rest: impl Fn(Pid),
    output: &mut dyn FnMut(Stream, Vec<u8>),
) -> io::Result<Ending> {
    command.current_dir(&run.cwd).env_clear();
    command.envs(run.env.iter().map(|(name, value)| (name, value)));
    command.stdin(Stdio::null()).process_group(0);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn()?;
    let group = Pid::from_raw(i32::try_from(child.id()).map_err(io::Error::other)?);
    let (sender, events) = sync_channel(WAITING);
    pass_on(child.stdout.take(), Stream::Out, sender.clone());
    pass_on(child.stderr.take(), Stream::Err, sender.clone());
    std::thread::spawn(move || sender.send(Event::End(child.wait())));
    let mut until = Instant::now() + Duration::from_millis(run.deadline_ms);
    let mut ending = None;
    // The channel closes when both outputs and the process have ended.
    loop {
        let end = match events.recv_timeout(until.saturating_duration_since(Instant::now())) {
            Ok(Event::Output(stream, bytes)) => {
                output(stream, bytes);
                continue;
            }
            Ok(Event::End(status)) => {
                let status = status?;
                let signal = || Ending::Signal(status.signal().unwrap_or_default());
                status.code().map_or_else(signal, Ending::Status)
            }
            Err(RecvTimeoutError::Timeout) if ending.is_none() => Ending::TimedOut,
            Err(_) => return Ok(ending.unwrap_or(Ending::TimedOut)),
        };
        ending = ending.or(Some(end));
        // Processes that the program left behind must not keep its output open.
        kill_rest(group);
        until = Instant::now() + DRAIN;
    }
}

fn pass_on(pipe: Option<impl Read + Send + 'static>, stream: Stream, to: SyncSender<Event>) {
    let Some(mut pipe) = pipe else { return };
    std::thread::spawn(move || {
        let mut bytes = [0; 64 << 10];
        while let Ok(got) = pipe.read(&mut bytes) {
            let some = bytes.get(..got).unwrap_or_default().to_vec();
            if got == 0 || to.send(Event::Output(stream, some)).is_err() {
                break;
            }
        }
    });
}

/// If `argv[1]` is `word`, executes the program that follows and does not return; otherwise does nothing. `argv[2]` is the
/// id of the requesting process; the program and its arguments follow. `prepare` is called before execve(2).
///
/// The program dies when the requesting process ends, for any reason (`PR_SET_PDEATHSIG`): only a process itself can set
/// this, and execve(2) preserves it.
pub fn become_another_if_asked(word: &str, prepare: fn() -> Result<(), String>) {
    let mut arguments = std::env::args_os().skip(1);
    if arguments.next().as_deref() != Some(OsStr::new(word)) {
        return;
    }
    let reason = match (arguments.next(), arguments.next()) {
        (Some(parent), Some(program)) => {
            let become_it = |()| Command::new(&program).args(arguments).exec();
            let ready = die_with(&parent).and_then(|()| prepare()).map(become_it);
            ready.map_or_else(|e| e, |e| format!("{}: {e}", program.display()))
        }
        _ => "to be called by the program itself".into(),
    };
    eprintln!("{} {word}: {reason}", crate::program::name());
    std::process::exit(3);
}

fn die_with(parent: &OsStr) -> Result<(), String> {
    set_pdeathsig(Signal::SIGKILL).map_err(|e| format!("PR_SET_PDEATHSIG: {e}"))?;
    match parent.to_str() == Some(&std::os::unix::process::parent_id().to_string()) {
        true => Ok(()),
        false => Err("the process that wanted this one is gone".into()),
    }
}

/// Sets `lo` up in the network namespace of this thread, as `ip link set lo up`. Before that, a connection to 127.0.0.1
/// does not fail but waits.
pub fn loopback_up() -> Result<(), String> {
    let up = || {
        let routing = Routing::open()?;
        let lo = routing.link("lo")?;
        routing.set_up(lo.index)
    };
    up().map_err(|e: weir_netlink::Error| format!("lo: {e}"))
}
