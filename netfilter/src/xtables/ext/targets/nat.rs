//! `-j REDIRECT`, `MASQUERADE`, `SNAT` and `DNAT` (`linux/netfilter/nf_nat.h`): `struct nf_nat_ipv4_multi_range_compat`,
//! 20 bytes, in revision 0 for IPv4; `struct nf_nat_range2`, 44 bytes, in revision 2; otherwise `struct nf_nat_range`, 40 bytes.

use super::super::prelude::*;
use std::net::IpAddr;
use std::ops::RangeInclusive;

/// Options of a target that rewrites addresses.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
#[doc(alias = "nf_nat_range2")]
pub struct Nat {
    /// The new addresses, only for SNAT and DNAT.
    pub addresses: Option<RangeInclusive<IpAddr>>,
    /// The new ports.
    pub ports: Option<RangeInclusive<u16>>,
    /// DNAT: the original port that is mapped to the first of `ports`; the next one is mapped to the second (revision 2).
    pub base_port: Option<u16>,
    /// `--random`
    pub random: bool,
    /// `--random-fully`
    pub random_fully: bool,
    /// `--persistent`
    pub persistent: bool,
}

impl Nat {
    /// `--to-ports P-Q` without further options.
    #[must_use]
    pub fn to_ports(ports: RangeInclusive<u16>) -> Self {
        Self {
            ports: Some(ports),
            ..Self::default()
        }
    }
}

/// Options without arguments, with their bits.
const FLAGS: [(&str, u32); 3] = [
    ("--random", NF_NAT_RANGE_PROTO_RANDOM),
    ("--random-fully", NF_NAT_RANGE_PROTO_RANDOM_FULLY),
    ("--persistent", NF_NAT_RANGE_PERSISTENT),
];

/// The option for the new address or port, and those of [`FLAGS`].
const fn options(to: &'static str) -> [(&'static str, usize); 4] {
    let [(random, _), (fully, _), (persistent, _)] = FLAGS;
    [(to, 1), (random, 0), (fully, 0), (persistent, 0)]
}

pub(crate) const REDIRECT: Kind<Nat> = Kind {
    name: "REDIRECT",
    forms: |_| forms!["REDIRECT" 0],
    encode: |v, form, cx| match v.addresses {
        None => encode(v, form, cx),
        Some(_) => Err("it takes no addresses; give them to SNAT or DNAT".into()),
    },
    decode,
    options: const { &options("--to-ports") },
    parse: |given| {
        let ports = given.take(&["--to-ports"]);
        let ports = ports.map(|o| o.dashed(o.plain()?.word(0))).transpose()?;
        let to = Nat {
            ports,
            ..Nat::default()
        };
        flags(given, to)
    },
};

pub(crate) const MASQUERADE: Kind<Nat> = Kind {
    name: "MASQUERADE",
    forms: |_| forms!["MASQUERADE" 0],
    ..REDIRECT
};

/// Revision 2 of SNAT has no further options, and iptables 1.8 cannot print it.
pub(crate) const SNAT: Kind<Nat> = Kind {
    name: "SNAT",
    forms: |family| match family {
        XtFamily::Ip => forms!["SNAT" 0],
        XtFamily::Ip6 => forms!["SNAT" 1],
    },
    encode,
    decode,
    options: const { &options("--to-source") },
    parse: |given| {
        let to = destination(&given.need(&["--to-source"])?, given.family)?;
        flags(given, to)
    },
};

pub(crate) const DNAT: Kind<Nat> = Kind {
    name: "DNAT",
    forms: |family| match family {
        XtFamily::Ip => forms!["DNAT" 2, "DNAT" 0],
        XtFamily::Ip6 => forms!["DNAT" 2, "DNAT" 1],
    },
    options: const { &options("--to-destination") },
    parse: |given| {
        let to = destination(&given.need(&["--to-destination"])?, given.family)?;
        flags(given, to)
    },
    ..SNAT
};

fn encode(v: &Nat, form: Form, cx: &Context<'_>) -> Encoded {
    if let Some(range) = &v.addresses {
        let is_ipv4 = cx.family == XtFamily::Ip;
        if [range.start(), range.end()]
            .iter()
            .any(|a| a.is_ipv4() != is_ipv4)
        {
            return Err(format!("give addresses of {}", cx.family));
        }
    }
    if v.base_port.is_some() && form.revision < 2 {
        return Ok(None);
    }
    let mut flags = v.flags().fold(0, |all, (_, bit)| all | bit);
    for (is, bit) in [
        (v.addresses.is_some(), NF_NAT_RANGE_MAP_IPS),
        (v.ports.is_some(), NF_NAT_RANGE_PROTO_SPECIFIED),
        (v.base_port.is_some(), NF_NAT_RANGE_PROTO_OFFSET),
    ] {
        flags |= if is { bit } else { 0 };
    }
    let proto = v
        .ports
        .as_ref()
        .map_or([0, 0], |p| [*p.start(), *p.end()])
        .map(Into::into);
    let ends = v.addresses.as_ref().map(|a| [*a.start(), *a.end()]);
    let addr = ends.map_or([InetAddr::ANY; 2], |ends| ends.map(InetAddr::from));
    Ok(Some(match (form.revision, cx.family) {
        (0, XtFamily::Ip) => written(&NfNatIpv4MultiRangeCompat {
            rangesize: 1,
            flags,
            ip: addr.map(InetAddr::v4),
            proto,
        }),
        (2, _) => written(&NfNatRange2 {
            flags,
            addr,
            proto,
            base_proto: v.base_port.unwrap_or(0).into(),
            ..zeroed()
        }),
        _ => written(&NfNatRange { flags, addr, proto }),
    }))
}

fn decode(form: Form, b: &[u8], cx: &Context<'_>) -> Option<Nat> {
    let (flags, addr, proto) = match (form.revision, cx.family) {
        (0, XtFamily::Ip) => {
            let w: NfNatIpv4MultiRangeCompat = read(b)?;
            let addr = w.ip.map(|a| IpAddr::from(a).into());
            (w.flags, addr, w.proto)
        }
        _ => read(b).map(|w: NfNatRange| (w.flags, w.addr, w.proto))?,
    };
    let has = |bit| flags & bit != 0;
    let mut v = Nat::default().with(FLAGS.map(|(_, bit)| has(bit)));
    if has(NF_NAT_RANGE_MAP_IPS) {
        let [first, last] = addr.map(|a: InetAddr| a.ip(cx.family));
        v.addresses = Some(first..=last);
    }
    if has(NF_NAT_RANGE_PROTO_SPECIFIED) {
        let [first, last] = proto.map(u16::from);
        v.ports = Some(first..=last);
    }
    if has(NF_NAT_RANGE_PROTO_OFFSET) {
        v.base_port = Some(read::<NfNatRange2>(b)?.base_proto.into());
        // No option represents 0, or a base without ports.
        v.base_port
            .filter(|base| *base != 0)
            .and(v.ports.as_ref())?;
    }
    Some(v)
}

/// The options of REDIRECT and MASQUERADE.
pub(crate) fn to_ports(v: &Nat, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    if let Some(ports) = &v.ports {
        f.write_str(" --to-ports ")?;
        range(f, ports)?;
    }
    v.print_flags(f)
}

/// The options of SNAT.
pub(crate) fn to_source(v: &Nat, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    v.to(f, "--to-source")?;
    v.print_flags(f)
}

/// The options of DNAT.
pub(crate) fn to_destination(v: &Nat, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    v.to(f, "--to-destination")?;
    v.print_flags(f)
}

/// `P` or `P-Q`
fn range(f: &mut fmt::Formatter<'_>, ports: &RangeInclusive<u16>) -> fmt::Result {
    write!(f, "{}", ports.start())?;
    if ports.start() == ports.end() {
        Ok(())
    } else {
        write!(f, "-{}", ports.end())
    }
}

impl Nat {
    /// The flags, in the order of [`FLAGS`].
    fn with(self, [random, random_fully, persistent]: [bool; 3]) -> Self {
        Self {
            random,
            random_fully,
            persistent,
            ..self
        }
    }

    fn flags(&self) -> impl Iterator<Item = (&'static str, u32)> {
        let given = [self.random, self.random_fully, self.persistent];
        let given = given.into_iter().zip(FLAGS).filter(|(is, _)| *is);
        given.map(|(_, flag)| flag)
    }

    fn print_flags(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.flags()
            .try_for_each(|(option, _)| write!(f, " {option}"))
    }

    fn to(&self, f: &mut fmt::Formatter<'_>, option: &str) -> fmt::Result {
        if self.addresses.is_none() && self.ports.is_none() {
            return Ok(());
        }
        write!(f, " {option} ")?;
        if let Some(a) = &self.addresses {
            let brackets = a.start().is_ipv6() && self.ports.is_some();
            f.write_str(if brackets { "[" } else { "" })?;
            write!(f, "{}", Address(*a.start()))?;
            if a.start() != a.end() {
                write!(f, "-{}", Address(*a.end()))?;
            }
            f.write_str(if brackets { "]" } else { "" })?;
        }
        match (&self.ports, self.base_port) {
            (None, _) => Ok(()),
            (Some(ports), None) => {
                f.write_str(":")?;
                range(f, ports)
            }
            // iptables lists a range of one port as `P/BASE`, and refuses that.
            (Some(ports), Some(base)) => write!(f, ":{}-{}/{base}", ports.start(), ports.end()),
        }
    }
}

/// Parses `A[-B][:P[-Q][/BASE]]`; IPv6 addresses with ports are in brackets.
fn destination(o: &Opt, family: XtFamily) -> Result<Nat, Complaint> {
    let mut v = Nat::default();
    let word = o.plain()?.word(0);
    let (addresses, ports) = match (family, word.strip_prefix('[')) {
        (XtFamily::Ip6, Some(rest)) => {
            let (inside, after) = rest.split_once(']').ok_or_else(|| o.wrong("has no ]"))?;
            let ports = match after.strip_prefix(':') {
                None if !after.is_empty() => {
                    return Err(o.wrong("has more than :PORT after ]; write a range [FIRST-LAST]"));
                }
                ports => ports,
            };
            (inside, ports)
        }
        (XtFamily::Ip6, None) => match word.strip_prefix(':') {
            // A lone `:PORT`, not an address such as `::1`.
            Some(ports) if !ports.contains(':') => ("", Some(ports)),
            _ => (word, None),
        },
        (XtFamily::Ip, _) => match word.split_once(':') {
            Some((addresses, ports)) => (addresses, Some(ports)),
            None => (word, None),
        },
    };
    if !addresses.is_empty() {
        let (first, last) = addresses.split_once('-').unwrap_or((addresses, addresses));
        v.addresses = Some(o.address_in(first, family)?..=o.address_in(last, family)?);
    }
    if let Some(ports) = ports {
        let (ports, base) = match ports.split_once('/') {
            Some((ports, base)) => (ports, Some(o.port(base)?)),
            None => (ports, None),
        };
        if base.is_some_and(|base| base == 0 || !ports.contains('-')) {
            return Err(o.wrong("has a base port of 0, or without a range; give FIRST-LAST/BASE"));
        }
        v.ports = Some(o.dashed(ports)?);
        v.base_port = base;
    }
    Ok(v)
}

/// Adds the flags, and checks the protocol of ports.
fn flags(given: &mut Given, to: Nat) -> Result<Nat, Complaint> {
    if to.ports.is_some() {
        given.with_ports()?;
    }
    let mut all = [false; 3];
    for (is, (option, _)) in all.iter_mut().zip(FLAGS) {
        *is = given.flag(option)?;
    }
    Ok(to.with(all))
}
