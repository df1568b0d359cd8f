//! Adds an element to a set, or deletes it (`NFTA_DYNSET_*`). Since 4.1, expressions since 4.3, deletion since 5.4.

use super::ExprElem;
use super::prelude::*;
use crate::nft::display::{Field, duration};
use crate::nft::listing;
use std::time::Duration;
use weir_netlink::attr::{AttrSet, Attrs, RawNest};

weir_netlink::attributes! {
    /// `enum nft_dynset_attributes`
    #[doc(alias = "nft_dynset")]
    pub struct Dynset {
        /// name of the set
        set: Str = NFTA_DYNSET_SET_NAME 1,
        /// id of a set that is created in the same batch
        set_id: Be32 = NFTA_DYNSET_SET_ID 2,
        /// `enum nft_dynset_ops`
        op: Be32 = NFTA_DYNSET_OP 3,
        /// key register
        sreg_key: Be32 = NFTA_DYNSET_SREG_KEY 4,
        /// register of a map's value
        sreg_data: Be32 = NFTA_DYNSET_SREG_DATA 5,
        /// lifetime in milliseconds
        timeout: Be64 = NFTA_DYNSET_TIMEOUT 6,
        /// one expression per element
        expr: RawNest = NFTA_DYNSET_EXPR 7,
        /// `NFT_DYNSET_F_*`
        flags: Be32 = NFTA_DYNSET_FLAGS 9,
        /// several expressions per element; since 5.11
        expressions: RawNest = NFTA_DYNSET_EXPRESSIONS 10,
    }
}

impl Dynset {
    fn statements(&self, l: &Listing<'_>) -> Option<String> {
        let one = self.expr.as_deref().map(ExprElem::decode);
        let many = self
            .expressions
            .as_deref()
            .map(Attrs::new)
            .into_iter()
            .flatten();
        let many = many.map(|a| ExprElem::decode(a.ok()?.payload).ok());
        let exprs: Option<Vec<Expr>> = one
            .map(Result::ok)
            .into_iter()
            .chain(many)
            .map(|e| Some(e?.0))
            .collect();
        // The kernel accepts no dynset here. One in a forged message is listed by its bytes, with everything in it: the message
        // would determine the depth of the recursion.
        let exprs = exprs.filter(|all| !all.iter().any(|e| matches!(e, Expr::Dynset(_))))?;
        // The registers of the rule are not available here, so a statement that needs one is listed by its bytes.
        let text = listing::text(&exprs, &[], l.family);
        // Each element has its own counter, so the counter of the statement has no values.
        Some(text.replace("counter packets 0 bytes 0", "counter"))
    }
}

impl Instruction for Dynset {
    fn normalize(&mut self) {
        self.set_id = None;
        super::drop_if(&mut self.timeout, 0);
        // The kernel requires this flag for several expressions, but does not list it.
        if self.expressions.is_some() {
            self.flags = Some(self.flags.unwrap_or(0) | raw::NFT_DYNSET_F_EXPR);
        }
        super::drop_if(&mut self.flags, 0);
    }

    fn set(&mut self) -> Option<SetName<'_>> {
        Some((&mut self.set, &mut self.set_id))
    }

    fn list(&self, l: &mut Listing<'_>) -> Option<()> {
        let attrs = l.anonymous(self.set_id).map(|s| s.attrs.clone());
        let key = l.key(
            self.sreg_key,
            attrs.as_ref().and_then(|a| a.key_len),
            self.sreg_data,
        )?;
        let name = self.set.as_deref()?;
        let (key_fields, mut data_fields) = l.fields_of_set(name);
        let key = key.typed_as(&key_fields);
        let mut text = l.text(&key);
        if let Some(timeout) = self.timeout.filter(|t| *t != 0) {
            text += &format!(" timeout {}", duration(Duration::from_millis(timeout)));
        }
        let statements = self.statements(l)?;
        if !statements.is_empty() {
            text += &format!(" {statements}");
        }
        if self.sreg_data.is_some() {
            let data = l.key(self.sreg_data, None, None)?;
            // nft takes the type from the map. If the map is not known here, a mark is assumed, the most frequent type.
            if data_fields.is_empty() {
                data_fields = Field::of(DataType::MARK, 4)?;
            }
            let data = data.typed_as(&data_fields);
            text += &format!(" : {}", l.text(&data));
        }
        if let Some(attrs) = attrs {
            let size = attrs.desc.and_then(|d| d.size).unwrap_or(0);
            return l.say(format!("meter {name} size {size} {{ {text} }}"));
        }
        let op = match self.op? {
            raw::NFT_DYNSET_OP_ADD => "add",
            raw::NFT_DYNSET_OP_UPDATE => "update",
            raw::NFT_DYNSET_OP_DELETE => "delete",
            _ => return None,
        };
        l.say(format!("{op} @{name} {{ {text} }}"))
    }
}
