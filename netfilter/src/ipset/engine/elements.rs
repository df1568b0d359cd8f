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
/// Maximum bytes of the entries of a message: they are one attribute, which is limited to 65 535.
const MESSAGE: usize = 60_000;
/// Size in bytes from which a datagram is sent. With one more message it is below the 208 KiB of a socket's default buffers,
/// and so are the errors, which repeat the refused messages.
const DATAGRAM: usize = 48 * 1024;
/// Maximum messages per datagram, for the same reason: every acknowledgement takes about 800 bytes of the buffer, even for a
/// small message.
const MESSAGES: usize = 64;
/// Maximum size in bytes of an entry without its comment and name: five addresses of 24 bytes would fit.
const ENTRY: usize = 160;

/// Collects entries and sends them when there are enough.
#[derive(Debug)]
pub(in crate::ipset) struct Pipeline<T, E> {
    message: u16,
    flags: u16,
    requests: Requests,
    /// The messages of the requests, for errors.
    sent: Vec<Chunk<E>>,
    open: Option<Chunk<E>>,
    /// Whether entries of an earlier datagram are in force.
    is_begun: bool,
    transport: PhantomData<fn(T)>,
}

/// The entries of one message.
#[derive(Debug)]
struct Chunk<E> {
    set: String,
    entries: Vec<E>,
    /// The line of each entry in a script; empty without a script.
    lines: Vec<usize>,
    bytes: usize,
}

impl<T: Transport, E: Borrow<Entry>> Pipeline<T, E> {
    /// For `IPSET_CMD_ADD` or `IPSET_CMD_DEL`.
    pub(in crate::ipset) fn new(message: u16, existing: Existing) -> Self {
        Self {
            message,
            flags: existing.flags(),
            requests: Requests::new(NFNL_SUBSYS_IPSET),
            sent: Vec::new(),
            open: None,
            is_begun: false,
            transport: PhantomData,
        }
    }

    /// Whether it collects entries for this message, with this handling of existing entries.
    pub(in crate::ipset) fn is(&self, message: u16, existing: Existing) -> bool {
        (self.message, self.flags) == (message, existing.flags())
    }

    fn operation(&self) -> &'static str {
        if self.message == raw::IPSET_CMD_ADD {
            "add"
        } else {
            "delete"
        }
    }

    /// Adds an entry, with its line in the script.
    pub(in crate::ipset) fn push(
        &mut self,
        engine: &mut IpsetEngine<T>,
        set: &str,
        entry: E,
        line: Option<usize>,
    ) -> Result<()> {
        codec::check_entry(self.operation(), set, entry.borrow())?;
        let comment = entry.borrow().comment.as_ref().map_or(0, String::len);
        let bytes = ENTRY + comment;
        let is_room =
            |c: &Chunk<E>| c.set == set && c.entries.len() < ENTRIES && c.bytes + bytes <= MESSAGE;
        if !self.open.as_ref().is_some_and(is_room) {
            self.close(engine)?;
            if self.requests.bytes() >= DATAGRAM || self.requests.len() >= MESSAGES {
                self.send(engine)?;
            }
        }
        let chunk = self.open.get_or_insert_with(|| Chunk {
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

    /// Sends the remaining entries.
    pub(in crate::ipset) fn finish(&mut self, engine: &mut IpsetEngine<T>) -> Result<()> {
        self.close(engine)?;
        self.send(engine)
    }

    /// Completes the message of the pending entries.
    fn close(&mut self, engine: &IpsetEngine<T>) -> Result<()> {
        let Some(chunk) = self.open.take() else {
            return Ok(());
        };
        codec::check_name(self.operation(), &chunk.set)?;
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
        self.requests
            .push(self.message, self.flags, raw::NFPROTO_IPV4, &attrs);
        self.sent.push(chunk);
        Ok(())
    }

    fn send(&mut self, engine: &mut IpsetEngine<T>) -> Result<()> {
        let requests = std::mem::replace(&mut self.requests, Requests::new(NFNL_SUBSYS_IPSET));
        let sent = std::mem::take(&mut self.sent);
        let what = sent
            .first()
            .map_or_else(String::new, |c| format!("entries of set {}", c.set));
        let refusals = engine.socket.exchange(requests, &what);
        let in_force = |e: Error| match self.is_begun {
            true => e.with_in_force(InForce::Unknown),
            false => e,
        };
        let refusals = refusals.map_err(in_force)?;
        match refusals.into_iter().next() {
            Some(refusal) => {
                let chunk = refusal.index.and_then(|index| sent.get(index));
                let class = chunk
                    .and_then(|c| Some((c, c.entries.first()?)))
                    .map_or(Class::Any, |(c, e)| {
                        engine.class_of(&refusal, &c.set, &e.borrow().key)
                    });
                Err(self.failure(&sent, refusal, class))
            }
            None => {
                self.is_begun = true;
                Ok(())
            }
        }
    }

    /// The error for a refused message, with the entry that the kernel identified in it.
    fn failure(&self, sent: &[Chunk<E>], refusal: Refusal, class: Class) -> Error {
        let chunk = refusal.index.and_then(|index| sent.get(index));
        let position = failed_entry(&refusal.echo);
        let entry = chunk.zip(position).and_then(|(c, i)| c.entries.get(i));
        let line = chunk.zip(position).and_then(|(c, i)| c.lines.get(i));
        let set = chunk.map_or("", |c| &c.set);
        let direction = if self.operation() == "add" {
            "to"
        } else {
            "from"
        };
        let what = match entry {
            Some(e) => format!("{} {direction} set {set}", e.borrow().key),
            None => format!("entries {direction} set {set}"),
        };
        let what = match line {
            Some(line) => format!("line {line}: {what}"),
            None => what,
        };
        // Entries before the refused one, and whole messages after its own, are in force.
        let is_alone = !self.is_begun && sent.len() == 1 && position.unwrap_or(0) == 0;
        let error = refused(self.operation(), &what, refusal, class);
        match is_alone {
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
    /// Entries before the refused one were added, and perhaps some after it: [`Error::in_force`] is then unknown.
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
        let mut pipeline = Pipeline::new(message, existing);
        for entry in entries {
            pipeline.push(self, set, entry, None)?;
        }
        pipeline.finish(self)
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
