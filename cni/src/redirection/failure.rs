//! A change that failed: why, and how it left the namespace.

use std::fmt;
use weir_netlink::{Error, InForce};

/// Why a redirection could not be applied or removed, and what is known about the namespace now.
///
/// `Display` says all of it in one line.
#[derive(Debug)]
pub struct Failure {
    /// What failed first.
    pub reason: Box<Error>,
    /// Whether the redirection that was to be applied is in force. Of a removal: whether some of what was to go is.
    pub in_force: InForce,
    /// What failed besides: each object that could not be taken back or removed.
    pub rest: Vec<Error>,
    during: During,
    /// Where older rules may stand beside the new ones.
    beside: Option<&'static str>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum During {
    Apply,
    Removal,
}

impl Failure {
    /// Of an apply. What became of the rules is in `in_force`, so `reason` does not repeat it.
    pub(super) fn of_apply(reason: Error, in_force: InForce, rest: Vec<Error>) -> Self {
        Self {
            reason: Box::new(reason.with_in_force(InForce::No)),
            in_force,
            rest,
            during: During::Apply,
            beside: None,
        }
    }

    /// Older rules were not taken away from there.
    pub(super) fn beside(mut self, tables: &'static str) -> Self {
        self.beside = Some(tables);
        self
    }

    /// Of a removal that went on after each of these; `None` when there are none.
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

/// Failed before anything was changed.
impl From<Error> for Failure {
    fn from(reason: Error) -> Self {
        let in_force = reason.in_force();
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
                "; it is not known whether the new redirection is in force, so its routing stays"
            }
        })?;
        if let Some(tables) = self.beside {
            write!(
                f,
                ", and older rules in {tables} may still stand beside it; apply again to remove them"
            )?;
        }
        for (n, e) in self.rest.iter().enumerate() {
            write!(f, "{} {e}", if n == 0 { "; besides:" } else { ";" })?;
        }
        Ok(())
    }
}

// Without a source: `Display` says it all.
impl std::error::Error for Failure {}
