//! The commands of a line.

use super::options::create_options;
use super::token::Token;
use super::{Command, Parser, Wrong, entry, wrong};
use crate::ipset::model::{Entry, Header, SetFamily, SetType};
use crate::ipset::raw::IPSET_MAXNAMELEN;
use weir_netlink::attr::bytes_of;

/// Checks that no word is left.
fn end(rest: &[Token<'_>]) -> Result<(), Wrong> {
    match rest.first() {
        Some(t) => wrong(
            t,
            format!("nothing is expected after the command, not \"{}\"", t.text),
        ),
        None => Ok(()),
    }
}

/// Takes the next word; the error names what is missing.
pub(super) fn need<'t, 'a>(
    after: &Token<'_>,
    rest: &mut &'t [Token<'a>],
    what: &str,
) -> Result<&'t Token<'a>, Wrong> {
    match rest.split_first() {
        Some((token, others)) => {
            *rest = others;
            Ok(token)
        }
        None => wrong(after, format!("{what} is missing after \"{}\"", after.text)),
    }
}

fn name<'t, 'a>(after: &Token<'_>, rest: &mut &'t [Token<'a>]) -> Result<&'t Token<'a>, Wrong> {
    checked(need(after, rest, "the name of a set")?)
}

/// Checks that the kernel can store the name of a set.
pub(super) fn checked<'t, 'a>(token: &'t Token<'a>) -> Result<&'t Token<'a>, Wrong> {
    match bytes_of(&token.text).len() {
        0 => wrong(token, "a set needs a name"),
        n if n >= IPSET_MAXNAMELEN => wrong(
            token,
            format!("the name has {n} bytes; at most 31 are possible: shorten it"),
        ),
        _ => Ok(token),
    }
}

/// Older names of types, which `ipset` 7.17 still accepts and never prints.
#[rustfmt::skip]
static OLD_TYPES: [(&str, SetType); 16] = [
    ("iphash", SetType::HashIp), ("nethash", SetType::HashNet), ("ipporthash", SetType::HashIpPort),
    ("netporthash", SetType::HashNetPort), ("ipportiphash", SetType::HashIpPortIp),
    ("ipportnethash", SetType::HashIpPortNet), ("ipmarkhash", SetType::HashIpMark),
    ("netnethash", SetType::HashNetNet), ("netportnethash", SetType::HashNetPortNet),
    ("netifacehash", SetType::HashNetIface), ("ipmachash", SetType::HashIpMac), ("machash", SetType::HashMac),
    ("ipmap", SetType::BitmapIp), ("macipmap", SetType::BitmapIpMac), ("portmap", SetType::BitmapPort),
    ("setlist", SetType::ListSet),
];

/// The commands of `ipset` with their other names, in its order: the first one that begins with a word is meant.
const VERBS: [[&str; 3]; 14] = [
    ["create", "new", "-N"],
    ["add", "-A", "-A"],
    ["del", "-D", "-D"],
    ["test", "-T", "-T"],
    ["destroy", "x", "-X"],
    ["list", "-L", "-L"],
    ["save", "-S", "-S"],
    ["restore", "-R", "-R"],
    ["flush", "-F", "-F"],
    ["rename", "e", "-E"],
    ["swap", "w", "-W"],
    ["help", "-h", "-H"],
    ["version", "-v", "-V"],
    ["quit", "quit", "quit"],
];

/// The first name of a command; the word itself if it is none.
fn whole(word: &str) -> &str {
    let start = word.strip_prefix("--").unwrap_or(word);
    let is_meant = |names: &&[&str; 3]| names.iter().any(|name| name.starts_with(start));
    let found = VERBS
        .iter()
        .find(is_meant)
        .filter(|_| !matches!(start, "" | "-"));
    found.map_or(word, |[first, ..]| first)
}

impl Parser {
    pub(super) fn command(
        &self,
        verb: &Token<'_>,
        mut rest: &[Token<'_>],
    ) -> Result<Command, Wrong> {
        let rest = &mut rest;
        let command = match whole(&verb.text) {
            "create" => return self.create(verb, rest),
            "add" => {
                let (set, entries) = self.entries(verb, rest)?;
                Command::Add(set, entries)
            }
            "del" => {
                let (set, entries) = self.entries(verb, rest)?;
                Command::Delete(set, entries)
            }
            "flush" => Command::Flush(self.maybe_name(verb, rest)?),
            "destroy" => Command::Destroy(self.maybe_name(verb, rest)?),
            "rename" => {
                let (from, to) = self.two(verb, rest)?;
                Command::Rename(from, to)
            }
            "swap" => {
                let (a, b) = self.two(verb, rest)?;
                Command::Swap(a, b)
            }
            "list" | "save" | "test" | "quit" | "help" | "version" => {
                return wrong(
                    verb,
                    format!(
                        "{} changes nothing and has no place here: remove the line",
                        verb.text
                    ),
                );
            }
            other => {
                return wrong(
                    verb,
                    format!(
                        "\"{other}\" is no command: create, add, del, flush, destroy, rename or swap is expected"
                    ),
                );
            }
        };
        end(rest)?;
        Ok(command)
    }

    fn maybe_name(
        &self,
        verb: &Token<'_>,
        rest: &mut &[Token<'_>],
    ) -> Result<Option<String>, Wrong> {
        if rest.is_empty() {
            return Ok(None);
        }
        let token = name(verb, rest)?;
        self.set(token)?;
        Ok(Some(token.text.to_string()))
    }

    fn two(&self, verb: &Token<'_>, rest: &mut &[Token<'_>]) -> Result<(String, String), Wrong> {
        let from = name(verb, rest)?;
        self.set(from)?;
        let to = name(from, rest)?;
        Ok((from.text.to_string(), to.text.to_string()))
    }

    /// The header of a set that exists in the kernel or was created by an earlier line.
    fn set(&self, token: &Token<'_>) -> Result<&Header, Wrong> {
        match self.sets.get(&*token.text) {
            Some(header) => Ok(header),
            None => wrong(
                token,
                format!(
                    "there is no set \"{}\": create it above this line",
                    token.text
                ),
            ),
        }
    }

    fn create(&self, verb: &Token<'_>, rest: &mut &[Token<'_>]) -> Result<Command, Wrong> {
        let set = name(verb, rest)?;
        let type_token = need(set, rest, "the type")?;
        let given = &*type_token.text;
        let old = OLD_TYPES.iter().find(|(name, _)| *name == given);
        let kind = old.map_or_else(|| SetType::from(given), |(_, kind)| kind.clone());
        if let SetType::Other(name) = &kind {
            let known: Vec<String> = SetType::all().map(ToString::to_string).collect();
            return wrong(
                type_token,
                format!(
                    "type \"{name}\" is not known: use one of {}",
                    known.join(" ")
                ),
            );
        }
        let mut header = Header::new(&*set.text, kind, SetFamily::Inet);
        create_options(&mut header, type_token, rest)?;
        Ok(Command::Create(Box::new(header)))
    }

    fn entries(
        &self,
        verb: &Token<'_>,
        rest: &mut &[Token<'_>],
    ) -> Result<(String, Vec<Entry>), Wrong> {
        let set = name(verb, rest)?;
        let header = self.set(set)?;
        let element = need(set, rest, "the entry")?;
        let keys = entry::keys(header, element)?;
        let (template, is_wildcard) = entry::options(header, rest)?;
        let entries = keys
            .into_iter()
            .map(|key| Entry {
                key: if is_wildcard { key.wildcard() } else { key },
                ..template.clone()
            })
            .collect();
        Ok((set.text.to_string(), entries))
    }
}
