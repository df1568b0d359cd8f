//! The symbolic content of registers.

use super::Listing;
use crate::nft::context::Implied;
use crate::nft::display::{Field, name_of_base, value};
use crate::nft::expr::{self, Expr, Exthdr, Key};
use crate::nft::headers;
use crate::nft::model::{Data, DataType, PayloadBase, Selector};

/// A term and the expression that loaded it.
#[derive(Clone, Debug)]
pub(super) struct Loaded {
    pub(super) term: Term,
    /// Index of the expression.
    pub(super) at: usize,
    /// Index of the last expression that refers to it.
    pub(super) used_by: Option<usize>,
}

/// The content of a register.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Term {
    pub(crate) kind: Kind,
    pub(crate) data_type: DataType,
    /// The byte order of a number in it.
    pub(crate) host_order: bool,
    /// Number of bytes; 0 if nothing determines it.
    pub(crate) len: u32,
}

/// How the content was made.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Kind {
    /// A fixed value
    Value(Data),
    /// Loaded from the packet or its context
    Selector(Selector),
    /// Loaded from an extension header, an option or a chunk
    Exthdr(Box<Exthdr>),
    /// A value that is listed by its keyword
    Named(String),
    /// `LEFT & VALUE` and similar
    Binary(Box<Term>, Binary, Data),
    /// Several terms side by side
    Concat(Vec<Term>),
    /// `KEY map NAME`; the set's name and its index in the rule
    Map(Box<Term>, String, Option<u32>),
    /// `jhash KEY mod 2`: the text after the key
    Hash(Box<Term>, String),
}

/// An operation of two values, in the order of precedence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Binary {
    /// `<<`
    Lshift,
    /// `>>`
    Rshift,
    /// `&`
    And,
    /// `^`
    Xor,
    /// `|`
    Or,
}

impl Binary {
    fn sign(self) -> &'static str {
        match self {
            Self::Lshift => "<<",
            Self::Rshift => ">>",
            Self::And => "&",
            Self::Xor => "^",
            Self::Or => "|",
        }
    }

    fn precedence(self) -> u8 {
        match self {
            Self::Lshift | Self::Rshift => 1,
            Self::And => 2,
            Self::Xor => 3,
            Self::Or => 4,
        }
    }
}

impl Term {
    /// A fixed value, whose type the statement that uses it determines.
    pub(crate) fn value(data: Data) -> Self {
        let len = u32::try_from(data.0.len()).unwrap_or(0);
        Self {
            kind: Kind::Value(data),
            data_type: DataType::INTEGER,
            host_order: true,
            len,
        }
    }

    /// A value that is listed by its keyword.
    pub(crate) fn named(text: String, key: Key) -> Self {
        Self {
            kind: Kind::Named(text),
            data_type: key.data_type,
            host_order: key.host_order,
            len: key.len,
        }
    }

    pub(super) fn concat(terms: Vec<Self>) -> Self {
        let len = terms.iter().map(|t| t.len.next_multiple_of(4)).sum();
        Self {
            kind: Kind::Concat(terms),
            data_type: DataType::INTEGER,
            host_order: false,
            len,
        }
    }

    /// The same with the type of the operand: only a fixed value takes it.
    pub(crate) fn typed(mut self, data_type: DataType, host_order: bool) -> Self {
        match &mut self.kind {
            Kind::Value(_) => (self.data_type, self.host_order) = (data_type, host_order),
            Kind::Binary(left, ..) => **left = (**left).clone().typed(data_type, host_order),
            _ => {}
        }
        self
    }

    /// The same with the type of the value of a key.
    pub(crate) fn typed_by(self, key: Key) -> Self {
        self.typed(key.data_type, key.host_order)
    }

    /// The same with the types of the fields of a key. Without fields, a number of two bytes is taken for a port in network
    /// order.
    pub(crate) fn typed_as(self, fields: &[Field]) -> Self {
        let mut terms = match self.kind {
            Kind::Concat(terms) => terms,
            _ => vec![self],
        };
        let lens = terms.iter().map(|t| usize::try_from(t.len).unwrap_or(0));
        let fits = lens.eq(fields.iter().map(|f| f.len));
        for (i, t) in terms.iter_mut().enumerate() {
            let field = fields.get(i).filter(|_| fits);
            let of = field.map(|f| (f.data_type, f.host_order));
            let (data_type, host_order) = of.unwrap_or((DataType::INTEGER, t.len != 2));
            *t = t.clone().typed(data_type, host_order);
        }
        match terms.len() {
            1 => terms.remove(0),
            _ => Self::concat(terms),
        }
    }

    /// Number of terms that it is made of.
    pub(super) fn size(&self) -> usize {
        match &self.kind {
            Kind::Binary(of, ..) | Kind::Map(of, ..) | Kind::Hash(of, _) => 1 + of.size(),
            Kind::Concat(terms) => terms.iter().map(Self::size).sum(),
            _ => 1,
        }
    }

    /// The term of a binary operation with a fixed value.
    pub(crate) fn binary(self, op: Binary, right: Data) -> Self {
        let (data_type, host_order, len) = (self.data_type, self.host_order, self.len);
        Self {
            kind: Kind::Binary(Box::new(self), op, right),
            data_type,
            host_order,
            len,
        }
    }
}

impl Listing<'_> {
    /// The text of a term; matches that it implies are removed.
    pub(crate) fn text(&mut self, t: &Term) -> String {
        match &t.kind {
            Kind::Value(d) => value(d, t.data_type, t.host_order),
            Kind::Selector(s) => {
                let implied = self.implied_by(s, None);
                self.imply(implied);
                self.selector(s)
            }
            Kind::Exthdr(e) => {
                self.imply(e.implies());
                // Only the bits that a mask selects may have a name, not the whole load.
                let named = e.text(None).map(|(text, _)| text);
                named.unwrap_or_else(|| super::raw_text(&Expr::Exthdr((**e).clone())))
            }
            Kind::Named(text) => text.clone(),
            Kind::Binary(..) if self.bits(t).is_some_and(|(_, right)| right == 0) => self.name(t),
            Kind::Binary(left, op, right) => self.binary(left, *op, right),
            Kind::Concat(terms) => {
                let texts: Vec<String> = terms.iter().map(|t| self.text(t)).collect();
                texts.join(" . ")
            }
            Kind::Map(key, name, id) => {
                let text = self.key_text(key, *id);
                format!("{text} map {}", self.map_text(name, *id, key))
            }
            Kind::Hash(key, rest) => format!("jhash {} {rest}", self.text(key)),
        }
    }

    /// The text of a term whose values are displayed without the bits to their right.
    pub(crate) fn name(&mut self, t: &Term) -> String {
        match &t.kind {
            Kind::Binary(of, Binary::Rshift, _) if self.bits(t).is_some() => self.name(of),
            Kind::Binary(of, Binary::And, mask) if self.bits(t).is_some() => {
                self.masked_text(of, mask).unwrap_or_default()
            }
            Kind::Concat(terms) => {
                let texts: Vec<String> = terms.iter().map(|t| self.name(t)).collect();
                texts.join(" . ")
            }
            _ => self.text(t),
        }
    }

    /// The text of a key. The elements of a named set are displayed elsewhere, with all their bits.
    pub(crate) fn key_text(&mut self, key: &Term, id: Option<u32>) -> String {
        match self.anonymous(id) {
            Some(_) => self.name(key),
            None => self.text(key),
        }
    }

    fn binary(&mut self, left: &Term, op: Binary, right: &Data) -> String {
        let bits = self.bits(left);
        let mut text = self.text(left);
        if let Kind::Binary(_, inner, _) = &left.kind
            && inner.precedence() > op.precedence()
            && bits.is_none_or(|(_, right)| right > 0)
        {
            text = format!("({text})");
        }
        let right = match op {
            Binary::Lshift | Binary::Rshift => right.to_ne().unwrap_or(0).to_string(),
            _ => self.operand(left).value(right),
        };
        match op.precedence() < Binary::Or.precedence() && right.contains(" | ") {
            true => format!("{text} {} ({right})", op.sign()),
            false => format!("{text} {} {right}", op.sign()),
        }
    }

    /// The text of a value that is compared with a term.
    pub(crate) fn typed_value(&self, d: &Data, t: &Term) -> String {
        match &t.kind {
            Kind::Concat(_) => Field::text(d, d, &self.fields(t)),
            _ => self.field(t).value(d),
        }
    }

    /// How the values of a term are displayed: several fields if it is a concatenation.
    pub(crate) fn fields(&self, t: &Term) -> Vec<Field> {
        match &t.kind {
            Kind::Concat(terms) => terms.iter().flat_map(|t| self.fields(t)).collect(),
            _ => vec![self.field(t)],
        }
    }

    fn field(&self, t: &Term) -> Field {
        let one = Field {
            data_type: t.data_type,
            len: usize::try_from(t.len).unwrap_or(0),
            // One byte has no order, but the constants of operations on it are longer.
            host_order: t.host_order || t.len == 1,
            right: 0,
            is_unnamed: false,
        };
        match &t.kind {
            Kind::Binary(left, op, _) => match (self.bits(t), op) {
                (Some((data_type, right)), _) => Field {
                    data_type,
                    right,
                    ..one
                },
                (None, Binary::Lshift | Binary::Rshift) => Field {
                    is_unnamed: t.data_type == DataType::INTEGER,
                    ..one
                },
                (None, _) => Field {
                    host_order: one.host_order,
                    ..self.operand(left)
                },
            },
            Kind::Selector(s @ Selector::Payload { .. }) => Field {
                is_unnamed: self.context.field(s).is_none(),
                ..one
            },
            _ => one,
        }
    }

    /// How the right operand of a term is displayed.
    fn operand(&self, left: &Term) -> Field {
        let field = self.field(left);
        Field {
            right: 0,
            is_unnamed: field.is_unnamed || field.right > 0,
            ..field
        }
    }

    /// If a term consists of bits of a header that have a name: their type, and the number of bits to their right. `nft` shifts
    /// them right, unless the values that they are compared with are shifted left.
    pub(super) fn bits(&self, t: &Term) -> Option<(DataType, u32)> {
        match &t.kind {
            Kind::Binary(of, Binary::And, mask) => self.field_of(of, mask),
            Kind::Binary(of, Binary::Rshift, n) => {
                let (data_type, right) = self.bits(of)?;
                (right > 0 && n.to_ne() == Some(right.into())).then_some((data_type, 0))
            }
            _ => None,
        }
    }

    /// Number of elements of the rule's maps in a term.
    pub(super) fn elements(&self, t: &Term) -> usize {
        match &t.kind {
            Kind::Map(key, _, id) => {
                self.anonymous(*id).map_or(0, |s| s.elements.len()) + self.elements(key)
            }
            Kind::Binary(of, ..) | Kind::Hash(of, _) => self.elements(of),
            Kind::Concat(terms) => terms.iter().map(|t| self.elements(t)).sum(),
            _ => 0,
        }
    }

    /// Whether the name of a term contains an operator.
    pub(super) fn has_sign(&self, t: &Term) -> bool {
        matches!(t.kind, Kind::Binary(..)) && self.bits(t).is_none()
    }

    /// The type of the named bits that a mask selects, and the number of bits to their right.
    pub(crate) fn field_of(&self, left: &Term, mask: &Data) -> Option<(DataType, u32)> {
        match &left.kind {
            Kind::Selector(s) => {
                let (field, right) = self.context.masked(s, mask)?;
                Some((field.data_type, right))
            }
            Kind::Exthdr(e) => {
                let (right, _) = e.masked(mask)?;
                Some((DataType::INTEGER, right))
            }
            _ => None,
        }
    }

    /// The name of the bits that a mask selects.
    pub(super) fn masked_text(&mut self, left: &Term, mask: &Data) -> Option<String> {
        match &left.kind {
            Kind::Selector(s) => {
                let implied = self.implied_by(s, Some(mask));
                let (field, _) = self.context.masked(s, mask)?;
                self.imply(implied);
                Some(format!("{} {}", field.header, field.name))
            }
            Kind::Exthdr(e) => {
                self.imply(e.implies());
                Some(e.masked(mask)?.1)
            }
            _ => None,
        }
    }

    pub(super) fn selector(&self, s: &Selector) -> String {
        match s {
            Selector::Payload { base, offset, len } => match self.context.field(s) {
                Some(f) => format!("{} {}", f.header, f.name),
                None => {
                    // The kernel counts in bytes, nft in bits: the number may exceed 32 bits.
                    let [offset, len] = [*offset, *len].map(|bytes| u64::from(bytes) * 8);
                    format!("@{},{offset},{len}", name_of_base(*base))
                }
            },
            Selector::Meta(key) => key.to_string(),
            Selector::Ct(key, direction) => expr::ct::text(*key, *direction, self.context.nfproto),
            Selector::Socket(key, level) => expr::socket::text(*key, *level),
            Selector::Fib { flags, result } => expr::fib::text(*flags, *result),
        }
    }

    /// The matches that a keyword implies.
    fn implied_by(&self, s: &Selector, mask: Option<&Data>) -> &'static [Implied] {
        let field = self.context.field(s);
        implied_by(s, field.or_else(|| Some(self.context.masked(s, mask?)?.0)))
    }
}

/// The matches that a field implies: `tcp dport` implies `meta l4proto tcp`.
pub(super) fn implied_by(s: &Selector, field: Option<&headers::Field>) -> &'static [Implied] {
    let Selector::Payload { base, .. } = s else {
        return &[];
    };
    match (base, field.map(|f| (f.header, f.name))) {
        (PayloadBase::LinkLayer, Some(("vlan", _))) => &[Implied::Link, Implied::Vlan],
        (PayloadBase::LinkLayer, _) => &[Implied::Link],
        (_, None | Some(("th", _))) => &[],
        (
            _,
            Some((
                "icmp" | "icmpv6",
                "mtu" | "gateway" | "parameter-problem" | "max-delay" | "daddr",
            )),
        ) => &[Implied::Transport, Implied::IcmpType],
        (PayloadBase::Network, _) => &[Implied::Network],
        _ => &[Implied::Transport],
    }
}
