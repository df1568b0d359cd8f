//! In legacy tables.

use super::{Before, Ours, TCP, Taking, UDP, dropped};
use crate::compile::Engine;
use weir_netfilter::nft::{Hook, priority};
use weir_netfilter::xtables::{
    Chain, ChainKind, Not, Policy, Rule, Ruleset, Table, Target, XtFamily, canonical_table,
};
use weir_netlink::Result;

/// Targets after which the next rule is looked at.
const HARMLESS: [&str; 24] = [
    "AUDIT",
    "CHECKSUM",
    "CLASSIFY",
    "CONNMARK",
    "CONNSECMARK",
    "CT",
    "DSCP",
    "ECN",
    "HL",
    "HMARK",
    "IDLETIMER",
    "LED",
    "LOG",
    "MARK",
    "NFLOG",
    "NOTRACK",
    "RATEEST",
    "SECMARK",
    "SET",
    "TCPMSS",
    "TEE",
    "TOS",
    "TRACE",
    "TTL",
];

/// The hook of a built-in chain that a redirection uses.
pub(super) fn hook(chain: &str) -> Option<Hook> {
    match chain {
        "PREROUTING" => Some(Hook::Prerouting),
        "OUTPUT" => Some(Hook::Output),
        _ => None,
    }
}

/// What takes packets before our rules in the built-in chains that have them.
pub(super) fn before_ours(ours: &Ours, desired: &Ruleset, found: &Ruleset) -> Result<Vec<String>> {
    let mut lines = Vec::new();
    for table in &desired.tables {
        let Some(there) = found.table(table.family, &table.name) else {
            continue;
        };
        for chain in &canonical_table(table)?.chains {
            let held = there.chains.iter().find(|c| c.name == chain.name);
            if let (ChainKind::Builtin(_), Some(held)) = (chain.kind, held) {
                lines.extend(in_chain(ours, there, chain, held));
            }
        }
    }
    Ok(lines)
}

fn in_chain(ours: &Ours, table: &Table, desired: &Chain, held: &Chain) -> Vec<String> {
    let place = place(table);
    let chain = &held.name;
    let is_ours = |rule| desired.rules.contains(rule);
    let Some(last) = held.rules.iter().rposition(is_ours) else {
        return Vec::new();
    };
    let before = held.rules.iter().take(last).filter(|rule| !is_ours(rule));
    before
        .filter(|rule| ends_chain(ours, table, rule))
        .map(|rule| {
            format!(
                "a foreign rule before ours takes its packets: {place} -A {chain}{rule}; remove it, or put it behind ours"
            )
        })
        .collect()
}

/// Whether a packet that this rule of a built-in chain holds for may not reach the next one.
fn ends_chain(ours: &Ours, table: &Table, rule: &Rule) -> bool {
    if !concerns(ours, rule) {
        return false;
    }
    match &rule.target {
        None => false,
        Some(Target::Jump(chain)) => {
            let takes = |rule: &Rule| match &rule.target {
                // The chain is left, and the next rule follows.
                None | Some(Target::Return | Target::Jump(_) | Target::Goto(_)) => false,
                Some(target) => !HARMLESS.contains(&target.name()),
            };
            let mut rules = reachable(ours, table, chain).into_iter();
            rules.any(|(_, rule)| takes(rule))
        }
        Some(target) => !HARMLESS.contains(&target.name()),
    }
}

/// What takes packets in other chains than those that have our rules, and policies.
pub(super) fn elsewhere(ours: &Ours, found: &Ruleset) -> Vec<String> {
    let families = |t: &&Table| t.family == XtFamily::Ip || ours.has_ipv6;
    let mut lines = Vec::new();
    for table in found.tables.iter().filter(families) {
        let priority = match table.name.as_str() {
            "raw" => priority::RAW,
            "mangle" => priority::MANGLE,
            "nat" => priority::DSTNAT,
            _ => continue,
        };
        let is_shared = ours.engine == Some(Engine::Xtables);
        for chain in &table.chains {
            let (ChainKind::Builtin(policy), Some(hook)) = (chain.kind, hook(&chain.name)) else {
                continue;
            };
            if table.name == "nat" && policy == Some(Policy::Drop) && ours.has(hook) {
                lines.push(dropped(&format!("{} -P {} DROP", place(table), chain.name)));
            }
            for (at, rule) in reachable(ours, table, &chain.name) {
                let Some(taking) = rule.target.as_ref().and_then(taking) else {
                    continue;
                };
                // What has our priority is in the chain with our rules then, and a matter of `before_ours`.
                let is_known = |before| is_shared && before == Before::Maybe;
                if let Some(before) = ours.is_behind(taking, hook, priority)
                    && !is_known(before)
                {
                    let rule = format!("{} -A {at}{rule}", place(table));
                    lines.push(taking.line(&rule, before));
                }
            }
        }
    }
    lines.sort();
    lines.dedup();
    lines
}

/// By the target alone, also one of `iptables-nft`: the conditions there may be native ones.
pub(super) fn taking(target: &Target) -> Option<Taking> {
    match target {
        Target::Ct(ct) if ct.notrack => Some(Taking::Untracked),
        Target::Ct(ct) => {
            let is_other = ct.zone.as_ref().is_some_and(|zone| zone.id != Some(0));
            is_other.then_some(Taking::Zoned)
        }
        target => match target.extension()? {
            "NOTRACK" => Some(Taking::Untracked),
            "REDIRECT" | "DNAT" | "NETMAP" => Some(Taking::Translated),
            "TPROXY" => Some(Taking::Diverted),
            _ => None,
        },
    }
}

/// Whether the rule may be for packets that are redirected.
pub(super) fn concerns(ours: &Ours, rule: &Rule) -> bool {
    let Some((Not(is_not), protocol)) = &rule.protocol else {
        return true;
    };
    match is_not {
        false => ours.takes(protocol.0),
        true => [TCP, UDP]
            .iter()
            .any(|p| *p != protocol.0 && ours.takes(*p)),
    }
}

/// The foreign rules that packets of the redirection may come to from this chain on, each with its chain.
fn reachable<'t>(ours: &Ours, table: &'t Table, from: &'t str) -> Vec<(&'t str, &'t Rule)> {
    let all = table.chains.iter().map(|chain| chain.name.as_str());
    let is_foreign = |chain: &&str| !ours.owns(&table.name, chain, all.clone());
    let rules = |name: &str| {
        let chain = table.chains.iter().find(|c| c.name == name)?;
        let rules = chain.rules.iter().filter(|rule| concerns(ours, rule));
        Some((chain.name.as_str(), rules.collect()))
    };
    let to = |rule: &'t Rule| rule.target.as_ref()?.chain().filter(is_foreign);
    super::reachable(from, rules, to)
}

fn place(table: &Table) -> String {
    format!("{} -t {}", table.family, table.name)
}
