//! Linearizes statements to expressions, as `nft` does: every statement starts at register 1.
//!
//! ```text
//! tcp dport 80           payload load => 1, cmp eq 1
//! ip daddr 10.0.0.0/8    payload load of one byte => 1, cmp eq 1
//! ip daddr 10.0.0.0/9    payload load => 1, bitwise 1 & mask, cmp eq 1
//! meta skuid 5-10        meta load => 1, byteorder hton 1, cmp gte 1, cmp lte 1
//! ct state new           ct load => 1, bitwise 1 & bits, cmp neq 1 0
//! tcp dport { 53, 80 }   payload load => 1, lookup 1 in a set that belongs to the rule
//! redirect to :80        immediate => 1, redir with 1
//! ```

use super::context::{Context, host_width};
use super::expr::{DataAttrs, Expr, Registers, VerdictAttrs, expr};
use super::model::{
    AnonymousSet, CmpOp, CtDirection, Data, Match, Operand, Rule, Selector, Source, Statement,
    Verdict,
};
use super::wire::attrs;
use super::{raw, set};

/// The expressions of a rule and its anonymous sets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Linear {
    /// In the order of evaluation.
    pub exprs: Vec<Expr>,
    /// Anonymous sets, those of [`Rule::sets`] first. An expression refers to the n-th of them by `set_id` n.
    pub sets: Vec<AnonymousSet>,
}

impl Linear {
    /// Removes everything, but keeps the allocations for the next rule.
    pub(crate) fn clear(&mut self) {
        self.exprs.clear();
        self.sets.clear();
    }
}

/// The name of an anonymous set in a request: the kernel replaces `%d` by a free number.
pub(crate) const ANONYMOUS: &str = "__set%d";

/// Linearizes a rule of a table of this family.
#[must_use]
pub(crate) fn rule(rule: &Rule, mut context: Context) -> Linear {
    let mut out = Linear {
        // A match has two or three expressions.
        exprs: Vec::with_capacity(rule.statements.len() * 3),
        sets: rule.sets.clone(),
    };
    for s in &rule.statements {
        statement(s, context, &mut out);
        if let Statement::Match(m) = s {
            context.note_match(m);
        }
    }
    out
}

pub(crate) fn statement(s: &Statement, context: Context, out: &mut Linear) {
    match s {
        Statement::Match(m) => matching(m, context, out),
        Statement::Counter(c) => out.exprs.push(Expr::Counter(c.clone())),
        Statement::Verdict(v) => out.exprs.push(immediate_verdict(v)),
        Statement::Vmap(selector, set) => {
            out.exprs.push(load(selector));
            out.exprs.push(lookup(set, raw::NFT_REG_VERDICT));
        }
        Statement::MetaSet(key, source) => {
            from_source(source, out);
            out.exprs.push(expr!(Meta {
                key: key.number(),
                sreg: raw::NFT_REG_1,
            }));
        }
        Statement::CtSet(key, direction, source) => {
            from_source(source, out);
            out.exprs.push(expr!(Ct {
                key: key.number(),
                sreg: raw::NFT_REG_1,
                direction: direction.map(CtDirection::number),
            }));
        }
        Statement::Redirect(s) => from_registers(|r| s.linearize(r), out),
        Statement::Masquerade(s) => from_registers(|r| s.linearize(r), out),
        Statement::Nat(s) => from_registers(|r| s.linearize(r), out),
        Statement::Tproxy(s) => from_registers(|r| s.linearize(r), out),
        Statement::Notrack => out.exprs.push(Expr::Notrack),
        Statement::Log(l) => out.exprs.push(Expr::Log(l.clone())),
        Statement::Limit(l) => out.exprs.push(Expr::Limit(l.clone())),
        Statement::Reject(r) => out.exprs.push(Expr::Reject(r.clone())),
        Statement::Opaque(exprs) => out.exprs.extend(exprs.iter().cloned()),
    }
}

/// Loads the values of a statement into registers 1, 2 and so on.
fn from_registers(statement: impl FnOnce(&mut Registers) -> Expr, out: &mut Linear) {
    let mut registers = Registers::default();
    let e = statement(&mut registers);
    out.exprs.extend(registers.exprs());
    out.exprs.push(e);
}

/// Loads a selector into register 1.
fn load(selector: &Selector) -> Expr {
    let dreg = raw::NFT_REG_1;
    match selector {
        Selector::Meta(key) => expr!(Meta {
            key: key.number(),
            dreg,
        }),
        Selector::Payload { base, offset, len } => expr!(Payload {
            dreg,
            base: base.number(),
            offset: *offset,
            len: *len,
        }),
        Selector::Ct(key, direction) => expr!(Ct {
            key: key.number(),
            dreg,
            direction: direction.map(CtDirection::number),
        }),
        Selector::Socket(key, level) => expr!(Socket {
            key: key.number(),
            dreg,
            level: level.unwrap_or(0),
        }),
        Selector::Fib { flags, result } => expr!(Fib {
            flags: *flags,
            result: result.number(),
            dreg,
        }),
    }
}

fn cmp(op: u32, data: &[u8]) -> Expr {
    expr!(Cmp {
        sreg: raw::NFT_REG_1,
        op,
        data: DataAttrs::of(data),
    })
}

fn bitwise(op: Option<u32>, mask: &[u8], xor: &[u8]) -> Expr {
    expr!(Bitwise {
        sreg: raw::NFT_REG_1,
        dreg: raw::NFT_REG_1,
        op,
        len: u32::try_from(mask.len()).ok(),
        mask: DataAttrs::of(mask),
        xor: DataAttrs::of(xor),
    })
}

fn lookup(set: &str, dreg: u32) -> Expr {
    expr!(Lookup {
        sreg: raw::NFT_REG_1,
        dreg,
        set: set.to_owned(),
    })
}

/// A mask of `bytes` bytes whose leading `len` bits are set.
pub(crate) fn prefix_mask(bytes: usize, len: u8) -> Vec<u8> {
    let len = usize::from(len);
    (0..bytes)
        .map(|i| match len.saturating_sub(i * 8) {
            0 => 0,
            n if n >= 8 => 0xff,
            n => !(0xffu8 >> n),
        })
        .collect()
}

/// The value in network order for an ordering comparison, because the kernel compares bytes.
fn ordered(data: &Data, host_order: bool) -> Vec<u8> {
    if host_order && cfg!(target_endian = "little") {
        data.0.iter().rev().copied().collect()
    } else {
        data.0.to_vec()
    }
}

fn matching(m: &Match, context: Context, out: &mut Linear) {
    let is_range = matches!(m.operand, Operand::Range(..));
    let by_order = is_range || !matches!(m.op, CmpOp::Eq | CmpOp::Neq);
    let host_width = host_width(&m.selector);
    out.exprs.push(shortened(m));
    if let Some(mask) = &m.mask {
        out.exprs.push(bitwise(
            Some(raw::NFT_BITWISE_BOOL),
            &mask.0,
            &vec![0; mask.0.len()],
        ));
    }
    let turned = host_width.filter(|_| by_order);
    out.exprs.extend(turned.map(to_network_order));
    let value = |d: &Data| ordered(d, turned.is_some());
    match &m.operand {
        Operand::Value(d) => out.exprs.push(cmp(m.op.number(), &value(d))),
        Operand::Prefix(d, len) if len % 8 == 0 && *len > 0 => {
            let front =
                d.0.iter()
                    .take(usize::from(*len) / 8)
                    .copied()
                    .collect::<Vec<_>>();
            out.exprs.push(cmp(m.op.number(), &front));
        }
        Operand::Prefix(d, len) => {
            let mask = prefix_mask(d.0.len(), *len);
            out.exprs.push(bitwise(None, &mask, &vec![0; mask.len()]));
            out.exprs.push(cmp(m.op.number(), &d.0));
        }
        Operand::IfnamePrefix(name) => out.exprs.push(cmp(m.op.number(), name.as_bytes())),
        Operand::Range(first, last) if m.op == CmpOp::Neq => {
            out.exprs.push(expr!(Range {
                sreg: raw::NFT_REG_1,
                op: raw::NFT_RANGE_NEQ,
                from: DataAttrs::of(&value(first)),
                to: DataAttrs::of(&value(last)),
            }));
        }
        Operand::Range(first, last) => {
            out.exprs.push(cmp(raw::NFT_CMP_GTE, &value(first)));
            out.exprs.push(cmp(raw::NFT_CMP_LTE, &value(last)));
        }
        Operand::AnyBit(bits) => {
            let zero = vec![0; bits.0.len()];
            out.exprs.push(bitwise(None, &bits.0, &zero));
            // Any of the bits is set if the masked value is not zero, so the comparison is inverted.
            let op = if m.op == CmpOp::Neq {
                raw::NFT_CMP_EQ
            } else {
                raw::NFT_CMP_NEQ
            };
            out.exprs.push(cmp(op, &zero));
        }
        Operand::Anonymous(elements) => {
            let turned = host_width.filter(|_| set::is_interval(elements));
            out.exprs.extend(turned.map(to_network_order));
            let id = u32::try_from(out.sets.len()).unwrap_or(u32::MAX);
            out.sets.push(set::of_rule(&m.selector, elements, context));
            out.exprs.push(set_lookup(ANONYMOUS, Some(id), m.op));
        }
        Operand::Named { set, turned } => {
            let turned = host_width.filter(|_| *turned);
            out.exprs.extend(turned.map(to_network_order));
            out.exprs.push(set_lookup(set, None, m.op));
        }
    }
}

fn to_network_order(width: u32) -> Expr {
    expr!(Byteorder {
        sreg: raw::NFT_REG_1,
        dreg: raw::NFT_REG_1,
        op: raw::NFT_BYTEORDER_HTON,
        len: width,
        size: width,
    })
}

fn set_lookup(set: &str, set_id: Option<u32>, op: CmpOp) -> Expr {
    expr!(Lookup {
        sreg: raw::NFT_REG_1,
        set: set.to_owned(),
        set_id,
        flags: (op == CmpOp::Neq).then_some(raw::NFT_LOOKUP_F_INV),
    })
}

/// Loads only the bytes of the prefix if its length is a whole number of bytes, else the whole selector.
fn shortened(m: &Match) -> Expr {
    match (&m.selector, &m.operand) {
        (Selector::Payload { base, offset, .. }, Operand::Prefix(_, n)) if n % 8 == 0 && *n > 0 => {
            let len = u32::from(*n) / 8;
            load(&Selector::Payload {
                base: *base,
                offset: *offset,
                len,
            })
        }
        (selector, _) => load(selector),
    }
}

/// Loads the value into register 1.
fn from_source(source: &Source, out: &mut Linear) {
    match source {
        Source::Value(data) => out.exprs.push(immediate(raw::NFT_REG_1, &data.0)),
        Source::Selector(selector) => out.exprs.push(load(selector)),
        Source::Bitwise {
            selector,
            mask,
            xor,
        } => {
            out.exprs.push(load(selector));
            out.exprs
                .push(bitwise(Some(raw::NFT_BITWISE_BOOL), &mask.0, &xor.0));
        }
        Source::Map(selector, map) => {
            out.exprs.push(load(selector));
            out.exprs.push(lookup(map, raw::NFT_REG_1));
        }
    }
}

pub(crate) fn immediate(dreg: u32, data: &[u8]) -> Expr {
    expr!(Immediate {
        dreg,
        data: DataAttrs::of(data),
    })
}

pub(crate) fn immediate_verdict(v: &Verdict) -> Expr {
    expr!(Immediate {
        dreg: raw::NFT_REG_VERDICT,
        data: verdict_data(v),
    })
}

pub(crate) fn verdict_data(v: &Verdict) -> DataAttrs {
    attrs!(DataAttrs {
        verdict: verdict(v)
    })
}

pub(crate) fn verdict(v: &Verdict) -> VerdictAttrs {
    let (code, chain) = match v {
        Verdict::Accept => (raw::NF_ACCEPT, None),
        Verdict::Drop => (raw::NF_DROP, None),
        Verdict::Continue => (raw::NFT_CONTINUE, None),
        Verdict::Return => (raw::NFT_RETURN, None),
        Verdict::Jump(chain) => (raw::NFT_JUMP, Some(chain.clone())),
        Verdict::Goto(chain) => (raw::NFT_GOTO, Some(chain.clone())),
        Verdict::Other(code) => (*code, None),
    };
    attrs!(VerdictAttrs { code, chain })
}
