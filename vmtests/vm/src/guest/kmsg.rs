//! The kernel's log, record by record, from `/dev/kmsg`.
use crate::kernel_error::{LOST, first_kernel_error};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The upper bound of the kept text: an oops has some 5 KiB, and the size of a frame is limited.
const MOST: usize = 400 << 10;
/// The upper bound with the lines beyond [`MOST`] that report an error. A program that writes faster than each line is searched loses
/// records, which is an error, too.
const MOST_WITH_ERRORS: usize = 2 * MOST;

/// A reader of the log that keeps its position. A thread reads each record when it is written: the kernel overwrites the oldest
/// ones when its buffer is full (128 KiB in the kernels of Debian).
pub(super) struct Kmsg(Arc<Mutex<Log<File>>>);

impl Kmsg {
    /// Opens the log at the oldest record that the kernel still has.
    pub(super) fn open() -> io::Result<Self> {
        let mut options = File::options();
        options.read(true).custom_flags(nix::libc::O_NONBLOCK);
        let file = options.open("/dev/kmsg")?;
        let source = file.try_clone()?;
        let log = Log {
            source,
            text: String::new(),
            mark: 0,
        };
        let kmsg = Self(Arc::new(Mutex::new(log)));
        let thread = Self(Arc::clone(&kmsg.0));
        let follow = move || while wait(&file) && thread.lock().read() {};
        std::thread::Builder::new().spawn(follow)?;
        Ok(kmsg)
    }

    /// All text since [`Kmsg::skip`], or since boot.
    pub(super) fn all(&self) -> String {
        self.now().text.clone()
    }

    /// Discards all records so far.
    pub(super) fn skip(&self) {
        let mut log = self.now();
        log.text.clear();
        log.mark = 0;
    }

    /// Sets the position where [`Kmsg::since_mark`] starts.
    pub(super) fn mark(&self) {
        let mut log = self.now();
        log.mark = log.text.len();
    }

    /// The text since [`Kmsg::mark`].
    pub(super) fn since_mark(&self) -> String {
        self.now().since_mark().to_owned()
    }

    fn lock(&self) -> MutexGuard<'_, Log<File>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The log with every record that has been written.
    fn now(&self) -> MutexGuard<'_, Log<File>> {
        let mut log = self.lock();
        log.read();
        log
    }
}

/// Waits for the next record. False if this is not possible.
fn wait(file: &File) -> bool {
    let mut files = [PollFd::new(file.as_fd(), PollFlags::POLLIN)];
    matches!(
        poll(&mut files, PollTimeout::NONE),
        Ok(_) | Err(Errno::EINTR)
    )
}

/// The text of the records.
struct Log<R> {
    source: R,
    text: String,
    mark: usize,
}

impl<R: Read> Log<R> {
    /// Reads all records that have been written. False if no more can be read.
    fn read(&mut self) -> bool {
        // One read(2) gives one record, which the kernel bounds at CONSOLE_EXT_LOG_MAX, 8 KiB.
        let mut record = [0; 8192];
        loop {
            match self.source.read(&mut record) {
                Ok(0) => return false,
                Ok(got) => {
                    let record = record.get(..got).unwrap_or_default();
                    self.keep(&line(&String::from_utf8_lossy(record)));
                }
                // EPIPE: records were overwritten before they were read; the next read returns the oldest that is left.
                Err(e) if e.raw_os_error() == Some(Errno::EPIPE as i32) => {
                    self.keep(&format!("{LOST}\n"));
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return e.kind() == io::ErrorKind::WouldBlock,
            }
        }
    }

    fn keep(&mut self, line: &str) {
        let is_kept = match self.text.len() {
            ..MOST => true,
            MOST..MOST_WITH_ERRORS => first_kernel_error(line).is_some(),
            _ => false,
        };
        if is_kept {
            self.text += line;
        }
    }

    fn since_mark(&self) -> &str {
        self.text.get(self.mark..).unwrap_or_default()
    }
}

/// Formats a record as `dmesg` does. It is `prefix,sequence,microseconds,flags;text`, then lines with device properties.
fn line(record: &str) -> String {
    let (front, text) = record.split_once(';').unwrap_or(("", record));
    let text = text.split('\n').next().unwrap_or_default();
    let micros = front.split(',').nth(2).and_then(|m| m.parse().ok());
    let micros: u64 = micros.unwrap_or(0);
    let (seconds, micros) = (micros / 1_000_000, micros % 1_000_000);
    format!("[{seconds:5}.{micros:06}] {text}\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::VecDeque;

    /// Gives one record per read, as `/dev/kmsg`.
    struct Records(VecDeque<io::Result<String>>);

    impl Read for Records {
        fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
            let next = self.0.pop_front();
            let record = next.unwrap_or_else(|| Err(io::ErrorKind::WouldBlock.into()))?;
            record.as_bytes().read(to)
        }
    }

    /// The kind of the first error in the log of these records.
    fn error_in(records: impl IntoIterator<Item = io::Result<String>>) -> Option<&'static str> {
        let mut log = Log {
            source: Records(records.into_iter().collect()),
            text: String::new(),
            mark: 0,
        };
        assert!(log.read());
        assert!(log.text.len() < crate::proto::MAX_FRAME);
        first_kernel_error(log.since_mark()).map(|error| error.kind)
    }

    fn record(text: &str) -> io::Result<String> {
        Ok(format!("4,339,5140900,-;{text}\n"))
    }

    #[test]
    fn a_warning_after_a_long_log_is_kept() {
        let many = |text: &'static str| (0..20_000).map(move |_| record(text));
        let packet = "IN=lo OUT= MAC=00 SRC=127.0.0.1 DST=127.0.0.1 LEN=84 TOS=0x00";
        let warning = "------------[ cut here ]------------";
        assert_eq!(error_in(many(packet)), None);
        assert_eq!(
            error_in(many(packet).chain([record(warning)])),
            Some("warning")
        );
        assert_eq!(error_in(many(warning)), Some("warning"));
    }

    #[test]
    fn records_that_are_lost_are_an_error() {
        let lost = Err(io::Error::from_raw_os_error(Errno::EPIPE as i32));
        let records = [record("fine"), lost, record("fine")];
        assert_eq!(error_in(records), Some("lost log"));
    }

    #[test]
    fn a_record_reads_as_dmesg_prints_it() {
        let record = "6,339,5140900,-;NET: Registered protocol family 10\n SUBSYSTEM=net\n";
        assert_eq!(
            line(record),
            "[    5.140900] NET: Registered protocol family 10\n"
        );
        assert_eq!(line("garbage"), "[    0.000000] garbage\n");
    }
}
