//! `-m multiport`: `struct xt_multiport_v1` (`linux/netfilter/xt_multiport.h`), 48 bytes, or the older
//! `struct xt_multiport` without ranges, 32 bytes.

use super::super::prelude::*;

/// A list of ports, for protocols with ports: at most 15, a range counts as two.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[doc(alias = "xt_multiport_v1")]
pub struct Multiport {
    /// `!`
    pub not: Not,
    /// Which port of the packet is compared.
    pub side: Side,
    /// In the order in which they are compared and printed.
    pub ports: Vec<PortRange>,
}

/// `enum xt_multiport_flags`
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Side {
    /// `--sports`
    Source,
    /// `--dports`
    Destination,
    /// `--ports`: either of them.
    Either,
}

#[rustfmt::skip]
pub(crate) const KIND: Kind<Multiport> = Kind {
    name: "multiport",
    forms: |_| forms!["multiport" 1, "multiport" 0],
    encode,
    decode,
    options: &[
        ("--sports", 1), ("--source-ports", 1), ("--dports", 1), ("--destination-ports", 1), ("--ports", 1),
    ],
    parse,
};

/// Each side with its number, and the names of its option, of which the first one is printed.
const SIDES: [(Side, u8, &[&str]); 3] = [
    (
        Side::Source,
        XT_MULTIPORT_SOURCE,
        &["--sports", "--source-ports"],
    ),
    (
        Side::Destination,
        XT_MULTIPORT_DESTINATION,
        &["--dports", "--destination-ports"],
    ),
    (Side::Either, XT_MULTIPORT_EITHER, &["--ports"]),
];

const LIMIT: &str = "1 to 15 ports are possible, a range counts as two; use several rules";

fn is_range(p: &PortRange) -> bool {
    p.0.start() != p.0.end()
}

fn encode(v: &Multiport, form: Form, _: &Context<'_>) -> Encoded {
    let mut words: Vec<(u16, u8)> = Vec::new();
    for p in &v.ports {
        words.push((*p.0.start(), u8::from(is_range(p))));
        if is_range(p) {
            words.push((*p.0.end(), 0));
        }
    }
    let count = match u8::try_from(words.len()) {
        Ok(n) if (1..=XT_MULTI_PORTS).contains(&usize::from(n)) => n,
        _ => return Err(LIMIT.into()),
    };
    let old = form.revision == 0;
    if old && (v.not.0 || v.ports.iter().any(is_range)) {
        return Ok(None);
    }
    let side = SIDES.iter().find(|(side, ..)| *side == v.side);
    let flags = side.map_or(0, |(_, flags, _)| *flags);
    let (mut ports, mut pflags) = ([0; XT_MULTI_PORTS], [0; XT_MULTI_PORTS]);
    for ((port, flag), word) in ports.iter_mut().zip(&mut pflags).zip(words) {
        (*port, *flag) = word;
    }
    let mut wire = written(&XtMultiportV1 {
        flags,
        count,
        ports,
        pflags,
        invert: v.not.0.into(),
    });
    if old {
        // The old structure is the beginning of the new one.
        wire.truncate(size_of::<XtMultiport>());
    }
    Ok(Some(wire))
}

fn decode(form: Form, b: &[u8], _: &Context<'_>) -> Option<Multiport> {
    let old: XtMultiport = read(b)?;
    let (pflags, invert) = match form.revision {
        0 => ([0; XT_MULTI_PORTS], 0),
        _ => read(b).map(|w: XtMultiportV1| (w.pflags, w.invert))?,
    };
    let (side, ..) = *SIDES.iter().find(|(_, flags, _)| *flags == old.flags)?;
    let mut words = old.ports.into_iter().zip(pflags).take(old.count.into());
    let mut ports = Vec::new();
    while let Some((first, is_range)) = words.next() {
        let last = match is_range {
            0 => first,
            _ => words.next()?.0,
        };
        ports.push(PortRange(first..=last));
    }
    Some(Multiport {
        not: Not(invert != 0),
        side,
        ports,
    })
}

impl fmt::Display for Multiport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut sides = SIDES.iter().filter(|(side, ..)| *side == self.side);
        let option = sides.find_map(|(_, _, names)| names.first()).unwrap_or(&"");
        write!(f, "{} {option} ", self.not)?;
        comma_separated(f, &self.ports)
    }
}

fn parse(given: &mut Given) -> Result<Multiport, Complaint> {
    let with_ports = [6, 17, 33, 132, 136].map(Protocol);
    given.of_protocol(&with_ports, "tcp, udp, udplite, sctp or dccp")?;
    for (side, _, names) in SIDES {
        if let Some(o) = given.take(names) {
            let mut ports = Vec::new();
            let mut count = 0;
            for word in o.word(0).split(',') {
                let port = o.range(word)?;
                count += 1 + usize::from(is_range(&port));
                if count > XT_MULTI_PORTS {
                    return Err(o.wrong(LIMIT));
                }
                ports.push(port);
            }
            return Ok(Multiport {
                not: o.not,
                side,
                ports,
            });
        }
    }
    Err(given.lacks("--sports, --dports or --ports"))
}
