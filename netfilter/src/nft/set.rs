//! Conversion of sets between values and messages.
//!
//! ```text
//! NFT_MSG_NEWSET      key type and length, flags, size, timeout, userdata
//! NFT_MSG_NEWSETELEM  [key, flags, timeout, value, userdata]
//! ```
//! An interval set keeps half-open ranges: `80-90` is the element 80 and the element 91 with
//! `NFT_SET_ELEM_INTERVAL_END`. A range up to the highest value has no end element, and a set whose first range does
//! not begin at 0 begins with an end element at 0, as `nft` writes it.

mod elements;

use super::lower::{self, AnonymousSet};
use super::model::{DataType, Element, Selector, Set, SetData, TypeOf, Unread};
use super::raw;
use super::userdata::{self, Userdata};
use super::wire::{ElemAttrs, SetAttrs, SetDescAttrs};
pub(crate) use elements::{Listed, elem_attrs, is_interval, to_elem_attrs, turn};
use std::time::Duration;
use weir_netlink::attr::NLA_TYPE_MASK;

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

    /// The set in the order in which the kernel lists it, without remaining lifetimes.
    pub(crate) fn settled(&self) -> Self {
        let mut set = self.clone();
        for e in &mut set.elements {
            e.settle(self.timeout);
        }
        set.elements.sort_by(|a, b| a.key.cmp(&b.key));
        set
    }
}

/// Attributes without a field in [`Set`]. Since 6.17 the kernel also lists the backend of a set and the number of its
/// elements, which are not part of its definition.
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
    let unknown = a
        .unknown
        .iter()
        .filter(|(n, _)| !REMARKS.contains(&(n & NLA_TYPE_MASK)));
    let unknown = unknown.map(|(n, bytes)| unread(*n, bytes.clone()));
    object.into_iter().chain(unknown).collect()
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

/// nft's `enum byteorder` of a type, 0 if it has none.
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
        | DataType::TIME
        | DataType::REALM
        | DataType::CLASSID
        | DataType::DEVGROUP
        | DataType::CT_EVENT
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
        // nft also counts the missing end of an open range.
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

    /// The elements as a dump lists them.
    pub(crate) fn as_listed(&self) -> Vec<Element> {
        let mut listed = Listed::default();
        listed.add(&self.elem_attrs());
        listed.finish(self.is_interval(), self.is_host_order()).0
    }

    /// Whether nft treats the keys as numbers in host order, as it does with names.
    fn is_host_order(&self) -> bool {
        super::context::is_host_order(&self.selector)
            || self.context.data_type(&self.selector) == DataType::IFNAME
    }

    /// nft's description of the looked-up selector: kind of expression, then the fields of that kind.
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

/// Whether nft treats the keys of a set as numbers in host order. nft stores that in the userdata; without it, the
/// type decides.
pub(crate) fn is_host_order_key(a: &SetAttrs) -> bool {
    let order = userdata::number(a.userdata.as_deref(), userdata::SET_KEYBYTEORDER);
    let of_type = || byte_order(DataType(a.key_type.unwrap_or(0)));
    order.unwrap_or_else(of_type) == userdata::HOST_ENDIAN
}

/// Whether numbers of a type are kept in host order, unless the set is an interval set.
pub(crate) fn is_host_order_type(t: DataType) -> bool {
    byte_order(t) == userdata::HOST_ENDIAN && t != DataType::IFNAME
}
