//! Interfaces, protocols and addresses in the notation of `iptables-save`.

use super::raw::IFNAMSIZ;
use crate::address::Address;
use crate::protocols;
use ipnet::IpNet;
use std::fmt;
use std::net::IpAddr;
use weir_netlink::attr::{bytes_of, text_of};

/// The name in `-i` and `-o`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Interface {
    /// One interface: 1 to 15 bytes.
    Name(String),
    /// Every interface whose name has this prefix, `eth+`. An empty prefix matches every interface and is not printed;
    /// its inversion, `! -i +`, matches no packet.
    Prefix(String),
}

impl From<&str> for Interface {
    /// Text with a trailing `+` is a prefix, as in `iptables`.
    fn from(text: &str) -> Self {
        match text.strip_suffix('+') {
            Some(prefix) => Self::Prefix(prefix.to_owned()),
            None => Self::Name(text.to_owned()),
        }
    }
}

impl fmt::Display for Interface {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => f.write_str(name),
            Self::Prefix(prefix) => write!(f, "{prefix}+"),
        }
    }
}

/// The field of an interface name or prefix, or of the mask of its significant bits.
pub(super) type Field = [u8; IFNAMSIZ];

/// The two fields of an interface in the kernel's structures, as `xtables_parse_interface` fills them: the `+`
/// remains in the name and the mask ends before it.
pub(super) fn interface_wire(interface: Option<&Interface>) -> Result<(Field, Field), String> {
    let Some(interface) = interface else {
        return Ok(Default::default());
    };
    let text = interface.to_string();
    let bytes = bytes_of(&text);
    let counted = match interface {
        Interface::Name(name) if name.is_empty() => {
            return Err("an interface has a name of 1 to 15 bytes; give one".into());
        }
        // The terminating NUL is significant: `eth1` is not a prefix of `eth10`.
        Interface::Name(_) => bytes.len() + 1,
        // The `+` is not.
        Interface::Prefix(_) => bytes.len() - 1,
    };
    if bytes.len() >= IFNAMSIZ || text.contains('\0') {
        return Err(format!(
            "the interface name `{text}` is longer than 15 bytes; shorten it"
        ));
    }
    let (mut name, mut mask) = (Field::default(), Field::default());
    name.iter_mut()
        .zip(bytes.iter())
        .for_each(|(to, from)| *to = *from);
    mask.iter_mut().take(counted).for_each(|to| *to = 0xff);
    Ok((name, mask))
}

/// The reverse: `Some(None)` if every interface matches, `None` if no name or prefix is encoded as these bytes.
#[allow(clippy::option_option)]
pub(super) fn interface_of(name: &[u8], mask: &[u8]) -> Option<Option<Interface>> {
    let counted = mask.iter().take_while(|m| **m == 0xff).count();
    if mask.iter().skip(counted).any(|m| *m != 0) {
        return None;
    }
    if counted == 0 {
        return Some(None);
    }
    let text = name.get(..counted)?;
    match text.iter().position(|b| *b == 0) {
        Some(end) => {
            let name = text_of(text.get(..end)?);
            (!name.is_empty()).then_some(Some(Interface::Name(name)))
        }
        None => Some(Some(Interface::Prefix(text_of(text)))),
    }
}

/// The protocol number of `-p` (`IPPROTO_*`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Protocol(pub u8);

impl Protocol {
    /// `tcp`
    pub const TCP: Self = Self(6);
    /// `udp`
    pub const UDP: Self = Self(17);
    /// `icmp`
    pub const ICMP: Self = Self(1);
    /// `ipv6-icmp`
    pub const ICMPV6: Self = Self(58);

    /// Parses the name or the number of a protocol; `all` is 0.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let text = text.to_ascii_lowercase();
        let number = match text.as_str() {
            "all" | "ip" | "hopopt" => Some(0),
            "icmp6" => Some(58),
            "mh" | "ipv6-mh" => Some(135),
            text => protocols::number(text),
        };
        number.map(Self)
    }
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match protocols::name(self.0) {
            Some(name) => f.write_str(name),
            None => write!(f, "{}", self.0),
        }
    }
}

/// An address and a mask of the bits that are compared, which need not be a prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Network {
    /// The address; bits outside of the mask are 0.
    pub address: IpAddr,
    /// The mask, of the same family.
    pub mask: IpAddr,
}

impl Network {
    /// Clears the bits of the address that are not compared; `None` if the families differ.
    #[must_use]
    pub fn new(address: IpAddr, mask: IpAddr) -> Option<Self> {
        let address = match (address, mask) {
            (IpAddr::V4(a), IpAddr::V4(m)) => (a & m).into(),
            (IpAddr::V6(a), IpAddr::V6(m)) => (a & m).into(),
            _ => return None,
        };
        Some(Self { address, mask })
    }

    /// Whether the network contains every address.
    #[must_use]
    pub fn is_any(&self) -> bool {
        self.mask.is_unspecified()
    }
}

impl From<IpNet> for Network {
    fn from(net: IpNet) -> Self {
        Self {
            address: net.trunc().addr(),
            mask: net.netmask(),
        }
    }
}

/// `ADDRESS/LENGTH`, or `ADDRESS/MASK` if the mask is not a prefix.
impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let address = Address(self.address);
        address.fmt(f)?;
        f.write_str("/")?;
        match ipnet::ip_mask_to_prefix(self.mask) {
            Ok(length) => length.fmt(f),
            Err(_) => Address(self.mask).fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_has_no_host_bits() {
        assert_eq!(
            Network::from("127.0.0.1/8".parse::<IpNet>().unwrap()).to_string(),
            "127.0.0.0/8"
        );
        assert_eq!(
            Network::from("fd12::1/16".parse::<IpNet>().unwrap()).to_string(),
            "fd12::/16"
        );
    }

    #[test]
    fn a_plus_makes_a_prefix() {
        assert_eq!(Interface::from("eth+"), Interface::Prefix("eth".into()));
        assert_eq!(Interface::from("eth*"), Interface::Name("eth*".into()));
        assert_eq!(Interface::from("eth+").to_string(), "eth+");
    }

    #[test]
    fn protocols_without_a_name_are_numbers() {
        assert_eq!(Protocol(58).to_string(), "ipv6-icmp");
        assert_eq!(Protocol(255).to_string(), "255");
    }
}
