//! Values as text, in the syntax and the spelling of `nft list ruleset` (nftables 1.0.6).

mod numbers;
mod rule;
mod ruleset;
mod selector;
mod statement;
mod value;

pub(crate) use rule::rule_text;
pub(crate) use ruleset::{base_chain_text, set_text};

use super::context::Context;
use super::model::{Family, Rule};
use std::fmt;

/// As a rule of an `inet` table.
impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&rule_text(self, Family::Inet, Context::of(Family::Inet)))
    }
}
