//! The virtio-serial port, which carries the frames in both directions.
use crate::proto::Frame;
use std::fs::{self, DirEntry, File};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The directory where the kernel lists the ports and their names (`drivers/char/virtio_console.c`).
const PORTS: &str = "/sys/class/virtio-ports";
/// After this time without a host the guest powers off.
const LONELY: Duration = Duration::from_secs(120);
/// The polling interval for a port without a host, where read(2) returns end of file at once.
const PAUSE: Duration = Duration::from_millis(5);

/// The open port.
pub(super) struct Port(File);

impl Port {
    /// Waits until the driver has made the port of that name, and opens it.
    pub(super) fn open(name: &str) -> io::Result<Self> {
        let start = Instant::now();
        loop {
            if let Some(path) = find(name) {
                return File::options().read(true).write(true).open(&path).map(Self);
            }
            if start.elapsed() > Duration::from_secs(10) {
                let needs =
                    "the kernel needs virtio_pci and virtio_console, built in or as modules";
                let text = format!("there is no virtio-serial port {name:?}: {needs}");
                return Err(io::Error::other(text));
            }
            std::thread::sleep(PAUSE);
        }
    }

    /// The next frame; `None` when the host is gone. End of file means that the host has closed the port if `is_synced`, and
    /// that no host has opened it yet otherwise.
    pub(super) fn next(&mut self, is_synced: bool) -> io::Result<Option<Frame>> {
        let start = Instant::now();
        loop {
            // Blocks until the host sends a frame; without a host, read(2) returns end of file.
            match Frame::read(&mut self.0) {
                Err(e) if e.kind() == ErrorKind::UnexpectedEof => {
                    if is_synced || start.elapsed() > LONELY {
                        return Ok(None);
                    }
                    std::thread::sleep(PAUSE);
                }
                other => return other.map(Some),
            }
        }
    }

    pub(super) fn send(&mut self, frame: &Frame) -> io::Result<()> {
        self.0.write_all(&frame.encode()?)
    }
}

fn find(name: &str) -> Option<PathBuf> {
    let mut ports = fs::read_dir(PORTS).ok()?.flatten();
    let found = |port: &DirEntry| fs::read_to_string(port.path().join("name")).unwrap_or_default();
    let port = ports.find(|port| found(port).trim_end() == name)?;
    Some(Path::new("/dev").join(port.file_name()))
}
