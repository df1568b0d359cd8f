//! Errors of requests to the API server.

use std::path::PathBuf;
use std::{fmt, io};

use super::tls;

/// One failed request, or a client that could not be created.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Error {
    /// Path of the kubeconfig that was used.
    pub kubeconfig: PathBuf,
    /// URL of the server; empty if the kubeconfig could not be read.
    pub server: String,
    /// The requested object: `pod default/web-0`; empty if there was no request.
    pub object: String,
    /// The reason of the failure.
    pub reason: Reason,
}

/// Declares the kinds of failure, each with a description and the remedy.
macro_rules! reasons {
    ($($(#[$m:meta])* $variant:ident = $cause:literal, $remedy:literal;)*) => {
        /// Kinds of failure; the text is the cause as the failing layer reported it.
        #[derive(Debug, Clone, PartialEq, Eq)]
        #[non_exhaustive]
        pub enum Reason {
            $($(#[$m])* $variant(String),)*
            /// Another HTTP status.
            Status(u16, String),
        }

        impl Reason {
            /// Describes the failure, without the remedy.
            #[must_use]
            pub fn cause(&self) -> String {
                match self {
                    $(Self::$variant(text) => format!(concat!($cause, ": {}"), text),)*
                    Self::Status(code, text) => format!("HTTP status {code}: {text}"),
                }
            }

            /// Returns the remedy.
            #[must_use]
            pub fn remedy(&self) -> &'static str {
                match self {
                    $(Self::$variant(_) => $remedy,)*
                    Self::Status(..) => "look at the API server's log",
                }
            }
        }
    };
}

reasons! {
    /// The kubeconfig is missing, unreadable or not usable.
    Kubeconfig = "the kubeconfig cannot be used",
        "the node agent writes this file when it starts: check that its pod runs on this \
         node and that cni_agent_run_dir in the CNI configuration is its directory";
    /// No connection: refused, no route, no such host.
    Unreachable = "the API server is not reachable",
        "check that the node reaches the address and port in the kubeconfig, and that the \
         API server runs";
    /// The connection was closed or reset before the answer was complete, for example by a server that restarts.
    Broken = "the API server does not answer",
        "it may be stopping or starting: it is asked again; if this lasts, look at the API server's log and at \
         proxies on the way";
    /// The connection or the answer took longer than the limit.
    Slow = "the API server is too slow",
        "check that the node reaches the address and port in the kubeconfig, and that the \
         API server runs";
    /// The TLS handshake failed.
    Tls = "the TLS handshake failed",
        "check the certificate authority in the kubeconfig and the names in the server's \
         certificate; restart the node agent after the authority was replaced";
    /// 401: the token is not valid, or has expired.
    Unauthorized = "401 Unauthorized",
        "the token in the kubeconfig has expired or was revoked: the node agent writes a \
         new one, check that its pod runs on this node";
    /// 403: the token is not authorized for this request.
    Forbidden = "403 Forbidden",
        "unless the API server has just started, the agent's service account lacks get on pods \
         and namespaces: check its ClusterRole and ClusterRoleBinding";
    /// 404: the object does not exist.
    NotFound = "404 Not Found",
        "the object was deleted while its sandbox was made, or the runtime passed a wrong \
         name in CNI_ARGS";
    /// The object is another pod of the same name: its UID differs.
    OtherPod = "it is not this pod yet",
        "the pod was deleted and made again under its name; the runtime tries again for the one that is there";
    /// An answer that is not the JSON of the object.
    Garbage = "the answer is not the expected JSON",
        "something that is no API server answers at this address: check the server in the \
         kubeconfig and proxies on the way";
    /// A JSON object in which a field has another type than in the API.
    Misfit = "the answer is not the expected JSON, its fields have other types",
        "correct the object: fields as in the Kubernetes API, a text that reads as a number in quotes; if it \
         is correct there, something else answers at the address in the kubeconfig";
    /// An answer that is longer than any object.
    TooLarge = "the answer is too long",
        "objects have at most a few MiB: something that is no API server answers at the address in the \
         kubeconfig, or a proxy on the way adds to its answers";
    /// Anything else.
    Other = "the request failed", "look at the API server's log";
}

impl Error {
    /// True if a client existed and sent a request.
    pub(crate) fn has_asked(&self) -> bool {
        !self.object.is_empty()
    }
}

impl Reason {
    /// True if a retry would get the same answer: the object exists but cannot be used.
    #[must_use]
    pub(crate) fn is_lasting(&self) -> bool {
        matches!(self, Self::Misfit(_) | Self::TooLarge(_))
    }

    /// Returns the reason why a TLS handshake failed. A server that closes the connection is not a certificate error: only
    /// an error of the TLS library itself is [`Reason::Tls`].
    #[must_use]
    pub fn of_handshake(error: &io::Error) -> Self {
        Self::of_transfer(error, "during the TLS handshake")
    }

    /// Returns the reason why an established connection failed; `when` names the step.
    pub(super) fn of_transfer(error: &io::Error, when: &str) -> Self {
        let refused = error
            .get_ref()
            .and_then(|e| e.downcast_ref::<rustls::Error>());
        if let Some(refused) = refused {
            return Self::Tls(tls::words(refused));
        }
        match error.kind() {
            io::ErrorKind::FileTooLarge => Self::TooLarge(error.to_string()),
            io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock => {
                Self::Slow(format!("it stopped answering {when}"))
            }
            io::ErrorKind::UnexpectedEof => {
                Self::Broken(format!("it closed the connection {when}"))
            }
            io::ErrorKind::ConnectionReset
            | io::ErrorKind::ConnectionAborted
            | io::ErrorKind::BrokenPipe => Self::Broken(format!("it reset the connection {when}")),
            _ => Self::Other(error.to_string()),
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.object.is_empty() {
            write!(f, "cannot read {}", self.object)?;
            if !self.server.is_empty() {
                write!(f, " from {}", self.server)?;
            }
            f.write_str(": ")?;
        }
        write!(
            f,
            "{} (kubeconfig {}); {}",
            self.reason.cause(),
            self.kubeconfig.display(),
            self.reason.remedy()
        )
    }
}

impl std::error::Error for Error {}
