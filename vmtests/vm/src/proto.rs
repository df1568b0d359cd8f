//! What host and guest say to each other over the virtio-serial port `ctl`.
//!
//! A frame is its length (`u32`, little-endian) and its value in the format of [`postcard`]. The host asks, the guest
//! answers; only [`Frame::Output`] comes unasked, between a [`Frame::Run`] and its [`Frame::Exit`]. A
//! guest that dies sends nothing: the verdict is a frame, and no frame is no verdict.

#[cfg(test)]
mod tests;

use crate::process::Stream;
use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use std::fmt;
use std::io::{self, Read};

/// Both sides must have the same. Raise it with every change of a frame.
pub const VERSION: u32 = 4;
/// No frame is longer; longer files and output come in several.
pub const MAX_FRAME: usize = 1 << 20;
/// How much of a file or of a program's output goes into one frame.
pub const CHUNK: usize = 256 << 10;

/// One message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Frame {
    /// Host: the time, and bytes that make this guest's random numbers its own. Answer: [`Frame::Hello`].
    Sync {
        /// Nanoseconds since 1970.
        unix_nanos: u64,
        /// Random bytes of the host.
        seed: [u8; 32],
    },
    /// Host: run a program. Answers: output as it comes, then [`Frame::Exit`] or [`Frame::Failed`].
    Run(Run),
    /// Host: send a file back. Answer: [`Frame::Piece`], as many as it takes, or [`Frame::Failed`].
    Get(OsString),
    /// Host: what the kernel logged since the last [`Frame::Sync`]. Answer: [`Frame::Log`].
    Dmesg,
    /// Host: wait for the next host; this machine is going to be saved. Answer: [`Frame::Done`].
    Park,

    /// Guest: ready.
    Hello(Hello),
    /// Guest: what the program wrote.
    Output(Stream, #[serde(with = "serde_bytes")] Vec<u8>),
    /// Guest: how the program ended.
    Exit(Exit),
    /// Guest: a piece of the file asked for.
    Piece {
        /// The next bytes.
        #[serde(with = "serde_bytes")]
        bytes: Vec<u8>,
        /// No more comes.
        is_last: bool,
    },
    /// Guest: text of the kernel's log.
    Log(String),
    /// Guest: done as asked.
    Done,
    /// Guest: could not be done, and why.
    Failed(String),
}

/// A program to run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Run {
    /// Its path in the guest, and its arguments. A path without a slash is looked for in `PATH` of `env`.
    pub argv: Vec<OsString>,
    /// Where it starts; made if it is missing.
    pub cwd: OsString,
    /// Its whole environment.
    pub env: Vec<(OsString, OsString)>,
    /// Killed, with all that it started, after so many milliseconds.
    pub deadline_ms: u64,
}

/// What a guest says of itself.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// [`VERSION`] of the agent.
    pub version: u32,
    /// `uname -r`.
    pub release: String,
    /// What went wrong while it started, in words: a module that did not load, a file system that did not mount.
    pub notes: Vec<String>,
}

/// How a program ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Ending {
    /// By itself, with this status.
    Status(i32),
    /// By this signal.
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

/// The verdict on a program.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exit {
    /// How it ended.
    pub ending: Ending,
    /// What the kernel logged meanwhile.
    pub kernel_log: String,
}

impl Frame {
    /// What kind of frame it is: the name of the variant.
    pub(crate) fn name(&self) -> String {
        let text = format!("{self:?}");
        let name = text.split([' ', '(', '{']).next();
        name.unwrap_or_default().to_owned()
    }

    /// The frame as bytes, its length first.
    /// One that is too long is an error: senders of long content keep to [`CHUNK`].
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
    /// `UnexpectedEof`: the other side is gone; `InvalidData`: what comes is no frame, and nothing after it can be read.
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
