//! Matches and targets as rows of a registry. A row describes the fields of the structure; text and parsing are derived from it.

use super::blob::Blob;
use super::field::{Field, Quote, Shown};
use super::rows::ROWS;
use super::{Context, Form, Part, Quoted, Wire};
use crate::xtables::structs::aligned;
use crate::xtables::text::{Complaint, Given};
use crate::xtables::{Protocol, XtFamily};
use std::fmt;
use std::hash::{Hash, Hasher};
use std::ops::Range;
use weir_netlink::{Error, Result};

/// The number of arguments of an option with an optional argument.
pub(crate) const ONE_OR_NONE: usize = usize::MAX;

/// A match or target.
#[derive(Debug)]
pub(crate) struct Row {
    pub(crate) part: Part,
    pub(crate) name: &'static str,
    pub(crate) revision: u8,
    /// The family; `None` for both.
    pub(crate) family: Option<XtFamily>,
    /// `sizeof` the structure, without the padding to 8 bytes.
    pub(crate) size: usize,
    /// Offsets and bytes that are not 0 before any option is parsed.
    pub(crate) initial: &'static [(usize, &'static [u8])],
    /// Bytes that have no meaning for IPv4: all bytes of an address but the first four.
    pub(crate) unused: &'static [Range<usize>],
    /// The bytes of a number whose text is rounded, or of a list whose order is not printed: decoding keeps them as they were read.
    pub(crate) rounded: Range<usize>,
    /// Bytes of which only the first ones have a meaning, and the offset of the byte with their number.
    pub(crate) counted: Option<(Range<usize>, usize)>,
    /// At least one of these options must be given.
    pub(crate) one_of: &'static [&'static str],
    /// At most one of these options may be given.
    pub(crate) exclude: &'static [&'static str],
    /// The protocol that the rule must have: the kernel refuses others without a reason.
    pub(crate) protocol: Option<Protocol>,
    pub(crate) options: Options,
}

/// The options of a row.
#[derive(Debug)]
pub(crate) enum Options {
    /// In the order in which they are printed.
    Fields(&'static [Field]),
    /// Functions, for structures that are lists and for values that depend on each other.
    Code {
        /// The names, with the number of arguments of each.
        names: &'static [(&'static str, usize)],
        /// Whether an option may be given more than once.
        repeated: bool,
        /// `None` if no options give these bytes.
        show: fn(&Blob, XtFamily) -> Option<Vec<Shown>>,
        read: fn(&mut Given, &mut Blob) -> Result<(), Complaint>,
    },
}

impl Row {
    /// A match in both families.
    pub(crate) const MATCH: Self = Self {
        part: Part::Match,
        name: "",
        revision: 0,
        family: None,
        size: 0,
        initial: &[],
        unused: &[],
        rounded: 0..0,
        counted: None,
        one_of: &[],
        exclude: &[],
        protocol: None,
        options: Options::Fields(&[]),
    };

    /// A target in both families.
    pub(crate) const TARGET: Self = Self {
        part: Part::Target,
        ..Self::MATCH
    };

    /// The newest revision of an extension, which reads its options.
    pub(crate) fn find(part: Part, name: &str, family: XtFamily) -> Option<&'static Self> {
        Self::revisions(part, name, family).next()
    }

    /// Every revision of an extension, the newest first.
    pub(super) fn revisions(
        part: Part,
        name: &str,
        family: XtFamily,
    ) -> impl Iterator<Item = &'static Self> {
        Self::all(part, family).filter(move |row| row.name == name)
    }

    /// Every row of a family.
    pub(crate) fn all(part: Part, family: XtFamily) -> impl Iterator<Item = &'static Self> {
        let rows = ROWS.iter().flat_map(|rows| rows.iter());
        rows.filter(move |row| row.part == part && row.is_in(family))
    }

    fn is_in(&self, family: XtFamily) -> bool {
        self.family.is_none_or(|f| f == family)
    }

    /// Every name of an option, with the number of arguments.
    pub(crate) fn names(&self) -> Vec<(&'static str, usize)> {
        match self.options {
            Options::Code { names, .. } => names.to_vec(),
            Options::Fields(fields) => {
                let names = |f: &'static Field| f.names.iter().map(|name| (*name, f.words()));
                fields.iter().flat_map(names).collect()
            }
        }
    }

    pub(crate) fn may_repeat(&self) -> bool {
        matches!(self.options, Options::Code { repeated: true, .. })
    }

    fn show(&self, b: &Blob, family: XtFamily) -> Option<Vec<Shown>> {
        match self.options {
            Options::Fields(fields) => {
                Some(fields.iter().filter_map(|f| f.show(b, family)).collect())
            }
            Options::Code { show, .. } => show(b, family),
        }
    }

    /// The end of the last byte that `initial` or a field uses.
    #[cfg(test)]
    pub(super) fn extent(&self) -> usize {
        let initial = self.initial.iter().map(|(at, bytes)| at + bytes.len());
        initial
            .chain(self.parts().map(|(_, end)| end))
            .max()
            .unwrap_or(0)
    }

    /// The offsets that `initial` and the fields use.
    #[cfg(test)]
    pub(super) fn places(&self) -> Vec<usize> {
        let initial = self.initial.iter().map(|(at, _)| *at);
        initial.chain(self.parts().map(|(at, _)| at)).collect()
    }

    #[cfg(test)]
    fn parts(&self) -> impl Iterator<Item = (usize, usize)> {
        let fields = match self.options {
            Options::Fields(fields) => fields,
            Options::Code { .. } => &[],
        };
        fields.iter().flat_map(Field::parts)
    }

    fn normalize(&self, b: &mut Blob, family: XtFamily) {
        if let Options::Fields(fields) = self.options {
            fields.iter().for_each(|f| f.normalize(b, family));
        }
        if let Some((range, count)) = &self.counted {
            let rest = range
                .clone()
                .skip(b.bytes(*count, 1).first().copied().unwrap_or(0).into());
            rest.for_each(|at| b.set(at, &[0]));
        }
    }

    fn form(&self) -> Form {
        Form {
            name: self.name,
            revision: self.revision,
        }
    }

    /// The extension with these printed options; `None` if this revision lacks one of them.
    fn of(&'static self, shown: &[Shown], family: XtFamily) -> Option<Extension> {
        let mut given = Given::of(family, self.name, shown.iter().map(Shown::given).collect());
        self.parse(&mut given).ok().filter(|_| given.is_empty())
    }

    /// Parses the options.
    pub(crate) fn parse(&'static self, given: &mut Given) -> Result<Extension, Complaint> {
        if !self.one_of.is_empty() && !given.has(self.one_of) {
            return Err(given.lacks(&format!("one of {}", self.one_of.join(", "))));
        }
        let both = |name: &&&str| given.has(&[**name]);
        if self.exclude.iter().filter(both).count() > 1 {
            return Err(given.conflict(&self.exclude.join(", ")));
        }
        if let Some(protocol) = self.protocol {
            given.of_protocol(&[protocol], &protocol.to_string())?;
        }
        let mut blob = Blob::zeros(aligned(self.size));
        for (at, bytes) in self.initial {
            blob.set(*at, bytes);
        }
        match self.options {
            Options::Code { read, .. } => read(given, &mut blob)?,
            Options::Fields(fields) => {
                let mut read = Vec::new();
                for field in fields {
                    read.extend(field.read(given, &mut blob)?.map(|o| (field, o)));
                }
                read.iter().try_for_each(|(f, o)| f.stands(o, &blob))?;
            }
        }
        Ok(Extension {
            row: self,
            family: given.family,
            blob,
        })
    }
}

/// A match or target without a value type of its own; weir decodes, prints and parses its options.
#[derive(Clone)]
pub struct Extension {
    row: &'static Row,
    family: XtFamily,
    blob: Blob,
}

impl Extension {
    /// A value that weir writes, made of the fields' bytes.
    pub(super) fn made(row: &'static Row, family: XtFamily, set: impl FnOnce(&mut Blob)) -> Self {
        let mut blob = Blob::zeros(aligned(row.size));
        set(&mut blob);
        Self { row, family, blob }
    }

    /// Whether this option is among those that are printed.
    #[must_use]
    pub fn has(&self, option: &str) -> bool {
        let shown = self.row.show(&self.blob, self.family);
        shown.is_some_and(|shown| shown.iter().any(|o| o.name == option))
    }

    /// The name after `-m` or `-j`.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.row.name
    }

    /// The revision of its structure.
    #[must_use]
    pub fn revision(&self) -> u8 {
        self.row.revision
    }

    /// Decodes the data, of an older revision to the value of the newest one. `None` if no row has this revision, or if parsing the
    /// printed options does not give the same bytes.
    pub(crate) fn decode(
        part: Part,
        name: &str,
        revision: u8,
        data: &[u8],
        family: XtFamily,
    ) -> Option<Self> {
        let row = Row::revisions(part, name, family).find(|row| row.revision == revision)?;
        if data.len() != aligned(row.size) {
            return None;
        }
        let blob = Blob(data.to_vec());
        let shown = row.show(&blob, family)?;
        let mut again = row.of(&shown, family)?;
        let rounded = blob.bytes(row.rounded.start, row.rounded.len());
        again.blob.set(row.rounded.start, rounded);
        let unused = match family {
            XtFamily::Ip => row.unused,
            XtFamily::Ip6 => &[],
        };
        let (mut given, mut read) = (blob, again.blob.clone());
        row.normalize(&mut given, family);
        row.normalize(&mut read, family);
        if !super::is_same(&read.0, &given.0, unused) {
            return None;
        }
        match Row::find(part, name, family) {
            Some(newest) if newest.revision != revision => newest.of(&shown, family),
            _ => Some(again),
        }
    }

    /// Encodes the extension for a rule, in the newest revision that the kernel has.
    pub(in crate::xtables) fn wire(&self, cx: &Context<'_>) -> Result<Wire> {
        let row = self.row;
        let object = || format!("`{}`", self.to_string().trim_start());
        if self.family != cx.family {
            let why = format!("it is one of {}; write it for {}", self.family, cx.family);
            return Err(Error::refused("write", object(), why));
        }
        let mut lacking = Vec::new();
        for other in Row::revisions(row.part, row.name, cx.family) {
            let data = match other.revision == row.revision {
                true => Some(self.blob.0.clone()),
                false => row
                    .show(&self.blob, self.family)
                    .and_then(|shown| other.of(&shown, self.family))
                    .map(|older| older.blob.0),
            };
            let Some(data) = data else { continue };
            if cx.revisions.has(cx.family, row.part, other.form())? {
                return Ok(Wire {
                    name: other.name.to_owned(),
                    revision: other.revision,
                    data,
                });
            }
            lacking.push(other.form());
        }
        Err(super::lacking_error(
            object(),
            cx.family,
            row.part,
            &lacking,
        ))
    }

    fn key(&self) -> (Part, &'static str, u8, XtFamily, &Blob) {
        let row = self.row;
        (row.part, row.name, row.revision, self.family, &self.blob)
    }
}

impl PartialEq for Extension {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl Eq for Extension {}

impl Hash for Extension {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.key().hash(state);
    }
}

impl fmt::Debug for Extension {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} revision {}{self}", self.row.name, self.row.revision)
    }
}

/// Prints the options, each after a space.
impl fmt::Display for Extension {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for o in self.row.show(&self.blob, self.family).unwrap_or_default() {
            write!(f, "{} {}", if o.not { " !" } else { "" }, o.name)?;
            for word in &o.words {
                match o.quote {
                    Quote::Never => write!(f, " {word}")?,
                    Quote::Unsafe => write!(f, " {}", Quoted(word))?,
                    Quote::Always => {
                        let word = word.replace('\\', "\\\\").replace('"', "\\\"");
                        write!(f, " \"{word}\"")?;
                    }
                }
            }
        }
        Ok(())
    }
}
