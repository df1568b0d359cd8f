//! The types of values, one row each: number, name, length, byte order and notation in `nft`.

use crate::nft::display::{
    address, date, duration, ether, hour, ifname, labels, numbers, tc_handle,
};
use crate::nft::userdata::{BIG_ENDIAN as BIG, HOST_ENDIAN as HOST};
use crate::protocols::PROTOCOLS;
use Shown::{Bits, Bytes, Hex, Named, Text};
use std::time::Duration;

/// The type of a set's key or of a selector's value, by `nft`'s number for it (`enum datatypes` in nftables'
/// `include/datatype.h`; sent in `NFTA_SET_KEY_TYPE`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[doc(alias = "NFTA_SET_KEY_TYPE")]
pub struct DataType(pub u32);

/// Names of numbers.
type Names = &'static [(u64, &'static str)];

/// How a value is displayed.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Shown {
    /// Bytes with their own notation. The second argument is true for a number in host order.
    Bytes(fn(&[u8], bool) -> String),
    /// A name, or a decimal number.
    Named(Names),
    /// A name, or a hexadecimal number of at least this many digits.
    Hex(Names, usize),
    /// The names of its bits.
    Bits(Names),
    /// A number with its own notation.
    Text(fn(u64) -> String),
}

/// What the type of a value determines.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Properties {
    number: u32,
    pub(crate) name: &'static str,
    /// Number of bytes; 0 if the type leaves it open.
    pub(crate) len: usize,
    /// nft's `enum byteorder`, 0 if it has none.
    pub(crate) order: u32,
    /// How many elements `nft` prints per line.
    pub(crate) per_line: usize,
    pub(crate) shown: Shown,
}

/// A number without names.
const NUMBER: Shown = Named(&[]);
const NO_ORDER: u32 = 0;

/// `NUMBER CONSTANT NAME (NOTE): LENGTH, ORDER, ELEMENTS PER LINE, DISPLAY`
macro_rules! types {
    ($($number:literal $constant:ident $name:literal $(($note:literal))?: $len:literal, $order:ident, $per_line:literal, $shown:expr;)*) => {
        impl DataType {
            $(
                #[doc = concat!("`", $name, "`" $(, ": ", $note)?)]
                pub const $constant: Self = Self($number);
            )*
        }

        /// In ascending order of the numbers; 6 has no row.
        static TYPES: &[Properties] = &[$(Properties {
            number: $number,
            name: $name,
            len: $len,
            order: $order,
            per_line: $per_line,
            shown: $shown,
        }),*];
    };
}

types! {
    1 VERDICT "verdict": 0, BIG, 1, NUMBER;
    2 NF_PROTO "nf_proto" ("IPv4 or IPv6"): 1, HOST, 5, Named(&[(2, "ipv4"), (10, "ipv6")]);
    3 BITMASK "bitmask" ("of any width"): 0, BIG, 1, Hex(&[], 1);
    4 INTEGER "integer" ("of any width"): 0, BIG, 5, NUMBER;
    5 STRING "string": 0, HOST, 1, Bytes(ifname);
    7 IPV4_ADDR "ipv4_addr": 4, BIG, 2, Bytes(address);
    8 IPV6_ADDR "ipv6_addr": 16, BIG, 1, Bytes(address);
    9 ETHER_ADDR "ether_addr": 6, BIG, 1, Bytes(ether);
    10 ETHER_TYPE "ether_type": 2, BIG, 1, Hex(numbers::ETHER_TYPES, 4);
    11 ARP_OP "arp_op": 2, BIG, 5, Named(numbers::ARP_OPS);
    12 INET_PROTO "inet_proto": 1, NO_ORDER, 5, Named(PROTOCOLS);
    13 INET_SERVICE "inet_service" ("a port"): 2, BIG, 5, NUMBER;
    14 ICMP_TYPE "icmp_type": 1, BIG, 1, Named(numbers::ICMP_TYPES);
    15 TCP_FLAG "tcp_flag": 1, BIG, 5, Bits(numbers::TCP_FLAGS);
    16 DCCP_PKTTYPE "dccp_pkttype": 1, BIG, 5, Named(numbers::DCCP_TYPES);
    17 MH_TYPE "mh_type" ("mobility header"): 1, BIG, 1, Named(numbers::MH_TYPES);
    18 TIME "time" ("a duration in milliseconds"): 4, HOST, 1, Text(|ms| duration(Duration::from_millis(ms)));
    19 MARK "mark": 4, HOST, 5, Hex(&[], 8);
    // The loopback interface has index 1 in every network namespace. Other indexes are meaningful only in the namespace that
    // they were read from.
    20 IFINDEX "iface_index": 4, HOST, 5, Named(&[(1, "\"lo\"")]);
    21 ARPHRD "iface_type": 2, HOST, 1, Named(numbers::ARPHRD);
    22 REALM "realm": 4, HOST, 1, Named(&[(0, "\"cosmos\"")]);
    23 CLASSID "classid" ("a class of traffic control"): 4, HOST, 5, Text(tc_handle);
    24 UID "uid": 4, HOST, 5, NUMBER;
    25 GID "gid": 4, HOST, 5, NUMBER;
    26 CT_STATE "ct_state": 4, HOST, 2, Bits(numbers::CT_STATE);
    27 CT_DIR "ct_dir": 1, NO_ORDER, 5, Named(&[(0, "original"), (1, "reply")]);
    28 CT_STATUS "ct_status": 4, HOST, 2, Bits(numbers::CT_STATUS);
    29 ICMPV6_TYPE "icmpv6_type": 1, BIG, 1, Named(numbers::ICMPV6_TYPES);
    30 CT_LABEL "ct_label" ("a bit map"): 16, HOST, 1, Bytes(labels);
    31 PKT_TYPE "pkt_type": 1, HOST, 2, Named(numbers::PKT_TYPES);
    32 ICMP_CODE "icmp_code": 1, BIG, 1, Named(numbers::ICMP_CODES);
    33 ICMPV6_CODE "icmpv6_code": 1, BIG, 1, Named(numbers::ICMPV6_CODES);
    34 ICMPX_CODE "icmpx_code": 1, BIG, 1, Named(numbers::ICMPX_CODES);
    35 DEVGROUP "devgroup": 4, HOST, 1, Named(&[(0, "\"default\"")]);
    36 DSCP "dscp": 1, BIG, 1, Hex(numbers::DSCP, 2);
    37 ECN "ecn": 1, BIG, 1, Hex(numbers::ECN, 2);
    38 FIB_ADDR "fib_addrtype": 4, HOST, 1, Named(numbers::FIB_TYPES);
    39 BOOLEAN "boolean": 1, NO_ORDER, 1, Named(&[(0, "missing"), (1, "exists")]);
    40 CT_EVENT "ct_event": 4, HOST, 1, Bits(numbers::CT_EVENTS);
    41 IFNAME "ifname": 16, HOST, 1, Bytes(ifname);
    42 IGMP_TYPE "igmp_type": 1, BIG, 1, Named(numbers::IGMP_TYPES);
    43 TIME_DATE "time" ("nanoseconds since 1970"): 8, HOST, 1, Text(date);
    44 TIME_HOUR "hour" ("seconds since midnight"): 4, HOST, 1, Text(hour);
    45 TIME_DAY "day" ("of the week"): 1, BIG, 1, Named(numbers::DAYS);
    46 CGROUPV2 "cgroupsv2": 8, HOST, 1, NUMBER;
}

impl DataType {
    /// Whether it is a concatenation of types, six bits each.
    #[must_use]
    pub const fn is_concatenation(self) -> bool {
        self.0 > 63
    }

    /// The row; `None` for concatenations, and for types that this version does not know.
    pub(crate) fn row(self) -> Option<&'static Properties> {
        let at = self.0.checked_sub(if self.0 > 6 { 2 } else { 1 })?;
        let row = TYPES.get(usize::try_from(at).ok()?);
        row.filter(|row| row.number == self.0)
    }

    pub(crate) fn shown(self) -> Shown {
        self.row().map_or(NUMBER, |row| row.shown)
    }

    /// nft's `enum byteorder`, 0 if it has none.
    pub(crate) fn byte_order(self) -> u32 {
        self.row().map_or(BIG, |row| row.order)
    }

    /// Whether numbers of the type are kept in host order, unless the set is an interval set. Names are no numbers.
    pub(crate) fn is_host_order(self) -> bool {
        self.byte_order() == HOST && ![Self::IFNAME, Self::STRING].contains(&self)
    }

    /// Whether its values are flags: `nft` matches any of them.
    pub(crate) fn is_bits(self) -> bool {
        self == Self::CT_LABEL || matches!(self.shown(), Bits(_))
    }

    /// Whether `nft` prints prefixes for the type.
    pub(crate) fn has_prefixes(self) -> bool {
        matches!(
            self,
            Self::IPV4_ADDR | Self::IPV6_ADDR | Self::MARK | Self::REALM | Self::DEVGROUP
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_is_found_by_its_number() {
        for row in TYPES {
            let found = DataType(row.number).row().map(|found| found.name);
            assert_eq!(found, Some(row.name), "{}", row.number);
        }
        for none in [0, 6, 47, 63, 64, u32::MAX] {
            assert!(DataType(none).row().is_none(), "{none}");
        }
    }
}
