//! The faults of system calls, and the names of cases.

use std::fmt;
use std::str::FromStr;

use nix::errno::Errno;

use crate::check::calls::{self, Call};

/// A fault of a system call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The process is killed with `SIGKILL` before the call is executed.
    KillBefore,
    /// The process is killed with `SIGKILL` after the call was executed, before it gets the result.
    KillAfter,
    /// The call is not executed and returns this errno.
    Fail(Errno),
    /// The call is executed and returns `ENOBUFS`: its answer, or what it received, is lost.
    LoseAnswer,
    /// The call is executed normally, but before it another writer changes the namespace.
    Other(Other),
}

/// An action of another writer in a namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Other {
    /// Adds its own objects, in both engines and in the routing.
    Adds,
    /// Removes the redirection, as `weir clean` does.
    Cleans,
    /// Removes all tables of nf_tables and flushes all legacy tables, ours and foreign.
    Flushes,
    /// Applies another redirection of the same kind.
    Applies,
}

impl Other {
    pub(crate) const ALL: [Self; 4] = [Self::Adds, Self::Cleans, Self::Flushes, Self::Applies];
}

/// The errnos with which calls fail.
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
    /// All faults of a call, in the order of the cases, without other writers.
    pub(crate) fn all() -> impl Iterator<Item = Self> {
        let kills = [Self::KillBefore, Self::KillAfter, Self::LoseAnswer];
        kills.into_iter().chain(ERRNOS.map(Self::Fail))
    }

    /// All faults, including other writers.
    fn named() -> impl Iterator<Item = Self> {
        Self::all().chain(Other::ALL.map(Self::Other))
    }

    /// Whether the fault can persist. `EINTR` cannot: a signal does not interrupt every call.
    pub(crate) fn lasts(self) -> bool {
        self == Self::LoseAnswer || matches!(self, Self::Fail(errno) if errno != Errno::EINTR)
    }

    /// Whether the fault ends the process.
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
            Self::Other(other) => write!(f, "other-{}", format!("{other:?}").to_lowercase()),
        }
    }
}

impl FromStr for Fault {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::named()
            .find(|f| f.to_string() == text)
            .ok_or_else(|| {
                let all: Vec<String> = Self::named().map(|f| f.to_string()).collect();
                format!("{text:?} is no fault; give one of {}", all.join(", "))
            })
    }
}

/// A call of a process: the n-th with its number over all threads, counted from 1. Unlike the position among all calls, it
/// stays the same when an unrelated call is added or removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Target {
    pub(crate) number: u64,
    pub(crate) occurrence: usize,
}

/// A fault of one call, or of all calls with its number from that one on. Its text is `CALL.N/FAULT` or `CALL.N+/FAULT`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Strike {
    pub(crate) target: Target,
    pub(crate) lasting: bool,
    pub(crate) fault: Fault,
}

impl Strike {
    /// Whether it affects the call that is the `occurrence`-th with its number.
    pub(crate) fn meets(&self, call: Call, occurrence: usize) -> bool {
        let first = self.target.occurrence;
        self.target.number == call.number
            && (first == occurrence || self.lasting && first < occurrence)
            // In another run, the same occurrence may have other arguments.
            && call.can(self.fault)
    }
}

impl fmt::Display for Strike {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Target { number, occurrence } = self.target;
        let plus = if self.lasting { "+" } else { "" };
        let call = calls::name(number);
        write!(f, "{call}.{occurrence}{plus}/{}", self.fault)
    }
}

/// A case. Its text is `SCENARIO/STRIKE`, as in `apply-nft-tproxy/recvfrom.3/EINTR`, and with two faults
/// `SCENARIO/STRIKE/STRIKE`, where the calls of the second are counted from the first fault on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CaseId {
    pub(crate) scenario: String,
    pub(crate) first: Strike,
    pub(crate) second: Option<Strike>,
}

impl CaseId {
    /// The one or two faults.
    pub(crate) fn strikes(&self) -> impl Iterator<Item = &Strike> {
        std::iter::once(&self.first).chain(&self.second)
    }

    /// Whether the case has a single fault of one call, without another writer.
    pub(crate) fn is_plain(&self) -> bool {
        let mut strikes = self.strikes();
        strikes.all(|s| !s.lasting && !matches!(s.fault, Fault::Other(_))) && self.second.is_none()
    }
}

impl fmt::Display for CaseId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.scenario)?;
        let mut strikes = self.strikes();
        strikes.try_for_each(|strike| write!(f, "/{strike}"))
    }
}

impl FromStr for CaseId {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong =
            || format!("{text:?} is no case; give SCENARIO/CALL.N/FAULT as a run prints it");
        let words: Vec<&str> = text.split('/').collect();
        let strike = |call: &str, fault: &str| {
            let (call, occurrence) = call.split_once('.').ok_or_else(wrong)?;
            let number = calls::number(call)
                .ok_or_else(|| format!("{call:?} is no call that is known here"))?;
            let first = occurrence.trim_end_matches('+');
            Ok::<_, String>(Strike {
                target: Target {
                    number,
                    occurrence: first.parse().map_err(|_| wrong())?,
                },
                lasting: first != occurrence,
                fault: fault.parse()?,
            })
        };
        let (scenario, first, second) = match words[..] {
            [scenario, call, fault] => (scenario, strike(call, fault)?, None),
            [scenario, call, fault, call2, fault2] => {
                let second = strike(call2, fault2)?;
                (scenario, strike(call, fault)?, Some(second))
            }
            _ => return Err(wrong()),
        };
        Ok(Self {
            scenario: scenario.to_owned(),
            first,
            second,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_case_is_found_again_by_its_name() {
        for fault in Fault::named() {
            for lasting in [false, true] {
                let first = Strike {
                    target: Target {
                        number: libc::SYS_recvfrom.unsigned_abs(),
                        occurrence: 3,
                    },
                    lasting,
                    fault,
                };
                for second in [None, Some(first)] {
                    let scenario = "apply-nft-tproxy".to_owned();
                    let case = CaseId {
                        scenario,
                        first,
                        second,
                    };
                    assert_eq!(case.to_string().parse(), Ok(case));
                }
            }
        }
        for text in [
            "",
            "a",
            "a/b/c",
            "a/recvfrom.x/EINTR",
            "a/recvfrom.1/EBADF",
            "a/recvfrom.1/EIO/recvfrom.1",
        ] {
            assert!(text.parse::<CaseId>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_lasting_fault_strikes_from_its_call_on() {
        let recv = |occurrence, lasting| {
            let strike: CaseId = format!("a/recvfrom.3{}/EIO", if lasting { "+" } else { "" })
                .parse()
                .unwrap();
            let call = Call {
                number: libc::SYS_recvfrom.unsigned_abs(),
                arguments: [0; 4],
            };
            strike.first.meets(call, occurrence)
        };
        assert_eq!([2, 3, 4].map(|n| recv(n, false)), [false, true, false]);
        assert_eq!([2, 3, 4].map(|n| recv(n, true)), [false, true, true]);
    }
}
