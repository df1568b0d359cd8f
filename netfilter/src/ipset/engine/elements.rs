//! Adding, deleting and testing entries.

use super::{Existing, IpsetEngine, kind, refused};
use crate::ipset::error::{Class, explain, is_exist};
use crate::ipset::model::{Entry, Key};
use crate::ipset::wire::{CommandAttrs, TestAttrs};
use crate::ipset::{codec, raw};
use std::borrow::Borrow;
use std::marker::PhantomData;
use weir_netlink::attr::{AttrSet, Attrs};
use weir_netlink::nfnetlink::{NFNL_SUBSYS_IPSET, Refusal, Requests};
use weir_netlink::{Error, InForce, Result, Transport};

/// Maximum entries per message.
const ENTRIES: usize = 500;
/// Maximum bytes of the entries of a message: they are one attribute, which is limited to 65,535.
const MESSAGE: usize = 60_000;
/// Maximum size in bytes of an entry without its comment and name: five addresses of 24 bytes would fit.
const ENTRY: usize = 160;

/// Collects entries, and sends each message when it is full, or when the next entry needs another one.
///
/// Each message is a datagram of its own: the kernel goes on with the next message after a refused one (`netlink_rcv_skb()`), but
/// stops in a message at the refused entry. So no entry after a refused one is in force.
#[derive(Debug)]
pub(in crate::ipset) struct Pipeline<T, E> {
    open: Option<Chunk<E>>,
    /// Whether anything before the pending entries is in force.
    is_begun: bool,
    transport: PhantomData<fn(T)>,
}

/// The entries of one message.
#[derive(Debug)]
struct Chunk<E> {
    /// `IPSET_CMD_ADD` or `IPSET_CMD_DEL`, and the handling of existing entries.
    change: (u16, Existing),
    set: String,
    entries: Vec<E>,
    /// The line of each entry in a script; empty without a script.
    lines: Vec<usize>,
    bytes: usize,
}

impl<T: Transport, E: Borrow<Entry>> Pipeline<T, E> {
    pub(in crate::ipset) fn new() -> Self {
        Self {
            open: None,
            is_begun: false,
            transport: PhantomData,
        }
    }

    /// Records that another command is in force.
    pub(in crate::ipset) fn begin(&mut self) {
        self.is_begun = true;
    }

    /// The error, with what is known about its change and those before it.
    pub(in crate::ipset) fn error(&self, e: Error) -> Error {
        match self.is_begun {
            true => e.with_in_force(InForce::Unknown),
            false => e,
        }
    }

    /// Adds or deletes an entry, with its line in the script.
    pub(in crate::ipset) fn push(
        &mut self,
        engine: &mut IpsetEngine<T>,
        change: (u16, Existing),
        set: &str,
        entry: E,
        line: Option<usize>,
    ) -> Result<()> {
        codec::check_entry(operation(change.0), set, entry.borrow())?;
        let comment = entry.borrow().comment.as_ref().map_or(0, String::len);
        let bytes = ENTRY + comment;
        let is_room = |c: &Chunk<E>| {
            (c.change, c.set.as_str()) == (change, set)
                && c.entries.len() < ENTRIES
                && c.bytes + bytes <= MESSAGE
        };
        if !self.open.as_ref().is_some_and(is_room) {
            self.send(engine)?;
        }
        let chunk = self.open.get_or_insert_with(|| Chunk {
            change,
            set: set.to_owned(),
            entries: Vec::new(),
            lines: Vec::new(),
            bytes: 0,
        });
        chunk.entries.push(entry);
        chunk.lines.extend(line);
        chunk.bytes += bytes;
        Ok(())
    }

    /// Sends the pending entries.
    pub(in crate::ipset) fn send(&mut self, engine: &mut IpsetEngine<T>) -> Result<()> {
        let Some(chunk) = self.open.take() else {
            return Ok(());
        };
        let (message, existing) = chunk.change;
        codec::check_name(operation(message), &chunk.set)?;
        let numbered = (1..).zip(&chunk.entries);
        let entries = numbered.map(|(i, e)| {
            let mut attrs = codec::to_entry(e.borrow());
            attrs.line = Some(i);
            attrs
        });
        // For several entries the kernel requires a line number at the top level, and overwrites it with that of the refused
        // entry.
        let attrs = CommandAttrs {
            entries: Some(entries.collect()),
            line: Some(0),
            ..engine.about(&chunk.set)
        };
        let mut requests = Requests::new(NFNL_SUBSYS_IPSET);
        requests.push(message, existing.flags(), raw::NFPROTO_IPV4, &attrs);
        let what = format!("entries of set {}", chunk.set);
        if let Some(refusal) = engine.socket.exchange(requests, &what)?.pop() {
            let first = chunk.entries.first();
            let class = first.map_or(Class::Any, |e| {
                engine.class_of(&refusal, &chunk.set, &e.borrow().key)
            });
            return Err(chunk.failure(refusal, class));
        }
        self.is_begun = true;
        Ok(())
    }
}

fn operation(message: u16) -> &'static str {
    match message {
        raw::IPSET_CMD_ADD => "add",
        _ => "delete",
    }
}

impl<E: Borrow<Entry>> Chunk<E> {
    /// The error for the refused message, with the entry that the kernel identified in it.
    fn failure(&self, refusal: Refusal, class: Class) -> Error {
        let (set, position) = (&self.set, failed_entry(&refusal.echo));
        let entry = position.and_then(|i| self.entries.get(i));
        let line = position.and_then(|i| self.lines.get(i));
        let operation = operation(self.change.0);
        let direction = match operation {
            "add" => "to",
            _ => "from",
        };
        let what = match entry {
            Some(e) => format!("{} {direction} set {set}", e.borrow().key),
            None => format!("entries {direction} set {set}"),
        };
        let what = match line {
            Some(line) => format!("line {line}: {what}"),
            None => what,
        };
        // The entries before the refused one are in force.
        let is_first = match position {
            Some(i) => i == 0,
            None => self.entries.len() == 1 || refusal.errno == libc::ENOENT,
        };
        let error = refused(operation, &what, refusal, class);
        match is_first {
            true => error,
            false => error.with_in_force(InForce::Unknown),
        }
    }
}

/// The index in its message of the refused entry: the kernel overwrites the message's line number with the entry's.
/// `None` when it refused the message as a whole.
fn failed_entry(echo: &[u8]) -> Option<usize> {
    let mut lines = Attrs::new(echo).filter_map(std::result::Result::ok);
    let line = lines.find(|a| a.number == CommandAttrs::IPSET_ATTR_LINENO)?;
    let line = u32::from_ne_bytes(line.payload.try_into().ok()?);
    usize::try_from(line).ok()?.checked_sub(1)
}

impl<T: Transport> IpsetEngine<T> {
    /// `ipset add` for many entries, several hundred per message (`IPSET_CMD_ADD`).
    ///
    /// # Errors
    /// The error names the first refused entry: `IPSET_ERR_EXIST` if it exists and existing entries are refused,
    /// `IPSET_ERR_HASH_FULL` if the set is full, `IPSET_ERR_PROTOCOL` for another family; `ENOENT` if there is no such set.
    /// Entries before the refused one were added: [`Error::in_force`] is then unknown. None after it were.
    pub fn add<E: Borrow<Entry>>(
        &mut self,
        set: &str,
        entries: impl IntoIterator<Item = E>,
        existing: Existing,
    ) -> Result<()> {
        self.change(raw::IPSET_CMD_ADD, set, entries, existing)
    }

    /// `ipset del` for many entries (`IPSET_CMD_DEL`). Only their keys are used.
    ///
    /// # Errors
    /// As [`IpsetEngine::add`]; `IPSET_ERR_EXIST` if an entry does not exist and missing entries are refused.
    pub fn delete<E: Borrow<Entry>>(
        &mut self,
        set: &str,
        entries: impl IntoIterator<Item = E>,
        existing: Existing,
    ) -> Result<()> {
        self.change(raw::IPSET_CMD_DEL, set, entries, existing)
    }

    fn change<E: Borrow<Entry>>(
        &mut self,
        message: u16,
        set: &str,
        entries: impl IntoIterator<Item = E>,
        existing: Existing,
    ) -> Result<()> {
        let mut pipeline = Pipeline::new();
        let mut entries = entries.into_iter();
        let done = entries
            .try_for_each(|e| pipeline.push(self, (message, existing), set, e, None))
            .and_then(|()| pipeline.send(self));
        done.map_err(|e| pipeline.error(e))
    }

    /// `ipset test`: whether the set matches the entry (`IPSET_CMD_TEST`). A network in the set matches every address in it.
    ///
    /// # Errors
    /// `ENOENT` if there is no such set; `IPSET_ERR_PROTOCOL` for another family.
    pub fn test(&mut self, set: &str, entry: &Entry) -> Result<bool> {
        codec::check_name("test", set)?;
        codec::check_entry("test", set, entry)?;
        let attrs = TestAttrs {
            protocol: Some(self.version),
            name: Some(set.to_owned()),
            data: Some(codec::to_entry(entry)),
            ..TestAttrs::default()
        };
        let what = format!("{} in set {set}", entry.key);
        let mut requests = Requests::new(NFNL_SUBSYS_IPSET);
        requests.push(raw::IPSET_CMD_TEST, 0, raw::NFPROTO_IPV4, &attrs);
        match self.socket.exchange(requests, &what)?.pop() {
            None => Ok(true),
            Some(refusal) => {
                let class = self.class_of(&refusal, set, &entry.key);
                let error = refused("test", &what, refusal, class);
                if is_exist(&error) {
                    Ok(false)
                } else {
                    Err(error)
                }
            }
        }
    }

    /// The class of types by which the errno of a refused entry is explained. If the errno differs between types, the type of
    /// the set is requested: the key is not sufficient, since hashes and bitmaps may both have addresses.
    fn class_of(&mut self, refusal: &Refusal, set: &str, key: &Key) -> Class {
        if refusal.errno < raw::IPSET_ERR_TYPE_SPECIFIC {
            return Class::of_key(key);
        }
        let found = self.type_of(set);
        found.map_or_else(|_| Class::of_key(key), |(kind, _)| Class::of(&kind))
    }

    /// A request with one answer.
    pub(super) fn ask(
        &mut self,
        message: u16,
        attrs: &CommandAttrs,
        what: &str,
    ) -> Result<CommandAttrs> {
        let reply = self
            .socket
            .get(kind(message), raw::NFPROTO_IPV4, attrs, what);
        let reply = reply.map_err(|e| explain(e, Class::Any))?;
        CommandAttrs::decode(&reply.attrs).map_err(|e| Error::malformed("read", what, e))
    }
}
