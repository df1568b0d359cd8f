//! Why a command ended without doing what it was asked.

use std::fmt;

/// Exit codes, the same for every command.
pub(super) mod code {
    /// Done, or as desired.
    pub(crate) const SUCCESS: u8 = 0;
    /// Failed; for `verify`: there is drift.
    pub(crate) const FAILED: u8 = 1;
    /// The arguments or the files that they name cannot be used.
    pub(crate) const USAGE: u8 = 2;
    /// It could not be found out.
    pub(crate) const UNKNOWN: u8 = 3;
}

/// A message for a person and a code for a program.
#[derive(Debug)]
pub(super) struct Failure {
    pub(super) code: u8,
    pub(super) message: String,
}

impl Failure {
    /// What was asked for was tried and failed.
    pub(super) fn failed(e: impl fmt::Display) -> Self {
        Self {
            code: code::FAILED,
            message: e.to_string(),
        }
    }

    /// What was given cannot be used.
    pub(super) fn usage(e: impl fmt::Display) -> Self {
        Self {
            code: code::USAGE,
            message: e.to_string(),
        }
    }

    /// The question has no answer.
    pub(super) fn unknown(e: impl fmt::Display) -> Self {
        Self {
            code: code::UNKNOWN,
            message: e.to_string(),
        }
    }
}
