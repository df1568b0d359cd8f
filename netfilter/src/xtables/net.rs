//! Interfaces, protocols and addresses in the notation of `iptables-save`.

use ipnet::IpNet;
use std::fmt;
use std::net::IpAddr;

/// The name in `-i` and `-o`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Interface {
    /// One interface: 1 to 15 bytes.
    Name(String),
    /// Every interface whose name begins so, `eth+`. Empty: every interface, which is no condition and
    /// is not printed.
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

/// The number in `-p` (`IPPROTO_*`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Protocol(pub u8);

impl Protocol {
    /// `tcp`
    pub const TCP: Self = Self(6);
    /// `udp`
    pub const UDP: Self = Self(17);
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
