//! The answers that a test can give instead of the regular ones.

use super::wire::{begin, chunk, end, whole};
use crate::pods;
use std::io::{Result, Write};
use std::time::{Duration, Instant};

/// The answer to one request.
#[derive(Clone, Debug)]
pub enum Answer {
    /// This status and body.
    Body(u16, String),
    /// This status, with a `Status` object as body.
    Status(u16),
    /// These bytes, which usually are not valid HTTP.
    Raw(Vec<u8>),
    /// 200 with this body in one chunk, followed by the last chunk.
    Chunk(Vec<u8>),
    /// 200 with the beginning of a body; the connection is closed within a chunk.
    Half(Vec<u8>),
    /// The beginning of an answer, sent byte by byte for this long.
    Drip(Duration),
    /// No answer until the server is stopped.
    Hang,
}

impl Answer {
    /// Sends the answer. [`Answer::Hang`] is not sent: the caller waits for the server's end.
    pub(super) fn give(&self, stream: &mut impl Write) -> Result<()> {
        match self {
            Self::Body(code, body) => whole(stream, *code, body),
            Self::Status(code) => {
                let status = pods::status(*code, "Reason", "not now");
                whole(stream, *code, &status.to_string())
            }
            Self::Raw(bytes) => stream.write_all(bytes),
            Self::Chunk(bytes) => {
                begin(stream)?;
                chunk(stream, bytes)?;
                end(stream)
            }
            Self::Half(bytes) => {
                begin(stream)?;
                write!(stream, "{:x}\r\n", bytes.len() + 100)?;
                stream.write_all(bytes)
            }
            Self::Drip(time) => {
                begin(stream)?;
                let end = Instant::now() + *time;
                while Instant::now() < end {
                    chunk(stream, b"{")?;
                    std::thread::sleep(Duration::from_millis(20));
                }
                Ok(())
            }
            Self::Hang => Ok(()),
        }
    }
}
