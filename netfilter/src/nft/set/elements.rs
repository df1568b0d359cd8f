//! Conversion of elements between values and messages.

use super::super::delinearize;
use super::super::expr::DataAttrs;
use super::super::linearize;
use super::super::model::{Data, DataType, Element, ElementKey, Extra, Unread};
use super::super::raw;
use super::super::userdata::{self, Userdata};
use super::super::wire::{ElemAttrs, attrs};
use super::millis;
use smallvec::SmallVec;
use std::time::Duration;

/// `NFTNL_UDATA_SET_ELEM_FLAGS`: the type of the entry for flags in nft's element userdata.
const ELEM_FLAGS: u8 = 1;
/// `EXPR_SET_ELEM_F_INTERVAL_OPEN`: the range has no end.
const INTERVAL_OPEN: u32 = 1;

/// Whether one of the elements is a range.
pub(crate) fn is_interval(elements: &[Element]) -> bool {
    elements
        .iter()
        .any(|e| matches!(e.key, ElementKey::Range(..)))
}

/// Reverses the bytes of a key: from host order to network order, or back.
pub(crate) fn turn(e: &mut Element) {
    if cfg!(target_endian = "little") {
        match &mut e.key {
            ElementKey::Value(d) => d.0.reverse(),
            ElementKey::Range(ends) => {
                ends.0.0.reverse();
                ends.1.0.reverse();
            }
        }
    }
}

/// The next value, or `None` after the highest.
pub(crate) fn next(d: &Data) -> Option<Data> {
    let mut bytes = d.0.clone();
    for b in bytes.iter_mut().rev() {
        let (sum, carry) = b.overflowing_add(1);
        *b = sum;
        if !carry {
            return Some(Data(bytes));
        }
    }
    None
}

/// The previous value, or `None` before 0.
fn previous(d: &Data) -> Option<Data> {
    let mut bytes = d.0.clone();
    for b in bytes.iter_mut().rev() {
        let (difference, borrow) = b.overflowing_sub(1);
        *b = difference;
        if !borrow {
            return Some(Data(bytes));
        }
    }
    None
}

/// How the elements of a set hold ranges.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ranges {
    /// The set has no ranges.
    None,
    /// A second element is the end of the range.
    Halves,
    /// Every element has both ends, each a concatenation.
    Fields,
}

impl Ranges {
    pub(crate) fn of(interval: bool, key_type: DataType) -> Self {
        match interval {
            true if key_type.is_concatenation() => Self::Fields,
            true => Self::Halves,
            false => Self::None,
        }
    }
}

/// The elements of `NFT_MSG_NEWSETELEM`, as an iterator: the attributes of a large set take more memory than the set.
pub(crate) fn elem_attrs(
    elements: &[Element],
    ranges: Ranges,
) -> impl Iterator<Item = ElemAttrs> + '_ {
    let interval = ranges == Ranges::Halves;
    let mut sorted: Vec<&Element> = elements.iter().collect();
    // The kernel keeps the order of ranges of concatenations.
    if ranges != Ranges::Fields {
        sorted.sort_by(|a, b| a.key.cmp(&b.key));
    }
    // The catch-all element, which is no range, has an empty key.
    let mut firsts = sorted.iter().map(|e| e.key.first());
    let zero = firsts.find(|first| !first.0.is_empty()).and_then(|first| {
        let above = interval && first.0.iter().any(|b| *b != 0);
        above.then(|| end(&Data(SmallVec::from_elem(0, first.0.len()))))
    });
    let of = move |e: &Element| {
        let is_other = e.key.first().0.is_empty();
        let interval = interval && !is_other;
        let after = if interval { next(e.key.last()) } else { None };
        let open = interval && after.is_none();
        let mut first = one(e, e.key.first(), open);
        if ranges == Ranges::Fields && !is_other {
            first.key_end = Some(DataAttrs::of(&e.key.last().0));
        }
        [Some(first), after.as_ref().map(end)].into_iter().flatten()
    };
    zero.into_iter().chain(sorted.into_iter().flat_map(of))
}

/// As [`elem_attrs`], as a list.
pub(crate) fn to_elem_attrs(elements: &[Element], ranges: Ranges) -> Vec<ElemAttrs> {
    elem_attrs(elements, ranges).collect()
}

fn end(key: &Data) -> ElemAttrs {
    attrs!(ElemAttrs {
        flags: raw::NFT_SET_ELEM_INTERVAL_END,
        key: DataAttrs::of(&key.0)
    })
}

fn one(e: &Element, key: &Data, open: bool) -> ElemAttrs {
    let extra = e.extra();
    let value = extra.value.as_ref().map(|d| DataAttrs::of(&d.0));
    let verdict = extra.verdict.as_ref().map(|v| {
        attrs!(DataAttrs {
            verdict: linearize::verdict(v)
        })
    });
    let mut user = Userdata::default();
    if let Some(comment) = &extra.comment {
        user = user.put_text(userdata::COMMENT, comment);
    }
    if open {
        user = user.put_u32(ELEM_FLAGS, INTERVAL_OPEN);
    }
    let is_other = key.0.is_empty();
    attrs!(ElemAttrs {
        flags: is_other.then_some(raw::NFT_SET_ELEM_CATCHALL),
        timeout: extra.timeout.map(millis),
        key: (!is_other).then(|| DataAttrs::of(&key.0)),
        data: value.or(verdict),
        userdata: Some(user.bytes()).filter(|u| !u.is_empty())
    })
}

/// Collects the elements of a set message by message: as attributes, the elements of a large set take many times the memory.
#[derive(Default)]
pub(crate) struct Listed {
    /// The elements; the key is the first value of a range unless the element has both ends.
    elements: Vec<Element>,
    /// The values after the last one of each range.
    ends: Vec<Data>,
    unread: Vec<Unread>,
}

impl Listed {
    /// Adds the elements of one message.
    pub(crate) fn add(&mut self, list: &[ElemAttrs]) {
        for a in list {
            let value = |k: Option<&DataAttrs>| k?.value.as_deref().map(Data::from);
            let has = |flag| a.flags.unwrap_or(0) & flag != 0;
            let first = value(a.key.as_ref());
            // The catch-all element has no key.
            let is_other = first.is_none();
            let first = first.unwrap_or_default();
            self.unread.extend(unread(a, &first));
            if is_other && (a.key.is_some() || !has(raw::NFT_SET_ELEM_CATCHALL)) {
                continue;
            }
            if has(raw::NFT_SET_ELEM_INTERVAL_END) {
                self.ends.push(first);
                continue;
            }
            // An element of a concatenation, which has both ends.
            let key = match value(a.key_end.as_ref()) {
                Some(last) if last != first => ElementKey::range(first, last),
                _ => ElementKey::Value(first),
            };
            self.elements.push(element(key, a));
        }
    }

    /// The elements in ascending order of their keys, and the attributes without a field.
    ///
    /// Ranges are in network order; `host_order` is needed to sort single numbers in host order.
    pub(crate) fn finish(
        mut self,
        interval: bool,
        host_order: bool,
        key_type: DataType,
    ) -> (Vec<Element>, Vec<Unread>) {
        let is_other = |e: &Element| e.key.first().0.is_empty();
        if interval && key_type.is_concatenation() {
            // The order of the kernel is kept.
        } else if interval {
            self.elements.sort_by(|a, b| a.key.cmp(&b.key));
            self.ends.sort();
            self.join();
        } else if host_order || key_type.is_concatenation() {
            // nft also compares a concatenation as one number in host order.
            self.elements.sort_by_cached_key(|e| {
                let mut e = Element::new(e.key.clone());
                turn(&mut e);
                e.key
            });
        } else {
            self.elements.sort_by(|a, b| a.key.cmp(&b.key));
        }
        // nft lists the catch-all element last.
        let others = self.elements.iter().take_while(|e| is_other(e)).count();
        self.elements.rotate_left(others);
        (self.elements, self.unread)
    }

    /// Joins first values and ends to ranges.
    fn join(&mut self) {
        let mut ends = self.ends.iter().peekable();
        let firsts: Vec<Data> = self
            .elements
            .iter()
            .skip(1)
            .map(|e| e.key.first().clone())
            .collect();
        let mut after = firsts.iter();
        for e in &mut self.elements {
            let next = after.next();
            let ElementKey::Value(first) = &e.key else {
                continue;
            };
            if first.0.is_empty() {
                continue;
            }
            while ends.next_if(|end| *end <= first).is_some() {}
            // The next key ends the range, either an end or another first value.
            let end = ends.peek().copied().into_iter().chain(next).min();
            let last = match end {
                Some(end) => previous(end).unwrap_or_else(|| first.clone()),
                None => Data(SmallVec::from_elem(0xff, first.0.len())),
            };
            if last != *first {
                e.key = ElementKey::range(first.clone(), last);
            }
        }
    }
}

/// Attributes without a field in [`Element`]: unknown attributes and flags, and userdata that is neither a comment
/// nor nft's flag of an open range.
fn unread(a: &ElemAttrs, key: &Data) -> Vec<Unread> {
    let unread = |attribute, bytes| Unread {
        element: Some(ElementKey::Value(key.clone())),
        attribute,
        bytes,
    };
    let parts = [a.key.as_ref(), a.key_end.as_ref(), a.data.as_ref()];
    let inner = parts.into_iter().flatten().flat_map(|d| &d.unknown);
    let unknown = a.unknown.iter().chain(inner);
    let mut found: Vec<Unread> = unknown.map(|(n, b)| unread(*n, b.clone())).collect();
    let flags = a.flags.unwrap_or(0) & !ELEM_FLAGS_READ;
    if flags != 0 {
        let bytes = flags.to_be_bytes().to_vec();
        found.push(unread(ElemAttrs::NFTA_SET_ELEM_FLAGS, bytes));
    }
    if let Some(user) = a.userdata.as_deref().filter(|user| !is_plain(user)) {
        found.push(unread(ElemAttrs::NFTA_SET_ELEM_USERDATA, user.to_vec()));
    }
    found
}

/// Flags that determine the kind of an element.
const ELEM_FLAGS_READ: u32 = raw::NFT_SET_ELEM_INTERVAL_END | raw::NFT_SET_ELEM_CATCHALL;

/// Whether this userdata holds only a comment, with or without the flag of an open range.
fn is_plain(user: &[u8]) -> bool {
    let comment = userdata::text(Some(user), userdata::COMMENT);
    let made = userdata::comment(comment.as_deref()).unwrap_or_default();
    let open = Userdata::default().put_u32(ELEM_FLAGS, INTERVAL_OPEN);
    let with_open = [made.clone(), open.bytes()].concat();
    userdata::is_same(user, &made) || userdata::is_same(user, &with_open)
}

fn element(key: ElementKey, a: &ElemAttrs) -> Element {
    // In a set with a default timeout, 0 is an unlimited lifetime. Since 6.12
    let timeout = a.timeout.map(Duration::from_millis);
    let expires = a.expiration.filter(|t| *t != 0).map(Duration::from_millis);
    let data = a.data.as_ref();
    Element::new(key).with(Extra {
        value: data.and_then(|d| d.value.clone()).map(Data::from),
        verdict: data
            .and_then(|d| d.verdict.as_ref())
            .map(delinearize::verdict),
        comment: userdata::text(a.userdata.as_deref(), userdata::COMMENT),
        timeout,
        expires,
    })
}
