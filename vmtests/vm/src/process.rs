//! One program, run to its end, with nothing left of it: on this machine and, by `/init`, in a guest.
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

/// How long the output of a program that has ended is waited for. All that could still write is killed by then, so
/// this is for a process that the kernel cannot end.
pub(crate) const DRAIN: Duration = Duration::from_secs(10);
/// How many pieces of output may wait for the one who reads them.
const WAITING: usize = 16;

/// Which of its two outputs a program wrote to.
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

/// Runs it where and with what `run` says, in a process group of its own, and hands its output on as it comes. At its end, or at the deadline, `kill_rest`
/// is called with the group, and has to kill what is left.
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
        // What it left behind must not hold its output open.
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

/// When `argv[1]` is `word`, becomes the program that follows and does not return; else does nothing. `argv[2]` is the id
/// of the process that wants it; then come the program and its arguments. `prepare` is called before.
///
/// It dies when that process does, however that ends (`PR_SET_PDEATHSIG`): only a process itself can ask for it, and
/// execve(2) keeps it.
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

/// `ip link set lo up` in the namespace of this thread. Nothing answers on 127.0.0.1 before, and a connection to it
/// does not fail but wait.
pub fn loopback_up() -> Result<(), String> {
    let up = || {
        let routing = Routing::open()?;
        let lo = routing.link("lo")?;
        routing.set_up(lo.index)
    };
    up().map_err(|e: weir_netlink::Error| format!("lo: {e}"))
}
