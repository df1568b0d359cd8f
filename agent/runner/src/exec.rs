//! Starts a plugin.
//!
//! This is the only place in weir that executes a program. Weir configures the
//! kernel without external tools, but a CNI plugin *is* a program, and a
//! container runtime must start it.

use std::io::{Read, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;

/// Maximum output of a plugin, which normally is a few kilobytes; the rest is discarded.
const OUTPUT_LIMIT: u64 = 4 << 20;

/// The exit status and output of a program.
pub(crate) struct Output {
    /// Exit status, or 128 plus the signal.
    pub(crate) status: i32,
    pub(crate) stdout: Vec<u8>,
    pub(crate) stderr: String,
}

/// Runs `program` with `stdin`. Its environment is that of this process without the
/// `CNI_` variables, plus `env`. `None`: the deadline passed, and the process
/// group of the program was killed.
pub(crate) fn run(
    program: &Path,
    env: &[(&str, String)],
    stdin: &[u8],
    deadline: Instant,
) -> std::io::Result<Option<Output>> {
    let mut command = Command::new(program);
    for (key, _) in std::env::vars_os() {
        if key.to_string_lossy().starts_with("CNI_") {
            command.env_remove(key);
        }
    }
    command.envs(env.iter().map(|(key, value)| (*key, value.as_str())));
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    // A separate process group, so that its children can be killed with it.
    command.process_group(0);
    let mut child = command.spawn()?;
    let stdout = collect(child.stdout.take());
    let stderr = collect(child.stderr.take());
    if let Some(mut pipe) = child.stdin.take() {
        let bytes = stdin.to_vec();
        // A thread, because writing to a program that does not read would block; a
        // program that ends without reading is not an error.
        std::thread::spawn(move || pipe.write_all(&bytes));
    }
    let Some(status) = wait(&mut child, deadline)? else {
        kill(&mut child);
        return Ok(None);
    };
    let left = || deadline.saturating_duration_since(Instant::now());
    let (Ok(stdout), Ok(stderr)) = (stdout.recv_timeout(left()), stderr.recv_timeout(left()))
    else {
        // A child process keeps the pipes open.
        kill(&mut child);
        return Ok(None);
    };
    let status = status
        .code()
        .unwrap_or_else(|| 128 + status.signal().unwrap_or(0));
    let stderr = String::from_utf8_lossy(&stderr).into_owned();
    Ok(Some(Output {
        status,
        stdout,
        stderr,
    }))
}

/// Reads a pipe to its end on a thread.
fn collect(pipe: Option<impl Read + Send + 'static>) -> Receiver<Vec<u8>> {
    let (done, collected) = channel();
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(mut pipe) = pipe {
            // Output up to the limit is kept; the rest is drained, so that the
            // program does not block on a full pipe.
            let _ = pipe.by_ref().take(OUTPUT_LIMIT).read_to_end(&mut bytes);
            let _ = std::io::copy(&mut pipe, &mut std::io::sink());
        }
        let _ = done.send(bytes);
    });
    collected
}

/// `waitpid(2)` has no timeout: polls at growing intervals of up to 10 ms.
fn wait(child: &mut Child, deadline: Instant) -> std::io::Result<Option<ExitStatus>> {
    let mut step = Duration::from_micros(200);
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        if Instant::now() >= deadline {
            return Ok(None);
        }
        std::thread::sleep(step);
        step = (step * 2).min(Duration::from_millis(10));
    }
}

fn kill(child: &mut Child) {
    if let Ok(pid) = i32::try_from(child.id()) {
        // The group exists while one of its processes does.
        let _ = killpg(Pid::from_raw(pid), Signal::SIGKILL);
    }
    let _ = child.wait();
}
