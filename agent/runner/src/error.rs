//! Errors of network configurations and plugin chains.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use weir_cni::protocol::CniError;

/// The result type of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// One failure; [`Error::Chain`] holds several.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// A configuration that cannot be used.
    Config {
        /// File, or `(text)`.
        source: String,
        /// The invalid part, and what is expected.
        reason: String,
    },
    /// No such program in any of the directories.
    PluginNotFound {
        /// The plugin's `type`.
        plugin: String,
        /// The directories that were searched.
        dirs: Vec<PathBuf>,
    },
    /// The plugin answered with an error object.
    Plugin {
        /// The plugin's `type`.
        plugin: String,
        /// `CNI_COMMAND`.
        command: &'static str,
        /// The error object.
        error: CniError,
        /// The plugin's stderr.
        stderr: String,
    },
    /// The plugin ended without a readable answer.
    Answer {
        /// The plugin's `type`.
        plugin: String,
        /// `CNI_COMMAND`.
        command: &'static str,
        /// Exit status, and why stdout is not readable.
        reason: String,
        /// The plugin's stderr.
        stderr: String,
    },
    /// The plugin exceeded the time limit and was killed.
    Timeout {
        /// The plugin's `type`.
        plugin: String,
        /// `CNI_COMMAND`.
        command: &'static str,
        /// Time limit of the chain.
        limit: Duration,
    },
    /// A program could not be started, or its pipes failed.
    Exec {
        /// Path of the program.
        program: PathBuf,
        /// The error of the system call.
        error: std::io::Error,
    },
    /// The result cache cannot be read or written.
    Cache {
        /// File or directory.
        path: PathBuf,
        /// The reason.
        reason: String,
    },
    /// ADD for a container that already has this interface in this network.
    Attached {
        /// `CNI_CONTAINERID`.
        container: String,
        /// `CNI_IFNAME`.
        ifname: String,
        /// Name of the network.
        network: String,
    },
    /// A command that the configuration's version does not have, or that needs
    /// an earlier ADD.
    NotPossible(String),
    /// Several plugins failed; the others were still called.
    Chain(Vec<Error>),
}

impl Error {
    pub(crate) fn config(source: impl Into<String>, reason: impl Into<String>) -> Self {
        Self::Config {
            source: source.into(),
            reason: reason.into(),
        }
    }

    /// Joins collected errors to one; `Ok` if there are none.
    pub(crate) fn all(errors: Vec<Self>) -> Result<()> {
        let mut errors = errors.into_iter();
        match errors.next() {
            None => Ok(()),
            Some(first) => Err(first.and(errors)),
        }
    }

    /// Joins this error and those after it to one, without nested chains.
    pub(crate) fn and(self, rest: impl IntoIterator<Item = Self>) -> Self {
        let mut all = Vec::new();
        for error in std::iter::once(self).chain(rest) {
            match error {
                Self::Chain(more) => all.extend(more),
                one => all.push(one),
            }
        }
        match all.pop() {
            Some(only) if all.is_empty() => only,
            last => {
                all.extend(last);
                Self::Chain(all)
            }
        }
    }

    /// The plugin's own error code, if it returned one.
    #[must_use]
    pub fn code(&self) -> Option<u32> {
        match self {
            Self::Plugin { error, .. } => Some(error.code),
            Self::Chain(errors) => errors.iter().find_map(Self::code),
            _ => None,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Config { source, reason } => {
                write!(f, "network configuration {source}: {reason}")
            }
            Self::PluginNotFound { plugin, dirs } => {
                let dirs: Vec<_> = dirs.iter().map(|d| d.display().to_string()).collect();
                write!(
                    f,
                    "plugin {plugin:?} is in none of the directories [{}]; install it in one, or name its directory",
                    dirs.join(", ")
                )
            }
            Self::Plugin {
                plugin,
                command,
                error,
                stderr,
            } => {
                write!(f, "plugin {plugin:?} failed {command}: {error}")?;
                write_stderr(f, stderr)
            }
            Self::Answer {
                plugin,
                command,
                reason,
                stderr,
            } => {
                write!(
                    f,
                    "plugin {plugin:?} returned no valid answer to {command}: {reason}"
                )?;
                write_stderr(f, stderr)
            }
            Self::Timeout {
                plugin,
                command,
                limit,
            } => write!(
                f,
                "plugin {plugin:?} did not complete {command} within {limit:?} and was killed; look \
                 at its log, or allow more time"
            ),
            Self::Exec { program, error } => write!(
                f,
                "cannot run {}: {error}; it must be an executable for this machine",
                program.display()
            ),
            Self::Cache { path, reason } => {
                write!(f, "result cache {}: {reason}", path.display())
            }
            Self::Attached {
                container,
                ifname,
                network,
            } => write!(
                f,
                "container {container:?} already has interface {ifname:?} in network {network:?}; \
                 nothing was changed: detach it with DEL first, or name another interface"
            ),
            Self::NotPossible(reason) => f.write_str(reason),
            Self::Chain(errors) => {
                for (index, error) in errors.iter().enumerate() {
                    let separator = if index == 0 { "" } else { "; " };
                    write!(f, "{separator}{error}")?;
                }
                Ok(())
            }
        }
    }
}

fn write_stderr(f: &mut fmt::Formatter<'_>, stderr: &str) -> fmt::Result {
    match stderr.trim() {
        "" => Ok(()),
        text => write!(f, "; it wrote: {text}"),
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Exec { error, .. } => Some(error),
            _ => None,
        }
    }
}
