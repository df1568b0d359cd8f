//! What is done to one system call, and the name of a case.

use std::fmt;
use std::str::FromStr;

use nix::errno::Errno;

use crate::check::calls;

/// What happens to a system call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The process gets `SIGKILL` before the call is executed.
    KillBefore,
    /// The process gets `SIGKILL` after the call was executed, before it sees the result.
    KillAfter,
    /// The call is not executed and returns this errno.
    Fail(Errno),
    /// The call is executed and returns `ENOBUFS`: its answer, or what it received, is lost.
    LoseAnswer,
}

/// The errnos that calls fail with.
pub(crate) const ERRNOS: [Errno; 7] = [
    Errno::EINTR,
    Errno::EAGAIN,
    Errno::ENOBUFS,
    Errno::ENOMEM,
    Errno::EPERM,
    Errno::EIO,
    Errno::ETIMEDOUT,
];

impl Fault {
    /// Every fault, in the order of the cases.
    pub(crate) fn all() -> impl Iterator<Item = Self> {
        let kills = [Self::KillBefore, Self::KillAfter, Self::LoseAnswer];
        kills.into_iter().chain(ERRNOS.map(Self::Fail))
    }

    /// Whether the process does not live on.
    pub(crate) fn kills(self) -> bool {
        matches!(self, Self::KillBefore | Self::KillAfter)
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::KillBefore => f.write_str("kill-before"),
            Self::KillAfter => f.write_str("kill-after"),
            Self::Fail(errno) => write!(f, "{errno:?}"),
            Self::LoseAnswer => f.write_str("lost-answer"),
        }
    }
}

impl FromStr for Fault {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::all().find(|f| f.to_string() == text).ok_or_else(|| {
            let all: Vec<String> = Self::all().map(|f| f.to_string()).collect();
            format!("{text:?} is no fault; give one of {}", all.join(", "))
        })
    }
}

/// Which call of a process: the n-th of its kind over all threads, counted from 1. Unlike the place among all
/// calls, it stays the same when an unrelated call comes or goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Target {
    pub(crate) number: u64,
    pub(crate) occurrence: usize,
}

/// One case. As text `SCENARIO/CALL.N/FAULT`, as in `apply-nft-tproxy/recvfrom.3/EINTR`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CaseId {
    pub(crate) scenario: String,
    pub(crate) target: Target,
    pub(crate) fault: Fault,
}

impl fmt::Display for CaseId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            scenario,
            target,
            fault,
        } = self;
        let call = calls::name(target.number);
        write!(f, "{scenario}/{call}.{}/{fault}", target.occurrence)
    }
}

impl FromStr for CaseId {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong =
            || format!("{text:?} is no case; give SCENARIO/CALL.N/FAULT as a run prints it");
        let (scenario, rest) = text.split_once('/').ok_or_else(wrong)?;
        let (call, fault) = rest.split_once('/').ok_or_else(wrong)?;
        let (call, occurrence) = call.split_once('.').ok_or_else(wrong)?;
        let number =
            calls::number(call).ok_or_else(|| format!("{call:?} is no call that is known here"))?;
        Ok(Self {
            scenario: scenario.to_owned(),
            target: Target {
                number,
                occurrence: occurrence.parse().map_err(|_| wrong())?,
            },
            fault: fault.parse()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_case_is_found_again_by_its_name() {
        for fault in Fault::all() {
            let case = CaseId {
                scenario: "apply-nft-tproxy".into(),
                target: Target {
                    number: libc::SYS_recvfrom.unsigned_abs(),
                    occurrence: 3,
                },
                fault,
            };
            assert_eq!(case.to_string().parse(), Ok(case));
        }
        for text in ["", "a", "a/b/c", "a/recvfrom.x/EINTR", "a/recvfrom.1/EBADF"] {
            assert!(text.parse::<CaseId>().is_err(), "{text}");
        }
    }
}
