//! The one error of this crate: what was being done to which input, why it failed, what helps.
use crate::program::renamed;
use std::fmt;
use std::path::Path;

/// Why something could not be done, in three parts that a person needs: the input, the reason, the remedy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Error {
    /// What it is about: a path, a package, a kernel, an option.
    pub input: String,
    /// What is wrong with it.
    pub reason: String,
    /// What the reader can do.
    pub remedy: String,
}

/// The result of everything in this crate that can fail.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// An error about `input`. Commands in the remedy are those of `weir-vm`; a reader sees the name of the program.
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

    /// An error of the operating system about `input`, with the remedy that goes with its kind.
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

/// Says what an operation of the system was about.
pub trait At<T> {
    /// With [`Error::io`] about this file, or what else was being done.
    fn at(self, input: impl AsRef<Path>) -> Result<T>;

    /// The same; `None` where there is no such file.
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
