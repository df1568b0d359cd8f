//! Delinearizes expressions to text, as `nft list ruleset` does.
//!
//! Each expression is evaluated symbolically: a load puts a [`Term`] into registers, and an expression that acts on
//! registers appends a statement. The file of an expression in [`expr`](super::expr) defines what it loads or appends.
//!
//! ```text
//! payload load => 1          register 1 is `tcp dport`
//! cmp eq 1 0x0050            the statement `tcp dport 80`; it implies `meta l4proto tcp` before it
//! ```
//! An expression that cannot be evaluated is listed as `opaque(NAME BYTES)`, and with it every load that it may use.
//! Nothing is left out but matches that a later keyword implies, as in nft's listing, also where nft takes more for implied than is.

mod relation;
mod term;

pub(crate) use relation::{Right, addresses};
pub(crate) use term::{Binary, Kind, Term};

use super::compat::Compat;
use super::context::{Context, Implied};
use super::display::{Field, by_bit, data_fields, element, hex, key_fields, order};
use super::expr::Expr;
use super::linearize;
use super::model::{AnonymousSet, Rule, Set, TableFamily};
use super::set::{Listed, by_element, is_host_order_data, is_host_order_key};
use super::{DataType, raw};
use term::Loaded;

/// Initial capacity of a rule's text in bytes: most rules are shorter.
const TEXT: usize = 128;
/// Registers of 32 bits (`NFT_REG32_COUNT`).
const REGISTERS: usize = 16;

/// Number of bytes of all registers: no value is longer.
pub(crate) const LONGEST: u32 = 64;

/// Maximum number of terms in one term. A term may be made of all registers, so its size could grow with every expression.
const TERMS: usize = 64;
/// Maximum number of elements of maps in a term that several expressions use: each of them lists all elements, and a rule has up
/// to 128 expressions.
const ELEMENTS: usize = 100;

/// The rule as `nft` lists it in a table of `family`.
pub(crate) fn rule_text(rule: &Rule, family: TableFamily) -> String {
    rule_text_in(rule, family, &[])
}

/// The same with the named sets of the table, which determine the types of the values that rules add to them.
pub(crate) fn rule_text_in(rule: &Rule, family: TableFamily, named: &[Set]) -> String {
    let linear = linearize::rule(rule, Context::of(family));
    let mut listing = Listing::of(&linear.exprs, &linear.sets, family);
    listing.named = named;
    let mut text = listing.whole();
    if let Some(rules) = &rule.chain {
        let rules = rules.iter().map(|r| rule_text_in(r, family, named) + "; ");
        text += &format!("{{ {}}}", rules.collect::<String>());
    }
    if let Some(comment) = &rule.comment {
        text += &format!(" comment \"{comment}\"");
    }
    text
}

/// Expressions as `nft` lists them in a table of `family`; lookups refer to `sets` by their index.
pub(crate) fn text(exprs: &[Expr], sets: &[AnonymousSet], family: TableFamily) -> String {
    Listing::of(exprs, sets, family).whole()
}

/// The text of what one expression loads into the first register, and how its values are displayed.
pub(crate) fn loaded(e: &Expr) -> Option<(String, Vec<Field>)> {
    let mut listing = Listing::of(std::slice::from_ref(e), &[], TableFamily::Inet);
    e.list(&mut listing)?;
    let term = listing.term(Some(raw::NFT_REG_1))?;
    let text = listing.text(&term);
    Some((text, listing.fields(&term)))
}

/// The text of one rule while its expressions are evaluated.
pub(crate) struct Listing<'a> {
    /// The family of the table.
    pub(crate) family: TableFamily,
    /// What the preceding matches imply about the packet.
    pub(crate) context: Context,
    sets: &'a [AnonymousSet],
    /// The named sets of the table; empty if the caller does not have them.
    named: &'a [Set],
    exprs: &'a [Expr],
    /// Index of the expression that is evaluated.
    at: usize,
    registers: [Option<Loaded>; REGISTERS],
    /// The statements, `None` for a match that a later one implies.
    texts: Vec<Option<String>>,
    /// Indexes of the matches that a later statement may imply.
    pending: Vec<(Implied, usize)>,
    /// The last statement, if it is a comparison that the next one may complete to a range.
    bound: Option<relation::Bound>,
}

/// The index of the first register of 32 bits. The registers of 128 bits are numbered 1 to 4, those of 32 bits from 8.
fn slot(register: u32) -> Option<usize> {
    let slot = match register {
        raw::NFT_REG_1..=raw::NFT_REG_4 => (register - raw::NFT_REG_1) * 4,
        n => n.checked_sub(raw::NFT_REG32_00)?,
    };
    usize::try_from(slot).ok().filter(|n| *n < REGISTERS)
}

impl<'a> Listing<'a> {
    fn of(exprs: &'a [Expr], sets: &'a [AnonymousSet], family: TableFamily) -> Self {
        Self {
            family,
            context: Context::of(family),
            sets,
            named: &[],
            exprs,
            at: 0,
            registers: Default::default(),
            texts: Vec::with_capacity(exprs.len()),
            pending: Vec::new(),
            bound: None,
        }
    }
}

impl Listing<'_> {
    /// The text of all expressions.
    fn whole(mut self) -> String {
        for (at, e) in self.exprs.iter().enumerate() {
            self.at = at;
            if e.list(&mut self).is_none() {
                self.opaque(e);
            }
        }
        self.flush();
        let mut text = String::with_capacity(TEXT);
        for part in self.texts.iter().flatten() {
            if !text.is_empty() {
                text.push(' ');
            }
            text += part;
        }
        text
    }

    /// A named set of the table; `None` if the caller does not have it.
    pub(crate) fn named(&self, name: &str) -> Option<&Set> {
        self.named.iter().find(|s| s.name == name)
    }

    /// The fields of the keys and of the values of a named set.
    pub(crate) fn fields_of_set(&self, name: &str) -> (Vec<Field>, Vec<Field>) {
        let set = self.named(name);
        let key = set.and_then(key_fields).unwrap_or_default();
        (key, set.and_then(data_fields).unwrap_or_default())
    }

    /// Puts a term into a register, unless it is longer than all registers, or made of too many terms.
    pub(crate) fn load(&mut self, register: Option<u32>, term: Term) -> Option<()> {
        let slot = slot(register?).filter(|_| term.len <= LONGEST && term.size() <= TERMS)?;
        let at = self.at;
        let old = self.registers.get_mut(slot)?.replace(Loaded {
            term,
            at,
            used_by: None,
        });
        if let Some(old) = old.filter(|old| old.used_by.is_none()) {
            self.unused(old.at);
        }
        Some(())
    }

    /// The term in a register.
    pub(crate) fn term(&mut self, register: Option<u32>) -> Option<Term> {
        self.used(slot(register?)?)
    }

    /// The term that begins in a register; `None` if another expression has listed its many elements already.
    fn used(&mut self, slot: usize) -> Option<Term> {
        let loaded = self.registers.get(slot)?.as_ref()?;
        let is_other = loaded.used_by.is_some_and(|by| by != self.at);
        if is_other && self.elements(&loaded.term) > ELEMENTS {
            return None;
        }
        let loaded = self.registers.get_mut(slot)?.as_mut()?;
        loaded.used_by = Some(self.at);
        Some(loaded.term.clone())
    }

    /// Whether nothing was loaded into a register since it was used.
    pub(crate) fn is_spent(&self, register: u32) -> bool {
        let loaded = slot(register).and_then(|slot| self.registers.get(slot)?.as_ref());
        loaded.is_none_or(|l| l.used_by.is_some())
    }

    /// The key that begins in a register: one term, or as many terms as fill `len` bytes; without a length, all terms that
    /// were loaded next to each other since the last statement.
    pub(crate) fn key(
        &mut self,
        register: Option<u32>,
        len: Option<u32>,
        end: Option<u32>,
    ) -> Option<Term> {
        let first = slot(register?)?;
        let end = end.and_then(slot).unwrap_or(REGISTERS);
        let len = match len {
            Some(len) => usize::try_from(len).ok()?,
            None => usize::MAX,
        };
        let (mut at, mut terms) = (first, Vec::new());
        while at < end && (terms.is_empty() || (at - first).saturating_mul(4) < len) {
            let loaded = self.registers.get(at)?.as_ref();
            let is_new = |l: &Loaded| terms.is_empty() || len != usize::MAX || l.used_by.is_none();
            if !loaded.is_some_and(is_new) {
                break;
            }
            let term = self.used(at)?;
            at += usize::try_from(term.len.div_ceil(4).max(1)).ok()?;
            terms.push(term);
        }
        if len != usize::MAX && (at - first).saturating_mul(4) < len {
            return None;
        }
        match terms.len() {
            0 => None,
            1 => terms.pop(),
            _ => Some(Term::concat(terms)),
        }
    }

    /// Appends a statement other than a match: the matches before it remain in the text.
    pub(crate) fn say(&mut self, text: impl Into<String>) -> Option<()> {
        self.pending.clear();
        self.say_map(text.into())
    }

    /// Appends a verdict map: as in nft, later statements may still imply the matches before it.
    pub(crate) fn say_map(&mut self, text: String) -> Option<()> {
        self.texts.push(Some(text));
        self.bound = None;
        Some(())
    }

    /// Removes the matches that the current statement implies.
    pub(crate) fn imply(&mut self, implied: &[Implied]) {
        let texts = &mut self.texts;
        self.pending.retain(|(what, at)| {
            let is_implied = implied.contains(what);
            if let Some(text) = texts.get_mut(*at).filter(|_| is_implied) {
                *text = None;
            }
            !is_implied
        });
    }

    /// Later statements imply no match before this point.
    pub(crate) fn keep_matches(&mut self) {
        self.pending.clear();
    }

    /// Later statements do not imply such a match before this point.
    fn keep(&mut self, what: Implied) {
        self.pending.retain(|(other, _)| *other != what);
    }

    /// Whether there is such a match that a later statement may imply.
    fn is_pending(&self, what: Implied) -> bool {
        self.pending.iter().any(|(implied, _)| *implied == what)
    }

    /// Records that a later statement may imply the last match.
    fn establish(&mut self, what: Implied) {
        self.keep(what);
        if what == Implied::Transport {
            self.keep(Implied::Protocol);
        }
        self.pending
            .push((what, self.texts.len().saturating_sub(1)));
    }

    /// Lists a match or target of xtables, or an expression of which only name and bytes are listed. It may have written any
    /// register, so an expression that uses one without another load is listed in the same way.
    fn opaque(&mut self, e: &Expr) {
        self.flush();
        let text = match Compat::read(e, self.family) {
            Some(compat) => compat.to_string(),
            None => raw_text(e),
        };
        self.registers = Default::default();
        self.say(text);
    }

    /// Lists the loads that nothing used.
    fn flush(&mut self) {
        let mut unused: Vec<usize> = Vec::new();
        for loaded in self.registers.iter_mut().flatten() {
            if loaded.used_by.is_none() {
                loaded.used_by = Some(self.at);
                unused.push(loaded.at);
            }
        }
        unused.sort_unstable();
        unused.into_iter().for_each(|at| self.unused(at));
    }

    fn unused(&mut self, at: usize) {
        if let Some(e) = self.exprs.get(at) {
            self.say(raw_text(e));
        }
    }

    /// The set of the rule that an expression refers to.
    pub(crate) fn anonymous(&self, id: Option<u32>) -> Option<&AnonymousSet> {
        self.sets.get(usize::try_from(id?).ok()?)
    }

    /// `@NAME`, or the elements of a map that belongs to the rule. If its keys are packet bytes without a name, `nft` lists
    /// them in decimal, unless they are part of a concatenation.
    pub(crate) fn map_text(&self, name: &str, id: Option<u32>, key: &Term) -> String {
        let mut fields = self.fields(key);
        if let [field] = fields.as_mut_slice() {
            field.is_unnamed = false;
        }
        self.set_text(name, id, &fields)
    }

    /// `@NAME`, or the elements of a set that belongs to the rule.
    pub(crate) fn set_text(&self, name: &str, id: Option<u32>, key: &[Field]) -> String {
        let Some(set) = self.anonymous(id) else {
            return format!("@{name}");
        };
        let flags = set.attrs.flags.unwrap_or(0);
        let key_type = DataType(set.attrs.key_type.unwrap_or(0));
        let interval = flags & raw::NFT_SET_INTERVAL != 0;
        // If addresses were written as bytes, nft lists numbers.
        let address = [DataType::IPV4_ADDR, DataType::IPV6_ADDR];
        let bytes = match key {
            [f] if key_type == DataType::INTEGER && address.contains(&f.data_type) => {
                Some([Field {
                    is_unnamed: flags & raw::NFT_SET_MAP == 0,
                    data_type: key_type,
                    ..f.clone()
                }])
            }
            _ => None,
        };
        let key = bytes.as_ref().map_or(key, |f| f.as_slice());
        let mut listed = Listed::default();
        listed.add(&set.elements);
        let host_order = is_host_order_key(&set.attrs);
        let (mut elements, unread) = listed.finish(interval, host_order, key_type);
        let is_bits = matches!(key, [field] if field.data_type.is_bits());
        if let ([Field { host_order, .. }], true) = (key, is_bits) {
            let is_map = flags & raw::NFT_SET_MAP != 0;
            elements.sort_by_key(|e| by_bit(e, *host_order, is_map));
        }
        let data = match set.attrs.data_type {
            Some(raw::NFT_DATA_VERDICT) | None => None,
            Some(t) => Field::of(DataType(t), set.attrs.data_len.unwrap_or(0)),
        };
        let is_host_order = is_host_order_data(&set.attrs);
        let data = data.map(|mut fields| {
            if let ([f], Some(host_order)) = (fields.as_mut_slice(), is_host_order) {
                f.host_order = host_order;
            }
            fields
        });
        let unread = by_element(&unread);
        let mut texts: Vec<String> = elements
            .iter()
            .map(|e| element(e, key, data.as_deref(), &unread))
            .collect();
        order(&mut texts, &elements, interval || is_bits);
        match texts.is_empty() {
            true => "{ }".to_owned(),
            false => format!("{{ {} }}", texts.join(", ")),
        }
    }
}

fn raw_text(e: &Expr) -> String {
    format!("opaque({} {})", e.name(), hex(&e.data()))
}

#[cfg(test)]
mod tests;
