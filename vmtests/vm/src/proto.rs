//! The protocol between host and guest over the virtio-serial port `ctl`.
//!
//! A frame is its length (`u32`, little-endian) and its value in the format of [`postcard`]. The host sends requests, the
//! guest answers; only [`Frame::Output`] is unsolicited, between a [`Frame::Run`] and its [`Frame::Exit`]. A guest that
//! dies sends nothing: without the frame there is no result.

#[cfg(test)]
mod tests;

use crate::process::Stream;
use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use std::fmt;
use std::io::{self, Read};

/// The protocol version; it must be equal on both sides. Increment it with every change of a frame.
pub const VERSION: u32 = 4;
/// The maximum length of a frame; longer files and output are split.
pub const MAX_FRAME: usize = 1 << 20;
/// The maximum size of a piece of a file or of a program's output in one frame.
pub const CHUNK: usize = 256 << 10;

/// A message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Frame {
    /// Host: sets the clock and seeds this guest's random number generator. Answer: [`Frame::Hello`].
    Sync {
        /// Nanoseconds since 1970.
        unix_nanos: u64,
        /// Random bytes from the host.
        seed: [u8; 32],
    },
    /// Host: run a program. Answers: output as it arrives, then [`Frame::Exit`] or [`Frame::Failed`].
    Run(Run),
    /// Host: send a file. Answers: [`Frame::Piece`] until the last one, or [`Frame::Failed`].
    Get(OsString),
    /// Host: send the kernel's log since the last [`Frame::Park`], or since boot. Answer: [`Frame::Log`].
    Dmesg,
    /// Host: wait for the next host, since this machine will be saved. Answer: [`Frame::Done`].
    Park,

    /// Guest: ready.
    Hello(Hello),
    /// Guest: output of the program.
    Output(Stream, #[serde(with = "serde_bytes")] Vec<u8>),
    /// Guest: how the program ended.
    Exit(Exit),
    /// Guest: a piece of the requested file.
    Piece {
        /// The next bytes.
        #[serde(with = "serde_bytes")]
        bytes: Vec<u8>,
        /// Whether this is the last piece.
        is_last: bool,
    },
    /// Guest: the text of the kernel's log.
    Log(String),
    /// Guest: the request is done.
    Done,
    /// Guest: the request failed; the reason.
    Failed(String),
}

/// A program to run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Run {
    /// Its path in the guest, and its arguments. A name without a slash is searched in `PATH` of `env`.
    pub argv: Vec<OsString>,
    /// Its working directory, which is created if it is missing.
    pub cwd: OsString,
    /// Its complete environment.
    pub env: Vec<(OsString, OsString)>,
    /// Milliseconds after which it is killed, with all processes that it started.
    pub deadline_ms: u64,
}

/// The greeting of a guest.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// The agent's [`VERSION`].
    pub version: u32,
    /// `uname -r`.
    pub release: String,
    /// Problems during its start: a module that did not load, a file system that could not be mounted.
    pub notes: Vec<String>,
}

/// How a program ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Ending {
    /// It exited with this status.
    Status(i32),
    /// This signal ended it.
    Signal(i32),
    /// It was killed at its deadline.
    TimedOut,
}

impl fmt::Display for Ending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Status(status) => write!(f, "exit status {status}"),
            Self::Signal(signal) => write!(f, "signal {signal}"),
            Self::TimedOut => f.write_str("killed at its deadline"),
        }
    }
}

/// The result of a program.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exit {
    /// How it ended.
    pub ending: Ending,
    /// What the kernel logged meanwhile.
    pub kernel_log: String,
}

impl Frame {
    /// The kind of the frame: the name of the variant.
    pub(crate) fn name(&self) -> String {
        let text = format!("{self:?}");
        let name = text.split([' ', '(', '{']).next();
        name.unwrap_or_default().to_owned()
    }

    /// Encodes the frame, with its length first.
    /// A frame that is too long is an error: senders split long content into pieces of [`CHUNK`].
    pub fn encode(&self) -> io::Result<Vec<u8>> {
        let mut bytes = postcard::to_extend(self, vec![0; 4]).map_err(io::Error::other)?;
        let length = bytes.len() - 4;
        match (bytes.first_chunk_mut(), u32::try_from(length)) {
            (Some(first), Ok(front)) if length <= MAX_FRAME => *first = front.to_le_bytes(),
            _ => return Err(garbage(format!("a frame of {length} bytes"))),
        }
        Ok(bytes)
    }

    /// Reads the next frame.
    /// `UnexpectedEof`: the other side is gone; `InvalidData`: the bytes are not a frame, and the stream is unusable from here.
    pub fn read(from: &mut impl Read) -> io::Result<Self> {
        let mut front = [0; 4];
        from.read_exact(&mut front)?;
        let length = u32::from_le_bytes(front);
        let size = usize::try_from(length).unwrap_or(usize::MAX);
        if size == 0 || size > MAX_FRAME {
            return Err(garbage(format!("a frame of {length} bytes")));
        }
        let mut bytes = vec![0; size];
        from.read_exact(&mut bytes)?;
        match postcard::take_from_bytes(&bytes) {
            Ok((frame, [])) => Ok(frame),
            _ => Err(garbage("a broken frame".into())),
        }
    }
}

fn garbage(what: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}
