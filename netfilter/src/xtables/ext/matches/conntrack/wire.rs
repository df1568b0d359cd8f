//! The structures of the three revisions.

use super::super::super::prelude::*;
use super::{ADDRESS_OPTIONS, Conntrack, Direction, PORT_OPTIONS, from_bits, to_bits};
use ipnet::IpNet;
use std::net::{IpAddr, Ipv4Addr};

/// `XT_CONNTRACK_STATE_ALIAS`: the rule was written with `-m state`.
pub(super) struct WithAlias(pub(super) bool);

pub(super) fn conntrack_wire(
    v: &Conntrack,
    form: Form,
    family: XtFamily,
    alias: WithAlias,
) -> Encoded {
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
        // iptables sets all 16 bytes of the mask of a single address.
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

/// Converts the structure to that of another revision. Values that do not fit were refused before.
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

pub(super) fn conntrack_value(
    form: Form,
    b: &[u8],
    family: XtFamily,
) -> Option<(Conntrack, WithAlias)> {
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
