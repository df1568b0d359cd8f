//! nf_tables: families, chain types, expressions, sets, userdata, the generation.

mod rows;
mod trial;

pub use rows::ROWS;

use super::{Answer, Finding, Row, RunningKernel, answer, unanswered};
use crate::nft::expr::Expr;
use crate::nft::{Hook, Set, TableFamily};
use trial::Lab;

/// The name of the area in findings.
pub const AREA: &str = "nf_tables";

/// The modules that every trial uses.
pub const BASE: &str = "nfnetlink nf_tables nf_tables_set nft_meta";

/// Errnos of a missing feature, among them `EINVAL` for attributes that the kernel does not know.
const ABSENT: &[i32] = &[
    libc::ENOENT,
    libc::EOPNOTSUPP,
    libc::EAFNOSUPPORT,
    libc::EPROTONOSUPPORT,
    libc::EINVAL,
];

/// The base chain in which a rule is tried.
#[derive(Clone, Copy, Debug)]
pub struct At {
    /// The family of its table
    pub family: TableFamily,
    /// `filter`, `nat`, `route`
    pub kind: &'static str,
    /// its number is that of `enum nf_inet_hooks`, or for `netdev` of `enum nf_dev_hooks`
    pub hook: Hook,
    /// chains with lower numbers are called earlier
    pub priority: i32,
}

/// The trial of an nf_tables feature: the content of the transaction.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Trial {
    /// A table of the family.
    Table(TableFamily),
    /// A base chain.
    Chain(At),
    /// A rule of these expressions.
    Rule(At, fn() -> Vec<Expr>),
    /// A set with its elements.
    Set(fn() -> Set),
    /// A set, and a rule that uses it.
    SetRule(fn() -> Set, fn() -> Vec<Expr>),
    /// A comment of a table, which must be present when the table is read back.
    TableComment,
    /// A comment of a chain.
    ChainComment,
    /// A transaction for an old generation, which the kernel must refuse (`ERESTART`).
    Generation,
}

/// Tries every row in the network namespace of the calling thread, which must be a throwaway one.
#[must_use]
pub fn features(kernel: &RunningKernel) -> Vec<Finding> {
    features_of(kernel, |_| true)
}

/// As [`features`], but only for features that `wanted` selects.
pub(crate) fn features_of(kernel: &RunningKernel, wanted: impl Fn(&str) -> bool) -> Vec<Finding> {
    let mut lab: Option<Result<Lab, Answer>> = None;
    let mut one = |row: &Row<Trial>| {
        answer(AREA, BASE, row, kernel, |trial| {
            // Opened only after the guard: opening the socket could load a module.
            match lab.get_or_insert_with(Lab::open) {
                Ok(lab) => Answer::of(lab.try_one(trial).map(|()| String::new()), ABSENT),
                Err(why) => why.clone(),
            }
        })
    };
    let rows = ROWS.iter().filter(|row| wanted(row.feature));
    rows.map(&mut one).collect()
}

/// Answers every row with [`Answer::Unknown`].
#[must_use]
pub fn untried(why: &str) -> Vec<Finding> {
    unanswered(AREA, BASE, ROWS, why)
}
