//! Writing: whole tables, preserving the counters of rules that are kept.

use super::plan::Change;
use super::read::readable;
use super::{Transaction, XtEngine, XtTransport};
use crate::xtables::ext::{Context, Form, Part, Revisions};
use crate::xtables::raw::*;
use crate::xtables::sets::Cached;
use crate::xtables::structs::{
    Replace, XtCounters, XtCountersInfo, XtGetRevision, name_field, read_at, zeroed,
};
use crate::xtables::table::{Blob, Layout};
use crate::xtables::{Counters, XtFamily};
use std::cell::RefCell;
use std::collections::HashMap;
use std::io;
use weir_netlink::xtables::REPLACE_INSIDE;
use weir_netlink::{Error, ErrorKind, InForce, Result};
use zerocopy::IntoBytes as _;

/// The content of a table after the kernel answered a replacement with an error.
enum Found {
    /// The old rules.
    AsBefore,
    /// The new rules.
    Replaced,
    /// Other rules, or the table cannot be read.
    Neither,
}

/// A replaced table, with the data to restore it.
struct Done<'a> {
    change: &'a Change,
    /// For each new entry the index of the old entry.
    old: Vec<Option<usize>>,
    /// The counters of the old table.
    counters: Vec<Counters>,
}

impl<T: XtTransport> XtEngine<T> {
    /// Replaces the tables of a transaction, each atomically. Returns the number of replaced tables.
    ///
    /// # Errors
    /// The kernel refused a table: those before it are restored. `EAGAIN` if a table changed since it was read.
    /// [`Error::in_force`] is yes if all tables are replaced and only the counters of kept rules could not be restored;
    /// unknown if the state of a table cannot be determined, or a table could not be restored.
    pub fn commit(&mut self, transaction: &Transaction) -> Result<usize> {
        // Every error that does not need the kernel is detected before the first replacement.
        let mut blobs = Vec::new();
        for change in &transaction.changes {
            let blob = self.encode(&change.new)?;
            readable(&change.new, blob.bytes.len())?;
            blobs.push(blob);
        }
        let mut done: Vec<Done<'_>> = Vec::new();
        let mut lost = None;
        for (change, blob) in transaction.changes.iter().zip(blobs) {
            let mut counters = Vec::new();
            let replaced = self.replace(&change.old, change.old.info.entries, &blob, &mut counters);
            if let Err(e) = replaced {
                let error = explain(&change.new, &e);
                match self.found_out(&change.old, &change.new) {
                    Found::Replaced => {}
                    // The state that was read may still change.
                    Found::AsBefore if is_pending(&e) => {
                        let error = self.put_back(done, error);
                        return Err(error.with_in_force(InForce::Unknown));
                    }
                    Found::AsBefore => return Err(self.put_back(done, error)),
                    // The kernel answers EAGAIN if another program replaced the table first.
                    Found::Neither if e.raw_os_error() == Some(libc::EAGAIN) => {
                        return Err(self.put_back(done, error));
                    }
                    Found::Neither => {
                        let error = self.put_back(done, error);
                        return Err(error.with_in_force(InForce::Unknown));
                    }
                }
            }
            if let Err(e) = self.add_counters(&change.new, &blob.old, &counters) {
                lost.get_or_insert(e);
            }
            done.push(Done {
                change,
                old: blob.old,
                counters,
            });
        }
        match lost {
            None => Ok(done.len()),
            Some(e) => Err(e.with_in_force(InForce::Yes)),
        }
    }

    /// Reads a table after a replacement with an error. Usually it is unchanged, but the answer may have been lost.
    fn found_out(&mut self, old: &Layout, new: &Layout) -> Found {
        match self.read_table(new.family, &new.name) {
            Ok(now) if now.has_rules_of(old) => Found::AsBefore,
            Ok(now) if now.has_rules_of(new) => Found::Replaced,
            _ => Found::Neither,
        }
    }

    fn encode(&mut self, table: &Layout) -> Result<Blob> {
        let asked = Asked {
            transport: RefCell::new(&mut self.transport),
            known: RefCell::new(&mut self.known),
        };
        let sets = Cached::new(self.sets.as_ref());
        table.encode(&Context {
            family: table.family,
            sets: &sets,
            revisions: &asked,
        })
    }

    /// Replaces a table and stores the final counters of its old entries in `old`. They are valid if the table was replaced,
    /// whatever the answer. If they were lost with the answer, `old` gets the counters that were read before, as an
    /// approximation.
    fn replace(
        &mut self,
        table: &Layout,
        entries: usize,
        blob: &Blob,
        old: &mut Vec<Counters>,
    ) -> io::Result<()> {
        let invalid = || io::Error::from_raw_os_error(libc::EINVAL);
        let number = |n: usize| u32::try_from(n).map_err(|_| invalid());
        let head = Replace {
            name: name_field(&table.name).ok_or_else(invalid)?,
            valid_hooks: table.info.valid_hooks,
            num_entries: number(blob.old.len())?,
            size: number(blob.bytes.len())?,
            hook_entry: blob.hook_entry,
            underflow: blob.underflow,
            // The call fills in the number and the address of the counters.
            ..zeroed()
        };
        let mut value = [head.as_bytes(), &blob.bytes].concat();
        let mut counters = vec![0; entries * size_of::<XtCounters>()];
        let replaced = self
            .transport
            .replace(table.family, &mut value, &mut counters);
        let read = |n: usize| {
            let counters: XtCounters = read_at(&counters, n * size_of::<XtCounters>())?;
            Some(Counters::from(counters))
        };
        *old = match &replaced {
            Err(e) if is_cut(e) => table.counters(),
            _ => (0..entries).map(|n| read(n).unwrap_or_default()).collect(),
        };
        replaced
    }

    /// Restores the counters of entries that are kept. If another writer replaced the table meanwhile, the entries cannot be
    /// matched, and no counters are restored.
    fn add_counters(
        &mut self,
        table: &Layout,
        old: &[Option<usize>],
        counters: &[Counters],
    ) -> Result<()> {
        let kept: Vec<Counters> = old
            .iter()
            .map(|o| o.and_then(|o| counters.get(o)).copied().unwrap_or_default())
            .collect();
        self.give(table, &kept)
    }

    fn give(&mut self, table: &Layout, counters: &[Counters]) -> Result<()> {
        if counters.iter().all(|c| *c == Counters::default()) {
            return Ok(());
        }
        let (Some(name), Ok(num_counters)) =
            (name_field(&table.name), u32::try_from(counters.len()))
        else {
            return Ok(());
        };
        let head = XtCountersInfo {
            name,
            num_counters,
            ..zeroed()
        };
        let counted: Vec<XtCounters> = counters.iter().map(|c| (*c).into()).collect();
        let value = [head.as_bytes(), counted.as_bytes()].concat();
        let mut failure = None;
        // The kernel adds them, so a second call would count twice: repeat only when the first had no effect.
        for _ in 0..2 {
            let e = match self.transport.add_counters(table.family, &value) {
                Ok(()) => return Ok(()),
                Err(e) => e,
            };
            let now = self.read_table(table.family, &table.name);
            let Ok(now) = now.map(|now| now.counters()) else {
                failure = Some(e);
                break;
            };
            // Another program replaced the table: the entries cannot be matched.
            if now.len() != counters.len() {
                return Ok(());
            }
            let is_less = |(now, kept): (&Counters, &Counters)| {
                now.packets < kept.packets || now.bytes < kept.bytes
            };
            if !now.iter().zip(counters).any(is_less) {
                return Ok(());
            }
            failure = Some(e);
        }
        let object = format!("the counters of {} table {}", table.family, table.name);
        failure.map_or(Ok(()), |e| Err(Error::io("restore", object, &e)))
    }

    /// Restores tables, the last one first. The error names the tables that could not be restored.
    fn put_back(&mut self, done: Vec<Done<'_>>, mut error: Error) -> Error {
        for d in done.into_iter().rev() {
            let table = &d.change.old;
            let blob = Blob {
                bytes: table.blob.clone(),
                hook_entry: table.info.hook_entry,
                underflow: table.info.underflow,
                old: vec![None; table.info.entries],
            };
            let mut since = Vec::new();
            let replaced = self.replace(table, d.old.len(), &blob, &mut since);
            let replaced = replaced.or_else(|e| {
                if is_cut(&e) {
                    since.clear();
                }
                match self.found_out(&d.change.new, table) {
                    Found::Replaced => Ok(()),
                    _ => Err(e),
                }
            });
            match replaced {
                Ok(()) => {
                    let mut counters = d.counters;
                    for (new, old) in d.old.iter().enumerate() {
                        let slot = old.and_then(|o| counters.get_mut(o));
                        if let (Some(slot), Some(seen)) = (slot, since.get(new)) {
                            *slot = *seen;
                        }
                    }
                    if let Err(e) = self.give(table, &counters) {
                        error.object += &format!(" ({e})");
                    }
                }
                Err(e) => {
                    error.in_force = InForce::Unknown;
                    error.object += &format!(
                        " (and {} table {} stays changed: {e})",
                        table.family, table.name
                    );
                    // EAGAIN would be retried, but the plan was made for another table.
                    if error.errno() == Some(libc::EAGAIN) {
                        error.kind =
                            ErrorKind::Exhausted("another program writes at the same time".into());
                    }
                }
            }
        }
        error
    }
}

/// Whether the answer of the child process that makes the call is incomplete
/// ([`weir_netlink::xtables::RawSocket::replace_inside`]). Answers of the kernel have an errno.
fn is_cut(e: &io::Error) -> bool {
    e.raw_os_error().is_none()
}

/// As [`is_cut`], if the child may still be in the call.
fn is_pending(e: &io::Error) -> bool {
    is_cut(e) && e.kind() == io::ErrorKind::TimedOut
}

/// The option and the `struct xt_get_revision` by which the kernel reports whether it has a revision of an extension.
pub(crate) fn revision_request(family: XtFamily, part: Part, form: Form) -> (i32, Vec<u8>) {
    let option = match (family, part) {
        (XtFamily::Ip, Part::Match) => IPT_SO_GET_REVISION_MATCH,
        (XtFamily::Ip, Part::Target) => IPT_SO_GET_REVISION_TARGET,
        (XtFamily::Ip6, Part::Match) => IP6T_SO_GET_REVISION_MATCH,
        (XtFamily::Ip6, Part::Target) => IP6T_SO_GET_REVISION_TARGET,
    };
    let request = XtGetRevision {
        // No extension has a longer name.
        name: name_field(form.name).unwrap_or_default(),
        revision: form.revision,
    };
    let value = request.as_bytes().to_vec();
    (option, value)
}

/// Requests each revision of an extension only once.
pub(super) struct Asked<'a, T> {
    pub(super) transport: RefCell<&'a mut T>,
    pub(super) known: RefCell<&'a mut HashMap<(XtFamily, Part, Form), bool>>,
}

impl<T: XtTransport> Revisions for Asked<'_, T> {
    fn has(&self, family: XtFamily, part: Part, form: Form) -> Result<bool> {
        if let Some(known) = self.known.borrow().get(&(family, part, form)) {
            return Ok(*known);
        }
        let (option, mut value) = revision_request(family, part, form);
        let has = match self.transport.borrow_mut().get(family, option, &mut value) {
            Ok(_) => true,
            // The kernel has only other revisions, or no such extension.
            Err(e) if matches!(e.raw_os_error(), Some(libc::EPROTONOSUPPORT | libc::ENOENT)) => {
                false
            }
            Err(e) => {
                return Err(Error::io(
                    "ask for",
                    format!("the {part} {}", form.name),
                    &e,
                ));
            }
        };
        self.known.borrow_mut().insert((family, part, form), has);
        Ok(has)
    }
}

/// Explains the errno of a refused table, for which the kernel gives no other reason.
fn explain(table: &Layout, e: &io::Error) -> Error {
    let object = format!("{} table {}", table.family, table.name);
    let reason = match e.raw_os_error() {
        Some(libc::EINVAL) => {
            "the kernel refuses one of its rules: an option that this chain or protocol does not allow, or a user or group \
             that the namespace does not map (/proc/PID/uid_map); the kernel's log says which"
        }
        Some(libc::ERANGE) => "the burst of a limit is 0, or too large for its rate; lower it",
        Some(libc::ELOOP) => "its chains form a loop",
        Some(libc::ENOENT) => {
            "a match or target is not in this kernel, or a set that a rule names is gone"
        }
        None if is_pending(e) => {
            return Error::timed_out("replace", object, REPLACE_INSIDE);
        }
        // Without an errno there is no answer, so that it is not malformed.
        None => return Error::exhausted("replace", object, e.to_string()),
        _ => return Error::io("replace", object, e),
    };
    Error::refused("replace", object, reason)
}
