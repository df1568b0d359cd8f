//! `-j CT` and its alias `-j NOTRACK`: `struct xt_ct_target_info_v1` (`linux/netfilter/xt_CT.h`), 72 bytes, the last
//! 8 of which are private to the kernel; the older `struct xt_ct_target_info` has 40.

use super::super::matches::conntrack::Direction;
use super::super::prelude::*;

/// How connection tracking treats the packet.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
#[doc(alias = "xt_ct_target_info_v1")]
pub struct Ct {
    /// `--notrack`: the packet is not tracked.
    pub notrack: bool,
    /// `--zone`, `--zone-orig`, `--zone-reply`
    pub zone: Option<Zone>,
    /// `--helper`: a name of at most 15 bytes; empty for no helper.
    pub helper: String,
    /// `--timeout`: the name of a timeout policy, at most 31 bytes; empty for no policy.
    pub timeout: String,
    /// `--ctevents`: one bit for each value of `enum ip_conntrack_events`.
    pub events: u32,
    /// `--expevents`: one bit for each value of `enum ip_conntrack_expect_events`.
    pub expect_events: u32,
}

impl Ct {
    /// `--zone N` without further options: both directions.
    #[must_use]
    pub fn in_zone(id: u16) -> Self {
        let zone = Zone {
            id: Some(id),
            direction: None,
        };
        Self {
            zone: Some(zone),
            ..Self::default()
        }
    }
}

/// `-j NOTRACK` has no options.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[doc(alias = "XT_CT_NOTRACK_ALIAS")]
pub struct Notrack;

/// The conntrack zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[doc(alias = "XT_CT_ZONE_DIR_ORIG")]
pub struct Zone {
    /// The zone; `None` for the packet's mark (`--zone mark`).
    pub id: Option<u16>,
    /// Only for this direction.
    pub direction: Option<Direction>,
}

#[rustfmt::skip]
const EVENTS: Bits = Bits(&[
    "new", "related", "destroy", "reply", "assured", "protoinfo", "helper", "mark", "natseqinfo", "secmark", "label",
]);
const EXPECT_EVENTS: Bits = Bits(&["new"]);

#[rustfmt::skip]
pub(crate) const KIND: Kind<Ct> = Kind {
    name: "CT",
    forms: |_| forms!["CT" 2, "CT" 1, "CT" 0],
    encode,
    decode,
    options: &[
        ("--notrack", 0), ("--zone", 1), ("--zone-orig", 1), ("--zone-reply", 1), ("--helper", 1),
        ("--timeout", 1), ("--ctevents", 1), ("--expevents", 1),
    ],
    parse,
};

/// A structure with further fields set is an [`Unknown`](super::super::Unknown), because iptables does not print them.
pub(crate) const NOTRACK: Kind<Notrack> = Kind {
    name: "NOTRACK",
    forms: |_| forms!["CT" 2],
    encode: |_, _, _| {
        Ok(Some(written(&XtCtTargetInfoV1 {
            flags: XT_CT_NOTRACK | XT_CT_NOTRACK_ALIAS,
            ..zeroed()
        })))
    },
    decode: |_, b, _| {
        let w: XtCtTargetInfo = read(b)?;
        (w.flags == XT_CT_NOTRACK | XT_CT_NOTRACK_ALIAS).then_some(Notrack)
    },
    options: &[],
    parse: |_| Ok(Notrack),
};

fn encode(v: &Ct, form: Form, _: &Context<'_>) -> Encoded {
    let mut flags = if v.notrack { XT_CT_NOTRACK } else { 0 };
    if let Some(zone) = v.zone {
        flags |= match zone.direction {
            Some(Direction::Original) => XT_CT_ZONE_DIR_ORIG,
            Some(Direction::Reply) => XT_CT_ZONE_DIR_REPL,
            None => 0,
        };
        flags |= if zone.id.is_none() {
            XT_CT_ZONE_MARK
        } else {
            0
        };
    }
    // Revisions 0 and 1 refuse every flag but the first.
    if form.revision < 2 && flags & !XT_CT_NOTRACK != 0
        || form.revision == 0 && !v.timeout.is_empty()
    {
        return Ok(None);
    }
    if !has_names(v) {
        return Err("an event has no name".into());
    }
    let zone = v.zone.and_then(|z| z.id).unwrap_or(0);
    let helper = name_field(&v.helper).ok_or("a helper's name has at most 15 bytes")?;
    let timeout = name_field(&v.timeout).ok_or("a timeout policy's name has at most 31 bytes")?;
    let mut wire = written(&XtCtTargetInfoV1 {
        flags,
        zone,
        ct_events: v.events,
        exp_events: v.expect_events,
        helper,
        timeout,
        ..zeroed()
    });
    if form.revision == 0 {
        // Without a timeout, the old structure is the beginning of the new one.
        wire.truncate(size_of::<XtCtTargetInfo>());
    }
    Ok(Some(wire))
}

fn decode(form: Form, b: &[u8], _: &Context<'_>) -> Option<Ct> {
    let w: XtCtTargetInfo = read(b)?;
    let has = |bit| w.flags & bit != 0;
    let direction = match (has(XT_CT_ZONE_DIR_ORIG), has(XT_CT_ZONE_DIR_REPL)) {
        (true, false) => Some(Direction::Original),
        (false, true) => Some(Direction::Reply),
        _ => None,
    };
    let by_mark = has(XT_CT_ZONE_MARK);
    let zoned = w.zone != 0 || by_mark || direction.is_some();
    let ct = Ct {
        notrack: has(XT_CT_NOTRACK),
        zone: zoned.then_some(Zone {
            id: (!by_mark).then_some(w.zone),
            direction,
        }),
        helper: name_of(&w.helper)?,
        timeout: match form.revision {
            0 => String::new(),
            _ => name_of(&read::<XtCtTargetInfoV1>(b)?.timeout)?,
        },
        events: w.ct_events,
        expect_events: w.exp_events,
    };
    has_names(&ct).then_some(ct)
}

/// False if a bit of the events has no name, and so no text form.
fn has_names(v: &Ct) -> bool {
    let all = |events: u32, names: &Bits| events >> names.0.len() == 0;
    all(v.events, &EVENTS) && all(v.expect_events, &EXPECT_EVENTS)
}

impl fmt::Display for Notrack {
    fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
        Ok(())
    }
}

impl fmt::Display for Ct {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.notrack { " --notrack" } else { "" })?;
        for (option, name) in [("--helper", &self.helper), ("--timeout", &self.timeout)] {
            if !name.is_empty() {
                write!(f, " {option} {}", Quoted(name))?;
            }
        }
        for (option, events, names) in [
            ("--ctevents", self.events, &EVENTS),
            ("--expevents", self.expect_events, &EXPECT_EVENTS),
        ] {
            if events != 0 {
                write!(f, " {option} ")?;
                names.show(f, events)?;
            }
        }
        let Some(zone) = self.zone else { return Ok(()) };
        f.write_str(match zone.direction {
            Some(Direction::Original) => " --zone-orig ",
            Some(Direction::Reply) => " --zone-reply ",
            None => " --zone ",
        })?;
        match zone.id {
            Some(id) => write!(f, "{id}"),
            None => f.write_str("mark"),
        }
    }
}

/// Parses names of events; iptables distinguishes upper and lower case.
fn events(o: &Opt, known: &Bits) -> Result<u32, Complaint> {
    match o.plain()?.word(0).contains(char::is_uppercase) {
        true => Err(o.wrong("is no event; give lower case")),
        false => known.read(o, 0, "is no event", |_| None),
    }
}

fn parse(given: &mut Given) -> Result<Ct, Complaint> {
    let mut v = Ct {
        notrack: given.flag("--notrack")?,
        ..Ct::default()
    };
    for (name, direction) in [
        ("--zone", None),
        ("--zone-orig", Some(Direction::Original)),
        ("--zone-reply", Some(Direction::Reply)),
    ] {
        if let Some(o) = given.take(&[name]) {
            if v.zone.is_some() {
                return Err(given.conflict("--zone, --zone-orig and --zone-reply"));
            }
            let id = if o.plain()?.word(0).eq_ignore_ascii_case("mark") {
                None
            } else {
                Some(o.number(0)?)
            };
            v.zone = Some(Zone { id, direction });
        }
    }
    if let Some(o) = given.take(&["--helper"]) {
        o.plain()?.word(0).clone_into(&mut v.helper);
    }
    if let Some(o) = given.take(&["--timeout"]) {
        o.plain()?.word(0).clone_into(&mut v.timeout);
    }
    if let Some(o) = given.take(&["--ctevents"]) {
        v.events = events(&o, &EVENTS)?;
    }
    if let Some(o) = given.take(&["--expevents"]) {
        v.expect_events = events(&o, &EXPECT_EVENTS)?;
    }
    Ok(v)
}
