//! The features of this kernel's packet filters, determined by trials.
//!
//! Three answers, none of them guessed: the kernel did it ([`Answer::Have`]), the kernel reported that it cannot
//! ([`Answer::Lack`]), or it could not be tried ([`Answer::Unknown`]).
//!
//! - **Tried, not looked up.** A feature is present when a rule that uses it was committed.
//! - **In a throwaway namespace.** Every `*_features` function works in the network namespace of the calling thread
//!   and leaves objects there. Call it inside [`Netns::run`](weir_netlink::Netns::run) of a namespace created for it:
//!   the kernel creates a legacy table, for instance, when it is read.
//! - **No module is loaded.** The kernel loads a module when a missing feature is requested. So [`RunningKernel`] is
//!   consulted first, and where a module might be loaded the answer is [`Answer::Unknown`] with the name of the
//!   module.
//!
//! The features are rows of tables, one line each: [`nft::ROWS`], [`xtables::ROWS`], [`ipset::ROWS`]; the modules
//! with their configuration options are in [`modules::MODULES`]. [`needs`] derives the rows that given rules need.

pub mod ipset;
mod kernel;
pub mod modules;
pub mod needs;
pub mod nft;
pub mod xtables;

pub use kernel::{Loading, RunningKernel};

use weir_netlink::Error;

/// The three answers. The text holds the revisions, the kernel's error, or the reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The kernel did it.
    Have(String),
    /// The kernel lacks the feature.
    Lack(String),
    /// It could not be determined.
    Unknown(String),
}

impl Answer {
    /// Whether the kernel did it.
    #[must_use]
    pub fn is_have(&self) -> bool {
        matches!(self, Self::Have(_))
    }

    /// Whether the kernel lacks the feature.
    #[must_use]
    pub fn is_lack(&self) -> bool {
        matches!(self, Self::Lack(_))
    }

    /// `have`, `lack`, `could not tell`.
    #[must_use]
    pub fn word(&self) -> &'static str {
        match self {
            Self::Have(_) => "have",
            Self::Lack(_) => "lack",
            Self::Unknown(_) => "could not tell",
        }
    }

    /// The text of the answer.
    #[must_use]
    pub fn detail(&self) -> &str {
        match self {
            Self::Have(text) | Self::Lack(text) | Self::Unknown(text) => text,
        }
    }

    /// The answer of a trial: an errno in `absent` is [`Answer::Lack`]; any other failure is [`Answer::Unknown`].
    #[must_use]
    pub fn of(trial: Result<String, Error>, absent: &[i32]) -> Self {
        match trial {
            Ok(detail) => Self::Have(detail),
            Err(e) if e.errno().is_some_and(|n| absent.contains(&n)) => Self::Lack(e.to_string()),
            Err(e) => Self::Unknown(e.to_string()),
        }
    }
}

/// One feature: a row of a table.
#[derive(Clone, Copy, Debug)]
pub struct Row<P: 'static> {
    /// Its name, unique in the area.
    pub feature: &'static str,
    /// How it is tried.
    pub probe: P,
    /// Modules that the trial uses, separated by spaces: names of [`modules::MODULES`].
    pub needs: &'static str,
    /// First kernel that has it; empty if every supported one has it.
    pub since: &'static str,
    /// The substitute where it is missing.
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

/// The answer for one feature.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The area, which names the table of the row.
    pub area: &'static str,
    /// The feature's name.
    pub feature: String,
    /// Whether the kernel has it.
    pub answer: Answer,
    /// Configuration options that provide it (`CONFIG_*`).
    pub options: Vec<&'static str>,
    /// Modules that provide it where it is not built in.
    pub modules: Vec<&'static str>,
    /// First kernel that has it, or empty.
    pub since: &'static str,
    /// The substitute where it is missing.
    pub instead: &'static str,
}

/// Answers one row: tries it unless that could load a module.
///
/// `base` are modules that every trial of the area needs; they are not reported as what provides the feature.
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

/// A finding, with its options and modules looked up.
#[must_use]
pub fn finding(
    area: &'static str,
    feature: String,
    answer: Answer,
    gives: &str,
    (since, instead): (&'static str, &'static str),
) -> Finding {
    let given: Vec<_> = gives.split_whitespace().filter_map(modules::find).collect();
    let mut options: Vec<&'static str> = given.iter().map(|m| m.option).collect();
    options.dedup();
    // A module that has been merged into a larger one cannot be loaded.
    let modules = given
        .iter()
        .filter(|m| m.merged == (0, 0))
        .map(|m| m.name)
        .collect();
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

/// Every row of a table with the same answer, for the case that none can be tried.
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
