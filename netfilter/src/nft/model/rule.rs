//! A rule, with its anonymous sets and its own chain.

use super::{Counter, RuleBuilder, Statement, TableFamily, Verdict};
use crate::nft::context::Context;
use crate::nft::expr::Expr;
use crate::nft::linearize;
use crate::nft::set::{settle, settle_element};
use crate::nft::wire::{ElemAttrs, SetAttrs};

/// A rule: matches, then other statements.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
#[doc(alias = "NFT_MSG_NEWRULE")]
pub struct Rule {
    /// Evaluated from left to right.
    pub statements: Vec<Statement>,
    /// `comment`, at most 253 bytes: the kernel keeps 256 bytes of userdata (`NFT_USERDATA_MAXLEN`).
    pub comment: Option<String>,
    /// The sets and maps that belong to the rule and that expressions of [`Statement::Opaque`] refer to by their index
    /// (`set_id`).
    pub sets: Vec<AnonymousSet>,
    /// The rules of the chain that is created and deleted with this rule (`jump { ... }`, `goto { ... }`). The last statement
    /// of the rule is then the verdict, with an empty chain name: the kernel chooses the name. Since 5.9.
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

    /// The maximum number of expressions in one rule; the kernel refuses one more with `EINVAL`.
    ///
    /// # References
    /// `NFT_RULE_MAXEXPRS` in `net/netfilter/nf_tables_api.c`. It is not part of the kernel's interface headers, and has
    /// been 128 since the first release of nf_tables.
    pub const MAX_EXPRESSIONS: usize = 128;

    /// The expressions that are sent for this rule in a table of the family. A lookup in an anonymous set refers to the
    /// set by its index in the rule (`set_id`).
    #[must_use]
    pub fn expressions(&self, family: TableFamily) -> Vec<Expr> {
        linearize::rule(self, Context::of(family)).exprs
    }

    /// The rule, the rules of its own chain (`jump { ... }`), of the chains of these rules, and so on: each rule comes after
    /// the rule that leads to it.
    pub fn with_own(&self) -> impl Iterator<Item = &Self> {
        self.with_own_where(|_| true)
    }

    /// As [`Rule::with_own`], without the rules for which `kept` returns false and the rules of their chains.
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

    /// Whether the rules are equal except for the values that packets change.
    pub(crate) fn is_same_but_counters(&self, other: &Self) -> bool {
        let settled = |exprs: &[Expr]| {
            let mut exprs = exprs.to_vec();
            exprs.iter_mut().for_each(settle);
            exprs
        };
        let is_same = |(a, b): (&Statement, &Statement)| match (a, b) {
            (Statement::Counter(_), Statement::Counter(_)) => true,
            (Statement::Opaque(a), Statement::Opaque(b)) => a == b || settled(a) == settled(b),
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

    /// Its sets without the values that packets change in their elements.
    fn settled_sets(&self) -> Vec<AnonymousSet> {
        let mut sets = self.sets.clone();
        let elements = sets.iter_mut().flat_map(|s| &mut s.elements);
        elements.for_each(settle_element);
        sets
    }

    /// Whether its last statement jumps or goes to its own chain.
    pub(crate) fn leads_to_its_chain(&self) -> bool {
        matches!(
            self.statements.last(),
            Some(Statement::Verdict(Verdict::Jump(to) | Verdict::Goto(to))) if to.is_empty()
        )
    }

    /// The same rule with its counters at zero, and without what quotas have used and when `last` matched, for comparisons.
    #[must_use]
    pub fn without_counters(&self) -> Self {
        let mut rule = self.clone();
        for s in &mut rule.statements {
            match s {
                Statement::Counter(c) => *c = Counter::default(),
                Statement::Opaque(exprs) => exprs.iter_mut().for_each(settle),
                _ => {}
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
    use crate::nft::expr::expr;

    /// A quota and `last`, as the kernel lists them before and after a packet.
    #[test]
    fn what_packets_change_is_no_difference() {
        let rule = |bytes: u64, consumed: Option<u64>, msecs: Option<u64>| Rule {
            statements: vec![Statement::Opaque(vec![
                expr!(Quota { bytes, consumed }),
                expr!(Last {
                    set: msecs.map(|_| 1_u32),
                    msecs
                }),
            ])],
            ..Rule::default()
        };
        let (before, after) = (rule(9, None, None), rule(9, Some(5), Some(7)));
        assert!(before.is_same_but_counters(&after));
        assert_eq!(before.without_counters(), after.without_counters());
        let other = rule(8, None, None);
        assert!(!other.is_same_but_counters(&after));
        assert_ne!(other.without_counters(), after.without_counters());
    }

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
