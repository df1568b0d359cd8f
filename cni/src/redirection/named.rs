//! The plan that identifies untagged rules as owned.

use super::scheme::Scheme;
use crate::compile::Compiled;
use std::borrow::Cow;
use weir_netfilter::xtables;

/// The rules that a plan would make in built-in chains of legacy tables. If owned chains exist, equal rules count as owned,
/// too, each as many times as the plan has it: upstream's installer made them from the same configuration.
#[derive(Clone, Copy, Debug)]
pub(super) struct Named<'a>(pub(super) &'static Scheme, pub(super) Option<&'a Compiled>);

impl<'a> Named<'a> {
    /// Names the rules of a plan, with its kind of redirection.
    pub(super) fn plan(plan: &'a Compiled) -> Self {
        Self(plan.scheme(), Some(plan))
    }

    /// The rules, compiled on demand: most namespaces hold no rules to compare with.
    pub(super) fn rules(self) -> Cow<'a, xtables::Ruleset> {
        self.1.map_or_else(Cow::default, Compiled::in_legacy_tables)
    }
}
