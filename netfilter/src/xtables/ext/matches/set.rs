//! `-m set`: `struct xt_set_info_match_v0` to `v4` (`linux/netfilter/xt_set.h`): 32 bytes in revision 0, 4 in 1 and 2, 48 in 3 and 4.
//!
//! The kernel stores the index of the set. A swap of sets does not change it, and it is reused after a set is destroyed.
//! [`Sets`](crate::xtables::Sets) converts between index and name.

use super::super::prelude::*;
use weir_netlink::attr::bytes_of;

/// Whether the packet is in a set.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
#[doc(alias = "xt_set_info_match_v4")]
pub struct SetMatch {
    /// `!`
    pub not: Not,
    /// The set, and which parts of the packet are looked up.
    pub set: SetRef,
    /// `--return-nomatch`: elements with `nomatch` match.
    pub return_nomatch: bool,
    /// `! --update-counters`: the element's counters are not updated.
    pub keep_counters: bool,
    /// `! --update-subcounters`: the counters of elements in the member sets of a list are not updated.
    pub keep_subcounters: bool,
    /// `--packets-eq` and similar.
    pub packets: Option<(Compare, u64)>,
    /// `--bytes-eq` and similar.
    pub bytes: Option<(Compare, u64)>,
}

/// `NAME src,dst`
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct SetRef {
    /// The set's name, at most 31 bytes.
    pub name: String,
    /// For each of the set's 1 to 6 dimensions, whether the packet's source is looked up.
    pub source: Vec<bool>,
}

/// How an element's counter is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Compare {
    /// `--packets-eq`
    Equal,
    /// `! --packets-eq`
    NotEqual,
    /// `--packets-lt`
    Less,
    /// `--packets-gt`
    Greater,
}

#[rustfmt::skip]
pub(crate) const KIND: Kind<SetMatch> = Kind {
    name: "set",
    forms: |family| match family {
        XtFamily::Ip => forms!["set" 4, "set" 3, "set" 2, "set" 1, "set" 0],
        XtFamily::Ip6 => forms!["set" 4, "set" 3, "set" 2, "set" 1],
    },
    encode,
    decode,
    options: &[
        ("--match-set", 2), ("--return-nomatch", 0), ("--update-counters", 0), ("--update-subcounters", 0),
        ("--packets-eq", 1), ("--packets-lt", 1), ("--packets-gt", 1), ("--bytes-eq", 1), ("--bytes-lt", 1),
        ("--bytes-gt", 1),
    ],
    parse,
};

/// The index of the set, the number of dimensions, and which of them are sources.
pub(crate) fn set_info(set: &SetRef, not: Not, cx: &Context<'_>) -> Result<XtSetInfo, String> {
    if set.source.is_empty() || set.source.len() > IPSET_DIM_MAX {
        return Err("a set has 1 to 6 dimensions; give src or dst for each".into());
    }
    let index = cx
        .sets
        .index(cx.family, &set.name)
        .map_err(|e| e.to_string())?;
    let (mut dim, mut flags) = (0, u8::from(not.0) * IPSET_INV_MATCH);
    for source in &set.source {
        dim += 1;
        flags |= u8::from(*source) << dim;
    }
    Ok(XtSetInfo { index, dim, flags })
}

/// The reverse; `None` also if the set no longer exists.
pub(crate) fn set_ref(set: XtSetInfo, cx: &Context<'_>) -> Option<SetRef> {
    let XtSetInfo { index, dim, flags } = set;
    if dim == 0 || usize::from(dim) > IPSET_DIM_MAX {
        return None;
    }
    let name = cx.sets.name(index).ok()??;
    Some(SetRef {
        name,
        source: (1..=dim).map(|d| flags & (1 << d) != 0).collect(),
    })
}

fn encode(v: &SetMatch, form: Form, cx: &Context<'_>) -> Encoded {
    let counts = v.keep_counters || v.keep_subcounters || v.packets.is_some() || v.bytes.is_some();
    if form.revision < 3 && (counts || (v.return_nomatch && form.revision < 2)) {
        return Ok(None);
    }
    let mut match_set = set_info(&v.set, v.not, cx)?;
    if form.revision == 0 {
        // One word per dimension, IPSET_SRC or IPSET_DST; a zero ends the list.
        let mut old = XtSetInfoMatchV0 {
            index: match_set.index,
            ..zeroed()
        };
        for (word, source) in old.flags.iter_mut().zip(&v.set.source) {
            *word = if *source { IPSET_SRC } else { IPSET_DST };
        }
        if let (true, [first, ..]) = (v.not.0, &mut old.flags) {
            *first |= IPSET_MATCH_INV;
        }
        return Ok(Some(written(&old)));
    }
    if form.revision == 2 && v.return_nomatch {
        match_set.flags |= IPSET_RETURN_NOMATCH;
    }
    let flags = v.flags().fold(0, |all, (bit, _)| all | bit);
    let counter = |c: Option<(Compare, u64)>| {
        let found = COMPARES
            .iter()
            .find(|(of, ..)| c.is_some_and(|(c, _)| c == *of));
        let op = found.map_or(IPSET_COUNTER_NONE, |(_, op, ..)| *op);
        let value = c.map_or(0, |(_, n)| n);
        IpSetCounterMatch {
            value,
            op,
            ..zeroed()
        }
    };
    let (packets, bytes) = (counter(v.packets), counter(v.bytes));
    Ok(Some(match form.revision {
        1 | 2 => written(&match_set),
        3 => written(&XtSetInfoMatchV3 {
            match_set,
            packets: packets.into(),
            bytes: bytes.into(),
            flags,
            ..zeroed()
        }),
        _ => written(&XtSetInfoMatchV4 {
            match_set,
            packets,
            bytes,
            flags,
            ..zeroed()
        }),
    }))
}

impl From<IpSetCounterMatch> for IpSetCounterMatch0 {
    fn from(IpSetCounterMatch { value, op, .. }: IpSetCounterMatch) -> Self {
        Self {
            op,
            value,
            ..zeroed()
        }
    }
}

/// Each comparison with its number, and the end of its option; only `eq` can be inverted.
const COMPARES: [(Compare, u8, Not, &str); 4] = [
    (Compare::Equal, IPSET_COUNTER_EQ, Not(false), "eq"),
    (Compare::NotEqual, IPSET_COUNTER_NE, Not(true), "eq"),
    (Compare::Less, IPSET_COUNTER_LT, Not(false), "lt"),
    (Compare::Greater, IPSET_COUNTER_GT, Not(false), "gt"),
];

/// The bits of the fields that are options without arguments; the text of each if it is set.
const FLAGS: [(u32, &str); 3] = [
    (IPSET_FLAG_RETURN_NOMATCH, " --return-nomatch"),
    (IPSET_FLAG_SKIP_COUNTER_UPDATE, " ! --update-counters"),
    (IPSET_FLAG_SKIP_SUBCOUNTER_UPDATE, " ! --update-subcounters"),
];

impl SetMatch {
    fn flags(&self) -> impl Iterator<Item = (u32, &'static str)> {
        let given = [
            self.return_nomatch,
            self.keep_counters,
            self.keep_subcounters,
        ];
        let given = given.into_iter().zip(FLAGS).filter(|(is, _)| *is);
        given.map(|(_, flag)| flag)
    }
}

fn decode(form: Form, b: &[u8], cx: &Context<'_>) -> Option<SetMatch> {
    if form.revision == 0 {
        return old(&read(b)?, cx);
    }
    let set: XtSetInfo = read(b)?;
    let mut v = SetMatch {
        not: Not(set.flags & IPSET_INV_MATCH != 0),
        set: set_ref(set, cx)?,
        return_nomatch: set.flags & IPSET_RETURN_NOMATCH != 0,
        ..SetMatch::default()
    };
    let (packets, bytes, flags) = match form.revision {
        1 | 2 => return Some(v),
        3 => {
            let w: XtSetInfoMatchV3 = read(b)?;
            let counter = |c: IpSetCounterMatch0| (c.op, c.value);
            (counter(w.packets), counter(w.bytes), w.flags)
        }
        _ => {
            let w: XtSetInfoMatchV4 = read(b)?;
            let counter = |c: IpSetCounterMatch| (c.op, c.value);
            (counter(w.packets), counter(w.bytes), w.flags)
        }
    };
    let set = FLAGS.map(|(bit, _)| flags & bit != 0);
    [v.return_nomatch, v.keep_counters, v.keep_subcounters] = set;
    let counter = |(op, value)| {
        let found = COMPARES.iter().find(|(_, n, ..)| *n == op)?;
        Some((found.0, value))
    };
    (v.packets, v.bytes) = (counter(packets), counter(bytes));
    Some(v)
}

/// Decodes revision 0, which has one word per dimension. The kernel writes its own representation to the last word.
fn old(w: &XtSetInfoMatchV0, cx: &Context<'_>) -> Option<SetMatch> {
    let words = w.flags.iter().take(IPSET_DIM_MAX);
    let words: Vec<u32> = words.copied().take_while(|w| *w != 0).collect();
    let name = cx.sets.name(w.index).ok()??;
    let not = words.first().is_some_and(|w| w & IPSET_MATCH_INV != 0);
    let source = words.iter().map(|w| w & IPSET_SRC != 0).collect();
    Some(SetMatch {
        not: Not(not),
        set: SetRef { name, source },
        ..SetMatch::default()
    })
}

impl fmt::Display for SetRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ", self.name)?;
        let side = |source: &bool| if *source { "src" } else { "dst" };
        super::super::comma_separated(f, self.source.iter().map(side))
    }
}

impl fmt::Display for SetMatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} --match-set {}", self.not, self.set)?;
        self.flags().try_for_each(|(_, text)| f.write_str(text))?;
        for (what, counter) in [("packets", self.packets), ("bytes", self.bytes)] {
            let Some((compare, n)) = counter else {
                continue;
            };
            let mut found = COMPARES.iter().filter(|(of, ..)| *of == compare);
            found.try_for_each(|(_, _, not, end)| write!(f, "{not} --{what}-{end} {n}"))?;
        }
        Ok(())
    }
}

/// `NAME DIR[,DIR...]`
pub(crate) fn parse_set(o: &Opt) -> Result<SetRef, Complaint> {
    let name = o.word(0);
    if name.is_empty() || bytes_of(name).len() >= IPSET_MAXNAMELEN {
        return Err(o.wrong("is no name of a set; give 1 to 31 bytes"));
    }
    let source: Result<Vec<bool>, Complaint> = o
        .word(1)
        .split(',')
        .map(|word| match word {
            "src" => Ok(true),
            "dst" => Ok(false),
            _ => Err(o.wrong("give src or dst for each dimension of the set")),
        })
        .collect();
    let source = source?;
    if source.len() > IPSET_DIM_MAX {
        return Err(o.wrong("a set has at most 6 dimensions"));
    }
    Ok(SetRef {
        name: name.to_owned(),
        source,
    })
}

fn parse(given: &mut Given) -> Result<SetMatch, Complaint> {
    let o = given.need(&["--match-set"])?;
    let mut v = SetMatch {
        not: o.not,
        set: parse_set(&o)?,
        return_nomatch: given.flag("--return-nomatch")?,
        keep_counters: given.take(&["--update-counters"]).is_some_and(|o| o.not.0),
        keep_subcounters: given
            .take(&["--update-subcounters"])
            .is_some_and(|o| o.not.0),
        ..SetMatch::default()
    };
    for (slot, what) in [(&mut v.packets, "packets"), (&mut v.bytes, "bytes")] {
        for (_, _, _, end) in COMPARES.iter().filter(|(_, _, not, _)| !not.0) {
            let Some(o) = given.take(&[&format!("--{what}-{end}")]) else {
                continue;
            };
            let mut found = COMPARES.iter();
            let found = found.find(|(_, _, not, of)| of == end && *not == o.not);
            let Some((compare, ..)) = found else {
                o.plain()?;
                continue;
            };
            if slot.is_some() {
                return Err(o.wrong("is a second comparison of this counter; give only one"));
            }
            *slot = Some((*compare, o.number(0)?));
        }
    }
    Ok(v)
}
