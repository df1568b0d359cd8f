//! One target of lines: a bounded queue, and the thread that empties it.
//!
//! `write(2)` to a pipe that nothing reads blocks for as long as nothing reads it. So only a thread that does nothing else
//! writes; when the queue is full, lines are dropped and counted, and the count is written where they would have been.

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::unistd::write;
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::Builder;
use std::time::Duration;

/// Bytes that wait to be written at most; as many again may be in the writer's hands.
const ROOM: usize = 1 << 20;

#[derive(Default)]
struct State {
    waiting: String,
    /// Lines that were dropped after those that wait.
    dropped: u64,
    /// Texts that were queued, and those that the writer is done with.
    queued: u64,
    done: u64,
    /// The writer keeps up. While it does not, nothing waits for it.
    prompt: bool,
}

/// Where lines are queued; clones are the same queue.
#[derive(Clone, Default)]
pub(super) struct Queue(Arc<(Mutex<State>, Condvar)>);

impl Queue {
    /// Queues whole lines, all or none. How many were dropped.
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

    /// Waits until everything that was queued is written, so that a process that is killed has said what it did. A
    /// writer that did not get there within the limit is waited for again only when it has caught up; `insists` waits
    /// for it all the same.
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

    /// Starts the writer. `begins` runs in its thread first; `note` makes a line of a number of dropped lines;
    /// `failed` takes the number of lines that could not be written.
    ///
    /// # Errors
    /// No thread.
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

    /// What is to be written next, once there is something.
    fn next(&self) -> (String, u64, u64) {
        let idle = |state: &mut State| state.waiting.is_empty() && state.dropped == 0;
        let state = self.changed().wait_while(self.state(), idle);
        let mut state = state.unwrap_or_else(PoisonError::into_inner);
        let text = std::mem::take(&mut state.waiting);
        (text, std::mem::take(&mut state.dropped), state.queued)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Nothing in here panics half-way.
        self.0.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn changed(&self) -> &Condvar {
        &self.0.1
    }
}

fn count(lines: &str) -> u64 {
    lines.lines().map(|_| 1).sum()
}

/// Blocks for as long as the target takes nothing, also where another process made a pipe or terminal non-blocking.
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
        let (_, write) = nix::unistd::pipe().unwrap();
        let queue = Queue::default();
        let (said, heard) = mpsc::channel();
        let failed = move |n| said.send(n).unwrap();
        let file = File::from(write);
        queue
            .clone()
            .start(file, || {}, |_| String::new(), failed)
            .unwrap();
        queue.push("a\nb\n");
        assert_eq!(heard.recv_timeout(LONG).unwrap(), 2);
    }
}
