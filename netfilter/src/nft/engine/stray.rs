//! Attributes that the kernel lists and no field represents. They are kept as bytes, so that a comparison ignores nothing.

use super::snapshot::Anonymous;
use crate::nft::model::{Chain, Set, Table};
use crate::nft::wire::{ChainAttrs, NFTA_DEVICE_NAME, RuleAttrs, SetAttrs, TableAttrs};
use crate::nft::{raw, set, userdata};
use std::fmt;
use weir_netlink::attr::{AttrSet, Attrs, NLA_TYPE_MASK, Unknown, Writer};

/// An attribute, or a part of one, without a field.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Stray {
    /// The kind of the object that has it: the table, or one of its chains, sets or rules.
    pub(super) of: &'static str,
    /// `NFTA_*`, with the flags of its type.
    pub(super) attribute: u16,
    /// Its payload.
    pub(super) bytes: Vec<u8>,
}

impl fmt::Display for Stray {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let number = self.attribute & NLA_TYPE_MASK;
        write!(
            f,
            "a {} has attribute {number}, which is not desired",
            self.of
        )
    }
}

/// `NFTA_TABLE_PAD`
const NFTA_TABLE_PAD: u16 = 5;
/// `NFTA_CHAIN_PAD`
const NFTA_CHAIN_PAD: u16 = 9;
/// `NFTA_RULE_PAD`
const NFTA_RULE_PAD: u16 = 8;
/// `NFT_CHAIN_BASE`: the kernel lists it for every chain with a hook.
const NFT_CHAIN_BASE: u32 = 1;
/// The flags that distinguish sets, and all flags that a [`Set`] represents.
const SET_FLAGS: u32 = raw::NFT_SET_ANONYMOUS
    | raw::NFT_SET_CONSTANT
    | raw::NFT_SET_INTERVAL
    | raw::NFT_SET_MAP
    | raw::NFT_SET_TIMEOUT
    | raw::NFT_SET_EVAL;

/// Attributes of one object without a field.
struct Found(&'static str, Vec<Stray>);

impl Found {
    fn push(&mut self, attribute: u16, bytes: Vec<u8>) {
        self.1.push(Stray {
            of: self.0,
            attribute,
            bytes,
        });
    }

    /// Adds all attributes that the declaration does not name, except empty pad attributes, with which some architectures
    /// align 64-bit integers.
    fn unknown(&mut self, unknown: &[Unknown], pad: Option<u16>) {
        for (number, bytes) in unknown {
            let is_pad = Some(number & NLA_TYPE_MASK) == pad && bytes.is_empty();
            if !is_pad {
                self.push(*number, bytes.clone());
            }
        }
    }

    /// Adds the userdata unless it equals `made`, which weir would write.
    fn userdata(&mut self, attribute: u16, found: Option<&[u8]>, made: Option<Vec<u8>>) {
        let made = made.unwrap_or_default();
        let found = found.unwrap_or_default();
        if found != made {
            self.push(attribute, found.to_vec());
        }
    }

    /// Adds the userdata of a set unless it has exactly the entries that weir, like `nft`, writes for such a set: the byte
    /// orders of key and value, `auto-merge`, `typeof` and the comment.
    fn notes(&mut self, a: &SetAttrs, made: &SetAttrs) {
        let listed = a.userdata.as_deref().unwrap_or_default();
        if !userdata::is_same(listed, made.userdata.as_deref().unwrap_or_default()) {
            self.push(SetAttrs::NFTA_SET_USERDATA, listed.to_vec());
        }
    }

    fn differs(&mut self, attribute: u16, listed: Option<u32>, made: Option<u32>) {
        let listed = listed.unwrap_or(0);
        if listed != made.unwrap_or(0) {
            self.push(attribute, listed.to_be_bytes().to_vec());
        }
    }

    fn number(&mut self, attribute: u16, number: u32) {
        if number != 0 {
            self.push(attribute, number.to_be_bytes().to_vec());
        }
    }
}

pub(super) fn of_table(a: &TableAttrs, table: &Table) -> Vec<Stray> {
    let mut found = Found("table", Vec::new());
    found.unknown(&a.unknown, Some(NFTA_TABLE_PAD));
    found.userdata(
        TableAttrs::NFTA_TABLE_USERDATA,
        a.userdata.as_deref(),
        userdata::table(table.comment.as_deref(), table.version),
    );
    found.1
}

pub(super) fn of_chain(a: &ChainAttrs, chain: &Chain) -> Vec<Stray> {
    let mut found = Found("chain", Vec::new());
    found.unknown(&a.unknown, Some(NFTA_CHAIN_PAD));
    let comment = chain.comment.as_deref();
    found.userdata(
        ChainAttrs::NFTA_CHAIN_USERDATA,
        a.userdata.as_deref(),
        userdata::comment(comment),
    );
    found.number(
        ChainAttrs::NFTA_CHAIN_FLAGS,
        a.flags.unwrap_or(0)
            & !NFT_CHAIN_BASE
            & !raw::NFT_CHAIN_HW_OFFLOAD
            & !raw::NFT_CHAIN_BINDING,
    );
    if let Some(hook) = &a.hook {
        found.unknown(&hook.unknown, None);
        // A name without a terminating NUL matches every device with that prefix. Since 6.16
        let is_plain =
            |list: &[u8]| Attrs::new(list).all(|a| a.is_ok_and(|a| a.number == NFTA_DEVICE_NAME));
        if let Some(list) = hook.devs.as_deref().filter(|list| !is_plain(list)) {
            found.push(crate::nft::wire::HookAttrs::NFTA_HOOK_DEVS, list.to_vec());
        }
    }
    found.1
}

/// The flag of a chain that belongs to a rule, but to which no rule leads.
pub(super) fn binding() -> Stray {
    Stray {
        of: "chain",
        attribute: ChainAttrs::NFTA_CHAIN_FLAGS,
        bytes: raw::NFT_CHAIN_BINDING.to_be_bytes().to_vec(),
    }
}

pub(super) fn of_rule(a: &RuleAttrs) -> Vec<Stray> {
    let mut found = Found("rule", Vec::new());
    found.unknown(&a.unknown, Some(NFTA_RULE_PAD));
    let user = a.userdata.as_deref();
    let comment = userdata::text(user, userdata::COMMENT);
    found.userdata(
        RuleAttrs::NFTA_RULE_USERDATA,
        user,
        userdata::comment(comment.as_deref()),
    );
    if let Some(compat) = &a.compat {
        found.push(RuleAttrs::NFTA_RULE_COMPAT, compat.clone());
    }
    found.1
}

/// Attributes around a set. Its other attributes are kept in the set, see [`Set::unread`].
pub(super) fn of_set(a: &SetAttrs, set: &Set) -> Vec<Stray> {
    let made = set.to_attrs("", 0);
    let mut found = around_set(a, &made);
    found.notes(a, &made);
    found.1
}

/// Attributes of an anonymous set that its rule does not imply. `made` is the set that weir would create for the rule;
/// `None` if the rule, as it was read, has no such set.
pub(super) fn of_anonymous(listed: &Anonymous, made: Option<&SetAttrs>) -> Vec<Stray> {
    let Anonymous { attrs: a, set, .. } = listed;
    let mut found = around_set(a, &made.cloned().unwrap_or_default());
    // Stateful objects of each element, references, and other attributes without a field.
    for u in &set.unread {
        found.push(u.attribute, u.bytes.clone());
    }
    let Some(made) = made else {
        found.push(SetAttrs::NFTA_SET_NAME, set.name.clone().into_bytes());
        return found.1;
    };
    found.notes(a, made);
    found.differs(SetAttrs::NFTA_SET_FLAGS, a.flags, made.flags);
    found.differs(SetAttrs::NFTA_SET_KEY_TYPE, a.key_type, made.key_type);
    found.differs(SetAttrs::NFTA_SET_KEY_LEN, a.key_len, made.key_len);
    found.differs(SetAttrs::NFTA_SET_DATA_TYPE, a.data_type, made.data_type);
    // NFTA_SET_DESC_SIZE, the expected number of elements, is only a hint: programs count differently.
    if let Some(timeout) = a.timeout.filter(|t| *t != 0) {
        found.push(SetAttrs::NFTA_SET_TIMEOUT, timeout.to_be_bytes().to_vec());
    }
    found.number(SetAttrs::NFTA_SET_GC_INTERVAL, a.gc_interval.unwrap_or(0));
    found.1
}

fn around_set(a: &SetAttrs, made: &SetAttrs) -> Found {
    let mut found = Found("set", Vec::new());
    // Flags that follow from other properties of the set.
    let implied = raw::NFT_SET_CONCAT | raw::NFT_SET_OBJECT | raw::NFT_SET_EXPR;
    let implied = made.flags.unwrap_or(0) & implied;
    found.number(
        SetAttrs::NFTA_SET_FLAGS,
        a.flags.unwrap_or(0) & !SET_FLAGS & !implied,
    );
    found.differs(SetAttrs::NFTA_SET_POLICY, a.policy, made.policy);
    if let Some(desc) = &a.desc {
        let mut rest = desc.clone();
        rest.size = None;
        let wanted = made.desc.as_ref().and_then(|d| d.concat.as_deref());
        if set::field_lens(rest.concat.as_deref()) == set::field_lens(wanted) {
            rest.concat = None;
        }
        let mut w = Writer::default();
        rest.encode(&mut w);
        let bytes = w.finish().unwrap_or_default();
        if !bytes.is_empty() {
            found.push(SetAttrs::NFTA_SET_DESC, bytes);
        }
    }
    found
}
