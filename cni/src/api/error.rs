//! Errors of requests to the API server.

use std::path::PathBuf;
use std::{fmt, io};

use super::tls;

/// One failed request, or a client that could not be created.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Error {
    /// Path of the kubeconfig that was used.
    pub kubeconfig: PathBuf,
    /// URL of the server; empty when the kubeconfig could not be read.
    pub server: String,
    /// The requested object: `pod default/web-0`; empty when there was no request.
    pub object: String,
    /// Why it failed.
    pub reason: Reason,
}

/// Kinds of failure; the text is the cause as the failing layer reported it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reason {
    /// The kubeconfig is missing, unreadable or not usable.
    Kubeconfig(String),
    /// No connection: refused, no route, no such host.
    Unreachable(String),
    /// The connection was closed or reset before the answer was complete, for example by a server that restarts.
    Broken(String),
    /// The connection or the answer took longer than the limit.
    Slow(String),
    /// The TLS handshake failed.
    Tls(String),
    /// 401: the token is not valid, or has expired.
    Unauthorized(String),
    /// 403: the token is not authorized for this request.
    Forbidden(String),
    /// 404: there is no such object.
    NotFound(String),
    /// The object is another pod of the same name: its UID differs.
    OtherPod(String),
    /// Another HTTP status.
    Status(u16, String),
    /// An answer that is not the JSON of the object.
    Garbage(String),
    /// A JSON object, of which a field has another type than in the API.
    Misfit(String),
    /// An answer that is longer than any object.
    TooLarge(String),
    /// Anything else.
    Other(String),
}

impl Error {
    /// True if a client existed and sent a request.
    #[must_use]
    pub fn has_asked(&self) -> bool {
        !self.object.is_empty()
    }
}

impl Reason {
    /// Whether the next answer will be the same: what is asked for is there, and cannot be used.
    #[must_use]
    pub(crate) fn is_lasting(&self) -> bool {
        matches!(self, Self::Misfit(_) | Self::TooLarge(_))
    }

    /// Why a TLS handshake failed. A server that closes the connection gives no certificate error: only what the TLS
    /// library itself refuses is [`Reason::Tls`].
    #[must_use]
    pub fn of_handshake(error: &io::Error) -> Self {
        Self::of_transfer(error, "during the TLS handshake")
    }

    /// Why an established connection failed; `when` says at which step.
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

    /// What happened, without the remedy.
    #[must_use]
    pub fn cause(&self) -> String {
        match self {
            Self::Kubeconfig(text) => format!("the kubeconfig cannot be used: {text}"),
            Self::Unreachable(text) => format!("the API server is not reachable: {text}"),
            Self::Slow(text) => format!("the API server is too slow: {text}"),
            Self::Broken(text) => format!("the API server does not answer: {text}"),
            Self::Tls(text) => format!("the TLS handshake failed: {text}"),
            Self::Unauthorized(text) => format!("401 Unauthorized: {text}"),
            Self::Forbidden(text) => format!("403 Forbidden: {text}"),
            Self::NotFound(text) => format!("404 Not Found: {text}"),
            Self::OtherPod(text) => format!("it is not this pod yet: {text}"),
            Self::Status(code, text) => format!("HTTP status {code}: {text}"),
            Self::Garbage(text) => format!("the answer is not the expected JSON: {text}"),
            Self::Misfit(text) => {
                format!("the answer is not the expected JSON, its fields have other types: {text}")
            }
            Self::TooLarge(text) => format!("the answer is too long: {text}"),
            Self::Other(text) => format!("the request failed: {text}"),
        }
    }

    /// The remedy.
    #[must_use]
    pub fn remedy(&self) -> &'static str {
        match self {
            Self::Kubeconfig(_) => {
                "the node agent writes this file when it starts: check that its pod runs on this \
                 node and that cni_agent_run_dir in the CNI configuration is its directory"
            }
            Self::Broken(_) => {
                "it may be stopping or starting: it is asked again; if this lasts, look at the API server's log and at \
                 proxies on the way"
            }
            Self::Unreachable(_) | Self::Slow(_) => {
                "check that the node reaches the address and port in the kubeconfig, and that the \
                 API server runs"
            }
            Self::Tls(_) => {
                "check the certificate authority in the kubeconfig and the names in the server's \
                 certificate; restart the node agent after the authority was replaced"
            }
            Self::Unauthorized(_) => {
                "the token in the kubeconfig has expired or was revoked: the node agent writes a \
                 new one, check that its pod runs on this node"
            }
            Self::Forbidden(_) => {
                "unless the API server has just started, the agent's service account lacks get on pods \
                 and namespaces: check its ClusterRole and ClusterRoleBinding"
            }
            Self::NotFound(_) => {
                "the object was deleted while its sandbox was made, or the runtime passed a wrong \
                 name in CNI_ARGS"
            }
            Self::OtherPod(_) => {
                "the pod was deleted and made again under its name; the runtime tries again for the one that is there"
            }
            Self::Garbage(_) => {
                "something that is no API server answers at this address: check the server in the \
                 kubeconfig and proxies on the way"
            }
            Self::Misfit(_) => {
                "correct the object: fields as in the Kubernetes API, a text that reads as a number in quotes; if it \
                 is correct there, something else answers at the address in the kubeconfig"
            }
            Self::TooLarge(_) => {
                "objects have at most a few MiB: something that is no API server answers at the address in the \
                 kubeconfig, or a proxy on the way adds to its answers"
            }
            Self::Status(..) | Self::Other(_) => "look at the API server's log",
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
