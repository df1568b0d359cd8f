//! Why a command ended without doing what it was asked.

use std::fmt;

/// Exit codes, the same for every command.
pub mod code {
    /// Done, or as desired.
    pub const SUCCESS: u8 = 0;
    /// Failed; for `verify`: there is drift.
    pub const FAILED: u8 = 1;
    /// The arguments or the files that they name cannot be used.
    pub const USAGE: u8 = 2;
    /// It could not be found out.
    pub const UNKNOWN: u8 = 3;
    /// `agent`: a signal asked to end, and the installation could not be removed.
    pub const NOT_REMOVED: u8 = 4;
    /// The probe of `run_validation` failed, as `istio-iptables` ends and as the repair controller looks for.
    pub const PROBE: u8 = 126;
}

/// A message for a person and a code for a program.
#[derive(Debug)]
pub struct Failure {
    /// Of [`code`].
    pub code: u8,
    /// For a person; nothing is said if it is empty.
    pub message: String,
}

impl Failure {
    /// Tells a person. The exit code.
    pub fn tell(&self) -> u8 {
        if !self.message.is_empty() {
            eprintln!("weir: {}", plain(&self.message));
        }
        self.code
    }

    /// What was asked for was tried and failed.
    pub fn failed(e: impl fmt::Display) -> Self {
        Self {
            code: code::FAILED,
            message: e.to_string(),
        }
    }

    /// What was given cannot be used.
    pub fn usage(e: impl fmt::Display) -> Self {
        Self {
            code: code::USAGE,
            message: e.to_string(),
        }
    }

    /// A namespace could not be opened: the argument cannot be used, unless this process may not look or lacks
    /// the means, which is what `otherwise` says.
    pub(super) fn of_namespace(
        e: &weir_netlink::Error,
        otherwise: fn(&weir_netlink::Error) -> Self,
    ) -> Self {
        use nix::libc::{EMFILE, ENFILE, ENOMEM};
        let lacks_means = matches!(e.errno(), Some(EMFILE | ENFILE | ENOMEM));
        match e.is_permission() || lacks_means {
            true => otherwise(e),
            false => Self::usage(e),
        }
    }

    /// The question has no answer.
    pub fn unknown(e: impl fmt::Display) -> Self {
        Self {
            code: code::UNKNOWN,
            message: e.to_string(),
        }
    }
}

/// Without the control characters of a word from a file, which a terminal would obey.
fn plain(message: &str) -> String {
    let is_obeyed = |c: char| c.is_control() && !matches!(c, '\n' | '\t');
    let escaped = message.chars().map(|c| match is_obeyed(c) {
        true => c.escape_default().to_string(),
        false => c.to_string(),
    });
    escaped.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_terminal_obeys_no_message() {
        let text = "`-j \u{1b}[2Jä\r\u{9b}1m`: is\n\tno target";
        assert_eq!(plain(text), "`-j \\u{1b}[2Jä\\r\\u{9b}1m`: is\n\tno target");
    }
}
