//! Ownership of rules.
//!
//! The writer of a rule in a built-in chain is unknown, unless the rule jumps to a chain with a known prefix. So a writer
//! may tag its rules in the field `nfcache` of `struct ipt_entry` and `struct ip6t_entry`. The field was used for
//! caching once; no kernel with these tables reads or changes it. The tools preserve it when they change other rules
//! of the table, and neither list nor compare it. It is lost when a table is saved as text and restored from that text.
//!
//! An untagged rule that equals a desired rule is adopted: it is kept and has the desired effect, but only a rule that
//! is certainly owned is ever deleted.

use crate::xtables::table::RuleLayout;
use crate::xtables::{ChainKind, Rule, Ruleset};
use weir_netlink::{Error, Result};

/// The user chains of one owner.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OwnerChains {
    /// Prefixes of the names of its chains, which no other owner uses.
    pub prefixes: &'static [&'static str],
    /// Tables and names of chains that another owner may have, too: they belong to this owner in tables with a chain that
    /// has one of the prefixes.
    pub beside: &'static [(&'static str, &'static str)],
}

impl OwnerChains {
    /// Whether a chain of a table belongs to this owner; `names` are all user chains of the table.
    #[must_use]
    pub fn has<'n>(
        &self,
        table: &str,
        name: &str,
        names: impl IntoIterator<Item = &'n str>,
    ) -> bool {
        let is = |name: &str| self.prefixes.iter().any(|prefix| name.starts_with(prefix));
        let is_shared = || self.beside.contains(&(table, name));
        is(name) || (is_shared() && names.into_iter().any(is))
    }

    fn concern(&self, name: &str) -> bool {
        let mut prefixes = self.prefixes.iter();
        prefixes.any(|prefix| name.starts_with(prefix))
            || self.beside.iter().any(|(_, shared)| *shared == name)
    }
}

/// The chains and rules that are owned besides the desired rules.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Ownership {
    /// User chains with this name prefix are owned; empty for none.
    pub prefix: String,
    /// Tables and names of user chains that are owned whatever their prefix.
    pub chains: Vec<(String, String)>,
    /// As [`OwnerChains::beside`], with [`prefix`](Self::prefix).
    pub beside: &'static [(&'static str, &'static str)],
    /// Chains of other owners, even if they have the prefix: they are kept, as are rules that jump to them. Desired rules
    /// cannot be written to such a chain.
    pub others: &'static [OwnerChains],
    /// The names of the tables in which anything is owned; empty for all. In other tables nothing is owned, whatever its
    /// name.
    pub tables: &'static [&'static str],
    /// The tag that is written to `nfcache` of rules in built-in chains. Rules there with this tag are owned, except jumps
    /// to chains of other owners. 0, the value of other writers, is no tag.
    pub tag: u32,
    /// The version of the rules, written to `nfcache` of rules in user chains. An owned chain with rules of another version
    /// is written again. 0 is no version, and is not compared; rules without a version are in sync with any version.
    pub version: u32,
    /// Untagged rules in built-in chains that are owned: of equal rules as many as are listed here, the last ones, because
    /// foreign rules were there earlier. If a prefix is given, they are owned only in a table with an owned chain, which
    /// shows that this owner wrote to it.
    pub rules: Ruleset,
    /// Where to add rules to a built-in chain that has none of the owner's rules: before the foreign rules if true, else
    /// after them.
    pub first: bool,
}

impl Ownership {
    /// Whether the chain of a table is owned; `names` are all user chains of the table.
    #[must_use]
    pub fn owns<'n>(
        &self,
        table: &str,
        name: &str,
        names: impl IntoIterator<Item = &'n str> + Clone,
    ) -> bool {
        let is = |name: &str| !self.prefix.is_empty() && name.starts_with(&self.prefix);
        let is_shared = || self.beside.contains(&(table, name));
        let is_own = is(name) || (is_shared() && names.clone().into_iter().any(is));
        let is_named = || self.chains.iter().any(|(t, n)| t == table && n == name);
        (is_own || is_named()) && !self.is_of_another(table, name, names)
    }

    /// Whether the chain is one of [`Ownership::others`].
    pub(super) fn is_of_another<'n>(
        &self,
        table: &str,
        name: &str,
        names: impl IntoIterator<Item = &'n str> + Clone,
    ) -> bool {
        let mut others = self.others.iter();
        others.any(|chains| chains.has(table, name, names.clone()))
    }

    /// Whether a chain of this name may be owned, or decides who owns another chain.
    pub(super) fn concerns(&self, name: &str) -> bool {
        (!self.prefix.is_empty() && name.starts_with(&self.prefix))
            || self.beside.iter().any(|(_, shared)| *shared == name)
            || self.chains.iter().any(|(_, named)| named == name)
            || self.others.iter().any(|chains| chains.concern(name))
    }

    /// Whether anything in tables of this name can be owned.
    pub(super) fn is_in(&self, table: &str) -> bool {
        self.tables.is_empty() || self.tables.contains(&table)
    }

    /// Every desired table and user chain must be owned: others are neither compared nor changed.
    pub(super) fn refuse_foreign(&self, operation: &str, desired: &Ruleset) -> Result<()> {
        for table in &desired.tables {
            let users = table.chains.iter().filter(|c| c.kind == ChainKind::User);
            let mut names = users.map(|c| c.name.as_str());
            let all = names.clone();
            let table_name = format!("{} table {}", table.family, table.name);
            let (object, reason) = if !self.is_in(&table.name) {
                let reason = "it is not among the owned tables: name it there too";
                (table_name, reason)
            } else if let Some(chain) = names.find(|n| !self.owns(&table.name, n, all.clone())) {
                let reason = "it is not an owned chain: begin its name with the owner's prefix, or name it among the owned \
                              chains; a chain of another owner must be renamed";
                (format!("{table_name} chain {chain}"), reason)
            } else {
                continue;
            };
            return Err(Error::refused(operation, object, reason));
        }
        Ok(())
    }
}

/// A rule of a chain that is owned, or has the effect of a desired rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    /// Its index in the chain.
    pub(super) at: usize,
    /// Whether it is certainly owned and may be deleted.
    pub(super) is_ours: bool,
}

/// The places of a built-in chain. `is_known` determines the rules that are certainly owned; the others follow from the rules
/// that are listed as owned and those that are desired.
pub(super) fn places(
    rules: &[RuleLayout],
    is_known: impl Fn(&RuleLayout) -> bool,
    named: &[Rule],
    desired: &[Rule],
) -> Vec<Place> {
    let mut ours: Vec<bool> = rules.iter().map(is_known).collect();
    let mut named = Pool::new(named);
    let mut desired = Pool::new(desired);
    for (r, _) in rules.iter().zip(&ours).filter(|(_, is_ours)| **is_ours) {
        named.take(&r.rule);
        desired.take(&r.rule);
    }
    for (r, is_ours) in rules.iter().zip(&mut ours).rev().filter(|(_, o)| !**o) {
        *is_ours = named.take(&r.rule);
        if *is_ours {
            desired.take(&r.rule);
        }
    }
    let all = rules.iter().zip(ours).enumerate();
    all.filter(|(_, (r, is_ours))| *is_ours || desired.has(&r.rule))
        .map(|(at, (_, is_ours))| Place { at, is_ours })
        .collect()
}

/// Rules that are consumed one by one.
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

    fn found(held: &[RuleLayout], named: &[Rule], desired: &[Rule]) -> Vec<(usize, bool)> {
        let places = places(held, |r| r.tag == TAG, named, desired);
        places.iter().map(|p| (p.at, p.is_ours)).collect()
    }

    #[test]
    fn the_sign_tells_twins_apart() {
        let chain = [held("a", 0), held("a", TAG), held("b", 0)];
        assert_eq!(found(&chain, &[], &[]), [(1, true)]);
        // The desired rule exists: no twin is needed.
        assert_eq!(found(&chain, &[], &[rule("a")]), [(1, true)]);
    }

    #[test]
    fn a_chain_is_owned_by_prefix_or_by_name() {
        const OTHER: OwnerChains = OwnerChains {
            prefixes: &["X_THEIRS"],
            beside: &[],
        };
        let ours = Ownership {
            prefix: "X_".to_owned(),
            chains: ["Y", "X_THEIRS"]
                .map(|n| ("nat".to_owned(), n.to_owned()))
                .into(),
            others: &[OTHER],
            ..Ownership::default()
        };
        let owns = |table, name| ours.owns(table, name, [name]);
        assert!(owns("nat", "X_A") && owns("nat", "Y"));
        assert!(!owns("raw", "Y") && !owns("nat", "Z") && !owns("nat", "X_THEIRS"));
        assert!(ours.concerns("Y") && !ours.concerns("Z"));
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
