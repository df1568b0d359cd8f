//! The byte order flag, and addresses of either family.

use super::{AttrKind, DecodeError, NLA_F_NET_BYTEORDER, Path, Target, Writer};
use std::marker::PhantomData;
use std::net::IpAddr;

/// The kind `K`, written with `NLA_F_NET_BYTEORDER`. Decoding ignores the flag.
#[derive(Clone, Copy, Debug)]
pub struct NetOrder<K>(PhantomData<K>);

impl<K: AttrKind + 'static> AttrKind for NetOrder<K> {
    type Value = K::Value;
    const NESTED: bool = K::NESTED;
    const NET_BYTEORDER: bool = true;
    fn encode(value: &K::Value, w: &mut Writer) {
        K::encode(value, w);
    }
    fn decode(bytes: &[u8]) -> Result<K::Value, DecodeError> {
        K::decode(bytes)
    }
    fn path(bytes: &[u8], target: Target, around: &[u8]) -> Option<Path> {
        K::path(bytes, target, around)
    }
    #[cfg(feature = "testing")]
    fn strategy() -> proptest::strategy::BoxedStrategy<K::Value> {
        K::strategy()
    }
}

/// An attribute's number with the byte order flag of its kind.
#[must_use]
pub const fn with_order<K: AttrKind>(number: u16) -> u16 {
    if K::NET_BYTEORDER {
        number | NLA_F_NET_BYTEORDER
    } else {
        number
    }
}

/// An address of either family, distinguished by its length, as on the wire.
#[derive(Clone, Copy, Debug)]
pub enum Ip {}

impl AttrKind for Ip {
    type Value = IpAddr;
    fn encode(value: &IpAddr, w: &mut Writer) {
        match value {
            IpAddr::V4(ip) => w.put(&ip.octets()),
            IpAddr::V6(ip) => w.put(&ip.octets()),
        }
    }
    fn decode(bytes: &[u8]) -> Result<IpAddr, DecodeError> {
        let v4 = || <[u8; 4]>::try_from(bytes).map(IpAddr::from);
        let v6 = |_| <[u8; 16]>::try_from(bytes).map(IpAddr::from);
        let neither = |_| {
            let reason = format!("{} bytes where 4 or 16 are expected", bytes.len());
            DecodeError::new(reason)
        };
        v4().or_else(v6).map_err(neither)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attr::{AttrSet, Be32, Ip4};

    crate::attributes! {
        /// An ipset entry.
        struct Entry {
            ip: NetOrder<Be32> = IPSET_ATTR_TIMEOUT 6,
            v4: Ip4 = IPSET_ATTR_IPADDR_IPV4 1,
        }
    }

    #[test]
    fn the_flag_is_written_and_not_asked_for() {
        let set = Entry {
            ip: Some(0x0102_0304),
            v4: Some([10, 0, 0, 1].into()),
            ..Entry::default()
        };
        let mut w = Writer::new();
        set.encode(&mut w);
        let mut bytes = w.finish().unwrap();
        assert_eq!(
            bytes,
            [8, 0, 6, 0x40, 1, 2, 3, 4, 8, 0, 1, 0x40, 10, 0, 0, 1]
        );
        assert_eq!(Entry::decode(&bytes).unwrap(), set);
        (bytes[3], bytes[11]) = (0, 0);
        assert_eq!(Entry::decode(&bytes).unwrap(), set);
    }
}
