//! The plugin's interface to the kernel, as a trait so that tests can replace it.

use std::fmt;
use std::path::Path;

use super::phases::Phases;
use crate::compile::Engine;
use crate::log::Logger;
use crate::pod::PodRedirect;
use crate::redirection::Difference;

/// The desired redirection of a network namespace.
pub struct DesiredRedirection<'a> {
    /// `CNI_NETNS`.
    pub netns: &'a Path,
    /// The redirection that the pod requests.
    pub redirect: &'a PodRedirect,
    /// The engine that the network configuration names; `None`: chosen automatically.
    pub engine: Option<Engine>,
    /// File to which the rules for legacy tables are written as text instead of to the kernel.
    pub dry_run_file: Option<&'a Path>,
    /// `getenv(3)` of the plugin's process, for options in its environment.
    pub lookup: &'a dyn Fn(&str) -> Option<String>,
    /// Log for changes and warnings.
    pub log: &'a Logger,
    /// Durations of the work.
    pub phases: &'a Phases,
}

/// Returns the engine that the network configuration names; `None`: chosen automatically.
///
/// `native_nftables: false` means the effect of xtables, in the variant that the node has. The rules for an engine that was
/// chosen automatically have this effect, including those for nf_tables
/// ([`compile_chosen`](crate::compile::compile_chosen)).
#[must_use]
pub fn named_engine(native_nftables: bool) -> Option<Engine> {
    native_nftables.then_some(Engine::Nft)
}

/// One difference between the actual and the desired state of a namespace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Deviation {
    /// Kind of difference: missing or unexpected.
    pub difference: Difference,
    /// The object that differs: a table, a rule, a route.
    pub object: String,
}

impl fmt::Display for Deviation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.difference, self.object)
    }
}

/// The kernel, or a replacement for tests. Errors are complete sentences: input, reason, remedy.
pub trait Backend {
    /// Applies the redirection to the namespace, atomically and idempotently. Returns one line for the log.
    ///
    /// # Errors
    /// The reason; the namespace is unchanged unless the error states otherwise.
    fn apply(&self, desired: &DesiredRedirection<'_>) -> Result<String, String>;

    /// Returns the missing and unexpected objects of the namespace; empty if it is in sync. Changes nothing.
    ///
    /// # Errors
    /// The reason why the namespace cannot be compared.
    fn verify(&self, desired: &DesiredRedirection<'_>) -> Result<Vec<Deviation>, String>;

    /// Checks whether this process can write rules on this node: `Some` with the reason if the kernel has no engine.
    /// Changes nothing.
    ///
    /// # Errors
    /// The reason why this process cannot write rules, and the remedy.
    fn probe(&self) -> Result<Option<String>, String>;
}
