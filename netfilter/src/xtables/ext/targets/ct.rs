//! `-j CT` and its alias `-j NOTRACK`: `struct xt_ct_target_info_v1` (`linux/netfilter/xt_CT.h`), 72 bytes, the last
//! 8 of which are private to the kernel; the older `struct xt_ct_target_info` has 40.

use super::super::structs::{XtCtTargetInfo, XtCtTargetInfoV1};
use super::super::{Context, Encoded, Form, Kind, Quoted, comma_separated, forms};
use crate::xtables::Target;
use crate::xtables::raw::*;
use crate::xtables::structs::{name_field, name_of, read, written, zeroed};
use crate::xtables::text::{Complaint, Given, Opt};
use std::fmt;

/// How connection tracking treats the packet. Only in `raw`.
///
/// `CT --zone N` without further options is [`Target::CtZone`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
#[doc(alias = "xt_ct_target_info_v1")]
pub struct Ct {
    /// `--notrack`: the packet is not tracked.
    pub notrack: Notrack,
    /// `--zone`, `--zone-orig`, `--zone-reply`
    pub zone: Option<Zone>,
    /// `--helper`: at most 15 bytes; empty is none.
    pub helper: String,
    /// `--timeout`: the name of a policy, at most 31 bytes; empty is none.
    pub timeout: String,
    /// `--ctevents`: bits by `enum ip_conntrack_events`.
    pub events: u32,
    /// `--expevents`: bits by `enum ip_conntrack_expect_events`.
    pub expect_events: u32,
}

/// Whether the packet is exempt from tracking.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Notrack {
    /// The packet is tracked.
    #[default]
    No,
    /// `CT --notrack`
    Ct,
    /// `-j NOTRACK`: not tracked, written with the old name.
    Alias,
}

/// The conntrack zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[doc(alias = "XT_CT_ZONE_DIR_ORIG")]
pub struct Zone {
    /// The zone; `None` takes it from the packet's mark.
    pub id: Option<u16>,
    /// Only for this direction.
    pub direction: Option<super::super::matches::conntrack::Direction>,
}

use super::super::matches::conntrack::Direction;

const EVENTS: [&str; 11] = [
    "new",
    "related",
    "destroy",
    "reply",
    "assured",
    "protoinfo",
    "helper",
    "mark",
    "natseqinfo",
    "secmark",
    "label",
];

pub(crate) const KIND: Kind<Target> = Kind {
    name: "CT",
    forms: |_| forms!["CT" 2, "CT" 1, "CT" 0],
    encode,
    decode,
    options: &[
        ("--notrack", 0),
        ("--zone", 1),
        ("--zone-orig", 1),
        ("--zone-reply", 1),
        ("--helper", 1),
        ("--timeout", 1),
        ("--ctevents", 1),
        ("--expevents", 1),
    ],
    parse,
};

pub(crate) const NOTRACK: Kind<Target> = Kind {
    name: "NOTRACK",
    // The kind above encodes and decodes it.
    forms: |_| &[],
    encode: |_, _, _| Ok(None),
    decode: |_, _, _| None,
    options: &[],
    parse: |_| {
        Ok(Target::Ct(Ct {
            notrack: Notrack::Alias,
            ..Ct::default()
        }))
    },
};

fn encode(target: &Target, form: Form, _: &Context<'_>) -> Encoded {
    let v = match target {
        Target::CtZone(id) => Ct {
            zone: Some(Zone {
                id: Some(*id),
                direction: None,
            }),
            ..Ct::default()
        },
        Target::Ct(v) => v.clone(),
        _ => return Ok(None),
    };
    let mut flags = match v.notrack {
        Notrack::No => 0,
        Notrack::Ct => XT_CT_NOTRACK,
        Notrack::Alias => XT_CT_NOTRACK | XT_CT_NOTRACK_ALIAS,
    };
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
    let zone = v.zone.and_then(|z| z.id).unwrap_or(0);
    let helper = name_field(&v.helper).ok_or("a helper's name has at most 15 bytes")?;
    let timeout = name_field(&v.timeout).ok_or("a timeout policy's name has at most 31 bytes")?;
    let (ct_events, exp_events) = (v.events, v.expect_events);
    Ok(Some(match form.revision {
        0 => written(&XtCtTargetInfo {
            flags,
            zone,
            ct_events,
            exp_events,
            helper,
            ..zeroed()
        }),
        _ => written(&XtCtTargetInfoV1 {
            flags,
            zone,
            ct_events,
            exp_events,
            helper,
            timeout,
            ..zeroed()
        }),
    }))
}

fn decode(form: Form, b: &[u8], _: &Context<'_>) -> Option<Target> {
    let w: XtCtTargetInfo = read(b)?;
    let has = |bit| w.flags & bit != 0;
    let direction = match (has(XT_CT_ZONE_DIR_ORIG), has(XT_CT_ZONE_DIR_REPL)) {
        (true, false) => Some(Direction::Original),
        (false, true) => Some(Direction::Reply),
        _ => None,
    };
    let by_mark = has(XT_CT_ZONE_MARK);
    let zoned = w.zone != 0 || by_mark || direction.is_some();
    let v = Ct {
        notrack: match (has(XT_CT_NOTRACK), has(XT_CT_NOTRACK_ALIAS)) {
            (true, true) => Notrack::Alias,
            (true, false) => Notrack::Ct,
            _ => Notrack::No,
        },
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
    Some(shortest(v))
}

/// Each target has one canonical value.
fn shortest(v: Ct) -> Target {
    match v.zone {
        Some(Zone {
            id: Some(id),
            direction: None,
        }) if v
            == (Ct {
                zone: v.zone,
                ..Ct::default()
            }) =>
        {
            Target::CtZone(id)
        }
        _ => Target::Ct(v),
    }
}

impl fmt::Display for Ct {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.notrack {
            Notrack::Alias => return Ok(()),
            Notrack::Ct => f.write_str(" --notrack")?,
            Notrack::No => {}
        }
        for (option, name) in [("--helper", &self.helper), ("--timeout", &self.timeout)] {
            if !name.is_empty() {
                write!(f, " {option} {}", Quoted(name))?;
            }
        }
        for (option, events) in [
            ("--ctevents", self.events),
            ("--expevents", self.expect_events),
        ] {
            if events != 0 {
                write!(f, " {option} ")?;
                let named = EVENTS
                    .iter()
                    .enumerate()
                    .filter(|(n, _)| events & (1 << n) != 0);
                comma_separated(f, named.map(|(_, name)| name))?;
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

fn events(o: &Opt, known: &[&str]) -> Result<u32, Complaint> {
    o.plain()?.word(0).split(',').try_fold(0, |all, word| {
        let n = known.iter().position(|name| *name == word);
        n.map(|n| all | 1 << n)
            .ok_or_else(|| o.wrong(&format!("is no event; give {}", known.join(", "))))
    })
}

fn parse(given: &mut Given) -> Result<Target, Complaint> {
    let mut v = Ct::default();
    if given.flag("--notrack")? {
        v.notrack = Notrack::Ct;
    }
    for (name, direction) in [
        ("--zone", None),
        ("--zone-orig", Some(Direction::Original)),
        ("--zone-reply", Some(Direction::Reply)),
    ] {
        if let Some(o) = given.take(&[name]) {
            let id = if o.plain()?.word(0) == "mark" {
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
        v.expect_events = events(&o, &["new"])?;
    }
    Ok(shortest(v))
}
