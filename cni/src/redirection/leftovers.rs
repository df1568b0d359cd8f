//! Rules that upstream's installer left behind by way of `iptables-nft` and `ip6tables-nft`.
//!
//! They stand in tables of nf_tables that other programs use too: `nat`, `mangle`, `raw` and `filter` of the
//! families `ip` and `ip6`. Of these tables go the chains whose names begin with `ISTIO_` and the rules of
//! other chains that jump to them. Everything else stays with its counters: other rules of the built-in chains,
//! the built-in chains themselves, and a table that held nothing else. A rule of a built-in chain that is no
//! jump does not say who wrote it, so it stays too.

use super::engines::PREFIX;
use weir_netfilter::nft::engine::Snapshot;
use weir_netfilter::nft::{
    Chain, Engine, Family, Op, Rule, Statement, TableId, Transaction, Verdict,
};
use weir_netlink::{Error, Result};

/// How often a removal that came too late is begun again. Every round needs another writer in between, so
/// a handful is a storm already.
const ATTEMPTS: usize = 16;

/// What [`remove`] would do now.
pub(super) fn find() -> Result<Vec<Op>> {
    Ok(plan(&Engine::open()?.read_tables(&tables())?).ops)
}

/// Takes them away in one transaction; nothing is written when there are none.
pub(super) fn remove() -> Result<Vec<Op>> {
    let mut engine = Engine::open()?;
    let there = engine.tables()?;
    remove_from(&mut engine, &there)
}

/// The same for who knows already which tables there are.
pub(super) fn remove_from(engine: &mut Engine, there: &[TableId]) -> Result<Vec<Op>> {
    let candidates = tables();
    if !there.iter().any(|found| candidates.contains(found)) {
        return Ok(Vec::new());
    }
    for _ in 0..ATTEMPTS {
        let transaction = plan(&engine.read_tables(&candidates)?);
        match engine.commit(&transaction) {
            Ok(()) => return Ok(transaction.ops),
            Err(e) if e.is_stale_generation() => {}
            Err(e) => return Err(e),
        }
    }
    Err(Error::exhausted(
        "remove",
        "chains of iptables-nft",
        "somebody else keeps changing the ruleset",
    ))
}

/// The tables of `iptables-nft` that upstream writes to.
fn tables() -> Vec<TableId> {
    let names = ["nat", "mangle", "raw", "filter"];
    let of = |family| names.iter().map(move |name| (family, (*name).to_owned()));
    [Family::Ip, Family::Ip6].into_iter().flat_map(of).collect()
}

/// The pure part: rules first, because a chain goes only when nothing leads to it any more.
fn plan(observed: &Snapshot) -> Transaction {
    let mut ops = Vec::new();
    for (t, table) in observed.ruleset.tables.iter().enumerate() {
        let id = (table.family, table.name.clone());
        for (c, chain) in table.chains.iter().enumerate() {
            let rules = chain.rules.iter().zip(observed.handles(t, c));
            let goes = |rule: &Rule| is_ours(chain) || rule.statements.iter().any(leads_to_ours);
            ops.extend(rules.filter(|(rule, _)| goes(rule)).map(|(rule, handle)| {
                Op::DeleteRule(id.clone(), chain.name.clone(), rule.clone(), *handle)
            }));
        }
        let chains = table.chains.iter().filter(|c| is_ours(c));
        ops.extend(chains.map(|c| Op::DeleteChain(id.clone(), c.name.clone())));
    }
    Transaction {
        generation: observed.generation,
        ops,
    }
}

/// A chain with a hook is nobody's but its table's, whatever its name.
fn is_ours(chain: &Chain) -> bool {
    chain.base.is_none() && chain.name.starts_with(PREFIX)
}

fn leads_to_ours(s: &Statement) -> bool {
    match s {
        Statement::Verdict(Verdict::Jump(to) | Verdict::Goto(to)) => to.starts_with(PREFIX),
        _ => false,
    }
}
