//! Sets: a header with the options, and the entries.

use super::{Entry, SetFamily, SetType};
use std::net::{IpAddr, Ipv4Addr};
use weir_netlink::attr::Unknown;

/// The arguments of `ipset create`. `None` stands for the kernel's default; headers that the kernel lists have all options.
#[derive(Clone, Debug, PartialEq, Eq)]
#[doc(alias = "IPSET_CMD_HEADER")]
pub struct Header {
    /// The name of the set: 1 to 31 bytes, without `"`, line breaks and NUL.
    pub name: String,
    /// The type of the entries.
    pub kind: SetType,
    /// The family of the addresses.
    pub family: SetFamily,
    /// `hashsize`: initial number of buckets, by default 1024. The kernel rounds it up to a power of two, and enlarges the hash when
    /// it fills up.
    pub hash_size: Option<u32>,
    /// `maxelem`: maximum number of entries of a hash, by default 65536.
    pub max_elem: Option<u32>,
    /// `netmask`: prefix length to which addresses are masked. In `hash:ip` and `bitmap:ip`, since Linux 6.2 also in `hash:ip,port` and
    /// `hash:net,net`.
    pub netmask: Option<u8>,
    /// `bitmask`: mask that is applied to addresses; excludes `netmask`. Since Linux 6.2.
    pub bitmask: Option<IpAddr>,
    /// `markmask` of `hash:ip,mark`: bits of the marks that are kept.
    pub mark_mask: Option<u32>,
    /// `range` of `bitmap:ip` and `bitmap:ip,mac`: first and last address, inclusive.
    pub addresses: Option<(Ipv4Addr, Ipv4Addr)>,
    /// `range` of `bitmap:port`: first and last port, inclusive.
    pub range: Option<(u16, u16)>,
    /// `size` of `list:set`: maximum number of members, at least 4, by default 8.
    pub size: Option<u32>,
    /// `timeout`: default lifetime of an entry in seconds, at most 2147483; 0 for unlimited. With `None`, entries cannot have timeouts.
    pub timeout: Option<u32>,
    /// `counters`: entries count packets and bytes. Since Linux 3.10.
    pub counters: bool,
    /// `comment`: entries may have a comment. Since Linux 3.13.
    pub comment: bool,
    /// `forceadd`: a full hash evicts an entry to add a new one. Since Linux 3.15.
    pub forceadd: bool,
    /// `skbinfo`: entries may have a mark, a priority and a queue. Since Linux 3.18.
    pub skbinfo: bool,
    /// `bucketsize`: entries per bucket, 2 to 12, by default 12; the kernel rounds it up to an even number. Since Linux 5.11.
    pub bucket_size: Option<u8>,
    /// `initval`: seed of the hash, by default random. Since Linux 5.11.
    pub init_val: Option<u32>,
    /// Attributes of unknown options, which are compared but never sent to the kernel.
    pub unknown: Vec<Unknown>,
}

impl Header {
    /// A header with default options. The family is always [`SetFamily::Unspec`] for types without addresses, and
    /// [`SetFamily::Inet`] for bitmaps of addresses.
    #[must_use]
    pub fn new(name: impl Into<String>, kind: SetType, family: SetFamily) -> Self {
        let family = match (&kind, kind.families()) {
            (SetType::Other(_), _) => family,
            (_, [only]) => *only,
            _ => family,
        };
        Self {
            name: name.into(),
            kind,
            family,
            hash_size: None,
            max_elem: None,
            netmask: None,
            bitmask: None,
            mark_mask: None,
            addresses: None,
            range: None,
            size: None,
            timeout: None,
            counters: false,
            comment: false,
            forceadd: false,
            skbinfo: false,
            bucket_size: None,
            init_val: None,
            unknown: Vec::new(),
        }
    }
}

/// A set with its entries.
#[derive(Clone, Debug, PartialEq, Eq)]
#[doc(alias = "IPSET_CMD_CREATE")]
pub struct Set {
    /// Type and options.
    pub header: Header,
    /// In the kernel's order, which is significant for lists only.
    pub entries: Vec<Entry>,
}

impl Set {
    /// A set without entries.
    #[must_use]
    pub fn new(header: Header) -> Self {
        Self {
            header,
            entries: Vec::new(),
        }
    }
}
