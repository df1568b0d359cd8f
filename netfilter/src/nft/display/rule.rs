//! A rule: its statements without the matches that later ones imply.

use super::statement::statement;
use crate::nft::context::Context;
use crate::nft::expr::{Cmp, DataAttrs, Expr, Range};
use crate::nft::model::{PayloadBase, Reject, Rule, Selector, Source, Statement, TableFamily};
use crate::nft::{raise, raw};
use std::borrow::Cow;

/// Most rules are shorter, in bytes.
const TEXT: usize = 128;

/// The rule as `nft` lists it in a table of `family`.
pub(crate) fn rule_text(rule: &Rule, family: TableFamily, mut context: Context) -> String {
    let mut texts: Vec<Option<String>> = Vec::new();
    let mut pending = Pending::default();
    for s in readable(&rule.statements, context).iter() {
        for base in implied_by(s, context) {
            if let Some(text) = pending.take(base).and_then(|i| texts.get_mut(i)) {
                *text = None;
            }
        }
        texts.push(Some(statement(s, family, context)));
        if let Statement::Match(m) = s {
            if let Some(base) = context.establishes(m) {
                pending.set(base, texts.len() - 1);
            }
            context.note(m);
        } else {
            // Matches before a statement remain in the text, as in nft.
            pending = Pending::default();
        }
    }
    let mut text = String::with_capacity(TEXT);
    for part in texts.iter().flatten() {
        if !text.is_empty() {
            text.push(' ');
        }
        text += part;
    }
    if let Some(comment) = &rule.comment {
        text += &format!(" comment \"{comment}\"");
    }
    text
}

/// The statements, with the range expressions of `iptables-nft` in readable form: it uses one expression where `nft`
/// uses two comparisons, so the rule remains opaque in comparisons, but means the same.
fn readable(statements: &[Statement], mut context: Context) -> Cow<'_, [Statement]> {
    let is_range = |e: &Expr| matches!(e, Expr::Range(r) if r.op == Some(raw::NFT_RANGE_EQ));
    let has_range = |s: &Statement| matches!(s, Statement::Opaque(e) if e.iter().any(is_range));
    if !statements.iter().any(has_range) {
        return Cow::Borrowed(statements);
    }
    let mut all = Vec::new();
    for s in statements {
        match s {
            Statement::Opaque(exprs) if has_range(s) => {
                let exprs: Vec<Expr> = exprs.iter().flat_map(as_comparisons).collect();
                all.extend(raise::rule(exprs, context, &|_| None).statements);
            }
            s => all.push(s.clone()),
        }
        if let Statement::Match(m) = s {
            context.note(m);
        }
    }
    Cow::Owned(all)
}

/// `range eq A B` is `cmp gte A`, `cmp lte B`.
fn as_comparisons(e: &Expr) -> Vec<Expr> {
    let compare = |op, r: &Range, data: &Option<DataAttrs>| {
        Expr::Cmp(Cmp {
            sreg: r.sreg,
            op: Some(op),
            data: data.clone(),
            ..Cmp::default()
        })
    };
    match e {
        Expr::Range(r) if r.op == Some(raw::NFT_RANGE_EQ) && r.unknown.is_empty() => vec![
            compare(raw::NFT_CMP_GTE, r, &r.from),
            compare(raw::NFT_CMP_LTE, r, &r.to),
        ],
        e => vec![e.clone()],
    }
}

/// Indexes of the protocol matches that a later statement may make redundant.
#[derive(Default)]
struct Pending {
    link: Option<usize>,
    network: Option<usize>,
    transport: Option<usize>,
}

impl Pending {
    fn slot(&mut self, base: PayloadBase) -> Option<&mut Option<usize>> {
        match base {
            PayloadBase::LinkLayer => Some(&mut self.link),
            PayloadBase::Network => Some(&mut self.network),
            PayloadBase::Transport => Some(&mut self.transport),
            _ => None,
        }
    }

    fn set(&mut self, base: PayloadBase, at: usize) {
        if let Some(slot) = self.slot(base) {
            *slot = Some(at);
        }
    }

    fn take(&mut self, base: PayloadBase) -> Option<usize> {
        self.slot(base)?.take()
    }
}

/// The protocol matches that the keyword of a statement implies: `tcp dport` implies `meta l4proto tcp`.
fn implied_by(s: &Statement, context: Context) -> Vec<PayloadBase> {
    let selector = match s {
        Statement::Match(m) => &m.selector,
        Statement::Vmap(selector, _) => selector,
        Statement::MetaSet(_, source) | Statement::CtSet(_, _, source) => match source {
            Source::Selector(s) | Source::Map(s, _) | Source::Bitwise { selector: s, .. } => s,
            Source::Value(_) => return Vec::new(),
        },
        // `icmp` and `icmpv6` imply the family.
        Statement::Reject(Reject::Icmp(_)) => return vec![PayloadBase::Network],
        _ => return Vec::new(),
    };
    let Selector::Payload { base, .. } = selector else {
        return Vec::new();
    };
    if *base == PayloadBase::LinkLayer {
        return vec![PayloadBase::LinkLayer];
    }
    match context.field(selector).map(|f| f.header) {
        None | Some("th") => Vec::new(),
        Some("icmp" | "icmpv6") => vec![PayloadBase::Network, PayloadBase::Transport],
        Some(_) => vec![*base],
    }
}
