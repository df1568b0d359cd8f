//! Encoding into one growing buffer.

use super::{NLA_F_NESTED, NLA_HDRLEN, NLA_TYPE_MASK};
use std::fmt;

/// A value that does not fit its attribute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EncodeError {
    /// The attribute's number.
    pub attribute: u16,
    /// The length that it would have in bytes, including the header; the maximum is 65,535.
    pub length: usize,
}

impl fmt::Display for EncodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { attribute, length } = self;
        write!(
            f,
            "attribute {attribute} would have {length} bytes; at most 65535 fit, split it"
        )
    }
}

impl std::error::Error for EncodeError {}

/// Appends attributes; the first error is kept and checked once, at the end.
#[derive(Debug, Default)]
#[doc(alias = "nla_put")]
pub struct Writer {
    buf: Vec<u8>,
    error: Option<EncodeError>,
}

impl Writer {
    /// An empty buffer.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// An empty buffer with room for this many bytes.
    pub(crate) fn with_room(bytes: usize) -> Self {
        Self {
            buf: Vec::with_capacity(bytes),
            error: None,
        }
    }

    /// Appends bytes that are not an attribute, such as a message's header.
    pub fn put(&mut self, bytes: &[u8]) {
        self.buf.extend_from_slice(bytes);
    }

    /// Appends one attribute, whose payload `body` writes, and pads it to the next multiple of four bytes. `nested` sets
    /// `NLA_F_NESTED`.
    pub fn attr(&mut self, number: u16, nested: bool, body: impl FnOnce(&mut Self)) {
        let start = self.buf.len();
        let kind = if nested {
            number | NLA_F_NESTED
        } else {
            number
        };
        self.buf.extend_from_slice(&[0, 0]);
        self.buf.extend_from_slice(&kind.to_ne_bytes());
        body(self);
        let length = self.buf.len() - start;
        match u16::try_from(length) {
            Ok(n) => {
                if let Some(slot) = self.buf.get_mut(start..start + 2) {
                    slot.copy_from_slice(&n.to_ne_bytes());
                }
            }
            Err(_) => {
                let attribute = number & NLA_TYPE_MASK;
                self.error.get_or_insert(EncodeError { attribute, length });
            }
        }
        self.align();
    }

    /// Pads with zeros to the next multiple of four.
    pub fn align(&mut self) {
        self.zeros(self.buf.len().next_multiple_of(NLA_HDRLEN));
    }

    /// Pads with zeros to this length.
    pub(crate) fn zeros(&mut self, length: usize) {
        self.buf.resize(length.max(self.buf.len()), 0);
    }

    /// Number of bytes written so far.
    #[must_use]
    pub fn len(&self) -> usize {
        self.buf.len()
    }

    /// Whether nothing was written.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.buf.is_empty()
    }

    /// Overwrites bytes that were written earlier, such as a message's length. Has no effect beyond the written bytes.
    pub fn patch(&mut self, at: usize, bytes: &[u8]) {
        if let Some(slot) = self.buf.get_mut(at..at + bytes.len()) {
            slot.copy_from_slice(bytes);
        }
    }

    /// Returns the written bytes.
    ///
    /// # Errors
    /// The first value that did not fit its attribute.
    pub fn finish(self) -> Result<Vec<u8>, EncodeError> {
        match self.error {
            Some(e) => Err(e),
            None => Ok(self.buf),
        }
    }
}
