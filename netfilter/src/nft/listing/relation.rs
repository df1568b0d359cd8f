//! Comparisons.

use super::term::implied_by;
use super::{Binary, Kind, Listing, Term};
use crate::nft::context;
use crate::nft::context::Implied;
use crate::nft::display::{Field, bound, hex_number, ordered, range, value};
use crate::nft::linearize::prefix_mask;
use crate::nft::model::{CmpOp, CtKey, Data, DataType, MetaKey, Selector, TableFamily};
use crate::nft::raw;
use weir_netlink::attr::text_of;

/// What a term is compared with.
pub(crate) enum Right {
    /// One value
    Value(Data),
    /// From the first to the last
    Range(Data, Data),
    /// A set by its name, or by its index in the rule
    Set(String, Option<u32>),
}

/// A comparison that the next one may complete to a range: `>= A`, then `<= B`.
pub(super) struct Bound {
    left: String,
    op: CmpOp,
    data: Data,
}

impl Listing<'_> {
    /// Appends a match.
    pub(crate) fn relation(&mut self, left: &Term, op: CmpOp, right: &Right) -> Option<()> {
        if let (Kind::Selector(s @ Selector::Payload { .. }), Right::Value(d)) = (&left.kind, right)
            && matches!(op, CmpOp::Eq | CmpOp::Neq)
        {
            self.bound = None;
            let parts = match op {
                CmpOp::Eq => self.context.split(s, d),
                _ => None,
            };
            let parts = parts.unwrap_or_else(|| vec![(s.clone(), d.clone())]);
            parts.iter().for_each(|(s, d)| self.payload(s, op, d));
            return Some(());
        }
        let Right::Value(d) = right else {
            return self.many(left, op, right);
        };
        let before = self.bound.take();
        if let Some(text) = self.special(left, op, d) {
            return self.matched(text);
        }
        let name = self.name(left);
        if let Some(text) = before.and_then(|b| self.completed(&b, &name, op, d, left)) {
            self.texts.pop();
            return self.matched(text);
        }
        let right = match (source(left), op) {
            (Some(s), CmpOp::Lt | CmpOp::Lte | CmpOp::Gt | CmpOp::Gte) => {
                let turned = left.host_order != context::key(s)?.host_order;
                match self.context.field(s) {
                    None if is_payload(s) => self.typed_value(d, left),
                    _ => ordered(d, left.data_type, left.host_order, turned),
                }
            }
            _ => self.typed_value(d, left),
        };
        let is_eq = self.is_operation(left) || (left.data_type.is_bits() && !right.contains(" | "));
        self.matched(format!("{name} {}{right}", sign(op, is_eq)));
        match op {
            CmpOp::Gte | CmpOp::Lt => {
                let data = d.clone();
                self.bound = Some(Bound {
                    left: name,
                    op,
                    data,
                });
            }
            CmpOp::Eq => self.note(left, d),
            _ => {}
        }
        Some(())
    }

    /// Whether `==` is printed after a term: the term is an operation, and its byte order was not changed.
    fn is_operation(&self, t: &Term) -> bool {
        match &t.kind {
            Kind::Binary(of, ..) => self.has_sign(t) && of.host_order == t.host_order,
            _ => false,
        }
    }

    fn matched(&mut self, text: String) -> Option<()> {
        self.texts.push(Some(text));
        self.bound = None;
        Some(())
    }

    /// The range of two bounds.
    fn completed(
        &self,
        b: &Bound,
        name: &str,
        op: CmpOp,
        last: &Data,
        left: &Term,
    ) -> Option<String> {
        let op = match (b.op, op) {
            (CmpOp::Gte, CmpOp::Lte) => CmpOp::Eq,
            (CmpOp::Lt, CmpOp::Gt) => CmpOp::Neq,
            _ => return None,
        };
        let is_eq = self.is_operation(left);
        let range = self.range_text(&b.data, last, left);
        (b.left == name).then(|| format!("{name} {}{range}", sign(op, is_eq)))
    }

    fn range_text(&self, first: &Data, last: &Data, left: &Term) -> String {
        let fields = self.fields(left);
        let [f] = fields.as_slice() else {
            return Field::text(first, last, &fields);
        };
        let end = |d: &Data| match f.is_unnamed {
            true => hex_number(d),
            false => bound(&f.shifted(d), f.data_type, f.host_order),
        };
        format!("{}-{}", end(first), end(last))
    }

    /// A comparison with a range or a set.
    fn many(&mut self, left: &Term, op: CmpOp, with: &Right) -> Option<()> {
        let fields = self.fields(left);
        let is_eq = self.is_operation(left);
        let name = match with {
            Right::Set(_, id) => self.key_text(left, *id),
            _ => self.name(left),
        };
        let right = match with {
            Right::Range(first, last) => self.range_text(first, last, left),
            // nft lists bits of packet bytes without a name as numbers in a set.
            Right::Set(set, id) if is_eq => self.map_text(set, *id, left),
            Right::Set(set, id) => self.set_text(set, *id, &fields),
            Right::Value(_) => return None,
        };
        if let (Kind::Selector(s), CmpOp::Eq, Right::Set(_, id)) = (&left.kind, op, with)
            && let Some(set) = id.and_then(|id| self.sets.get(usize::try_from(id).ok()?))
        {
            self.context.note_any(s, set);
        }
        self.matched(format!("{name} {}{right}", sign(op, is_eq)))
    }

    /// A comparison of a field of a header, which may be shorter than the field: the first bytes of an address.
    fn payload(&mut self, s: &Selector, op: CmpOp, d: &Data) {
        let field = self.context.compared(s);
        let implied = implied_by(s, field);
        let right = match field {
            None => hex_number(d),
            Some(f) if f.len as usize > d.0.len() * 8 => {
                let mut whole = d.clone();
                whole.0.resize(f.len as usize / 8, 0);
                format!("{}/{}", value(&whole, f.data_type, false), d.0.len() * 8)
            }
            // nft 1.0.6 names one bit only.
            Some(f) if f.data_type.is_bits() && d.to_be().is_some_and(|n| n.count_ones() != 1) => {
                hex_number(d)
            }
            Some(f) => value(d, f.data_type, false),
        };
        let is_eq = field.is_some_and(|f| f.data_type.is_bits());
        let name = field.map_or_else(|| self.selector(s), |f| format!("{} {}", f.header, f.name));
        let fixes_family = matches!(
            self.family,
            TableFamily::Ip | TableFamily::Ip6 | TableFamily::Arp
        );
        self.imply(match field.map(|f| (f.header, f.name)) {
            // The EtherType after a VLAN header may also follow another header.
            Some(("vlan", "type")) if !fixes_family => &[],
            _ => implied,
        });
        self.texts
            .push(Some(format!("{name} {}{right}", sign(op, is_eq))));
        if op != CmpOp::Eq {
            return;
        }
        let established = self.context.establishes(s, d);
        match field.map(|f| (f.header, f.data_type)) {
            // Elsewhere `ip protocol` also implies the family.
            Some(("ip" | "ip6", DataType::INET_PROTO)) if fixes_family => {
                self.establish(Implied::Transport);
            }
            // As nft, keeps both this match and one of `meta l4proto` before it.
            Some(("ip" | "ip6", DataType::INET_PROTO)) => {
                self.keep(Implied::Transport);
                self.establish(Implied::Protocol);
            }
            _ => {}
        }
        if let Some(what) = established {
            self.establish(what);
        }
        self.context.note(s, d);
    }

    /// Records what a comparison that holds implies.
    fn note(&mut self, left: &Term, d: &Data) {
        let Kind::Selector(s) = &left.kind else {
            return;
        };
        // `meta l4proto icmp` implies IPv4.
        let is_family = |family| self.context.nfproto == Some(family);
        // In a family of one header, what repeats the family is implied.
        let of_table = context::Context::of(self.family).nfproto;
        let is_of_table = self.context.nfproto == of_table && !self.context.arp;
        let implied: &[Implied] = match (s, d.0.as_slice()) {
            (Selector::Meta(MetaKey::L4proto), [raw::IPPROTO_ICMP])
                if is_family(raw::NFPROTO_IPV4) =>
            {
                &[Implied::Network]
            }
            (Selector::Meta(MetaKey::L4proto), [raw::IPPROTO_ICMPV6])
                if is_family(raw::NFPROTO_IPV6) =>
            {
                &[Implied::Network]
            }
            (Selector::Meta(MetaKey::Nfproto | MetaKey::Protocol), _) => &[Implied::Link],
            (Selector::Meta(MetaKey::L4proto), _) if of_table.is_some() && is_of_table => {
                &[Implied::Network]
            }
            // As in nft, also that the packet is of the other family.
            (Selector::Ct(CtKey::Src | CtKey::Dst | CtKey::Protocol, _), _)
                if of_table.is_none() || is_of_table =>
            {
                &[Implied::Network]
            }
            _ => &[],
        };
        let established = self.context.establishes(s, d);
        let is_only_key = implied != [Implied::Link] || !self.is_pending(Implied::Network);
        if is_only_key {
            self.imply(implied);
        }
        if let Some(what) = established {
            self.establish(what);
        }
        self.context.note(s, d);
    }

    /// Comparisons that have their own notation: of the first bytes or bits of a field, and of flags.
    fn special(&mut self, left: &Term, op: CmpOp, d: &Data) -> Option<String> {
        if let (Kind::Exthdr(e), CmpOp::Eq | CmpOp::Neq) = (&left.kind, op)
            && let Some((name, len)) = e.front()
        {
            let mut whole = d.clone();
            whole.0.resize(len, 0);
            let value = value(&whole, DataType::IPV6_ADDR, false);
            self.imply(e.implies());
            let bits = d.0.len() * 8;
            return Some(format!("{name} {}{value}/{bits}", sign(op, false)));
        }
        match &left.kind {
            Kind::Binary(of, Binary::And, mask) => {
                if matches!(op, CmpOp::Eq | CmpOp::Neq) && left.data_type.is_bits() {
                    return self.flags(of, mask, op, d);
                }
                let len = prefix_len(mask, of)?;
                let value = value(d, left.data_type, left.host_order);
                Some(format!(
                    "{} {}{value}/{len}",
                    self.text(of),
                    sign(op, false)
                ))
            }
            Kind::Binary(..) | Kind::Concat(_) => None,
            _ if d.0.len() >= left.len as usize => None,
            _ if matches!(left.data_type, DataType::IFNAME | DataType::STRING) => {
                let prefix = (!d.0.contains(&0)).then(|| text_of(&d.0))?;
                Some(format!(
                    "{} {}\"{prefix}*\"",
                    self.text(left),
                    sign(op, false)
                ))
            }
            _ => {
                let (name, bits) = (self.text(left), d.0.len() * 8);
                let mut whole = d.clone();
                whole.0.resize(left.len as usize, 0);
                let value = value(&whole, left.data_type, left.host_order);
                Some(format!("{name} {}{value}/{bits}", sign(op, false)))
            }
        }
    }

    /// `ct state new`, `tcp flags ! syn`, `tcp flags syn / syn,ack`
    fn flags(&mut self, of: &Term, mask: &Data, op: CmpOp, d: &Data) -> Option<String> {
        let list = |d: &Data| self.typed_value(d, of).replace(" | ", ",");
        let (flags, bits) = (list(d), list(mask));
        if d.0.iter().all(|b| *b == 0) {
            let sign = if op == CmpOp::Neq { "" } else { "! " };
            return Some(format!("{} {sign}{bits}", self.text(of)));
        }
        let is_one = mask.0.iter().map(|b| b.count_ones()).sum::<u32>() == 1;
        (!is_one || mask != d)
            .then(|| format!("{} {}{flags} / {bits}", self.text(of), sign(op, false)))
    }
}

/// The selector whose value is compared, or an operation on a value that is not of the packet.
fn source(t: &Term) -> Option<&Selector> {
    match &t.kind {
        Kind::Selector(s) => Some(s),
        Kind::Binary(of, ..) => source(of).filter(|s| !is_payload(s)),
        _ => None,
    }
}

fn is_payload(s: &Selector) -> bool {
    matches!(s, Selector::Payload { .. })
}

/// The number of leading bits that a mask selects, of a type whose prefixes have a notation.
fn prefix_len(mask: &Data, left: &Term) -> Option<u8> {
    if !left.data_type.has_prefixes() {
        return None;
    }
    let mask: Vec<u8> = match left.host_order && cfg!(target_endian = "little") {
        true => mask.0.iter().rev().copied().collect(),
        false => mask.0.to_vec(),
    };
    let bits = u8::try_from(mask.len() * 8).ok()?;
    (0..=bits).find(|n| prefix_mask(mask.len(), *n) == mask)
}

fn sign(op: CmpOp, is_eq: bool) -> &'static str {
    match op {
        CmpOp::Eq if is_eq => "== ",
        CmpOp::Eq => "",
        CmpOp::Neq => "!= ",
        CmpOp::Lt => "< ",
        CmpOp::Lte => "<= ",
        CmpOp::Gt => "> ",
        CmpOp::Gte => ">= ",
    }
}

/// Two values as a range, or as a network if the range is one.
pub(crate) fn addresses(first: &Data, last: &Data, t: DataType) -> String {
    range(first, last, t, false)
}
