//! `-m conntrack`: `struct xt_conntrack_mtinfo1` to `3` (`linux/netfilter/xt_conntrack.h`): 152, 156 and 164
//! bytes. Revision 1 has states of 8 bits, 1 and 2 have single ports in network order, 3 has ranges of
//! ports in host order.

use super::super::{Context, Encoded, Form, Kind, comma_separated, forms};
use crate::xtables::bytes::{Build, Bytes};
use crate::xtables::net::Address;
use crate::xtables::raw::*;
use crate::xtables::text::{Complaint, Given, Opt};
use crate::xtables::{Match, Not, PortRange, XtFamily};
use ipnet::IpNet;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ops::RangeInclusive;

/// The conntrack state of the packet's connection.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
#[doc(alias = "xt_conntrack_mtinfo3")]
pub struct Conntrack {
    /// `--ctstate`: any of these, in the order of [`ConntrackState`].
    pub states: Option<(Not, Vec<ConntrackState>)>,
    /// `--ctproto`
    pub protocol: Option<(Not, u8)>,
    /// `--ctorigsrc`, `--ctorigdst`, `--ctreplsrc`, `--ctrepldst`
    pub addresses: [Option<(Not, IpNet)>; 4],
    /// `--ctorigsrcport`, `--ctorigdstport`, `--ctreplsrcport`, `--ctrepldstport`
    pub ports: [Option<(Not, PortRange)>; 4],
    /// `--ctstatus`: bits of `enum ip_conntrack_status`.
    pub status: Option<(Not, u16)>,
    /// `--ctexpire`: remaining lifetime in seconds, inclusive range.
    pub expires: Option<(Not, RangeInclusive<u32>)>,
    /// `--ctdir`
    pub direction: Option<Direction>,
}

/// `--ctdir`
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Direction {
    /// `ORIGINAL`: the direction of the connection's first packet.
    Original,
    /// `REPLY`
    Reply,
}

/// `--ctstate`, in the order in which `iptables-save` prints it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ConntrackState {
    /// `INVALID`: belongs to no valid connection.
    Invalid,
    /// `NEW`: starts a connection.
    New,
    /// `RELATED`: starts a connection that another one expects.
    Related,
    /// `ESTABLISHED`: belongs to a connection that has seen both directions.
    Established,
    /// `UNTRACKED`: exempted by `-j CT --notrack`.
    Untracked,
    /// `SNAT`: its source was translated. Not in `-m state`.
    Snat,
    /// `DNAT`: its destination was translated. Not in `-m state`.
    Dnat,
}

const STATES: &[(ConntrackState, &str, u16)] = &[
    (
        ConntrackState::Invalid,
        "INVALID",
        XT_CONNTRACK_STATE_INVALID,
    ),
    (ConntrackState::New, "NEW", XT_CONNTRACK_STATE_NEW),
    (
        ConntrackState::Related,
        "RELATED",
        XT_CONNTRACK_STATE_RELATED,
    ),
    (
        ConntrackState::Established,
        "ESTABLISHED",
        XT_CONNTRACK_STATE_ESTABLISHED,
    ),
    (
        ConntrackState::Untracked,
        "UNTRACKED",
        XT_CONNTRACK_STATE_UNTRACKED,
    ),
    (ConntrackState::Snat, "SNAT", XT_CONNTRACK_STATE_SNAT),
    (ConntrackState::Dnat, "DNAT", XT_CONNTRACK_STATE_DNAT),
];

const STATUS: &[(&str, u16)] = &[
    ("EXPECTED", IPS_EXPECTED),
    ("SEEN_REPLY", IPS_SEEN_REPLY),
    ("ASSURED", IPS_ASSURED),
    ("CONFIRMED", IPS_CONFIRMED),
];

const ADDRESS_OPTIONS: [(&str, u16); 4] = [
    ("--ctorigsrc", XT_CONNTRACK_ORIGSRC),
    ("--ctorigdst", XT_CONNTRACK_ORIGDST),
    ("--ctreplsrc", XT_CONNTRACK_REPLSRC),
    ("--ctrepldst", XT_CONNTRACK_REPLDST),
];

const PORT_OPTIONS: [(&str, u16); 4] = [
    ("--ctorigsrcport", XT_CONNTRACK_ORIGSRC_PORT),
    ("--ctorigdstport", XT_CONNTRACK_ORIGDST_PORT),
    ("--ctreplsrcport", XT_CONNTRACK_REPLSRC_PORT),
    ("--ctrepldstport", XT_CONNTRACK_REPLDST_PORT),
];

pub(crate) const KIND: Kind<Match> = Kind {
    name: "conntrack",
    forms: |_| forms!["conntrack" 3, "conntrack" 2, "conntrack" 1],
    encode: |value: &Match, form: Form, cx: &Context<'_>| -> Encoded {
        match value {
            Match::Conntrack(v) => conntrack_wire(v, form, cx.family, WithAlias(false)),
            _ => Ok(None),
        }
    },
    decode: |form, b, cx| match conntrack_value(form, b, cx.family)? {
        (v, WithAlias(false)) => Some(Match::Conntrack(v)),
        _ => None,
    },
    options: &[
        ("--ctstate", 1),
        ("--ctproto", 1),
        ("--ctorigsrc", 1),
        ("--ctorigdst", 1),
        ("--ctreplsrc", 1),
        ("--ctrepldst", 1),
        ("--ctorigsrcport", 1),
        ("--ctorigdstport", 1),
        ("--ctreplsrcport", 1),
        ("--ctrepldstport", 1),
        ("--ctstatus", 1),
        ("--ctexpire", 1),
        ("--ctdir", 1),
    ],
    parse,
};

/// `XT_CONNTRACK_STATE_ALIAS`: the rule was written with `-m state`.
pub(super) struct WithAlias(pub(super) bool);

pub(super) fn to_bits(states: &[ConntrackState]) -> u16 {
    STATES
        .iter()
        .filter(|(s, ..)| states.contains(s))
        .fold(0, |all, (_, _, bit)| all | bit)
}

pub(super) fn from_bits(bits: u16) -> Vec<ConntrackState> {
    STATES
        .iter()
        .filter(|(_, _, bit)| bits & bit != 0)
        .map(|(s, ..)| *s)
        .collect()
}

/// The whole address space: the value of an address that is not matched.
fn anything(family: XtFamily) -> IpAddr {
    match family {
        XtFamily::Ip => Ipv4Addr::UNSPECIFIED.into(),
        XtFamily::Ip6 => Ipv6Addr::UNSPECIFIED.into(),
    }
}

pub(super) fn conntrack_wire(
    v: &Conntrack,
    form: Form,
    family: XtFamily,
    alias: WithAlias,
) -> Encoded {
    let states = v.states.as_ref().map_or(0, |(_, s)| to_bits(s));
    let status = v.status.map_or(0, |(_, s)| s);
    let wide =
        |p: &Option<(Not, PortRange)>| p.as_ref().is_some_and(|(_, p)| p.0.start() != p.0.end());
    if (form.revision < 2 && (states > 0xff || status > 0xff))
        || (form.revision < 3 && v.ports.iter().any(wide))
    {
        return Ok(None);
    }
    let (mut flags, mut invert) = (0, 0);
    let mut note = |not: Option<Not>, bit: u16| {
        flags |= if not.is_some() { bit } else { 0 };
        invert |= if not == Some(Not(true)) { bit } else { 0 };
    };
    note(v.states.as_ref().map(|s| s.0), XT_CONNTRACK_STATE);
    note(alias.0.then_some(Not(false)), XT_CONNTRACK_STATE_ALIAS);
    note(v.protocol.map(|p| p.0), XT_CONNTRACK_PROTO);
    note(v.status.map(|s| s.0), XT_CONNTRACK_STATUS);
    note(v.expires.as_ref().map(|e| e.0), XT_CONNTRACK_EXPIRES);
    note(
        v.direction.map(|d| Not(d == Direction::Reply)),
        XT_CONNTRACK_DIRECTION,
    );
    let mut wire = Build::new();
    for (net, (option, bit)) in v.addresses.iter().zip(ADDRESS_OPTIONS) {
        note(net.map(|n| n.0), bit);
        let (addr, mask) = match net {
            Some((_, net)) if net.addr().is_ipv4() != (family == XtFamily::Ip) => {
                return Err(format!(
                    "{option} {net} is no address of {family}; give one of its family"
                ));
            }
            Some((_, net)) => (net.addr(), net.netmask()),
            None => (anything(family), anything(family)),
        };
        // iptables fills the whole mask of a host.
        wire = wire.union_address(addr);
        wire = match mask {
            IpAddr::V4(Ipv4Addr::BROADCAST) => wire.bytes(&[0xff; 16]),
            mask => wire.union_address(mask),
        };
    }
    let (e0, e1) = v
        .expires
        .as_ref()
        .map_or((0, 0), |(_, e)| (*e.start(), *e.end()));
    wire = wire
        .u32(e0)
        .u32(e1)
        .u16(v.protocol.map_or(0, |(_, p)| p.into()));
    let mut last = Vec::new();
    for (port, (_, bit)) in v.ports.iter().zip(PORT_OPTIONS) {
        note(port.as_ref().map(|p| p.0), bit);
        let (first, end) = port
            .as_ref()
            .map_or((0, 0), |(_, p)| (*p.0.start(), *p.0.end()));
        wire = if form.revision < 3 {
            wire.be16(first)
        } else {
            wire.u16(first)
        };
        last.push(end);
    }
    wire = wire.u16(flags).u16(invert);
    wire = match (form.revision, u8::try_from(states), u8::try_from(status)) {
        (0 | 1, Ok(states), Ok(status)) => wire.u8(states).u8(status),
        _ => wire.u16(states).u16(status),
    };
    if form.revision >= 3 {
        wire = last.into_iter().fold(wire, Build::u16);
    }
    Ok(Some(wire.done()))
}

pub(super) fn conntrack_value(
    form: Form,
    b: Bytes<'_>,
    family: XtFamily,
) -> Option<(Conntrack, WithAlias)> {
    let (flags, invert) = (b.u16(146)?, b.u16(148)?);
    let (states, status) = match form.revision {
        1 => (b.u8(150)?.into(), b.u8(151)?.into()),
        _ => (b.u16(150)?, b.u16(152)?),
    };
    let not = |bit: u16| (flags & bit != 0).then_some(Not(invert & bit != 0));
    let mut v = Conntrack {
        states: not(XT_CONNTRACK_STATE).map(|n| (n, from_bits(states))),
        status: not(XT_CONNTRACK_STATUS).map(|n| (n, status)),
        direction: not(XT_CONNTRACK_DIRECTION).map(|n| match n {
            Not(false) => Direction::Original,
            Not(true) => Direction::Reply,
        }),
        ..Conntrack::default()
    };
    if let Some(n) = not(XT_CONNTRACK_PROTO) {
        v.protocol = Some((n, u8::try_from(b.u16(136)?).ok()?));
    }
    if let Some(n) = not(XT_CONNTRACK_EXPIRES) {
        v.expires = Some((n, b.u32(128)?..=b.u32(132)?));
    }
    for (i, (net, (_, bit))) in v.addresses.iter_mut().zip(ADDRESS_OPTIONS).enumerate() {
        if let Some(n) = not(bit) {
            let (addr, mask) = (b.address(32 * i, family)?, b.address(32 * i + 16, family)?);
            *net = Some((n, IpNet::with_netmask(addr, mask).ok()?));
        }
    }
    for (i, (port, (_, bit))) in v.ports.iter_mut().zip(PORT_OPTIONS).enumerate() {
        if let Some(n) = not(bit) {
            let range = if form.revision < 3 {
                let one = b.be16(138 + 2 * i)?;
                one..=one
            } else {
                b.u16(138 + 2 * i)?..=b.u16(154 + 2 * i)?
            };
            *port = Some((n, PortRange(range)));
        }
    }
    Some((v, WithAlias(flags & XT_CONNTRACK_STATE_ALIAS != 0)))
}

impl fmt::Display for ConntrackState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        STATES
            .iter()
            .filter(|(s, ..)| s == self)
            .try_for_each(|(_, name, _)| f.write_str(name))
    }
}

impl fmt::Display for Conntrack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some((not, states)) = &self.states {
            write!(f, "{not} --ctstate ")?;
            comma_separated(f, from_bits(to_bits(states)))?;
        }
        if let Some((not, protocol)) = self.protocol {
            write!(f, "{not} --ctproto {protocol}")?;
        }
        for (net, (option, _)) in self.addresses.iter().zip(ADDRESS_OPTIONS) {
            let Some((not, net)) = net else { continue };
            write!(f, "{not} {option} {}", Address(net.addr()))?;
            if net.prefix_len() != net.max_prefix_len() {
                write!(f, "/{}", net.prefix_len())?;
            }
        }
        for (port, (option, _)) in self.ports.iter().zip(PORT_OPTIONS) {
            port.iter()
                .try_for_each(|(not, port)| write!(f, "{not} {option} {port}"))?;
        }
        if let Some((not, status)) = self.status {
            write!(f, "{not} --ctstatus ")?;
            match status {
                0 => f.write_str("NONE")?,
                _ => comma_separated(
                    f,
                    STATUS
                        .iter()
                        .filter(|(_, bit)| status & bit != 0)
                        .map(|(name, _)| name),
                )?,
            }
        }
        if let Some((not, e)) = &self.expires {
            write!(f, "{not} --ctexpire {}", e.start())?;
            if e.start() != e.end() {
                write!(f, ":{}", e.end())?;
            }
        }
        match self.direction {
            Some(Direction::Original) => f.write_str(" --ctdir ORIGINAL"),
            Some(Direction::Reply) => f.write_str(" --ctdir REPLY"),
            None => Ok(()),
        }
    }
}

pub(super) fn states(o: &Opt, nat: bool) -> Result<Vec<ConntrackState>, Complaint> {
    let known = STATES.iter().filter(|(_, _, bit)| nat || *bit & 0xc0 == 0);
    let bits = o.word(0).split(',').try_fold(0, |all, word| {
        let found = known
            .clone()
            .find(|(_, name, _)| name.eq_ignore_ascii_case(word));
        found.map(|(_, _, bit)| all | bit).ok_or_else(|| {
            let names: Vec<&str> = known.clone().map(|(_, name, _)| *name).collect();
            o.wrong(&format!("is no state; give {}", names.join(", ")))
        })
    })?;
    Ok(from_bits(bits))
}

fn parse(given: &mut Given) -> Result<Match, Complaint> {
    let mut v = Conntrack::default();
    if let Some(o) = given.take(&["--ctstate"]) {
        v.states = Some((o.not, states(&o, true)?));
    }
    if let Some(o) = given.take(&["--ctproto"]) {
        v.protocol = Some((o.not, o.protocol(0)?.0));
    }
    for (net, (option, _)) in v.addresses.iter_mut().zip(ADDRESS_OPTIONS) {
        if let Some(o) = given.take(&[option]) {
            *net = Some((o.not, o.network(0, given.family)?.trunc()));
        }
    }
    for (port, (option, _)) in v.ports.iter_mut().zip(PORT_OPTIONS) {
        *port = given.ports(&[option])?;
    }
    if let Some(o) = given.take(&["--ctstatus"]) {
        let bits = o.word(0).split(',').try_fold(0, |all, word| {
            let found = STATUS
                .iter()
                .find(|(name, _)| name.eq_ignore_ascii_case(word));
            match (found, word.eq_ignore_ascii_case("NONE")) {
                (Some((_, bit)), _) => Ok(all | bit),
                (None, true) => Ok(all),
                _ => Err(
                    o.wrong("is no status; give NONE, EXPECTED, SEEN_REPLY, ASSURED or CONFIRMED")
                ),
            }
        })?;
        v.status = Some((o.not, bits));
    }
    if let Some(o) = given.take(&["--ctexpire"]) {
        let word = o.word(0);
        let (first, last) = word.split_once(':').unwrap_or((word, word));
        let number = |t: &str| {
            t.parse()
                .map_err(|_| o.wrong("is no time; give seconds or FROM:TO"))
        };
        v.expires = Some((o.not, number(first)?..=number(last)?));
    }
    if let Some(o) = given.take(&["--ctdir"]) {
        v.direction = Some(match o.plain()?.word(0) {
            "ORIGINAL" => Direction::Original,
            "REPLY" => Direction::Reply,
            _ => return Err(o.wrong("is no direction; give ORIGINAL or REPLY")),
        });
    }
    if v == Conntrack::default() {
        return Err(given.lacks("--ctstate or another condition"));
    }
    Ok(Match::Conntrack(v))
}
