//! Values as text, in the syntax and the spelling of `nft list ruleset` (nftables 1.0.6).

mod concat;
mod numbers;
mod object;
mod rule;
mod ruleset;
mod selector;
mod statement;
mod type_of;
mod unread;
mod value;

pub(crate) use rule::rule_text;
#[cfg(test)]
pub(crate) use ruleset::set_text;
pub(crate) use ruleset::{base_chain_text, set_line, set_word};

use super::context::Context;
use super::model::{Rule, Set, TableFamily};
use std::fmt;

impl Rule {
    /// The rule as `nft` lists it in a table of `family`.
    #[must_use]
    pub fn text(&self, family: TableFamily) -> String {
        rule_text(self, family, Context::of(family))
    }
}

impl Set {
    /// The elements as `nft` lists them.
    #[must_use]
    pub fn element_texts(&self) -> Vec<String> {
        ruleset::element_texts(self)
    }
}

/// As a rule of an `inet` table.
impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text(TableFamily::Inet))
    }
}
