//! Concatenations: `ipv4_addr . inet_service`. Their type consists of the types of the fields, six bits each, the
//! first one in the highest bits; each field of a value occupies whole registers of four bytes.

use super::ruleset::type_name;
use super::value::{hex, hex_number, range, value};
use crate::nft::model::{Data, DataType};
use std::borrow::Cow;

/// `TYPE_BITS` of nft's `include/datatype.h`
const TYPE_BITS: u32 = 6;
const TYPE_MASK: u32 = (1 << TYPE_BITS) - 1;

/// The types of the fields; empty if it is not a concatenation.
fn types(t: DataType) -> Vec<DataType> {
    let mut fields = Vec::new();
    let mut rest = t.0;
    while t.0 > TYPE_MASK && rest != 0 {
        fields.insert(0, DataType(rest & TYPE_MASK));
        rest >>= TYPE_BITS;
    }
    fields
}

/// Length of a value of the type in bytes; `None` if the type does not determine it.
fn len(t: DataType) -> Option<usize> {
    t.row().map(|row| row.len).filter(|len| *len > 0)
}

/// How a value, or one field of a concatenation, is displayed.
#[derive(Clone, Debug)]
pub(crate) struct Field {
    pub(crate) data_type: DataType,
    /// Number of bytes.
    pub(crate) len: usize,
    /// The byte order of a number in it.
    pub(crate) host_order: bool,
    /// Number of bits to the right of those that are displayed.
    pub(crate) right: u32,
    /// Bytes of the packet that have no name.
    pub(crate) is_unnamed: bool,
}

impl Field {
    /// The fields of a type whose values have this length; `None` if the lengths of the fields are unknown.
    pub(crate) fn of(t: DataType, total: u32) -> Option<Vec<Self>> {
        let total = usize::try_from(total).ok()?;
        let types = match t.is_concatenation() {
            true => types(t),
            false => vec![t],
        };
        let known: usize = types
            .iter()
            .filter_map(|t| len(*t))
            .map(|n| n.next_multiple_of(4))
            .sum();
        let mut unknown = types.iter().filter(|t| len(**t).is_none());
        let rest = total
            .checked_sub(known)
            .filter(|_| unknown.next().is_some());
        if unknown.next().is_some() {
            return None;
        }
        let field = |t: &DataType| {
            Some(Self {
                data_type: *t,
                len: len(*t).or(rest)?,
                host_order: t.is_host_order(),
                right: 0,
                is_unnamed: false,
            })
        };
        types.iter().map(field).collect()
    }

    /// A value without the bits to the right of the displayed bits.
    pub(crate) fn shifted<'a>(&self, d: &'a Data) -> Cow<'a, Data> {
        let n = d.number(self.host_order).filter(|_| self.right > 0);
        match n.map(|n| n >> self.right) {
            Some(n) if self.host_order => Cow::Owned(Data::from(n.to_ne_bytes().as_slice())),
            Some(n) => Cow::Owned(Data::from(n.to_be_bytes().as_slice())),
            None => Cow::Borrowed(d),
        }
    }

    /// The text of one value.
    pub(crate) fn value(&self, d: &Data) -> String {
        match self.is_unnamed {
            true => self.hex(d),
            false => value(&self.shifted(d), self.data_type, self.host_order),
        }
    }

    fn hex(&self, d: &Data) -> String {
        match d.to_ne().filter(|_| self.host_order) {
            Some(n) => format!("0x{n:x}"),
            None => hex_number(d),
        }
    }

    /// `1.2.3.4 . 80`, or a range of such values `1.2.3.4-1.2.3.9 . 80`.
    pub(crate) fn text(first: &Data, last: &Data, fields: &[Self]) -> String {
        if let [field] = fields {
            return field.one(first, last);
        }
        let (Some(from), Some(to)) = (split(first, fields), split(last, fields)) else {
            return match first == last {
                true => hex(&first.0),
                false => format!("{}-{}", hex(&first.0), hex(&last.0)),
            };
        };
        let ends = fields.iter().zip(from.iter().zip(&to));
        let texts: Vec<String> = ends.map(|(f, (a, b))| f.one(a, b)).collect();
        texts.join(" . ")
    }

    fn one(&self, first: &Data, last: &Data) -> String {
        match first == last {
            true => self.value(first),
            false if self.is_unnamed => format!("{}-{}", self.hex(first), self.hex(last)),
            false => {
                let (first, last) = (self.shifted(first), self.shifted(last));
                range(&first, &last, self.data_type, self.host_order)
            }
        }
    }
}

/// The fields of a value; `None` if their lengths do not add up.
fn split(d: &Data, fields: &[Field]) -> Option<Vec<Data>> {
    let mut rest = d.0.as_slice();
    let mut parts = Vec::new();
    for f in fields {
        // The last field may have no padding.
        let padded = f.len.next_multiple_of(4).min(rest.len());
        let (field, tail) = rest.split_at_checked(padded)?;
        parts.push(Data::from(field.get(..f.len)?));
        rest = tail;
    }
    rest.is_empty().then_some(parts)
}

/// `ipv4_addr . inet_service`
pub(super) fn name(t: DataType) -> String {
    let names: Vec<String> = types(t).into_iter().map(type_name).collect();
    names.join(" . ")
}
