//! Reading: which tables exist, and their content.

use super::{Ownership, TableId, XtEngine, XtTransport};
use crate::xtables::entry::Ending;
use crate::xtables::ext::{All, Context};
use crate::xtables::raw::*;
use crate::xtables::sets::Cached;
use crate::xtables::structs::{GetEntries, GetInfo, name_field, zeroed};
use crate::xtables::table::{Counters, Info, Layout};
use crate::xtables::{Ruleset, XtFamily, entry};
use std::fmt::Write;
use std::io;
use weir_netlink::contention::Attempts;
use weir_netlink::{Error, Result};
use zerocopy::IntoBytes as _;

/// Tables as the kernel held them, each at one moment.
#[derive(Clone, Debug, Default, PartialEq)]
#[doc(alias = "ipt_get_entries")]
pub struct Snapshot {
    /// The requested tables that exist.
    pub ruleset: Ruleset,
    pub(in crate::xtables) layouts: Vec<Layout>,
}

impl Snapshot {
    pub(in crate::xtables) fn new(layouts: Vec<Layout>) -> Self {
        let tables = layouts.iter().map(Layout::table).collect();
        Self {
            ruleset: Ruleset { tables },
            layouts,
        }
    }
    /// The counters of a chain's rules, in the order of the rules; `table` and `chain` are indexes in
    /// [`ruleset`](Self::ruleset).
    #[must_use]
    pub fn counters(&self, table: usize, chain: usize) -> Vec<Counters> {
        let chain = self.layouts.get(table).and_then(|t| t.chains.get(chain));
        let of = |old: Option<&crate::xtables::table::Old>| {
            old.map_or(Counters::default(), |o| o.counters)
        };
        chain.map_or_else(Vec::new, |c| {
            c.rules.iter().map(|r| of(r.old.as_ref())).collect()
        })
    }

    /// The counters of the policy of a built-in chain, or of the end of a user chain.
    #[must_use]
    pub fn policy_counters(&self, table: usize, chain: usize) -> Counters {
        let chain = self.layouts.get(table).and_then(|t| t.chains.get(chain));
        chain.map_or(Counters::default(), |c| c.counters)
    }

    /// The text of `iptables-save -c`, or of `ip6tables-save -c`, without the lines that begin with `#`.
    #[must_use]
    pub fn save(&self, family: XtFamily) -> String {
        let mut text = String::new();
        let tables = self
            .ruleset
            .tables
            .iter()
            .enumerate()
            .filter(|(_, t)| t.family == family);
        for (t, table) in tables {
            let _ = writeln!(text, "*{}", table.name);
            for (c, chain) in table.chains.iter().enumerate() {
                let (policy, seen) = match chain.kind {
                    crate::xtables::ChainKind::Builtin(Some(p)) => {
                        (p.to_string(), self.policy_counters(t, c))
                    }
                    _ => ("-".to_owned(), Counters::default()),
                };
                let _ = writeln!(
                    text,
                    ":{} {policy} [{}:{}]",
                    chain.name, seen.packets, seen.bytes
                );
            }
            for (c, chain) in table.chains.iter().enumerate() {
                for (rule, seen) in chain.rules.iter().zip(self.counters(t, c)) {
                    let (packets, bytes) = (seen.packets, seen.bytes);
                    let _ = writeln!(text, "[{packets}:{bytes}] -A {}{rule}", chain.name);
                }
            }
            text += "COMMIT\n";
        }
        text
    }
}

/// Maximum size of a table that is scanned, in bytes. The kernel permits up to 512 MiB (`XT_MAX_TABLE_SIZE`), and a process
/// with CAP_NET_ADMIN in a pod can create such a table.
const MAX_TABLE_SIZE: usize = 64 << 20;

/// Maximum size of a table that is decoded, in bytes: as values it takes fifteen times as much of the node's memory. A rule
/// has about 200 bytes, so the limit is about 80,000 rules.
pub(super) const MAX_READ_SIZE: usize = 16 << 20;

/// Refuses to write a table that is too large to be read again.
pub(super) fn readable(table: &Layout, size: usize) -> Result<()> {
    if size <= MAX_READ_SIZE {
        return Ok(());
    }
    let object = format!("{} table {}", table.family, table.name);
    let why = format!(
        "it would have {size} bytes, and at most {MAX_READ_SIZE} bytes are read of a table; use fewer rules"
    );
    Err(Error::refused("write", object, why))
}

impl<T: XtTransport> XtEngine<T> {
    /// Every table that exists in the network namespace (`iptables-save` and `ip6tables-save`). Creates no table.
    ///
    /// # Errors
    /// `EPERM` without `CAP_NET_ADMIN` over the network namespace; another writer kept changing a table while it was read; a
    /// table has more than 16 MiB; the kernel's answer cannot be decoded.
    pub fn read(&mut self) -> Result<Snapshot> {
        let found = self.tables()?;
        self.read_tables(&found)
    }

    /// The tables that exist, those of IPv4 first.
    pub(super) fn tables(&mut self) -> Result<Vec<TableId>> {
        let mut found = Vec::new();
        for family in [XtFamily::Ip, XtFamily::Ip6] {
            found.extend(self.names(family)?.into_iter().map(|name| (family, name)));
        }
        Ok(found)
    }

    /// As [`XtEngine::read`], but returns only the values, without the data that a change needs.
    ///
    /// # Errors
    /// As [`XtEngine::read`].
    pub fn ruleset(&mut self) -> Result<Ruleset> {
        let mut tables = Vec::new();
        for (family, name) in self.tables()? {
            tables.push(self.read_table(family, &name)?.into_table());
        }
        Ok(Ruleset { tables })
    }

    /// The names of the tables that exist in the namespace (`/proc/net/ip_tables_names`).
    ///
    /// # Errors
    /// The list cannot be read.
    pub fn names(&mut self, family: XtFamily) -> Result<Vec<String>> {
        let names = self.transport.names(family);
        names.map_err(|e| Error::io("read", format!("the list of {family} tables"), &e))
    }

    /// Reads these tables. The kernel creates missing tables, which then remain in the network namespace.
    ///
    /// # Errors
    /// As [`XtEngine::read`]; [`Error::is_unsupported`] if the kernel has no such table.
    pub fn read_tables(&mut self, wanted: &[TableId]) -> Result<Snapshot> {
        let layouts: Result<Vec<_>> = wanted
            .iter()
            .map(|(f, name)| self.read_table(*f, name))
            .collect();
        Ok(Snapshot::new(layouts?))
    }

    pub(super) fn read_table(&mut self, family: XtFamily, name: &str) -> Result<Layout> {
        let (info, mut value) = self.entries(family, name, MAX_READ_SIZE)?;
        value.drain(..size_of::<GetEntries>());
        self.with_context(family, |cx| Layout::decode(name, info, value, cx))
    }

    /// Calls `f` with the context for decoding a table, which requests the name of each set once.
    fn with_context<R>(&self, family: XtFamily, f: impl FnOnce(&Context<'_>) -> R) -> R {
        let cached = Cached::new(self.sets.as_ref());
        f(&Context {
            family,
            sets: &cached,
            revisions: &All,
        })
    }

    /// Whether the tables have a chain of the owner, by its prefix or listed as owned, or a rule with its tag. Rules that are
    /// only listed as owned are ignored. Creates no table, and does not decode the rules.
    ///
    /// # Errors
    /// As [`XtEngine::read`].
    pub fn holds(&mut self, ours: &Ownership) -> Result<bool> {
        for (family, name) in self.tables()? {
            if ours.is_in(&name) && self.holds_in(family, &name, ours)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// As [`XtEngine::holds`], for one table.
    pub(super) fn holds_in(
        &mut self,
        family: XtFamily,
        name: &str,
        ours: &Ownership,
    ) -> Result<bool> {
        let (_, value) = self.entries(family, name, MAX_TABLE_SIZE)?;
        let malformed =
            |why: String| Error::malformed("read", format!("{family} table {name}"), why);
        is_marked(entries_in(&value), (family, name), ours).map_err(malformed)
    }

    /// The answer to a request for the entries of a table that has at most `limit` bytes; see [`entries_in`].
    ///
    /// Where chains begin and end is in another answer. The kernel refuses the entries only if the size of the table has changed in
    /// between, so that answer must be the same before and after them: a rule that moves to another chain leaves the size.
    pub(super) fn entries(
        &mut self,
        family: XtFamily,
        name: &str,
        limit: usize,
    ) -> Result<(Info, Vec<u8>)> {
        let object = format!("{family} table {name}");
        let fail = |e: io::Error| explain(&object, name, &e);
        let mut attempts = Attempts::begin(self.contention);
        loop {
            let before = info(&mut self.transport, family, name).map_err(fail)?;
            if before.size > limit {
                let reason = format!(
                    "it has {} bytes in {} rules and chains, and at most {limit} bytes are read of a table; \
                     remove rules from it, or whole chains",
                    before.size, before.entries
                );
                return Err(Error::refused("read", object, reason));
            }
            let request = GetEntries {
                name: name_field(name).unwrap_or_default(),
                size: u32::try_from(before.size).unwrap_or(u32::MAX),
                ..zeroed()
            };
            // Zeroed pages, which take no memory until the kernel writes to them.
            let mut value = vec![0; size_of::<GetEntries>() + before.size];
            // The buffer is never shorter than the request.
            _ = request.write_to_prefix(&mut value);
            match self.transport.get(family, IPT_SO_GET_ENTRIES, &mut value) {
                Ok(_) => {
                    let after = info(&mut self.transport, family, name).map_err(fail)?;
                    if after == before {
                        return Ok((before, value));
                    }
                }
                // The table changed after its size was read.
                Err(e) if e.raw_os_error() == Some(libc::EAGAIN) => {}
                Err(e) => return Err(fail(e)),
            }
            attempts.try_again("read", &object)?;
        }
    }
}

/// The entries after the head of an answer.
pub(super) fn entries_in(value: &[u8]) -> &[u8] {
    value.get(size_of::<GetEntries>()..).unwrap_or_default()
}

/// `IPT_SO_GET_INFO`: the kernel creates a missing table.
pub(super) fn info(
    transport: &mut impl XtTransport,
    family: XtFamily,
    name: &str,
) -> io::Result<Info> {
    let invalid = || io::Error::from_raw_os_error(libc::EINVAL);
    let mut value = GetInfo {
        name: name_field(name).ok_or_else(invalid)?,
        ..zeroed()
    };
    transport.get(family, IPT_SO_GET_INFO, value.as_mut_bytes())?;
    let number = |n: u32| usize::try_from(n).map_err(|_| invalid());
    Ok(Info {
        valid_hooks: value.valid_hooks,
        hook_entry: value.hook_entry,
        underflow: value.underflow,
        entries: number(value.num_entries)?,
        size: number(value.size)?,
    })
}

/// Whether an entry is the head of an owned chain, or has the tag.
fn is_marked(
    entries: &[u8],
    (family, table): (XtFamily, &str),
    ours: &Ownership,
) -> Result<bool, String> {
    let mut names = Vec::new();
    for outline in entry::outlines(entries, family) {
        let (at, _, ending) = outline?;
        let tag = entry::tag(entries, at, family);
        if ours.tag != 0 && tag == Some(ours.tag) {
            return Ok(true);
        }
        if let Ending::Error(name) = ending
            && ours.concerns(&name)
        {
            names.push(name);
        }
    }
    let all = || names.iter().map(String::as_str);
    Ok(all().any(|name| ours.owns(table, name, all())))
}

/// Explains the errno for a missing table, or for missing legacy tables.
fn explain(object: &str, name: &str, e: &io::Error) -> Error {
    let v6 = object.starts_with("ip6");
    let (config, module) = if v6 {
        ("IP6_NF", "ip6table")
    } else {
        ("IP_NF", "iptable")
    };
    match e.raw_os_error() {
        Some(libc::ENOENT) => Error::unsupported(
            "read",
            object,
            format!(
                "this kernel lacks the table (CONFIG_{config}_{}, module {module}_{name})",
                name.to_uppercase()
            ),
        ),
        Some(libc::ENOPROTOOPT | libc::EAFNOSUPPORT) => Error::unsupported(
            "read",
            object,
            format!(
                "this kernel has no legacy tables of this family (CONFIG_{config}_IPTABLES_LEGACY; off by default since 6.17)"
            ),
        ),
        _ => Error::io("read", object, e),
    }
}
