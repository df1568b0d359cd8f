//! One target of the log: a bounded queue, and the thread that writes its lines.
//!
//! `write(2)` to a pipe blocks while the pipe is full and not read, so only a dedicated thread
//! writes. When the queue is full, lines are dropped and counted, and the count is written in their place.

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::unistd::write;
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::Builder;
use std::time::Duration;

/// Maximum number of queued bytes; the writer may hold as many again.
const ROOM: usize = 1 << 20;

#[derive(Default)]
struct State {
    waiting: String,
    /// Number of lines that were dropped after the queued ones.
    dropped: u64,
    /// Number of texts that were queued, and of those that the writer has finished.
    queued: u64,
    done: u64,
    /// The writer keeps up. While it does not, no thread waits for it.
    prompt: bool,
}

/// The queue of lines. Clones share it.
#[derive(Clone, Default)]
pub(super) struct Queue(Arc<(Mutex<State>, Condvar)>);

impl Queue {
    /// Queues complete lines, all or none. Returns the number of dropped lines.
    pub(super) fn push(&self, lines: &str) -> u64 {
        let mut state = self.state();
        let full = !state.waiting.is_empty() && state.waiting.len() + lines.len() > ROOM;
        let dropped = match full || state.dropped > 0 {
            true => count(lines),
            false => 0,
        };
        if dropped == 0 {
            state.waiting += lines;
            state.queued += 1;
        }
        state.dropped += dropped;
        self.changed().notify_all();
        dropped
    }

    /// Waits until all queued lines are written, so that the log of a killed process is complete. If the writer exceeds the
    /// limit, later calls do not wait until it has caught up; with `insists` they wait anyway.
    pub(super) fn settle(&self, limit: Duration, insists: bool) {
        let mut state = self.state();
        let queued = state.queued;
        if !state.prompt && !insists {
            return;
        }
        let waits = |state: &mut State| state.done < queued;
        let waited = self.changed().wait_timeout_while(state, limit, waits);
        let timeout;
        (state, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
        if timeout.timed_out() {
            state.prompt = false;
        }
    }

    /// Starts the writer thread. `begins` runs on it first; `note` formats a line with a number of dropped lines;
    /// `failed` receives the number of lines that could not be written.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub(super) fn start(
        self,
        file: File,
        begins: impl FnOnce() + Send + 'static,
        note: impl Fn(u64) -> String + Send + 'static,
        failed: impl Fn(u64) + Send + 'static,
    ) -> io::Result<()> {
        let writes = move || {
            begins();
            self.state().prompt = true;
            let mut owed = 0;
            loop {
                let (text, dropped, queued) = self.next();
                let mut whole = match owed {
                    0 => String::new(),
                    n => note(n),
                };
                whole += &text;
                match write_all(&file, &whole) {
                    Ok(()) if dropped > 0 && write_all(&file, &note(dropped)).is_ok() => owed = 0,
                    Ok(()) => owed = dropped,
                    Err(_) => {
                        let lost = count(&text);
                        failed(lost);
                        owed += lost + dropped;
                    }
                }
                let mut state = self.state();
                (state.done, state.prompt) = (queued, true);
                self.changed().notify_all();
            }
        };
        Builder::new().name("log".into()).spawn(writes).map(drop)
    }

    /// Waits for queued or dropped lines and takes them.
    fn next(&self) -> (String, u64, u64) {
        let idle = |state: &mut State| state.waiting.is_empty() && state.dropped == 0;
        let state = self.changed().wait_while(self.state(), idle);
        let mut state = state.unwrap_or_else(PoisonError::into_inner);
        let text = std::mem::take(&mut state.waiting);
        (text, std::mem::take(&mut state.dropped), state.queued)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // No holder of the lock panics in the middle of a change.
        self.0.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn changed(&self) -> &Condvar {
        &self.0.1
    }
}

fn count(lines: &str) -> u64 {
    lines.lines().map(|_| 1).sum()
}

/// Writes all of the text. Blocks while the target accepts nothing, even if another process made the pipe or terminal
/// non-blocking.
fn write_all(file: &File, text: &str) -> nix::Result<()> {
    let mut left = text.as_bytes();
    while !left.is_empty() {
        match write(file, left) {
            Ok(n) => left = left.get(n..).unwrap_or_default(),
            Err(Errno::EINTR) => {}
            Err(Errno::EAGAIN) => {
                let mut fds = [PollFd::new(file.as_fd(), PollFlags::POLLOUT)];
                match poll(&mut fds, PollTimeout::NONE) {
                    Ok(_) | Err(Errno::EINTR) => {}
                    Err(e) => return Err(e),
                }
            }
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::fcntl::{FcntlArg, fcntl};
    use std::io::{BufRead, BufReader};
    use std::sync::mpsc;
    use std::time::Instant;

    const LONG: Duration = Duration::from_secs(30);

    #[test]
    fn a_full_pipe_blocks_no_caller_and_the_gap_is_said() {
        let (read, write) = nix::unistd::pipe().unwrap();
        fcntl(&write, FcntlArg::F_SETPIPE_SZ(4096)).unwrap();
        let queue = Queue::default();
        let note = |n| format!("{n} dropped\n");
        let begins = || {};
        queue
            .clone()
            .start(File::from(write), begins, note, |_| {})
            .unwrap();
        let line = format!("{}\n", "x".repeat(999));
        let (mut taken, mut dropped, mut longest) = (0, 0, Duration::ZERO);
        while dropped < 10 {
            let at = Instant::now();
            let lost = queue.push(&line);
            queue.settle(Duration::from_millis(50), false);
            longest = longest.max(at.elapsed());
            (taken, dropped) = (taken + 1 - lost, dropped + lost);
            assert!(taken < 5000);
        }
        assert!(longest < LONG / 10, "{longest:?}");
        // Everything that was taken comes, then the count of the rest, then what follows.
        let (said, heard) = mpsc::channel();
        std::thread::spawn(move || {
            let lines = BufReader::new(File::from(read)).lines();
            lines.for_each(|l| drop(said.send(l.unwrap())));
        });
        for _ in 0..taken {
            assert_eq!(heard.recv_timeout(LONG).unwrap().len(), 999);
        }
        assert_eq!(heard.recv_timeout(LONG).unwrap(), "10 dropped");
        assert_eq!(queue.push("after\n"), 0);
        assert_eq!(heard.recv_timeout(LONG).unwrap(), "after");
        queue.settle(LONG, true);
        let state = queue.state();
        assert!(state.prompt && state.done == state.queued);
    }

    #[test]
    fn what_cannot_be_written_is_counted() {
        // It is open for reading only. A pipe would have a reader in any child that another test starts.
        let file = File::open("/dev/null").unwrap();
        let queue = Queue::default();
        let (said, heard) = mpsc::channel();
        let failed = move |n| said.send(n).unwrap();
        queue
            .clone()
            .start(file, || {}, |_| String::new(), failed)
            .unwrap();
        queue.push("a\nb\n");
        assert_eq!(heard.recv_timeout(LONG).unwrap(), 2);
    }
}
