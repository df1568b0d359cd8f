//! The bytes of a structure, read and written at the offsets in a row of the registry.

use crate::xtables::structs::name_of;

/// A structure of the kernel as memory, in host order. A read beyond its end returns 0, and a write there does nothing;
/// a test checks that no row has such an offset.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Blob(pub(super) Vec<u8>);

/// A number of 1, 2, 4 or 8 bytes in a structure.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    pub(crate) at: usize,
    pub(crate) width: usize,
}

/// The bytes of the number in host order; none if the width is not 1, 2, 4 or 8.
fn native(width: usize, value: u64) -> Vec<u8> {
    let [a, b, c, d, e, f, g, h] = value.to_le_bytes();
    let mut bytes = match width {
        1 => vec![a],
        2 => vec![a, b],
        4 => vec![a, b, c, d],
        8 => vec![a, b, c, d, e, f, g, h],
        _ => Vec::new(),
    };
    if cfg!(target_endian = "big") {
        bytes.reverse();
    }
    bytes
}

impl Blob {
    pub(crate) fn zeros(size: usize) -> Self {
        Self(vec![0; size])
    }

    pub(crate) fn bytes(&self, at: usize, len: usize) -> &[u8] {
        self.0.get(at..at.saturating_add(len)).unwrap_or_default()
    }

    pub(crate) fn set(&mut self, at: usize, bytes: &[u8]) {
        if let Some(to) = self.0.get_mut(at..at.saturating_add(bytes.len())) {
            to.copy_from_slice(bytes);
        }
    }

    /// Reads a number in host order.
    pub(crate) fn uint(&self, at: usize, width: usize) -> u64 {
        let add = |all: u64, byte: &u8| all << 8 | u64::from(*byte);
        let bytes = self.bytes(at, width).iter();
        if cfg!(target_endian = "big") {
            bytes.fold(0, add)
        } else {
            bytes.rev().fold(0, add)
        }
    }

    /// Reads a number in network order.
    pub(crate) fn big(&self, at: usize, width: usize) -> u64 {
        let bytes = self.bytes(at, width).iter();
        bytes.fold(0, |all, byte| all << 8 | u64::from(*byte))
    }

    pub(crate) fn put(&mut self, at: usize, width: usize, value: u64) {
        self.set(at, &native(width, value));
    }

    pub(crate) fn put_big(&mut self, at: usize, width: usize, value: u64) {
        let mut bytes = native(width, value);
        if cfg!(target_endian = "little") {
            bytes.reverse();
        }
        self.set(at, &bytes);
    }

    pub(crate) fn has(&self, place: Place, mask: u64) -> bool {
        self.uint(place.at, place.width) & mask == mask
    }

    pub(crate) fn or(&mut self, place: Place, mask: u64) {
        let old = self.uint(place.at, place.width);
        self.put(place.at, place.width, old | mask);
    }

    pub(crate) fn xor(&mut self, place: Place, mask: u64) {
        let old = self.uint(place.at, place.width);
        self.put(place.at, place.width, old ^ mask);
    }

    /// The NUL-terminated text of a field; `None` if the field has no NUL.
    pub(crate) fn text(&self, at: usize, len: usize) -> Option<String> {
        name_of(self.0.get(at..at.checked_add(len)?)?)
    }
}
