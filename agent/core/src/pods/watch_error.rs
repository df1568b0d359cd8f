//! Classifies failures of a watch: the cause, the remedy, and how the watch continues.

use crate::api::connection::Unanswered;
use crate::journal::watch::Kind;
use kube::Error as Client;
use kube::runtime::watcher::Error;
use std::error::Error as _;
use std::fmt;

impl Kind {
    fn remedy(self) -> &'static str {
        match self {
            Self::Unreachable | Self::Slow => {
                "check that this pod reaches KUBERNETES_SERVICE_HOST and that the API server runs"
            }
            Self::Credentials => "the pod needs its service account mounted",
            Self::Tls => "check the CA of the service account, or the one that KUBE_CA_FILE names",
            Self::Unauthorized => "the token of the service account is not accepted",
            Self::Forbidden => {
                "the service account needs list and watch on pods and namespaces: check its \
                 ClusterRole and ClusterRoleBinding"
            }
            Self::Gone | Self::Refused => "look at the API server's log",
            Self::Garbage => {
                "something that is not an API server answers at KUBERNETES_SERVICE_HOST"
            }
        }
    }
}

/// A failure of a watch.
#[derive(Debug)]
pub(super) struct WatchError {
    pub(super) kind: Kind,
    cause: String,
    /// The server understood the request but does not support or allow it in this form.
    pub(super) refusal: bool,
    /// The rejected part may be the resource version from which the watch continues.
    stale: bool,
}

impl WatchError {
    pub(super) fn new(kind: Kind, cause: impl Into<String>) -> Self {
        Self {
            kind,
            cause: cause.into(),
            refusal: false,
            stale: false,
        }
    }

    /// Creates a failure with `refusal` set.
    pub(super) fn refusal(kind: Kind, cause: impl Into<String>) -> Self {
        Self {
            refusal: true,
            ..Self::new(kind, cause)
        }
    }

    pub(super) fn of(error: &Error) -> Self {
        match error {
            // A line that is not an event: kube decodes any object as an error status.
            Error::WatchFailed(Client::Api(status)) if status.code == 0 => {
                Self::refusal(Kind::Garbage, "no JSON of an event")
            }
            Error::InitialListFailed(e) | Error::WatchStartFailed(e) | Error::WatchFailed(e) => {
                Self::of_client(e)
            }
            Error::WatchError(status) => Self::of_status(status.code, &status.message),
            Error::NoResourceVersion => {
                Self::new(Kind::Garbage, "an object without resourceVersion")
            }
        }
    }

    fn of_client(error: &Client) -> Self {
        match error {
            Client::Api(status) => Self::of_status(status.code, &status.message),
            Client::SerdeError(e) => {
                // A server without support for streaming lists may answer with an object instead of events.
                Self::refusal(Kind::Garbage, format!("no JSON of these objects: {e}"))
            }
            Client::FromUtf8(_) => Self::new(Kind::Garbage, "the answer is not text"),
            other => match unanswered(other) {
                Some(unanswered) => {
                    let kind = match unanswered {
                        Unanswered::Credentials(_) => Kind::Credentials,
                        Unanswered::Tls(_) => Kind::Tls,
                        Unanswered::Unreachable(_) | Unanswered::Broken(_) => Kind::Unreachable,
                        Unanswered::Garbage(_) => Kind::Garbage,
                    };
                    Self::new(kind, unanswered.to_string())
                }
                // An object over several lines instead of events, for example.
                None if is_invalid(other) => Self::refusal(Kind::Garbage, chain(other)),
                None => Self::new(Kind::Unreachable, chain(other)),
            },
        }
    }

    fn of_status(code: u16, message: &str) -> Self {
        let kind = match code {
            401 => Kind::Unauthorized,
            403 => Kind::Forbidden,
            410 => Kind::Gone,
            _ => Kind::Refused,
        };
        let shown: String = message.chars().take(200).collect();
        let mut failure = Self::new(kind, format!("status {code}: {shown}"));
        // 408, 429, 503 and 504 ask to retry later.
        failure.refusal = kind == Kind::Refused && !matches!(code, 408 | 429 | 503 | 504);
        failure.stale = failure.refusal && code < 500;
        failure
    }

    /// Returns true if this watch cannot deliver the missed events, so that a new list is needed.
    pub(super) fn needs_list(&self) -> bool {
        self.stale || matches!(self.kind, Kind::Gone | Kind::Garbage | Kind::Slow)
    }
}

/// Returns the [`Unanswered`] among the causes, if there is one.
fn unanswered(error: &Client) -> Option<&Unanswered> {
    let mut next: Option<&dyn std::error::Error> = Some(error);
    while let Some(error) = next {
        if let Some(found) = error.downcast_ref() {
            return Some(found);
        }
        next = error.source();
    }
    None
}

/// Returns true if an answer exceeded one of our limits, see [`crate::api::bounded`].
fn is_invalid(error: &Client) -> bool {
    let mut next: Option<&dyn std::error::Error> = Some(error);
    while let Some(error) = next {
        let io = error.downcast_ref::<std::io::Error>();
        if io.is_some_and(|e| e.kind() == std::io::ErrorKind::InvalidData) {
            return true;
        }
        next = error.source().or_else(|| io?.get_ref().map(|e| e as _));
    }
    false
}

/// Formats an error with its causes, each once.
fn chain(error: &Client) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(error) = next {
        let cause = error.to_string();
        if !text.contains(&cause) {
            text = format!("{text}: {cause}");
        }
        next = error.source();
    }
    text
}

/// The cause and the remedy.
impl fmt::Display for WatchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; {}", self.cause, self.kind.remedy())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kube::core::Status;

    fn status(code: u16) -> WatchError {
        let status = Status::failure("the server says so", "Reason").with_code(code);
        WatchError::of(&Error::WatchError(status.boxed()))
    }

    #[test]
    fn statuses() {
        for (code, kind, refusal, list) in [
            (401, Kind::Unauthorized, false, false),
            (403, Kind::Forbidden, false, false),
            (410, Kind::Gone, false, true),
            (400, Kind::Refused, true, true),
            (422, Kind::Refused, true, true),
            // etcd without progress notifications.
            (500, Kind::Refused, true, false),
            (503, Kind::Refused, false, false),
        ] {
            let failure = status(code);
            let seen = (failure.kind, failure.refusal, failure.needs_list());
            assert_eq!(seen, (kind, refusal, list), "{code}");
            assert!(
                failure.to_string().contains("the server says so"),
                "{failure}"
            );
        }
    }

    #[test]
    fn what_is_too_much_is_garbage() {
        let limit = std::io::Error::new(std::io::ErrorKind::InvalidData, "more than 3 bytes");
        let nested = std::io::Error::other(Client::ReadEvents(limit));
        let failure = WatchError::of(&Error::WatchFailed(Client::ReadEvents(nested)));
        assert_eq!(failure.kind, Kind::Garbage);
        let object: Status = serde_json::from_str("{\"type\": \"ADDED\"}").unwrap();
        let failure = WatchError::of(&Error::WatchFailed(Client::Api(object.boxed())));
        assert!(failure.kind == Kind::Garbage && failure.refusal && failure.needs_list());
        let reset = std::io::Error::from(std::io::ErrorKind::ConnectionReset);
        let failure = WatchError::of(&Error::WatchFailed(Client::ReadEvents(reset)));
        assert_eq!(
            (failure.kind, failure.needs_list()),
            (Kind::Unreachable, false)
        );
        let tls = Client::Service(Box::new(Unanswered::Tls("bad certificate".into())));
        let failure = WatchError::of(&Error::InitialListFailed(tls));
        assert!(failure.kind == Kind::Tls && failure.to_string().contains("bad certificate"));
    }
}
