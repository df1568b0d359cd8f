//! Matches and targets.
//!
//! Most are a [`Row`], which describes the fields of the kernel's structure; encoding, decoding, text and parsing are
//! derived from it. Those with a value type of their own have a file each, all with the same structure: constants, wire
//! layout, value, encode, decode, `Display`, and parsing of the options. Their [`Kind`] declares all of this;
//! [`decode`] and [`encode`] select a revision. An extension that neither can decode without loss is an [`Unknown`], which keeps the bytes.

/// Names that the files of matches and targets with a value type import.
mod prelude {
    pub(super) use super::structs::*;
    pub(super) use super::{
        Bits, Context, Encoded, Form, Kind, Masked, Quoted, begins, comma_separated, forms,
    };
    pub(super) use crate::address::Address;
    pub(super) use crate::xtables::raw::*;
    pub(super) use crate::xtables::structs::{
        InetAddr, name_field, name_of, read, written, zeroed,
    };
    pub(super) use crate::xtables::text::{Complaint, Given, Opt};
    pub(super) use crate::xtables::{Not, PortRange, Protocol, XtFamily};
    pub(super) use std::fmt;
}

mod blob;
mod field;
pub(super) mod matches;
mod registry;
mod row;
mod rows;
pub(super) mod structs;
pub(super) mod targets;
mod value;

use super::sets::{Interned, Sets};
use super::text::{Complaint, Given, Opt};
use super::{Match, Target, XtFamily};
use crate::features::extensions::{XtObject, needs};
use crate::features::given_by;
pub(super) use registry::registry;
pub use row::Extension;
pub(super) use row::{ONE_OR_NONE, Row};
use std::fmt;
use std::ops::Range;
use weir_netlink::{Error, Result};

/// An extension's name and revision, as its header in a rule carries them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Form {
    /// `xt_entry_match.u.user.name`
    pub name: &'static str,
    /// `xt_entry_match.u.user.revision`
    pub revision: u8,
}

/// An unknown match or target, or one that no known revision decodes without loss.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[doc(alias = "xt_entry_match")]
pub struct Unknown {
    /// Its name, at most 28 bytes.
    pub name: String,
    /// Its revision.
    pub revision: u8,
    /// The data after its header, with the padding. Numbers are in host order.
    pub data: Vec<u8>,
}

impl Unknown {
    fn new(name: &str, revision: u8, data: &[u8]) -> Self {
        Self {
            name: name.to_owned(),
            revision,
            data: data.to_vec(),
        }
    }
}

/// Prints the bytes in hexadecimal. No program can parse this text; iptables prints unknown options.
impl fmt::Display for Unknown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} [revision {}, {} bytes:",
            self.name,
            self.revision,
            self.data.len()
        )?;
        let shown = self
            .data
            .iter()
            .rposition(|b| *b != 0)
            .map_or(0, |last| last + 1);
        f.write_str(" ")?;
        for byte in self.data.iter().take(shown) {
            write!(f, "{byte:02x}")?;
        }
        f.write_str("]")
    }
}

/// The extensions that a kernel has.
pub trait Revisions {
    /// Whether the kernel has a match or a target in this revision.
    ///
    /// # Errors
    /// The request to the kernel failed.
    fn has(&self, family: XtFamily, part: Part, form: Form) -> Result<bool>;
}

/// The two kinds of extensions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Part {
    /// `-m`
    Match,
    /// `-j`
    Target,
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Match => "match",
            Self::Target => "target",
        })
    }
}

/// A kernel with every known revision: for comparing values without a kernel.
#[derive(Debug)]
pub(super) struct All;

impl Revisions for All {
    fn has(&self, _: XtFamily, _: Part, _: Form) -> Result<bool> {
        Ok(true)
    }
}

/// The context in which rules are encoded and decoded.
#[derive(Clone, Copy)]
pub(super) struct Context<'a> {
    pub(super) family: XtFamily,
    pub(super) sets: &'a dyn Sets,
    pub(super) revisions: &'a dyn Revisions,
}

/// The bytes; `None` if the value is of another kind, or this revision cannot represent it. The error is the reason why
/// no revision can represent it, with the remedy.
pub(super) type Encoded = Result<Option<Vec<u8>>, String>;

/// One match or target.
pub(super) struct Kind<V: 'static> {
    /// The name after `-m` or `-j`.
    pub(super) name: &'static str,
    /// The supported revisions; the first one is preferred for writing.
    pub(super) forms: fn(XtFamily) -> &'static [Form],
    pub(super) encode: fn(&V, Form, &Context<'_>) -> Encoded,
    pub(super) decode: fn(Form, &[u8], &Context<'_>) -> Option<V>,
    /// Names of its options, with the number of arguments of each.
    pub(super) options: &'static [(&'static str, usize)],
    pub(super) parse: fn(&mut Given) -> Result<V, Complaint>,
}

/// The kinds that a family has.
pub(super) fn of<V>(
    kinds: &'static [&'static Kind<V>],
    family: XtFamily,
) -> impl Iterator<Item = &'static Kind<V>> {
    let in_family = move |kind: &&Kind<V>| !(kind.forms)(family).is_empty();
    kinds.iter().copied().filter(in_family)
}

/// An encoded extension.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Wire {
    pub(super) name: String,
    pub(super) revision: u8,
    pub(super) data: Vec<u8>,
}

/// The value, if a kind decodes it without loss.
pub(super) fn decode<V>(
    kinds: &[&Kind<V>],
    name: &str,
    revision: u8,
    data: &[u8],
    cx: &Context<'_>,
) -> Option<V> {
    for kind in kinds {
        let mut forms = (kind.forms)(cx.family).iter();
        let Some(form) = forms.find(|f| f.name == name && f.revision == revision) else {
            continue;
        };
        // A value is large, so it is returned without moving it out of the `Option`.
        let value = (kind.decode)(*form, data, cx);
        let again = value.as_ref().map(|v| (kind.encode)(v, *form, cx));
        // If encoding gives other bytes, the value does not represent all of the data.
        if let Some(Ok(Some(again))) = again
            && is_same(&again, data, unused(*form, cx.family))
        {
            return value;
        }
    }
    None
}

/// Bytes that neither the kernel nor iptables interprets, and that writers fill differently: for example in a
/// `union nf_inet_addr` with an IPv4 mask, all but the first four bytes.
fn unused(form: Form, family: XtFamily) -> &'static [Range<usize>] {
    match (form.name, form.revision, family) {
        // The kernel writes the dimensions and flags there.
        ("set", 0, _) => const { &[28..29, 29..30] },
        ("conntrack", _, XtFamily::Ip) => const { &[20..32, 52..64, 84..96, 116..128] },
        _ => &[],
    }
}

fn is_same(a: &[u8], b: &[u8], unused: &[Range<usize>]) -> bool {
    let is_unused = |n: usize| unused.iter().any(|range| range.contains(&n));
    let mut pairs = a.iter().zip(b).enumerate();
    a == b || a.len() == b.len() && pairs.all(|(n, (a, b))| a == b || is_unused(n))
}

/// Decodes a match by its kind, else by its row, else as an [`Unknown`].
pub(super) fn read_match(name: &str, revision: u8, data: &[u8], cx: &Context<'_>) -> Match {
    if let Some(value) = decode(matches::KINDS, name, revision, data, cx) {
        return value;
    }
    match Extension::decode(Part::Match, name, revision, data, cx.family) {
        Some(value) => Match::Extension(value),
        None => Match::Unknown(Unknown::new(name, revision, data)),
    }
}

/// As [`read_match`], for a target.
pub(super) fn read_target(name: &str, revision: u8, data: &[u8], cx: &Context<'_>) -> Target {
    if let Some(value) = decode(targets::KINDS, name, revision, data, cx) {
        return value;
    }
    match Extension::decode(Part::Target, name, revision, data, cx.family) {
        Some(value) => Target::Extension(value),
        None => Target::Unknown(Unknown::new(name, revision, data)),
    }
}

/// Decodes a match outside of a legacy table. Set names cannot be resolved there, so matches on sets remain unknown.
pub(crate) fn match_of(family: XtFamily, u: &Unknown) -> Match {
    outside(family, |cx| read_match(&u.name, u.revision, &u.data, cx))
}

/// As [`match_of`], for a target.
pub(crate) fn target_of(family: XtFamily, u: &Unknown) -> Target {
    outside(family, |cx| read_target(&u.name, u.revision, &u.data, cx))
}

fn outside<V>(family: XtFamily, read: impl FnOnce(&Context<'_>) -> V) -> V {
    let sets = Interned::default();
    read(&Context {
        family,
        sets: &sets,
        revisions: &All,
    })
}

/// Encodes in the best revision that the kernel has.
pub(super) fn encode<V: fmt::Display>(
    kinds: &[&Kind<V>],
    value: &V,
    part: Part,
    cx: &Context<'_>,
) -> Result<Wire> {
    let object = || format!("`{}`", value.to_string().trim_start());
    let mut lacking = Vec::new();
    for kind in kinds {
        for form in (kind.forms)(cx.family) {
            let encoded = (kind.encode)(value, *form, cx);
            let Some(data) = encoded.map_err(|why| Error::refused("write", object(), why))? else {
                continue;
            };
            if cx.revisions.has(cx.family, part, *form)? {
                return Ok(Wire {
                    name: form.name.to_owned(),
                    revision: form.revision,
                    data,
                });
            }
            lacking.push(*form);
        }
    }
    if lacking.is_empty() {
        let why = format!(
            "{} has no such {part}, or not with these options",
            cx.family
        );
        return Err(Error::refused("write", object(), why));
    }
    Err(lacking_error(object(), cx.family, part, &lacking))
}

/// Every match and target that can be decoded, by family.
#[cfg(test)]
pub(crate) fn extensions() -> Vec<(XtFamily, Part, &'static str)> {
    let mut all = Vec::new();
    for family in [XtFamily::Ip, XtFamily::Ip6] {
        all.extend(of(matches::KINDS, family).map(|k| (family, Part::Match, k.name)));
        all.extend(of(targets::KINDS, family).map(|k| (family, Part::Target, k.name)));
        for part in [Part::Match, Part::Target] {
            all.extend(Row::all(part, family).map(|r| (family, part, r.name)));
        }
    }
    all
}

/// The error for a kernel that has none of these revisions.
fn lacking_error(object: String, family: XtFamily, part: Part, forms: &[Form]) -> Error {
    let first = forms.first();
    let modules = first.and_then(|f| needs(part.into(), f.name, family == XtFamily::Ip6));
    let provided = modules.map_or_else(String::new, |m| format!("; {} provides it", given_by(&m)));
    let each = forms
        .iter()
        .map(|f| format!("{} revision {}", f.name, f.revision));
    let why = format!(
        "this kernel lacks the {part} {}{provided}",
        each.collect::<Vec<_>>().join(", "),
    );
    Error::unsupported("write", object, why)
}

impl From<Part> for XtObject {
    fn from(part: Part) -> Self {
        match part {
            Part::Match => Self::Match,
            Part::Target => Self::Target,
        }
    }
}

/// A list of names and revisions: `forms!["set" 4, "set" 3]`.
macro_rules! forms {
    ($($name:literal $revision:literal),* $(,)?) => {
        const { &[$($crate::xtables::ext::Form { name: $name, revision: $revision }),*] }
    };
}
pub(super) use forms;

/// `VALUE` or `VALUE/MASK`, in hexadecimal; a mask of all bits is omitted.
pub(super) struct Masked(pub(super) u32, pub(super) u32);

impl fmt::Display for Masked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.0)?;
        if self.1 == u32::MAX {
            Ok(())
        } else {
            write!(f, "/{:#x}", self.1)
        }
    }
}

/// Items joined by commas.
pub(super) fn comma_separated(
    f: &mut fmt::Formatter<'_>,
    items: impl IntoIterator<Item = impl fmt::Display>,
) -> fmt::Result {
    for (n, item) in items.into_iter().enumerate() {
        let comma = if n == 0 { "" } else { "," };
        write!(f, "{comma}{item}")?;
    }
    Ok(())
}

/// Names of bits, from the lowest on.
pub(super) struct Bits(pub(super) &'static [&'static str]);

impl Bits {
    /// Prints the names of the bits that are set, joined by commas.
    pub(super) fn show(&self, f: &mut fmt::Formatter<'_>, bits: u32) -> fmt::Result {
        let named = self.0.iter().enumerate();
        let set = named.filter(|(n, _)| bits & (1 << n) != 0);
        comma_separated(f, set.map(|(_, name)| name))
    }

    /// Parses the n-th argument as names, joined by commas. `more` gives the bits of words that are not the name of one
    /// bit; `what` is the error for any other word.
    pub(super) fn read(
        &self,
        o: &Opt,
        n: usize,
        what: &str,
        more: impl Fn(&str) -> Option<u32>,
    ) -> Result<u32, Complaint> {
        o.word(n).split(',').try_fold(0, |all, word| {
            let mut names = self.0.iter();
            let bit = names.position(|name| name.eq_ignore_ascii_case(word));
            let bits = bit.map(|bit| 1 << bit).or_else(|| more(word));
            bits.map(|bits| all | bits)
                .ok_or_else(|| o.wrong(&format!("{what}; give {}", self.0.join(", "))))
        })
    }
}

/// Whether the word is the name or its beginning, in any case. Some options of iptables accept it (`strncasecmp(3)`), of which the first
/// such name counts.
pub(super) fn begins(name: &str, word: &str) -> bool {
    let start = name.get(..word.len()).filter(|start| !start.is_empty());
    start.is_some_and(|start| start.eq_ignore_ascii_case(word))
}

/// Text as libxtables quotes it: letters, digits, `_` and `-` remain unquoted; everything else is in double quotes,
/// with a backslash before `"`, `'` and `\`.
pub(super) struct Quoted<'a>(pub(super) &'a str);

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bare = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
        if !self.0.is_empty() && self.0.chars().all(bare) {
            return f.write_str(self.0);
        }
        f.write_str("\"")?;
        for c in self.0.chars() {
            if matches!(c, '"' | '\'' | '\\') {
                f.write_str("\\")?;
            }
            write!(f, "{c}")?;
        }
        f.write_str("\"")
    }
}

#[cfg(test)]
mod tests;
