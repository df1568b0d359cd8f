//! A rule: its statements without the matches that later ones imply.

use super::statement::statement;
use crate::nft::context::Context;
use crate::nft::model::{Family, PayloadBase, Reject, Rule, Selector, Source, Statement};

/// The rule as `nft` lists it in a table of `family`.
pub(crate) fn rule_text(rule: &Rule, family: Family, mut context: Context) -> String {
    let mut texts: Vec<Option<String>> = Vec::new();
    let mut pending = Pending::default();
    for s in &rule.statements {
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
            // What was matched before a statement stays in the text, as in nft's.
            pending = Pending::default();
        }
    }
    let mut text = texts.into_iter().flatten().collect::<Vec<_>>().join(" ");
    if let Some(comment) = &rule.comment {
        text += &format!(" comment \"{comment}\"");
    }
    text
}

/// Where the match on a protocol stands that a later statement may make superfluous.
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

/// The protocol matches that a statement's own words imply: `tcp dport` says `meta l4proto tcp`.
fn implied_by(s: &Statement, context: Context) -> Vec<PayloadBase> {
    let selector = match s {
        Statement::Match(m) => &m.selector,
        Statement::Vmap(selector, _) => selector,
        Statement::MetaSet(_, source) | Statement::CtSet(_, _, source) => match source {
            Source::Selector(s) | Source::Map(s, _) | Source::Bitwise { selector: s, .. } => s,
            Source::Value(_) => return Vec::new(),
        },
        // `icmp` and `icmpv6` name the family.
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
