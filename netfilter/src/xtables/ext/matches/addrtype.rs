//! `-m addrtype`: `struct xt_addrtype_info_v1` (`linux/netfilter/xt_addrtype.h`), 8 bytes, or the older
//! `struct xt_addrtype_info`, 12 bytes, only IPv4.

use super::super::prelude::*;

/// The types of the packet's addresses according to the routing tables.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[doc(alias = "xt_addrtype_info_v1")]
pub struct Addrtype {
    /// `--src-type`: bits of `XT_ADDRTYPE_*`, one for each `RTN_*`.
    pub source: Option<(Not, u16)>,
    /// `--dst-type`
    pub destination: Option<(Not, u16)>,
    /// `--limit-iface-in` or `--limit-iface-out`: routes of that interface only.
    pub limit: Option<LimitIface>,
}

/// The interface that the routes must use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LimitIface {
    /// `--limit-iface-in`
    In,
    /// `--limit-iface-out`
    Out,
}

/// Names of the types in the order of `enum rtn_type`.
#[rustfmt::skip]
const TYPES: Bits = Bits(&[
    "UNSPEC", "UNICAST", "LOCAL", "BROADCAST", "ANYCAST", "MULTICAST", "BLACKHOLE", "UNREACHABLE", "PROHIBIT",
    "THROW", "NAT", "XRESOLVE",
]);

pub(crate) const KIND: Kind<Addrtype> = Kind {
    name: "addrtype",
    forms: |family| match family {
        XtFamily::Ip => forms!["addrtype" 1, "addrtype" 0],
        XtFamily::Ip6 => forms!["addrtype" 1],
    },
    encode,
    decode,
    options: &[
        ("--src-type", 1),
        ("--dst-type", 1),
        ("--limit-iface-in", 0),
        ("--limit-iface-out", 0),
    ],
    parse,
};

fn encode(v: &Addrtype, form: Form, _: &Context<'_>) -> Encoded {
    let (source, destination) = (
        v.source.unwrap_or_default(),
        v.destination.unwrap_or_default(),
    );
    if form.revision == 0 {
        let old = XtAddrtypeInfo {
            source: source.1,
            dest: destination.1,
            invert_source: source.0.0.into(),
            invert_dest: destination.0.0.into(),
        };
        return Ok(v.limit.is_none().then(|| written(&old)));
    }
    let flags = (u32::from(source.0.0) * XT_ADDRTYPE_INVERT_SOURCE)
        | (u32::from(destination.0.0) * XT_ADDRTYPE_INVERT_DEST)
        | match v.limit {
            Some(LimitIface::In) => XT_ADDRTYPE_LIMIT_IFACE_IN,
            Some(LimitIface::Out) => XT_ADDRTYPE_LIMIT_IFACE_OUT,
            None => 0,
        };
    Ok(Some(written(&XtAddrtypeInfoV1 {
        source: source.1,
        dest: destination.1,
        flags,
    })))
}

fn decode(form: Form, b: &[u8], _: &Context<'_>) -> Option<Addrtype> {
    let types = |not: bool, bits: u16| (not || bits != 0).then_some((Not(not), bits));
    if form.revision == 0 {
        let w: XtAddrtypeInfo = read(b)?;
        return Some(Addrtype {
            source: types(w.invert_source != 0, w.source),
            destination: types(w.invert_dest != 0, w.dest),
            limit: None,
        });
    }
    let w: XtAddrtypeInfoV1 = read(b)?;
    let limit = match w.flags & (XT_ADDRTYPE_LIMIT_IFACE_IN | XT_ADDRTYPE_LIMIT_IFACE_OUT) {
        XT_ADDRTYPE_LIMIT_IFACE_IN => Some(LimitIface::In),
        XT_ADDRTYPE_LIMIT_IFACE_OUT => Some(LimitIface::Out),
        _ => None,
    };
    let has = |bit| w.flags & bit != 0;
    Some(Addrtype {
        source: types(has(XT_ADDRTYPE_INVERT_SOURCE), w.source),
        destination: types(has(XT_ADDRTYPE_INVERT_DEST), w.dest),
        limit,
    })
}

impl fmt::Display for Addrtype {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (option, types) in [
            ("--src-type", self.source),
            ("--dst-type", self.destination),
        ] {
            let Some((not, bits)) = types else { continue };
            write!(f, "{not} {option} ")?;
            TYPES.show(f, bits.into())?;
        }
        match self.limit {
            Some(LimitIface::In) => f.write_str(" --limit-iface-in"),
            Some(LimitIface::Out) => f.write_str(" --limit-iface-out"),
            None => Ok(()),
        }
    }
}

fn types(o: &Opt) -> Result<(Not, u16), Complaint> {
    let bits = TYPES.read(o, 0, "is no address type", |_| None)?;
    Ok((o.not, u16::try_from(bits).unwrap_or(0)))
}

fn parse(given: &mut Given) -> Result<Addrtype, Complaint> {
    let source = given.take(&["--src-type"]).map(|o| types(&o)).transpose()?;
    let destination = given.take(&["--dst-type"]).map(|o| types(&o)).transpose()?;
    let limit = match (
        given.flag("--limit-iface-in")?,
        given.flag("--limit-iface-out")?,
    ) {
        (true, true) => {
            return Err(given.conflict("--limit-iface-in and --limit-iface-out"));
        }
        (true, false) => Some(LimitIface::In),
        (false, true) => Some(LimitIface::Out),
        _ => None,
    };
    if source.is_none() && destination.is_none() {
        return Err(given.lacks("--src-type or --dst-type"));
    }
    Ok(Addrtype {
        source,
        destination,
        limit,
    })
}
