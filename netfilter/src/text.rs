//! What the parsers of the two texts, of `iptables-restore` and of `ipset restore`, share.

use std::fmt;

/// A syntax error: its place and reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseError {
    /// Counted from 1.
    pub line: usize,
    /// In characters, counted from 1.
    pub column: usize,
    /// The error, and the remedy.
    pub reason: String,
}

impl ParseError {
    /// The place alone: `line 3, column 5`.
    pub(crate) fn place(&self) -> String {
        format!("line {}, column {}", self.line, self.column)
    }
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place(), self.reason)
    }
}

impl std::error::Error for ParseError {}

/// The reason why a line with a zero byte is refused.
pub(crate) const ZERO: &str = "the line holds a zero byte; remove it";

/// The column of the first zero byte of a line, in characters, counted from 1.
pub(crate) fn zero(line: &str) -> Option<usize> {
    let (before, _) = line.split_once('\0')?;
    Some(before.chars().count() + 1)
}

/// A decimal number, or a hexadecimal one with `0x` and no sign after it.
pub(crate) fn number(text: &str) -> Option<u64> {
    match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(hex) if hex.starts_with('+') => None,
        Some(hex) => u64::from_str_radix(hex, 16).ok(),
        None if is_octal(text) => None,
        None => text.parse().ok(),
    }
}

/// Whether `strtoul(3)`, which the tools use, would read the number as octal, also after a sign.
pub(crate) fn is_octal(text: &str) -> bool {
    let text = text.strip_prefix('+').unwrap_or(text);
    text.len() > 1 && text.starts_with('0') && text.bytes().all(|b| b.is_ascii_digit())
}

/// A hardware address: six bytes of one or two hexadecimal digits.
pub(crate) fn mac(text: &str) -> Option<[u8; 6]> {
    let byte = |part: &str| {
        let fits = part.len() <= 2 && !part.starts_with('+');
        u8::from_str_radix(part, 16).ok().filter(|_| fits)
    };
    let bytes: Option<Vec<u8>> = text.split(':').map(byte).collect();
    bytes?.try_into().ok()
}
