//! Changes some elements of a set, for a caller that knows the rest of the ruleset to be in sync.

use super::dump::{decode, kind};
use super::{NftEngine, NftOp, TableId, Transaction};
use crate::nft::model::{Element, Set};
use crate::nft::wire::{ElemAttrs, ElemListAttrs, attrs};
use crate::nft::{raw, set};
use weir_netlink::{Error, Result, Transport};

/// The elements of a set to delete and to add.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ElementChanges {
    /// `delete element`: elements of the set, with all their properties.
    pub delete: Vec<Element>,
    /// `add element`
    pub add: Vec<Element>,
}

impl ElementChanges {
    /// Whether there are no changes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.delete.is_empty() && self.add.is_empty()
    }
}

impl<T: Transport> NftEngine<T> {
    /// Changes elements of a set if the ruleset still has this generation, and reads exactly these elements back
    /// (`nft get element`): for a set with many elements of which few change. The elements of `set` itself are ignored.
    /// Since 4.15, the first kernel that can read one element.
    ///
    /// Returns the generation of the ruleset afterwards: everything else is as it was in `generation`. `None` if another
    /// writer committed earlier, so that nothing was changed, or since then; [`NftEngine::apply`] then determines the
    /// state of the set.
    ///
    /// # Errors
    /// The set has intervals: the kernel may find another element for a key. A refusal of the kernel, as
    /// [`NftEngine::commit`]. An element that was read back differs from the written one.
    pub fn change_elements(
        &mut self,
        table: &TableId,
        set: &Set,
        changes: &ElementChanges,
        generation: u32,
    ) -> Result<Option<u32>> {
        let object = || format!("elements of set {} {} {}", table.0, table.1, set.name);
        if set.interval {
            let reason = "it has intervals; apply the whole set";
            return Err(Error::refused("write", object(), reason));
        }
        let frame = super::plan::set_frame(set);
        let mut ops = Vec::new();
        if !changes.delete.is_empty() {
            let gone = changes.delete.clone();
            ops.push(NftOp::DeleteElements(table.clone(), frame.clone(), gone));
        }
        if !changes.add.is_empty() {
            let new = changes.add.clone();
            ops.push(NftOp::AddElements(table.clone(), frame.clone(), new));
        }
        let transaction = Transaction {
            generation,
            ops,
            kept: Vec::new(),
        };
        match self.commit(&transaction) {
            Ok(()) => {}
            Err(e) if e.is_stale_generation() => return Ok(None),
            Err(e) => return Err(e),
        }
        let settled = |elements: Vec<Element>| {
            let set = Set {
                elements,
                ..frame.clone()
            };
            set.settled().elements
        };
        let is_added = |e: &Element| changes.add.iter().any(|added| added.key == e.key);
        let gone = changes.delete.iter().filter(|e| !is_added(e));
        for (element, is_there) in gone
            .map(|e| (e, false))
            .chain(changes.add.iter().map(|e| (e, true)))
        {
            let found = settled(self.element(table, set, element)?);
            let desired = is_there.then(|| settled(vec![element.clone()]));
            if found != desired.unwrap_or_default() {
                if self.generation()? != generation.wrapping_add(1) {
                    return Ok(None);
                }
                let reason = "an element is not as it was written";
                return Err(Error::malformed("read back", object(), reason));
            }
        }
        let after = self.generation()?;
        Ok((after == generation.wrapping_add(1)).then_some(after))
    }

    /// The element with this key as the kernel lists it; empty if the set has none.
    fn element(&mut self, table: &TableId, set: &Set, element: &Element) -> Result<Vec<Element>> {
        let what = format!("an element of set {} {} {}", table.0, table.1, set.name);
        let key = |attrs: ElemAttrs| {
            attrs!(ElemAttrs {
                flags: attrs.flags,
                key: attrs.key,
                key_end: attrs.key_end
            })
        };
        let keys = set::elem_attrs(std::slice::from_ref(element), set.ranges()).map(key);
        let ask = attrs!(ElemListAttrs {
            table: table.1.clone(),
            set: set.name.clone(),
            elements: keys.collect::<Vec<_>>()
        });
        let reply =
            match self
                .socket
                .get(kind(raw::NFT_MSG_GETSETELEM), table.0.number(), &ask, &what)
            {
                Ok(reply) => reply,
                Err(e) if e.is_not_found() => return Ok(Vec::new()),
                Err(e) => return Err(e),
            };
        let attrs: ElemListAttrs = decode(&reply, &what)?;
        let mut listed = set::Listed::default();
        listed.add(&attrs.elements.unwrap_or_default());
        let (elements, unread) = listed.finish(false, false, set.key_type);
        match unread.first() {
            None => Ok(elements),
            Some(_) => {
                let reason = "it has attributes that were not written";
                Err(Error::malformed("read back", what, reason))
            }
        }
    }
}
