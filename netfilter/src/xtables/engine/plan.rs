//! The pure part: the operations that bring the kernel to the desired state.
//!
//! The following are owned: user chains with the owner's prefix or name; in all other chains the rules that jump to an owned
//! chain; in built-in chains also the rules that have the tag or are listed as owned, see [`Ownership`].
//! Chains of [`Ownership::others`] and the rules that jump to them belong to other owners. Everything else is foreign and
//! kept, even if it has a desired effect.
//!
//! Owned rules of a built-in chain are in the desired order, with any foreign rules between them. Rules that exist in that
//! order keep their position. A missing rule is inserted directly after the owned rule that it follows; a missing first rule
//! directly before the next existing owned rule. If no owned rule exists, all are appended, or come first
//! ([`Ownership::first`]).

use super::ownership::{Place, places};
use super::{Ownership, Snapshot, TableId};
use crate::diff::{Step, diff};
use crate::xtables::ext::{All, Context};
use crate::xtables::sets::Interned;
use crate::xtables::table::{ChainLayout, Layout, RuleLayout};
use crate::xtables::text::Command;
use crate::xtables::{ChainKind, Policy, Rule, Ruleset, Table, Target, XtFamily, entry};
use std::collections::BTreeSet;
use std::fmt;
use weir_netlink::{Error, Result};

/// Operations for tables as they were observed.
#[derive(Clone, Debug, Default, PartialEq)]
#[doc(alias = "ipt_replace")]
pub struct Transaction {
    /// Executed in this order, they turn the observed state into the desired one.
    pub ops: Vec<XtOp>,
    /// The tables that change.
    pub(in crate::xtables) changes: Vec<Change>,
}

/// A table before and after.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::xtables) struct Change {
    pub(in crate::xtables) old: Layout,
    pub(in crate::xtables) new: Layout,
}

/// One change. `Display` prints the equivalent command.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum XtOp {
    /// `-D CHAIN PLACE`; the rule is for display. Places count from 1.
    DeleteRule(TableId, String, usize, Rule),
    /// `-F CHAIN`, because its rules are not compared one by one; the text is the reason.
    FlushChain(TableId, String, String),
    /// `-X CHAIN`
    DeleteChain(TableId, String),
    /// `-N CHAIN`
    NewChain(TableId, String),
    /// `-P CHAIN POLICY`
    SetPolicy(TableId, String, Policy),
    /// `-I CHAIN PLACE RULE`
    InsertRule(TableId, String, usize, Rule),
    /// A line of a script.
    Command(TableId, Command),
    /// The effect of a script's `*TABLE` without `--noflush`.
    FlushTable(TableId),
}

impl Transaction {
    /// The tables that change, with their new content.
    #[must_use]
    pub fn tables(&self) -> Ruleset {
        Ruleset {
            tables: self.changes.iter().map(|c| c.new.table()).collect(),
        }
    }

    /// Tables that must be created first.
    pub(super) fn absent(&self) -> Vec<TableId> {
        let absent = self.changes.iter().filter(|c| !c.old.is_there());
        absent.map(|c| (c.old.family, c.old.name.clone())).collect()
    }
}

/// How many rules besides the desired ones an owned chain may hold before it is flushed: there may be tens of thousands, and a
/// list of all their deletions would not be useful.
const MORE: usize = 256;

/// Plans the operations after which the tables hold `desired` and nothing else that is owned. An empty `desired` deletes
/// everything that is owned.
///
/// The desired tables and user chains must be owned, as [`XtEngine::apply`](super::XtEngine::apply) checks.
///
/// # Errors
/// The desired rules cannot be encoded: an unknown table or chain, a jump to a missing chain, a loop, a value out of
/// range. A foreign rule refers to an owned chain that would be deleted.
pub fn plan(desired: &Ruleset, observed: &Snapshot, ours: &Ownership) -> Result<Transaction> {
    let mut transaction = Transaction::default();
    let mut tables: Vec<Layout> = observed.layouts.clone();
    for table in &desired.tables {
        if !tables
            .iter()
            .any(|t| t.family == table.family && t.name == table.name)
        {
            tables.push(Layout::untouched(table.family, &table.name)?);
        }
    }
    for old in tables {
        let desired = desired.table(old.family, &old.name);
        if desired.is_none() && !ours.is_in(&old.name) {
            continue;
        }
        let named = ours.rules.table(old.family, &old.name);
        let (owned, others) = owners(&old, ours);
        let named = named.filter(|_| ours.prefix.is_empty() || !owned.is_empty());
        let planner = Planner {
            id: (old.family, old.name.clone()),
            desired: desired
                .map_or_else(|| Ok(Table::new(old.family, &old.name)), canonical_table)?,
            named: named.map_or_else(|| Ok(Table::new(old.family, &old.name)), canonical_table)?,
            owned,
            others,
            tag: ours.tag,
            version: ours.version,
            first: ours.first,
        };
        planner.table(old, &mut transaction)?;
    }
    Ok(transaction)
}

/// A table with its rules in the form in which the kernel lists them, for example without a network of length 0.
///
/// # Errors
/// A rule cannot be encoded.
pub fn canonical_table(table: &Table) -> Result<Table> {
    let mut table = table.clone();
    for chain in &mut table.chains {
        for rule in &mut chain.rules {
            *rule = canonical(rule, table.family)?;
        }
    }
    Ok(table)
}

pub(super) fn canonical(rule: &Rule, family: XtFamily) -> Result<Rule> {
    let sets = Interned::default();
    let cx = Context {
        family,
        sets: &sets,
        revisions: &All,
    };
    let bytes = entry::encode(rule, &cx)?;
    let mut read = Rule::default();
    entry::decode(&bytes, &cx, &mut read).ok_or_else(|| {
        Error::malformed(
            "read back",
            format!("`{rule}`"),
            "the encoded rule cannot be decoded: this is a defect of weir",
        )
    })?;
    // The verdict distinguishes the standard targets, and is only set when a whole table is encoded.
    if entry::verdict(rule.target.as_ref()).is_some() {
        read.target.clone_from(&rule.target);
    }
    Ok(read)
}

struct Planner {
    id: TableId,
    desired: Table,
    named: Table,
    /// User chains of the table that are owned.
    owned: BTreeSet<String>,
    /// User chains of the table that belong to other owners.
    others: BTreeSet<String>,
    tag: u32,
    version: u32,
    first: bool,
}

/// The user chains of a table that are owned, and those that belong to other known owners.
fn owners(table: &Layout, ours: &Ownership) -> (BTreeSet<String>, BTreeSet<String>) {
    let users = table.chains.iter().filter(|c| c.builtin.is_none());
    let names: Vec<&str> = users.map(|c| c.name.as_str()).collect();
    let all = || names.iter().copied();
    let concerned = || all().filter(|name| ours.concerns(name));
    let is_owned = |name: &&str| ours.owns(&table.name, name, all());
    let is_of_another = |name: &&str| ours.is_of_another(&table.name, name, all());
    (
        concerned().filter(is_owned).map(str::to_owned).collect(),
        concerned()
            .filter(is_of_another)
            .map(str::to_owned)
            .collect(),
    )
}

impl Planner {
    fn is_our_chain(&self, name: &str) -> bool {
        let desired = self
            .desired
            .chain(name)
            .is_some_and(|c| c.kind == ChainKind::User);
        desired || self.owned.contains(name)
    }

    /// Whether a rule is owned because it jumps to an owned chain, or because it is in a built-in chain and has the tag.
    fn is_known_rule(&self, chain: &ChainLayout, r: &RuleLayout) -> bool {
        let to = r.rule.target.as_ref().and_then(Target::chain);
        let signed = self.tag != 0 && r.tag == self.tag && chain.builtin.is_some();
        let is_of_another = to.is_some_and(|to| self.others.contains(to));
        (signed && !is_of_another) || to.is_some_and(|to| self.is_our_chain(to))
    }

    /// The rules of a chain that are owned or have a desired effect.
    fn places(&self, chain: &ChainLayout, all: bool, desired: &[Rule]) -> Vec<Place> {
        if all {
            let every = 0..chain.rules.len();
            return every.map(|at| Place { at, is_ours: true }).collect();
        }
        let named = self
            .named
            .chain(&chain.name)
            .filter(|_| chain.builtin.is_some());
        let named = named.map_or(&[][..], |c| &c.rules);
        places(
            &chain.rules,
            |r| self.is_known_rule(chain, r),
            named,
            desired,
        )
    }

    fn table(&self, old: Layout, transaction: &mut Transaction) -> Result<()> {
        self.check_chains(&old)?;
        let mut new = old.clone();
        let (mut deletions, mut additions) = (Vec::new(), Vec::new());
        let (mut chain_deletions, mut new_chains) = (Vec::new(), Vec::new());
        new.chains.retain_mut(|chain| {
            let ours = chain.builtin.is_none() && self.is_our_chain(&chain.name);
            let desired = self.desired.chain(&chain.name);
            self.rules(
                chain,
                ours,
                desired.map_or(&[], |w| &w.rules),
                &mut deletions,
                &mut additions,
            );
            if let (Some(ChainKind::Builtin(Some(policy))), Some((_, has))) =
                (desired.map(|w| w.kind), chain.builtin.as_mut())
                && *has != policy
            {
                *has = policy;
                new_chains.push(XtOp::SetPolicy(self.id.clone(), chain.name.clone(), policy));
            }
            if ours && desired.is_none() {
                chain_deletions.push(XtOp::DeleteChain(self.id.clone(), chain.name.clone()));
                return false;
            }
            true
        });
        for chain in &self.desired.chains {
            if new.chain(&chain.name).is_some() {
                continue;
            }
            new_chains.push(XtOp::NewChain(self.id.clone(), chain.name.clone()));
            let mut made = ChainLayout::user(&chain.name);
            self.rules(
                &mut made,
                true,
                &chain.rules,
                &mut deletions,
                &mut additions,
            );
            new.chains.push(made);
        }
        let ops = [deletions, chain_deletions, new_chains, additions].concat();
        if ops.is_empty() {
            return Ok(());
        }
        new.sort();
        new.check()?;
        transaction.ops.extend(ops);
        transaction.changes.push(Change { old, new });
        Ok(())
    }

    fn check_chains(&self, old: &Layout) -> Result<()> {
        for chain in &self.desired.chains {
            let is_builtin = chain.kind != ChainKind::User;
            let found = old.chain(&chain.name);
            let why = match found {
                Some(_) if self.others.contains(&chain.name) => {
                    "another owner has the chain of this name, and both in one table are not possible; remove what that owner \
                     has, or use nf_tables, where each owner has tables of its own"
                }
                None if is_builtin => "the table has no such built-in chain; use another table",
                Some(c) if c.builtin.is_some() != is_builtin => {
                    "it is built-in there, and a user chain here, or the reverse; rename it"
                }
                _ => continue,
            };
            let object = format!("{} table {} chain {}", self.id.0, self.id.1, chain.name);
            return Err(Error::refused("write", object, why));
        }
        Ok(())
    }

    /// The reason to flush an owned chain first; `None` if its rules are compared.
    fn to_flush(&self, chain: &ChainLayout, desired: &[Rule]) -> Option<String> {
        let held = chain.rules.len();
        if held > desired.len().saturating_add(MORE) {
            return Some(format!("of {held} rules"));
        }
        let mut versions = chain.rules.iter().map(|r| r.tag);
        let is_other = |found: &u32| self.version != 0 && ![0, self.version].contains(found);
        let other = versions.find(is_other)?;
        Some(format!("of version {other}, not {}", self.version))
    }

    /// Makes a chain hold the desired rules; foreign rules keep their position.
    fn rules(
        &self,
        chain: &mut ChainLayout,
        all: bool,
        desired: &[Rule],
        deletions: &mut Vec<XtOp>,
        additions: &mut Vec<XtOp>,
    ) {
        // Foreign user chains hold no desired rules.
        let desired = if all || chain.builtin.is_some() {
            desired
        } else {
            &[]
        };
        if let Some(why) = self.to_flush(chain, desired).filter(|_| all) {
            deletions.push(XtOp::FlushChain(self.id.clone(), chain.name.clone(), why));
            chain.rules.clear();
        }
        let places = self.places(chain, all, desired);
        let present: Vec<Rule> = places
            .iter()
            .filter_map(|p| chain.rules.get(p.at).map(|r| r.rule.clone()))
            .collect();
        let steps = diff(&present, desired);
        // A surplus rule that was only adopted is not deleted.
        let goes = |o: usize| places.get(o).filter(|p| p.is_ours).map(|p| p.at);
        let kept = |o: usize| places.get(o).map(|p| p.at);
        if steps.iter().all(|s| match s {
            Step::Keep(_) => true,
            Step::Delete(o) => goes(*o).is_none(),
            Step::Add(_) => false,
        }) {
            return;
        }
        let none_kept = if self.first { 0 } else { chain.rules.len() };
        let slots = slots(&steps, kept, chain.rules.len(), none_kept);
        let mut stays = vec![true; chain.rules.len()];
        let deleted = steps.iter().rev().filter_map(|step| match step {
            Step::Delete(o) => goes(*o),
            _ => None,
        });
        for place in deleted {
            if let Some(stays) = stays.get_mut(place) {
                *stays = false;
            }
            if let Some(r) = chain.rules.get(place) {
                let name = chain.name.clone();
                deletions.push(XtOp::DeleteRule(
                    self.id.clone(),
                    name,
                    place + 1,
                    r.rule.clone(),
                ));
            }
        }
        chain.rules = self.rebuilt(chain, &stays, &slots, desired, additions);
    }

    /// Returns the rules of a chain with those that are added, and without those that do not stay.
    fn rebuilt(
        &self,
        chain: &ChainLayout,
        stays: &[bool],
        slots: &Slots,
        desired: &[Rule],
        additions: &mut Vec<XtOp>,
    ) -> Vec<RuleLayout> {
        let tag = match chain.builtin {
            Some(_) => self.tag,
            None => self.version,
        };
        let mut rules: Vec<RuleLayout> = Vec::new();
        let mut add = |rules: &mut Vec<RuleLayout>, news: Option<&Vec<usize>>| {
            for rule in news.into_iter().flatten().filter_map(|n| desired.get(*n)) {
                rules.push(RuleLayout {
                    rule: rule.clone(),
                    old: None,
                    tag,
                });
                let place = rules.len();
                additions.push(XtOp::InsertRule(
                    self.id.clone(),
                    chain.name.clone(),
                    place,
                    rule.clone(),
                ));
            }
        };
        for (n, r) in chain.rules.iter().enumerate() {
            add(&mut rules, slots.before.get(n));
            if stays.get(n) == Some(&true) {
                rules.push(r.clone());
            }
            add(&mut rules, slots.after.get(n));
        }
        add(&mut rules, slots.before.get(chain.rules.len()));
        rules
    }
}

/// For each index of the old chain: the desired rules to add before it, and after it.
struct Slots {
    before: Vec<Vec<usize>>,
    after: Vec<Vec<usize>>,
}

/// Rules that precede every kept rule are added before the first one; if none is kept, before the index `none_kept`.
fn slots(
    steps: &[Step],
    kept: impl Fn(usize) -> Option<usize>,
    rules: usize,
    none_kept: usize,
) -> Slots {
    let mut before: Vec<Vec<usize>> = vec![Vec::new(); rules + 1];
    let mut after = before.clone();
    let first = steps.iter().find_map(|s| match s {
        Step::Keep(o) => kept(*o),
        _ => None,
    });
    let mut last = None;
    for step in steps {
        match step {
            Step::Keep(o) => last = kept(*o),
            Step::Delete(_) => {}
            Step::Add(n) => {
                let slot = match last {
                    Some(place) => after.get_mut(place),
                    None => before.get_mut(first.unwrap_or(none_kept)),
                };
                slot.into_iter().for_each(|s| s.push(*n));
            }
        }
    }
    Slots { before, after }
}

impl fmt::Display for XtOp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Self::DeleteRule((family, table), ..)
        | Self::FlushChain((family, table), ..)
        | Self::DeleteChain((family, table), ..)
        | Self::NewChain((family, table), ..)
        | Self::SetPolicy((family, table), ..)
        | Self::InsertRule((family, table), ..)
        | Self::Command((family, table), ..)
        | Self::FlushTable((family, table))) = self;
        write!(f, "{family} -t {table} ")?;
        match self {
            Self::DeleteRule(_, chain, place, rule) => write!(f, "-D {chain} {place} #{rule}"),
            Self::FlushChain(_, chain, why) => write!(f, "-F {chain} #{why}"),
            Self::DeleteChain(_, chain) => write!(f, "-X {chain}"),
            Self::NewChain(_, chain) => write!(f, "-N {chain}"),
            Self::SetPolicy(_, chain, policy) => write!(f, "-P {chain} {policy}"),
            Self::InsertRule(_, chain, place, rule) => write!(f, "-I {chain} {place}{rule}"),
            Self::Command(_, command) => command.fmt(f),
            Self::FlushTable(_) => f.write_str("-F, -X"),
        }
    }
}
