//! Matches and targets of xtables inside rules of nf_tables, as `iptables-nft` and `ip6tables-nft` write them.
//!
//! These tools use nf_tables expressions where they exist; everything else is a `match` or a `target` expression,
//! which holds the same bytes as a rule of a legacy table. Such an expression remains [`Expr::Opaque`], so it is kept
//! and compared byte for byte; this module only displays it.
//!
//! ```text
//! xt match "multiport" [-m multiport --dports 80,81]
//! xt target "CT" [-j CT --zone 1]
//! ```
//! The first part is the listing of `nft` without libxtables (since 1.0.7), the part in brackets that of `iptables`. Where
//! weir cannot decode the bytes, the brackets contain the revision and the bytes. That includes sets, which the bytes name
//! by index, and families other than `ip` and `ip6`.

mod rule;

pub use rule::legacy_rule;

use super::expr::Expr;
use super::model::{Rule, Statement, Table, TableFamily};
use crate::xtables::{self, Target, Unknown};
use std::fmt;
use weir_netlink::attr::{AttrSet, Be32, Bytes, Str};

weir_netlink::attributes! {
    /// `enum nft_match_attributes` (linux/netfilter/nf_tables_compat.h). Since 3.13.
    pub struct MatchAttrs {
        /// the match, at most 28 bytes
        name: Str = NFTA_MATCH_NAME 1,
        revision: Be32 = NFTA_MATCH_REV 2,
        /// the data after its header in a legacy table
        info: Bytes = NFTA_MATCH_INFO 3,
    }
}

weir_netlink::attributes! {
    /// `enum nft_target_attributes` (linux/netfilter/nf_tables_compat.h). Since 3.13.
    pub struct TargetAttrs {
        /// the target, at most 28 bytes
        name: Str = NFTA_TARGET_NAME 1,
        revision: Be32 = NFTA_TARGET_REV 2,
        /// the data after its header in a legacy table
        info: Bytes = NFTA_TARGET_INFO 3,
    }
}

/// C names and numbers of the attributes, for a test that compares them with the system's headers.
#[must_use]
pub fn constants() -> Vec<(&'static str, u16)> {
    [MatchAttrs::CONSTANTS, TargetAttrs::CONSTANTS].concat()
}

/// The content of a compat expression. `Display` prints it as in a listing.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Compat {
    /// `match`
    Match(xtables::Match),
    /// `target`
    Target(Target),
}

impl Compat {
    /// Decodes an expression in a table of `family`; `None` if it is not a compat expression, or has unknown attributes.
    #[must_use]
    pub fn read(expr: &Expr, family: TableFamily) -> Option<Self> {
        let Expr::Opaque(attrs) = expr else {
            return None;
        };
        let data = attrs.data.as_deref()?;
        if !attrs.unknown.is_empty() {
            return None;
        }
        let is_match = match attrs.name.as_deref()? {
            "match" => true,
            "target" => false,
            _ => return None,
        };
        // The attributes of a target have the same numbers.
        let a = MatchAttrs::decode(data).ok()?;
        if !a.unknown.is_empty() {
            return None;
        }
        let unknown = Unknown {
            name: a.name?,
            revision: u8::try_from(a.revision?).ok()?,
            data: a.info?,
        };
        Some(match (is_match, legacy(family)) {
            (true, Some(family)) => Self::Match(xtables::match_of(family, &unknown)),
            (true, None) => Self::Match(xtables::Match::Unknown(unknown)),
            (false, Some(family)) => Self::Target(xtables::target_of(family, &unknown)),
            (false, None) => Self::Target(Target::Unknown(unknown)),
        })
    }
}

/// The family of legacy tables whose rules contain the same bytes.
fn legacy(family: TableFamily) -> Option<xtables::XtFamily> {
    match family {
        TableFamily::Ip => Some(xtables::XtFamily::Ip),
        TableFamily::Ip6 => Some(xtables::XtFamily::Ip6),
        _ => None,
    }
}

/// Whether `nft list ruleset` warns that `iptables-nft` manages the table: one of its rules has a compat expression.
#[must_use]
pub fn is_managed(table: &Table) -> bool {
    let rules = table.chains.iter().flat_map(|c| &c.rules);
    let mut statements = rules.flat_map(Rule::with_own).flat_map(|r| &r.statements);
    statements.any(is_compat)
}

fn is_compat(s: &Statement) -> bool {
    let Statement::Opaque(exprs) = s else {
        return false;
    };
    exprs.iter().any(|e| matches!(e.name(), "match" | "target"))
}

impl fmt::Display for Compat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (kind, name, text) = match self {
            Self::Match(m) => ("match", m.name(), m.to_string()),
            Self::Target(t) => ("target", t.name(), t.to_string()),
        };
        let is_unknown = matches!(
            self,
            Self::Match(xtables::Match::Unknown(_)) | Self::Target(Target::Unknown(_))
        );
        write!(f, "xt {kind} \"{name}\"")?;
        match text.split_once(name).filter(|_| is_unknown) {
            Some((_, bytes)) => f.write_str(bytes),
            None => write!(f, " [{}]", text.trim_start()),
        }
    }
}
