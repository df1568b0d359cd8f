//! Finds the rule that decided about a flow, from the counters before and after it.

use std::fmt;
use weir_netfilter::nft::{Chain, Rule, Ruleset, Statement, Table, Verdict};
use weir_netfilter::xtables;
use weir_netlink::{Error, ErrorKind, Netns, Result};
use weir_rules::show;

/// The tables that decide about the first packet of every connection.
const NAT: [&str; 2] = ["istio-proxy-nat", "istio-ambient-nat"];
/// Chains that only carry out the decision of another rule.
const CARRY_OUT: [&str; 2] = ["istio-redirect", "istio-in-redirect"];

/// Rules in the pod's network namespace, of both engines.
#[derive(Debug)]
pub(super) struct Held {
    nft: Ruleset,
    legacy: xtables::Ruleset,
}

impl Held {
    /// Reads the rules.
    ///
    /// # Errors
    /// As [`show::nft`] and [`show::legacy`].
    pub(super) fn read(pod: &Netns) -> Result<Self> {
        let nft = match show::nft(pod) {
            // A kernel without nf_tables has no rules there.
            Err(Error {
                kind: ErrorKind::Unsupported(_),
                ..
            }) => Ruleset::default(),
            other => other?,
        };
        let mut legacy = show::legacy(pod)?;
        // A legacy table that was read remains in the kernel, empty.
        legacy.tables.retain(|t| {
            let is_used = |c: &xtables::Chain| {
                !matches!(c.kind, xtables::ChainKind::Builtin(_)) || !c.rules.is_empty()
            };
            t.chains.iter().any(is_used)
        });
        Ok(Self { nft, legacy })
    }

    /// Descriptions of all tables.
    pub(super) fn names(&self) -> Vec<String> {
        let nft = self.nft.tables.iter();
        let nft = nft.map(|t| format!("table {} {} in the pod", t.family, t.name));
        let legacy = self.legacy.tables.iter();
        let legacy = legacy.map(|t| format!("rules in the legacy table {} of the pod", t.name));
        nft.chain(legacy).collect()
    }
}

impl fmt::Display for Held {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let of_nft: usize = self
            .nft
            .tables
            .iter()
            .flat_map(|t| &t.chains)
            .map(|c| c.rules.len())
            .sum();
        let of_legacy: usize = self
            .legacy
            .tables
            .iter()
            .flat_map(|t| &t.chains)
            .map(|c| c.rules.len())
            .sum();
        let tables = self.nft.tables.len() + self.legacy.tables.len();
        let kind = match self.nft.tables.is_empty() && tables > 0 {
            true => "legacy tables",
            false => "tables",
        };
        write!(f, "{tables} {kind} with {} rules", of_nft + of_legacy)
    }
}

/// A snapshot of the rules with their counters.
#[derive(Debug)]
pub(super) struct Counters(Held);

impl Counters {
    /// Reads the rules and counters.
    ///
    /// # Errors
    /// As [`show::nft`].
    pub(super) fn read(pod: &Netns) -> Result<Self> {
        Held::read(pod).map(Self)
    }

    /// The rule that decided about the packets since `before`: the last one on the path through the
    /// chains, except those in [`CARRY_OUT`]. `None` if no rule matched.
    #[must_use]
    pub(super) fn decided_since(&self, before: &Self) -> Option<String> {
        let (Some(now), Some(then)) = (nat(&self.0.nft), nat(&before.0.nft)) else {
            let is_legacy = !self.0.legacy.tables.is_empty();
            return is_legacy.then(|| "legacy tables, which are not followed".to_owned());
        };
        let mut path = Vec::new();
        for chain in now.chains.iter().filter(|c| c.base.is_some()) {
            walk(now, then, chain, &mut path);
        }
        let decided = path
            .iter()
            .rev()
            .find(|(chain, _)| !CARRY_OUT.contains(&chain.as_str()));
        decided.map(|(chain, rule)| format!("{chain}: {}", text(rule, now)))
    }
}

fn nat(ruleset: &Ruleset) -> Option<&Table> {
    ruleset
        .tables
        .iter()
        .find(|t| NAT.contains(&t.name.as_str()))
}

/// Appends rules whose counter increased, in the order in which the packet traversed them.
fn walk(now: &Table, then: &Table, chain: &Chain, path: &mut Vec<(String, Rule)>) {
    let old = then.chain(&chain.name);
    for (i, rule) in chain.rules.iter().enumerate() {
        let before = old.and_then(|c| c.rules.get(i)).map_or(0, packets);
        if packets(rule) > before {
            path.push((chain.name.clone(), rule.clone()));
        } else if has_counter(rule) {
            continue;
        }
        // A jump without a counter may have been taken: the counters of that chain tell.
        if let Some(Statement::Verdict(Verdict::Jump(to))) = rule.statements.last()
            && let Some(next) = now.chain(to)
        {
            walk(now, then, next, path);
        }
    }
}

fn has_counter(rule: &Rule) -> bool {
    let is_counter = |s: &Statement| matches!(s, Statement::Counter(_));
    rule.statements.iter().any(is_counter)
}

fn packets(rule: &Rule) -> u64 {
    let count = |s: &Statement| match s {
        Statement::Counter(c) => c.packets.unwrap_or(0),
        _ => 0,
    };
    rule.statements.iter().map(count).sum()
}

fn text(rule: &Rule, table: &Table) -> String {
    let mut rule = rule.clone();
    rule.statements
        .retain(|s| !matches!(s, Statement::Counter(_)));
    rule.text(table.family)
}
