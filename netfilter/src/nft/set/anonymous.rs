//! Sets that belong to a rule.

use super::{Listed, REMARKS, Ranges, is_host_order_key, is_interval, to_elem_attrs, turn};
use crate::nft::context::{Context, host_width};
use crate::nft::model::{AnonymousSet, DataType, Element, Selector};
use crate::nft::userdata::{self, Userdata};
use crate::nft::wire::{ElemAttrs, SetAttrs, SetDescAttrs, attrs};
use crate::nft::{linearize, raw};
use weir_netlink::attr::NLA_TYPE_MASK;

/// The set of a rule with these elements, in which the selector is looked up.
pub(crate) fn of_rule(selector: &Selector, elements: &[Element], context: Context) -> AnonymousSet {
    let interval = is_interval(elements);
    let key = context.key(selector);
    let key_type = key.map_or(DataType::INTEGER, |k| k.data_type);
    let key_len = elements.first().map_or(0, |e| e.key.first().0.len());
    // nft treats names as numbers in host order.
    let host_order = key.is_some_and(|k| k.host_order) || key_type == DataType::IFNAME;
    let order = match host_order {
        true => userdata::HOST_ENDIAN,
        false => userdata::BIG_ENDIAN,
    };
    let mut user = Userdata::default().put_u32(userdata::SET_KEYBYTEORDER, order);
    if interval {
        user = user.put_u32(userdata::SET_MERGE_ELEMENTS, 1);
    }
    if let Some(type_of) = type_of(selector, context) {
        user = user.put(userdata::SET_KEY_TYPEOF, &type_of);
    }
    let flags = raw::NFT_SET_ANONYMOUS | raw::NFT_SET_CONSTANT;
    let flags = match interval {
        true => flags | raw::NFT_SET_INTERVAL,
        false => flags,
    };
    let mut elements = elements.to_vec();
    if interval && host_width(selector).is_some() {
        elements.iter_mut().for_each(turn);
    }
    let elements = to_elem_attrs(&elements, Ranges::of(interval, DataType::INTEGER));
    // nft also counts the end that a range up to the highest value does not have.
    let open = elements
        .last()
        .is_some_and(|e| interval && e.flags.is_none());
    let size = u32::try_from(elements.len() + usize::from(open)).unwrap_or(u32::MAX);
    AnonymousSet {
        attrs: attrs!(SetAttrs {
            name: linearize::ANONYMOUS.to_owned(),
            flags,
            key_type: key_type.0,
            key_len: u32::try_from(key_len).ok(),
            desc: attrs!(SetDescAttrs { size }),
            userdata: user.bytes()
        }),
        elements,
    }
}

/// The elements of the set of a rule, in the byte order of the selector; `None` if they have other properties than keys.
pub(crate) fn elements_of_rule(set: &AnonymousSet, turned: bool) -> Option<Vec<Element>> {
    let flags = set.attrs.flags.unwrap_or(0);
    if flags & !(raw::NFT_SET_ANONYMOUS | raw::NFT_SET_CONSTANT | raw::NFT_SET_INTERVAL) != 0 {
        return None;
    }
    let mut listed = Listed::default();
    listed.add(&set.elements);
    let interval = flags & raw::NFT_SET_INTERVAL != 0;
    let key_type = DataType(set.attrs.key_type.unwrap_or(0));
    let (mut elements, unread) = listed.finish(interval, is_host_order_key(&set.attrs), key_type);
    if !unread.is_empty() {
        return None;
    }
    if turned {
        elements.iter_mut().for_each(turn);
    }
    Some(elements)
}

/// nft's userdata about the selector that is looked up: kind of expression, then the fields of that kind.
fn type_of(selector: &Selector, context: Context) -> Option<Vec<u8>> {
    const PAYLOAD: u32 = 7;
    const META: u32 = 9;
    const CT: u32 = 12;
    let (kind, inner) = match selector {
        Selector::Payload { .. } => {
            let of = context.field(selector)?;
            let (header, field) = of.type_of;
            let named = Userdata::default().put_u32(0, header).put_u32(1, field);
            let named = match of.data_type {
                DataType::INTEGER => named.put_u32(4, of.len),
                _ => named,
            };
            (PAYLOAD, named)
        }
        Selector::Meta(key) => (META, Userdata::default().put_u32(0, key.number())),
        Selector::Ct(key, direction) => {
            let direction = direction.map_or(u32::MAX, |d| u32::from(d.number()));
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

impl AnonymousSet {
    /// A set as the kernel lists it, without the attributes that identify it or change with time.
    pub(crate) fn listed(attrs: &SetAttrs, mut elements: Vec<ElemAttrs>) -> Self {
        // The name without the number that the kernel chose. The set of a `meter` is named by its rule.
        let name = attrs.name.as_deref().unwrap_or_default();
        let name = match name.strip_prefix("__") {
            Some(_) => format!("{}%d", name.trim_end_matches(|c: char| c.is_ascii_digit())),
            None => name.to_owned(),
        };
        let is_end = |e: &ElemAttrs| e.flags == Some(raw::NFT_SET_ELEM_INTERVAL_END);
        let key = |e: &ElemAttrs| e.key.as_ref().and_then(|k| k.value.clone());
        for e in &mut elements {
            e.expiration = None;
        }
        // The end of an interval comes before an interval that begins at the same key. The kernel keeps the order of ranges of
        // concatenations.
        if attrs.flags.unwrap_or(0) & raw::NFT_SET_CONCAT == 0 {
            elements.sort_by_key(|e| (key(e), !is_end(e)));
        }
        Self {
            attrs: SetAttrs {
                name: Some(name),
                table: None,
                handle: None,
                id: None,
                timeout: attrs.timeout.filter(|t| *t != 0),
                gc_interval: attrs.gc_interval.filter(|t| *t != 0),
                unknown: attrs
                    .unknown
                    .iter()
                    .filter(|(n, _)| !REMARKS.contains(&(n & NLA_TYPE_MASK)))
                    .cloned()
                    .collect(),
                ..attrs.clone()
            },
            elements,
        }
    }

    /// `NFT_MSG_NEWSET`
    pub(crate) fn to_attrs(&self, table: &str, id: u32) -> SetAttrs {
        SetAttrs {
            table: Some(table.to_owned()),
            id: Some(id),
            ..self.attrs.clone()
        }
    }
}
