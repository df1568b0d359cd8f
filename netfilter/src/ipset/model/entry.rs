//! Entries of sets: a key, and its properties.

use crate::ipset::raw::{
    IPPROTO_ICMP, IPPROTO_ICMPV6, IPPROTO_SCTP, IPPROTO_TCP, IPPROTO_UDP, IPPROTO_UDPLITE,
};
use crate::ipset::wire::EntryAttrs;
use ipnet::IpNet;
use std::net::IpAddr;

/// A port with its protocol (`tcp:80`, `icmp:echo-request`, `gre:0`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ProtoPort {
    /// `IPPROTO_*`; the kernel refuses 0.
    pub protocol: u8,
    /// The port of TCP, UDP, UDP-Lite and SCTP; for ICMP and ICMPv6 the type in the upper and the code in the lower byte;
    /// 0 for other protocols.
    pub port: u16,
}

impl ProtoPort {
    /// The value as the kernel stores it: only these protocols have a port, or a type and code.
    pub(in crate::ipset) fn kept(self) -> Self {
        match self.protocol {
            IPPROTO_TCP | IPPROTO_UDP | IPPROTO_SCTP | IPPROTO_UDPLITE | IPPROTO_ICMP
            | IPPROTO_ICMPV6 => self,
            protocol => Self { protocol, port: 0 },
        }
    }
}

/// A part of a key.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum KeyPart {
    /// An address.
    Ip(IpAddr),
    /// A network. The kernel clears the host bits; in `hash:net` it accepts prefix lengths from 1.
    Net(IpNet),
    /// A port with its protocol.
    Port(ProtoPort),
    /// A packet mark.
    Mark(u32),
    /// A hardware address, not all zero. `None`, only in `bitmap:ip,mac`, is any address.
    Mac(Option<[u8; 6]>),
    /// The interface of a packet: the incoming one for `src`, the outgoing one for `dst`.
    Interface {
        /// Its name.
        name: String,
        /// `physdev:`, the port of a bridge.
        is_port: bool,
        /// `wildcard`: every interface whose name begins with `name`. Since Linux 5.5.
        is_prefix: bool,
    },
}

/// The key of an entry.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Key {
    /// The port of an entry of `bitmap:port`.
    Port(u16),
    /// The name of the set in an entry of `list:set`. The kernel refuses lists in lists.
    Set(String),
    /// The parts of the key of any other type, one for each word of the type's name, such as address and port of
    /// `hash:ip,port`.
    Parts(Vec<KeyPart>),
    /// The attributes of an entry of an unknown type, as the kernel lists them.
    Opaque(Box<EntryAttrs>),
}

/// `packets`, `bytes`
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[doc(alias = "IPSET_ATTR_BYTES")]
pub struct Counters {
    /// Packets that matched.
    pub packets: u64,
    /// The bytes of these packets.
    pub bytes: u64,
}

/// Metadata that a rule with `--map-set` copies to the packet. The kernel does not list zeros, so 0 is equal to `None`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[doc(alias = "IPSET_ATTR_SKBMARK")]
pub struct SkbInfo {
    /// `skbmark`: value and mask. In text, a value without a mask has a mask of all bits.
    pub mark: Option<(u32, u32)>,
    /// `skbprio`: major number in the upper, minor in the lower half.
    pub prio: Option<u32>,
    /// `skbqueue`
    pub queue: Option<u16>,
}

/// One entry of a set.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[doc(alias = "IPSET_CMD_ADD")]
pub struct Entry {
    /// Its key.
    pub key: Key,
    /// `timeout`: remaining lifetime in seconds, at most 2147483; 0 for unlimited, `None` for the set's default.
    pub timeout: Option<u32>,
    /// `nomatch`: an exception to a larger network. In `hash:net` since Linux 3.1, in `hash:net,port` since 3.3.
    pub nomatch: bool,
    /// `packets` and `bytes`, in sets with `counters`.
    pub counters: Option<Counters>,
    /// `comment`, in sets with `comment`: at most 255 bytes, without `"`, line breaks and NUL. An empty comment is equal to `None`.
    pub comment: Option<String>,
    /// `skbmark`, `skbprio` and `skbqueue`, in sets with `skbinfo`.
    pub skbinfo: SkbInfo,
}

impl Entry {
    /// An entry with a key only.
    #[must_use]
    pub fn new(key: Key) -> Self {
        Self {
            key,
            timeout: None,
            nomatch: false,
            counters: None,
            comment: None,
            skbinfo: SkbInfo::default(),
        }
    }

    /// Adds a comment.
    #[must_use]
    pub fn with_comment(mut self, comment: impl Into<String>) -> Self {
        self.comment = Some(comment.into());
        self
    }
}

impl Key {
    /// The address, if the key is one.
    #[must_use]
    pub fn address(&self) -> Option<IpAddr> {
        match self {
            Self::Parts(parts) => match parts.as_slice() {
                [KeyPart::Ip(ip)] => Some(*ip),
                _ => None,
            },
            _ => None,
        }
    }

    /// Makes the key match every interface whose name begins with that of the key.
    pub(in crate::ipset) fn wildcard(mut self) -> Self {
        if let Self::Parts(parts) = &mut self {
            for part in parts {
                if let KeyPart::Interface { is_prefix, .. } = part {
                    *is_prefix = true;
                }
            }
        }
        self
    }

    /// Whether the key matches every interface whose name begins with that of the key.
    pub(in crate::ipset) fn is_wildcard(&self) -> bool {
        let is_prefix = |part: &KeyPart| {
            matches!(
                part,
                KeyPart::Interface {
                    is_prefix: true,
                    ..
                }
            )
        };
        matches!(self, Self::Parts(parts) if parts.iter().any(is_prefix))
    }
}

impl From<IpAddr> for Key {
    fn from(ip: IpAddr) -> Self {
        Self::Parts(vec![KeyPart::Ip(ip)])
    }
}

impl From<IpNet> for Key {
    fn from(net: IpNet) -> Self {
        Self::Parts(vec![KeyPart::Net(net)])
    }
}
