//! Host rules that Istio's agent wrote through `iptables-nft`.
//!
//! They are in table `nat` of the families `ip` and `ip6`, which kube-proxy and network plugins use, too.
//! Only the chain of Istio's agent and the rules that jump to it are deleted. These tables may be large, so they are read
//! once, not with every change.

use super::legacy::CHAIN;
use weir_netfilter::nft::{
    Chain, NftEngine, NftOp, Rule, Snapshot, Statement, TableFamily, TableId, Transaction,
};
use weir_netlink::contention::{Attempts, CONTENTION};
use weir_netlink::{Error, Result};
use weir_rules::of_node::if_supported;

/// The tables `nat` of `iptables-nft` and `ip6tables-nft`.
fn tables() -> [TableId; 2] {
    [TableFamily::Ip, TableFamily::Ip6].map(|family| (family, "nat".to_owned()))
}

/// Whether Istio's agent wrote its rules through `iptables-nft`. Only chains are read: without its chain no rule jumps there.
pub(super) fn are_there(engine: &mut NftEngine) -> Result<bool> {
    let mut chains = engine.chains()?.into_iter();
    Ok(chains.any(|(table, chain)| is_its(&chain) && tables().contains(&table)))
}

/// The same for the network namespace of this thread.
pub(super) fn are_there_here() -> Result<bool> {
    if_supported(NftEngine::open().and_then(|mut engine| are_there(&mut engine)))
}

fn is_its(chain: &Chain) -> bool {
    chain.base.is_none() && chain.name == CHAIN
}

/// Removes these chains and rules from the network namespace of this thread. Returns one line per change.
///
/// # Errors
/// Chains or rules may remain.
pub fn remove_of_iptables_nft() -> Result<Vec<String>> {
    let mut engine = match NftEngine::open() {
        // A kernel without nf_tables has no such rules.
        Err(e) if e.is_unsupported() => return Ok(Vec::new()),
        opened => opened?,
    };
    if !are_there(&mut engine)? {
        return Ok(Vec::new());
    }
    let there = engine.tables()?;
    let mut removed = Vec::new();
    for table in tables().into_iter().filter(|table| there.contains(table)) {
        let mut attempts = Attempts::begin(CONTENTION);
        loop {
            let transaction = plan(&engine.read_tables(std::slice::from_ref(&table))?);
            if transaction.ops.is_empty() {
                break;
            }
            match engine.commit(&transaction) {
                Ok(()) => {
                    removed.extend(transaction.ops.iter().map(ToString::to_string));
                    break;
                }
                Err(e) if !e.is_stale_generation() => return Err(e),
                Err(_) if attempts.again() => {}
                Err(_) => {
                    let object = format!("chain {CHAIN} of iptables-nft in table {} nat", table.0);
                    let reason =
                        "another writer keeps changing the ruleset; try again when it is done";
                    return Err(Error::exhausted("remove", object, reason));
                }
            }
        }
    }
    Ok(removed)
}

/// Rules are deleted first, because a chain can be deleted only when nothing jumps to it.
fn plan(observed: &Snapshot) -> Transaction {
    let leads_there = |rule: &Rule| {
        // A jump inside an anonymous chain (`jump { ... }`) counts, too.
        let mut statements = rule.with_own().flat_map(|r| &r.statements);
        statements.any(|s| matches!(s, Statement::Verdict(v) if v.chain() == Some(CHAIN)))
    };
    let mut ops = Vec::new();
    for (t, table) in observed.ruleset.tables.iter().enumerate() {
        let id = (table.family, table.name.clone());
        for (c, chain) in table.chains.iter().enumerate() {
            let rules = chain.rules.iter().zip(observed.handles(t, c));
            let deleted = rules.filter(|(rule, _)| is_its(chain) || leads_there(rule));
            ops.extend(deleted.map(|(rule, handle)| {
                NftOp::DeleteRule(id.clone(), chain.name.clone(), rule.clone(), *handle)
            }));
        }
        let chains = table.chains.iter().filter(|chain| is_its(chain));
        ops.extend(chains.map(|chain| NftOp::DeleteChain(id.clone(), chain.name.clone())));
    }
    Transaction::guarded(observed.generation, ops)
}
