//! In tables of nf_tables, also those of `iptables-nft`.

use super::{Ours, Taking, dropped, l4protos, legacy};
use crate::compile::Compiled;
use crate::redirection::engines;
use std::time::Duration;
use weir_netfilter::nft::compat::{Compat, legacy_rule};
use weir_netfilter::nft::expr::Expr;
use weir_netfilter::nft::{
    BaseChain, Chain, ChainType, CmpOp, CtKey, Data, Hook, NatKind, NftEngine, Policy, Rule,
    Statement, Table, TableFamily, TableId, text_without_counters,
};
use weir_netlink::Result;

/// A repair waits while this is looked for: other writers keep it no longer from an answer.
const CONTENTION: Duration = Duration::from_millis(500);
/// `NFT_TABLE_F_DORMANT`: the kernel calls none of its chains.
const DORMANT: u32 = 1;

pub(super) fn find(desired: &Compiled, ours: &Ours) -> Result<Vec<String>> {
    let listed = NftEngine::open().and_then(|engine| {
        let mut engine = engine.contention(CONTENTION);
        let chains = engine.chains()?;
        Ok((engine, chains))
    });
    let (mut engine, chains) = match listed {
        Ok(listed) => listed,
        Err(e) if engines::is_lack(&e) => return Ok(Vec::new()),
        Err(e) => return Err(e),
    };
    let owned = desired.scheme().owned();
    let mut foreign = that_matter(ours, &chains);
    foreign.retain(|table| !owned.contains(table));
    if foreign.is_empty() {
        return Ok(Vec::new());
    }
    let mut lines = Vec::new();
    for table in &engine.read_tables(&foreign)?.ruleset.tables {
        lines.extend(in_table(ours, table));
    }
    Ok(lines)
}

/// The tables with a chain that may take packets before ours: others may be large, and are not read.
pub(super) fn that_matter(ours: &Ours, chains: &[(TableId, Chain)]) -> Vec<TableId> {
    let mut tables = Vec::new();
    for (table, chain) in chains {
        let of_packets = match table.0 {
            TableFamily::Inet | TableFamily::Ip => true,
            TableFamily::Ip6 => ours.has_ipv6,
            _ => false,
        };
        let matters = |base: &BaseChain| {
            let ways: &[Taking] = match (&base.chain_type, base.hook) {
                // The kernel takes translations in these alone, and calls them behind conntrack.
                (ChainType::Nat, _) => &[Taking::Translated],
                (_, Hook::Prerouting) => &[Taking::Untracked, Taking::Zoned, Taking::Diverted],
                _ => &[Taking::Untracked, Taking::Zoned],
            };
            let mut ways = ways.iter();
            drops(ours, base)
                || ways.any(|way| ours.is_behind(*way, base.hook, base.priority).is_some())
        };
        if of_packets && !tables.contains(table) && chain.base.as_ref().is_some_and(matters) {
            tables.push(table.clone());
        }
    }
    tables
}

pub(super) fn in_table(ours: &Ours, table: &Table) -> Vec<String> {
    let mut lines = Vec::new();
    if table.flags & DORMANT != 0 {
        return lines;
    }
    for chain in &table.chains {
        let Some(base) = &chain.base else { continue };
        let (family, name) = (table.family, &table.name);
        if drops(ours, base) {
            let of = format!("table {family} {name} chain {}", chain.name);
            lines.push(dropped(&of));
        }
        for (at, rule) in reachable(ours, table, &chain.name) {
            let Some(taking) = taking(rule, table.family) else {
                continue;
            };
            if let Some(before) = ours.is_behind(taking, base.hook, base.priority) {
                let text = text_without_counters(rule, table.family);
                let rule = format!("table {family} {name} chain {at}: {text}");
                lines.push(taking.line(&rule, before));
            }
        }
    }
    lines.sort();
    lines.dedup();
    lines
}

/// Whether its policy drops what comes to it at a hook of ours, wherever it is: the kernel calls all chains of type nat.
fn drops(ours: &Ours, base: &BaseChain) -> bool {
    let is_policy = base.chain_type == ChainType::Nat && base.policy == Policy::Drop;
    is_policy && ours.has(base.hook)
}

fn taking(rule: &Rule, family: TableFamily) -> Option<Taking> {
    let expr = |expr: &Expr| match expr {
        // To what is looked up in a map, for example.
        Expr::Nat(_) | Expr::Redir(_) => Some(Taking::Translated),
        Expr::Tproxy(_) => Some(Taking::Diverted),
        Expr::Ct(ct) => {
            let is_zone = ct.sreg.is_some() && ct.key.map(CtKey::from) == Some(CtKey::Zone);
            is_zone.then_some(Taking::Zoned)
        }
        Expr::Notrack => Some(Taking::Untracked),
        other => match Compat::read(other, family) {
            Some(Compat::Target(target)) => legacy::taking(&target),
            _ => None,
        },
    };
    let statement = |s: &Statement| match s {
        Statement::Notrack => Some(Taking::Untracked),
        Statement::CtSet(CtKey::Zone, ..) => Some(Taking::Zoned),
        Statement::Redirect(_) => Some(Taking::Translated),
        Statement::Nat(nat) if nat.kind == NatKind::Dnat => Some(Taking::Translated),
        Statement::Tproxy(_) => Some(Taking::Diverted),
        Statement::Opaque(exprs) => exprs.iter().find_map(expr),
        _ => None,
    };
    rule.statements.iter().find_map(statement)
}

/// Whether the rule may be for packets that are redirected.
fn concerns(ours: &Ours, rule: &Rule, family: TableFamily) -> bool {
    let mut protocols = l4protos(rule, family).peekable();
    if protocols.peek().is_none() {
        return legacy_rule(rule, family).is_none_or(|rule| legacy::concerns(ours, &rule));
    }
    let is_for = |protocol: &u8| {
        protocols.clone().all(|(op, value)| match op {
            CmpOp::Eq => *value == Data::u8(*protocol),
            CmpOp::Neq => *value != Data::u8(*protocol),
            _ => true,
        })
    };
    let mut ours = [super::TCP, super::UDP]
        .into_iter()
        .filter(|p| ours.takes(*p));
    ours.any(|protocol| is_for(&protocol))
}

/// The rules that packets of the redirection may come to from this chain on, each with its chain. What upstream left behind is
/// drift.
fn reachable<'t>(ours: &Ours, table: &'t Table, from: &'t str) -> Vec<(&'t str, &'t Rule)> {
    let all = table.chains.iter().map(|chain| chain.name.as_str());
    let is_foreign = |chain: &&str| !ours.owns(&table.name, chain, all.clone());
    let rules = |name: &str| {
        let chain = table.chain(name)?;
        let concerns = |rule: &Rule| concerns(ours, rule, table.family);
        let rules = chain.rules.iter().flat_map(|r| r.with_own_where(concerns));
        Some((chain.name.as_str(), rules.collect()))
    };
    let to = |rule: &'t Rule| {
        let mut to = table.led_to(rule);
        to.retain(is_foreign);
        to
    };
    super::reachable(from, rules, to)
}
