//! Reading: several dumps that must belong to one generation.

use super::dump::{decode, kind, no_nf_tables};
use super::snapshot::{Anonymous, AnonymousSets, Mark, Snapshot, chain, hold, table};
use super::stray::{self, Stray};
use super::{NftEngine, TableId};
use crate::nft::model::{
    AnonymousSet, Chain, Operand, Rule, Ruleset, Set, Statement, Table, TableFamily,
};
use crate::nft::wire::{
    ChainAttrs, ElemAttrs, ElemListAttrs, GenAttrs, RuleAttrs, SetAttrs, TableAttrs, attrs,
};
use crate::nft::{raw, set};
use std::collections::HashSet;
use weir_netlink::attr::AttrSet;
use weir_netlink::contention::Attempts;
use weir_netlink::nfnetlink::{Batch, NFNL_SUBSYS_NFTABLES, Reply, Socket};
use weir_netlink::{Error, Result, Transport};

/// Which tables are read.
#[derive(Clone, Copy)]
pub(super) enum Scope<'a> {
    /// All tables, with their content.
    All,
    /// The tables of this list.
    Tables(&'a [TableId]),
    /// The owned tables of this list, which should hold the desired ruleset and nothing else.
    Desired(&'a Ruleset, &'a [TableId]),
}

/// How much of a table is read.
enum Detail {
    Name,
    Content,
}

/// How many bytes an owned table may hold besides the desired content before reading it is aborted: about 16,000 rules of
/// another writer. For each datagram of a dump the kernel walks over all rules before it (`nf_tables_dump_rules`), so
/// that 200,000 rules take half a minute.
const MORE: usize = 8 << 20;
/// The same rule, written by another program, may have larger attributes and a comment; so may an element.
const BYTES_OF_RULE: usize = 4096;
const BYTES_OF_ELEMENT: usize = 512;
/// An element of a rule's set is kept as attributes, which may take 27 times the memory of the answer; a range has two.
const BYTES_OF_ATTRIBUTES: usize = size_of::<ElemAttrs>();
/// What a chain and a set take in memory besides their names, which are as long as in the answer. An answer without any other
/// attribute is much smaller.
const BYTES_OF_CHAIN: usize = size_of::<Chain>() + size_of::<Mark>();
const BYTES_OF_SET: usize = size_of::<SetAttrs>() + size_of::<Anonymous>() + size_of::<Mark>();
/// How many times the size of its answer a rule may take in memory before the rest counts as well. Rules of statements take less;
/// short expressions without a statement take twelve times.
const ORDINARY: usize = 4;

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

    /// Limit of the content of these tables in bytes; at most that of the engine.
    fn limit(self, of_engine: usize) -> usize {
        match self.desired() {
            Some(desired) => of_engine.min(desired.saturating_add(MORE)),
            None => of_engine,
        }
    }

    /// Whether tables beyond this limit must contain foreign objects: the desired content is smaller.
    fn is_overfull(self, limit: usize) -> bool {
        self.desired().is_some_and(|desired| desired <= limit)
    }

    /// Whether the objects of the tables are compared.
    fn has_objects(self) -> bool {
        match self {
            Self::All => true,
            Self::Tables(_) => false,
            Self::Desired(desired, _) => desired.tables.iter().any(|t| !t.objects.is_empty()),
        }
    }

    /// Upper bound of the size of the desired content in bytes.
    fn desired(self) -> Option<usize> {
        let Self::Desired(desired, _) = self else {
            return None;
        };
        let of_table = |t: &Table| {
            let rules: usize = t.chains.iter().map(|c| count(&c.rules) + 1).sum();
            let elements: usize = t.sets.iter().map(|s| s.elements.len() + 8).sum();
            let own: usize = t.chains.iter().map(|c| elements_of(&c.rules)).sum();
            (rules + t.objects.len()) * BYTES_OF_RULE
                + elements * BYTES_OF_ELEMENT
                + own * (BYTES_OF_ELEMENT + 2 * BYTES_OF_ATTRIBUTES)
        };
        Some(desired.tables.iter().map(of_table).sum())
    }
}

/// Number of rules, including those of their own chains.
fn count(rules: &[Rule]) -> usize {
    let all = rules.iter().flat_map(Rule::with_own);
    all.map(|rule| 1 + usize::from(rule.chain.is_some())).sum()
}

/// Number of elements of the sets that belong to rules.
fn elements_of(rules: &[Rule]) -> usize {
    let of_match = |s: &Statement| match s {
        Statement::Match(m) => match &m.operand {
            Operand::Anonymous(elements) => elements.len(),
            _ => 0,
        },
        _ => 0,
    };
    let all = rules.iter().flat_map(Rule::with_own);
    let of_rule = |r: &Rule| {
        let kept: usize = r.sets.iter().map(|s| s.elements.len()).sum();
        kept + r.statements.iter().map(of_match).sum::<usize>()
    };
    all.map(of_rule).sum()
}

/// Size of the receive buffer in bytes after answers were dropped; quadrupled each time.
const FIRST_ROOM: usize = 1 << 20;
/// Maximum of it.
const LAST_ROOM: usize = 16 << 20;

/// The generation of the ruleset (`NFT_MSG_GETGEN`). Without nf_tables, the error has the kernel's errno.
pub(crate) fn generation<T: Transport>(socket: &mut Socket<T>) -> Result<u32> {
    let what = "the generation of the ruleset";
    let reply = socket.get(kind(raw::NFT_MSG_GETGEN), 0, &GenAttrs::default(), what)?;
    let attrs: GenAttrs = decode(&reply, what)?;
    attrs
        .id
        .ok_or_else(|| Error::malformed("read", what, "NFTA_GEN_ID is missing"))
}

impl<T: Transport> NftEngine<T> {
    /// The generation of the ruleset (`NFT_MSG_GETGEN`): every commit of any writer increments it. Since 3.18.
    ///
    /// # Errors
    /// `EPERM` without `CAP_NET_ADMIN` over the network namespace; [`Error::is_unsupported`] if the kernel has no nf_tables.
    pub fn generation(&mut self) -> Result<u32> {
        generation(&mut self.socket).map_err(no_nf_tables)
    }

    /// The tables that exist (`nft list tables`), from one consistent dump.
    ///
    /// # Errors
    /// As [`NftEngine::generation`].
    pub fn tables(&mut self) -> Result<Vec<TableId>> {
        let all = TableAttrs::default();
        self.listed(raw::NFT_MSG_GETTABLE, &all, "tables", |reply| {
            let attrs: TableAttrs = decode(reply, "tables")?;
            let table = table(reply, &attrs).0;
            Ok((table.family, table.name))
        })
    }

    /// The chains that exist, each with its table and without its rules (`nft list chains`), from one consistent dump.
    ///
    /// # Errors
    /// As [`NftEngine::generation`].
    pub fn chains(&mut self) -> Result<Vec<(TableId, Chain)>> {
        let all = ChainAttrs::default();
        self.listed(raw::NFT_MSG_GETCHAIN, &all, "chains", |reply| {
            let attrs: ChainAttrs = decode(reply, "chains")?;
            let chain = chain(&attrs);
            let family = TableFamily::from(reply.header.family);
            Ok(((family, attrs.table.unwrap_or_default()), chain))
        })
    }

    /// Begins a reading.
    fn begin(&mut self) {
        (self.torn, self.is_full) = (false, false);
        (self.of_others, self.of_tables) = (0, 0);
    }

    /// One dump, repeated until the ruleset does not change during it.
    fn listed<A: AttrSet, R>(
        &mut self,
        message: u16,
        ask: &A,
        what: &str,
        decoded: impl Fn(&Reply) -> Result<R>,
    ) -> Result<Vec<R>> {
        let mut attempts = Attempts::begin(self.contention);
        loop {
            self.begin();
            let found = self.dump(message, TableFamily::Unspec, ask, what)?;
            if !self.torn {
                return found.iter().map(&decoded).collect();
            }
            attempts.try_again("list", what)?;
        }
    }

    /// The whole ruleset (`nft list ruleset`).
    ///
    /// # Errors
    /// As [`NftEngine::generation`]; another writer kept changing the ruleset for as long as
    /// [`contention`](NftEngine::contention) permits ([`ErrorKind::Exhausted`](weir_netlink::ErrorKind::Exhausted)); the
    /// ruleset exceeds [`read_limit`](NftEngine::read_limit).
    pub fn read(&mut self) -> Result<Snapshot> {
        self.consistent(Scope::All, None)
    }

    /// The tables of this list that exist.
    ///
    /// # Errors
    /// As [`NftEngine::read`].
    pub fn read_tables(&mut self, wanted: &[TableId]) -> Result<Snapshot> {
        self.consistent(Scope::Tables(wanted), None)
    }

    /// The owned tables, as far as a [`plan`](super::plan()) for `desired` needs them: without the content of a table that is
    /// to be deleted, or that holds far more than is desired.
    ///
    /// # Errors
    /// As [`NftEngine::read`].
    pub fn read_for(&mut self, desired: &Ruleset, owned: &[TableId]) -> Result<Snapshot> {
        self.consistent(Scope::Desired(desired, owned), None)
    }

    /// A snapshot of one generation; or, if a busy writer leaves no time for that, the second of two equal readings in a
    /// row, since only the requested tables have to be consistent. A `guess` of the generation saves a request; a wrong
    /// guess costs a second reading. It may only be made after the commit has finished.
    ///
    /// A commit first increments the generation and then puts its changes in force one by one (`nf_tables_commit`),
    /// and no dump waits for it. So this function waits for the lock that a commit holds between reading the
    /// generation and the dumps: pending commits have finished then, and later ones increment the generation first.
    ///
    /// Two equal readings show one state because the kernel does not reuse handles: an object in both readings existed all
    /// the time between, and an object in only one of them makes them differ.
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
                // An object that one dump listed was deleted before the next.
                Err(e) if e.is_not_found() => before = self.generation()?,
                // Answers were dropped: read again with a larger receive buffer.
                Err(e) if e.errno() == Some(libc::ENOBUFS) && room <= LAST_ROOM => {
                    self.socket.reserve(room)?;
                    room *= 4;
                    before = self.generation()?;
                }
                Err(e) => return Err(e),
            }
            attempts.try_again("read", "the ruleset")?;
        }
    }

    /// Returns when all commits that began earlier have finished.
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
        self.begin();
        let mut snapshot = Snapshot::default();
        let mut bare = Vec::new();
        let all = TableAttrs::default();
        for reply in self.dump(raw::NFT_MSG_GETTABLE, TableFamily::Unspec, &all, "tables")? {
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
        self.limit_of_tables = scope.limit(limit);
        let named = snapshot.clone();
        let read = self.content(snapshot, scope);
        let mut snapshot = match read {
            Err(_) if self.is_full && scope.is_overfull(limit) => {
                // A new socket discards the rest of the list.
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

    /// Reads the content of the tables of a snapshot.
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
        let mut own = HashSet::new();
        let (message, all_of) = (raw::NFT_MSG_GETCHAIN, ChainAttrs::default());
        self.each(message, TableFamily::Unspec, &all_of, "chains", |reply| {
            let attrs: ChainAttrs = decode(&reply, "chains")?;
            if let Some(t) = position(tables, &reply, attrs.table.as_deref()) {
                hold(marks, t, false);
                marks.push(Mark::of(attrs.handle, attrs.uses));
                let chain = chain(&attrs);
                if attrs.flags.unwrap_or(0) & raw::NFT_CHAIN_BINDING != 0 {
                    own.insert((t, chain.name.clone()));
                }
                if let Some(strays) = strays.get_mut(t) {
                    strays.extend(stray::of_chain(&attrs, &chain));
                }
                if let Some(table) = tables.get_mut(t) {
                    table.chains.push(chain);
                }
                return Ok(Some(BYTES_OF_CHAIN));
            }
            Ok(None)
        })?;
        let anonymous = self.sets(tables, marks, strays)?;
        snapshot.handles = snapshot
            .ruleset
            .tables
            .iter()
            .map(|t| vec![Vec::new(); t.chains.len()])
            .collect();
        self.rules(&mut snapshot, &anonymous, others)?;
        snapshot.bind(&own);
        // Other objects of a table count when checking whether its listing is complete.
        if scope.has_objects() || snapshot.may_hold_more() {
            self.objects(&mut snapshot.ruleset.tables)?;
            snapshot.count_objects();
        }
        Ok(snapshot)
    }

    fn sets(
        &mut self,
        tables: &mut [Table],
        marks: &mut Vec<Mark>,
        strays: &mut [Vec<Stray>],
    ) -> Result<AnonymousSets> {
        let mut listed = Vec::new();
        let (message, all_of) = (raw::NFT_MSG_GETSET, SetAttrs::default());
        self.each(message, TableFamily::Unspec, &all_of, "sets", |reply| {
            let attrs: SetAttrs = decode(&reply, "sets")?;
            let table = position(tables, &reply, attrs.table.as_deref());
            Ok(table.map(|t| {
                listed.push((t, attrs));
                BYTES_OF_SET
            }))
        })?;
        let mut anonymous = AnonymousSets::new();
        for (t, attrs) in listed {
            let is_anonymous = attrs.flags.unwrap_or(0) & raw::NFT_SET_ANONYMOUS != 0;
            hold(marks, t, is_anonymous);
            marks.push(Mark::of(attrs.handle, None));
            let Some(table) = tables.get_mut(t) else {
                continue;
            };
            let family = table.family;
            let mut set = Set::from_attrs(&attrs);
            if let Some(strays) = strays.get_mut(t).filter(|_| !is_anonymous) {
                strays.extend(stray::of_set(&attrs, &set));
            }
            let host_order = set::is_host_order_key(&attrs);
            let (listed, raw) = self.elements(family, &table.name, &set, is_anonymous)?;
            let (elements, unread) = listed.finish(set.interval, host_order, set.key_type);
            set.unread.extend(unread);
            if is_anonymous {
                let key = (family, table.name.clone(), set.name.clone());
                let kept = AnonymousSet::listed(&attrs, raw);
                anonymous.insert(key, Anonymous { set, attrs, kept });
            } else {
                set.elements = elements;
                table.sets.push(set);
            }
        }
        Ok(anonymous)
    }

    /// The elements of a set, and their attributes if the set belongs to a rule.
    fn elements(
        &mut self,
        family: TableFamily,
        table: &str,
        set: &Set,
        is_anonymous: bool,
    ) -> Result<(set::Listed, Vec<ElemAttrs>)> {
        let ask = attrs!(ElemListAttrs {
            table: table.to_owned(),
            set: set.name.clone()
        });
        let what = format!("elements of set {family} {table} {}", set.name);
        let (mut listed, mut raw) = (set::Listed::default(), Vec::new());
        self.each(raw::NFT_MSG_GETSETELEM, family, &ask, &what, |reply| {
            let attrs: ElemListAttrs = decode(&reply, &what)?;
            let elements = attrs.elements.unwrap_or_default();
            listed.add(&elements);
            let mut more = 0;
            if is_anonymous {
                more = elements.len() * BYTES_OF_ATTRIBUTES;
                raw.extend(elements);
            }
            Ok(Some(more))
        })?;
        Ok((listed, raw))
    }

    /// If there are other tables, requests only the rules of the selected tables: a node's own namespace can hold tens of
    /// thousands of rules.
    fn rules(&mut self, s: &mut Snapshot, anonymous: &AnonymousSets, others: bool) -> Result<()> {
        let asked: Vec<(TableFamily, RuleAttrs)> = if others {
            let of = |t: &Table| {
                attrs!(RuleAttrs {
                    table: t.name.clone()
                })
            };
            s.ruleset.tables.iter().map(|t| (t.family, of(t))).collect()
        } else {
            vec![(TableFamily::Unspec, RuleAttrs::default())]
        };
        let mut last = 0;
        for (family, ask) in asked {
            self.each(raw::NFT_MSG_GETRULE, family, &ask, "rules", |reply| {
                let attrs: RuleAttrs = decode(&reply, "rules")?;
                let family = TableFamily::from(reply.header.family);
                let takes = s.add_rule(family, attrs, anonymous, &mut last);
                Ok(Some(takes.saturating_sub(ORDINARY * reply.attrs.len())))
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
    let family = TableFamily::from(reply.header.family);
    tables
        .iter()
        .position(|t| t.family == family && Some(t.name.as_str()) == name)
}
