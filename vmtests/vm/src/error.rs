//! The error type of this crate: the input, the reason, and the remedy.
use crate::program::renamed;
use std::fmt;
use std::path::Path;

/// A failure in the three parts that a user needs: the input, the reason, the remedy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Error {
    /// The object of the operation: a path, a package, a kernel, an option.
    pub input: String,
    /// What is wrong with the input.
    pub reason: String,
    /// What the user can do about it.
    pub remedy: String,
}

/// The result of every fallible operation of this crate.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// An error about `input`. The remedy names commands of `weir-vm`; they are printed with the name of the running program.
    pub fn new(
        input: impl Into<String>,
        reason: impl fmt::Display,
        remedy: impl Into<String>,
    ) -> Self {
        Self {
            input: input.into(),
            reason: reason.to_string(),
            remedy: renamed(&remedy.into()),
        }
    }

    /// An I/O error about `input`, with the remedy for its kind.
    pub fn io(input: impl fmt::Display, reason: &std::io::Error) -> Self {
        use std::io::ErrorKind;
        let remedy = match reason.kind() {
            ErrorKind::StorageFull | ErrorKind::QuotaExceeded => {
                "Make room there, or give another place with --cache DIR"
            }
            ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => {
                "Change who owns it, or give another place with --cache DIR"
            }
            ErrorKind::NotFound => "Check the name",
            _ => "Try again; if it stays, look at the file system and the kernel log",
        };
        Self::new(input.to_string(), reason, remedy)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}. {}", self.input, self.reason, self.remedy)
    }
}

impl std::error::Error for Error {}

/// Adds the input to an I/O error.
pub trait At<T> {
    /// Maps the error with [`Error::io`]; `input` is the file or the operation.
    fn at(self, input: impl AsRef<Path>) -> Result<T>;

    /// As [`At::at`], but `None` if the file does not exist.
    fn if_there(self, input: impl AsRef<Path>) -> Result<Option<T>>;
}

impl<T> At<T> for std::io::Result<T> {
    fn at(self, input: impl AsRef<Path>) -> Result<T> {
        self.map_err(|e| Error::io(input.as_ref().display(), &e))
    }

    fn if_there(self, input: impl AsRef<Path>) -> Result<Option<T>> {
        match self {
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(None),
            other => other.at(input).map(Some),
        }
    }
}
