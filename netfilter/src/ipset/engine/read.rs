//! Reading sets.

use super::{IpsetEngine, kind};
use crate::ipset::error::{Class, explain};
use crate::ipset::model::{Entry, Header, Set, SetFamily, SetType};
use crate::ipset::wire::{CommandAttrs, EntryAttrs};
use crate::ipset::{codec, raw};
use std::fmt::Write as _;
use std::io;
use weir_netlink::attr::{AttrSet, Attrs, DecodeError, bytes_of};
use weir_netlink::contention::{Attempts, CONTENTION};
use weir_netlink::{Error, Result, Transport};

/// Maximum size of the sets that are held at once, in bytes of the kernel's answers: a process with CAP_NET_ADMIN in a pod's
/// namespace can create sets of any size there, and as values they take several times as much of the node's memory. An
/// entry has about 50 bytes.
pub(super) const READ_LIMIT: usize = 64 << 20;

/// A set as the kernel lists it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[doc(alias = "IPSET_CMD_LIST")]
pub struct Listed {
    /// The set; without its entries if only headers were requested.
    pub set: Set,
    /// Revision of its type.
    pub revision: u8,
    /// Index by which xtables rules refer to it. Listed since 4.20
    pub index: Option<u16>,
    /// How many rules and lists refer to it.
    pub references: u32,
    /// Memory usage in bytes.
    pub memory: u32,
    /// Number of entries, counted by the kernel; it may include expired entries. Listed since 4.8
    pub elements: Option<u32>,
}

/// An item of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Part {
    /// Start of a set.
    Set(Box<Listed>),
    /// An entry of the last set that was started.
    Entry(Entry),
}

fn listed(a: &CommandAttrs) -> Listed {
    let options = a.data.as_ref();
    Listed {
        set: Set::new(codec::from_header(a)),
        revision: a.revision.unwrap_or(0),
        index: a.index,
        references: options.and_then(|o| o.references).unwrap_or(0),
        memory: options.and_then(|o| o.memory).unwrap_or(0),
        elements: options.and_then(|o| o.elements),
    }
}

/// Splits a message of a list into the attributes of the set and the bytes of its entries: a message has hundreds of entries,
/// which would take twenty times the memory as values.
fn apart(attrs: &[u8]) -> std::result::Result<(Vec<u8>, &[u8]), DecodeError> {
    let (mut head, mut entries) = (Vec::new(), &[][..]);
    let mut all = Attrs::new(attrs).peekable();
    while let Some(attr) = all.next() {
        let attr = attr?;
        let end = match all.peek() {
            Some(Ok(next)) => next.offset,
            _ => attrs.len(),
        };
        if attr.number == CommandAttrs::IPSET_ATTR_ADT {
            entries = attr.payload;
        } else {
            head.extend_from_slice(attrs.get(attr.offset..end).unwrap_or_default());
        }
    }
    Ok((head, entries))
}

impl<T: Transport> IpsetEngine<T> {
    /// `ipset list`: every set, or the set with this name. Repeated while the sets change.
    ///
    /// # Errors
    /// `ENOENT` if there is no set of this name; the sets exceed [`read_limit`](IpsetEngine::read_limit); another writer kept
    /// changing the sets ([`ErrorKind::Exhausted`](weir_netlink::ErrorKind::Exhausted)).
    pub fn list(&mut self, name: Option<&str>) -> Result<Vec<Listed>> {
        self.collect(name, 0)
    }

    /// `ipset list -terse`: the sets without their entries.
    ///
    /// # Errors
    /// As [`IpsetEngine::list`].
    pub fn headers(&mut self, name: Option<&str>) -> Result<Vec<Listed>> {
        self.collect(name, raw::IPSET_FLAG_LIST_HEADER)
    }

    /// `ipset list -name`: the names of all sets.
    ///
    /// # Errors
    /// As [`IpsetEngine::list`].
    pub fn names(&mut self) -> Result<Vec<String>> {
        let sets = self.collect(None, raw::IPSET_FLAG_LIST_SETNAME)?;
        Ok(sets.into_iter().map(|l| l.set.header.name).collect())
    }

    fn collect(&mut self, name: Option<&str>, flags: u32) -> Result<Vec<Listed>> {
        self.consistent(|engine| {
            let mut sets: Vec<Listed> = Vec::new();
            engine.walk(name, flags, engine.read_limit, |part| {
                match (part, sets.last_mut()) {
                    (Part::Set(l), _) => sets.push(*l),
                    (Part::Entry(e), Some(l)) => l.set.entries.push(e),
                    (Part::Entry(_), None) => {}
                }
                Ok(())
            })?;
            Ok(sets)
        })
    }

    /// Reads again while the sets change.
    fn consistent<R>(&mut self, mut read: impl FnMut(&mut Self) -> Result<R>) -> Result<R> {
        let mut attempts = Attempts::begin(CONTENTION);
        loop {
            match read(self) {
                Err(e) if e.errno() == Some(libc::EINTR) => attempts.try_again("list", "sets")?,
                done => return done,
            }
        }
    }

    /// As [`IpsetEngine::list`], but calls `f` for each set and entry: a large set need not be held as a whole.
    ///
    /// # Errors
    /// As [`IpsetEngine::list`], after `f` has received a part, but without its limit and repetition: `EINTR` if the sets
    /// changed during the list. The error of `f`.
    pub fn each(&mut self, name: Option<&str>, f: impl FnMut(Part) -> Result<()>) -> Result<()> {
        self.walk(name, 0, usize::MAX, f)
    }

    /// `ipset save`: writes the text of every set, or of the set with this name. Names and comments keep their bytes.
    ///
    /// # Errors
    /// As [`IpsetEngine::each`]; `out` cannot be written.
    pub fn save(&mut self, name: Option<&str>, out: &mut impl io::Write) -> Result<()> {
        self.save_up_to(name, usize::MAX, out)
    }

    fn save_up_to(
        &mut self,
        name: Option<&str>,
        limit: usize,
        out: &mut impl io::Write,
    ) -> Result<()> {
        // Each line is built in one buffer and written as a whole: sets have many.
        let (mut add, mut line) = (String::new(), String::new());
        self.walk(name, 0, limit, |part| {
            line.clear();
            // Writing to a String does not fail.
            let _ = match part {
                Part::Set(l) => {
                    add = format!("add {} ", l.set.header.name);
                    writeln!(line, "{}", l.set.header)
                }
                Part::Entry(e) => {
                    line += &add;
                    writeln!(line, "{e}")
                }
            };
            let written = out.write_all(&bytes_of(&line));
            written.map_err(|e| Error::io("write", "the text of the sets", &e))
        })
    }

    /// `ipset save` as one value: the text of every set, from one list during which no set changed.
    ///
    /// # Errors
    /// As [`IpsetEngine::list`].
    pub fn text(&mut self) -> Result<Vec<u8>> {
        self.consistent(|engine| {
            let mut text = Vec::new();
            engine.save_up_to(None, engine.read_limit, &mut text)?;
            Ok(text)
        })
    }

    fn walk(
        &mut self,
        name: Option<&str>,
        flags: u32,
        limit: usize,
        mut f: impl FnMut(Part) -> Result<()>,
    ) -> Result<()> {
        let what = name.map_or_else(|| "all sets".to_owned(), |n| format!("set {n}"));
        let mut ask = name.map_or_else(|| self.about_all(), |n| self.about(n));
        ask.flags = (flags != 0).then_some(flags);
        let mut set_type = SetType::Other(String::new());
        let message = kind(raw::IPSET_CMD_LIST);
        let mut held: usize = 0;
        let done = self
            .socket
            .dump_each(message, raw::NFPROTO_IPV4, &ask, &what, |reply| {
                let bad = |e: DecodeError| Error::malformed("read", &what, e);
                let (head, entries) = apart(&reply.attrs).map_err(bad)?;
                held = held.saturating_add(reply.attrs.len());
                let a = CommandAttrs::decode(&head).map_err(bad)?;
                if held > limit {
                    let reason = format!(
                        "there are more than {limit} bytes of sets, and no more are held at once; the limit was reached in \
                         set {}: flush or destroy what makes them so large",
                        a.name.unwrap_or_default()
                    );
                    return Err(Error::refused("list", what.as_str(), reason));
                }
                // Of the messages of one set, only the first has the header.
                if a.type_name.is_some() || flags == raw::IPSET_FLAG_LIST_SETNAME {
                    let l = listed(&a);
                    set_type = l.set.header.kind.clone();
                    f(Part::Set(Box::new(l)))?;
                }
                Attrs::new(entries).try_for_each(|e| {
                    let e = e.and_then(|e| EntryAttrs::decode(e.payload)).map_err(bad)?;
                    f(Part::Entry(codec::from_entry(&set_type, e)))
                })
            });
        done.map_err(|e| explain(e, Class::Any))
    }

    /// Type and family of a set (`IPSET_CMD_HEADER`).
    ///
    /// # Errors
    /// `ENOENT` if there is no such set.
    pub fn type_of(&mut self, name: &str) -> Result<(SetType, SetFamily)> {
        codec::check_name("look up", name)?;
        let ask = self.about(name);
        let answer = self.ask(raw::IPSET_CMD_HEADER, &ask, &format!("set {name}"))?;
        let header: Header = codec::from_header(&answer);
        Ok((header.kind, header.family))
    }
}
