//! The plan that names rules which bear no sign of whose they are.

use crate::compile::Compiled;
use std::borrow::Cow;
use weir_netfilter::xtables;

/// The rules that a plan would make in built-in chains of legacy tables. Beside chains of ours as many rules that equal
/// them are ours too: upstream's installer made them of the same configuration.
#[derive(Clone, Copy, Debug)]
pub(super) struct Named<'a>(pub(super) Option<&'a Compiled>);

impl<'a> Named<'a> {
    /// No plan is given.
    pub(super) const NONE: Self = Self(None);

    /// Compiled only when asked for: most namespaces hold nothing that they could be compared with.
    pub(super) fn rules(self) -> Cow<'a, xtables::Ruleset> {
        self.0.map_or_else(Cow::default, Compiled::in_legacy_tables)
    }
}
