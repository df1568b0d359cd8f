//! The plan that identifies untagged rules as owned.

use crate::compile::Compiled;
use std::borrow::Cow;
use weir_netfilter::xtables;

/// The rules that a plan would make in built-in chains of legacy tables. If owned chains exist, as many rules as equal
/// them count as owned, too: upstream's installer made them from the same configuration.
#[derive(Clone, Copy, Debug)]
pub(super) struct Named<'a>(pub(super) Option<&'a Compiled>);

impl<'a> Named<'a> {
    /// No plan is given.
    pub(super) const NONE: Self = Self(None);

    /// Compiled on demand: most namespaces hold no rules to compare with.
    pub(super) fn rules(self) -> Cow<'a, xtables::Ruleset> {
        self.0.map_or_else(Cow::default, Compiled::in_legacy_tables)
    }
}
