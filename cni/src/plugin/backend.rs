//! What the plugin asks of the kernel, so that tests can stand in for it.

use std::fmt;
use std::path::Path;

use super::phases::Phases;
use crate::compile::Engine;
use crate::log::Logger;
use crate::pod::PodRedirect;
use crate::redirection::Difference;

/// A redirection that is desired in a namespace.
pub struct Desired<'a> {
    /// `CNI_NETNS`.
    pub netns: &'a Path,
    /// What the pod asks for.
    pub redirect: &'a PodRedirect,
    /// The engine that the network configuration names; `None`: it is to be chosen.
    pub engine: Option<Engine>,
    /// Where the rules are written as text instead of into the kernel.
    pub dry_run_file: Option<&'a Path>,
    /// `getenv(3)` of the plugin's process, for the options that are set there.
    pub lookup: &'a dyn Fn(&str) -> Option<String>,
    /// For what a person may want to know.
    pub log: &'a Logger,
    /// How long what was done for it took.
    pub phases: &'a Phases,
}

/// What was done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Applied {
    /// One line for the log.
    pub summary: String,
}

/// One difference between a namespace and what is desired in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Deviation {
    /// Whether it is missing or unexpected.
    pub difference: Difference,
    /// What is: a table, a rule, a route.
    pub object: String,
}

impl fmt::Display for Deviation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.difference, self.object)
    }
}

/// The kernel, or what stands in for it. Errors are whole sentences: input,
/// reason, remedy.
pub trait Backend {
    /// Puts the redirection into the namespace: all or nothing, twice is once.
    ///
    /// # Errors
    /// Why not, and how the namespace was left: as it was, unless the error says otherwise.
    fn apply(&self, desired: &Desired<'_>) -> Result<Applied, String>;

    /// What is missing or different in the namespace; nothing when it is as desired. Changes nothing.
    ///
    /// # Errors
    /// Why it cannot be told.
    fn verify(&self, desired: &Desired<'_>) -> Result<Vec<Deviation>, String>;

    /// Whether rules can be written on this node by this process at all.
    /// Changes nothing.
    ///
    /// # Errors
    /// What is lacking, and what gives it.
    fn probe(&self) -> Result<(), String>;
}
