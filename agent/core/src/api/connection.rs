//! Requests to the API server, with limits.
//!
//! A watch has its own connection. Actions come in bursts when many pods start, so their
//! connections stay open for a few seconds: most of the cost of an annotation is the TLS handshake.

use super::access::Access;
use super::bounded::{Bounded, Kinds, Limits};
use super::connector::{CONNECT, Connector, limited};
use super::pace::Pace;
use futures::future::BoxFuture;
use hyper::header::{HeaderMap, RETRY_AFTER};
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::client::legacy::{self, Client};
use hyper_util::rt::{TokioExecutor, TokioTimer};
use kube::client::Body;
use std::error::Error;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};
use tokio::sync::watch;

/// Time limit from the request to the first line of the answer; a busy server queues requests.
const ANSWER: Duration = Duration::from_secs(30);
/// How long an idle connection of actions stays open, and the maximum number of idle ones.
const IDLE: Duration = Duration::from_secs(5);
const IDLE_CONNECTIONS: usize = 2;
/// Upper bound of the server's `Retry-After`; longer values are reduced to this.
const PATIENCE: Duration = Duration::from_secs(60);

/// The reason why a request has no usable answer.
#[derive(Clone, Debug)]
pub enum Unanswered {
    /// The token or the CA cannot be read or used.
    Credentials(String),
    /// No connection.
    Unreachable(String),
    /// The handshake failed.
    Tls(String),
    /// Connected, but no answer, or not HTTP.
    Broken(String),
    /// The answer does not match the request; the text describes it.
    Garbage(String),
}

impl fmt::Display for Unanswered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Credentials(text) => f.write_str(text),
            Self::Unreachable(text) => write!(f, "the API server is not reachable: {text}"),
            Self::Tls(text) => write!(f, "the TLS handshake failed: {text}"),
            Self::Broken(text) => write!(f, "no answer: {text}"),
            Self::Garbage(text) => write!(f, "an answer of {text}"),
        }
    }
}

impl Error for Unanswered {}

/// A client of the API server. Clones share their connections and rate limit.
#[derive(Clone)]
pub struct Connection(Arc<Shared>);

struct Shared {
    connector: Connector,
    client: Client<Connector, Body>,
    /// Accepted kinds of a list.
    lists: Kinds,
    pace: Mutex<Pace>,
    /// The beginning of a watch that has no answer yet; set again by every successful answer.
    unanswered: watch::Sender<Option<Instant>>,
}

impl Connection {
    /// Creates the client without sending a request.
    ///
    /// # Errors
    /// Host, port or protocol of the server are missing or cannot be used.
    pub fn new(access: &Access) -> Result<Self, String> {
        Self::of_list(access, &[])
    }

    /// As [`Connection::new`], for lists of these kinds and watches of their objects.
    ///
    /// # Errors
    /// As [`Connection::new`].
    pub fn of_list(access: &Access, kinds: Kinds) -> Result<Self, String> {
        Self::with(access, kinds, Pace::steady(Instant::now()), 0)
    }

    /// As [`Connection::new`], for writes to pods, which come in bursts.
    ///
    /// # Errors
    /// As [`Connection::new`].
    pub fn of_actions(access: &Access) -> Result<Self, String> {
        let pace = Pace::quick(Instant::now());
        Self::with(access, &[], pace, IDLE_CONNECTIONS)
    }

    fn with(access: &Access, lists: Kinds, pace: Pace, idle: usize) -> Result<Self, String> {
        let connector = Connector::new(access)?;
        let client = Client::builder(TokioExecutor::new())
            .http1_max_buf_size(64 << 10)
            .pool_max_idle_per_host(idle)
            .pool_idle_timeout(IDLE)
            .pool_timer(TokioTimer::new())
            .build(connector.clone());
        let shared = Shared {
            connector,
            client,
            lists,
            pace: Mutex::new(pace),
            unanswered: watch::Sender::new(None),
        };
        Ok(Self(Arc::new(shared)))
    }

    /// Returns kube's client over this connection. Must be called within a Tokio runtime.
    pub fn client(&self) -> kube::Client {
        kube::Client::new(self.clone(), "default")
    }

    /// Returns the remaining time of the server's `Retry-After`.
    pub fn held(&self) -> Duration {
        self.0.pace().held(Instant::now())
    }

    /// Returns a receiver that is notified of every watch that begins, with the time, and of every successful answer.
    pub fn unanswered(&self) -> watch::Receiver<Option<Instant>> {
        self.0.unanswered.subscribe()
    }
}

impl tower_service::Service<Request<Body>> for Connection {
    type Response = Response<Bounded>;
    type Error = Unanswered;
    type Future = BoxFuture<'static, Result<Response<Bounded>, Unanswered>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Unanswered>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let shared = Arc::clone(&self.0);
        Box::pin(async move { shared.exchange(request).await })
    }
}

/// A request that was taken from the bucket, and is given back if its caller does not wait until it is sent: otherwise callers with a
/// time limit would use up the bucket for each other, and none of their requests would be sent.
struct Slot<'a>(Option<&'a Shared>);

impl Drop for Slot<'_> {
    fn drop(&mut self) {
        if let Some(shared) = self.0 {
            shared.pace().give_back();
        }
    }
}

impl Shared {
    fn pace(&self) -> MutexGuard<'_, Pace> {
        // No holder of the lock panics in the middle of a change.
        self.pace.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn exchange(&self, request: Request<Body>) -> Result<Response<Bounded>, Unanswered> {
        let query = request.uri().query().unwrap_or_default();
        let is_watch = query
            .split('&')
            .any(|q| q == "watch=true" || q == "watch=1");
        if is_watch {
            self.unanswered.send_replace(Some(Instant::now()));
        }
        let wait = self.pace().take(Instant::now());
        let mut slot = Slot(Some(self));
        // Without this pause, a server that ends each watch immediately would cause a busy loop.
        tokio::time::sleep(wait).await;
        slot.0 = None;
        let is_read = request.method() == Method::GET;
        let request = self.connector.headed(request)?;
        let exchange = async { self.client.request(request).await.map_err(unanswered) };
        let answer = limited(2 * CONNECT + ANSWER, "no answer", exchange).await?;
        let status = answer.status();
        // A partial list (206), or one changed by a proxy (203), must not be taken for the complete list.
        if is_read && status.is_success() && status != StatusCode::OK {
            return Err(Unanswered::Broken(format!("status {status} to a read")));
        }
        if status.is_success() {
            self.unanswered.send_replace(None);
        }
        let is_busy = matches!(status.as_u16(), 429 | 503);
        if let Some(pause) = retry_after(answer.headers()).filter(|_| is_busy) {
            self.pace().hold(Instant::now() + pause);
        }
        let is_list = is_read && status.is_success();
        // The body of an error is not made of events.
        Ok(answer.map(|body| match is_watch && status.is_success() {
            true => Bounded::new(body, Limits::of_watch()),
            false if is_list => Bounded::new(body, Limits::of_answer()).of_list(self.lists),
            false => Bounded::new(body, Limits::of_answer()),
        }))
    }
}

/// Parses `Retry-After` in seconds, as the API server writes it. A date is ignored.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let seconds = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    Some(Duration::from_secs(seconds.parse().ok()?).min(PATIENCE))
}

/// Returns the error of the connector, or the innermost cause of the failed exchange.
fn unanswered(error: legacy::Error) -> Unanswered {
    let mut cause: &dyn Error = &error;
    while let Some(next) = cause.source() {
        if let Some(said) = next.downcast_ref::<Unanswered>() {
            return said.clone();
        }
        cause = next;
    }
    Unanswered::Broken(cause.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::thread::runtime;
    use hyper::header::HeaderValue;
    use weir_testing::api_server::ApiServer;

    /// 250 pods are annotated at once, each with a time limit.
    #[test]
    fn a_request_that_is_not_waited_for_delays_no_other() {
        let access = Access {
            host: "127.0.0.1".into(),
            port: "1".into(),
            ..Access::default()
        };
        let connection = Connection::new(&access).unwrap();
        let full = Instant::now();
        while connection.0.pace().take(full).is_zero() {}
        let given_up = async {
            for _ in 0..100 {
                let request = Request::get("/api/v1/pods").body(Body::empty()).unwrap();
                let sent = connection.0.exchange(request);
                let late = tokio::time::timeout(Duration::from_millis(1), sent).await;
                assert!(late.is_err());
            }
        };
        runtime::of_one_thread("test").unwrap().block_on(given_up);
        assert!(connection.0.pace().take(full) < Duration::from_secs(10));
    }

    /// `SKIP_TLS_VERIFY` concerns the plugin's kubeconfig.
    #[test]
    fn the_token_is_shown_to_no_server_of_another_authority() {
        let dir = std::env::temp_dir().join(format!("weir-stranger-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        std::fs::write(dir.join("token"), "token-1").unwrap();
        let server = ApiServer::start();
        let of_server = server.encrypt();
        let (of_another, _) = weir_testing::certificates::of_loopback();
        let asked = |ca: &str| {
            std::fs::write(dir.join("ca.crt"), ca).unwrap();
            let access = Access {
                host: "127.0.0.1".into(),
                port: server.port.to_string(),
                skip_tls_verify: true,
                service_account_dir: dir.clone(),
                ..Access::default()
            };
            let ask = async {
                let client = Connection::new(&access).unwrap().client();
                let request = Request::get("/api/v1/pods").body(Vec::new()).unwrap();
                client.request::<serde_json::Value>(request).await
            };
            let answer = runtime::of_one_thread("test").unwrap().block_on(ask);
            (answer.map(drop), server.asked().len())
        };
        let (answer, requests) = asked(&of_another);
        let why = answer.unwrap_err().to_string();
        assert!(why.contains("TLS handshake"), "{why}");
        assert_eq!(requests, 0);
        let (answer, requests) = asked(&of_server);
        answer.unwrap();
        assert_eq!(requests, 1);
        std::fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn the_server_may_ask_for_so_much_patience() {
        let of = |text: &'static str| {
            let headers = HeaderMap::from_iter([(RETRY_AFTER, HeaderValue::from_static(text))]);
            retry_after(&headers).map(|pause| pause.as_secs())
        };
        for (text, seconds) in [("0", 0), ("1", 1), (" 30 ", 30), ("99999", 60)] {
            assert_eq!(of(text), Some(seconds), "{text}");
        }
        for none in ["", "-1", "1.5", "soon", "Fri, 31 Dec 1999 23:59:59 GMT"] {
            assert_eq!(of(none), None, "{none}");
        }
        assert_eq!(retry_after(&HeaderMap::new()), None);
    }
}
