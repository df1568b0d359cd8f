//! Reading: several dumps that must be of one generation.

use super::dump::{decode, kind, no_nf_tables};
use super::snapshot::{Anonymous, AnonymousSets, Mark, Snapshot, chain, hold, table};
use super::stray::{self, Stray};
use super::{Engine, TableId, objects};
use crate::nft::model::{Element, Family, Ruleset, Set, Table, Unread};
use crate::nft::wire::{ChainAttrs, ElemListAttrs, GenAttrs, RuleAttrs, SetAttrs, TableAttrs};
use crate::nft::{raw, set};
use weir_netlink::Transport;
use weir_netlink::contention::Attempts;
use weir_netlink::nfnetlink::{Batch, NFNL_SUBSYS_NFTABLES, Reply};
use weir_netlink::{Error, Result};

/// Which tables are read.
#[derive(Clone, Copy)]
pub(super) enum Scope<'a> {
    /// Every one, with everything in it.
    All,
    /// These.
    Tables(&'a [TableId]),
    /// Those of this list, which are to hold these rules and nothing else.
    Desired(&'a Ruleset, &'a [TableId]),
}

/// What is read of a table.
enum Detail {
    Name,
    Content,
}

/// What an owned table may hold beside what is desired before it is not read to its end, in bytes: some 16,000 rules of
/// another writer. Each datagram of a list costs the kernel a walk over all before it (`nf_tables_dump_rules`), so that
/// 200,000 rules take half a minute.
const MORE: usize = 8 << 20;
/// A rule that another program made of the same may have larger attributes, and a comment; a set's element too.
const BYTES_OF_RULE: usize = 4096;
const BYTES_OF_ELEMENT: usize = 512;

impl Scope<'_> {
    fn asks_for(self, table: &Table) -> Option<Detail> {
        let is_named = |list: &[TableId]| {
            list.iter()
                .any(|(f, n)| *f == table.family && *n == table.name)
        };
        match self {
            Self::All => Some(Detail::Content),
            Self::Tables(list) => is_named(list).then_some(Detail::Content),
            Self::Desired(desired, owned) => {
                is_named(owned).then(|| match desired.table(table.family, &table.name) {
                    Some(_) => Detail::Content,
                    None => Detail::Name,
                })
            }
        }
    }

    /// In bytes, of an engine that reads at most so many.
    fn limit(self, of_engine: usize) -> usize {
        match self.desired() {
            Some(desired) => of_engine.min(desired.saturating_add(MORE)),
            None => of_engine,
        }
    }

    /// Whether a reading of more than this holds foreign things.
    fn is_overfull(self, limit: usize) -> bool {
        self.desired().is_some_and(|desired| desired <= limit)
    }

    /// How much is desired at most, in bytes.
    fn desired(self) -> Option<usize> {
        let Self::Desired(desired, _) = self else {
            return None;
        };
        let of_table = |t: &Table| {
            let rules: usize = t.chains.iter().map(|c| c.rules.len() + 1).sum();
            let elements: usize = t.sets.iter().map(|s| s.elements.len() + 8).sum();
            rules * BYTES_OF_RULE + elements * BYTES_OF_ELEMENT
        };
        Some(desired.tables.iter().map(of_table).sum())
    }
}

/// Room for answers in bytes, after some were dropped: each time four times as much.
const FIRST_ROOM: usize = 1 << 20;
/// And no more than this.
const LAST_ROOM: usize = 16 << 20;

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
        self.consistent(Scope::All, None)
    }

    /// The tables of this list that exist.
    ///
    /// # Errors
    /// As [`Engine::read`].
    pub fn read_tables(&mut self, wanted: &[TableId]) -> Result<Snapshot> {
        self.consistent(Scope::Tables(wanted), None)
    }

    /// What of `owned` there is, as far as a plan for `desired` needs it: of a table that has to go no more than that it is
    /// there, and of one with far more in it than is desired that this is so.
    ///
    /// # Errors
    /// As [`Engine::read`].
    pub fn read_for(&mut self, desired: &Ruleset, owned: &[TableId]) -> Result<Snapshot> {
        self.consistent(Scope::Desired(desired, owned), None)
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
    pub(super) fn consistent(&mut self, scope: Scope<'_>, guess: Option<u32>) -> Result<Snapshot> {
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
            match self.snapshot(scope) {
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

    fn snapshot(&mut self, scope: Scope<'_>) -> Result<Snapshot> {
        (self.torn, self.held) = (false, 0);
        let mut snapshot = Snapshot::default();
        let mut bare = Vec::new();
        let all = TableAttrs::default();
        for reply in self.dump(raw::NFT_MSG_GETTABLE, Family::Unspec, &all, "tables")? {
            let attrs: TableAttrs = decode(&reply, "tables")?;
            let (table, mark) = table(&reply, &attrs);
            snapshot.tables.push((table.family, table.name.clone()));
            match scope.asks_for(&table) {
                Some(Detail::Content) => {
                    snapshot.strays.push(stray::of_table(&attrs, &table));
                    snapshot.ruleset.tables.push(table);
                    snapshot.marks.push(mark);
                }
                Some(Detail::Name) => bare.push((table, mark)),
                None => {}
            }
        }
        let limit = self.read_limit;
        self.read_limit = scope.limit(limit);
        self.is_full = false;
        let named = snapshot.clone();
        let read = self.content(snapshot, scope);
        self.read_limit = limit;
        let mut snapshot = match read {
            Err(_) if self.is_full && scope.is_overfull(limit) => {
                // The rest of the list need not be waited for.
                self.socket.reopen()?;
                let ids = |t: &Table| (t.family, t.name.clone());
                let overfull = named.ruleset.tables.iter().map(ids).collect();
                let tables = named.tables.clone();
                bare.extend(named.into_bare());
                Snapshot {
                    tables,
                    overfull,
                    ..Snapshot::default()
                }
            }
            read => read?,
        };
        snapshot.add_bare(bare);
        Ok(snapshot)
    }

    /// What the tables of a snapshot hold.
    fn content(&mut self, mut snapshot: Snapshot, scope: Scope<'_>) -> Result<Snapshot> {
        if snapshot.ruleset.tables.is_empty() {
            return Ok(snapshot);
        }
        let others = snapshot.tables.len() > snapshot.ruleset.tables.len();
        let Snapshot {
            ruleset: Ruleset { tables },
            marks,
            strays,
            ..
        } = &mut snapshot;
        let (message, all_of) = (raw::NFT_MSG_GETCHAIN, ChainAttrs::default());
        self.each(message, Family::Unspec, &all_of, "chains", |reply| {
            let attrs: ChainAttrs = decode(&reply, "chains")?;
            if let Some(t) = position(tables, &reply, attrs.table.as_deref()) {
                hold(marks, t, false);
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
        let anonymous = self.sets(tables, marks, strays)?;
        snapshot.handles = snapshot
            .ruleset
            .tables
            .iter()
            .map(|t| vec![Vec::new(); t.chains.len()])
            .collect();
        self.rules(&mut snapshot, &anonymous, others)?;
        let is_all = matches!(scope, Scope::All);
        // What a table holds besides chains and sets counts when it is asked whether all of it was listed.
        if is_all || snapshot.may_hold_more() {
            self.objects(&mut snapshot.ruleset.tables)?;
            snapshot.count_objects();
        }
        if is_all {
            objects::keep_anonymous(&mut snapshot.ruleset.tables, &anonymous);
        }
        Ok(snapshot)
    }

    fn sets(
        &mut self,
        tables: &mut [Table],
        marks: &mut Vec<Mark>,
        strays: &mut [Vec<Stray>],
    ) -> Result<AnonymousSets> {
        let mut anonymous = AnonymousSets::new();
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
            let Some(table) = tables.get_mut(t) else {
                continue;
            };
            let mut set = Set::from_attrs(&attrs);
            if let Some(strays) = strays.get_mut(t).filter(|_| !is_anonymous) {
                strays.extend(stray::of_set(&attrs, &set));
            }
            let host_order = set::is_host_order_key(&attrs);
            let (elements, unread) = self.elements(family, &table.name, &set, host_order)?;
            set.unread.extend(unread);
            set.elements = elements;
            if is_anonymous {
                let key = (family, table.name.clone(), set.name.clone());
                anonymous.insert(key, Anonymous { set, attrs });
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
    fn rules(&mut self, s: &mut Snapshot, anonymous: &AnonymousSets, others: bool) -> Result<()> {
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
