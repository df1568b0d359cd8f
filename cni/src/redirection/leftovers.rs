//! Rules that upstream's installer wrote through `iptables-nft` and `ip6tables-nft` and left behind.
//!
//! They are in tables of nf_tables that other programs use, too: `nat`, `mangle` and `raw` of the families `ip` and
//! `ip6`. The chains whose names begin with `ISTIO_` and the rules of other chains that jump to them are
//! deleted. Everything else is kept with its counters: other rules of the built-in chains, the built-in chains
//! themselves, and a table that held nothing else. A rule of a built-in chain that is not a jump does not identify
//! its writer. It is deleted only if a plan names it, as in legacy tables: equal rules as many times as the plan has
//! them, starting from the last, and only from a table in which an `ISTIO_` chain shows that upstream wrote to it.

use super::Change;
use super::engines::{LEGACY_TABLES, Removed};
use super::named::Named;
use std::borrow::Cow;
use std::cell::OnceCell;
use std::collections::BTreeSet;
use weir_netfilter::nft::Snapshot;
use weir_netfilter::nft::compat::legacy_rule;
use weir_netfilter::nft::{
    Chain, NftEngine, NftOp, Rule, Statement, Table, TableFamily, TableId, Transaction, UNGUARDED,
    Verdict,
};
use weir_netfilter::xtables;
use weir_netlink::Result;
use weir_netlink::contention::{Attempts, CONTENTION};

/// Number of attempts guarded by the generation; further ones are not guarded.
const GUARDED: u32 = 8;

/// The chains and rules that identify leftovers.
struct Leftovers<'a> {
    /// Chains of the kind of redirection.
    chains: xtables::Ownership,
    named: Named<'a>,
    /// Compiled only where a table has such chains, which is rare.
    rules: OnceCell<Cow<'a, xtables::Ruleset>>,
}

impl<'a> Leftovers<'a> {
    fn of(named: Named<'a>) -> Self {
        Self {
            chains: named.0.chains(),
            named,
            rules: OnceCell::new(),
        }
    }

    fn rules(&self) -> &xtables::Ruleset {
        self.rules.get_or_init(|| self.named.rules())
    }

    /// The owned chains of a table. A base chain is never owned, whatever its name.
    fn chains<'t>(
        &self,
        table: &str,
        chains: impl Iterator<Item = &'t Chain>,
    ) -> BTreeSet<&'t str> {
        let regular = chains.filter(|c| c.base.is_none());
        let names: Vec<&str> = regular.map(|c| c.name.as_str()).collect();
        let all = || names.iter().copied();
        let is_owned = |name: &&str| self.chains.owns(table, name, all());
        all().filter(is_owned).collect()
    }

    /// The tables with owned chains among the existing tables `there`. Does not read rules: the tables belong to other
    /// programs, may be large, and may change all the time.
    fn tables(&self, engine: &mut NftEngine, there: &[TableId]) -> Result<Vec<TableId>> {
        if !may_be_in(there) {
            return Ok(Vec::new());
        }
        let listed = engine.chains()?;
        let mut with = tables();
        with.retain(|table| {
            let chains = listed.iter().filter(|(of, _)| of == table);
            !self
                .chains(&table.1, chains.map(|(_, chain)| chain))
                .is_empty()
        });
        Ok(with)
    }
}

/// The changes that [`remove`] would make; `there` are the existing tables.
pub(super) fn find_in(
    engine: &mut NftEngine,
    there: &[TableId],
    named: Named<'_>,
) -> Result<Vec<NftOp>> {
    let named = Leftovers::of(named);
    let tables = named.tables(engine, there)?;
    if tables.is_empty() {
        return Ok(Vec::new());
    }
    let found = engine.read_tables(&tables)?;
    Ok(plan(&found, &named).ops)
}

/// Removes the leftovers and the named rules of built-in chains; writes nothing if there are none. Continues with the
/// next table after a failure.
pub(super) fn remove(named: Named<'_>) -> Removed {
    let opened = NftEngine::open().and_then(|mut engine| {
        let there = engine.tables()?;
        Ok((engine, there))
    });
    match opened {
        Ok((mut engine, there)) => remove_from(&mut engine, &there, named),
        // A kernel without nf_tables has no such rules.
        Err(e) if e.is_unsupported() => Removed::default(),
        Err(e) => (Vec::new(), vec![e]),
    }
}

/// Like [`remove`]; `there` are the existing tables.
pub(super) fn remove_from(engine: &mut NftEngine, there: &[TableId], named: Named<'_>) -> Removed {
    let named = Leftovers::of(named);
    let (mut changes, mut failures) = Removed::default();
    let tables = named.tables(engine, there);
    let tables = tables.unwrap_or_else(|e| {
        failures.push(e);
        Vec::new()
    });
    for table in &tables {
        match remove_of(engine, table, &named) {
            Ok(ops) => changes.extend(ops.into_iter().map(Change::Rules)),
            Err(e) => failures.push(e),
        }
    }
    (changes, failures)
}

/// Removes the leftovers from one table, in one transaction.
fn remove_of(engine: &mut NftEngine, table: &TableId, named: &Leftovers<'_>) -> Result<Vec<NftOp>> {
    // A commit by another writer between reading and writing makes the transaction stale.
    let mut attempts = Attempts::begin(CONTENTION);
    loop {
        let mut transaction = plan(&engine.read_tables(std::slice::from_ref(table))?, named);
        // A writer that is busy in other tables makes every generation stale. Without the generation the transaction still
        // addresses objects by handle and name: it deletes all of them, or nothing if one is gone.
        let is_guarded = attempts.made() <= GUARDED;
        if !is_guarded {
            transaction.generation = UNGUARDED;
        }
        match engine.commit(&transaction) {
            Ok(()) => return Ok(transaction.ops),
            Err(e) if is_guarded && !e.is_stale_generation() => return Err(e),
            Err(e) if !is_guarded && !e.is_not_found() => return Err(e),
            Err(_) => {
                let object = format!("chains of iptables-nft in table {} {}", table.0, table.1);
                attempts.try_again("remove", object)?;
            }
        }
    }
}

/// True if one of these is a table of `iptables-nft` that upstream writes to.
pub(super) fn may_be_in(there: &[TableId]) -> bool {
    let candidates = tables();
    there.iter().any(|found| candidates.contains(found))
}

/// The tables of `iptables-nft` that upstream writes to.
fn tables() -> Vec<TableId> {
    let of = |family| LEGACY_TABLES.map(|name| (family, name.to_owned()));
    [TableFamily::Ip, TableFamily::Ip6]
        .into_iter()
        .flat_map(of)
        .collect()
}

/// Builds the transaction. Deletes rules first: a chain can be deleted only when no rule jumps to it.
fn plan(observed: &Snapshot, of: &Leftovers<'_>) -> Transaction {
    let mut ops = Vec::new();
    for (t, table) in observed.ruleset.tables.iter().enumerate() {
        let id = (table.family, table.name.clone());
        let owned = of.chains(&table.name, table.chains.iter());
        let is_ours = |chain: &Chain| chain.base.is_none() && owned.contains(chain.name.as_str());
        let leads_to_ours = |s: &Statement| match s {
            Statement::Verdict(Verdict::Jump(to) | Verdict::Goto(to)) => {
                owned.contains(to.as_str())
            }
            _ => false,
        };
        for (c, chain) in table.chains.iter().enumerate() {
            let named = match owned.is_empty() {
                true => &[],
                false => named_in(of.rules(), table, chain),
            };
            let by_name = named_rules(chain, table.family, named);
            let rules = chain.rules.iter().zip(observed.handles(t, c)).enumerate();
            let is_deleted = |n: usize, rule: &Rule| {
                let mut statements = rule.with_own().flat_map(|r| &r.statements);
                is_ours(chain) || by_name.contains(&n) || statements.any(leads_to_ours)
            };
            let deleted = rules.filter(|(n, (rule, _))| is_deleted(*n, rule));
            ops.extend(deleted.map(|(_, (rule, handle))| {
                NftOp::DeleteRule(id.clone(), chain.name.clone(), rule.clone(), *handle)
            }));
        }
        let chains = table.chains.iter().filter(|c| is_ours(c));
        ops.extend(chains.map(|c| NftOp::DeleteChain(id.clone(), c.name.clone())));
    }
    Transaction::guarded(observed.generation, ops)
}

/// The rules of the plan in this built-in chain.
fn named_in<'a>(named: &'a xtables::Ruleset, table: &Table, chain: &Chain) -> &'a [xtables::Rule] {
    let family = match table.family {
        TableFamily::Ip => xtables::XtFamily::Ip,
        TableFamily::Ip6 => xtables::XtFamily::Ip6,
        _ => return &[],
    };
    let found = named.table(family, &table.name);
    let found = found.and_then(|t| t.chain(&chain.name));
    found
        .filter(|_| chain.base.is_some())
        .map_or(&[], |c| &c.rules)
}

/// Indexes of the rules that equal named ones: each as many times as it is named, from the end.
fn named_rules(chain: &Chain, family: TableFamily, named: &[xtables::Rule]) -> Vec<usize> {
    let mut named: Vec<&xtables::Rule> = named.iter().collect();
    let mut places = Vec::new();
    for (n, rule) in chain.rules.iter().enumerate().rev() {
        if named.is_empty() {
            break;
        }
        let read = legacy_rule(rule, family);
        if let Some(at) = named.iter().position(|r| Some(*r) == read.as_ref()) {
            named.swap_remove(at);
            places.push(n);
        }
    }
    places
}
