//! The virtio-serial port: frames in, frames out.
use crate::proto::{Decoder, Frame};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Where the kernel lists the ports with their names (`drivers/char/virtio_console.c`).
const PORTS: &str = "/sys/class/virtio-ports";
/// A guest that no host ever talks to ends after this.
const LONELY: Duration = Duration::from_secs(120);
/// How often a port without a host is looked at: it reads as an empty file at once.
const PAUSE: Duration = Duration::from_millis(5);

/// The open port.
pub(super) struct Port {
    file: File,
    decoder: Decoder,
    buffer: Vec<u8>,
}

impl Port {
    /// Waits until the driver has made the port of that name, and opens it.
    pub(super) fn open(name: &str) -> io::Result<Self> {
        let start = Instant::now();
        loop {
            if let Some(path) = find(name) {
                let file = OpenOptions::new().read(true).write(true).open(&path)?;
                return Ok(Self {
                    file,
                    decoder: Decoder::new(),
                    buffer: vec![0; 64 << 10],
                });
            }
            if start.elapsed() > Duration::from_secs(10) {
                return Err(io::Error::other(format!(
                    "there is no virtio-serial port {name:?}: the kernel needs virtio_pci and virtio_console, \
                     built in or as modules"
                )));
            }
            std::thread::sleep(PAUSE);
        }
    }

    /// The next frame; `None` when the host is gone. With `is_synced`, a port that its host has closed means that;
    /// without, that the host is still to come.
    pub(super) fn next(&mut self, is_synced: bool) -> io::Result<Option<Frame>> {
        let start = Instant::now();
        loop {
            if let Some(frame) = self.decoder.next_frame().map_err(|g| {
                io::Error::new(io::ErrorKind::InvalidData, format!("the host sent {g}"))
            })? {
                return Ok(Some(frame));
            }
            // Waits for the host to say something; a port without a host reads as an empty file.
            let got = self.file.read(&mut self.buffer)?;
            if got == 0 {
                if is_synced || start.elapsed() > LONELY {
                    return Ok(None);
                }
                std::thread::sleep(PAUSE);
                continue;
            }
            self.decoder
                .push(self.buffer.get(..got).unwrap_or_default());
        }
    }

    pub(super) fn send(&mut self, frame: &Frame) -> io::Result<()> {
        let bytes = frame
            .encode()
            .map_err(|e| io::Error::other(e.to_string()))?;
        self.file.write_all(&bytes)
    }
}

fn find(name: &str) -> Option<PathBuf> {
    for entry in fs::read_dir(PORTS).ok()?.flatten() {
        let found = fs::read_to_string(entry.path().join("name")).unwrap_or_default();
        if found.trim_end() == name {
            return Some(PathBuf::from("/dev").join(entry.file_name()));
        }
    }
    None
}
