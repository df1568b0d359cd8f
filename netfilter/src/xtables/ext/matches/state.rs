//! `-m state`: since iptables 1.4.16 the match conntrack with `XT_CONNTRACK_STATE_ALIAS` set; before, a separate
//! match (`struct xt_state_info`, `linux/netfilter/xt_state.h`, 4 bytes).

use super::super::structs::XtStateInfo;
use super::super::{Context, Encoded, Form, Kind, comma_separated, forms};
use super::conntrack::{Conntrack, ConntrackState, WithAlias, conntrack_wire, from_bits, to_bits};
use crate::xtables::Not;
use crate::xtables::raw::*;
use crate::xtables::structs::{read, written};
use crate::xtables::text::{Complaint, Given};
use std::fmt;

/// `--state`: any of these states.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[doc(alias = "xt_state_info")]
pub struct State {
    /// `!`
    pub not: Not,
    /// In the order of [`ConntrackState`].
    pub states: Vec<ConntrackState>,
}

pub(crate) const KIND: Kind<State> = Kind {
    name: "state",
    forms: |_| forms!["conntrack" 3, "conntrack" 2, "conntrack" 1, "state" 0],
    encode,
    decode,
    options: &[("--state", 1)],
    parse,
};

fn as_conntrack(v: &State) -> Conntrack {
    Conntrack {
        states: Some((v.not, v.states.clone())),
        ..Conntrack::default()
    }
}

fn encode(v: &State, form: Form, cx: &Context<'_>) -> Encoded {
    if form.name != "state" {
        return conntrack_wire(&as_conntrack(v), form, cx.family, WithAlias(true));
    }
    let bits = v.states.iter().try_fold(0, |all, s| {
        let bit = match s {
            ConntrackState::Untracked => XT_STATE_UNTRACKED,
            ConntrackState::Snat | ConntrackState::Dnat => return None,
            other => to_bits(&[*other]),
        };
        Some(all | u32::from(bit))
    });
    // The old match cannot be inverted.
    Ok(bits
        .filter(|_| !v.not.0)
        .map(|statemask| written(&XtStateInfo { statemask })))
}

fn decode(form: Form, b: &[u8], cx: &Context<'_>) -> Option<State> {
    if form.name != "state" {
        let (v, WithAlias(true)) = super::conntrack::conntrack_value(form, b, cx.family)? else {
            return None;
        };
        let (not, states) = v.states?;
        return Some(State { not, states });
    }
    let w: XtStateInfo = read(b)?;
    let bits = u16::try_from(w.statemask).ok()?;
    let mut states = from_bits(bits & 0xf);
    if bits & XT_STATE_UNTRACKED != 0 {
        states.push(ConntrackState::Untracked);
    }
    Some(State {
        not: Not(false),
        states,
    })
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} --state ", self.not)?;
        comma_separated(f, from_bits(to_bits(&self.states)))
    }
}

fn parse(given: &mut Given) -> Result<State, Complaint> {
    let o = given.need(&["--state"])?;
    let states = super::conntrack::states(&o, false)?;
    Ok(State { not: o.not, states })
}
