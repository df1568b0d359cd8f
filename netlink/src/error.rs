//! One error for everything that is asked of the kernel.

use std::fmt;

/// Which operation failed, on what, why, and what the kernel said about it.
#[derive(Debug)]
pub struct Error {
    /// What was attempted, in the words of the field: "add rule", "open network namespace".
    pub operation: String,
    /// What it was attempted on: "inet istio-proxy-nat output #3", "/run/netns/a".
    pub object: String,
    /// Why it failed.
    pub kind: ErrorKind,
}

/// Why an operation failed.
#[derive(Debug)]
pub enum ErrorKind {
    /// The kernel refused.
    Kernel {
        /// `errno(3)`, positive.
        errno: i32,
        /// `NLMSGERR_ATTR_MSG`: the kernel's own words.
        extack: Option<String>,
        /// The path of the attribute that `NLMSGERR_ATTR_OFFS` points at, or
        /// that `NLMSGERR_ATTR_MISS_TYPE` misses.
        attribute: Option<String>,
    },
    /// The kernel refused, with a number that means something else to every subsystem: ipset's own start at
    /// 4096 (`IPSET_ERR_PRIVATE`).
    Translated {
        /// The number, positive.
        errno: i32,
        /// Its C name.
        name: &'static str,
        /// What it says, and the remedy.
        reason: String,
    },
    /// A reply that this code cannot read.
    Malformed(String),
    /// Weir refuses: the reason and the remedy.
    Refused(String),
    /// The kernel lacks what is asked for: what gives it.
    Unsupported(String),
    /// The bounded number of attempts is used up: what kept happening.
    Exhausted(String),
}

/// The result of everything in this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// A system call or a netlink request answered with an errno.
    #[must_use]
    pub fn kernel(operation: impl Into<String>, object: impl Into<String>, errno: i32) -> Self {
        let kind = ErrorKind::Kernel {
            errno,
            extack: None,
            attribute: None,
        };
        Self {
            operation: operation.into(),
            object: object.into(),
            kind,
        }
    }

    /// The same from an [`std::io::Error`].
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

    /// A reply that cannot be read.
    #[must_use]
    pub fn malformed(
        operation: impl Into<String>,
        object: impl Into<String>,
        detail: impl Into<String>,
    ) -> Self {
        let kind = ErrorKind::Malformed(detail.into());
        Self {
            operation: operation.into(),
            object: object.into(),
            kind,
        }
    }

    /// Weir refuses to do it; `reason` names the remedy too.
    #[must_use]
    pub fn refused(
        operation: impl Into<String>,
        object: impl Into<String>,
        reason: impl Into<String>,
    ) -> Self {
        let kind = ErrorKind::Refused(reason.into());
        Self {
            operation: operation.into(),
            object: object.into(),
            kind,
        }
    }

    /// The kernel lacks it; `remedy` names what gives it.
    #[must_use]
    pub fn unsupported(
        operation: impl Into<String>,
        object: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        let kind = ErrorKind::Unsupported(remedy.into());
        Self {
            operation: operation.into(),
            object: object.into(),
            kind,
        }
    }

    /// Tried as often as is sensible; `what` kept happening.
    #[must_use]
    pub fn exhausted(
        operation: impl Into<String>,
        object: impl Into<String>,
        what: impl Into<String>,
    ) -> Self {
        let kind = ErrorKind::Exhausted(what.into());
        Self {
            operation: operation.into(),
            object: object.into(),
            kind,
        }
    }

    /// The errno, when the kernel gave one.
    #[must_use]
    pub fn errno(&self) -> Option<i32> {
        match self.kind {
            ErrorKind::Kernel { errno, .. } | ErrorKind::Translated { errno, .. } => Some(errno),
            _ => None,
        }
    }

    /// `ENOENT`, `ESRCH`, `ENODEV` or `EADDRNOTAVAIL`: the object is not there.
    #[must_use]
    pub fn is_not_found(&self) -> bool {
        matches!(
            self.errno(),
            Some(libc::ENOENT | libc::ESRCH | libc::ENODEV | libc::EADDRNOTAVAIL)
        )
    }

    /// `EEXIST`: the object is there already.
    #[must_use]
    pub fn is_exists(&self) -> bool {
        self.errno() == Some(libc::EEXIST)
    }

    /// `EPERM` or `EACCES`: a capability is missing.
    #[must_use]
    pub fn is_permission(&self) -> bool {
        matches!(self.errno(), Some(libc::EPERM | libc::EACCES))
    }

    /// `ERESTART` (85): the ruleset changed since the generation that the batch was made for.
    #[must_use]
    pub fn is_stale_generation(&self) -> bool {
        self.errno() == Some(libc::ERESTART)
    }
}

/// What an operator can do about an errno, where one thing is likely.
fn remedy(errno: i32) -> Option<&'static str> {
    match errno {
        libc::EPERM | libc::EACCES => Some(
            "run as root, or with CAP_NET_ADMIN in the namespace's user namespace and CAP_SYS_ADMIN to enter it",
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
                if let Some(r) = remedy(*errno) {
                    write!(f, "; {r}")?;
                }
                Ok(())
            }
            ErrorKind::Translated {
                errno,
                name,
                reason,
            } => {
                write!(f, ": {reason} ({name}, {errno})")
            }
            ErrorKind::Malformed(d) => write!(f, ": {d}"),
            ErrorKind::Refused(r) => write!(f, ": refused: {r}"),
            ErrorKind::Unsupported(r) => write!(f, ": not supported: {r}"),
            ErrorKind::Exhausted(w) => write!(f, ": given up: {w}"),
        }
    }
}

impl std::error::Error for Error {}
