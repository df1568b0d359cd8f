//! What a test gives instead of the answer that the objects would give.

use super::wire::{begin, chunk, end, whole};
use crate::pods;
use std::io::{Result, Write};
use std::time::{Duration, Instant};

/// What happens to one request.
#[derive(Clone, Debug)]
pub enum Answer {
    /// Status and body.
    Body(u16, String),
    /// A status, with a `Status` object.
    Status(u16),
    /// These bytes, which are no HTTP as a rule.
    Raw(Vec<u8>),
    /// 200 with this body in a chunk, and the end.
    Chunk(Vec<u8>),
    /// 200 with the beginning of a body, cut off within a chunk.
    Half(Vec<u8>),
    /// The beginning of an answer, byte by byte, for this long.
    Drip(Duration),
    /// Nothing, until the server ends.
    Hang,
}

impl Answer {
    /// All but [`Answer::Hang`], which waits for the server's end.
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
