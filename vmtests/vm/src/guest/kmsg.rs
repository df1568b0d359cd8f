//! The kernel's log, record by record, from `/dev/kmsg`.
use nix::errno::Errno;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;

/// The upper bound of the kept text: an oops has some 5 KiB, and the size of a frame is limited.
const MOST: usize = 400 << 10;

/// A reader of the log that keeps its position.
pub(super) struct Kmsg {
    file: File,
    text: String,
    mark: usize,
}

impl Kmsg {
    /// Opens the log at the oldest record that the kernel still has.
    pub(super) fn open() -> io::Result<Self> {
        let mut options = File::options();
        options.read(true).custom_flags(nix::libc::O_NONBLOCK);
        Ok(Self {
            file: options.open("/dev/kmsg")?,
            text: String::new(),
            mark: 0,
        })
    }

    /// All text since [`Kmsg::skip`], or since boot.
    pub(super) fn all(&mut self) -> String {
        self.read();
        self.text.clone()
    }

    /// Discards all records so far.
    pub(super) fn skip(&mut self) {
        self.read();
        self.text.clear();
        self.mark = 0;
    }

    /// Sets the position where [`Kmsg::since_mark`] starts.
    pub(super) fn mark(&mut self) {
        self.read();
        self.mark = self.text.len();
    }

    /// The text since [`Kmsg::mark`].
    pub(super) fn since_mark(&mut self) -> String {
        self.read();
        self.text.get(self.mark..).unwrap_or_default().to_owned()
    }

    fn read(&mut self) {
        // One read(2) gives one record, which the kernel bounds at CONSOLE_EXT_LOG_MAX, 8 KiB.
        let mut record = [0; 8192];
        loop {
            match self.file.read(&mut record) {
                Ok(0) => return,
                Ok(_) if self.text.len() >= MOST => {}
                Ok(got) => {
                    let record = record.get(..got).unwrap_or_default();
                    self.text += &line(&String::from_utf8_lossy(record));
                }
                // EPIPE: records were overwritten before they were read; the next read returns the oldest that is left.
                Err(e) if e.raw_os_error() == Some(Errno::EPIPE as i32) => {
                    self.text += "(some records of the kernel's log are lost)\n";
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return,
            }
        }
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
