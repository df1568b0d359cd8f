//! Numbers and byte strings on the wire: little-endian, a string behind its `u32` length.

pub(super) fn put_u32(b: &mut Vec<u8>, value: u32) {
    b.extend_from_slice(&value.to_le_bytes());
}

pub(super) fn put_u64(b: &mut Vec<u8>, value: u64) {
    b.extend_from_slice(&value.to_le_bytes());
}

pub(super) fn put_bytes(b: &mut Vec<u8>, bytes: &[u8]) {
    put_u32(b, u32::try_from(bytes.len()).unwrap_or(u32::MAX));
    b.extend_from_slice(bytes);
}

/// Takes values off the front of a body. `None`: it does not hold that value.
pub(super) struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(super) fn new(body: &'a [u8]) -> Self {
        Self { rest: body }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    pub(super) fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (value, rest) = self.rest.split_first_chunk()?;
        self.rest = rest;
        Some(*value)
    }

    pub(super) fn u8(&mut self) -> Option<u8> {
        self.array().map(u8::from_le_bytes)
    }

    pub(super) fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    pub(super) fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    pub(super) fn bool(&mut self) -> Option<bool> {
        match self.u8()? {
            0 => Some(false),
            1 => Some(true),
            _ => None,
        }
    }

    pub(super) fn bytes(&mut self) -> Option<&'a [u8]> {
        let length = usize::try_from(self.u32()?).ok()?;
        let (value, rest) = self.rest.split_at_checked(length)?;
        self.rest = rest;
        Some(value)
    }

    pub(super) fn text(&mut self) -> Option<String> {
        String::from_utf8(self.bytes()?.to_vec()).ok()
    }
}
