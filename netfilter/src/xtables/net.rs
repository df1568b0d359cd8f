//! Interfaces, protocols and addresses in the notation of `iptables-save`.

use super::raw::IFNAMSIZ;
use ipnet::IpNet;
use std::fmt;
use std::net::IpAddr;

/// The name in `-i` and `-o`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Interface {
    /// One interface: 1 to 15 bytes.
    Name(String),
    /// Every interface whose name has this prefix, `eth+`. Empty: every interface, which is no condition and is not
    /// printed.
    Prefix(String),
}

impl From<&str> for Interface {
    /// A trailing `+` makes it a prefix, as in `iptables`.
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

/// A name or prefix, or the mask of its significant bits.
type Field = [u8; IFNAMSIZ];

/// The two fields of an interface in the kernel's structures, as `xtables_parse_interface` fills them: the `+`
/// remains in the name and the mask ends before it.
pub(super) fn interface_wire(interface: Option<&Interface>) -> Result<(Field, Field), String> {
    let (text, counted) = match interface {
        None => return Ok(Default::default()),
        Some(Interface::Name(name)) if name.is_empty() => {
            return Err("an interface has a name of 1 to 15 bytes; give one".into());
        }
        // The terminating NUL is significant: `eth1` is not a prefix of `eth10`.
        Some(Interface::Name(name)) => (name.clone(), name.len() + 1),
        Some(Interface::Prefix(prefix)) => (format!("{prefix}+"), prefix.len()),
    };
    if text.len() >= IFNAMSIZ || text.contains('\0') {
        return Err(format!(
            "the interface name `{text}` is longer than 15 bytes; shorten it"
        ));
    }
    let (mut name, mut mask) = (Field::default(), Field::default());
    name.iter_mut()
        .zip(text.bytes())
        .for_each(|(to, from)| *to = from);
    mask.iter_mut().take(counted).for_each(|to| *to = 0xff);
    Ok((name, mask))
}

/// The reverse: `Some(None)` when every interface matches, `None` when no name or prefix gives these bytes.
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
            let name = String::from_utf8(text.get(..end)?.to_vec()).ok()?;
            (!name.is_empty()).then_some(Some(Interface::Name(name)))
        }
        None => Some(Some(Interface::Prefix(
            String::from_utf8(text.to_vec()).ok()?,
        ))),
    }
}

/// The number in `-p` (`IPPROTO_*`).
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

    /// The number or the name of a protocol; `all` is 0.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let text = text.to_ascii_lowercase();
        let other = match text.as_str() {
            "all" => Some(0),
            "icmpv6" | "icmp6" => Some(58),
            "igmp" => Some(2),
            "gre" => Some(47),
            "mh" | "mobility-header" | "ipv6-mh" => Some(135),
            "dccp" => Some(33),
            _ => None,
        };
        let named = NAMES
            .iter()
            .find(|(_, name)| *name == text)
            .map(|(number, _)| *number);
        named.or(other).or_else(|| text.parse().ok()).map(Self)
    }
}

/// The names that `iptables-save` prints with or without an `/etc/protocols`
/// (`xtables_chain_protos` in iptables' `libxtables/xtables.c`).
const NAMES: &[(u8, &str)] = &[
    (1, "icmp"),
    (6, "tcp"),
    (17, "udp"),
    (50, "esp"),
    (51, "ah"),
    (58, "ipv6-icmp"),
    (132, "sctp"),
    (136, "udplite"),
];

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match NAMES.iter().find(|(number, _)| *number == self.0) {
            Some((_, name)) => f.write_str(name),
            None => write!(f, "{}", self.0),
        }
    }
}

/// An address as `inet_ntop(3)` prints it. `std` differs from it for `::a.b.c.d`: six words of
/// zeros, then an IPv4 address.
pub(super) struct Address(pub(super) IpAddr);

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let IpAddr::V6(v6) = self.0
            && let [0, 0, 0, 0, 0, 0, high, _] = v6.segments()
            && high != 0
        {
            let low = u32::try_from(u128::from(v6)).map_err(|_| fmt::Error)?;
            return write!(f, "::{}", std::net::Ipv4Addr::from(low));
        }
        self.0.fmt(f)
    }
}

/// A network as the kernel keeps it: host bits cleared.
pub(super) struct Network(pub(super) IpNet);

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let net = self.0.trunc();
        write!(f, "{}/{}", Address(net.addr()), net.prefix_len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_print_as_inet_ntop_prints_them() {
        // inet_ntop(3) of glibc 2.36.
        for text in [
            "::1",
            "::6",
            "::",
            "::127.0.0.53",
            "::0.1.0.0",
            "::ffff:10.0.0.1",
            "fd00::a",
        ] {
            let addr: IpAddr = text.parse().unwrap();
            assert_eq!(Address(addr).to_string(), text);
        }
    }

    #[test]
    fn a_network_has_no_host_bits() {
        assert_eq!(
            Network("127.0.0.1/8".parse().unwrap()).to_string(),
            "127.0.0.0/8"
        );
        assert_eq!(
            Network("fd12::1/16".parse().unwrap()).to_string(),
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
