//! A rule, with what it owns.

use super::{Counter, RuleBuilder, Statement, TableFamily, Verdict};
use crate::nft::context::Context;
use crate::nft::expr::Expr;
use crate::nft::linearize;
use crate::nft::set::settle_element;
use crate::nft::wire::{ElemAttrs, SetAttrs};

/// A rule: matches, then other statements.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
#[doc(alias = "NFT_MSG_NEWRULE")]
pub struct Rule {
    /// Evaluated from left to right.
    pub statements: Vec<Statement>,
    /// `comment`, at most 127 bytes.
    pub comment: Option<String>,
    /// The sets and maps that belong to the rule and that expressions of [`Statement::Opaque`] refer to by their index
    /// (`set_id`).
    pub sets: Vec<AnonymousSet>,
    /// The rules of the chain that is created and deleted with it (`jump { ... }`, `goto { ... }`). Its last statement is
    /// the verdict, and names no chain: the kernel chooses the name. Since 5.9
    #[doc(alias = "NFT_CHAIN_BINDING")]
    pub chain: Option<Vec<Self>>,
}

/// A set or map that is created and deleted with its rule, as the kernel lists it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
#[doc(alias = "NFT_SET_ANONYMOUS")]
pub struct AnonymousSet {
    /// `NFT_MSG_NEWSET`, without the table and with a name that lets the kernel number it, `__map%d`.
    pub attrs: SetAttrs,
    /// `NFT_MSG_NEWSETELEM`, in ascending order of the keys.
    pub elements: Vec<ElemAttrs>,
}

impl Rule {
    /// Starts a rule of an `inet` table.
    pub fn builder() -> RuleBuilder {
        RuleBuilder::default()
    }

    /// The maximum number of expressions in one rule; one more is `EINVAL`.
    ///
    /// # References
    /// `NFT_RULE_MAXEXPRS` in `net/netfilter/nf_tables_api.c`: not part of the kernel's interface headers, and 128
    /// since nf_tables exists.
    pub const MAX_EXPRESSIONS: usize = 128;

    /// The expressions that are sent for this rule in a table of the family. A lookup in an anonymous set refers to
    /// the set by its index there.
    #[must_use]
    pub fn expressions(&self, family: TableFamily) -> Vec<Expr> {
        linearize::rule(self, Context::of(family)).exprs
    }

    /// The rule and the rules of its own chain (`jump { ... }`), of theirs, and so on: each after the one that leads to
    /// it.
    pub fn with_own(&self) -> impl Iterator<Item = &Self> {
        self.with_own_where(|_| true)
    }

    /// The same without the rules that are not to be `kept`, and whatever these lead to.
    pub fn with_own_where(&self, kept: impl Fn(&Self) -> bool) -> impl Iterator<Item = &Self> {
        let mut next = vec![self];
        std::iter::from_fn(move || {
            loop {
                let rule = next.pop()?;
                if kept(rule) {
                    next.extend(rule.chain.iter().flatten().rev());
                    return Some(rule);
                }
            }
        })
    }

    /// Equal but for the values of counters.
    pub(crate) fn is_same_but_counters(&self, other: &Self) -> bool {
        let is_same = |(a, b): (&Statement, &Statement)| match (a, b) {
            (Statement::Counter(_), Statement::Counter(_)) => true,
            (a, b) => a == b,
        };
        self.comment == other.comment
            && self.statements.len() == other.statements.len()
            && self.statements.iter().zip(&other.statements).all(is_same)
            && (self.sets == other.sets || self.settled_sets() == other.settled_sets())
            && match (&self.chain, &other.chain) {
                (Some(a), Some(b)) => {
                    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a.is_same_but_counters(b))
                }
                (a, b) => a == b,
            }
    }

    /// Its sets without what packets change in their elements.
    fn settled_sets(&self) -> Vec<AnonymousSet> {
        let mut sets = self.sets.clone();
        let elements = sets.iter_mut().flat_map(|s| &mut s.elements);
        elements.for_each(settle_element);
        sets
    }

    /// The rule leads to its own chain.
    pub(crate) fn leads_to_its_chain(&self) -> bool {
        matches!(
            self.statements.last(),
            Some(Statement::Verdict(Verdict::Jump(to) | Verdict::Goto(to))) if to.is_empty()
        )
    }

    /// The same rule with its counters at zero, for comparisons.
    #[must_use]
    pub fn without_counters(&self) -> Self {
        let mut rule = self.clone();
        for s in &mut rule.statements {
            if let Statement::Counter(c) = s {
                *c = Counter::default();
            }
        }
        rule.sets = self.settled_sets();
        let own = rule.chain.iter_mut().flatten();
        own.for_each(|r| *r = r.without_counters());
        rule
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_comes_before_those_of_its_own_chain() {
        let rule = |name: &str, chain: &[Rule]| Rule {
            comment: Some(name.to_owned()),
            chain: (!chain.is_empty()).then(|| chain.to_vec()),
            ..Rule::default()
        };
        let second = rule("b", &[rule("c", &[]), rule("d", &[])]);
        let all = rule("a", &[second, rule("e", &[])]);
        let names = all.with_own().filter_map(|r| r.comment.as_deref());
        assert_eq!(names.collect::<Vec<_>>(), ["a", "b", "c", "d", "e"]);
    }
}
