//! The byte order flag, addresses of either family, text of unknown encoding.

use super::{AttrKind, DecodeError, NLA_F_NET_BYTEORDER, Path, Target, Writer};
use std::marker::PhantomData;
use std::net::IpAddr;

/// Another kind, written with `NLA_F_NET_BYTEORDER`. Decoding ignores the flag.
#[derive(Clone, Copy, Debug)]
pub struct NetOrder<K>(PhantomData<K>);

impl<K: AttrKind> AttrKind for NetOrder<K> {
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
    #[cfg(feature = "testing")]
    fn strategy() -> proptest::strategy::BoxedStrategy<IpAddr> {
        use proptest::strategy::Strategy as _;
        proptest::arbitrary::any::<IpAddr>().boxed()
    }
}

/// A NUL-terminated string that another writer may have encoded in any charset: what is not UTF-8 is replaced by
/// U+FFFD, so that one such name does not hide the rest of a dump.
#[derive(Clone, Copy, Debug)]
pub enum LossyStr {}

impl AttrKind for LossyStr {
    type Value = String;
    fn encode(value: &String, w: &mut Writer) {
        super::Str::encode(value, w);
    }
    fn decode(bytes: &[u8]) -> Result<String, DecodeError> {
        let end = bytes.iter().position(|b| *b == 0).unwrap_or(bytes.len());
        Ok(String::from_utf8_lossy(bytes.get(..end).unwrap_or_default()).into_owned())
    }
    #[cfg(feature = "testing")]
    fn strategy() -> proptest::strategy::BoxedStrategy<String> {
        super::Str::strategy()
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
            name: LossyStr = IPSET_ATTR_SETNAME 2,
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

    #[test]
    fn text_of_another_encoding_is_read() {
        let bytes = [8, 0, 2, 0, b'a', 0xff, b'b', 0];
        assert_eq!(
            Entry::decode(&bytes).unwrap().name.as_deref(),
            Some("a\u{fffd}b")
        );
    }
}
