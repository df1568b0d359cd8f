//! The features of this kernel's packet filters, determined by trials.
//!
//! There are three answers, none of them guessed: the kernel accepted the trial ([`Answer::Have`]), it answered that it
//! lacks the feature ([`Answer::Lack`]), or the trial was not possible ([`Answer::Unknown`]).
//!
//! - **By trial, not by version.** A feature is present if the kernel committed a rule that uses it.
//! - **In a throwaway namespace.** Every `*_features` function works in the network namespace of the calling thread
//!   and leaves objects there. Call it inside [`Netns::run`](weir_netlink::Netns::run) of a namespace created for it:
//!   the kernel creates a legacy table, for instance, when it is read.
//! - **No module is loaded.** The kernel loads a module when a missing feature is requested. So [`RunningKernel`] is
//!   consulted first, and if a module might be loaded, the answer is [`Answer::Unknown`] with the name of the
//!   module.
//!
//! The features are rows of tables, one line each: [`nft::ROWS`], [`xtables::rows`], and the types of [`ipset`]; the
//! configuration options follow from the modules. [`needs`] derives the rows that given rules need.

pub mod ipset;
pub mod needs;
pub mod nft;
pub mod xtables;

pub use crate::features::{Answer, Loading, RunningKernel};

/// One feature: a row of a table.
#[derive(Clone, Copy, Debug)]
pub struct Row<P: 'static> {
    /// The name of the feature, unique in the area.
    pub feature: &'static str,
    /// The trial.
    pub probe: P,
    /// Modules that the trial uses, separated by spaces.
    pub needs: &'static str,
    /// First kernel that has it, such as `5.2`; empty if every supported kernel has it.
    pub since: &'static str,
    /// The substitute if it is missing.
    pub instead: &'static str,
}

/// A row, with its fields in the order of [`Row`].
#[must_use]
pub const fn row<P>(
    feature: &'static str,
    probe: P,
    needs: &'static str,
    since: &'static str,
    instead: &'static str,
) -> Row<P> {
    Row {
        feature,
        probe,
        needs,
        since,
        instead,
    }
}

/// The answer for one feature, with the options and modules that provide it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The area, which names the table of the row.
    pub area: &'static str,
    /// The feature's name.
    pub feature: String,
    /// Whether the kernel has it.
    pub answer: Answer,
    /// Configuration options that provide it (`CONFIG_*`).
    pub options: Vec<String>,
    /// Modules that provide it if it is not built in.
    pub modules: Vec<String>,
    /// First kernel that has it, such as `5.2`; empty if every supported kernel has it.
    pub since: &'static str,
    /// The substitute if it is missing.
    pub instead: &'static str,
}

/// Answers one row: calls `trial` unless that could load a module.
///
/// `base` names the modules that every trial of the area needs, separated by spaces; a finding reports them only if its row
/// names no module.
pub fn answer<P>(
    area: &'static str,
    base: &str,
    row: &Row<P>,
    kernel: &RunningKernel,
    trial: impl FnOnce(&P) -> Answer,
) -> Finding {
    let guard = kernel.guard(base).or_else(|| kernel.guard(row.needs));
    let answer = guard.unwrap_or_else(|| trial(&row.probe));
    finding(
        area,
        row.feature.to_owned(),
        answer,
        if row.needs.is_empty() {
            base
        } else {
            row.needs
        },
        (row.since, row.instead),
    )
}

/// Makes a finding; `gives` names the modules that provide the feature, from which its options follow.
#[must_use]
pub fn finding(
    area: &'static str,
    feature: String,
    answer: Answer,
    gives: &str,
    (since, instead): (&'static str, &'static str),
) -> Finding {
    let (options, modules) = crate::features::names(gives);
    Finding {
        area,
        feature,
        answer,
        options,
        modules,
        since,
        instead,
    }
}

/// Answers every row of a table with [`Answer::Unknown`], for an area in which no trial is possible.
#[must_use]
pub fn unanswered<P>(area: &'static str, base: &str, rows: &[Row<P>], why: &str) -> Vec<Finding> {
    let one = |row: &Row<P>| {
        let gives = if row.needs.is_empty() {
            base
        } else {
            row.needs
        };
        let answer = Answer::Unknown(why.to_owned());
        finding(
            area,
            row.feature.to_owned(),
            answer,
            gives,
            (row.since, row.instead),
        )
    };
    rows.iter().map(one).collect()
}

#[cfg(test)]
mod tests;
