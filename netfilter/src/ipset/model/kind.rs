//! Set types, and the families of their addresses.

use crate::ipset::raw;
use std::fmt;

open_enum! {
    /// The family of a set's addresses; prints as the argument of `family`.
    #[derive(Default)]
    #[doc(alias = "IPSET_ATTR_FAMILY")]
    SetFamily: u8 {
        /// No addresses: sets of ports, hardware addresses and lists
        Unspec = NFPROTO_UNSPEC "unspec",
        /// IPv4
        #[default]
        Inet = NFPROTO_IPV4 "inet",
        /// IPv6
        Inet6 = NFPROTO_IPV6 "inet6",
    }
}

/// A part of an entry's key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::ipset) enum Dimension {
    Ip,
    Net,
    /// A port with its protocol.
    Port,
    Mark,
    Mac,
    /// An optional hardware address.
    MacOrNone,
    Interface,
    /// A port without a protocol.
    Number,
    Set,
}

/// How a type stores its entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::ipset) enum Method {
    Hash,
    /// One bit for each key of a range.
    Bitmap,
    List,
}

/// The revision from which a type has an option (`REVISION` comments of `net/netfilter/ipset/ip_set_*.c`, Linux 6.18).
#[derive(Debug)]
pub(in crate::ipset) struct Since {
    pub(in crate::ipset) counters: u8,
    pub(in crate::ipset) comment: u8,
    pub(in crate::ipset) forceadd: u8,
    pub(in crate::ipset) skbinfo: u8,
    pub(in crate::ipset) buckets: u8,
    /// `bitmask`, and `netmask` of types other than `hash:ip` and `bitmap:ip`; `NEVER` for most types.
    pub(in crate::ipset) masks: u8,
    pub(in crate::ipset) newest: u8,
}

pub(in crate::ipset) const NEVER: u8 = u8::MAX;

/// A hash type whose revisions, from this one on, added one option each: counters, comment, forceadd, skbinfo, buckets.
const fn hash(counters: u8) -> Since {
    Since {
        counters,
        comment: counters + 1,
        forceadd: counters + 2,
        skbinfo: counters + 3,
        buckets: counters + 4,
        masks: NEVER,
        newest: counters + 4,
    }
}

/// A hash type that was merged after counters and comments, and has both from revision 0 on.
const fn young(forceadd: u8) -> Since {
    Since {
        counters: 0,
        comment: 0,
        forceadd,
        skbinfo: forceadd + 1,
        buckets: forceadd + 2,
        masks: NEVER,
        newest: forceadd + 2,
    }
}

/// Adds one more revision, with masks.
const fn masks(since: Since) -> Since {
    Since {
        masks: since.newest + 1,
        newest: since.newest + 1,
        ..since
    }
}

/// Hash types of hardware addresses. Revision 0 has all options but `bucketsize` and `initval`.
const MAC: Since = Since {
    counters: 0,
    comment: 0,
    forceadd: 0,
    skbinfo: 0,
    buckets: 1,
    masks: NEVER,
    newest: 1,
};

/// Bitmap and list types.
const FLAT: Since = Since {
    forceadd: NEVER,
    buckets: NEVER,
    newest: 3,
    skbinfo: 3,
    ..hash(1)
};

/// The properties of a type. To add a type, add a row.
struct Row {
    kind: SetType,
    method: Method,
    name: &'static str,
    dimensions: &'static [Dimension],
    since: Since,
}

const fn row(
    kind: SetType,
    method: Method,
    name: &'static str,
    dimensions: &'static [Dimension],
    since: Since,
) -> Row {
    Row {
        kind,
        method,
        name,
        dimensions,
        since,
    }
}

use Dimension::{Interface, Ip, Mac, MacOrNone, Mark, Net, Number, Port, Set};

use Method::{Bitmap, Hash, List};
use SetType::*;

static ROWS: [Row; 16] = [
    row(HashIp, Hash, "hash:ip", &[Ip], masks(hash(1))),
    row(HashNet, Hash, "hash:net", &[Net], hash(3)),
    row(
        HashIpPort,
        Hash,
        "hash:ip,port",
        &[Ip, Port],
        masks(hash(2)),
    ),
    row(HashNetPort, Hash, "hash:net,port", &[Net, Port], hash(4)),
    row(
        HashIpPortIp,
        Hash,
        "hash:ip,port,ip",
        &[Ip, Port, Ip],
        hash(2),
    ),
    row(
        HashIpPortNet,
        Hash,
        "hash:ip,port,net",
        &[Ip, Port, Net],
        hash(4),
    ),
    row(HashIpMark, Hash, "hash:ip,mark", &[Ip, Mark], young(1)),
    row(
        HashNetNet,
        Hash,
        "hash:net,net",
        &[Net, Net],
        masks(young(1)),
    ),
    row(
        HashNetPortNet,
        Hash,
        "hash:net,port,net",
        &[Net, Port, Net],
        young(1),
    ),
    row(
        HashNetIface,
        Hash,
        "hash:net,iface",
        &[Net, Interface],
        // Revision 7 added wildcards.
        Since {
            buckets: 8,
            newest: 8,
            ..hash(3)
        },
    ),
    row(HashIpMac, Hash, "hash:ip,mac", &[Ip, Mac], MAC),
    row(HashMac, Hash, "hash:mac", &[Mac], MAC),
    row(BitmapIp, Bitmap, "bitmap:ip", &[Ip], FLAT),
    row(BitmapIpMac, Bitmap, "bitmap:ip,mac", &[Ip, MacOrNone], FLAT),
    row(BitmapPort, Bitmap, "bitmap:port", &[Number], FLAT),
    row(ListSet, List, "list:set", &[Set], FLAT),
];

/// The type of a set's entries.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum SetType {
    /// `hash:ip`: addresses
    HashIp,
    /// `hash:net`: networks
    HashNet,
    /// `hash:ip,port`
    HashIpPort,
    /// `hash:net,port`
    HashNetPort,
    /// `hash:ip,port,ip`
    HashIpPortIp,
    /// `hash:ip,port,net`
    HashIpPortNet,
    /// `hash:ip,mark`
    HashIpMark,
    /// `hash:net,net`
    HashNetNet,
    /// `hash:net,port,net`
    HashNetPortNet,
    /// `hash:net,iface`
    HashNetIface,
    /// `hash:mac`: hardware addresses
    HashMac,
    /// `hash:ip,mac`
    HashIpMac,
    /// `bitmap:ip`: IPv4 addresses in one range
    BitmapIp,
    /// `bitmap:ip,mac`: the same, with their hardware addresses
    BitmapIpMac,
    /// `bitmap:port`: ports in one range
    BitmapPort,
    /// `list:set`: other sets
    ListSet,
    /// An unknown type, whose sets can only be listed.
    Other(String),
}

impl SetType {
    /// All known types.
    pub fn all() -> impl Iterator<Item = &'static Self> {
        ROWS.iter().map(|row| &row.kind)
    }

    fn row(&self) -> Option<&'static Row> {
        ROWS.iter().find(|row| row.kind == *self)
    }

    /// The kernel's name of the type.
    #[must_use]
    pub fn name(&self) -> &str {
        match (self, self.row()) {
            (Self::Other(name), _) => name,
            (_, row) => row.map_or("", |row| row.name),
        }
    }

    /// The parts of a key; empty for an unknown type.
    pub(in crate::ipset) fn dimensions(&self) -> &'static [Dimension] {
        self.row().map_or(&[], |row| row.dimensions)
    }

    pub(in crate::ipset) fn since(&self) -> Option<&'static Since> {
        self.row().map(|row| &row.since)
    }

    /// Whether a key has this part.
    pub(in crate::ipset) fn has(&self, dimension: Dimension) -> bool {
        self.dimensions().contains(&dimension)
    }

    pub(in crate::ipset) fn method(&self) -> Option<Method> {
        self.row().map(|row| row.method)
    }

    /// The families of the type's addresses; [`SetFamily::Unspec`] without addresses.
    pub(crate) fn families(&self) -> &'static [SetFamily] {
        match self.has(Ip) || self.has(Net) {
            true if self.is_hash() => &[SetFamily::Inet, SetFamily::Inet6],
            true => &[SetFamily::Inet],
            false => &[SetFamily::Unspec],
        }
    }

    /// Whether sets of the type are created with a family.
    pub(crate) fn has_family(&self) -> bool {
        self.families().len() > 1
    }

    /// Whether an entry may be an exception to a larger network.
    pub(crate) fn has_nomatch(&self) -> bool {
        self.has(Net)
    }

    /// Whether the type is a hash, with the options that hashes share.
    pub(crate) fn is_hash(&self) -> bool {
        self.method() == Some(Hash)
    }

    /// Whether the type is a bitmap, with one bit for each key of a range.
    pub(crate) fn is_bitmap(&self) -> bool {
        self.method() == Some(Bitmap)
    }

    /// The kernel module of the type: `ip_set_hash_ipport`.
    pub(crate) fn module_name(&self) -> String {
        format!("ip_set_{}", self.name().replace(':', "_").replace(',', ""))
    }

    /// The kernel module and the configuration option of the type, as text.
    #[must_use]
    pub fn module(&self) -> String {
        let name = self.module_name();
        format!("module {name}, CONFIG_{}", name.to_uppercase())
    }
}

impl From<&str> for SetType {
    fn from(name: &str) -> Self {
        let known = ROWS.iter().find(|row| row.name == name);
        known.map_or_else(|| Self::Other(name.to_owned()), |row| row.kind.clone())
    }
}

impl fmt::Display for SetType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
