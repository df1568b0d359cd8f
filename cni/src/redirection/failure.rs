//! The error of a change: the reason, and the state of the namespace.

use std::fmt;
use weir_netlink::{Error, InForce};

/// Why a redirection could not be applied or removed, and the known state of the namespace.
///
/// `Display` prints all of it in one line.
#[derive(Debug)]
pub struct Failure {
    /// The first error.
    pub reason: Box<Error>,
    /// Whether the redirection to apply is in force. For a removal: whether any part of the redirection to remove is.
    pub in_force: InForce,
    /// Further errors: each object that could not be restored or removed.
    pub rest: Vec<Error>,
    during: During,
    /// The tables in which older rules may exist beside the new ones.
    beside: Option<&'static str>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum During {
    Apply,
    Removal,
}

impl Failure {
    /// The failure of an apply. `in_force` states whether the rules are in force, so `reason` does not repeat it.
    pub(super) fn of_apply(reason: Error, in_force: InForce, rest: Vec<Error>) -> Self {
        Self {
            reason: Box::new(reason.with_in_force(InForce::No)),
            in_force,
            rest,
            during: During::Apply,
            beside: None,
        }
    }

    /// Adds the tables in which older rules were not removed.
    pub(super) fn beside(mut self, tables: &'static str) -> Self {
        self.beside = Some(tables);
        self
    }

    /// The failure of a removal that continued after each of these errors; `None` without errors.
    pub(super) fn of_removal(failures: Vec<Error>) -> Option<Self> {
        let mut rest = failures.into_iter();
        let reason = rest.next()?;
        Some(Self {
            reason: Box::new(reason.with_in_force(InForce::No)),
            in_force: InForce::Unknown,
            rest: rest.collect(),
            during: During::Removal,
            beside: None,
        })
    }
}

/// Converts an error that occurred before any change.
impl From<Error> for Failure {
    fn from(reason: Error) -> Self {
        let in_force = reason.in_force;
        Self::of_apply(reason, in_force, Vec::new())
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.reason)?;
        let is_undone = self.rest.is_empty();
        f.write_str(match (self.during, self.in_force) {
            (During::Removal, _) => "; what could be removed is gone",
            (During::Apply, InForce::No) if is_undone => "; nothing is changed",
            (During::Apply, InForce::No) => "; the new redirection is not in force",
            (During::Apply, InForce::Yes) => "; the new redirection is in force with its routing",
            (During::Apply, InForce::Unknown) => {
                "; it is not known whether the new redirection is in force, so its routing is kept"
            }
        })?;
        if let Some(tables) = self.beside {
            write!(
                f,
                ", and older rules in {tables} may still exist beside it; apply again to remove them"
            )?;
        }
        for (n, e) in self.rest.iter().enumerate() {
            write!(f, "{} {e}", if n == 0 { "; besides:" } else { ";" })?;
        }
        Ok(())
    }
}

// Without a source: `Display` prints everything.
impl std::error::Error for Failure {}
