//! Failures of commands, with their exit codes.

use std::borrow::Cow;
use std::fmt;
use weir_cni::log::{escaped, is_deceptive};

/// Exit codes, the same for every command.
pub mod code {
    /// Done, or in sync.
    pub const SUCCESS: u8 = 0;
    /// Failed; for `verify`: there is drift.
    pub const FAILED: u8 = 1;
    /// The arguments or the files that they name cannot be used.
    pub const USAGE: u8 = 2;
    /// The state could not be determined.
    pub const UNKNOWN: u8 = 3;
    /// `agent`: stopped by a signal, but the installation could not be removed.
    pub const NOT_REMOVED: u8 = 4;
    /// The probe of `run_validation` failed; same code as `istio-iptables`, and the repair controller checks for it.
    pub const PROBE: u8 = 126;
}

/// A message and an exit code.
#[derive(Debug)]
pub struct Failure {
    /// Exit code, one of [`code`].
    pub code: u8,
    /// Message; nothing is printed if it is empty.
    pub message: String,
}

impl Failure {
    /// Prints the message to stderr and returns the exit code.
    pub fn tell(&self) -> u8 {
        if !self.message.is_empty() {
            eprintln!("weir: {}", plain(&self.message));
        }
        self.code
    }

    /// An operation failed.
    pub fn failed(e: impl fmt::Display) -> Self {
        Self {
            code: code::FAILED,
            message: e.to_string(),
        }
    }

    /// The arguments or input files cannot be used.
    pub fn usage(e: impl fmt::Display) -> Self {
        Self {
            code: code::USAGE,
            message: e.to_string(),
        }
    }

    /// A namespace could not be opened: a usage error, unless this process lacks permission or resources; then
    /// `otherwise` decides.
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

    /// The state could not be determined.
    pub fn unknown(e: impl fmt::Display) -> Self {
        Self {
            code: code::UNKNOWN,
            message: e.to_string(),
        }
    }
}

/// Prints a warning to stderr, as one line.
pub fn warn(text: impl fmt::Display) {
    eprintln!("weir: warning: {}", one_line(&text.to_string()));
}

/// Returns the text as one line without control sequences: it may contain names and comments that another program gave to
/// rules. Line breaks become spaces, other [deceptive](is_deceptive) characters are escaped.
pub fn one_line(text: &str) -> Cow<'_, str> {
    match text.contains('\n') {
        true => escaped(&text.replace('\n', " "), is_deceptive)
            .into_owned()
            .into(),
        false => escaped(text, is_deceptive),
    }
}

/// Escapes control characters, which may come from a file and which a terminal would interpret.
fn plain(message: &str) -> Cow<'_, str> {
    escaped(message, |c| c.is_control() && !matches!(c, '\t' | '\n'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_terminal_obeys_no_message() {
        let text = "`-j \u{1b}[2Jä\r\u{9b}1m`: is\n\tno target";
        assert_eq!(plain(text), "`-j \\u{1b}[2Jä\\r\\u{9b}1m`: is\n\tno target");
        assert_eq!(
            one_line("a\nb \u{202e}\u{1b}[2Jä"),
            "a b \\u{202e}\\u{1b}[2Jä"
        );
    }
}
