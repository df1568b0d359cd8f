//! Delinearizes expressions to statements.
//!
//! A statement is accepted only if linearizing it gives exactly the expressions that it was decoded from (in their
//! [normalized](Expr::normalize) form). Every other expression remains [`Statement::Opaque`]. So no listing shows less
//! than the kernel holds, and no comparison ignores anything.

use super::context::{self, Context, host_width};
use super::expr::{DataAttrs, Expr, Registers, VerdictAttrs};
use super::linearize::{self, Linear, prefix_mask};
use super::model::{
    AnonymousSet, CmpOp, CtDirection, Data, DataType, Masquerade, Match, MetaKey, Nat, Operand,
    Redirect, Rule, Selector, Source, Statement, Tproxy, Verdict,
};
use super::{raw, set};

/// Finds an anonymous set by its name.
pub(crate) type AnonymousSets<'a> = &'a dyn Fn(&str) -> Option<&'a AnonymousSet>;

/// Delinearizes a rule's expressions.
pub(crate) fn rule(mut exprs: Vec<Expr>, mut context: Context, sets: AnonymousSets<'_>) -> Rule {
    exprs.iter_mut().for_each(Expr::normalize);
    let mut linear = Linear::default();
    let mut rest = exprs.as_slice();
    let mut statements = Vec::new();
    while let Some((first, tail)) = rest.split_first() {
        let mut is_exact = |(s, n): &(Statement, usize)| {
            linear.clear();
            linearize::statement(s, context, &mut linear);
            linear.exprs.iter_mut().for_each(Expr::normalize);
            rest.get(..*n)
                .is_some_and(|read| is_same(&linear.exprs, read))
        };
        let read = statement(rest, context, sets).filter(&mut is_exact);
        match read {
            Some((s, n)) => {
                if let Statement::Match(m) = &s {
                    context.note_match(m);
                }
                statements.push(s);
                rest = rest.get(n..).unwrap_or_default();
            }
            None => {
                match statements.last_mut() {
                    Some(Statement::Opaque(exprs)) => exprs.push(first.clone()),
                    _ => statements.push(Statement::Opaque(vec![first.clone()])),
                }
                rest = tail;
            }
        }
    }
    Rule {
        sets: keep(&mut statements, sets),
        statements,
        ..Rule::default()
    }
}

/// The anonymous sets to which expressions without a statement refer. The expressions are changed to refer to them by
/// index, because the kernel chooses new names when the rule is written.
fn keep(statements: &mut [Statement], sets: AnonymousSets<'_>) -> Vec<AnonymousSet> {
    let (mut kept, mut names) = (Vec::new(), Vec::new());
    let opaque = statements.iter_mut().filter_map(|s| match s {
        Statement::Opaque(exprs) => Some(exprs),
        _ => None,
    });
    for e in opaque.flatten() {
        let Some((name, id)) = e.set() else {
            continue;
        };
        if let Some(set) = name.as_deref().and_then(sets) {
            let known = names.iter().position(|n| *n == *name);
            *id = u32::try_from(known.unwrap_or(kept.len())).ok();
            if known.is_none() {
                names.push(name.clone());
                kept.push(set.clone());
            }
            name.clone_from(&set.attrs.name);
        }
    }
    kept
}

/// Whether the linearized expressions are exactly those that were read.
fn is_same(linear: &[Expr], read: &[Expr]) -> bool {
    let mut pairs = linear.iter().zip(read);
    linear.len() == read.len() && pairs.all(|(a, b)| a == b || same_anonymous(a, b))
}

/// Whether both look up the same anonymous set: the sent and the listed expression differ in its name.
fn same_anonymous(sent: &Expr, listed: &Expr) -> bool {
    match (sent, listed) {
        (Expr::Lookup(a), Expr::Lookup(b)) if a.set.as_deref() == Some(linearize::ANONYMOUS) => {
            let mut a = a.clone();
            a.set.clone_from(&b.set);
            a == *b
        }
        _ => false,
    }
}

/// One statement and the number of its expressions.
fn statement(e: &[Expr], context: Context, sets: AnonymousSets<'_>) -> Option<(Statement, usize)> {
    if let Some(selector) = loaded(e.first()?) {
        return after_load(&selector, e, context, sets);
    }
    match e {
        [Expr::Immediate(i), ..] if i.dreg == Some(raw::NFT_REG_VERDICT) => {
            let v = verdict(i.data.as_ref()?.verdict.as_ref()?);
            Some((Statement::Verdict(v), 1))
        }
        [Expr::Immediate(i), next, ..] => match stored(next) {
            Some(store) => Some((store(Source::Value(value(i.data.as_ref())?)), 2)),
            None => from_registers(e),
        },
        [
            Expr::Redir(_) | Expr::Masq(_) | Expr::Nat(_) | Expr::Tproxy(_),
            ..,
        ] => from_registers(e),
        [Expr::Notrack, ..] => Some((Statement::Notrack, 1)),
        [Expr::Counter(c), ..] if c.unknown.is_empty() => Some((Statement::Counter(c.clone()), 1)),
        [Expr::Log(l), ..] if l.unknown.is_empty() => Some((Statement::Log(l.clone()), 1)),
        [Expr::Limit(l), ..] if l.is_known() => Some((Statement::Limit(l.clone()), 1)),
        [Expr::Reject(r), ..] if r.is_known() => Some((Statement::Reject(r.clone()), 1)),
        _ => None,
    }
}

/// A statement whose values are in several registers.
fn from_registers(e: &[Expr]) -> Option<(Statement, usize)> {
    let (r, last) = Registers::read(e)?;
    let statement = match last {
        Expr::Redir(x) => Statement::Redirect(Redirect::delinearize(x, &r)?),
        Expr::Masq(x) => Statement::Masquerade(Masquerade::delinearize(x, &r)?),
        Expr::Nat(x) => Statement::Nat(Nat::delinearize(x, &r)?),
        Expr::Tproxy(x) => Statement::Tproxy(Tproxy::delinearize(x, &r)?),
        _ => return None,
    };
    Some((statement, r.count() + 1))
}

/// The selector that an expression loads into register 1.
fn loaded(e: &Expr) -> Option<Selector> {
    let selector = match e {
        Expr::Meta(m) if m.dreg == Some(raw::NFT_REG_1) => Selector::Meta(m.key?.into()),
        Expr::Payload(p) if p.dreg == Some(raw::NFT_REG_1) => Selector::Payload {
            base: p.base?.into(),
            offset: p.offset?,
            len: p.len?,
        },
        Expr::Ct(c) if c.dreg == Some(raw::NFT_REG_1) => {
            Selector::Ct(c.key?.into(), c.direction.map(CtDirection::from))
        }
        Expr::Socket(s) if s.dreg == Some(raw::NFT_REG_1) => {
            Selector::Socket(s.key?.into(), s.level)
        }
        Expr::Fib(f) if f.dreg == Some(raw::NFT_REG_1) => Selector::Fib {
            flags: f.flags?,
            result: f.result?.into(),
        },
        _ => return None,
    };
    context::key(&selector).map(|_| selector)
}

/// The selector in the first register after these expressions; `None` unless it is certain.
pub(crate) fn first_loaded(exprs: &[Expr]) -> Option<Selector> {
    // The other parts of a concatenation are loaded into registers after its first 32 bits.
    let is_other = |e: &&Expr| {
        let to = match e {
            Expr::Meta(m) => m.dreg,
            Expr::Payload(p) => p.dreg,
            Expr::Ct(c) => c.dreg,
            _ => None,
        };
        to > Some(raw::NFT_REG32_00)
    };
    loaded(exprs.iter().rev().find(|e| !is_other(e))?)
}

/// The statement by which an expression stores register 1, once the source is known.
fn stored(e: &Expr) -> Option<Box<dyn FnOnce(Source) -> Statement>> {
    match e {
        Expr::Meta(m) if m.sreg == Some(raw::NFT_REG_1) => {
            let key = MetaKey::from(m.key?);
            key.key()?;
            Some(Box::new(move |source| Statement::MetaSet(key, source)))
        }
        Expr::Ct(c) if c.sreg == Some(raw::NFT_REG_1) => {
            let (key, direction) = (c.key?.into(), c.direction.map(CtDirection::from));
            context::key(&Selector::Ct(key, direction))?;
            Some(Box::new(move |source| {
                Statement::CtSet(key, direction, source)
            }))
        }
        _ => None,
    }
}

fn value(data: Option<&DataAttrs>) -> Option<Data> {
    data?.value.as_deref().map(Data::from)
}

pub(crate) fn verdict(v: &VerdictAttrs) -> Verdict {
    match (v.code.unwrap_or(raw::NFT_CONTINUE), &v.chain) {
        (raw::NF_ACCEPT, _) => Verdict::Accept,
        (raw::NF_DROP, _) => Verdict::Drop,
        (raw::NFT_CONTINUE, _) => Verdict::Continue,
        (raw::NFT_RETURN, _) => Verdict::Return,
        (raw::NFT_JUMP, Some(chain)) => Verdict::Jump(chain.clone()),
        (raw::NFT_GOTO, Some(chain)) => Verdict::Goto(chain.clone()),
        (code, _) => Verdict::Other(code),
    }
}

fn after_load(
    selector: &Selector,
    e: &[Expr],
    context: Context,
    sets: AnonymousSets<'_>,
) -> Option<(Statement, usize)> {
    let plain = |source: Selector| Source::Selector(source);
    match e {
        // A map that belongs to the rule is kept as it is.
        [_, Expr::Lookup(l), ..] if l.dreg.is_some() && sets(l.set.as_deref()?).is_some() => None,
        [_, Expr::Lookup(l), ..] if l.dreg == Some(raw::NFT_REG_VERDICT) => {
            Some((Statement::Vmap(selector.clone(), l.set.clone()?), 2))
        }
        [_, Expr::Lookup(l), next, ..] if l.dreg == Some(raw::NFT_REG_1) => {
            let source = Source::Map(selector.clone(), l.set.clone()?);
            Some((stored(next)?(source), 3))
        }
        [_, Expr::Bitwise(b), next, ..] if stored(next).is_some() => {
            let (mask, xor) = (value(b.mask.as_ref())?, value(b.xor.as_ref())?);
            let source = Source::Bitwise {
                selector: selector.clone(),
                mask,
                xor,
            };
            Some((stored(next)?(source), 3))
        }
        [_, next, ..] if stored(next).is_some() => {
            Some((stored(next)?(plain(selector.clone())), 2))
        }
        _ => matching(selector, e, context, sets),
    }
}

/// A value of an ordering comparison, converted back to the selector's byte order.
fn unordered(d: Data, turned: bool) -> Data {
    if turned && cfg!(target_endian = "little") {
        Data(d.0.into_iter().rev().collect())
    } else {
        d
    }
}

fn matching(
    selector: &Selector,
    e: &[Expr],
    context: Context,
    sets: AnonymousSets<'_>,
) -> Option<(Statement, usize)> {
    let mut at = 1;
    let mut mask = None;
    if let Some(Expr::Bitwise(b)) = e.get(at) {
        mask = value(b.mask.as_ref());
        at += 1;
    }
    let turned = matches!(e.get(at), Some(Expr::Byteorder(_)));
    at += usize::from(turned);
    let order = |d: Option<&DataAttrs>| {
        Some(unordered(
            value(d)?,
            turned && host_width(selector).is_some(),
        ))
    };
    let is = |op, operand| Match {
        selector: selector.clone(),
        mask: mask.clone(),
        op,
        operand,
    };
    match e.get(at)? {
        Expr::Cmp(c) => {
            let (op, data) = (CmpOp::of(c.op?)?, order(c.data.as_ref())?);
            if let (CmpOp::Gte, Some(Expr::Cmp(last))) = (op, e.get(at + 1))
                && last.op == Some(raw::NFT_CMP_LTE)
            {
                let range = Operand::Range(data, order(last.data.as_ref())?);
                return Some((Statement::Match(is(CmpOp::Eq, range)), at + 2));
            }
            Some((
                Statement::Match(compared(is(op, Operand::Value(data)), context)),
                at + 1,
            ))
        }
        Expr::Range(r) if r.op == Some(raw::NFT_RANGE_NEQ) => {
            let range = Operand::Range(order(r.from.as_ref())?, order(r.to.as_ref())?);
            Some((Statement::Match(is(CmpOp::Neq, range)), at + 1))
        }
        Expr::Lookup(l) if l.dreg.is_none() => {
            let name = l.set.as_deref()?;
            let op = if l.flags.is_some() {
                CmpOp::Neq
            } else {
                CmpOp::Eq
            };
            let operand = match sets(name) {
                // For some bits, or for bytes without a name, the rule does not imply the userdata that nft writes for the set.
                Some(_) if mask.is_some() || is_unnamed(selector, context) => return None,
                // Addresses that were written as bytes keep their type: nft would refuse its own listing with another type.
                Some(set)
                    if set.attrs.key_type == Some(DataType::INTEGER.0)
                        && context.field(selector).is_some_and(|f| f.is_address()) =>
                {
                    return None;
                }
                Some(set) => Operand::Anonymous(set::elements_of_rule(set, turned)?),
                None => Operand::Named {
                    set: name.to_owned(),
                    turned,
                },
            };
            Some((Statement::Match(is(op, operand)), at + 1))
        }
        _ => None,
    }
}

/// The special forms of a comparison: prefixes, interface name prefixes and bits.
fn compared(m: Match, context: Context) -> Match {
    let Operand::Value(data) = &m.operand else {
        return m;
    };
    if !matches!(m.op, CmpOp::Eq | CmpOp::Neq) {
        return m;
    }
    if let Some(mask) = &m.mask {
        let address = context.field(&m.selector).is_some_and(|f| f.is_address());
        let prefix = (0..=255u8).find(|n| {
            usize::from(*n) <= mask.0.len() * 8
                && prefix_mask(mask.0.len(), *n) == mask.0.as_slice()
        });
        if let (true, Some(len)) = (address, prefix) {
            return Match {
                mask: None,
                operand: Operand::Prefix(data.clone(), len),
                ..m
            };
        }
        let is_bits = context
            .key(&m.selector)
            .is_some_and(|k| k.data_type.is_bits());
        if is_bits && data.0.iter().all(|b| *b == 0) {
            let op = if m.op == CmpOp::Neq {
                CmpOp::Eq
            } else {
                CmpOp::Neq
            };
            return Match {
                op,
                operand: Operand::AnyBit(mask.clone()),
                mask: None,
                ..m
            };
        }
        return m;
    }
    match &m.selector {
        // A comparison that includes the NUL is of the whole name, however short: `iptables-nft` writes it so.
        Selector::Meta(MetaKey::Iifname | MetaKey::Oifname)
            if data.0.len() < 16 && !data.0.ends_with(&[0]) =>
        {
            match String::from_utf8(data.0.to_vec()) {
                Ok(prefix) => Match {
                    operand: Operand::IfnamePrefix(prefix),
                    ..m
                },
                Err(_) => m,
            }
        }
        Selector::Payload { base, offset, len } => match context.front(&m.selector) {
            Some(f) if f.is_address() => {
                let mut addr = data.0.clone();
                addr.resize(f.len as usize / 8, 0);
                let prefix = u8::try_from(len * 8).unwrap_or(u8::MAX);
                let selector = Selector::Payload {
                    base: *base,
                    offset: *offset,
                    len: f.len / 8,
                };
                Match {
                    selector,
                    operand: Operand::Prefix(Data(addr), prefix),
                    ..m
                }
            }
            _ => m,
        },
        _ => m,
    }
}

fn is_unnamed(selector: &Selector, context: Context) -> bool {
    matches!(selector, Selector::Payload { .. }) && context.field(selector).is_none()
}
