//! `-m conntrack`: `struct xt_conntrack_mtinfo1` to `3` (`linux/netfilter/xt_conntrack.h`): 152, 156 and 164
//! bytes. Revision 1 has states of 8 bits, 1 and 2 have single ports in network order, 3 has ranges of
//! ports in host order.

use super::super::structs::{
    XtConntrackMtinfo1, XtConntrackMtinfo2, XtConntrackMtinfo3, XtStateInfo,
};
use super::super::{Context, Encoded, Form, Kind, comma_separated, forms};
use crate::address::Address;
use crate::xtables::raw::*;
use crate::xtables::structs::{InetAddr, read, written, zeroed};
use crate::xtables::text::{Complaint, Given, Opt};
use crate::xtables::{Not, PortRange, XtFamily};
use ipnet::IpNet;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr};
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
#[non_exhaustive]
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

impl Conntrack {
    fn of(not: Not, states: Vec<ConntrackState>) -> Self {
        Self {
            states: Some((not, states)),
            ..Self::default()
        }
    }
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

pub(crate) const KIND: Kind<Conntrack> = Kind {
    name: "conntrack",
    forms: |_| forms!["conntrack" 3, "conntrack" 2, "conntrack" 1],
    encode: |v, form, cx| conntrack_wire(v, form, cx.family, WithAlias(false)),
    decode: |form, b, cx| match conntrack_value(form, b, cx.family)? {
        (v, WithAlias(false)) => Some(v),
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

/// `-m state`: since iptables 1.4.16 the same with `XT_CONNTRACK_STATE_ALIAS` set; before, a separate match (`struct xt_state_info`,
/// `linux/netfilter/xt_state.h`, 4 bytes).
pub(crate) const STATE: Kind<Conntrack> = Kind {
    name: "state",
    forms: |_| forms!["conntrack" 3, "conntrack" 2, "conntrack" 1, "state" 0],
    encode: encode_state,
    decode: |form, b, cx| match form.name {
        "state" => {
            let bits = u16::try_from(read::<XtStateInfo>(b)?.statemask).ok()?;
            let untracked = (bits & XT_STATE_UNTRACKED) * UNTRACKED;
            let states = from_bits(bits & OLD_STATES | untracked);
            Some(Conntrack::of(Not(false), states))
        }
        _ => match conntrack_value(form, b, cx.family)? {
            (v, WithAlias(true)) => Some(v),
            _ => None,
        },
    },
    options: &[("--state", 1)],
    parse: |given| {
        let o = given.need(&["--state"])?;
        Ok(Conntrack::of(o.not, states(&o, false)?))
    },
};

/// `INVALID`, `ESTABLISHED`, `RELATED` and `NEW`, which both matches number alike.
const OLD_STATES: u16 = 0xf;
const UNTRACKED: u16 = XT_CONNTRACK_STATE_UNTRACKED / XT_STATE_UNTRACKED;

fn encode_state(v: &Conntrack, form: Form, cx: &Context<'_>) -> Encoded {
    let (not, states) = v.states.clone().unwrap_or_default();
    if *v != Conntrack::of(not, states.clone()) {
        return Err("-m state compares only the state; use -m conntrack".into());
    }
    if form.name != "state" {
        return conntrack_wire(v, form, cx.family, WithAlias(true));
    }
    let bits = to_bits(&states);
    let untracked = (bits & XT_CONNTRACK_STATE_UNTRACKED) / UNTRACKED;
    // The old match cannot be inverted, and knows nothing of NAT.
    let fits = !not.0 && bits & !(OLD_STATES | XT_CONNTRACK_STATE_UNTRACKED) == 0;
    let statemask = u32::from(bits & OLD_STATES | untracked);
    Ok(fits.then(|| written(&XtStateInfo { statemask })))
}

/// The options of `-m state`.
pub(crate) fn state(v: &Conntrack, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let (not, states) = v.states.clone().unwrap_or_default();
    write!(f, "{not} --state ")?;
    comma_separated(f, from_bits(to_bits(&states)))
}

/// `XT_CONNTRACK_STATE_ALIAS`: the rule was written with `-m state`.
struct WithAlias(bool);

fn to_bits(states: &[ConntrackState]) -> u16 {
    STATES
        .iter()
        .filter(|(s, ..)| states.contains(s))
        .fold(0, |all, (_, _, bit)| all | bit)
}

fn from_bits(bits: u16) -> Vec<ConntrackState> {
    STATES
        .iter()
        .filter(|(_, _, bit)| bits & bit != 0)
        .map(|(s, ..)| *s)
        .collect()
}

fn conntrack_wire(v: &Conntrack, form: Form, family: XtFamily, alias: WithAlias) -> Encoded {
    let state_mask = v.states.as_ref().map_or(0, |(_, s)| to_bits(s));
    let status_mask = v.status.map_or(0, |(_, s)| s);
    let wide =
        |p: &Option<(Not, PortRange)>| p.as_ref().is_some_and(|(_, p)| p.0.start() != p.0.end());
    if (form.revision < 2 && (state_mask > 0xff || status_mask > 0xff))
        || (form.revision < 3 && v.ports.iter().any(wide))
    {
        return Ok(None);
    }
    let (mut match_flags, mut invert_flags) = (0, 0);
    let mut note = |not: Option<Not>, bit: u16| {
        match_flags |= if not.is_some() { bit } else { 0 };
        invert_flags |= if not == Some(Not(true)) { bit } else { 0 };
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
    let mut addresses = [[InetAddr::ANY; 2]; 4];
    for ((field, net), (option, bit)) in addresses.iter_mut().zip(&v.addresses).zip(ADDRESS_OPTIONS)
    {
        note(net.map(|n| n.0), bit);
        let Some((_, net)) = net else { continue };
        if net.addr().is_ipv4() != (family == XtFamily::Ip) {
            return Err(format!(
                "{option} {net} is no address of {family}; give one of its family"
            ));
        }
        // iptables fills the whole mask of a host.
        let mask = match net.netmask() {
            IpAddr::V4(Ipv4Addr::BROADCAST) => InetAddr::ALL,
            mask => mask.into(),
        };
        *field = [net.addr().into(), mask];
    }
    let (mut ports, mut ports_high) = ([0; 4], [0; 4]);
    for (n, (port, (_, bit))) in v.ports.iter().zip(PORT_OPTIONS).enumerate() {
        note(port.as_ref().map(|p| p.0), bit);
        let range = port
            .as_ref()
            .map_or((0, 0), |(_, p)| (*p.0.start(), *p.0.end()));
        if let (Some(first), Some(last)) = (ports.get_mut(n), ports_high.get_mut(n)) {
            (*first, *last) = range;
        }
    }
    let expires = v.expires.as_ref();
    let (expires_min, expires_max) = expires.map_or((0, 0), |(_, e)| (*e.start(), *e.end()));
    let wire = XtConntrackMtinfo3 {
        addresses,
        expires_min,
        expires_max,
        l4proto: v.protocol.map_or(0, |(_, p)| p.into()),
        ports,
        match_flags,
        invert_flags,
        state_mask,
        status_mask,
        ports_high,
        ..zeroed()
    };
    Ok(Some(match form.revision {
        1 => written(&XtConntrackMtinfo1::from(wire)),
        2 => written(&XtConntrackMtinfo2::from(wire)),
        _ => written(&wire),
    }))
}

/// The structure of another revision; what does not fit was refused before.
macro_rules! revision {
    ($w:ident, $($field:ident: $value:expr),*) => {
        Self {
            addresses: $w.addresses,
            expires_min: $w.expires_min,
            expires_max: $w.expires_max,
            l4proto: $w.l4proto,
            ports: $w.ports.map(Into::into),
            match_flags: $w.match_flags,
            invert_flags: $w.invert_flags,
            $($field: $value,)*
        }
    };
}

macro_rules! older {
    ($($old:ident $mask:ty { $($gap:ident)? },)*) => {$(
        impl From<XtConntrackMtinfo3> for $old {
            fn from(w: XtConntrackMtinfo3) -> Self {
                let mask = |all| <$mask>::try_from(all).unwrap_or(<$mask>::MAX);
                revision!(w, state_mask: mask(w.state_mask), status_mask: mask(w.status_mask) $(, $gap: zeroed())?)
            }
        }

        impl From<$old> for XtConntrackMtinfo3 {
            fn from(w: $old) -> Self {
                revision!(w, state_mask: w.state_mask.into(), status_mask: w.status_mask.into(),
                    ports_high: w.ports.map(Into::into), _gap: zeroed())
            }
        }
    )*};
}

older! {
    XtConntrackMtinfo1 u8 {},
    XtConntrackMtinfo2 u16 { _gap },
}

fn conntrack_value(form: Form, b: &[u8], family: XtFamily) -> Option<(Conntrack, WithAlias)> {
    let w: XtConntrackMtinfo3 = match form.revision {
        1 => read::<XtConntrackMtinfo1>(b)?.into(),
        2 => read::<XtConntrackMtinfo2>(b)?.into(),
        _ => read(b)?,
    };
    let not = |bit: u16| (w.match_flags & bit != 0).then_some(Not(w.invert_flags & bit != 0));
    let mut v = Conntrack {
        states: not(XT_CONNTRACK_STATE).map(|n| (n, from_bits(w.state_mask))),
        status: not(XT_CONNTRACK_STATUS).map(|n| (n, w.status_mask)),
        expires: not(XT_CONNTRACK_EXPIRES).map(|n| (n, w.expires_min..=w.expires_max)),
        direction: not(XT_CONNTRACK_DIRECTION).map(|n| match n {
            Not(false) => Direction::Original,
            Not(true) => Direction::Reply,
        }),
        ..Conntrack::default()
    };
    if let Some(n) = not(XT_CONNTRACK_PROTO) {
        v.protocol = Some((n, u8::try_from(w.l4proto).ok()?));
    }
    for ((net, field), (_, bit)) in v.addresses.iter_mut().zip(w.addresses).zip(ADDRESS_OPTIONS) {
        if let Some(n) = not(bit) {
            let [addr, mask] = field.map(|a| a.ip(family));
            *net = Some((n, IpNet::with_netmask(addr, mask).ok()?));
        }
    }
    let ports = w.ports.into_iter().zip(w.ports_high);
    for ((port, (first, last)), (_, bit)) in v.ports.iter_mut().zip(ports).zip(PORT_OPTIONS) {
        *port = not(bit).map(|n| (n, PortRange(first..=last)));
    }
    Some((v, WithAlias(w.match_flags & XT_CONNTRACK_STATE_ALIAS != 0)))
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

fn states(o: &Opt, nat: bool) -> Result<Vec<ConntrackState>, Complaint> {
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

fn parse(given: &mut Given) -> Result<Conntrack, Complaint> {
    let mut v = Conntrack::default();
    if let Some(o) = given.take(&["--ctstate"]) {
        v.states = Some((o.not, states(&o, true)?));
    }
    if let Some(o) = given.take(&["--ctproto"]) {
        v.protocol = Some((o.not, o.protocol(0)?.0));
    }
    for (net, (option, _)) in v.addresses.iter_mut().zip(ADDRESS_OPTIONS) {
        if let Some(o) = given.take(&[option]) {
            *net = Some((o.not, o.network(0, given.family)?));
        }
    }
    for (port, (option, _)) in v.ports.iter_mut().zip(PORT_OPTIONS) {
        let ends = |o: Opt| Ok((o.not, o.ends(o.word(0))?));
        *port = given.take(&[option]).map(ends).transpose()?;
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
        let number = |t: &str, open: u32| match t.is_empty() && word != t {
            true => Ok(open),
            false => o.number_in(t, "is no time; give seconds or FROM:TO"),
        };
        v.expires = Some((o.not, number(first, 0)?..=number(last, u32::MAX)?));
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
    Ok(v)
}
