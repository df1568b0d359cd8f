//! Events of the watches of pods and namespaces.

use super::About;
use std::fmt;
use std::sync::Arc;
use weir_cni::log::Level::{self, Debug, Info, Warn};

/// The kind of a failure; a label value of `weir_pod_watch_restarts_total`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Connection failed or was lost.
    Unreachable,
    /// Token or CA certificate cannot be read.
    Credentials,
    /// TLS handshake failed.
    Tls,
    /// Status 401.
    Unauthorized,
    /// Status 403.
    Forbidden,
    /// Status 410: the resource version is too old.
    Gone,
    /// Any other status.
    Refused,
    /// The body is not the expected JSON, or too large.
    Garbage,
    /// The answer was not complete within the time limit.
    Slow,
}

impl Kind {
    pub const ALL: [Self; 9] = [
        Self::Unreachable,
        Self::Credentials,
        Self::Tls,
        Self::Unauthorized,
        Self::Forbidden,
        Self::Gone,
        Self::Refused,
        Self::Garbage,
        Self::Slow,
    ];

    pub fn label(self) -> &'static str {
        match self {
            Self::Unreachable => "unreachable",
            Self::Credentials => "credentials",
            Self::Tls => "tls",
            Self::Unauthorized => "unauthorized",
            Self::Forbidden => "forbidden",
            Self::Gone => "gone",
            Self::Refused => "refused",
            Self::Garbage => "garbage",
            Self::Slow => "slow",
        }
    }
}

/// The watched objects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Objects {
    /// The pods of this node.
    Pods(Arc<str>),
    /// All namespaces; `needed` in ambient mode, where enrolment depends on them.
    Namespaces { needed: bool },
}

impl Objects {
    fn level(&self, level: Level) -> Level {
        match self {
            Self::Pods(_) | Self::Namespaces { needed: true } => level,
            Self::Namespaces { needed: false } => Debug,
        }
    }
}

impl fmt::Display for Objects {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pods(node) => write!(f, "pods of node {node}"),
            Self::Namespaces { .. } => f.write_str("namespaces"),
        }
    }
}

/// What changed in a working watch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum News {
    /// The first list was completed.
    First,
    /// It recovered from a failure.
    Again,
    /// An object was changed.
    Nothing,
}

/// An event of a watch.
#[derive(Debug)]
pub enum Event {
    /// The watch is off, for this reason.
    Off { why: String },
    /// The watch starts; no object is known yet.
    Begins { of: Objects },
    /// The watch works; `known` objects are known.
    Works {
        of: Objects,
        known: usize,
        news: News,
        /// Reason why some objects are left out.
        left_out: Option<String>,
    },
    /// The watch failed and is retried.
    Fails {
        of: Objects,
        known: usize,
        kind: Kind,
        why: String,
        /// The previous failure was of the same kind.
        repeated: bool,
    },
    /// The API server has no streaming lists, for this reason.
    Paged { of: Objects, why: String },
    /// An object could not be parsed, for this reason.
    Unreadable { why: String },
}

impl Event {
    pub(super) fn about(&self) -> About {
        match self {
            Self::Off { why } => About::new(
                Warn,
                "watch_off",
                format!(
                    "the pods of this node are not watched: {why}; the plugin asks the API server for every pod"
                ),
            ),
            Self::Begins { .. } => About::silent("watch_begins"),
            Self::Works {
                of, known, news, ..
            } => {
                let when = match news {
                    News::First => "now",
                    News::Again => "again",
                    News::Nothing => return About::silent("watched"),
                };
                let text = format!("the {of} are watched {when}: {known} of them");
                About::new(of.level(Info), "watch_works", text).with("known", known)
            }
            Self::Fails {
                of,
                kind,
                why,
                repeated,
                ..
            } => {
                let level = match kind {
                    _ if *repeated => Debug,
                    // Servers discard old versions; this is normal.
                    Kind::Gone => of.level(Info),
                    _ => of.level(Warn),
                };
                let meanwhile = match of {
                    Objects::Pods(_) => "for other pods the plugin asks the API server itself",
                    Objects::Namespaces { .. } => {
                        "pods follow no change of a label of their namespace"
                    }
                };
                let text = format!(
                    "the {of} are not watched: {why}. It is tried again; meanwhile what is known is used, and {meanwhile}"
                );
                About::new(level, "watch_fails", text).with("kind", kind.label())
            }
            Self::Paged { of, why } => {
                let text = format!(
                    "this API server has no streaming lists ({why}): the {of} are listed in pages"
                );
                About::new(Info, "watch_paged", text)
            }
            Self::Unreadable { why } => About::new(Warn, "object_unreadable", why),
        }
    }
}
