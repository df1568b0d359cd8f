//! The pure part: the operations that bring the kernel to the desired state.

use super::{Snapshot, TableId, reasons};
use crate::diff::{Step, diff};
use crate::nft::context::Context;
use crate::nft::display::{base_chain_text, set_line, set_word};
use crate::nft::listing::rule_text;
use crate::nft::model::{
    Chain, Element, Object, ObjectKind, Policy, Rule, Ruleset, Set, Table, TableFamily,
};
use crate::nft::{delinearize, linearize};
use std::collections::HashSet;
use std::fmt;

/// The operations of one batch, planned for one generation of the ruleset.
#[derive(Clone, Debug, PartialEq)]
#[doc(alias = "NFNL_MSG_BATCH_BEGIN")]
pub struct Transaction {
    /// The generation for which the operations were planned: the kernel refuses them if the ruleset has another one, or never
    /// for [`UNGUARDED`].
    pub generation: u32,
    /// In the order in which they are sent.
    pub ops: Vec<NftOp>,
    /// Objects that are not desired and are kept nevertheless.
    pub kept: Vec<Kept>,
}

/// A stateful object or a flowtable that is not desired and that another writer created in an owned table.
///
/// It is deleted only with its table: deleting it alone would lose its counts. It affects no packet as long as no rule
/// refers to it, and foreign rules are deleted. Still, the table is not exactly as desired.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kept {
    /// Its table.
    pub table: TableId,
    /// Its kind.
    pub kind: ObjectKind,
    /// Its name.
    pub name: String,
}

impl Kept {
    /// The objects of a table that stay although they are not desired.
    pub(super) fn of(table: &Table, desired: Option<&Table>) -> impl Iterator<Item = Self> {
        let is_desired = move |object: &Object| {
            let mut objects = desired.into_iter().flat_map(|d| &d.objects);
            objects.any(|o| o.is_for(object))
        };
        let others = table.objects.iter().filter(move |o| !is_desired(o));
        others.map(|object| Self {
            table: (table.family, table.name.clone()),
            kind: object.kind,
            name: object.name.clone(),
        })
    }
}

impl fmt::Display for Kept {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { table, kind, name } = self;
        write!(f, "{} {} {} {name}", kind.word(), table.0, table.1)
    }
}

/// The generation 0, which no ruleset has: the kernel does not compare it (`nf_tables_valid_genid`).
pub const UNGUARDED: u32 = 0;

/// One change. `Display` prints the equivalent `nft` command.
#[derive(Clone, Debug, PartialEq)]
pub enum NftOp {
    /// `add table`; separate operations add its chains and sets.
    AddTable(Table),
    /// `delete table` with everything in it.
    DeleteTable(TableId),
    /// `delete table`, because the table differs in properties that cannot be changed in place; the texts are the reasons.
    /// The operations that follow add the table again.
    ReplaceTable(TableId, Vec<String>),
    /// `add set` or `add map`, with its elements.
    AddSet(TableId, Set),
    /// `delete set`
    DeleteSet(TableId, String),
    /// `add counter` and similar, `add flowtable`
    AddObject(TableId, Object),
    /// `add element`; the elements of the set itself are ignored.
    AddElements(TableId, Set, Vec<Element>),
    /// `delete element`; the elements of the set itself are ignored.
    DeleteElements(TableId, Set, Vec<Element>),
    /// `add chain`; separate operations add its rules.
    AddChain(TableId, Chain),
    /// `add chain ... { policy P; }`: changes the policy of an existing base chain.
    SetPolicy(TableId, String, Policy),
    /// `delete chain`
    DeleteChain(TableId, String),
    /// `add rule` at the end or, before the rule with this handle, `insert rule`.
    AddRule(TableId, String, Rule, Option<u64>),
    /// `delete rule` by its handle; the rule itself is only displayed.
    DeleteRule(TableId, String, Rule, u64),
}

/// Plans the operations after which the tables `owned` hold `desired` and nothing else.
///
/// The tables of `desired` must be among the owned tables; others are neither compared nor changed. Rules that are kept keep
/// their handles and counters.
#[must_use]
pub fn plan(desired: &Ruleset, observed: &Snapshot, owned: &[TableId]) -> Transaction {
    let (mut ops, mut kept) = (Vec::new(), Vec::new());
    for (i, (family, name)) in owned.iter().enumerate() {
        // A table that is listed twice is handled once.
        if owned.iter().take(i).any(|(f, n)| f == family && n == name) {
            continue;
        }
        let desired = desired.table(*family, name);
        let found = observed
            .ruleset
            .tables
            .iter()
            .position(|t| t.family == *family && t.name == *name);
        let id = (*family, name.clone());
        match (desired, found) {
            (None, None) => {}
            (None, Some(_)) => ops.push(NftOp::DeleteTable(id)),
            (Some(t), None) => add_table(t, &mut ops),
            (Some(t), Some(i)) => {
                let Some(old) = observed.ruleset.tables.get(i) else {
                    continue;
                };
                let reasons = reasons::to_replace(t, old, observed, i);
                if !reasons.is_empty() {
                    ops.push(NftOp::ReplaceTable(id, reasons));
                    add_table(t, &mut ops);
                    continue;
                }
                change_table(t, old, observed, i, &mut ops);
                kept.extend(Kept::of(old, Some(t)));
            }
        }
    }
    Transaction {
        generation: observed.generation,
        ops,
        kept,
    }
}

/// The table without objects, sets and chains.
fn shell(t: &Table) -> Table {
    Table {
        flags: t.flags,
        comment: t.comment.clone(),
        version: t.version,
        ..Table::new(t.family, &t.name)
    }
}

fn add_table(t: &Table, ops: &mut Vec<NftOp>) {
    let id = (t.family, t.name.clone());
    ops.push(NftOp::AddTable(shell(t)));
    // Maps refer to objects and chains, rules to all of them.
    ops.extend(add_objects(&id, &t.objects));
    ops.extend(
        t.chains
            .iter()
            .map(|c| NftOp::AddChain(id.clone(), empty(c))),
    );
    ops.extend(t.sets.iter().map(|s| NftOp::AddSet(id.clone(), s.clone())));
    for c in &t.chains {
        let add = |r: &Rule| NftOp::AddRule(id.clone(), c.name.clone(), r.clone(), None);
        ops.extend(c.rules.iter().map(add));
    }
}

fn add_objects<'a>(
    id: &'a TableId,
    objects: impl IntoIterator<Item = &'a Object>,
) -> impl Iterator<Item = NftOp> {
    let add = |o: &Object| NftOp::AddObject(id.clone(), o.clone());
    objects.into_iter().map(add)
}

/// The chain without rules.
fn empty(c: &Chain) -> Chain {
    Chain {
        base: c.base.clone(),
        comment: c.comment.clone(),
        offload: c.offload,
        ..Chain::regular(&c.name)
    }
}

pub(super) fn set_frame(s: &Set) -> Set {
    Set {
        elements: Vec::new(),
        ..s.clone()
    }
}

fn change_table(new: &Table, old: &Table, observed: &Snapshot, table: usize, ops: &mut Vec<NftOp>) {
    let id = (new.family, new.name.clone());
    let (mut deletions, mut additions) = (Vec::new(), Vec::new());
    for (c, chain) in old.chains.iter().enumerate() {
        let desired = new.chain(&chain.name);
        let handles = observed.handles(table, c);
        let rules = desired.map_or(&[][..], |w| w.rules.as_slice());
        change_rules(&id, chain, handles, rules, &mut deletions, &mut additions);
    }
    // Rules are deleted before the sets and chains that they refer to, elements of verdict maps before the chains
    // that they refer to; additions are in the opposite order.
    ops.append(&mut deletions);
    let (set_deletions, set_additions) = change_sets(&id, new, old);
    ops.extend(set_deletions);
    let is_new = |c: &&Chain| old.chain(&c.name).is_none();
    let is_gone = |c: &&Chain| new.chain(&c.name).is_none();
    ops.extend(
        old.chains
            .iter()
            .filter(is_gone)
            .map(|c| NftOp::DeleteChain(id.clone(), c.name.clone())),
    );
    ops.extend(
        new.chains
            .iter()
            .filter(is_new)
            .map(|c| NftOp::AddChain(id.clone(), empty(c))),
    );
    for c in &new.chains {
        let policy = |c: &Chain| c.base.as_ref().map(|b| b.policy);
        if let (Some(desired), Some(o)) = (policy(c), old.chain(&c.name))
            && policy(o) != Some(desired)
        {
            ops.push(NftOp::SetPolicy(id.clone(), c.name.clone(), desired));
        }
    }
    let is_new = |o: &&Object| !old.objects.iter().any(|found| found.is_for(o));
    ops.extend(add_objects(&id, new.objects.iter().filter(is_new)));
    ops.extend(set_additions);
    for c in new.chains.iter().filter(|c| old.chain(&c.name).is_none()) {
        let add = |r: &Rule| NftOp::AddRule(id.clone(), c.name.clone(), r.clone(), None);
        ops.extend(c.rules.iter().map(add));
    }
    ops.append(&mut additions);
}

fn change_rules(
    id: &TableId,
    chain: &Chain,
    handles: &[u64],
    desired: &[Rule],
    deletions: &mut Vec<NftOp>,
    additions: &mut Vec<NftOp>,
) {
    let mut pairs = chain.rules.iter().zip(desired);
    if chain.rules.len() == desired.len() && pairs.all(|(o, d)| o.is_same_but_counters(d)) {
        return;
    }
    let old: Vec<Rule> = chain.rules.iter().map(Rule::without_counters).collect();
    // Nearly all rules equal the listed rule, and need no canonical form.
    let as_listed = |(i, rule): (usize, &Rule)| {
        let plain = rule.without_counters();
        if old.get(i) == Some(&plain) {
            plain
        } else {
            canonical(rule, id.0)
        }
    };
    let new: Vec<Rule> = desired.iter().enumerate().map(as_listed).collect();
    let steps = diff(&old, &new);
    // For each step the next rule that is kept: a rule is added before it, and at the end if there is none.
    let mut stays = None;
    let mut next: Vec<Option<u64>> = steps
        .iter()
        .rev()
        .map(|step| {
            if let Step::Keep(o) = step {
                stays = handles.get(*o).copied().or(stays);
            }
            stays
        })
        .collect();
    next.reverse();
    for (step, next) in steps.iter().zip(next) {
        match step {
            Step::Keep(_) => {}
            Step::Delete(o) => {
                if let (Some(rule), Some(handle)) = (old.get(*o), handles.get(*o)) {
                    deletions.push(NftOp::DeleteRule(
                        id.clone(),
                        chain.name.clone(),
                        rule.clone(),
                        *handle,
                    ));
                }
            }
            Step::Add(n) => {
                if let Some(rule) = desired.get(*n) {
                    additions.push(NftOp::AddRule(
                        id.clone(),
                        chain.name.clone(),
                        rule.clone(),
                        next,
                    ));
                }
            }
        }
    }
}

/// The deletions and the additions of sets and elements.
fn change_sets(id: &TableId, new: &Table, old: &Table) -> (Vec<NftOp>, Vec<NftOp>) {
    let (mut deletions, mut additions) = (Vec::new(), Vec::new());
    for s in &old.sets {
        if !new.sets.iter().any(|n| n.name == s.name) {
            deletions.push(NftOp::DeleteSet(id.clone(), s.name.clone()));
        }
    }
    for s in &new.sets {
        let Some(o) = old.sets.iter().find(|o| o.name == s.name) else {
            additions.push(NftOp::AddSet(id.clone(), s.clone()));
            continue;
        };
        let (desired, found) = (s.settled().elements, o.settled().elements);
        let only = |a: &[Element], b: &[Element]| -> Vec<Element> {
            let b: HashSet<&Element> = b.iter().collect();
            a.iter().filter(|e| !b.contains(e)).cloned().collect()
        };
        let (delete, add) = (only(&found, &desired), only(&desired, &found));
        if !delete.is_empty() {
            deletions.push(NftOp::DeleteElements(id.clone(), set_frame(s), delete));
        }
        if !add.is_empty() {
            additions.push(NftOp::AddElements(id.clone(), set_frame(s), add));
        }
    }
    (deletions, additions)
}

/// A rule in the form in which the kernel lists it, with counters at zero.
pub(crate) fn canonical(rule: &Rule, family: TableFamily) -> Rule {
    let context = Context::of(family);
    let mut linear = linearize::rule(rule, context);
    for e in &mut linear.exprs {
        if let Some((name, id)) = e.set()
            && let Some(id) = *id
        {
            *name = Some(format!("{}{id}", linearize::ANONYMOUS));
        }
    }
    let sets = |name: &str| {
        let id: usize = name.strip_prefix(linearize::ANONYMOUS)?.parse().ok()?;
        linear.sets.get(id)
    };
    let read = delinearize::rule(linear.exprs.clone(), context, &sets).without_counters();
    let own = rule.chain.as_ref();
    Rule {
        comment: rule.comment.clone(),
        chain: own.map(|rules| rules.iter().map(|r| canonical(r, family)).collect()),
        ..read
    }
}

impl NftOp {
    /// The verb of the `nft` command.
    #[must_use]
    pub fn verb(&self) -> &'static str {
        match self {
            Self::AddTable(_)
            | Self::AddSet(..)
            | Self::AddObject(..)
            | Self::AddElements(..)
            | Self::AddChain(..)
            | Self::SetPolicy(..)
            | Self::AddRule(.., None) => "add",
            Self::AddRule(.., Some(_)) => "insert",
            Self::DeleteTable(_)
            | Self::ReplaceTable(..)
            | Self::DeleteSet(..)
            | Self::DeleteElements(..)
            | Self::DeleteChain(..)
            | Self::DeleteRule(..) => "delete",
        }
    }

    /// The object of the `nft` command, as written after the verb.
    #[must_use]
    pub fn object(&self) -> String {
        fmt::from_fn(|f| self.write_object(f)).to_string()
    }

    fn write_object(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = |family: TableFamily, r: &Rule| rule_text(r, family);
        match self {
            Self::AddTable(t) => write!(f, "table {} {}", t.family, t.name),
            Self::DeleteTable((family, name)) => write!(f, "table {family} {name}"),
            Self::ReplaceTable((family, name), reasons) => {
                write!(f, "table {family} {name} # {}", reasons.join(", "))
            }
            Self::AddSet((family, table), s) => {
                let (word, name) = (set_word(s), &s.name);
                write!(f, "{word} {family} {table} {name} {}", set_line(s))
            }
            Self::DeleteSet((family, table), name) => write!(f, "set {family} {table} {name}"),
            Self::AddObject((family, table), o) => {
                write!(f, "{} {family} {table} {}", o.kind.word(), o.name)
            }
            Self::AddElements((family, table), s, e)
            | Self::DeleteElements((family, table), s, e) => {
                let (name, count) = (&s.name, e.len());
                write!(f, "element {family} {table} {name} ({count} elements)")
            }
            Self::AddChain((family, table), c) => {
                write!(f, "chain {family} {table} {}", c.name)?;
                match &c.base {
                    Some(base) => write!(f, " {{ {} }}", base_chain_text(base, *family)),
                    None => Ok(()),
                }
            }
            Self::SetPolicy((family, table), name, policy) => {
                write!(f, "chain {family} {table} {name} {{ policy {policy}; }}")
            }
            Self::DeleteChain((family, table), name) => write!(f, "chain {family} {table} {name}"),
            Self::AddRule((family, table), chain, r, before) => {
                write!(f, "rule {family} {table} {chain} ")?;
                if let Some(handle) = before {
                    write!(f, "position {handle} ")?;
                }
                f.write_str(&text(*family, r))
            }
            Self::DeleteRule((family, table), chain, r, handle) => {
                let text = text(*family, r);
                write!(f, "rule {family} {table} {chain} handle {handle} # {text}")
            }
        }
    }
}

impl fmt::Display for NftOp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.verb())?;
        f.write_str(" ")?;
        self.write_object(f)
    }
}
