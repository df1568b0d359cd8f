//! `-m tcp`: `struct xt_tcp` (`linux/netfilter/xt_tcpudp.h`), 12 bytes.

use super::super::prelude::*;
use crate::xtables::rule::condition;

/// Ports, flags and options of the TCP header. The rule must have `-p tcp`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
#[doc(alias = "xt_tcp")]
pub struct Tcp {
    /// `--sport`
    pub sport: Option<(Not, PortRange)>,
    /// `--dport`
    pub dport: Option<(Not, PortRange)>,
    /// `--tcp-option`: the packet has the TCP option with this number, 1 to 255.
    pub option: Option<(Not, u8)>,
    /// `--tcp-flags MASK COMP`: exactly the flags of COMP are set among those of MASK.
    pub flags: Option<(Not, TcpFlags)>,
}

/// The two arguments of `--tcp-flags`: bits of the flags byte, of which only the low six are allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TcpFlags {
    /// Flags that are compared.
    pub mask: u8,
    /// Flags that must be set.
    pub set: u8,
}

const FLAGS: Bits = Bits(&["FIN", "SYN", "RST", "PSH", "ACK", "URG"]);

#[rustfmt::skip]
pub(crate) const KIND: Kind<Tcp> = Kind {
    name: "tcp",
    forms: |_| forms!["tcp" 0],
    encode,
    decode,
    options: &[
        ("--sport", 1), ("--source-port", 1), ("--dport", 1), ("--destination-port", 1), ("--tcp-option", 1),
        ("--tcp-flags", 2), ("--syn", 0),
    ],
    parse,
};

/// Both bounds of a range; without a condition every port.
pub(super) fn bounds(ports: Option<&(Not, PortRange)>) -> [u16; 2] {
    ports.map_or([0, u16::MAX], |(_, p)| [*p.0.start(), *p.0.end()])
}

/// The condition for these bounds; `None` for every port.
pub(super) fn range(not: bool, [first, last]: [u16; 2]) -> Option<(Not, PortRange)> {
    (not || [first, last] != [0, u16::MAX]).then_some((Not(not), PortRange(first..=last)))
}

pub(super) fn inverted<T>(v: Option<&(Not, T)>, bit: u8) -> u8 {
    if v.is_some_and(|(not, _)| not.0) {
        bit
    } else {
        0
    }
}

fn encode(v: &Tcp, _: Form, _: &Context<'_>) -> Encoded {
    let flags = v.flags.map_or(TcpFlags { mask: 0, set: 0 }, |(_, f)| f);
    if (flags.mask | flags.set) & !0x3f != 0 {
        return Err("only FIN SYN RST PSH ACK and URG can be matched; drop the other flags".into());
    }
    let invflags = inverted(v.sport.as_ref(), XT_TCP_INV_SRCPT)
        | inverted(v.dport.as_ref(), XT_TCP_INV_DSTPT)
        | inverted(v.flags.as_ref(), XT_TCP_INV_FLAGS)
        | inverted(v.option.as_ref(), XT_TCP_INV_OPTION);
    Ok(Some(written(&XtTcp {
        spts: bounds(v.sport.as_ref()),
        dpts: bounds(v.dport.as_ref()),
        option: v.option.map_or(0, |(_, o)| o),
        flg_mask: flags.mask,
        flg_cmp: flags.set,
        invflags,
    })))
}

fn decode(_: Form, b: &[u8], _: &Context<'_>) -> Option<Tcp> {
    let w: XtTcp = read(b)?;
    let has = |bit| w.invflags & bit != 0;
    let flags = TcpFlags {
        mask: w.flg_mask,
        set: w.flg_cmp,
    };
    Some(Tcp {
        sport: range(has(XT_TCP_INV_SRCPT), w.spts),
        dport: range(has(XT_TCP_INV_DSTPT), w.dpts),
        option: (w.option != 0 || has(XT_TCP_INV_OPTION))
            .then_some((Not(has(XT_TCP_INV_OPTION)), w.option)),
        flags: (flags.mask != 0 || flags.set != 0 || has(XT_TCP_INV_FLAGS))
            .then_some((Not(has(XT_TCP_INV_FLAGS)), flags)),
    })
}

/// Prints ` --sport P:Q`. The range of every port is printed only if it is inverted, in which case no packet matches.
pub(super) fn ports(
    f: &mut fmt::Formatter<'_>,
    option: &str,
    ports: Option<&(Not, PortRange)>,
) -> fmt::Result {
    match ports {
        Some((not, p)) if not.0 || p.0 != (0..=u16::MAX) => condition(f, *not, option, p),
        _ => Ok(()),
    }
}

impl fmt::Display for Tcp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        ports(f, " --sport ", self.sport.as_ref())?;
        ports(f, " --dport ", self.dport.as_ref())?;
        if let Some((not, option)) = self.option {
            write!(f, "{not} --tcp-option {option}")?;
        }
        // Required flags outside of the mask match no packet; iptables does not print them without a mask.
        if let Some((not, flags)) = self.flags.filter(|(not, flags)| not.0 || flags.mask != 0) {
            write!(f, "{not} --tcp-flags ")?;
            names(f, flags.mask)?;
            f.write_str(" ")?;
            names(f, flags.set)?;
        }
        Ok(())
    }
}

fn names(f: &mut fmt::Formatter<'_>, flags: u8) -> fmt::Result {
    match flags & 0x3f {
        0 => f.write_str("NONE"),
        flags => FLAGS.show(f, flags.into()),
    }
}

fn flags(o: &Opt, n: usize) -> Result<u8, Complaint> {
    let more = |word: &str| match word.to_ascii_uppercase().as_str() {
        "ALL" => Some(0x3f),
        "NONE" => Some(0),
        _ => None,
    };
    let bits = FLAGS.read(o, n, "are no flags or ALL or NONE", more)?;
    Ok(u8::try_from(bits).unwrap_or(0))
}

fn parse(given: &mut Given) -> Result<Tcp, Complaint> {
    given.of_protocol(&[Protocol::TCP], "tcp")?;
    let mut v = Tcp {
        sport: given.ports(&["--sport", "--source-port"])?,
        ..Tcp::default()
    };
    v.dport = given.ports(&["--dport", "--destination-port"])?;
    if let Some(o) = given.take(&["--tcp-option"]) {
        let number: u8 = o.number(0)?;
        if number == 0 {
            return Err(o.wrong("is no TCP option; give 1 to 255"));
        }
        v.option = Some((o.not, number));
    }
    if let Some(o) = given.take(&["--tcp-flags"]) {
        v.flags = Some((
            o.not,
            TcpFlags {
                mask: flags(&o, 0)?,
                set: flags(&o, 1)?,
            },
        ));
    }
    if let Some(o) = given.take(&["--syn"]) {
        if v.flags.is_some() {
            return Err(given.conflict("--tcp-flags, --syn"));
        }
        v.flags = Some((
            o.not,
            TcpFlags {
                mask: 0x17,
                set: 0x02,
            },
        ));
    }
    Ok(v)
}
