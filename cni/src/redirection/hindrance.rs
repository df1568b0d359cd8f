//! Foreign rules and policies of legacy built-in chains that keep packets from the redirection.
//!
//! Legacy built-in chains are shared: a foreign rule before ours may take a packet first, and a policy `DROP` in `nat`
//! drops the first packet of every connection that ours let through. The redirection is as desired all the same, so
//! this is no drift.

use super::engines;
use crate::compile::{Compiled, Rules};
use weir_netfilter::xtables::{Chain, ChainKind, Policy, Ruleset, Table, Target};
use weir_netlink::Result;

/// One line for each; nothing where the rules are not in legacy tables.
pub(super) fn find(desired: &Compiled) -> Result<Vec<String>> {
    match &desired.rules {
        Rules::Nft(_) => Ok(Vec::new()),
        Rules::Xtables(rules) => Ok(among(rules, &engines::show_legacy()?)),
    }
}

fn among(desired: &Ruleset, found: &Ruleset) -> Vec<String> {
    let mut lines = Vec::new();
    for table in &desired.tables {
        let Some(there) = found.table(table.family, &table.name) else {
            continue;
        };
        for chain in &table.chains {
            let held = there.chains.iter().find(|c| c.name == chain.name);
            if let (ChainKind::Builtin(_), Some(held)) = (chain.kind, held) {
                lines.extend(in_chain(table, chain, held));
            }
        }
    }
    lines
}

fn in_chain(table: &Table, desired: &Chain, held: &Chain) -> Vec<String> {
    let place = format!("{} -t {}", table.family, table.name);
    let chain = &held.name;
    let is_ours = |rule| desired.rules.contains(rule);
    let Some(last) = held.rules.iter().rposition(is_ours) else {
        return Vec::new();
    };
    let before = held.rules.iter().take(last).filter(|rule| !is_ours(rule));
    let mut lines: Vec<String> = before
        .filter(|rule| rule.target.as_ref().is_some_and(takes))
        .map(|rule| {
            format!(
                "a foreign rule before ours takes its packets: {place} -A {chain}{rule}; remove it, or put it behind ours"
            )
        })
        .collect();
    if table.name == "nat" && held.kind == ChainKind::Builtin(Some(Policy::Drop)) {
        lines.push(format!(
            "the policy DROP drops connections that are not redirected: {place} -P {chain} DROP; set it to ACCEPT"
        ));
    }
    lines
}

/// Whether a packet that a rule with this target holds for may never reach the next rule. What a foreign chain does is not
/// looked at.
fn takes(target: &Target) -> bool {
    !matches!(
        target,
        Target::Mark(_)
            | Target::Connmark(_)
            | Target::Notrack(_)
            | Target::Ct(_)
            | Target::Log(_)
            | Target::Nflog(_)
            | Target::Set(_)
    )
}
