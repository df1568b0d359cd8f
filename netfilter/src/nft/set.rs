//! Conversion of sets between values and messages.
//!
//! ```text
//! NFT_MSG_NEWSET      key type and length, flags, size, timeout, userdata
//! NFT_MSG_NEWSETELEM  [key, flags, timeout, value, userdata]
//! ```
//! An interval set keeps half-open ranges: `80-90` is the element 80 and the element 91 with
//! `NFT_SET_ELEM_INTERVAL_END`. A range up to the highest value has no end element, and a set whose first range does
//! not begin at 0 begins with an end element at 0, as `nft` writes it.

mod anonymous;
mod elements;
mod unread;

pub(crate) use anonymous::{elements_of_rule, of_rule};
pub(crate) use elements::{Listed, Ranges, elem_attrs, is_interval, next, to_elem_attrs, turn};
pub(crate) use unread::{ByElement, by_element, settle, settle_element, with_unread};

use super::display::key_fields;
use super::model::{DataType, Set, SetData, TypeOf, Unread};
use super::raw;
use super::userdata::{self, Userdata};
use super::wire::{SetAttrs, SetDescAttrs, attrs};
use std::time::Duration;
use weir_netlink::attr::{Attrs, NFTA_LIST_ELEM, NLA_TYPE_MASK, Writer};

/// `NFTA_SET_FIELD_LEN` of `enum nft_set_field_attributes`
const NFTA_SET_FIELD_LEN: u16 = 1;

impl Set {
    /// A set without elements, flags and options; `key_len` in bytes.
    #[must_use]
    pub fn new(name: &str, key_type: DataType, key_len: u32) -> Self {
        Self {
            name: name.to_owned(),
            key_type,
            key_len,
            ..Self::default()
        }
    }

    /// How its elements hold ranges.
    pub(crate) fn ranges(&self) -> Ranges {
        Ranges::of(self.interval, self.key_type)
    }

    /// The size, and for ranges of concatenations the lengths of the fields.
    fn desc(&self) -> Option<SetDescAttrs> {
        let fields = key_fields(self).filter(|_| self.ranges() == Ranges::Fields);
        let concat = fields.map(|fields| {
            let mut w = Writer::new();
            for f in fields {
                let len = u32::try_from(f.len).unwrap_or(0).to_be_bytes();
                w.attr(NFTA_LIST_ELEM, true, |w| {
                    w.attr(NFTA_SET_FIELD_LEN, false, |w| w.put(&len));
                });
            }
            w.finish().unwrap_or_default()
        });
        (self.size.is_some() || concat.is_some()).then(|| {
            attrs!(SetDescAttrs {
                size: self.size,
                concat
            })
        })
    }

    fn flags(&self) -> u32 {
        [
            (self.constant, raw::NFT_SET_CONSTANT),
            (self.interval, raw::NFT_SET_INTERVAL),
            (self.data != SetData::None, raw::NFT_SET_MAP),
            (self.timeouts, raw::NFT_SET_TIMEOUT),
            (self.dynamic, raw::NFT_SET_EVAL),
            (self.ranges() == Ranges::Fields, raw::NFT_SET_CONCAT),
            (self.has(raw::NFTA_SET_OBJ_TYPE), raw::NFT_SET_OBJECT),
            (self.has(raw::NFTA_SET_EXPRESSIONS), raw::NFT_SET_EXPR),
        ]
        .into_iter()
        .filter_map(|(on, flag)| on.then_some(flag))
        .sum()
    }

    /// The attributes of the set itself without a field.
    fn own_unread(&self) -> impl Iterator<Item = &Unread> {
        self.unread.iter().filter(|u| u.element.is_none())
    }

    /// `NFT_OBJECT_*`: the kind of the objects that a map refers to.
    pub(crate) fn object(&self) -> Option<u32> {
        let mut own = self.own_unread();
        let found = own.find(|u| u.attribute == raw::NFTA_SET_OBJ_TYPE)?;
        let bytes = found.bytes.as_slice().try_into().ok()?;
        Some(u32::from_be_bytes(bytes))
    }

    fn has(&self, attribute: u16) -> bool {
        self.own_unread()
            .any(|u| u.attribute & NLA_TYPE_MASK == attribute)
    }

    /// `NFT_MSG_NEWSET`
    pub(crate) fn to_attrs(&self, table: &str, id: u32) -> SetAttrs {
        let is_object = |u: &&Unread| u.attribute == raw::NFTA_SET_OBJ_TYPE;
        let others = self.own_unread().filter(|u| !is_object(u));
        let (data_type, data_len) = match self.data {
            SetData::None => (None, None),
            SetData::Verdict => (Some(raw::NFT_DATA_VERDICT), Some(0)),
            SetData::Value(t, len) => (Some(t.0), Some(len)),
        };
        let type_of = self.type_of.as_deref();
        let key_order = type_of.and_then(|t| t.key_order);
        let key_order = key_order.unwrap_or_else(|| self.key_type.byte_order());
        let mut user = Userdata::default().put_u32(userdata::SET_KEYBYTEORDER, key_order);
        match self.data {
            SetData::None => {}
            SetData::Verdict => user = user.put_u32(userdata::SET_DATABYTEORDER, 0),
            SetData::Value(t, _) => {
                let order = type_of.and_then(|t| t.data_order);
                let order = order.unwrap_or_else(|| t.byte_order());
                user = user.put_u32(userdata::SET_DATABYTEORDER, order);
            }
        }
        if self.auto_merge {
            user = user.put_u32(userdata::SET_MERGE_ELEMENTS, 1);
        }
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
            user = user.put_u32(userdata::SET_DATA_INTERVAL, u32::from(self.value_ranges));
        }
        if let Some(comment) = &self.comment {
            user = user.put_text(userdata::SET_COMMENT, comment);
        }
        attrs!(SetAttrs {
            table: table.to_owned(),
            name: self.name.clone(),
            flags: self.flags(),
            key_type: self.key_type.0,
            key_len: self.key_len,
            data_type,
            data_len,
            policy: self.memory.then_some(raw::NFT_SET_POL_MEMORY),
            id,
            desc: self.desc(),
            timeout: self.timeout.map(millis),
            gc_interval: self
                .gc_interval
                .map(|t| u32::try_from(millis(t)).unwrap_or(u32::MAX)),
            userdata: user.bytes(),
            obj_type: self.object(),
            unknown: others
                .map(|u| (u.attribute, u.written()))
                .collect::<Vec<_>>()
        })
    }

    /// Decodes `NFT_MSG_NEWSET`; other messages hold the elements.
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
        let key_type = DataType(a.key_type.unwrap_or(0));
        let order =
            |kind, t: DataType| userdata::number(user, kind).filter(|n| *n != t.byte_order());
        let type_of = TypeOf {
            key: noted(userdata::SET_KEY_TYPEOF),
            data: noted(userdata::SET_DATA_TYPEOF),
            key_order: order(userdata::SET_KEYBYTEORDER, key_type),
            data_order: match data {
                SetData::Value(t, _) => order(userdata::SET_DATABYTEORDER, t),
                _ => None,
            },
        };
        Self {
            name: a.name.clone().unwrap_or_default(),
            key_type,
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
            memory: a.policy == Some(raw::NFT_SET_POL_MEMORY),
            value_ranges: userdata::number(user, userdata::SET_DATA_INTERVAL).unwrap_or(0) != 0,
            auto_merge: userdata::number(user, userdata::SET_MERGE_ELEMENTS).unwrap_or(0) != 0,
            comment: userdata::text(user, userdata::SET_COMMENT),
            type_of: (type_of != TypeOf::default()).then(|| Box::new(type_of)),
            elements: Vec::new(),
            unread: unread_of_set(a),
        }
    }

    /// The set in the order in which the kernel lists it, without remaining lifetimes.
    pub(crate) fn settled(&self) -> Self {
        let mut set = self.clone();
        for e in &mut set.elements {
            e.settle(self.timeout);
        }
        set.elements.sort_by(|a, b| a.key.cmp(&b.key));
        set.unread = self.settled_unread();
        set
    }

    /// [`Set::unread`] in a fixed order, with counters at zero.
    pub(crate) fn settled_unread(&self) -> Vec<Unread> {
        let mut unread: Vec<Unread> = self.unread.iter().map(Unread::without_counters).collect();
        let key = |u: &Unread| (u.element.clone(), u.attribute);
        unread.sort_by_cached_key(key);
        unread
    }
}

/// `NFTA_SET_TYPE` and `NFTA_SET_COUNT`
const REMARKS: [u16; 2] = [19, 20];

/// Attributes without a field in [`Set`]. Since 6.17 the kernel also lists the backend of a set and the number of its
/// elements, which are not part of its definition.
fn unread_of_set(a: &SetAttrs) -> Vec<Unread> {
    let unread = |attribute, bytes| Unread {
        element: None,
        attribute,
        bytes,
    };
    let object = a
        .obj_type
        .map(|t| unread(raw::NFTA_SET_OBJ_TYPE, t.to_be_bytes().to_vec()));
    let unknown = a
        .unknown
        .iter()
        .filter(|(n, _)| !REMARKS.contains(&(n & NLA_TYPE_MASK)));
    let unknown = unknown.map(|(n, bytes)| unread(*n, bytes.clone()));
    object.into_iter().chain(unknown).collect()
}

fn millis(t: Duration) -> u64 {
    u64::try_from(t.as_millis()).unwrap_or(u64::MAX)
}

/// The lengths of the fields of a concatenation in bytes (`NFTA_SET_DESC_CONCAT`); `None` if the list has other attributes.
pub(crate) fn field_lens(list: Option<&[u8]>) -> Option<Vec<u32>> {
    let of = |field: &[u8]| {
        let mut attrs = Attrs::new(field);
        let len = attrs
            .next()?
            .ok()
            .filter(|a| a.number == NFTA_SET_FIELD_LEN)?;
        let len = u32::from_be_bytes(len.payload.try_into().ok()?);
        attrs.next().is_none().then_some(len)
    };
    let fields = Attrs::new(list.unwrap_or_default());
    fields.map(|f| of(f.ok()?.payload)).collect()
}

/// Whether nft treats the keys of a set as numbers in host order. nft stores that in the userdata; without userdata, it
/// follows from the type.
pub(crate) fn is_host_order_key(a: &SetAttrs) -> bool {
    let order = userdata::number(a.userdata.as_deref(), userdata::SET_KEYBYTEORDER);
    let of_type = || DataType(a.key_type.unwrap_or(0)).byte_order();
    order.unwrap_or_else(of_type) == userdata::HOST_ENDIAN
}

/// Whether nft treats the values of a map as numbers in host order; `None` if the userdata does not contain it.
pub(crate) fn is_host_order_data(a: &SetAttrs) -> Option<bool> {
    let order = userdata::number(a.userdata.as_deref(), userdata::SET_DATABYTEORDER)?;
    (order != 0).then_some(order == userdata::HOST_ENDIAN)
}
