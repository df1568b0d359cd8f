//! Checked reading and writing of the structures that the kernel copies as memory: native order, natural alignment,
//! total padded to 8 bytes.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::XtFamily;
use weir_netlink::attr::{bytes_of, text_of};

/// Rounds up to the alignment of every entry, match and target (`XT_ALIGN`).
pub(super) const fn aligned(len: usize) -> usize {
    len.div_ceil(8) * 8
}

/// A view into received memory. Every read is checked and returns `None` beyond the end.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bytes<'a>(pub(super) &'a [u8]);

impl<'a> Bytes<'a> {
    pub(super) fn slice(self, at: usize, len: usize) -> Option<&'a [u8]> {
        self.0.get(at..at.checked_add(len)?)
    }

    fn array<const N: usize>(self, at: usize) -> Option<[u8; N]> {
        self.slice(at, N)?.try_into().ok()
    }

    pub(super) fn u8(self, at: usize) -> Option<u8> {
        self.0.get(at).copied()
    }

    pub(super) fn u16(self, at: usize) -> Option<u16> {
        self.array(at).map(u16::from_ne_bytes)
    }

    pub(super) fn be16(self, at: usize) -> Option<u16> {
        self.array(at).map(u16::from_be_bytes)
    }

    pub(super) fn u32(self, at: usize) -> Option<u32> {
        self.array(at).map(u32::from_ne_bytes)
    }

    pub(super) fn i32(self, at: usize) -> Option<i32> {
        self.array(at).map(i32::from_ne_bytes)
    }

    pub(super) fn u64(self, at: usize) -> Option<u64> {
        self.array(at).map(u64::from_ne_bytes)
    }

    /// An address in network order: 4 bytes for IPv4, 16 for IPv6.
    pub(super) fn address(self, at: usize, family: XtFamily) -> Option<IpAddr> {
        match family {
            XtFamily::Ip => self.array(at).map(|a: [u8; 4]| Ipv4Addr::from(a).into()),
            XtFamily::Ip6 => self.array(at).map(|a: [u8; 16]| Ipv6Addr::from(a).into()),
        }
    }

    /// NUL-terminated text in a field of `len` bytes.
    pub(super) fn text(self, at: usize, len: usize) -> Option<&'a str> {
        let field = self.slice(at, len)?;
        let end = field.iter().position(|b| *b == 0)?;
        std::str::from_utf8(field.get(..end)?).ok()
    }

    /// The same, of any bytes.
    pub(super) fn name(self, at: usize, len: usize) -> Option<String> {
        let field = self.slice(at, len)?;
        let end = field.iter().position(|b| *b == 0)?;
        Some(text_of(field.get(..end)?))
    }
}

/// Builds a structure for the kernel, field by field.
#[derive(Debug, Default)]
pub(super) struct Build(Vec<u8>);

impl Build {
    pub(super) fn new() -> Self {
        Self::default()
    }

    pub(super) fn bytes(mut self, bytes: &[u8]) -> Self {
        self.0.extend_from_slice(bytes);
        self
    }

    pub(super) fn zeros(mut self, n: usize) -> Self {
        self.0.resize(self.0.len() + n, 0);
        self
    }

    pub(super) fn u8(self, v: u8) -> Self {
        self.bytes(&[v])
    }

    pub(super) fn u16(self, v: u16) -> Self {
        self.bytes(&v.to_ne_bytes())
    }

    pub(super) fn be16(self, v: u16) -> Self {
        self.bytes(&v.to_be_bytes())
    }

    pub(super) fn u32(self, v: u32) -> Self {
        self.bytes(&v.to_ne_bytes())
    }

    pub(super) fn u64(self, v: u64) -> Self {
        self.bytes(&v.to_ne_bytes())
    }

    /// An address in a field of its family's length.
    pub(super) fn address(self, v: IpAddr) -> Self {
        match v {
            IpAddr::V4(a) => self.bytes(&a.octets()),
            IpAddr::V6(a) => self.bytes(&a.octets()),
        }
    }

    /// `union nf_inet_addr`: 16 bytes in either family.
    pub(super) fn union_address(self, v: IpAddr) -> Self {
        let rest = if v.is_ipv4() { 12 } else { 0 };
        self.address(v).zeros(rest)
    }

    /// Text in a field of `len` bytes; `None` if it does not fit with its NUL.
    pub(super) fn name(self, text: &str, len: usize) -> Option<Self> {
        let bytes = bytes_of(text);
        let rest = len.checked_sub(bytes.len()).filter(|rest| *rest > 0)?;
        (!text.contains('\0')).then(|| self.bytes(&bytes).zeros(rest))
    }

    /// The structure, padded to 8 bytes.
    pub(super) fn done(self) -> Vec<u8> {
        let rest = aligned(self.0.len()) - self.0.len();
        self.zeros(rest).0
    }
}
