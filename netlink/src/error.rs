//! The error type of every request to the kernel.

use crate::attr::{DecodeError, Path};
use std::fmt;
use std::time::Duration;

/// A failed operation: its object, the reason, and the kernel's extended ack.
#[derive(Clone, Debug)]
#[doc(alias = "NLMSG_ERROR")]
pub struct Error {
    /// The attempted operation, in the terms of the field: "add rule", "open network namespace".
    pub operation: String,
    /// Its object: "inet nat output #3", "/run/netns/a".
    pub object: String,
    /// Why it failed.
    pub kind: ErrorKind,
    /// Whether the requested change is in force.
    pub in_force: InForce,
}

/// Whether a change is in force although its operation failed. Callers use it to decide whether to undo other changes, such
/// as routes that were added together with rules.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum InForce {
    /// The change is not in force: it was not sent, it was refused, or it was rolled back. Also the value for
    /// operations that change nothing.
    #[default]
    No,
    /// The kernel acknowledged the change, or it was read back. A later step failed.
    Yes,
    /// The change was sent and the answer lost, or only a part of it is known to be in force. Read the state before
    /// deleting anything that depends on it.
    Unknown,
}

/// Why an operation failed.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The kernel refused the request, or a system call failed.
    Kernel {
        /// `errno(3)`, positive.
        errno: i32,
        /// `NLMSGERR_ATTR_MSG`: the extended ack text of the kernel.
        extack: Option<String>,
        /// Path to the attribute that `NLMSGERR_ATTR_OFFS` refers to, or that `NLMSGERR_ATTR_MISS_TYPE` reports as
        /// missing.
        attribute: Option<Path>,
    },
    /// The kernel refused with an errno whose meaning depends on the subsystem: the private errnos of ipset start at
    /// 4096 (`IPSET_ERR_PRIVATE`).
    Translated {
        /// The number, positive.
        errno: i32,
        /// Its C name.
        name: &'static str,
        /// Its meaning, and the remedy.
        reason: String,
    },
    /// An answer of the kernel cannot be decoded, or contradicts the request. Contains the reason, and the path to the
    /// attribute if it is about one.
    Malformed(DecodeError),
    /// This crate refused the request and sent nothing to the kernel. Contains the reason and the remedy.
    Refused(String),
    /// The kernel lacks the requested feature. Contains the option, module or release that provides it.
    Unsupported(String),
    /// The limit of attempts or of time is reached. Contains the repeated cause.
    Exhausted(String),
    /// The kernel did not answer within this time.
    TimedOut(Duration),
}

/// A time as text with few digits: `30 s`, `0.5 ms`.
fn rounded(time: Duration) -> String {
    match time.as_secs() {
        0 => format!("{:.1} ms", time.as_secs_f64() * 1e3),
        _ => format!("{:.0} s", time.as_secs_f64()),
    }
}

/// The result type of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Declares the constructors of the kinds that hold one value.
macro_rules! constructors {
    ($($(#[$m:meta])* $name:ident($text:ident: $type:ty) = $kind:ident,)*) => {$(
        $(#[$m])*
        #[must_use]
        pub fn $name(
            operation: impl Into<String>,
            object: impl Into<String>,
            $text: impl Into<$type>,
        ) -> Self {
            Self::new(operation, object, ErrorKind::$kind($text.into()))
        }
    )*};
}

impl Error {
    /// An error of any kind; [`InForce::No`] unless changed by [`Error::with_in_force`].
    #[must_use]
    pub fn new(operation: impl Into<String>, object: impl Into<String>, kind: ErrorKind) -> Self {
        Self {
            operation: operation.into(),
            object: object.into(),
            kind,
            in_force: InForce::No,
        }
    }

    /// A system call or a netlink request failed with an errno.
    #[must_use]
    pub fn kernel(operation: impl Into<String>, object: impl Into<String>, errno: i32) -> Self {
        let kind = ErrorKind::Kernel {
            errno,
            extack: None,
            attribute: None,
        };
        Self::new(operation, object, kind)
    }

    /// As [`Error::kernel`], from an [`std::io::Error`].
    #[must_use]
    pub fn io(
        operation: impl Into<String>,
        object: impl Into<String>,
        error: &std::io::Error,
    ) -> Self {
        match error.raw_os_error() {
            Some(errno) => Self::kernel(operation, object, errno),
            None => Self::malformed(operation, object, error.to_string()),
        }
    }

    constructors! {
        /// An answer cannot be decoded, or contradicts the request.
        malformed(detail: DecodeError) = Malformed,
        /// This crate refuses the operation; `reason` includes the remedy.
        refused(reason: String) = Refused,
        /// The kernel lacks a feature; `remedy` names what provides it.
        unsupported(remedy: String) = Unsupported,
        /// The limit of attempts is reached; `what` kept happening.
        exhausted(what: String) = Exhausted,
    }

    /// The kernel did not answer within `waited`.
    #[must_use]
    pub fn timed_out(
        operation: impl Into<String>,
        object: impl Into<String>,
        waited: Duration,
    ) -> Self {
        Self::new(operation, object, ErrorKind::TimedOut(waited))
    }

    /// Sets whether the change is in force.
    #[must_use]
    pub fn with_in_force(mut self, in_force: InForce) -> Self {
        self.in_force = in_force;
        self
    }

    /// The errno, if the kernel returned one.
    #[must_use]
    pub fn errno(&self) -> Option<i32> {
        match self.kind {
            ErrorKind::Kernel { errno, .. } | ErrorKind::Translated { errno, .. } => Some(errno),
            _ => None,
        }
    }

    /// `ENOENT`, `ESRCH`, `ENODEV` or `EADDRNOTAVAIL`: the object does not exist.
    #[must_use]
    pub fn is_not_found(&self) -> bool {
        matches!(
            self.errno(),
            Some(libc::ENOENT | libc::ESRCH | libc::ENODEV | libc::EADDRNOTAVAIL)
        )
    }

    /// `EEXIST`: the object already exists.
    #[must_use]
    pub fn is_exists(&self) -> bool {
        self.errno() == Some(libc::EEXIST)
    }

    /// `EPERM` or `EACCES`: a capability is missing.
    #[must_use]
    pub fn is_permission(&self) -> bool {
        matches!(self.errno(), Some(libc::EPERM | libc::EACCES))
    }

    /// The kernel lacks the feature: [`ErrorKind::Unsupported`].
    #[must_use]
    pub fn is_unsupported(&self) -> bool {
        matches!(self.kind, ErrorKind::Unsupported(_))
    }

    /// The kernel did not answer before the deadline.
    #[must_use]
    pub fn is_timed_out(&self) -> bool {
        matches!(self.kind, ErrorKind::TimedOut(_))
    }

    /// `ERESTART` (85): the ruleset changed since the generation that the batch was built for.
    #[must_use]
    pub fn is_stale_generation(&self) -> bool {
        self.errno() == Some(libc::ERESTART)
    }
}

/// The remedy for an errno, if one cause is likely.
fn remedy(errno: i32) -> Option<&'static str> {
    match errno {
        libc::EPERM | libc::EACCES => Some(
            "run as root, or with CAP_NET_ADMIN in the namespace's user namespace and CAP_SYS_ADMIN to enter it; the namespace of \
             another user's process needs CAP_SYS_PTRACE",
        ),
        libc::EOPNOTSUPP | libc::EPROTONOSUPPORT | libc::EAFNOSUPPORT => {
            Some("this kernel was built without it, or its module is not loaded")
        }
        libc::EMSGSIZE => {
            Some("raise net.core.wmem_max or grant CAP_NET_ADMIN in the initial namespace")
        }
        libc::ENOBUFS => {
            Some("raise net.core.rmem_max or grant CAP_NET_ADMIN in the initial namespace")
        }
        _ => None,
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot {}", self.operation)?;
        if !self.object.is_empty() {
            write!(f, " {}", self.object)?;
        }
        match &self.kind {
            ErrorKind::Kernel {
                errno,
                extack,
                attribute,
            } => {
                let text = nix::errno::Errno::from_raw(*errno);
                write!(f, ": {} ({text:?})", text.desc())?;
                if let Some(a) = attribute {
                    write!(f, " at {a}")?;
                }
                if let Some(m) = extack {
                    write!(f, ": the kernel says \"{m}\"")?;
                }
                // With an extended ack text, the kernel has another reason than missing privileges.
                let is_told = *errno == libc::EACCES && extack.is_some();
                if let Some(r) = remedy(*errno).filter(|_| !is_told) {
                    write!(f, "; {r}")?;
                }
            }
            ErrorKind::Translated {
                errno,
                name,
                reason,
            } => {
                write!(f, ": {reason} ({name}, {errno})")?;
            }
            ErrorKind::Malformed(d) => write!(f, ": {d}")?,
            ErrorKind::Refused(r) => write!(f, ": refused: {r}")?,
            ErrorKind::Unsupported(r) => write!(f, ": not supported: {r}")?,
            ErrorKind::Exhausted(w) => write!(f, ": given up: {w}")?,
            ErrorKind::TimedOut(waited) => write!(
                f,
                ": the kernel did not answer within {}; try again when the node has memory and processors to spare",
                rounded(*waited)
            )?,
        }
        f.write_str(match self.in_force {
            InForce::No => "",
            InForce::Yes => "; the change is in force",
            InForce::Unknown => "; it is not known whether the change is in force",
        })
    }
}

impl std::error::Error for Error {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_told_without_digits_that_say_nothing() {
        for (micros, text) in [(30_002_182, "30 s"), (54_151, "54.2 ms"), (0, "0.0 ms")] {
            let error = Error::timed_out("list", "rules", Duration::from_micros(micros));
            let said = format!("within {text};");
            assert!(error.to_string().contains(&said), "{error}");
        }
    }

    #[test]
    fn a_reason_of_the_kernel_goes_before_advice_about_rights() {
        let error = Error::kernel("add", "address", libc::EACCES);
        assert!(error.to_string().contains("run as root"), "{error}");
        let kind = ErrorKind::Kernel {
            errno: libc::EACCES,
            extack: Some("ipv6: IPv6 is disabled on this device".into()),
            attribute: None,
        };
        let told = Error::new("add", "address", kind).to_string();
        assert!(told.ends_with("disabled on this device\""), "{told}");
    }

    #[test]
    fn an_error_says_whether_its_change_is_in_force() {
        let error = || Error::kernel("add", "route", libc::ENOBUFS);
        assert_eq!(error().in_force, InForce::No);
        assert!(!error().to_string().contains("in force"));
        for (in_force, says) in [
            (InForce::Yes, "; the change is in force"),
            (
                InForce::Unknown,
                "; it is not known whether the change is in force",
            ),
        ] {
            let error = error().with_in_force(in_force);
            assert_eq!(error.in_force, in_force);
            assert!(error.to_string().ends_with(says), "{error}");
        }
    }
}
