//! One request to the API server: a connection of its own, with limits.
//!
//! Token and authority are read from their files for every connection, because the kubelet renews both; there is
//! nothing that could be out of date. A watch keeps its connection for minutes, so a pool would hold none.

use super::access::Access;
use super::bounded::{Bounded, Limits};
use super::pace::Pace;
use futures::future::BoxFuture;
use hyper::body::Incoming;
use hyper::header::{ACCEPT, AUTHORIZATION, CONNECTION, HOST, HeaderValue, USER_AGENT};
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use kube::client::Body;
use socket2::{SockRef, TcpKeepalive};
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::ServerName;
use weir_cni::api::{Reason, Server, bearer, client_config};
use weir_cni::files;

/// For a connection, handshake included.
const CONNECT: Duration = Duration::from_secs(10);
/// From the request to the first line of the answer; a busy server queues requests.
const ANSWER: Duration = Duration::from_secs(30);

/// Why there is no answer at all.
#[derive(Debug)]
pub enum Unanswered {
    /// Token or authority cannot be read or used.
    Credentials(String),
    /// No connection.
    Unreachable(String),
    /// The handshake failed.
    Tls(String),
    /// Connected, and then nothing, or no HTTP.
    Broken(String),
}

impl fmt::Display for Unanswered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Credentials(text) => f.write_str(text),
            Self::Unreachable(text) => write!(f, "the API server is not reachable: {text}"),
            Self::Tls(text) => write!(f, "the TLS handshake failed: {text}"),
            Self::Broken(text) => write!(f, "no answer: {text}"),
        }
    }
}

impl std::error::Error for Unanswered {}

/// Makes connections; clones share their pace.
#[derive(Clone)]
pub struct Connection(Arc<Shared>);

struct Shared {
    access: Access,
    server: Server,
    pace: Mutex<Pace>,
    /// Goes up with every answer that is no refusal.
    answered: watch::Sender<u64>,
}

impl Connection {
    /// Asks nobody yet.
    ///
    /// # Errors
    /// Host, port or protocol of the server are missing or cannot be used.
    pub fn new(access: &Access) -> Result<Self, String> {
        Self::with(access, Pace::steady(Instant::now()))
    }

    /// The same for deletions and labels, which may be many at once.
    ///
    /// # Errors
    /// As [`Connection::new`].
    pub fn of_actions(access: &Access) -> Result<Self, String> {
        Self::with(access, Pace::quick(Instant::now()))
    }

    fn with(access: &Access, pace: Pace) -> Result<Self, String> {
        let shared = Shared {
            access: access.clone(),
            server: Server::parse(&access.url()?)?,
            pace: Mutex::new(pace),
            answered: watch::Sender::new(0),
        };
        Ok(Self(Arc::new(shared)))
    }

    /// kube's client over it. Call it where a tokio runtime runs.
    pub fn client(&self) -> kube::Client {
        kube::Client::new(self.clone(), "default")
    }

    /// Wakes at every answer that is no refusal.
    pub fn answered(&self) -> watch::Receiver<u64> {
        self.0.answered.subscribe()
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

impl Shared {
    async fn exchange(&self, request: Request<Body>) -> Result<Response<Bounded>, Unanswered> {
        let wait = {
            let mut pace = self.pace.lock().unwrap_or_else(PoisonError::into_inner);
            pace.take(Instant::now())
        };
        // A server that ends each watch at once would keep us busy otherwise.
        tokio::time::sleep(wait).await;
        let query = request.uri().query().unwrap_or_default();
        let limits = match query
            .split('&')
            .any(|q| q == "watch=true" || q == "watch=1")
        {
            true => Limits::of_watch(),
            false => Limits::of_answer(),
        };
        let request = self.headed(request)?;
        let stream = limited(CONNECT, "no connection", connect(&self.server)).await?;
        let answer = if self.server.tls {
            let stream = limited(CONNECT, "no TLS handshake", self.handshake(stream)).await?;
            send(stream, request).await?
        } else {
            send(stream, request).await?
        };
        if answer.status().is_success() {
            self.answered.send_modify(|n| *n += 1);
        }
        Ok(answer.map(|body| Bounded::new(body, limits)))
    }

    /// The request in the form for the wire, with our token.
    fn headed(&self, request: Request<Body>) -> Result<Request<Body>, Unanswered> {
        let unusable = |what: &str, why: String| Unanswered::Credentials(format!("{what}: {why}"));
        let path = self.access.service_account_dir.join("token");
        let place = format!("the token {}", path.display());
        let text = files::read_text(&path).map_err(|e| unusable(&place, e.to_string()))?;
        let token = bearer(&text).map_err(|e| unusable(&place, e))?;
        let authorization = HeaderValue::try_from(format!("Bearer {token}"));
        let mut authorization = authorization.map_err(|e| unusable(&place, e.to_string()))?;
        authorization.set_sensitive(true);
        let (mut parts, body) = request.into_parts();
        let asked = parts.uri.path_and_query().map_or("/", |p| p.as_str());
        let uri = format!("{}{asked}", self.server.base);
        parts.uri = uri
            .parse()
            .map_err(|e| unusable("the request", format!("{e}")))?;
        let host = HeaderValue::try_from(&self.server.authority);
        let host = host.map_err(|e| unusable("KUBERNETES_SERVICE_HOST", e.to_string()))?;
        let agent = concat!("weir-agent/", env!("CARGO_PKG_VERSION"));
        let json = HeaderValue::from_static("application/json");
        parts.headers.insert(HOST, host);
        parts.headers.insert(AUTHORIZATION, authorization);
        parts
            .headers
            .insert(USER_AGENT, HeaderValue::from_static(agent));
        parts
            .headers
            .insert(CONNECTION, HeaderValue::from_static("close"));
        parts.headers.entry(ACCEPT).or_insert(json);
        Ok(Request::from_parts(parts, body))
    }

    async fn handshake(
        &self,
        stream: TcpStream,
    ) -> Result<tokio_rustls::client::TlsStream<TcpStream>, Unanswered> {
        let access = &self.access;
        let authority = match access.skip_tls_verify {
            true => None,
            false => {
                let default = access.service_account_dir.join("ca.crt");
                let path = access.ca_file.as_ref().unwrap_or(&default);
                Some(files::read(path).map_err(|e| {
                    Unanswered::Credentials(format!("the CA {}: {e}", path.display()))
                })?)
            }
        };
        let config = client_config(authority.as_deref()).map_err(Unanswered::Credentials)?;
        let name = ServerName::try_from(self.server.host.clone())
            .map_err(|e| Unanswered::Tls(format!("the server's name: {e}")))?;
        let connector = TlsConnector::from(Arc::new(config));
        let connected = connector.connect(name, stream).await;
        connected.map_err(|e| match Reason::of_handshake(&e) {
            Reason::Tls(text) => Unanswered::Tls(text),
            Reason::Broken(text) | Reason::Slow(text) => Unanswered::Broken(text),
            other => Unanswered::Broken(other.cause()),
        })
    }
}

async fn connect(server: &Server) -> Result<TcpStream, Unanswered> {
    let unreachable = |e: std::io::Error| Unanswered::Unreachable(e.to_string());
    let place = (server.host.as_str(), server.port);
    let stream = TcpStream::connect(place).await.map_err(unreachable)?;
    // A watch is silent for minutes: without these a peer that is gone without a word is not noticed.
    let keepalive = TcpKeepalive::new()
        .with_time(Duration::from_secs(30))
        .with_interval(Duration::from_secs(10));
    let socket = SockRef::from(&stream);
    socket
        .set_tcp_keepalive(&keepalive.with_retries(3))
        .and_then(|()| socket.set_tcp_nodelay(true))
        .map_err(unreachable)?;
    Ok(stream)
}

async fn send<S>(stream: S, request: Request<Body>) -> Result<Response<Incoming>, Unanswered>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let broken = |e: hyper::Error| Unanswered::Broken(e.to_string());
    let exchange = async {
        let (mut sender, connection) = hyper::client::conn::http1::Builder::new()
            .max_buf_size(64 << 10)
            .handshake(TokioIo::new(stream))
            .await
            .map_err(broken)?;
        // Ends with the body, or when nobody wants it any more.
        tokio::spawn(connection);
        sender.send_request(request).await.map_err(broken)
    };
    limited(ANSWER, "no answer", exchange).await
}

async fn limited<T>(
    limit: Duration,
    what: &str,
    work: impl Future<Output = Result<T, Unanswered>>,
) -> Result<T, Unanswered> {
    let late = |_| Unanswered::Unreachable(format!("{what} within {limit:?}"));
    tokio::time::timeout(limit, work).await.map_err(late)?
}
