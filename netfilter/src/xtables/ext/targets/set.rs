//! `-j SET`: `struct xt_set_info_target_v1` to `v3` (`linux/netfilter/xt_set.h`): 8, 16 and 20 bytes.

use super::super::matches::set::{SetRef, parse_set, set_info, set_ref};
use super::super::{Context, Encoded, Form, Kind, forms};
use crate::xtables::bytes::{Build, Bytes};
use crate::xtables::raw::*;
use crate::xtables::text::{Complaint, Given};
use crate::xtables::{Not, Target};
use std::fmt;

/// Changes sets; the packet continues with the next rule.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
#[doc(alias = "xt_set_info_target_v3")]
pub struct SetTarget {
    /// `--add-set`
    pub add: Option<SetRef>,
    /// `--exist`: an existing element gets the new timeout.
    pub exist: bool,
    /// `--timeout`, in seconds; `None` is the set's default.
    pub timeout: Option<u32>,
    /// `--del-set`
    pub del: Option<SetRef>,
    /// `--map-set`: copies the element's mark, priority and queue to the packet, according to `map_flags` (revision
    /// 3).
    pub map: Option<SetRef>,
    /// `--map-mark`, `--map-prio`, `--map-queue`: `IPSET_FLAG_MAP_*`.
    pub map_flags: u32,
}

const MAP: &[(&str, u32)] = &[
    ("--map-mark", IPSET_FLAG_MAP_SKBMARK),
    ("--map-prio", IPSET_FLAG_MAP_SKBPRIO),
    ("--map-queue", IPSET_FLAG_MAP_SKBQUEUE),
];

/// `linux/netfilter/ipset/ip_set.h`: the kernel silently reduces a longer timeout to this.
const IPSET_MAX_TIMEOUT: u32 = 2_147_483;

pub(crate) const KIND: Kind<Target> = Kind {
    name: "SET",
    forms: |_| forms!["SET" 3, "SET" 2, "SET" 1],
    encode,
    decode,
    options: &[
        ("--add-set", 2),
        ("--exist", 0),
        ("--timeout", 1),
        ("--del-set", 2),
        ("--map-set", 2),
        ("--map-mark", 0),
        ("--map-prio", 0),
        ("--map-queue", 0),
    ],
    parse,
};

fn encode(target: &Target, form: Form, cx: &Context<'_>) -> Encoded {
    let Target::Set(v) = target else {
        return Ok(None);
    };
    if v.timeout.is_some_and(|t| t > IPSET_MAX_TIMEOUT) {
        return Err("the timeout of an entry is at most 2147483 seconds; lower --timeout".into());
    }
    if form.revision < 3 && v.map.is_some() || form.revision < 2 && (v.exist || v.timeout.is_some())
    {
        return Ok(None);
    }
    let mut wire = Build::new();
    let sets = [&v.add, &v.del, &v.map];
    for set in sets
        .into_iter()
        .take(if form.revision == 3 { 3 } else { 2 })
    {
        let (index, dim, flags) = match set {
            Some(set) => set_info(set, Not(false), cx)?,
            None => (IPSET_INVALID_ID, 0, 0),
        };
        wire = wire.u16(index).u8(dim).u8(flags);
    }
    if form.revision >= 2 {
        let exist = if v.exist { IPSET_FLAG_EXIST } else { 0 };
        wire = wire
            .u32(exist | v.map_flags)
            .u32(v.timeout.unwrap_or(u32::MAX));
    }
    Ok(Some(wire.done()))
}

fn decode(form: Form, b: Bytes<'_>, cx: &Context<'_>) -> Option<Target> {
    let set = |at: usize| match b.u16(at)? {
        IPSET_INVALID_ID => Some(None),
        index => set_ref(index, b.u8(at + 2)?, b.u8(at + 3)?, cx).map(Some),
    };
    let mut v = SetTarget {
        add: set(0)?,
        del: set(4)?,
        ..SetTarget::default()
    };
    let at = match form.revision {
        1 => return Some(Target::Set(v)),
        2 => 8,
        _ => 12,
    };
    if form.revision == 3 {
        v.map = set(8)?;
    }
    let flags = b.u32(at)?;
    v.exist = flags & IPSET_FLAG_EXIST != 0;
    v.map_flags = flags & !IPSET_FLAG_EXIST;
    v.timeout = Some(b.u32(at + 4)?).filter(|t| *t != u32::MAX);
    Some(Target::Set(v))
}

impl fmt::Display for SetTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.add
            .iter()
            .try_for_each(|set| write!(f, " --add-set {set}"))?;
        f.write_str(if self.exist { " --exist" } else { "" })?;
        self.timeout
            .iter()
            .try_for_each(|t| write!(f, " --timeout {t}"))?;
        self.del
            .iter()
            .try_for_each(|set| write!(f, " --del-set {set}"))?;
        self.map
            .iter()
            .try_for_each(|set| write!(f, " --map-set {set}"))?;
        let mut set = MAP.iter().filter(|(_, bit)| self.map_flags & bit != 0);
        set.try_for_each(|(option, _)| write!(f, " {option}"))
    }
}

fn parse(given: &mut Given) -> Result<Target, Complaint> {
    let mut set = |name: &str| {
        given
            .take(&[name])
            .map(|o| parse_set(o.plain()?))
            .transpose()
    };
    let mut v = SetTarget {
        add: set("--add-set")?,
        del: set("--del-set")?,
        map: set("--map-set")?,
        ..SetTarget::default()
    };
    if let Some(o) = given.take(&["--timeout"]) {
        v.timeout = Some(o.plain()?.number(0)?);
    }
    v.exist = given.flag("--exist")?;
    for (option, bit) in MAP {
        v.map_flags |= if given.flag(option)? { *bit } else { 0 };
    }
    if v.add.is_none() && v.del.is_none() && v.map.is_none() {
        return Err(given.lacks("--add-set, --del-set or --map-set"));
    }
    Ok(Target::Set(v))
}
