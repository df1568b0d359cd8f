//! `-j SET`: `struct xt_set_info_target_v1` to `v3` (`linux/netfilter/xt_set.h`): 8, 16 and 20 bytes.

use super::super::matches::set::{SetRef, parse_set, set_info, set_ref};
use super::super::prelude::*;

/// Changes sets; the packet continues with the next rule.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
#[doc(alias = "xt_set_info_target_v3")]
pub struct SetTarget {
    /// `--add-set`
    pub add: Option<SetRef>,
    /// `--exist`: an existing element gets the new timeout.
    pub exist: bool,
    /// `--timeout`, in seconds; `None` for the set's default. When a packet adds an element, the kernel reduces it to 2,147,483.
    pub timeout: Option<u32>,
    /// `--del-set`
    pub del: Option<SetRef>,
    /// `--map-set`: copies the element's mark, priority and queue to the packet, according to `map_flags` (revision 3).
    pub map: Option<SetRef>,
    /// `--map-mark`, `--map-prio`, `--map-queue`: `IPSET_FLAG_MAP_*`.
    pub map_flags: u32,
}

const MAP: &[(&str, u32)] = &[
    ("--map-mark", IPSET_FLAG_MAP_SKBMARK),
    ("--map-prio", IPSET_FLAG_MAP_SKBPRIO),
    ("--map-queue", IPSET_FLAG_MAP_SKBQUEUE),
];

#[rustfmt::skip]
pub(crate) const KIND: Kind<SetTarget> = Kind {
    name: "SET",
    forms: |_| forms!["SET" 3, "SET" 2, "SET" 1],
    encode,
    decode,
    options: &[
        ("--add-set", 2), ("--exist", 0), ("--timeout", 1), ("--del-set", 2), ("--map-set", 2),
        ("--map-mark", 0), ("--map-prio", 0), ("--map-queue", 0),
    ],
    parse,
};

fn encode(v: &SetTarget, form: Form, cx: &Context<'_>) -> Encoded {
    if v.timeout == Some(NO_TIMEOUT) {
        return Err("a timeout is at most 4294967294 seconds; lower --timeout".into());
    }
    if form.revision < 3 && v.map.is_some() || form.revision < 2 && (v.exist || v.timeout.is_some())
    {
        return Ok(None);
    }
    let info = |set: &Option<SetRef>| match set {
        Some(set) => set_info(set, Not(false), cx),
        None => Ok(NO_SET),
    };
    let (add_set, del_set, map_set) = (info(&v.add)?, info(&v.del)?, info(&v.map)?);
    let flags = v.map_flags | if v.exist { IPSET_FLAG_EXIST } else { 0 };
    let timeout = v.timeout.unwrap_or(NO_TIMEOUT);
    Ok(Some(match form.revision {
        1 => written(&XtSetInfoTargetV1 { add_set, del_set }),
        2 => written(&XtSetInfoTargetV2 {
            add_set,
            del_set,
            flags,
            timeout,
        }),
        _ => written(&XtSetInfoTargetV3 {
            add_set,
            del_set,
            map_set,
            flags,
            timeout,
        }),
    }))
}

fn decode(form: Form, b: &[u8], cx: &Context<'_>) -> Option<SetTarget> {
    let w: XtSetInfoTargetV1 = read(b)?;
    let (map_set, flags, timeout) = match form.revision {
        1 => (NO_SET, 0, NO_TIMEOUT),
        2 => read(b).map(|w: XtSetInfoTargetV2| (NO_SET, w.flags, w.timeout))?,
        _ => read(b).map(|w: XtSetInfoTargetV3| (w.map_set, w.flags, w.timeout))?,
    };
    let set = |set: XtSetInfo| match set.index {
        IPSET_INVALID_ID => Some(None),
        _ => set_ref(set, cx).map(Some),
    };
    Some(SetTarget {
        add: set(w.add_set)?,
        del: set(w.del_set)?,
        map: set(map_set)?,
        exist: flags & IPSET_FLAG_EXIST != 0,
        map_flags: flags & !IPSET_FLAG_EXIST,
        timeout: Some(timeout).filter(|t| *t != NO_TIMEOUT),
    })
}

/// The encoding of a timeout that is not given.
const NO_TIMEOUT: u32 = u32::MAX;

/// The encoding of a set that is not given.
const NO_SET: XtSetInfo = XtSetInfo {
    index: IPSET_INVALID_ID,
    dim: 0,
    flags: 0,
};

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

fn parse(given: &mut Given) -> Result<SetTarget, Complaint> {
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
    if v.add.is_none() && (v.exist || v.timeout.is_some()) {
        return Err(given.lacks("--add-set for --exist or --timeout"));
    }
    if v.map.is_some() != (v.map_flags != 0) {
        return Err(given.lacks("both --map-set and --map-mark, --map-prio or --map-queue"));
    }
    Ok(v)
}
