//! Attributes of a set without a field in the model, so that no listing hides them: kinds of objects, references to
//! objects and counters in `nft`'s syntax, others as raw attributes.

use super::value::hex;
use crate::nft::expr::{Expr, ExprAttrs};
use crate::nft::model::{Element, ObjectKind, Set, TableFamily, Unread};
use crate::nft::{listing, raw};
use weir_netlink::attr::AttrSet;

/// The kind of object that a map refers to: `map m { type ipv4_addr : counter }`.
pub(super) fn object(s: &Set) -> Option<String> {
    let is_it = |u: &&Unread| u.element.is_none() && u.attribute == raw::NFTA_SET_OBJ_TYPE;
    let bytes = s
        .unread
        .iter()
        .find(is_it)?
        .bytes
        .as_slice()
        .try_into()
        .ok()?;
    Some(ObjectKind::Stateful(u32::from_be_bytes(bytes)).word())
}

/// One line per attribute of the set.
pub(super) fn of_set(s: &Set) -> Vec<String> {
    let of_set = s.unread.iter().filter(|u| u.element.is_none());
    let lines = of_set.filter_map(|u| match u.attribute {
        raw::NFTA_SET_OBJ_TYPE => None,
        raw::NFTA_SET_EXPR => Some(match expression(&u.bytes) {
            // The values are those of the elements.
            Some(text) if text.starts_with("counter ") => "counter".to_owned(),
            Some(text) => text,
            None => opaque(u),
        }),
        _ => Some(opaque(u)),
    });
    lines.collect()
}

/// The text after an element.
pub(super) fn of_element(s: &Set, e: &Element) -> String {
    let of = |u: &&Unread| {
        u.element
            .as_ref()
            .is_some_and(|k| k.first() == e.key.first())
    };
    s.unread.iter().filter(of).map(of_one).collect()
}

/// The text of one attribute of an element.
pub(crate) fn of_one(u: &Unread) -> String {
    match u.attribute {
        raw::NFTA_SET_ELEM_OBJREF => {
            let name = u.bytes.strip_suffix(&[0]).unwrap_or(&u.bytes);
            format!(" : \"{}\"", String::from_utf8_lossy(name))
        }
        raw::NFTA_SET_ELEM_EXPR => match expression(&u.bytes) {
            Some(text) => format!(" {text}"),
            None => format!(" {}", opaque(u)),
        },
        _ => format!(" {}", opaque(u)),
    }
}

fn expression(bytes: &[u8]) -> Option<String> {
    let expr = Expr::from_attrs(ExprAttrs::decode(bytes).ok()?);
    Some(listing::text(&[expr], &[], TableFamily::Inet))
}

fn opaque(u: &Unread) -> String {
    format!("opaque(attribute {} {})", u.attribute, hex(&u.bytes))
}
