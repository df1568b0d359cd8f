//! Reading: several dumps that must be of one generation.

use super::{ATTEMPTS, Engine, TableId, objects};
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
use weir_netlink::attr::{AttrSet, DecodeError};
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
        }
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
        let found = self.dump(raw::NFT_MSG_GETTABLE, Family::Unspec, &ask, "tables")?;
        let ids = found
            .iter()
            .map(|reply| table(reply).map(|t| (t.family, t.name)));
        ids.collect()
    }

    /// Everything (`nft list ruleset`).
    ///
    /// # Errors
    /// As [`Engine::generation`]; somebody kept changing the ruleset while it was read.
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

    /// All of one generation. A guess of which one it is spares the question; a wrong one costs a second read. Only
    /// of a commit that is over may it be made.
    ///
    /// A commit first counts the generation up and then puts its changes in force one by one
    /// (`nf_tables_commit`), and no dump waits for it. So between the question and the dumps we wait for the lock that a
    /// commit holds: what was under way is over then, and what begins later counts up first.
    pub(super) fn consistent(
        &mut self,
        wanted: Option<&[TableId]>,
        guess: Option<u32>,
    ) -> Result<Snapshot> {
        let mut is_over = guess.is_some();
        let mut before = match guess {
            Some(generation) => generation,
            None => self.generation()?,
        };
        for _ in 0..ATTEMPTS {
            if !is_over {
                self.wait_for_commit()?;
            }
            is_over = false;
            match self.snapshot(wanted) {
                Ok(mut snapshot) => {
                    let after = self.generation()?;
                    if before == after {
                        snapshot.generation = after;
                        return Ok(snapshot);
                    }
                    before = after;
                }
                // A dump was interrupted, or what one dump named was gone for the next.
                Err(e) if e.errno() == Some(libc::EINTR) || e.is_not_found() => {
                    before = self.generation()?;
                }
                Err(e) => return Err(e),
            }
        }
        Err(Error::exhausted(
            "read",
            "the ruleset",
            "it changed during every attempt",
        ))
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
        let is_wanted = |family: Family, name: &str| {
            wanted.is_none_or(|w| w.iter().any(|(f, n)| *f == family && n == name))
        };
        let (mut tables, mut all) = (Vec::new(), Vec::new());
        for reply in self.dump(
            raw::NFT_MSG_GETTABLE,
            Family::Unspec,
            &TableAttrs::default(),
            "tables",
        )? {
            let table = table(&reply)?;
            all.push((table.family, table.name.clone()));
            if is_wanted(table.family, &table.name) {
                tables.push(table);
            }
        }
        if tables.is_empty() {
            return Ok(Snapshot {
                tables: all,
                ..Snapshot::default()
            });
        }
        for reply in self.dump(
            raw::NFT_MSG_GETCHAIN,
            Family::Unspec,
            &ChainAttrs::default(),
            "chains",
        )? {
            let attrs: ChainAttrs = decode(&reply, "chains")?;
            if let Some(t) = find(&mut tables, &reply, attrs.table.as_deref()) {
                t.chains.push(chain(&attrs));
            }
        }
        let anonymous = self.sets(&mut tables)?;
        let mut snapshot = Snapshot {
            ruleset: Ruleset { tables },
            tables: all,
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
        if wanted.is_none() {
            self.objects(&mut snapshot.ruleset.tables)?;
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
        self.socket
            .dump(kind(message), family.number(), attrs, what)
            .map_err(no_nf_tables)
    }

    /// The same for lists that can be long: each answer is gone when the next one comes.
    fn each<A: AttrSet>(
        &mut self,
        message: u16,
        family: Family,
        attrs: &A,
        what: &str,
        f: impl FnMut(Reply) -> Result<()>,
    ) -> Result<()> {
        self.socket
            .dump_each(kind(message), family.number(), attrs, what, f)
            .map_err(no_nf_tables)
    }

    fn sets(&mut self, tables: &mut [Table]) -> Result<Anonymous> {
        let mut anonymous = Anonymous::new();
        for reply in self.dump(
            raw::NFT_MSG_GETSET,
            Family::Unspec,
            &SetAttrs::default(),
            "sets",
        )? {
            let attrs: SetAttrs = decode(&reply, "sets")?;
            let family = Family::from(reply.family);
            let Some(table) = find(tables, &reply, attrs.table.as_deref()) else {
                continue;
            };
            let mut set = Set::from_attrs(&attrs);
            let host_order = set::is_host_order_key(&attrs);
            let (elements, unread) = self.elements(family, &table.name, &set, host_order)?;
            set.unread.extend(unread);
            set.elements = elements;
            if attrs.flags.unwrap_or(0) & raw::NFT_SET_ANONYMOUS != 0 {
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
    fn add_rule(&mut self, family: Family, attrs: RuleAttrs, anonymous: &Anonymous) {
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
    let family = Family::from(reply.family);
    tables
        .iter_mut()
        .find(|t| t.family == family && Some(t.name.as_str()) == name)
}

fn table(reply: &Reply) -> Result<Table> {
    let attrs: TableAttrs = decode(reply, "tables")?;
    let mut table = Table::new(Family::from(reply.family), &attrs.name.unwrap_or_default());
    table.flags = attrs.flags.unwrap_or(0);
    table.comment = userdata::text(attrs.userdata.as_deref(), userdata::COMMENT);
    Ok(table)
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
