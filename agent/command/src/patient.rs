//! Reads a file or pipe with a deadline, unlike `read(2)`.

use std::fs::{File, OpenOptions};
use std::io::{Error, ErrorKind, IsTerminal, Read, Result};
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::{Duration, Instant};

use nix::fcntl::OFlag;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

/// Maximum time without data: the program at the other end of a pipe may need time.
const SILENCE: Duration = Duration::from_secs(30);
/// Delay before the name of the silent file is printed.
const NOTICE: Duration = Duration::from_secs(3);
/// Maximum time for the whole input.
const WHOLE: Duration = Duration::from_secs(300);

/// A file, a pipe or a device, read with a deadline.
#[derive(Debug)]
pub(super) struct Patient {
    file: File,
    /// [`SILENCE`]; `None` for a terminal, where a person may type slowly.
    silence: Option<Duration>,
    until: Instant,
    /// Its name in the line about the delay; `None` once it is printed.
    name: Option<String>,
}

impl Patient {
    fn new(file: File, silence: Option<Duration>, name: &str) -> Self {
        Self {
            file,
            silence,
            until: Instant::now() + WHOLE,
            name: Some(name.to_owned()),
        }
    }

    /// Opens a path. Opening a pipe without a writer does not block; reading it waits.
    pub(super) fn open(path: &Path) -> Result<Self> {
        let flags = OFlag::O_NONBLOCK | OFlag::O_NOCTTY;
        let file = OpenOptions::new()
            .read(true)
            .custom_flags(flags.bits())
            .open(path)?;
        Ok(Self::new(file, Some(SILENCE), &path.display().to_string()))
    }

    /// Opens stdin, of which nothing has been read yet.
    pub(super) fn stdin() -> Result<Self> {
        let file = File::from(std::io::stdin().as_fd().try_clone_to_owned()?);
        let silence = (!file.is_terminal()).then_some(SILENCE);
        Ok(Self::new(file, silence, "stdin"))
    }

    /// Waits for data or end of file.
    fn wait(&mut self) -> Result<()> {
        let Some(silence) = self.silence else {
            return Ok(());
        };
        let rest = self.until.saturating_duration_since(Instant::now());
        let mut wait = silence.min(rest);
        if wait > NOTICE {
            if self.comes(NOTICE)? {
                return Ok(());
            }
            wait -= NOTICE;
            if let Some(name) = self.name.take() {
                eprintln!("weir: no data from {name} yet; waiting for at most {silence:?}");
            }
        }
        if !self.comes(wait)? {
            let why = format!("no data for {silence:?}, or no end of file within {WHOLE:?}");
            return Err(Error::new(ErrorKind::TimedOut, why));
        }
        Ok(())
    }

    /// Whether data or end of file arrives within this time.
    fn comes(&self, wait: Duration) -> Result<bool> {
        let wait = PollTimeout::try_from(wait).unwrap_or(PollTimeout::MAX);
        let mut fds = [PollFd::new(self.file.as_fd(), PollFlags::POLLIN)];
        Ok(poll(&mut fds, wait)? > 0)
    }
}

impl Read for Patient {
    fn read(&mut self, buf: &mut [u8]) -> Result<usize> {
        loop {
            self.wait()?;
            match self.file.read(buf) {
                // Another reader of the pipe took the data.
                Err(e) if e.kind() == ErrorKind::WouldBlock => {}
                read => return read,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    /// Both ends of a pipe.
    fn pipe(silence: Duration) -> (Patient, File) {
        let (read, write) = nix::unistd::pipe2(OFlag::O_CLOEXEC | OFlag::O_NONBLOCK).unwrap();
        (
            Patient::new(File::from(read), Some(silence), "the pipe"),
            File::from(write),
        )
    }

    #[test]
    fn a_silent_pipe_is_not_waited_for_without_end() {
        let (mut reader, mut writer) = pipe(Duration::from_millis(30));
        writer.write_all(b"half").unwrap();
        let mut text = String::new();
        let error = reader.read_to_string(&mut text).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TimedOut);
        assert!(error.to_string().contains("30ms"), "{error}");
        let (mut late, _writer) = pipe(Duration::from_secs(60));
        late.until = Instant::now();
        let error = late.read_to_string(&mut text).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TimedOut);
    }

    #[test]
    fn a_pipe_is_read_to_its_end() {
        let (mut reader, mut writer) = pipe(SILENCE);
        let writing = std::thread::spawn(move || {
            for _ in 0..1000 {
                // The writer's end does not wait for room.
                while writer.write_all(&[b'x'; 1000]).is_err() {
                    std::thread::yield_now();
                }
            }
        });
        let mut text = String::new();
        assert_eq!(reader.read_to_string(&mut text).unwrap(), 1_000_000);
        writing.join().unwrap();
    }
}
