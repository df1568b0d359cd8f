//! Hindrances in legacy tables.

use super::class::{Class, until_end};
use super::{Before, Ours, Taking, dropped};
use crate::compile::Engine;
use weir_netfilter::nft::{Hook, priority};
use weir_netfilter::xtables::{
    Chain, ChainKind, Direction, Interface, Not, Policy, Rule, Ruleset, Table, Target, XtFamily,
    canonical_table,
};
use weir_netlink::Result;

/// Targets that do not end the evaluation of a chain.
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

/// Foreign rules that take packets before our rules in the same built-in chains.
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
    let (place, chain) = (place(table), &held.name);
    let is_ours = |rule: &Rule| desired.rules.contains(rule);
    let last = held.rules.iter().rposition(is_ours);
    let before = held.rules.get(..last.unwrap_or(0)).unwrap_or_default();
    let mut classes =
        hook(chain).map_or_else(Vec::new, |hook| ours.classes(hook, |f| f == table.family));
    // Whether packets that come by `lo` are translated was decided when they were sent.
    classes.retain(|class| table.name != "nat" || !class.by_lo);
    let mut lines = Vec::new();
    for class in classes {
        let foreign = before.iter().filter(|rule| !is_ours(rule));
        for rule in until_end(foreign, |rule| holds(rule, class), ends) {
            if takes(ours, table, rule, class) {
                lines.push(format!(
                    "a foreign rule before ours takes its packets: {place} -A {chain}{rule}; remove it, or put it behind ours"
                ));
            }
        }
    }
    lines.sort();
    lines.dedup();
    lines
}

/// True if a packet that matches this rule of a built-in chain may not reach the next rule.
fn takes(ours: &Ours, table: &Table, rule: &Rule, class: Class) -> bool {
    match &rule.target {
        None => false,
        Some(Target::Jump(chain)) => {
            let takes = |rule: &Rule| match &rule.target {
                // Evaluation returns from the chain and continues with the next rule.
                None | Some(Target::Return | Target::Jump(_) | Target::Goto(_)) => false,
                Some(target) => !HARMLESS.contains(&target.name()),
            };
            let mut rules = reachable(ours, table, chain, class).into_iter();
            rules.any(|(_, rule)| takes(rule))
        }
        Some(target) => !HARMLESS.contains(&target.name()),
    }
}

/// Foreign rules that take packets in chains other than those with our rules, and policies.
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
            for class in ours.classes(hook, |family| family == table.family) {
                for (at, rule) in reachable(ours, table, &chain.name, class) {
                    let taking = rule.target.as_ref().and_then(|t| taking(t, class));
                    let before = taking.and_then(|t| ours.is_behind(t, hook, priority));
                    // A chain with our priority is the chain with our rules, which `before_ours` checks, but not for zones.
                    let is_known = is_shared
                        && before == Some(Before::Maybe)
                        && taking != Some(Taking::Unzoned);
                    if let (Some(taking), Some(before), false) = (taking, before, is_known) {
                        let rule = format!("{} -A {at}{rule}", place(table));
                        lines.push(taking.line(&rule, before));
                    }
                }
            }
        }
    }
    lines.sort();
    lines.dedup();
    lines
}

/// How a target takes packets; also used for targets of `iptables-nft`, whose conditions may be native ones.
pub(super) fn taking(target: &Target, class: Class) -> Option<Taking> {
    let taking = match target {
        Target::Ct(ct) if ct.notrack => Taking::Untracked,
        Target::Ct(ct) => {
            let zone = ct.zone.as_ref()?;
            let is_original = zone.direction == Some(Direction::Original);
            class.zoned(is_original, zone.id == Some(0))?
        }
        target => match target.extension()? {
            "NOTRACK" => Taking::Untracked,
            "REDIRECT" | "DNAT" | "NETMAP" => Taking::Translated,
            "TPROXY" => Taking::Diverted,
            _ => return None,
        },
    };
    class.suffers(taking).then_some(taking)
}

/// Whether the rule matches such packets; `None` if that depends on unknown properties, or does not matter.
fn holds(rule: &Rule, class: Class) -> Option<bool> {
    let protocol = rule.protocol.as_ref();
    let protocol = protocol.map(|(Not(not), p)| Some((p.0 == class.protocol) != *not));
    let interface = rule.in_interface.as_ref().map(|(Not(not), interface)| {
        let Interface::Name(name) = interface else {
            return None;
        };
        class.came_by(name == "lo", *not)
    });
    let known = [protocol, interface].map(|holds| holds.unwrap_or(Some(true)));
    if known.contains(&Some(false)) {
        return Some(false);
    }
    if known.contains(&None) || !ends(rule) {
        return None;
    }
    let others = Rule {
        protocol: None,
        in_interface: None,
        target: None,
        ..rule.clone()
    };
    (others == Rule::default()).then_some(true)
}

fn ends(rule: &Rule) -> bool {
    use Target::{Accept, Drop, Goto, Return};
    matches!(rule.target, Some(Accept | Drop | Return | Goto(_)))
}

/// The foreign rules that such packets may reach from chain `from`, each with its chain.
fn reachable<'t>(
    ours: &Ours,
    table: &'t Table,
    from: &'t str,
    class: Class,
) -> Vec<(&'t str, &'t Rule)> {
    let all = table.chains.iter().map(|chain| chain.name.as_str());
    let is_foreign = |chain: &&str| !ours.owns(&table.name, chain, all.clone());
    let rules = |name: &str| {
        let chain = table.chains.iter().find(|c| c.name == name)?;
        let rules = until_end(&chain.rules, |rule| holds(rule, class), ends);
        Some((chain.name.as_str(), rules))
    };
    let to = |rule: &'t Rule| rule.target.as_ref()?.chain().filter(is_foreign);
    super::reachable(from, rules, to)
}

fn place(table: &Table) -> String {
    format!("{} -t {}", table.family, table.name)
}
