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
    /// kept as it is, and refused when it is sent.
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

    /// The number in host order, when there are exactly four bytes.
    #[must_use]
    pub fn to_ne32(&self) -> Option<u32> {
        Some(u32::from_ne_bytes(self.0.as_slice().try_into().ok()?))
    }

    /// The number in network order, for one to eight bytes.
    #[must_use]
    pub fn to_be(&self) -> Option<u64> {
        if self.0.is_empty() || self.0.len() > 8 {
            return None;
        }
        Some(self.0.iter().fold(0, |n, b| n << 8 | u64::from(*b)))
    }

    /// The number in host order, for one to eight bytes.
    #[must_use]
    pub fn to_ne(&self) -> Option<u64> {
        if cfg!(target_endian = "big") {
            return self.to_be();
        }
        Self(self.0.iter().rev().copied().collect()).to_be()
    }

    /// The number in this byte order, for one to eight bytes.
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

/// The type of a set's key or of a selector's value, by `nft`'s number for it (`enum datatypes` in nftables'
/// `include/datatype.h`; sent in `NFTA_SET_KEY_TYPE`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[doc(alias = "NFTA_SET_KEY_TYPE")]
pub struct DataType(pub u32);

impl DataType {
    /// Whether it is a concatenation of types, six bits each.
    #[must_use]
    pub const fn is_concatenation(self) -> bool {
        self.0 > 63
    }

    /// Whether its values are sets of bits: `nft` compares them with "any of".
    pub(crate) fn is_bits(self) -> bool {
        [
            Self::CT_STATE,
            Self::CT_STATUS,
            Self::CT_LABEL,
            Self::CT_EVENT,
            Self::TCP_FLAG,
        ]
        .contains(&self)
    }

    /// `verdict`
    pub const VERDICT: Self = Self(1);
    /// `nf_proto`: IPv4 or IPv6
    pub const NF_PROTO: Self = Self(2);
    /// `bitmask` of any width
    pub const BITMASK: Self = Self(3);
    /// `integer` of any width
    pub const INTEGER: Self = Self(4);
    /// `string`
    pub const STRING: Self = Self(5);
    /// `ether_addr`
    pub const ETHER_ADDR: Self = Self(9);
    /// `ipv4_addr`
    pub const IPV4_ADDR: Self = Self(7);
    /// `ipv6_addr`
    pub const IPV6_ADDR: Self = Self(8);
    /// `ether_type`
    pub const ETHER_TYPE: Self = Self(10);
    /// `arp_op`
    pub const ARP_OP: Self = Self(11);
    /// `inet_proto`
    pub const INET_PROTO: Self = Self(12);
    /// `inet_service`: a port
    pub const INET_SERVICE: Self = Self(13);
    /// `icmp_type`
    pub const ICMP_TYPE: Self = Self(14);
    /// `tcp_flag`
    pub const TCP_FLAG: Self = Self(15);
    /// `dccp_pkttype`
    pub const DCCP_PKTTYPE: Self = Self(16);
    /// `mh_type`: mobility header
    pub const MH_TYPE: Self = Self(17);
    /// `time`: a duration in milliseconds
    pub const TIME: Self = Self(18);
    /// `mark`
    pub const MARK: Self = Self(19);
    /// `iface_index`
    pub const IFINDEX: Self = Self(20);
    /// `iface_type`
    pub const ARPHRD: Self = Self(21);
    /// `realm`
    pub const REALM: Self = Self(22);
    /// `classid`: a class of traffic control
    pub const CLASSID: Self = Self(23);
    /// `uid`
    pub const UID: Self = Self(24);
    /// `gid`
    pub const GID: Self = Self(25);
    /// `ct_state`
    pub const CT_STATE: Self = Self(26);
    /// `ct_dir`
    pub const CT_DIR: Self = Self(27);
    /// `ct_status`
    pub const CT_STATUS: Self = Self(28);
    /// `icmpv6_type`
    pub const ICMPV6_TYPE: Self = Self(29);
    /// `ct_label`: a bit map
    pub const CT_LABEL: Self = Self(30);
    /// `pkt_type`
    pub const PKT_TYPE: Self = Self(31);
    /// `icmp_code`
    pub const ICMP_CODE: Self = Self(32);
    /// `icmpv6_code`
    pub const ICMPV6_CODE: Self = Self(33);
    /// `icmpx_code`
    pub const ICMPX_CODE: Self = Self(34);
    /// `devgroup`
    pub const DEVGROUP: Self = Self(35);
    /// `dscp`
    pub const DSCP: Self = Self(36);
    /// `ecn`
    pub const ECN: Self = Self(37);
    /// `ct_event`
    pub const CT_EVENT: Self = Self(40);
    /// `igmp_type`
    pub const IGMP_TYPE: Self = Self(42);
    /// `ifname`
    pub const IFNAME: Self = Self(41);
    /// `boolean`
    pub const BOOLEAN: Self = Self(39);
    /// `fib_addrtype`
    pub const FIB_ADDR: Self = Self(38);
    /// `time`: nanoseconds since 1970
    pub const TIME_DATE: Self = Self(43);
    /// `hour`: seconds since midnight
    pub const TIME_HOUR: Self = Self(44);
    /// `day`: of the week
    pub const TIME_DAY: Self = Self(45);
    /// `cgroupsv2`
    pub const CGROUPV2: Self = Self(46);
}
