//! Whose a rule is.
//!
//! A rule of a built-in chain does not say who wrote it, unless it leads to a chain with a telling name. So
//! whoever writes one may leave a sign in it: the field `nfcache` of `struct ipt_entry` and `struct
//! ip6t_entry`. It was for caching once; no kernel with these tables reads or changes it. The tools keep it
//! when they change other rules of the table, and neither list nor compare it. It is lost when a table is saved
//! as text and restored from it.
//!
//! A rule without the sign that equals a wished one is adopted: it stays and does what is wished, but
//! nothing that is not surely ours ever goes.

use crate::xtables::table::RuleLayout;
use crate::xtables::{Rule, Ruleset};

/// What belongs to us besides what is wished.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Ownership {
    /// User chains whose name begins so are ours; empty for none.
    pub prefix: String,
    /// What is written into `nfcache` of the rules that come into built-in chains. Rules there that have it are
    /// ours. 0, which is what others write, for none.
    pub tag: u32,
    /// Rules in built-in chains that are ours although nothing in them shows it: of each as many as are named
    /// here, the last ones, because others' were there before. Only where a chain with our prefix shows that
    /// we were here: without one, and with a prefix given, they are somebody else's.
    pub rules: Ruleset,
}

/// A rule of a chain that is ours, or that does what one of ours would do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    /// Which one of the chain.
    pub(super) at: usize,
    /// Not only does it look like one: it may go.
    pub(super) is_ours: bool,
}

/// The places of a built-in chain, given which rules are known for ours (`is_known`), which ones are named for
/// ours, and which ones are wished.
pub(super) fn places(
    rules: &[RuleLayout],
    is_known: impl Fn(&RuleLayout) -> bool,
    named: &[Rule],
    wished: &[Rule],
) -> Vec<Place> {
    let mut ours: Vec<bool> = rules.iter().map(is_known).collect();
    let mut named = Pool::new(named);
    let mut wished = Pool::new(wished);
    for (r, _) in rules.iter().zip(&ours).filter(|(_, is_ours)| **is_ours) {
        named.take(&r.rule);
        wished.take(&r.rule);
    }
    for (r, is_ours) in rules.iter().zip(&mut ours).rev().filter(|(_, o)| !**o) {
        *is_ours = named.take(&r.rule);
        if *is_ours {
            wished.take(&r.rule);
        }
    }
    let all = rules.iter().zip(ours).enumerate();
    all.filter(|(_, (r, is_ours))| *is_ours || wished.has(&r.rule))
        .map(|(at, (_, is_ours))| Place { at, is_ours })
        .collect()
}

/// Rules that are used up one by one.
struct Pool<'a>(Vec<&'a Rule>);

impl<'a> Pool<'a> {
    fn new(rules: &'a [Rule]) -> Self {
        Self(rules.iter().collect())
    }

    fn has(&self, rule: &Rule) -> bool {
        self.0.contains(&rule)
    }

    fn take(&mut self, rule: &Rule) -> bool {
        let found = self.0.iter().position(|r| *r == rule);
        found.map(|n| self.0.swap_remove(n)).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::xtables::Target;

    const TAG: u32 = 7;

    fn rule(interface: &str) -> Rule {
        let from = Rule::builder().in_interface(interface);
        from.target(Target::Return)
    }

    fn held(interface: &str, tag: u32) -> RuleLayout {
        RuleLayout {
            rule: rule(interface),
            old: None,
            tag,
        }
    }

    fn found(held: &[RuleLayout], named: &[Rule], wished: &[Rule]) -> Vec<(usize, bool)> {
        let places = places(held, |r| r.tag == TAG, named, wished);
        places.iter().map(|p| (p.at, p.is_ours)).collect()
    }

    #[test]
    fn the_sign_tells_twins_apart() {
        let chain = [held("a", 0), held("a", TAG), held("b", 0)];
        assert_eq!(found(&chain, &[], &[]), [(1, true)]);
        // What is wished is there: no twin is needed for it.
        assert_eq!(found(&chain, &[], &[rule("a")]), [(1, true)]);
    }

    #[test]
    fn a_twin_of_a_wish_is_adopted_but_is_not_ours() {
        let chain = [held("a", 0), held("b", 0), held("a", 0)];
        assert_eq!(found(&chain, &[], &[rule("a")]), [(0, false), (2, false)]);
    }

    #[test]
    fn as_many_as_are_named_are_ours() {
        let chain = [held("a", 0), held("b", 0), held("a", 0), held("a", TAG)];
        assert_eq!(found(&chain, &[rule("a")], &[]), [(3, true)]);
        let two = [rule("a"), rule("a")];
        assert_eq!(found(&chain, &two, &[]), [(2, true), (3, true)]);
    }
}
