//! Attributes of a set without a field in the model, so that no listing hides them: kinds of objects, references to
//! objects and counters in `nft`'s syntax, others as raw attributes.

use super::value::hex;
use crate::nft::expr::{Expr, ExprAttrs};
use crate::nft::model::{Element, ElementKey, ObjectKind, Set, TableFamily, Unread};
use crate::nft::{listing, raw};
use weir_netlink::attr::{AttrSet, Attrs, NLA_TYPE_MASK};

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

/// One line per attribute of the set that is no statement.
pub(super) fn of_set(s: &Set) -> Vec<String> {
    let other = |u: &&Unread| u.attribute != raw::NFTA_SET_OBJ_TYPE && statement(u).is_none();
    let of_set = s.unread.iter().filter(|u| u.element.is_none());
    of_set.filter(other).map(opaque).collect()
}

/// The statements that each element has, without the values of its counters.
pub(super) fn statements_of_set(s: &Set) -> Option<String> {
    let of_set = s.unread.iter().filter(|u| u.element.is_none());
    let texts: Vec<String> = of_set.filter_map(statement).flatten().collect();
    let plain = texts.iter().map(|text| match text.starts_with("counter ") {
        true => "counter",
        false => text,
    });
    (!texts.is_empty()).then(|| plain.collect::<Vec<_>>().join(" "))
}

/// Of an element: the text of its statements, which follows the key, and that of the other attributes, which ends it.
pub(super) fn of_element(unread: &[Unread], e: &Element) -> (String, String) {
    let (mut statements, mut rest) = (String::new(), String::new());
    for u in unread {
        let key = u.element.as_ref().map(ElementKey::first);
        if key != Some(e.key.first()) {
            continue;
        }
        match u.attribute {
            raw::NFTA_SET_ELEM_OBJREF => {
                let name = u.bytes.strip_suffix(&[0]).unwrap_or(&u.bytes);
                rest += &format!(" : \"{}\"", String::from_utf8_lossy(name));
            }
            _ => match statement(u) {
                Some(texts) => statements += &format!(" {}", texts.join(" ")),
                None => rest += &format!(" {}", opaque(u)),
            },
        }
    }
    (statements, rest)
}

/// The statement or the statements that an attribute holds, of a set or of an element.
fn statement(u: &Unread) -> Option<Vec<String>> {
    let (one, list) = match u.element {
        None => (raw::NFTA_SET_EXPR, raw::NFTA_SET_EXPRESSIONS),
        Some(_) => (raw::NFTA_SET_ELEM_EXPR, raw::NFTA_SET_ELEM_EXPRESSIONS),
    };
    // With or without the flag of nested attributes.
    match u.attribute & NLA_TYPE_MASK {
        n if n == one => Some(vec![expression(&u.bytes)?]),
        n if n == list => {
            let each = Attrs::new(&u.bytes).map(|a| expression(a.ok()?.payload));
            each.collect()
        }
        _ => None,
    }
}

fn expression(bytes: &[u8]) -> Option<String> {
    let expr = Expr::from_attrs(ExprAttrs::decode(bytes).ok()?);
    Some(listing::text(&[expr], &[], TableFamily::Inet))
}

fn opaque(u: &Unread) -> String {
    format!("opaque(attribute {} {})", u.attribute, hex(&u.bytes))
}
