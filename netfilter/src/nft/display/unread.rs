//! Attributes of a set without a field in the model, so that no listing hides them: kinds of objects, references to
//! objects and counters in `nft`'s syntax, others as raw attributes.

use super::value::hex;
use crate::nft::model::{Element, ObjectKind, Set, TableFamily, Unread};
use crate::nft::set::ByElement;
use crate::nft::{listing, raw};
use weir_netlink::attr::text_of;

/// The kind of object that a map refers to: `map m { type ipv4_addr : counter }`.
pub(super) fn object(s: &Set) -> Option<String> {
    Some(ObjectKind::Stateful(s.object()?).word())
}

/// One line per attribute of the set that holds no statement.
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

/// Two texts of an element: its statements, which follow the key, and its other attributes, which end the element.
pub(super) fn of_element(unread: &ByElement<'_>, e: &Element) -> (String, String) {
    let (mut statements, mut rest) = (String::new(), String::new());
    let of = unread.get(e.key.first().0.as_slice());
    for u in of.into_iter().flatten() {
        match u.attribute {
            raw::NFTA_SET_ELEM_OBJREF => {
                let name = u.bytes.strip_suffix(&[0]).unwrap_or(&u.bytes);
                rest += &format!(" : \"{}\"", text_of(name));
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
    let text = |e| listing::text(&[e], &[], TableFamily::Inet);
    Some(u.expressions()?.into_iter().map(text).collect())
}

fn opaque(u: &Unread) -> String {
    format!("opaque(attribute {} {})", u.attribute, hex(&u.bytes))
}
