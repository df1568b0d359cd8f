//! Walking received attributes.

use super::{NLA_F_NESTED, NLA_HDRLEN, NLA_TYPE_MASK, Path, Step};
use std::fmt;

/// Bytes that do not match the declaration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DecodeError {
    /// The path to the attribute, if known.
    pub path: Path,
    /// Why it cannot be decoded.
    pub reason: String,
}

impl DecodeError {
    /// An error without a path yet.
    #[must_use]
    pub fn new(reason: impl Into<String>) -> Self {
        Self {
            path: Path::default(),
            reason: reason.into(),
        }
    }

    /// Prefixes the path with one step.
    #[must_use]
    pub fn within(mut self, step: Step) -> Self {
        self.path = self.path.within(step);
        self
    }
}

impl<T: Into<String>> From<T> for DecodeError {
    fn from(reason: T) -> Self {
        Self::new(reason)
    }
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.path.is_empty() {
            f.write_str(&self.reason)
        } else {
            write!(f, "{}: {}", self.path, self.reason)
        }
    }
}

impl std::error::Error for DecodeError {}

/// One received attribute.
#[derive(Clone, Copy, Debug)]
#[doc(alias = "nlattr")]
pub struct Attr<'a> {
    /// Its number, without flags.
    pub number: u16,
    /// Whether `NLA_F_NESTED` was set. The kernel often omits it in dumps.
    pub nested: bool,
    /// The number with all its flags.
    pub kind: u16,
    /// Its payload.
    pub payload: &'a [u8],
    /// Offset of its header in the bytes that [`Attrs`] iterates over.
    pub offset: usize,
}

/// Iterates over consecutive attributes; ends after the first error, a header with an impossible length.
#[derive(Clone, Debug)]
#[doc(alias = "nla_for_each_attr")]
pub struct Attrs<'a> {
    rest: &'a [u8],
    offset: usize,
}

impl<'a> Attrs<'a> {
    /// Iterates over these bytes.
    #[must_use]
    pub fn new(bytes: &'a [u8]) -> Self {
        Self {
            rest: bytes,
            offset: 0,
        }
    }
}

/// Splits off the first attribute; `None` if the length in its header is impossible.
fn split(rest: &[u8]) -> Option<(u16, &[u8], usize)> {
    let (len, rest2) = rest.split_first_chunk::<2>()?;
    let (kind, _) = rest2.split_first_chunk::<2>()?;
    let len = usize::from(u16::from_ne_bytes(*len));
    let payload = rest.get(NLA_HDRLEN..len)?;
    Some((
        u16::from_ne_bytes(*kind),
        payload,
        len.next_multiple_of(NLA_HDRLEN),
    ))
}

impl<'a> Iterator for Attrs<'a> {
    type Item = Result<Attr<'a>, DecodeError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let Some((kind, payload, step)) = split(self.rest) else {
            let reason = format!(
                "an attribute at byte {} is cut off: {} bytes are left",
                self.offset,
                self.rest.len()
            );
            self.rest = &[];
            return Some(Err(DecodeError::new(reason)));
        };
        let attr = Attr {
            number: kind & NLA_TYPE_MASK,
            nested: kind & NLA_F_NESTED != 0,
            kind,
            payload,
            offset: self.offset,
        };
        self.offset += step;
        self.rest = self.rest.get(step..).unwrap_or_default();
        Some(Ok(attr))
    }
}
