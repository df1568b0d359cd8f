//! Connections to the API server, with TLS and a token.
//!
//! The kubelet renews the token and the CA, so the token is read from its file for every request and the CA for
//! every connection.

use super::access::Access;
use super::connection::Unanswered;
use futures::future::BoxFuture;
use hyper::header::{ACCEPT, AUTHORIZATION, HOST, HeaderValue, USER_AGENT};
use hyper::{Request, Uri};
use hyper_util::client::legacy;
use hyper_util::rt::TokioIo;
use kube::client::Body;
use socket2::{SockRef, TcpKeepalive};
use std::fmt;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::ServerName;
use weir_cni::api::{Reason, Server, bearer, client_config};
use weir_cni::files;

/// Time limit for the TCP connection, and again for the TLS handshake.
pub(super) const CONNECT: Duration = Duration::from_secs(10);

/// Opens connections for hyper's client.
#[derive(Clone)]
pub(super) struct Connector(Arc<Peer>);

/// The API server and its trust settings.
struct Peer {
    access: Access,
    server: Server,
}

impl Connector {
    /// # Errors
    /// Host, port or protocol of the server are missing or cannot be used.
    pub(super) fn new(access: &Access) -> Result<Self, String> {
        Ok(Self(Arc::new(Peer {
            access: access.clone(),
            server: Server::parse(&access.url()?)?,
        })))
    }

    /// Returns the request with the server's URI, the token and the other headers.
    pub(super) fn headed(&self, request: Request<Body>) -> Result<Request<Body>, Unanswered> {
        let unusable = |what: &str, why: String| Unanswered::Credentials(format!("{what}: {why}"));
        let Peer { access, server } = &*self.0;
        let path = access.service_account_dir.join("token");
        let place = format!("the token {}", path.display());
        let text = files::read_text(&path).map_err(|e| unusable(&place, e.to_string()))?;
        let token = bearer(&text).map_err(|e| unusable(&place, e))?;
        let authorization = HeaderValue::try_from(format!("Bearer {token}"));
        let mut authorization = authorization.map_err(|e| unusable(&place, e.to_string()))?;
        authorization.set_sensitive(true);
        let (mut parts, body) = request.into_parts();
        let asked = parts.uri.path_and_query().map_or("/", |p| p.as_str());
        let scheme = if server.tls { "https" } else { "http" };
        let uri = format!("{scheme}://{}{}{asked}", server.authority, server.base);
        parts.uri = uri
            .parse()
            .map_err(|e| unusable("the request", format!("{e}")))?;
        let host = HeaderValue::try_from(&server.authority);
        let host = host.map_err(|e| unusable("KUBERNETES_SERVICE_HOST", e.to_string()))?;
        let agent = concat!("weir-agent/", env!("CARGO_PKG_VERSION"));
        let json = HeaderValue::from_static("application/json");
        parts.headers.insert(HOST, host);
        parts.headers.insert(AUTHORIZATION, authorization);
        parts
            .headers
            .insert(USER_AGENT, HeaderValue::from_static(agent));
        parts.headers.entry(ACCEPT).or_insert(json);
        Ok(Request::from_parts(parts, body))
    }
}

/// A stream with or without TLS.
pub(super) trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

impl legacy::connect::Connection for Box<dyn Stream> {
    fn connected(&self) -> legacy::connect::Connected {
        legacy::connect::Connected::new()
    }
}

impl tower_service::Service<Uri> for Connector {
    type Response = TokioIo<Box<dyn Stream>>;
    type Error = Unanswered;
    type Future = BoxFuture<'static, Result<Self::Response, Unanswered>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Unanswered>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Uri) -> Self::Future {
        let peer = Arc::clone(&self.0);
        Box::pin(async move {
            let stream = limited(CONNECT, "no connection", connect(&peer.server)).await?;
            let stream: Box<dyn Stream> = match peer.server.tls {
                true => {
                    Box::new(limited(CONNECT, "no TLS handshake", peer.handshake(stream)).await?)
                }
                false => Box::new(stream),
            };
            Ok(TokioIo::new(stream))
        })
    }
}

impl Peer {
    async fn handshake(
        &self,
        stream: TcpStream,
    ) -> Result<tokio_rustls::client::TlsStream<TcpStream>, Unanswered> {
        let path = self.access.ca();
        let unusable = |e: &dyn fmt::Display| {
            Unanswered::Credentials(format!("the CA {}: {e}", path.display()))
        };
        let authority = files::read(&path).map_err(|e| unusable(&e))?;
        let config = client_config(Some(&authority)).map_err(|e| unusable(&e))?;
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
    // A watch is silent for minutes. Without keepalives, a peer that disappeared without closing is not detected.
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

/// Awaits the work for at most this time.
pub(super) async fn limited<T>(
    limit: Duration,
    what: &str,
    work: impl Future<Output = Result<T, Unanswered>>,
) -> Result<T, Unanswered> {
    let late = |_| Unanswered::Unreachable(format!("{what} within {limit:?}"));
    tokio::time::timeout(limit, work).await.map_err(late)?
}
