//! Prints values as `ipset save` does.

use super::model::{Entry, Header, Key, KeyPart, ProtoPort, Set, SetFamily};
use super::options::options;
use super::proto;
use super::raw::{
    IPPROTO_ICMP, IPPROTO_ICMPV6, IPPROTO_SCTP, IPPROTO_TCP, IPPROTO_UDP, IPPROTO_UDPLITE,
};
use crate::address::{Address, Net};
use crate::protocols;
use std::fmt::{self, Display, Formatter};

impl Display for ProtoPort {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match protocols::name(self.protocol) {
            Some(name) => write!(f, "{name}:")?,
            None => write!(f, "{}:", self.protocol)?,
        }
        match self.protocol {
            IPPROTO_TCP | IPPROTO_UDP | IPPROTO_SCTP | IPPROTO_UDPLITE => {
                write!(f, "{}", self.port)
            }
            IPPROTO_ICMP | IPPROTO_ICMPV6 => match proto::type_name(self.protocol, self.port) {
                Some(name) => f.write_str(name),
                None => {
                    let [kind, code] = self.port.to_be_bytes();
                    write!(f, "{kind}/{code}")
                }
            },
            _ => f.write_str("0"),
        }
    }
}

fn hardware([a, b, c, d, e, g]: [u8; 6], f: &mut Formatter<'_>) -> fmt::Result {
    write!(f, "{a:02X}:{b:02X}:{c:02X}:{d:02X}:{e:02X}:{g:02X}")
}

impl Display for KeyPart {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ip(ip) => Address(*ip).fmt(f),
            Self::Net(net) => Net(*net).fmt(f),
            Self::Port(port) => port.fmt(f),
            Self::Mark(mark) => write!(f, "0x{mark:08x}"),
            Self::Mac(mac) => mac.map_or(Ok(()), |mac| hardware(mac, f)),
            Self::Interface { name, is_port, .. } => {
                write!(f, "{}{name}", if *is_port { "physdev:" } else { "" })
            }
        }
    }
}

impl Display for Key {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Parts(parts) => {
                for (n, part) in parts.iter().enumerate() {
                    if n > 0 && *part != KeyPart::Mac(None) {
                        f.write_str(",")?;
                    }
                    part.fmt(f)?;
                }
                Ok(())
            }
            Self::Port(port) => write!(f, "{port}"),
            Self::Set(name) => f.write_str(name),
            Self::Opaque(attrs) => write!(f, "opaque({attrs:?})"),
        }
    }
}

impl Display for Entry {
    /// The text after `add NAME`.
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        self.key.fmt(f)?;
        if let Some(t) = self.timeout {
            write!(f, " timeout {t}")?;
        }
        if self.nomatch {
            f.write_str(" nomatch")?;
        }
        if self.key.is_wildcard() {
            f.write_str(" wildcard")?;
        }
        if let Some(c) = self.counters {
            write!(f, " packets {} bytes {}", c.packets, c.bytes)?;
        }
        if let Some(c) = self.comment.as_ref().filter(|c| !c.is_empty()) {
            write!(f, " comment \"{c}\"")?;
        }
        match self.skbinfo.mark {
            Some((mark, u32::MAX)) => write!(f, " skbmark 0x{mark:x}")?,
            Some((mark, mask)) => write!(f, " skbmark 0x{mark:x}/0x{mask:x}")?,
            None => {}
        }
        if let Some(p) = self.skbinfo.prio {
            write!(f, " skbprio {:x}:{:x}", p >> 16, p & 0xffff)?;
        }
        if let Some(q) = self.skbinfo.queue {
            write!(f, " skbqueue {q}")?;
        }
        Ok(())
    }
}

impl Display for Header {
    /// `create NAME TYPE OPTIONS`
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "create {} {}", self.name, self.kind)?;
        if self.family != SetFamily::Unspec && !self.kind.is_bitmap() {
            write!(f, " family {}", self.family)?;
        }
        for option in options(&self.kind).filter(|o| (o.is_given)(self)) {
            write!(f, " {}", option.name)?;
            if !option.is_flag {
                f.write_str(" ")?;
                (option.print)(self, f)?;
            }
        }
        for (number, bytes) in &self.unknown {
            write!(f, " opaque({number}: {bytes:02x?})")?;
        }
        Ok(())
    }
}

impl Display for Set {
    /// The output of `ipset save NAME`, every line terminated.
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.header)?;
        self.entries
            .iter()
            .try_for_each(|e| writeln!(f, "add {} {e}", self.header.name))
    }
}
