//! Sets between values and messages.
//!
//! ```text
//! NFT_MSG_NEWSET      key type and length, flags, size, timeout, userdata
//! NFT_MSG_NEWSETELEM  [key, flags, timeout, value, userdata]
//! ```
//! An interval set keeps half-open ranges: `80-90` is the element 80 and the element 91 with
//! `NFT_SET_ELEM_INTERVAL_END`. A range up to the highest value has no second one, and a set whose first
//! range does not begin at 0 begins with an end at 0, as `nft` writes it.

use super::expr::DataAttrs;
use super::lower::{self, AnonymousSet};
use super::model::{Data, DataType, Element, ElementKey, Selector, Set, SetData, TypeOf, Unread};
use super::raise;
use super::raw;
use super::userdata::{self, Userdata};
use super::wire::{ElemAttrs, SetAttrs, SetDescAttrs};
use std::time::Duration;

/// `EXPR_SET_ELEM_F_INTERVAL_OPEN` in nft's element userdata: this range has no end.
const ELEM_FLAGS: u8 = 1;
const INTERVAL_OPEN: u32 = 1;

impl Set {
    /// A set of this type without elements.
    #[must_use]
    pub fn new(name: &str, key_type: DataType, key_len: u32) -> Self {
        Self {
            name: name.to_owned(),
            key_type,
            key_len,
            data: SetData::None,
            interval: false,
            constant: false,
            dynamic: false,
            timeouts: false,
            timeout: None,
            gc_interval: None,
            size: None,
            auto_merge: false,
            comment: None,
            type_of: None,
            elements: Vec::new(),
            unread: Vec::new(),
        }
    }

    fn flags(&self) -> u32 {
        [
            (self.constant, raw::NFT_SET_CONSTANT),
            (self.interval, raw::NFT_SET_INTERVAL),
            (self.data != SetData::None, raw::NFT_SET_MAP),
            (self.timeouts, raw::NFT_SET_TIMEOUT),
            (self.dynamic, raw::NFT_SET_EVAL),
        ]
        .into_iter()
        .filter_map(|(on, flag)| on.then_some(flag))
        .sum()
    }

    /// `NFT_MSG_NEWSET`
    pub(crate) fn to_attrs(&self, table: &str, id: u32) -> SetAttrs {
        let (data_type, data_len) = match self.data {
            SetData::None => (None, None),
            SetData::Verdict => (Some(raw::NFT_DATA_VERDICT), Some(0)),
            SetData::Value(t, len) => (Some(t.0), Some(len)),
        };
        let mut user =
            Userdata::default().put_u32(userdata::SET_KEYBYTEORDER, byte_order(self.key_type));
        match self.data {
            SetData::None => {}
            SetData::Verdict => user = user.put_u32(userdata::SET_DATABYTEORDER, 0),
            SetData::Value(t, _) => {
                user = user.put_u32(userdata::SET_DATABYTEORDER, byte_order(t));
            }
        }
        if self.auto_merge {
            user = user.put_u32(userdata::SET_MERGE_ELEMENTS, 1);
        }
        let type_of = self.type_of.as_deref();
        for (kind, noted) in [
            (
                userdata::SET_KEY_TYPEOF,
                type_of.and_then(|t| t.key.as_ref()),
            ),
            (
                userdata::SET_DATA_TYPEOF,
                type_of.and_then(|t| t.data.as_ref()),
            ),
        ] {
            if let Some(noted) = noted {
                user = user.put(kind, noted);
            }
        }
        if self.data != SetData::None {
            user = user.put_u32(userdata::SET_DATA_INTERVAL, 0);
        }
        if let Some(comment) = &self.comment {
            user = user.put_text(userdata::SET_COMMENT, comment);
        }
        SetAttrs {
            table: Some(table.to_owned()),
            name: Some(self.name.clone()),
            flags: Some(self.flags()),
            key_type: Some(self.key_type.0),
            key_len: Some(self.key_len),
            data_type,
            data_len,
            id: Some(id),
            desc: self.size.map(desc),
            timeout: self.timeout.map(millis),
            gc_interval: self
                .gc_interval
                .map(|t| u32::try_from(millis(t)).unwrap_or(u32::MAX)),
            userdata: Some(user.bytes()),
            ..SetAttrs::default()
        }
    }

    /// Reads `NFT_MSG_NEWSET`; the elements come with other messages.
    pub(crate) fn from_attrs(a: &SetAttrs) -> Self {
        let flags = a.flags.unwrap_or(0);
        let has = |flag| flags & flag != 0;
        let data = match a.data_type {
            _ if !has(raw::NFT_SET_MAP) => SetData::None,
            Some(raw::NFT_DATA_VERDICT) => SetData::Verdict,
            t => SetData::Value(DataType(t.unwrap_or(0)), a.data_len.unwrap_or(0)),
        };
        let user = a.userdata.as_deref();
        let nonzero = |t: &u64| *t != 0;
        let noted = |kind| userdata::find(user?, kind).map(<[u8]>::to_vec);
        let type_of = TypeOf {
            key: noted(userdata::SET_KEY_TYPEOF),
            data: noted(userdata::SET_DATA_TYPEOF),
        };
        Self {
            name: a.name.clone().unwrap_or_default(),
            key_type: DataType(a.key_type.unwrap_or(0)),
            key_len: a.key_len.unwrap_or(0),
            data,
            interval: has(raw::NFT_SET_INTERVAL),
            constant: has(raw::NFT_SET_CONSTANT),
            dynamic: has(raw::NFT_SET_EVAL),
            timeouts: has(raw::NFT_SET_TIMEOUT),
            timeout: a.timeout.filter(nonzero).map(Duration::from_millis),
            gc_interval: a
                .gc_interval
                .map(u64::from)
                .filter(nonzero)
                .map(Duration::from_millis),
            size: a.desc.as_ref().and_then(|d| d.size).filter(|n| *n != 0),
            auto_merge: userdata::number(user, userdata::SET_MERGE_ELEMENTS).unwrap_or(0) != 0,
            comment: userdata::text(user, userdata::SET_COMMENT),
            type_of: (type_of != TypeOf::default()).then(|| Box::new(type_of)),
            elements: Vec::new(),
            unread: unread_of_set(a),
        }
    }

    /// The same set without what passes by itself: elements in order, no remaining times.
    pub(crate) fn settled(&self) -> Self {
        let mut set = self.clone();
        for e in &mut set.elements {
            e.expires = None;
        }
        set.elements.sort_by(|a, b| a.key.cmp(&b.key));
        set
    }
}

/// What [`Set`] has no field for. The kernel's own remarks about a set since 6.17, how it keeps it and how many
/// elements there are, are no part of it.
fn unread_of_set(a: &SetAttrs) -> Vec<Unread> {
    /// `NFTA_SET_TYPE` and `NFTA_SET_COUNT`
    const REMARKS: [u16; 2] = [19, 20];
    let unread = |attribute, bytes| Unread {
        element: None,
        attribute,
        bytes,
    };
    let object = a
        .obj_type
        .map(|t| unread(raw::NFTA_SET_OBJ_TYPE, t.to_be_bytes().to_vec()));
    let unknown = a.unknown.iter().filter(|(n, _)| !REMARKS.contains(n));
    let unknown = unknown.map(|(n, bytes)| unread(*n, bytes.clone()));
    object.into_iter().chain(unknown).collect()
}

/// The same of its elements.
pub(crate) fn unread_of_elements(list: &[ElemAttrs]) -> Vec<Unread> {
    let mut all = Vec::new();
    for a in list.iter().filter(|a| !a.unknown.is_empty()) {
        // Without a key it is the one for all others.
        let first = a.key.as_ref().and_then(|k| k.value.clone());
        let first = Data(first.unwrap_or_default());
        all.extend(a.unknown.iter().map(|(n, bytes)| Unread {
            element: Some(ElementKey::Value(first.clone())),
            attribute: *n,
            bytes: bytes.clone(),
        }));
    }
    all
}

fn desc(size: u32) -> SetDescAttrs {
    SetDescAttrs {
        size: Some(size),
        ..SetDescAttrs::default()
    }
}

fn millis(t: Duration) -> u64 {
    u64::try_from(t.as_millis()).unwrap_or(u64::MAX)
}

/// nft's `enum byteorder` of a type, 0 where a type has none.
fn byte_order(t: DataType) -> u32 {
    match t {
        DataType::MARK
        | DataType::IFINDEX
        | DataType::ARPHRD
        | DataType::UID
        | DataType::GID
        | DataType::CT_STATE
        | DataType::CT_STATUS
        | DataType::FIB_ADDR
        | DataType::PKT_TYPE
        | DataType::NF_PROTO
        | DataType::IFNAME => userdata::HOST_ENDIAN,
        DataType::INET_PROTO | DataType::CT_DIR | DataType::BOOLEAN => 0,
        _ => userdata::BIG_ENDIAN,
    }
}

impl AnonymousSet {
    fn key(&self) -> (DataType, u32) {
        let key_type = self.context.data_type(&self.selector);
        let len = self.elements.first().map_or(0, |e| e.key.first().0.len());
        (key_type, u32::try_from(len).unwrap_or(0))
    }

    fn is_interval(&self) -> bool {
        is_interval(&self.elements)
    }

    /// `NFT_MSG_NEWSET`
    pub(crate) fn to_attrs(&self, table: &str, id: u32) -> SetAttrs {
        let (key_type, key_len) = self.key();
        let interval = self.is_interval();
        let order = if self.is_host_order() {
            userdata::HOST_ENDIAN
        } else {
            userdata::BIG_ENDIAN
        };
        let mut user = Userdata::default().put_u32(userdata::SET_KEYBYTEORDER, order);
        if interval {
            user = user.put_u32(userdata::SET_MERGE_ELEMENTS, 1);
        }
        if let Some(type_of) = self.type_of() {
            user = user.put(userdata::SET_KEY_TYPEOF, &type_of);
        }
        let flags = raw::NFT_SET_ANONYMOUS | raw::NFT_SET_CONSTANT;
        let flags = if interval {
            flags | raw::NFT_SET_INTERVAL
        } else {
            flags
        };
        let elements = self.elem_attrs();
        // nft counts the end of a range that has none, too.
        let open = elements
            .last()
            .is_some_and(|e| interval && e.flags.is_none());
        let size = u32::try_from(elements.len() + usize::from(open)).unwrap_or(u32::MAX);
        SetAttrs {
            table: Some(table.to_owned()),
            name: Some(lower::ANONYMOUS.to_owned()),
            flags: Some(flags),
            key_type: Some(key_type.0),
            key_len: Some(key_len),
            id: Some(id),
            desc: Some(desc(size)),
            userdata: Some(user.bytes()),
            ..SetAttrs::default()
        }
    }

    pub(crate) fn elem_attrs(&self) -> Vec<ElemAttrs> {
        let mut elements = self.elements.clone();
        if lower::is_turned(&self.selector, &self.elements) {
            elements.iter_mut().for_each(turn);
        }
        to_elem_attrs(&elements, self.is_interval())
    }

    /// The elements as a dump shows them.
    pub(crate) fn as_listed(&self) -> Vec<Element> {
        from_elem_attrs(&self.elem_attrs(), self.is_interval(), self.is_host_order())
    }

    /// Whether nft takes the keys for numbers of the machine's order, as it does with names.
    fn is_host_order(&self) -> bool {
        super::context::is_host_order(&self.selector)
            || self.context.data_type(&self.selector) == DataType::IFNAME
    }

    /// nft's note of what the set is looked up with: kind of expression, then its own numbers.
    fn type_of(&self) -> Option<Vec<u8>> {
        const PAYLOAD: u32 = 7;
        const META: u32 = 9;
        const CT: u32 = 12;
        let (kind, inner) = match &self.selector {
            Selector::Payload { .. } => {
                let (header, field) = self.context.field(&self.selector)?.type_of?;
                (
                    PAYLOAD,
                    Userdata::default().put_u32(0, header).put_u32(1, field),
                )
            }
            Selector::Meta(key) => (META, Userdata::default().put_u32(0, key.number())),
            Selector::Ct(key, direction) => {
                let direction = direction.map_or(u32::MAX, |d| u32::from(lower::ct_direction(d)));
                (
                    CT,
                    Userdata::default()
                        .put_u32(0, key.number())
                        .put_u32(1, direction),
                )
            }
            _ => return None,
        };
        Some(
            Userdata::default()
                .put_u32(0, kind)
                .put(1, &inner.bytes())
                .bytes(),
        )
    }
}

/// Whether there is a range among the elements.
pub(crate) fn is_interval(elements: &[Element]) -> bool {
    elements
        .iter()
        .any(|e| matches!(e.key, ElementKey::Range(..)))
}

/// Turns the bytes of a key round: from the machine's order to the network's, or back.
pub(crate) fn turn(e: &mut Element) {
    if cfg!(target_endian = "little") {
        match &mut e.key {
            ElementKey::Value(d) => d.0.reverse(),
            ElementKey::Range(first, last) => {
                first.0.reverse();
                last.0.reverse();
            }
        }
    }
}

/// The next value, or none after the highest.
fn next(d: &Data) -> Option<Data> {
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

/// The value before, or none before 0.
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

/// Elements of `NFT_MSG_NEWSETELEM`, one after the other: of a large set they take more room than the set.
pub(crate) fn elem_attrs(
    elements: &[Element],
    interval: bool,
) -> impl Iterator<Item = ElemAttrs> + '_ {
    let mut sorted: Vec<&Element> = elements.iter().collect();
    sorted.sort_by(|a, b| a.key.cmp(&b.key));
    let zero = sorted.first().map(|e| e.key.first()).and_then(|first| {
        let above = interval && first.0.iter().any(|b| *b != 0);
        above.then(|| end(&Data(vec![0; first.0.len()])))
    });
    let of = move |e: &Element| {
        let after = if interval { next(e.key.last()) } else { None };
        let open = interval && after.is_none();
        let first = one(e, e.key.first(), open);
        [Some(first), after.as_ref().map(end)].into_iter().flatten()
    };
    zero.into_iter().chain(sorted.into_iter().flat_map(of))
}

/// The same as a list.
pub(crate) fn to_elem_attrs(elements: &[Element], interval: bool) -> Vec<ElemAttrs> {
    elem_attrs(elements, interval).collect()
}

fn end(key: &Data) -> ElemAttrs {
    ElemAttrs {
        flags: Some(raw::NFT_SET_ELEM_INTERVAL_END),
        key: Some(DataAttrs::of(&key.0)),
        ..ElemAttrs::default()
    }
}

fn one(e: &Element, key: &Data, open: bool) -> ElemAttrs {
    let value = e.value.as_ref().map(|d| DataAttrs::of(&d.0));
    let verdict = e.verdict.as_ref().map(|v| DataAttrs {
        verdict: Some(lower::verdict(v)),
        ..DataAttrs::default()
    });
    let mut user = Userdata::default();
    if let Some(comment) = &e.comment {
        user = user.put_text(userdata::COMMENT, comment);
    }
    if open {
        user = user.put_u32(ELEM_FLAGS, INTERVAL_OPEN);
    }
    ElemAttrs {
        timeout: e.timeout.map(millis),
        key: Some(DataAttrs::of(&key.0)),
        data: value.or(verdict),
        userdata: Some(user.bytes()).filter(|u| !u.is_empty()),
        ..ElemAttrs::default()
    }
}

/// Reads the elements of a dump, in ascending order of their keys.
///
/// Ranges are in network order; single numbers of the machine's own order need `host_order` to be sorted.
pub(crate) fn from_elem_attrs(
    list: &[ElemAttrs],
    interval: bool,
    host_order: bool,
) -> Vec<Element> {
    let key = |a: &ElemAttrs| a.key.as_ref().and_then(|k| k.value.clone()).map(Data);
    let is_end = |a: &ElemAttrs| a.flags.unwrap_or(0) & raw::NFT_SET_ELEM_INTERVAL_END != 0;
    let mut keyed: Vec<(Data, bool, &ElemAttrs)> = list
        .iter()
        .filter_map(|a| Some((key(a)?, is_end(a), a)))
        .collect();
    // Where one range ends and the next begins, the end comes first.
    keyed.sort_by(|a, b| (&a.0, !a.1).cmp(&(&b.0, !b.1)));
    let mut out = Vec::new();
    let mut rest = keyed.as_slice();
    while let Some(((first, ended, a), tail)) = rest.split_first() {
        rest = tail;
        if *ended {
            continue;
        }
        let mut last = first.clone();
        if let Some(end) = a.key_end.as_ref().and_then(|k| k.value.clone()) {
            // Of a concatenation, which says both ends itself.
            last = Data(end);
        } else if interval {
            last = match tail.first() {
                Some((after, _, _)) => previous(after).unwrap_or_else(|| first.clone()),
                None => Data(vec![0xff; first.0.len()]),
            };
        }
        let key = if last == *first {
            ElementKey::Value(first.clone())
        } else {
            ElementKey::Range(first.clone(), last)
        };
        out.push(element(key, a));
    }
    sort(&mut out, host_order && !interval);
    let others = list
        .iter()
        .filter(|a| a.key.is_none() && a.flags.unwrap_or(0) & raw::NFT_SET_ELEM_CATCHALL != 0);
    out.extend(others.map(|a| element(ElementKey::Value(Data(Vec::new())), a)));
    out
}

fn element(key: ElementKey, a: &ElemAttrs) -> Element {
    let time = |t: Option<u64>| t.filter(|t| *t != 0).map(Duration::from_millis);
    let data = a.data.as_ref();
    Element {
        key,
        value: data.and_then(|d| d.value.clone()).map(Data),
        verdict: data.and_then(|d| d.verdict.as_ref()).map(raise::verdict),
        comment: userdata::text(a.userdata.as_deref(), userdata::COMMENT),
        timeout: time(a.timeout),
        expires: time(a.expiration),
    }
}

/// In ascending order of the numbers.
fn sort(elements: &mut [Element], host_order: bool) {
    elements.sort_by_cached_key(|e| {
        let mut e = Element::new(e.key.clone());
        if host_order {
            turn(&mut e);
        }
        e.key
    });
}

/// Whether nft takes the keys of a set for numbers of the machine's order. It wrote so into the userdata;
/// without that the type says it.
pub(crate) fn is_host_order_key(a: &SetAttrs) -> bool {
    let order = userdata::number(a.userdata.as_deref(), userdata::SET_KEYBYTEORDER);
    let of_type = || byte_order(DataType(a.key_type.unwrap_or(0)));
    order.unwrap_or_else(of_type) == userdata::HOST_ENDIAN
}

/// Whether numbers of a type are kept in the machine's order, unless the set holds ranges.
pub(crate) fn is_host_order_type(t: DataType) -> bool {
    byte_order(t) == userdata::HOST_ENDIAN && t != DataType::IFNAME
}
