//! What takes more than a moment says so: one line that is overwritten on a terminal, nothing elsewhere.
use std::io::{self, IsTerminal, Read, Write};
use std::time::{Duration, Instant};

/// A line that has to be read, also in a log.
pub fn note(text: &str) {
    // In one piece: other processes may write to the same place.
    let line = format!("{}: {text}\n", crate::program::name());
    let _ = std::io::stderr().write_all(line.as_bytes());
}

/// One piece of work. Draws nothing before it has lasted a second.
#[derive(Debug)]
pub(crate) struct Progress {
    what: String,
    started: Instant,
    drawn: Option<Instant>,
    terminal: bool,
}

impl Progress {
    pub(crate) fn new(what: impl Into<String>) -> Self {
        Self {
            what: what.into(),
            started: Instant::now(),
            drawn: None,
            terminal: std::io::stderr().is_terminal(),
        }
    }

    /// So much of `total` bytes (0: not known) is done.
    pub(crate) fn at(&mut self, done: u64, total: u64) {
        const DELAY: Duration = Duration::from_secs(1);
        const STEP: Duration = Duration::from_millis(100);
        let recent = self.drawn.is_some_and(|at| at.elapsed() < STEP);
        if !self.terminal || recent || self.started.elapsed() < DELAY {
            return;
        }
        self.drawn = Some(Instant::now());
        let mib = |bytes: u64| bytes / 1024 / 1024;
        let amount = match total {
            0 => format!("{} MiB", mib(done)),
            _ => format!("{} of {} MiB", mib(done), mib(total)),
        };
        // Erase to the end of the line: the text before may have been longer.
        eprint!("\r{}: {amount}\x1b[K", self.what);
        let _ = std::io::stderr().flush();
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if self.drawn.is_some() {
            eprint!("\r\x1b[K");
        }
    }
}

/// Shows how much of something has been read.
#[derive(Debug)]
pub(crate) struct Reader<R> {
    inner: R,
    progress: Progress,
    done: u64,
    total: u64,
}

impl<R> Reader<R> {
    pub(crate) fn new(inner: R, what: impl Into<String>, total: u64) -> Self {
        Self {
            inner,
            progress: Progress::new(what),
            done: 0,
            total,
        }
    }
}

impl<R: Read> Read for Reader<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(buffer)?;
        self.done += read as u64;
        self.progress.at(self.done, self.total);
        Ok(read)
    }
}
