//! The result of a reading: the values, and the properties that distinguish one reading from another.

use super::TableId;
use super::stray::{self, Stray};
use crate::nft::context::Context;
use crate::nft::expr::Expr;
use crate::nft::model::{
    AnonymousSet, BaseChain, Chain, ChainType, Hook, Policy, Rule, Ruleset, Set, Statement, Table,
    TableFamily, Verdict,
};
use crate::nft::wire::{ChainAttrs, HookAttrs, RuleAttrs, SetAttrs, TableAttrs, device_names};
use crate::nft::{delinearize, linearize, raw, userdata};
use std::collections::{HashMap, HashSet};
use weir_netlink::nfnetlink::Reply;

/// Tables as the kernel held them at one moment.
#[derive(Clone, Debug, Default, PartialEq)]
#[doc(alias = "NFT_MSG_GETGEN")]
pub struct Snapshot {
    /// The generation of the ruleset.
    pub generation: u32,
    /// The requested tables.
    pub ruleset: Ruleset,
    /// All tables that exist, requested or not.
    pub tables: Vec<TableId>,
    /// Handles of the rules, indexed by table, chain and rule as in the ruleset.
    pub(super) handles: Vec<Vec<Vec<u64>>>,
    /// Whether everything was read while the ruleset had this generation. If not, the owned tables were equal in two
    /// consecutive readings.
    pub(super) is_of_one_generation: bool,
    /// Distinguishes an object from one that replaced it, and a complete listing of a table from an incomplete one.
    pub(super) marks: Vec<Mark>,
    /// Attributes around the rules that no field of the values holds, by table.
    pub(super) strays: Vec<Vec<Stray>>,
    /// Tables that hold so much more than is desired that reading them was aborted.
    pub(super) overfull: Vec<TableId>,
}

/// How many objects of a table were listed.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Holds {
    /// Chains, named sets, stateful objects and flowtables.
    named: u32,
    /// Anonymous sets of rules. Newer kernels do not count them once they are bound to a rule.
    anonymous: u32,
}

/// Handle and use count of a table, chain or set: the kernel does not reuse handles, and counts the references.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Mark {
    handle: Option<u64>,
    uses: Option<u32>,
    /// Of a table: how many of its chains and sets were listed.
    holds: Option<Holds>,
}

impl Snapshot {
    /// A snapshot of a ruleset for tests without a kernel: handles are counted from 1.
    #[cfg(test)]
    pub(crate) fn with_numbered_rules(ruleset: Ruleset) -> Self {
        let mut last = 0;
        let mut count = |n: usize| -> Vec<u64> {
            (0..n)
                .map(|_| {
                    last += 1;
                    last
                })
                .collect()
        };
        let handles = ruleset
            .tables
            .iter()
            .map(|t| t.chains.iter().map(|c| count(c.rules.len())).collect())
            .collect();
        Self {
            generation: 1,
            tables: ruleset
                .tables
                .iter()
                .map(|t| (t.family, t.name.clone()))
                .collect(),
            ruleset,
            handles,
            is_of_one_generation: true,
            ..Self::default()
        }
    }

    /// Whether both show one state: the same objects, not recreated, with the same content; counters are ignored.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        let plain = |s: &Self| {
            let mut tables = s.ruleset.tables.clone();
            let chains = tables.iter_mut().flat_map(|t| &mut t.chains);
            for rule in chains.flat_map(|c| &mut c.rules) {
                *rule = rule.without_counters();
            }
            for set in tables.iter_mut().flat_map(|t| &mut t.sets) {
                *set = set.settled();
            }
            for object in tables.iter_mut().flat_map(|t| &mut t.objects) {
                *object = object.settled();
            }
            tables
        };
        self.marks == other.marks
            && self.handles == other.handles
            && self.strays == other.strays
            && plain(self) == plain(other)
    }

    /// Attributes of a table that no field holds; none of them is ever desired.
    pub(super) fn strays(&self, table: usize) -> &[Stray] {
        self.strays.get(table).map_or(&[], Vec::as_slice)
    }

    /// Whether as many chains and sets were listed for each table as its use count states. A dump that skips an object,
    /// because the one before it was deleted, does not report that.
    pub(super) fn is_whole(&self) -> bool {
        self.marks.iter().all(|m| match (m.holds, m.uses) {
            (Some(h), Some(uses)) => [h.named, h.named + h.anonymous].contains(&uses),
            (Some(_), None) => false,
            (None, _) => true,
        })
    }

    /// Whether a table may hold objects besides its chains and sets. Where the kernel does not count anonymous sets, the
    /// use count cannot distinguish them from as many other objects.
    pub(super) fn may_hold_more(&self) -> bool {
        let is_all = |m: &Mark| m.holds.is_none_or(|h| m.uses == Some(h.named));
        !self.marks.iter().all(is_all)
    }

    /// Handles of the rules of a chain, in the order of the rules; `table` and `chain` are indexes in
    /// [`ruleset`](Self::ruleset).
    #[must_use]
    pub fn handles(&self, table: usize, chain: usize) -> &[u64] {
        self.handles
            .get(table)
            .and_then(|t| t.get(chain))
            .map_or(&[], Vec::as_slice)
    }
}

/// A set that belongs to a rule.
pub(super) struct Anonymous {
    /// The set, without its elements.
    pub(super) set: Set,
    /// Its attributes as listed.
    pub(super) attrs: SetAttrs,
    /// The same without the attributes that identify it.
    pub(super) kept: AnonymousSet,
}

/// The sets that belong to rules, by table and name.
pub(super) type AnonymousSets = HashMap<(TableFamily, String, String), Anonymous>;

impl Snapshot {
    /// Adds tables of which only the existence is known.
    pub(super) fn add_bare(&mut self, bare: Vec<(Table, Mark)>) {
        for (table, mark) in bare {
            self.ruleset.tables.push(table);
            self.handles.push(Vec::new());
            self.strays.push(Vec::new());
            // Nothing of it was listed, so nothing is missing.
            self.marks.push(Mark {
                holds: None,
                ..mark
            });
        }
    }

    /// The tables and their marks, without content.
    pub(super) fn into_bare(self) -> Vec<(Table, Mark)> {
        self.ruleset.tables.into_iter().zip(self.marks).collect()
    }

    /// Counts stateful objects and flowtables, which a table's use count includes.
    pub(super) fn count_objects(&mut self) {
        for (table, mark) in self.ruleset.tables.iter().zip(&mut self.marks) {
            if let Some(holds) = &mut mark.holds {
                holds.named += u32::try_from(table.objects.len()).unwrap_or(0);
            }
        }
    }

    /// Moves the rules of chains that belong to a rule into that rule. `own` are those chains, by table and name.
    pub(super) fn bind(&mut self, own: &HashSet<(usize, String)>) {
        if own.is_empty() {
            return;
        }
        let tables = self.ruleset.tables.iter_mut().zip(&mut self.handles);
        for (t, (table, handles)) in tables.enumerate() {
            let is_own = |c: &Chain| own.contains(&(t, c.name.clone()));
            let bodies = table.chains.iter_mut().filter(|c| is_own(c));
            let mut bodies: HashMap<String, Vec<Rule>> = bodies
                .map(|c| (c.name.clone(), std::mem::take(&mut c.rules)))
                .collect();
            let others = table.chains.iter_mut().filter(|c| !is_own(c));
            for rule in others.flat_map(|c| &mut c.rules) {
                bind_rule(rule, &mut bodies, DEEPEST);
            }
            let (chains, kept) = (std::mem::take(&mut table.chains), std::mem::take(handles));
            for (mut chain, handles_of) in chains.into_iter().zip(kept) {
                if is_own(&chain) {
                    // No rule leads to it: it is listed as a chain of the table, and is never desired.
                    let Some(rules) = bodies.remove(&chain.name) else {
                        continue;
                    };
                    chain.rules = rules;
                    if let Some(strays) = self.strays.get_mut(t) {
                        strays.push(stray::binding());
                    }
                }
                table.chains.push(chain);
                handles.push(handles_of);
            }
        }
    }

    /// Adds a rule. Returns how much memory its expressions take, in bytes. `last` is the index of the chain of the rule before it, where
    /// the search begins: the kernel lists the rules of a table in the order of its chains.
    pub(super) fn add_rule(
        &mut self,
        family: TableFamily,
        attrs: RuleAttrs,
        anonymous: &AnonymousSets,
        last: &mut usize,
    ) -> usize {
        let mut strays = stray::of_rule(&attrs);
        let (Some(table), Some(chain)) = (attrs.table, attrs.chain) else {
            return 0;
        };
        let tables = &mut self.ruleset.tables;
        let Some(t) = tables
            .iter()
            .position(|t| t.family == family && t.name == table)
        else {
            return 0;
        };
        let Some(chains) = tables.get_mut(t).map(|t| &mut t.chains) else {
            return 0;
        };
        let (before, from) = chains.split_at((*last).min(chains.len()));
        let is_its = |c: &Chain| c.name == chain;
        let after = from.iter().position(is_its).map(|c| before.len() + c);
        let Some(c) = after.or_else(|| before.iter().position(is_its)) else {
            return 0;
        };
        *last = c;
        let mut exprs: Vec<Expr> = attrs
            .expressions
            .unwrap_or_default()
            .into_iter()
            .map(|e| e.0)
            .collect();
        let find = |name: &str| anonymous.get(&(family, table.clone(), name.to_owned()));
        let named = exprs
            .iter_mut()
            .filter_map(|e| find(e.set()?.0.as_deref()?));
        let named: Vec<&Anonymous> = named.collect();
        let sets = |name: &str| find(name).map(|s| &s.kept);
        let mut rule: Rule = delinearize::rule(exprs, Context::of(family), &sets);
        if !named.is_empty() {
            strays.extend(around(&named, &rule, Context::of(family)));
        }
        rule.comment = userdata::text(attrs.userdata.as_deref(), userdata::COMMENT);
        let of_statement = |s: &Statement| match s {
            Statement::Opaque(exprs) => size_of_val(s) + size_of_val(exprs.as_slice()),
            _ => size_of_val(s),
        };
        let takes = rule.statements.iter().map(of_statement).sum();
        if let Some(chain) = chains.get_mut(c) {
            chain.rules.push(rule);
        }
        if let Some(found) = self.strays.get_mut(t) {
            found.extend(strays);
        }
        if let Some(handles) = self.handles.get_mut(t).and_then(|t| t.get_mut(c)) {
            handles.push(attrs.handle.unwrap_or(0));
        }
        takes
    }
}

/// Maximum depth of chains in chains: the kernel refuses deeper jumps (`NFT_JUMP_STACK_SIZE`).
const DEEPEST: usize = 16;

/// Moves the rules of the chain that belongs to a rule into that rule.
fn bind_rule(rule: &mut Rule, bodies: &mut HashMap<String, Vec<Rule>>, depth: usize) {
    let Some(Statement::Verdict(Verdict::Jump(to) | Verdict::Goto(to))) =
        rule.statements.last_mut()
    else {
        return;
    };
    let Some(mut rules) = depth
        .checked_sub(1)
        .and_then(|_| bodies.remove(to.as_str()))
    else {
        return;
    };
    to.clear();
    for inner in &mut rules {
        bind_rule(inner, bodies, depth - 1);
    }
    rule.chain = Some(rules);
}

/// Attributes of a rule's anonymous sets that the rule does not imply.
fn around(listed: &[&Anonymous], rule: &Rule, context: Context) -> Vec<Stray> {
    let mut linear = linearize::rule(rule, context);
    let ids = linear.exprs.iter_mut().filter_map(|e| {
        let (_, id) = e.set()?;
        usize::try_from((*id)?).ok()
    });
    let mut ids: std::collections::VecDeque<usize> = ids.collect();
    let of = |a: &&Anonymous| match ids.pop_front().map(|id| (id, linear.sets.get(id))) {
        // Kept as it was listed.
        Some((id, Some(_))) if id < rule.sets.len() => Vec::new(),
        Some((_, made)) => stray::of_anonymous(a, made.map(|s| &s.attrs)),
        None => stray::of_anonymous(a, None),
    };
    listed.iter().flat_map(of).collect()
}

impl Mark {
    /// The mark of a chain or a set.
    pub(super) fn of(handle: Option<u64>, uses: Option<u32>) -> Self {
        Self {
            handle,
            uses,
            holds: None,
        }
    }
}

/// Counts a chain or a set of the table `t`, whose mark has the same index.
pub(super) fn hold(marks: &mut [Mark], t: usize, is_anonymous: bool) {
    if let Some(holds) = marks.get_mut(t).and_then(|m| m.holds.as_mut()) {
        match is_anonymous {
            true => holds.anonymous += 1,
            false => holds.named += 1,
        }
    }
}

pub(super) fn table(reply: &Reply, attrs: &TableAttrs) -> (Table, Mark) {
    let name = attrs.name.as_deref().unwrap_or_default();
    let mut table = Table::new(TableFamily::from(reply.header.family), name);
    table.flags = attrs.flags.unwrap_or(0);
    table.comment = userdata::text(attrs.userdata.as_deref(), userdata::COMMENT);
    table.version = userdata::number(attrs.userdata.as_deref(), userdata::TABLE_VERSION);
    let mark = Mark {
        handle: attrs.handle,
        uses: attrs.uses,
        holds: Some(Holds::default()),
    };
    (table, mark)
}

pub(super) fn chain(attrs: &ChainAttrs) -> Chain {
    let mut chain = Chain::regular(attrs.name.as_deref().unwrap_or_default());
    chain.comment = userdata::text(attrs.userdata.as_deref(), userdata::COMMENT);
    chain.offload = attrs.flags.unwrap_or(0) & raw::NFT_CHAIN_HW_OFFLOAD != 0;
    chain.base = attrs.hook.as_ref().map(|hook| BaseChain {
        chain_type: ChainType::from(attrs.kind.as_deref().unwrap_or_default()),
        hook: Hook::from(hook.hooknum.unwrap_or(0)),
        priority: hook.priority.unwrap_or(0),
        policy: match attrs.policy {
            // NF_DROP is 0; a chain without a policy accepts.
            Some(0) => Policy::Drop,
            _ => Policy::Accept,
        },
        devices: devices(hook),
    });
    chain
}

fn devices(hook: &HookAttrs) -> Vec<String> {
    match (&hook.devs, &hook.dev) {
        (Some(list), _) => device_names(list),
        (None, Some(dev)) => vec![dev.clone()],
        (None, None) => Vec::new(),
    }
}
