//! `-m conntrack`: `struct xt_conntrack_mtinfo1` to `3` (`linux/netfilter/xt_conntrack.h`): 152, 156 and 164
//! bytes. Revision 1 has states of 8 bits, 1 and 2 have single ports in network order, 3 has ranges of
//! ports in host order.

mod wire;

use super::super::prelude::*;
use crate::address::Net;
use ipnet::IpNet;
use std::ops::RangeInclusive;
use wire::{WithAlias, conntrack_value, conntrack_wire};

/// Conditions on the packet's connection in connection tracking.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
#[doc(alias = "xt_conntrack_mtinfo3")]
pub struct Conntrack {
    /// `--ctstate`: any of these states, in the order of [`ConntrackState`].
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
    /// `INVALID`: the packet belongs to no valid connection.
    Invalid,
    /// `NEW`: the packet starts a connection.
    New,
    /// `RELATED`: the packet starts a connection that another one expects.
    Related,
    /// `ESTABLISHED`: the packet belongs to a connection with packets in both directions.
    Established,
    /// `UNTRACKED`: the packet was exempted by `-j CT --notrack`.
    Untracked,
    /// `SNAT`: the source of the connection was translated. Not in `-m state`.
    Snat,
    /// `DNAT`: the destination of the connection was translated. Not in `-m state`.
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

#[rustfmt::skip]
const STATES: &[(ConntrackState, &str, u16)] = &[
    (ConntrackState::Invalid, "INVALID", XT_CONNTRACK_STATE_INVALID),
    (ConntrackState::New, "NEW", XT_CONNTRACK_STATE_NEW),
    (ConntrackState::Related, "RELATED", XT_CONNTRACK_STATE_RELATED),
    (ConntrackState::Established, "ESTABLISHED", XT_CONNTRACK_STATE_ESTABLISHED),
    (ConntrackState::Untracked, "UNTRACKED", XT_CONNTRACK_STATE_UNTRACKED),
    (ConntrackState::Snat, "SNAT", XT_CONNTRACK_STATE_SNAT),
    (ConntrackState::Dnat, "DNAT", XT_CONNTRACK_STATE_DNAT),
];

/// `enum ip_conntrack_status`
const STATUS: Bits = Bits(&["EXPECTED", "SEEN_REPLY", "ASSURED", "CONFIRMED"]);

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

#[rustfmt::skip]
pub(crate) const KIND: Kind<Conntrack> = Kind {
    name: "conntrack",
    forms: |_| forms!["conntrack" 3, "conntrack" 2, "conntrack" 1],
    encode: |v, form, cx| conntrack_wire(v, form, cx.family, WithAlias(false)),
    decode: |form, b, cx| match conntrack_value(form, b, cx.family)? {
        (v, WithAlias(false)) => Some(v),
        _ => None,
    },
    options: &[
        ("--ctstate", 1), ("--ctproto", 1), ("--ctorigsrc", 1), ("--ctorigdst", 1), ("--ctreplsrc", 1),
        ("--ctrepldst", 1), ("--ctorigsrcport", 1), ("--ctorigdstport", 1), ("--ctreplsrcport", 1),
        ("--ctrepldstport", 1), ("--ctstatus", 1), ("--ctexpire", 1), ("--ctdir", 1),
    ],
    parse,
};

/// `-m state`: since iptables 1.4.16 the match `conntrack` with `XT_CONNTRACK_STATE_ALIAS`; in older releases a separate match
/// (`struct xt_state_info`, `linux/netfilter/xt_state.h`, 4 bytes).
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

/// `INVALID`, `ESTABLISHED`, `RELATED` and `NEW`, which have the same bits in both matches.
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
    // The old match cannot be inverted and has no bits for SNAT and DNAT.
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
            net.iter()
                .try_for_each(|(not, net)| write!(f, "{not} {option} {}", Net(*net)))?;
        }
        for (port, (option, _)) in self.ports.iter().zip(PORT_OPTIONS) {
            port.iter()
                .try_for_each(|(not, port)| write!(f, "{not} {option} {port}"))?;
        }
        if let Some((not, status)) = self.status {
            write!(f, "{not} --ctstatus ")?;
            match status {
                0 => f.write_str("NONE")?,
                bits => STATUS.show(f, bits.into())?,
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
        let found = known.clone().find(|(_, name, _)| begins(name, word));
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
        let begun = |word: &str| {
            let bit = STATUS.0.iter().position(|name| begins(name, word));
            let none = begins("NONE", word).then_some(0);
            bit.map(|bit| 1 << bit).or(none)
        };
        let bits = STATUS.read(&o, 0, "is no status, and not NONE", begun)?;
        v.status = Some((o.not, u16::try_from(bits).unwrap_or(0)));
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
        v.direction = Some(match o.plain()?.word(0).to_ascii_uppercase().as_str() {
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
