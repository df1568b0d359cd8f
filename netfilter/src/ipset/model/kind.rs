//! Types of sets, and the families of their addresses.

use crate::ipset::raw::{NFPROTO_IPV4, NFPROTO_IPV6, NFPROTO_UNSPEC};
use std::fmt;

/// The family of a set's addresses (`family`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[doc(alias = "IPSET_ATTR_FAMILY")]
pub enum SetFamily {
    /// No addresses: sets of ports, hardware addresses and lists (`NFPROTO_UNSPEC`).
    Unspec,
    /// IPv4 (`NFPROTO_IPV4`)
    #[default]
    Inet,
    /// IPv6 (`NFPROTO_IPV6`)
    Inet6,
    /// An unknown number.
    Other(u8),
}

impl SetFamily {
    /// `NFPROTO_*`
    #[must_use]
    pub fn number(self) -> u8 {
        match self {
            Self::Unspec => NFPROTO_UNSPEC,
            Self::Inet => NFPROTO_IPV4,
            Self::Inet6 => NFPROTO_IPV6,
            Self::Other(n) => n,
        }
    }
}

impl From<u8> for SetFamily {
    fn from(n: u8) -> Self {
        match n {
            NFPROTO_UNSPEC => Self::Unspec,
            NFPROTO_IPV4 => Self::Inet,
            NFPROTO_IPV6 => Self::Inet6,
            n => Self::Other(n),
        }
    }
}

impl fmt::Display for SetFamily {
    /// The argument of `family`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unspec => f.write_str("unspec"),
            Self::Inet => f.write_str("inet"),
            Self::Inet6 => f.write_str("inet6"),
            Self::Other(n) => write!(f, "{n}"),
        }
    }
}

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
    /// `hash:mac`: hardware addresses
    HashMac,
    /// `bitmap:port`: ports in one range
    BitmapPort,
    /// `list:set`: other sets
    ListSet,
    /// An unknown type; its sets are listed and never written.
    Other(String),
}

impl SetType {
    /// All known types.
    pub const ALL: [Self; 8] = [
        Self::HashIp,
        Self::HashNet,
        Self::HashIpPort,
        Self::HashNetPort,
        Self::HashIpPortIp,
        Self::HashMac,
        Self::BitmapPort,
        Self::ListSet,
    ];

    /// The kernel's name for it.
    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            Self::HashIp => "hash:ip",
            Self::HashNet => "hash:net",
            Self::HashIpPort => "hash:ip,port",
            Self::HashNetPort => "hash:net,port",
            Self::HashIpPortIp => "hash:ip,port,ip",
            Self::HashMac => "hash:mac",
            Self::BitmapPort => "bitmap:port",
            Self::ListSet => "list:set",
            Self::Other(name) => name,
        }
    }

    /// Whether its entries have addresses, so that its sets have a family.
    #[must_use]
    pub fn has_family(&self) -> bool {
        !matches!(
            self,
            Self::HashMac | Self::BitmapPort | Self::ListSet | Self::Other(_)
        )
    }

    /// Whether it is a hash, with the options that hashes share.
    #[must_use]
    pub fn is_hash(&self) -> bool {
        match self {
            Self::BitmapPort | Self::ListSet => false,
            Self::Other(name) => name.starts_with("hash:"),
            _ => true,
        }
    }

    /// The module and the configuration option that provide it.
    #[must_use]
    pub fn module(&self) -> String {
        let file = match self {
            Self::HashIpPort => "hash_ipport".to_owned(),
            Self::HashNetPort => "hash_netport".to_owned(),
            Self::HashIpPortIp => "hash_ipportip".to_owned(),
            other => other.name().replace([':', ','], "_"),
        };
        let option = file.to_uppercase();
        format!("module ip_set_{file}, CONFIG_IP_SET_{option}")
    }
}

impl From<&str> for SetType {
    fn from(name: &str) -> Self {
        Self::ALL
            .into_iter()
            .find(|t| t.name() == name)
            .unwrap_or_else(|| Self::Other(name.to_owned()))
    }
}

impl fmt::Display for SetType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
