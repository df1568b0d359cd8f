//! Attributes of sets and elements without a field: statements of each element, references to objects, and what a newer
//! kernel lists. They are written as they were read.

use super::super::expr::{Expr, ExprElem};
use super::super::model::{Data, ElementKey, Unread};
use super::super::raw;
use super::super::wire::ElemAttrs;
use std::collections::HashMap;
use weir_netlink::attr::{AttrSet, Attrs, NFTA_LIST_ELEM, NLA_TYPE_MASK, Writer};

/// The attributes of elements, by the lowest value of the element's key.
pub(crate) type ByElement<'a> = HashMap<&'a [u8], Vec<&'a Unread>>;

/// Groups the attributes of elements by their element.
pub(crate) fn by_element(unread: &[Unread]) -> ByElement<'_> {
    let mut found = ByElement::new();
    for u in unread {
        if let Some(key) = &u.element {
            found.entry(&key.first().0).or_default().push(u);
        }
    }
    found
}

/// Adds to the attributes of an element those that were read and have no field.
pub(crate) fn with_unread(unread: &[Unread]) -> impl Fn(ElemAttrs) -> ElemAttrs + '_ {
    let found = by_element(unread);
    move |mut a| {
        let key = a.key.as_ref().and_then(|k| k.value.as_deref());
        let is_end = a.flags == Some(raw::NFT_SET_ELEM_INTERVAL_END);
        let of = found.get(key.unwrap_or_default()).filter(|_| !is_end);
        for u in of.into_iter().flatten() {
            match (u.attribute, u.bytes.as_slice().try_into()) {
                (ElemAttrs::NFTA_SET_ELEM_FLAGS, Ok(flags)) => {
                    *a.flags.get_or_insert_default() |= u32::from_be_bytes(flags);
                }
                (ElemAttrs::NFTA_SET_ELEM_USERDATA, _) => a.userdata = Some(u.bytes.clone()),
                _ => a.unknown.push((u.attribute, u.written())),
            }
        }
        a
    }
}

impl Unread {
    /// The expressions, if it holds one or several.
    pub(crate) fn expressions(&self) -> Option<Vec<Expr>> {
        let (one, list) = match self.element {
            None => (raw::NFTA_SET_EXPR, raw::NFTA_SET_EXPRESSIONS),
            Some(_) => (raw::NFTA_SET_ELEM_EXPR, raw::NFTA_SET_ELEM_EXPRESSIONS),
        };
        let decode = |payload: &[u8]| Some(ExprElem::decode(payload).ok()?.0);
        // The number with or without `NLA_F_NESTED`.
        match self.attribute & NLA_TYPE_MASK {
            n if n == one => Some(vec![decode(&self.bytes)?]),
            n if n == list => Attrs::new(&self.bytes)
                .map(|a| decode(a.ok()?.payload))
                .collect(),
            _ => None,
        }
    }

    /// The bytes as they can be written: the kernel lists `NFT_QUOTA_F_DEPLETED` for a quota that is used up, and refuses it
    /// in a request.
    pub(crate) fn written(&self) -> Vec<u8> {
        let mut exprs = self.expressions().unwrap_or_default();
        if !exprs
            .iter()
            .any(|e| matches!(e, Expr::Quota(q) if q.is_depleted()))
        {
            return self.bytes.clone();
        }
        for e in &mut exprs {
            if let Expr::Quota(q) = e {
                q.settle_flags();
            }
        }
        encoded(exprs, self.is_list())
    }

    /// Whether it is a list of expressions.
    fn is_list(&self) -> bool {
        let list = match self.element {
            None => raw::NFTA_SET_EXPRESSIONS,
            Some(_) => raw::NFTA_SET_ELEM_EXPRESSIONS,
        };
        self.attribute & NLA_TYPE_MASK == list
    }

    /// The attribute with the values that packets change reset, and without `NLA_F_NESTED`.
    pub(super) fn without_counters(&self) -> Self {
        let Some(mut exprs) = self.expressions() else {
            return self.clone();
        };
        exprs.iter_mut().for_each(settle);
        Self {
            element: self.element.clone(),
            attribute: self.attribute & NLA_TYPE_MASK,
            bytes: encoded(exprs, self.is_list()),
        }
    }
}

/// Resets the values that packets change.
pub(crate) fn settle(e: &mut Expr) {
    match e {
        Expr::Counter(c) => (c.bytes, c.packets) = (None, None),
        Expr::Quota(q) => {
            q.consumed = None;
            q.settle_flags();
        }
        Expr::Last(l) => (l.set, l.msecs) = (None, None),
        _ => {}
    }
}

/// Resets the values that packets change in the statements of an element.
pub(crate) fn settle_element(a: &mut ElemAttrs) {
    let element = ElementKey::Value(Data::default());
    for (attribute, bytes) in &mut a.unknown {
        let whole = Unread {
            element: Some(element.clone()),
            attribute: *attribute,
            bytes: std::mem::take(bytes),
        };
        let settled = whole.without_counters();
        (*attribute, *bytes) = (settled.attribute, settled.bytes);
    }
}

/// Encodes expressions as the value of an attribute: as a list, or without list elements.
fn encoded(exprs: Vec<Expr>, is_list: bool) -> Vec<u8> {
    let mut w = Writer::new();
    for e in exprs.into_iter().map(ExprElem) {
        match is_list {
            true => w.attr(NFTA_LIST_ELEM, true, |w| e.encode(w)),
            false => e.encode(&mut w),
        }
    }
    w.finish().unwrap_or_default()
}
