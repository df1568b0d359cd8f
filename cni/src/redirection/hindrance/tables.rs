//! Hindrances in tables of nf_tables, including those of `iptables-nft`.

use super::class::{Class, until_end};
use super::{Ours, Taking, dropped, legacy};
use crate::compile::Compiled;
use crate::redirection::engines;
use std::time::Duration;
use weir_netfilter::nft::compat::Compat;
use weir_netfilter::nft::expr::Expr;
use weir_netfilter::nft::{
    BaseChain, Chain, ChainType, CmpOp, CtDirection, CtKey, Data, ElementKey, Hook, NatKind,
    NftEngine, Operand, PayloadBase, Policy, Rule, Selector, Source, Statement, Table, TableFamily,
    TableId, Verdict, raw, text_without_counters,
};
use weir_netfilter::xtables::XtFamily;
use weir_netlink::Result;

/// Maximum time to retry reads under contention: a repair waits for this search.
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

/// The tables with a chain that may take packets before ours. Others may be large and are not read.
pub(super) fn that_matter(ours: &Ours, chains: &[(TableId, Chain)]) -> Vec<TableId> {
    let mut tables = Vec::new();
    for (table, chain) in chains {
        let of_packets =
            sees(table.0, XtFamily::Ip) || (ours.has_ipv6 && sees(table.0, XtFamily::Ip6));
        let matters = |base: &BaseChain| {
            let (hook, priority) = place(table.0, base);
            let ways: &[Taking] = match (&base.chain_type, hook) {
                // The kernel accepts translations only in nat chains, and calls these after conntrack.
                (ChainType::Nat, _) => &[Taking::Translated],
                (_, Hook::Prerouting) => &[Taking::Untracked, Taking::Zoned, Taking::Diverted],
                _ => &[Taking::Untracked, Taking::Zoned],
            };
            let mut ways = ways.iter();
            drops(ours, base) || ways.any(|way| ours.is_behind(*way, hook, priority).is_some())
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
        let (hook, priority) = place(family, base);
        for class in ours.classes(hook, |of| sees(family, of)) {
            for (at, rule) in reachable(ours, table, &chain.name, class) {
                let mut statements = rule.statements.iter();
                // A rule for single destination ports does not match packets that were already redirected, unless it names the proxy's.
                let is_other = ours.has_translated(hook, priority) && is_of_port(rule);
                let taking = statements.find_map(|s| taking(s, family, class));
                let taking = taking.filter(|taking| *taking != Taking::Diverted || !is_other);
                let before = taking.and_then(|taking| ours.is_behind(taking, hook, priority));
                if let (Some(taking), Some(before)) = (taking, before) {
                    let text = text_without_counters(rule, family);
                    let rule = format!("table {family} {name} chain {at}: {text}");
                    lines.push(taking.line(&rule, before));
                }
            }
        }
    }
    lines.sort();
    lines.dedup();
    lines
}

/// True if its policy drops packets at one of our hooks, at any priority: the kernel calls all chains of type nat.
fn drops(ours: &Ours, base: &BaseChain) -> bool {
    let is_policy = base.chain_type == ChainType::Nat && base.policy == Policy::Drop;
    is_policy && ours.has(base.hook)
}

/// True if a table sees packets of this family.
fn sees(table: TableFamily, family: XtFamily) -> bool {
    match table {
        TableFamily::Inet | TableFamily::Netdev => true,
        TableFamily::Ip => family == XtFamily::Ip,
        TableFamily::Ip6 => family == XtFamily::Ip6,
        _ => false,
    }
}

/// The effective hook and priority of a chain. A chain at `ingress` sees packets before any other chain.
fn place(table: TableFamily, base: &BaseChain) -> (Hook, i32) {
    match (table, base.hook) {
        // `NF_NETDEV_INGRESS` has the same number as prerouting.
        (TableFamily::Netdev, Hook::Prerouting) | (_, Hook::Ingress) => {
            (Hook::Prerouting, i32::MIN)
        }
        (TableFamily::Netdev, _) => (Hook::Postrouting, i32::MAX),
        (_, hook) => (hook, base.priority),
    }
}

fn taking(statement: &Statement, family: TableFamily, class: Class) -> Option<Taking> {
    let expr = |expr: &Expr| match expr {
        // For example, a translation to an address from a map lookup.
        Expr::Nat(_) | Expr::Redir(_) => Some(Taking::Translated),
        Expr::Tproxy(_) => Some(Taking::Diverted),
        Expr::Ct(ct) => {
            let is_zone = ct.sreg.is_some() && ct.key.map(CtKey::from) == Some(CtKey::Zone);
            let is_original = ct.direction == Some(raw::IP_CT_DIR_ORIGINAL);
            class.zoned(is_original, false).filter(|_| is_zone)
        }
        Expr::Notrack => Some(Taking::Untracked),
        other => match Compat::read(other, family) {
            Some(Compat::Target(target)) => legacy::taking(&target, class),
            _ => None,
        },
    };
    let taking = match statement {
        Statement::Notrack => Taking::Untracked,
        Statement::CtSet(CtKey::Zone, direction, zone) => {
            let is_0 = *zone == Source::Value(Data::ne16(0));
            class.zoned(*direction == Some(CtDirection::Original), is_0)?
        }
        Statement::Redirect(_) => Taking::Translated,
        Statement::Nat(nat) if nat.kind == NatKind::Dnat => Taking::Translated,
        Statement::Tproxy(_) => Taking::Diverted,
        Statement::Opaque(exprs) => exprs.iter().find_map(expr)?,
        _ => return None,
    };
    class.suffers(taking).then_some(taking)
}

/// True if the rule matches single destination ports only.
fn is_of_port(rule: &Rule) -> bool {
    let port = Selector::Payload {
        base: PayloadBase::Transport,
        offset: 2,
        len: 2,
    };
    let is_single = |operand: &Operand| match operand {
        Operand::Value(_) => true,
        Operand::Anonymous(all) => all
            .iter()
            .all(|element| matches!(element.key, ElementKey::Value(_))),
        _ => false,
    };
    let is_port = |statement: &Statement| match statement {
        Statement::Match(c) => {
            let is_equal = c.op == CmpOp::Eq && c.mask.is_none();
            c.selector == port && is_equal && is_single(&c.operand)
        }
        _ => false,
    };
    rule.statements.iter().any(is_port)
}

/// Whether the rule matches such packets; `None` if that depends on unknown properties, or if a statement before the
/// end of the match takes effect anyway.
fn holds(rule: &Rule, family: TableFamily, class: Class) -> Option<bool> {
    let mut is_sure = true;
    for statement in &rule.statements {
        let holds = match statement {
            Statement::Match(condition) => class.meets(condition),
            Statement::Counter(_) | Statement::Log(_) | Statement::Verdict(_) => Some(true),
            other if taking(other, family, class).is_some() => return None,
            _ => None,
        };
        match holds {
            Some(false) => return Some(false),
            holds => is_sure &= holds.is_some(),
        }
    }
    is_sure.then_some(true)
}

fn ends(rule: &Rule) -> bool {
    use Verdict::{Accept, Drop, Goto, Return};
    let last = rule.statements.last();
    matches!(
        last,
        Some(Statement::Verdict(Accept | Drop | Return | Goto(_)))
    )
}

/// The rules that such packets may reach from chain `from`, each with its chain. Excludes chains that upstream left
/// behind: these are drift.
fn reachable<'t>(
    ours: &Ours,
    table: &'t Table,
    from: &'t str,
    class: Class,
) -> Vec<(&'t str, &'t Rule)> {
    let all = table.chains.iter().map(|chain| chain.name.as_str());
    let is_foreign = |chain: &&str| !ours.owns(&table.name, chain, all.clone());
    let holds = |rule: &Rule| holds(rule, table.family, class);
    let rules = |name: &str| {
        let chain = table.chain(name)?;
        let rules = until_end(&chain.rules, holds, ends).into_iter();
        let rules = rules.flat_map(|r| r.with_own_where(move |rule| holds(rule) != Some(false)));
        Some((chain.name.as_str(), rules.collect()))
    };
    let to = |rule: &'t Rule| {
        let mut to = table.led_to_where(rule, |by, key| class.may_find(by, key));
        to.retain(is_foreign);
        to
    };
    super::reachable(from, rules, to)
}
