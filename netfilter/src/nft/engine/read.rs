//! Reading: several dumps that must be of one generation.

use super::stray::{self, Stray};
use super::{Engine, TableId, objects};
use crate::nft::context::Context;
use crate::nft::expr::Expr;
use crate::nft::model::{
    BaseChain, Chain, ChainType, Element, Family, Hook, Policy, Rule, Ruleset, Set, Table, Unread,
};
use crate::nft::wire::{
    ChainAttrs, ElemListAttrs, GenAttrs, HookAttrs, RuleAttrs, SetAttrs, TableAttrs, device_names,
};
use crate::nft::{raise, raw, set, userdata};
use std::collections::HashMap;
use weir_netlink::attr::{AttrSet, DecodeError, Str};
use weir_netlink::contention::Attempts;
use weir_netlink::nfnetlink::{Batch, NFNL_SUBSYS_NFTABLES, Reply, Transport, message_type};
use weir_netlink::{Error, Result};

/// Tables as the kernel holds them at one moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Snapshot {
    /// The generation of the ruleset.
    pub generation: u32,
    /// The tables that were asked for.
    pub ruleset: Ruleset,
    /// Every table that there is, asked for or not.
    pub tables: Vec<TableId>,
    /// Handles of the rules, by table, chain and rule as in the ruleset.
    pub(super) handles: Vec<Vec<Vec<u64>>>,
    /// Whether all of it was read while the ruleset had this generation. If not, the owned tables were the same in two
    /// readings in a row.
    pub(super) is_of_one_generation: bool,
    /// What tells an object from one that was made in its place, and a table from one that holds more.
    marks: Vec<Mark>,
    /// What was listed around the rules and has no place in the values above, by table.
    strays: Vec<Vec<Stray>>,
}

/// What was listed of a table.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Holds {
    /// Chains, named sets, stateful objects and flowtables.
    named: u32,
    /// Sets that belong to rules. Newer kernels do not count them once a rule has them.
    anonymous: u32,
}

/// What the kernel says of a table, chain or set besides its content: it gives a handle only once, and counts what
/// refers to it.
#[derive(Clone, Debug, PartialEq)]
struct Mark {
    handle: Option<u64>,
    uses: Option<u32>,
    /// Of a table: how many of its chains and sets were listed.
    holds: Option<Holds>,
}

impl Snapshot {
    /// As the kernel might list a ruleset, for tests without one: handles are counted from 1.
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

    /// Whether both are one state: the same objects, not made anew, with the same content; counters aside.
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
            tables
        };
        self.marks == other.marks
            && self.handles == other.handles
            && self.strays == other.strays
            && plain(self) == plain(other)
    }

    /// What was listed in a table and no value says: it is there, and none is ever desired.
    pub(super) fn strays(&self, table: usize) -> &[Stray] {
        self.strays.get(table).map_or(&[], Vec::as_slice)
    }

    /// Whether each table listed as many chains and sets as it says that it holds. A listing that skips one, because
    /// another was deleted before it, does not show it otherwise.
    fn is_whole(&self) -> bool {
        self.marks.iter().all(|m| match (m.holds, m.uses) {
            (Some(h), Some(uses)) => [h.named, h.named + h.anonymous].contains(&uses),
            (Some(_), None) => false,
            (None, _) => true,
        })
    }

    /// Handles of a chain's rules, in their order.
    #[must_use]
    pub fn handles(&self, table: usize, chain: usize) -> &[u64] {
        self.handles
            .get(table)
            .and_then(|t| t.get(chain))
            .map_or(&[], Vec::as_slice)
    }
}

/// Room for answers in bytes, after some were dropped: each time four times as much.
const FIRST_ROOM: usize = 1 << 20;
/// And no more than this.
const LAST_ROOM: usize = 16 << 20;

/// The sets that belong to rules, by table and name.
pub(super) type Anonymous = HashMap<(Family, String, String), Set>;

fn kind(message: u16) -> u16 {
    message_type(NFNL_SUBSYS_NFTABLES, message)
}

pub(super) fn decode<A: AttrSet>(reply: &Reply, what: &str) -> Result<A> {
    reply
        .decode()
        .map_err(|e: DecodeError| Error::malformed("read", what, e.to_string()))
}

impl<T: Transport> Engine<T> {
    /// The generation of the ruleset: it changes with every commit of anybody.
    ///
    /// # Errors
    /// `EPERM` without CAP_NET_ADMIN over the namespace; the kernel has no nf_tables.
    pub fn generation(&mut self) -> Result<u32> {
        let what = "the generation of the ruleset";
        let reply = self
            .socket
            .get(kind(raw::NFT_MSG_GETGEN), 0, &GenAttrs::default(), what);
        let reply = reply.map_err(no_nf_tables)?;
        let attrs: GenAttrs = decode(&reply, what)?;
        attrs
            .id
            .ok_or_else(|| Error::malformed("read", what, "NFTA_GEN_ID is missing"))
    }

    /// The tables that exist (`nft list tables`), from one dump.
    ///
    /// # Errors
    /// As [`Engine::generation`].
    pub fn tables(&mut self) -> Result<Vec<TableId>> {
        let ask = TableAttrs::default();
        let mut attempts = Attempts::begin(self.contention);
        loop {
            (self.torn, self.held) = (false, 0);
            let found = self.dump(raw::NFT_MSG_GETTABLE, Family::Unspec, &ask, "tables")?;
            if !self.torn {
                let ids = found
                    .iter()
                    .map(|reply| decode::<TableAttrs>(reply, "tables").map(|a| table(reply, &a).0));
                return ids.map(|t| t.map(|t| (t.family, t.name))).collect();
            }
            if !attempts.again() {
                let what = "another writer kept changing them";
                return Err(Error::exhausted("list", "tables", what));
            }
        }
    }

    /// Everything (`nft list ruleset`).
    ///
    /// # Errors
    /// As [`Engine::generation`]; another writer kept changing the ruleset while it was read.
    pub fn read(&mut self) -> Result<Snapshot> {
        self.consistent(None, None)
    }

    /// The tables of this list that exist.
    ///
    /// # Errors
    /// As [`Engine::read`].
    pub fn read_tables(&mut self, wanted: &[TableId]) -> Result<Snapshot> {
        self.consistent(Some(wanted), None)
    }

    /// All of one generation; or, when a busy writer does not leave us the time, twice the same: what counts is
    /// whether the tables that we ask for were read as one. A guess of the generation spares the question; a wrong one
    /// costs a second read. Only of a commit that is over may it be made.
    ///
    /// A commit first counts the generation up and then puts its changes in force one by one
    /// (`nf_tables_commit`), and no dump waits for it. So between the question and the dumps we wait for the lock that a
    /// commit holds: what was under way is over then, and what begins later counts up first.
    ///
    /// Why two equal readings are one state: the kernel gives no handle twice, so what both have was there all the
    /// time between, and what only one of them has makes them differ.
    pub(super) fn consistent(
        &mut self,
        wanted: Option<&[TableId]>,
        guess: Option<u32>,
    ) -> Result<Snapshot> {
        let mut attempts = Attempts::begin(self.contention);
        let mut is_over = guess.is_some();
        let mut before = match guess {
            Some(generation) => generation,
            None => self.generation()?,
        };
        let mut previous: Option<Snapshot> = None;
        let mut room = FIRST_ROOM;
        loop {
            if !is_over {
                self.wait_for_commit()?;
            }
            is_over = false;
            match self.snapshot(wanted) {
                Ok(mut snapshot) => {
                    let after = self.generation()?;
                    snapshot.generation = before;
                    if before == after && !self.torn {
                        snapshot.is_of_one_generation = true;
                        return Ok(snapshot);
                    }
                    before = after;
                    if snapshot.is_whole() {
                        if previous.as_ref().is_some_and(|p| p.is_same(&snapshot)) {
                            return Ok(snapshot);
                        }
                        previous = Some(snapshot);
                    }
                }
                // What one dump named was gone for the next.
                Err(e) if e.is_not_found() => before = self.generation()?,
                // Answers were dropped: another reading, with more room for them.
                Err(e) if e.errno() == Some(libc::ENOBUFS) && room <= LAST_ROOM => {
                    self.socket.reserve(room)?;
                    room *= 4;
                    before = self.generation()?;
                }
                Err(e) => return Err(e),
            }
            if !attempts.again() {
                let what = format!(
                    "another writer changed it during each of {} attempts in {:?}",
                    attempts.made(),
                    attempts.limit()
                );
                return Err(Error::exhausted("read", "the ruleset", what));
            }
        }
    }

    /// Returns when no commit that began before is under way any more.
    fn wait_for_commit(&mut self) -> Result<()> {
        let nothing = Batch::new(NFNL_SUBSYS_NFTABLES, None);
        match self.socket.commit(nothing)? {
            Ok(()) => Ok(()),
            Err(refused) => {
                let errno = refused.first().map_or(libc::EIO, |f| f.errno);
                Err(Error::kernel("read", "the ruleset", errno))
            }
        }
    }

    fn snapshot(&mut self, wanted: Option<&[TableId]>) -> Result<Snapshot> {
        (self.torn, self.held) = (false, 0);
        let is_wanted = |family: Family, name: &str| {
            wanted.is_none_or(|w| w.iter().any(|(f, n)| *f == family && n == name))
        };
        let (mut tables, mut all, mut marks) = (Vec::new(), Vec::new(), Vec::new());
        let mut strays: Vec<Vec<Stray>> = Vec::new();
        for reply in self.dump(
            raw::NFT_MSG_GETTABLE,
            Family::Unspec,
            &TableAttrs::default(),
            "tables",
        )? {
            let attrs: TableAttrs = decode(&reply, "tables")?;
            let (table, mark) = table(&reply, &attrs);
            all.push((table.family, table.name.clone()));
            if is_wanted(table.family, &table.name) {
                strays.push(stray::of_table(&attrs, &table));
                tables.push(table);
                marks.push(mark);
            }
        }
        if tables.is_empty() {
            return Ok(Snapshot {
                tables: all,
                ..Snapshot::default()
            });
        }
        let (message, all_of) = (raw::NFT_MSG_GETCHAIN, ChainAttrs::default());
        self.each(message, Family::Unspec, &all_of, "chains", |reply| {
            let attrs: ChainAttrs = decode(&reply, "chains")?;
            if let Some(t) = position(&tables, &reply, attrs.table.as_deref()) {
                hold(&mut marks, t, false);
                marks.push(Mark::of(attrs.handle, attrs.uses));
                let chain = chain(&attrs);
                if let Some(strays) = strays.get_mut(t) {
                    strays.extend(stray::of_chain(&attrs, &chain));
                }
                if let Some(table) = tables.get_mut(t) {
                    table.chains.push(chain);
                }
            }
            Ok(())
        })?;
        let anonymous = self.sets(&mut tables, &mut marks, &mut strays)?;
        let mut snapshot = Snapshot {
            ruleset: Ruleset { tables },
            tables: all,
            marks,
            strays,
            ..Snapshot::default()
        };
        let others = snapshot.tables.len() > snapshot.ruleset.tables.len();
        snapshot.handles = snapshot
            .ruleset
            .tables
            .iter()
            .map(|t| vec![Vec::new(); t.chains.len()])
            .collect();
        self.rules(&mut snapshot, &anonymous, others)?;
        // What a table holds besides chains and sets counts when it is asked whether all of it was listed.
        if wanted.is_none() || !snapshot.is_whole() {
            self.objects(&mut snapshot.ruleset.tables)?;
            snapshot.count_objects();
        }
        if wanted.is_none() {
            objects::keep_anonymous(&mut snapshot.ruleset.tables, &anonymous);
        }
        Ok(snapshot)
    }

    pub(super) fn dump<A: AttrSet>(
        &mut self,
        message: u16,
        family: Family,
        attrs: &A,
        what: &str,
    ) -> Result<Vec<Reply>> {
        let mut replies = Vec::new();
        self.each(message, family, attrs, what, |reply| {
            replies.push(reply);
            Ok(())
        })?;
        Ok(replies)
    }

    /// The same for lists that can be long: each answer is gone when the next one comes.
    fn each<A: AttrSet>(
        &mut self,
        message: u16,
        family: Family,
        attrs: &A,
        what: &str,
        mut f: impl FnMut(Reply) -> Result<()>,
    ) -> Result<()> {
        let (limit, mut held) = (self.read_limit, self.held);
        let kind = kind(message);
        let bounded = |reply: Reply| {
            held = held.saturating_add(reply.attrs.len());
            if held > limit {
                return Err(too_large(what, &reply, limit));
            }
            f(reply)
        };
        let listed = self
            .socket
            .dump_each(kind, family.number(), attrs, what, bounded);
        self.held = held;
        match listed {
            // The ruleset changed, ours or not: what was listed may have holes.
            Err(e) if e.errno() == Some(libc::EINTR) => {
                self.torn = true;
                Ok(())
            }
            listed => listed.map_err(no_nf_tables),
        }
    }

    fn sets(
        &mut self,
        tables: &mut [Table],
        marks: &mut Vec<Mark>,
        strays: &mut [Vec<Stray>],
    ) -> Result<Anonymous> {
        let mut anonymous = Anonymous::new();
        for reply in self.dump(
            raw::NFT_MSG_GETSET,
            Family::Unspec,
            &SetAttrs::default(),
            "sets",
        )? {
            let attrs: SetAttrs = decode(&reply, "sets")?;
            let family = Family::from(reply.family);
            let Some(t) = position(tables, &reply, attrs.table.as_deref()) else {
                continue;
            };
            let is_anonymous = attrs.flags.unwrap_or(0) & raw::NFT_SET_ANONYMOUS != 0;
            hold(marks, t, is_anonymous);
            marks.push(Mark::of(attrs.handle, None));
            if let Some(strays) = strays.get_mut(t) {
                strays.extend(stray::of_set(&attrs));
            }
            let Some(table) = tables.get_mut(t) else {
                continue;
            };
            let mut set = Set::from_attrs(&attrs);
            let host_order = set::is_host_order_key(&attrs);
            let (elements, unread) = self.elements(family, &table.name, &set, host_order)?;
            set.unread.extend(unread);
            set.elements = elements;
            if is_anonymous {
                anonymous.insert((family, table.name.clone(), set.name.clone()), set);
            } else {
                table.sets.push(set);
            }
        }
        Ok(anonymous)
    }

    fn elements(
        &mut self,
        family: Family,
        table: &str,
        set: &Set,
        host_order: bool,
    ) -> Result<(Vec<Element>, Vec<Unread>)> {
        let ask = ElemListAttrs {
            table: Some(table.to_owned()),
            set: Some(set.name.clone()),
            ..ElemListAttrs::default()
        };
        let what = format!("elements of set {family} {table} {}", set.name);
        let mut listed = set::Listed::default();
        self.each(raw::NFT_MSG_GETSETELEM, family, &ask, &what, |reply| {
            let attrs: ElemListAttrs = decode(&reply, &what)?;
            listed.add(attrs.elements.as_deref().unwrap_or_default());
            Ok(())
        })?;
        Ok(listed.finish(set.interval, host_order))
    }

    /// With other tables about, only the rules of the wanted ones are asked for: a node's own
    /// namespace can hold tens of thousands.
    fn rules(&mut self, s: &mut Snapshot, anonymous: &Anonymous, others: bool) -> Result<()> {
        let asked: Vec<(Family, RuleAttrs)> = if others {
            let of = |t: &Table| RuleAttrs {
                table: Some(t.name.clone()),
                ..RuleAttrs::default()
            };
            s.ruleset.tables.iter().map(|t| (t.family, of(t))).collect()
        } else {
            vec![(Family::Unspec, RuleAttrs::default())]
        };
        for (family, ask) in asked {
            self.each(raw::NFT_MSG_GETRULE, family, &ask, "rules", |reply| {
                let attrs: RuleAttrs = decode(&reply, "rules")?;
                s.add_rule(Family::from(reply.family), attrs, anonymous);
                Ok(())
            })?;
        }
        Ok(())
    }
}

impl Snapshot {
    /// Stateful objects and flowtables are what a table holds, too.
    fn count_objects(&mut self) {
        for (table, mark) in self.ruleset.tables.iter().zip(&mut self.marks) {
            if let Some(holds) = &mut mark.holds {
                holds.named += u32::try_from(table.objects.len()).unwrap_or(0);
            }
        }
    }

    fn add_rule(&mut self, family: Family, attrs: RuleAttrs, anonymous: &Anonymous) {
        let strays = stray::of_rule(&attrs);
        let (Some(table), Some(chain)) = (attrs.table, attrs.chain) else {
            return;
        };
        let tables = &mut self.ruleset.tables;
        let Some(t) = tables
            .iter()
            .position(|t| t.family == family && t.name == table)
        else {
            return;
        };
        let Some(chains) = tables.get_mut(t).map(|t| &mut t.chains) else {
            return;
        };
        let Some(c) = chains.iter().position(|c| c.name == chain) else {
            return;
        };
        let exprs: Vec<Expr> = attrs
            .expressions
            .unwrap_or_default()
            .into_iter()
            .map(|e| e.0)
            .collect();
        let sets = |name: &str| {
            anonymous
                .get(&(family, table.clone(), name.to_owned()))
                .map(|s| s.elements.clone())
        };
        let mut rule: Rule = raise::rule(exprs, Context::of(family), &sets);
        rule.comment = userdata::text(attrs.userdata.as_deref(), userdata::COMMENT);
        if let Some(chain) = chains.get_mut(c) {
            chain.rules.push(rule);
        }
        if let Some(found) = self.strays.get_mut(t) {
            found.extend(strays);
        }
        if let Some(handles) = self.handles.get_mut(t).and_then(|t| t.get_mut(c)) {
            handles.push(attrs.handle.unwrap_or(0));
        }
    }
}

pub(super) fn find<'a>(
    tables: &'a mut [Table],
    reply: &Reply,
    name: Option<&str>,
) -> Option<&'a mut Table> {
    let t = position(tables, reply, name)?;
    tables.get_mut(t)
}

fn position(tables: &[Table], reply: &Reply, name: Option<&str>) -> Option<usize> {
    let family = Family::from(reply.family);
    tables
        .iter()
        .position(|t| t.family == family && Some(t.name.as_str()) == name)
}

impl Mark {
    /// Of a chain or a set.
    fn of(handle: Option<u64>, uses: Option<u32>) -> Self {
        Self {
            handle,
            uses,
            holds: None,
        }
    }
}

/// Counts a chain or a set of the table `t`, whose mark is at the same place.
fn hold(marks: &mut [Mark], t: usize, is_anonymous: bool) {
    if let Some(holds) = marks.get_mut(t).and_then(|m| m.holds.as_mut()) {
        match is_anonymous {
            true => holds.anonymous += 1,
            false => holds.named += 1,
        }
    }
}

fn table(reply: &Reply, attrs: &TableAttrs) -> (Table, Mark) {
    let name = attrs.name.as_deref().unwrap_or_default();
    let mut table = Table::new(Family::from(reply.family), name);
    table.flags = attrs.flags.unwrap_or(0);
    table.comment = userdata::text(attrs.userdata.as_deref(), userdata::COMMENT);
    let mark = Mark {
        handle: attrs.handle,
        uses: attrs.uses,
        holds: Some(Holds::default()),
    };
    (table, mark)
}

fn chain(attrs: &ChainAttrs) -> Chain {
    let mut chain = Chain::regular(attrs.name.as_deref().unwrap_or_default());
    chain.comment = userdata::text(attrs.userdata.as_deref(), userdata::COMMENT);
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

weir_netlink::attributes! {
    /// What all objects of a table have in common.
    struct Belonging {
        /// table
        table: Str = NFTA_RULE_TABLE 1,
    }
}

/// What is listed is more than is read.
fn too_large(what: &str, reply: &Reply, limit: usize) -> Error {
    // Every object says its table in the same attribute.
    let attrs = Belonging::decode(&reply.attrs).unwrap_or_default();
    let table = attrs.table.unwrap_or_default();
    let reason = format!(
        "the ruleset has more than {limit} bytes, and no more are read at once; the limit was reached in table {} {table}: \
         delete what makes it so large",
        Family::from(reply.family)
    );
    Error::refused("read", what, reason)
}

/// Without nf_tables the subsystem is unknown to nfnetlink: `EINVAL`, or `EOPNOTSUPP` for a family.
fn no_nf_tables(e: Error) -> Error {
    match e.errno() {
        Some(libc::EINVAL) => Error::unsupported(
            "use",
            "nf_tables",
            "this kernel has no nf_tables (CONFIG_NF_TABLES, module nf_tables)",
        ),
        _ => e,
    }
}
