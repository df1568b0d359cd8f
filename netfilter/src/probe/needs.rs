//! Kernel features that rules need, as rows of the probe tables.
//!
//! They are derived from the rules themselves, so that no feature in use is missed. The choice of an engine, the report
//! on a kernel and error messages use the same rows.

use super::{Finding, RunningKernel, nft, xtables};
use crate::nft::expr::Expr;
use crate::nft::{CtKey, Element, ElementKey, MetaKey, Operand, Rule, Statement};
use crate::xtables::{Ruleset, XtFamily};
use std::collections::BTreeSet;

/// The key of a row: area and feature of its [`Finding`].
pub type Key = (&'static str, String);

/// Keys of the rows that rules need.
pub type Needs = BTreeSet<Key>;

impl Finding {
    /// The key of the row.
    #[must_use]
    pub fn key(&self) -> Key {
        (self.area, self.feature.clone())
    }

    /// The option and module that provide it: `CONFIG_NFT_TPROXY (module nft_tproxy)`; empty if unknown.
    #[must_use]
    pub fn given_by(&self) -> String {
        let modules = match self.modules.is_empty() {
            true => String::new(),
            false => format!(" (module {})", self.modules.join(" ")),
        };
        format!("{}{modules}", self.options.join(" "))
    }
}

/// The needs of tables, chains, rules and sets of nf_tables.
#[must_use]
pub fn of_nft(ruleset: &crate::nft::Ruleset) -> Needs {
    let mut needs = Needs::new();
    for table in &ruleset.tables {
        let mut need = |feature: String| needs.insert((nft::AREA, feature));
        need(format!("family {}", table.family));
        need("generation guard".to_owned());
        for chain in &table.chains {
            if let Some(base) = &chain.base {
                need(format!(
                    "chain {} {}",
                    table.family,
                    base.chain_type.as_str()
                ));
            }
            for rule in chain.rules.iter().flat_map(Rule::with_own) {
                for expr in rule.expressions(table.family) {
                    need(format!("expression {}", expr.name()));
                    if let Some(feature) = of_key(&expr) {
                        need(feature.to_owned());
                    }
                }
                for set in rule.statements.iter().filter_map(anonymous) {
                    need(set.to_owned());
                }
            }
        }
    }
    needs
}

/// Tries the features of these needs in the network namespace of the calling thread, which must be a throwaway one.
#[must_use]
pub fn findings(kernel: &RunningKernel, needs: &Needs) -> Vec<Finding> {
    let wanted = |area, feature: &str| needs.contains(&(area, feature.to_owned()));
    let mut findings = nft::features_of(kernel, |feature| wanted(nft::AREA, feature));
    findings.extend(xtables::features_of(kernel, |feature| {
        wanted(xtables::AREA, feature)
    }));
    findings
}

/// The feature of a `meta` or `ct` key that some kernels lack although they have the expression, or that another option
/// provides.
fn of_key(expr: &Expr) -> Option<&'static str> {
    match expr {
        Expr::Meta(m) => match (MetaKey::from(m.key?), m.sreg) {
            (MetaKey::Skuid | MetaKey::Skgid, None) => Some("meta skuid"),
            (MetaKey::Mark, Some(_)) => Some("meta mark set"),
            _ => None,
        },
        Expr::Ct(c) => match (CtKey::from(c.key?), c.sreg) {
            (CtKey::Mark, Some(_)) => Some("ct mark set"),
            (CtKey::Zone, Some(_)) => Some("ct zone set"),
            _ => None,
        },
        _ => None,
    }
}

/// The feature of a match's anonymous set.
fn anonymous(statement: &Statement) -> Option<&'static str> {
    match statement {
        Statement::Match(m) => match &m.operand {
            Operand::Anonymous(elements) => {
                let is_range = |e: &Element| matches!(e.key, ElementKey::Range(..));
                Some(match elements.iter().any(is_range) {
                    true => "set interval",
                    false => "set plain",
                })
            }
            _ => None,
        },
        _ => None,
    }
}

/// The needs of legacy tables, matches and targets.
#[must_use]
pub fn of_xtables(ruleset: &Ruleset) -> Needs {
    let mut needs = Needs::new();
    for table in &ruleset.tables {
        let family = match table.family {
            XtFamily::Ip => "ip",
            XtFamily::Ip6 => "ip6",
        };
        let mut need = |kind: &str, name: &str| {
            needs.insert((xtables::AREA, format!("{kind} {family} {name}")))
        };
        need("table", &table.name);
        for rule in table.chains.iter().flat_map(|c| &c.rules) {
            for m in &rule.matches {
                need("match", m.name());
            }
            if let Some(name) = rule.target.as_ref().and_then(|t| t.extension()) {
                need("target", name);
            }
        }
    }
    needs
}
