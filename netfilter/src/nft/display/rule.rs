//! A rule: its statements without the matches that later ones imply.

use super::statement::statement;
use crate::nft::context::{Context, Implied};
use crate::nft::expr::{Cmp, DataAttrs, Expr, Range};
use crate::nft::model::{PayloadBase, Reject, Rule, Selector, Source, Statement, TableFamily};
use crate::nft::{raise, raw};
use std::borrow::Cow;

/// Most rules are shorter, in bytes.
const TEXT: usize = 128;

/// The rule as `nft` lists it in a table of `family`.
pub(crate) fn rule_text(rule: &Rule, family: TableFamily, context: Context) -> String {
    let mut listing = Listing {
        family,
        context,
        texts: Vec::new(),
        pending: Vec::new(),
    };
    for s in readable(&rule.statements, context).iter() {
        let parts = match s {
            Statement::Match(m) => listing.context.split(m),
            _ => None,
        };
        match parts {
            Some(parts) => parts
                .into_iter()
                .for_each(|m| listing.add(&Statement::Match(m))),
            None => listing.add(s),
        }
    }
    let mut text = String::with_capacity(TEXT);
    for part in listing.texts.iter().flatten() {
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

/// The texts of the statements, `None` for a match that a later statement implies.
struct Listing {
    family: TableFamily,
    context: Context,
    texts: Vec<Option<String>>,
    /// Indexes of the matches that a later statement may imply.
    pending: Vec<(Implied, usize)>,
}

impl Listing {
    fn add(&mut self, s: &Statement) {
        let implied = implied_by(s, self.family, self.context);
        let texts = &mut self.texts;
        self.pending.retain(|(what, at)| {
            let is_implied = implied.contains(what);
            if let Some(text) = texts.get_mut(*at).filter(|_| is_implied) {
                *text = None;
            }
            !is_implied
        });
        let at = self.texts.len();
        self.texts
            .push(Some(statement(s, self.family, self.context)));
        if let Statement::Match(m) = s {
            if let Some(what) = self.context.establishes(m) {
                self.pending.retain(|(other, _)| *other != what);
                self.pending.push((what, at));
            }
            self.context.note(m);
        } else {
            // Matches before a statement remain in the text, as in nft.
            self.pending.clear();
        }
    }
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

/// The protocol matches that the keyword of a statement implies: `tcp dport` implies `meta l4proto tcp`.
fn implied_by(s: &Statement, family: TableFamily, context: Context) -> &'static [Implied] {
    let (selector, mask) = match s {
        Statement::Match(m) => (&m.selector, m.mask.as_ref()),
        Statement::Vmap(selector, _) => (selector, None),
        Statement::MetaSet(_, source) | Statement::CtSet(_, _, source) => match source {
            Source::Selector(s) | Source::Map(s, _) | Source::Bitwise { selector: s, .. } => {
                (s, None)
            }
            Source::Value(_) => return &[],
        },
        // As nft: where the table fixes the family, a reset implies the protocol; elsewhere it and `icmp` only the family.
        Statement::Reject(reject) => {
            return match (family, reject) {
                (TableFamily::Ip | TableFamily::Ip6, Reject::TcpReset) => &[Implied::Transport],
                (TableFamily::Ip | TableFamily::Ip6, _) | (_, Reject::Icmpx(_)) => &[],
                (_, Reject::Icmp(_) | Reject::TcpReset) => &[Implied::Network],
            };
        }
        _ => return &[],
    };
    let Selector::Payload { base, .. } = selector else {
        return &[];
    };
    let field = context.field(selector);
    let field = field.or_else(|| Some(context.masked(selector, mask?)?.0));
    match (base, field.map(|f| (f.header, f.name))) {
        (PayloadBase::LinkLayer, Some(("vlan", _))) => &[Implied::Link, Implied::Vlan],
        (PayloadBase::LinkLayer, _) => &[Implied::Link],
        (_, None | Some(("th", _))) => &[],
        (_, Some(("icmp" | "icmpv6", "mtu" | "gateway" | "parameter-problem" | "max-delay"))) => {
            &[Implied::Network, Implied::Transport, Implied::IcmpType]
        }
        (_, Some(("icmp" | "icmpv6", _))) => &[Implied::Network, Implied::Transport],
        (PayloadBase::Network, _) => &[Implied::Network],
        _ => &[Implied::Transport],
    }
}
