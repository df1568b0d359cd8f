//! Values as text, in the syntax and the spelling of `nft list ruleset` (nftables 1.0.6).

mod concat;
pub(crate) mod numbers;
mod object;
mod ruleset;
mod type_of;
mod unread;
mod value;

pub(crate) use concat::Field;
#[cfg(test)]
pub(crate) use ruleset::set_text;
pub(crate) use ruleset::{base_chain_text, set_line, set_word, table_flags};
pub(crate) use type_of::{data as data_fields, key as key_fields};
pub(crate) use value::{
    address, bound, by_bit, bytes, date, duration, element, ether, hex, hex_number, hour, ifname,
    labels, order, ordered, range, tc_handle, value,
};

use super::listing::rule_text;
use super::model::{PayloadBase, Rule, Set, TableFamily};
use std::fmt;

impl Rule {
    /// The rule as `nft` lists it in a table of `family`.
    #[must_use]
    pub fn text(&self, family: TableFamily) -> String {
        rule_text(self, family)
    }
}

/// The name of a payload base, as in `@nh,0,8`.
pub(crate) fn name_of_base(base: PayloadBase) -> &'static str {
    match base {
        PayloadBase::LinkLayer => "ll",
        PayloadBase::Network => "nh",
        PayloadBase::Transport => "th",
        PayloadBase::Inner => "ih",
        PayloadBase::Other(_) => "unknown",
    }
}

impl Set {
    /// The elements as `nft` lists them, one text each.
    #[must_use]
    pub fn element_texts(&self) -> Vec<String> {
        ruleset::element_texts(self)
    }
}

/// Prints the rule as [`Rule::text`] of an `inet` table.
impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text(TableFamily::Inet))
    }
}
