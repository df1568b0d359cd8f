//! Register data: the bytes that a match compares or a statement stores.

use smallvec::SmallVec;
use std::net::IpAddr;

/// Bytes in the order in which the kernel keeps them in a register.
///
/// Packet bytes (addresses, ports) are in network order; values that the kernel computes (marks, user ids, interface
/// indexes, conntrack state) are in host order. The [`Selector`](super::Selector) determines which one applies, so
/// build values with the constructor that names the order.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Data(pub(crate) SmallVec<[u8; 16]>);

impl Data {
    /// A 16-bit number in network order, such as a port in a packet.
    #[must_use]
    pub fn be16(v: u16) -> Self {
        Self::from(v.to_be_bytes().as_slice())
    }

    /// A 32-bit number in network order.
    #[must_use]
    pub fn be32(v: u32) -> Self {
        Self::from(v.to_be_bytes().as_slice())
    }

    /// A 32-bit number in host order, such as a mark or a user id.
    #[must_use]
    pub fn ne32(v: u32) -> Self {
        Self::from(v.to_ne_bytes().as_slice())
    }

    /// A 16-bit number in host order, such as a conntrack zone.
    #[must_use]
    pub fn ne16(v: u16) -> Self {
        Self::from(v.to_ne_bytes().as_slice())
    }

    /// One byte, such as an IP protocol number.
    #[must_use]
    pub fn u8(v: u8) -> Self {
        Self::from([v].as_slice())
    }

    /// An address, 4 or 16 bytes in network order.
    #[must_use]
    pub fn addr(a: IpAddr) -> Self {
        match a {
            IpAddr::V4(a) => Self::from(a.octets().as_slice()),
            IpAddr::V6(a) => Self::from(a.octets().as_slice()),
        }
    }

    /// An interface name, padded with zeros to `IFNAMSIZ` (16) as `nft` writes it. A name of more than 15 bytes is
    /// kept unchanged, and refused when it is sent.
    #[must_use]
    pub fn ifname(name: &str) -> Self {
        let mut v: SmallVec<_> = name.bytes().collect();
        v.resize(v.len().max(16), 0);
        Self(v)
    }

    /// The bytes, in the order of the register.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The number in host order; `None` unless there are exactly four bytes.
    #[must_use]
    pub fn to_ne32(&self) -> Option<u32> {
        Some(u32::from_ne_bytes(self.0.as_slice().try_into().ok()?))
    }

    /// The number in network order; `None` unless there are one to eight bytes.
    #[must_use]
    pub fn to_be(&self) -> Option<u64> {
        if self.0.is_empty() || self.0.len() > 8 {
            return None;
        }
        Some(self.0.iter().fold(0, |n, b| n << 8 | u64::from(*b)))
    }

    /// The number in host order; `None` unless there are one to eight bytes.
    pub(crate) fn to_ne(&self) -> Option<u64> {
        if cfg!(target_endian = "big") {
            return self.to_be();
        }
        Self(self.0.iter().rev().copied().collect()).to_be()
    }

    /// The number in this byte order; `None` unless there are one to eight bytes.
    pub(crate) fn number(&self, host_order: bool) -> Option<u64> {
        if host_order {
            self.to_ne()
        } else {
            self.to_be()
        }
    }
}

impl From<&[u8]> for Data {
    fn from(bytes: &[u8]) -> Self {
        Self(SmallVec::from_slice(bytes))
    }
}

impl From<Vec<u8>> for Data {
    fn from(bytes: Vec<u8>) -> Self {
        Self(SmallVec::from_vec(bytes))
    }
}

impl std::fmt::Debug for Data {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("0x")?;
        self.0.iter().try_for_each(|b| write!(f, "{b:02x}"))
    }
}
