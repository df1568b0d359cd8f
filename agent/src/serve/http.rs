//! HTTP/1.1 on a stream socket, one request per connection.

use super::reserve::{Reserve, is_exhausted};
use super::room::{Place, Room};
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::net::TcpListener;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};

/// Time limit for the request line and the headers.
const HEAD: Duration = Duration::from_secs(2);
/// Delay after a failed accept, for instance without a free descriptor.
const PAUSE: Duration = Duration::from_millis(100);

pub(super) type Answer = Response<Full<Bytes>>;

/// State shared by the servers of one thread.
#[derive(Default)]
pub(super) struct Shared {
    /// For servers that must answer even without a free descriptor.
    pub(super) reserve: Option<Reserve>,
    pub(super) room: Room,
}

/// Builds an answer in plain text.
pub(super) fn answer(status: StatusCode, body: impl Into<Bytes>) -> Answer {
    let mut answer = Response::new(Full::new(body.into()));
    *answer.status_mut() = status;
    answer
}

/// Serves a TCP port.
pub(super) async fn serve_port<H, F>(
    listener: TcpListener,
    shared: Arc<Shared>,
    limit: Duration,
    handler: H,
) where
    H: Fn(Request<Incoming>) -> F + Clone + Send + Sync + 'static,
    F: Future<Output = Answer> + Send,
{
    if let Ok(listener) = tokio::net::TcpListener::from_std(listener) {
        let accept = || async { listener.accept().await.map(|(stream, _)| stream) };
        serve(accept, shared, limit, handler).await;
    }
}

/// Accepts connections forever; without a free descriptor it uses the reserve. `limit` is the time limit of a
/// connection. When all places are taken, a client that sends nothing, or does not read, is disconnected in favour of the next one.
pub(super) async fn serve<S, A, H, F>(
    accept: impl Fn() -> A,
    shared: Arc<Shared>,
    limit: Duration,
    handler: H,
) where
    A: Future<Output = io::Result<S>>,
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    H: Fn(Request<Incoming>) -> F + Clone + Send + Sync + 'static,
    F: Future<Output = Answer> + Send,
{
    let room = &shared.room;
    loop {
        let stream = match accept().await {
            Ok(stream) => {
                shared.reserve.iter().for_each(Reserve::refill);
                stream
            }
            Err(e) => {
                let reserve = shared.reserve.as_ref().filter(|_| is_exhausted(&e));
                match reserve.map(Reserve::give) {
                    // Retries at once: others may take the free descriptor.
                    Some(true) => {}
                    // Clients hold the whole reserve; some of them may be idle.
                    Some(false) => room.shrink().await,
                    None => tokio::time::sleep(PAUSE).await,
                }
                continue;
            }
        };
        let handler = handler.clone();
        let serve = |place: Arc<Place>| async move {
            let service = service_fn(move |request| {
                place.asked();
                let (answer, place) = (handler(request), Arc::clone(&place));
                async move {
                    let answer = answer.await;
                    place.answered();
                    Ok::<_, Infallible>(answer)
                }
            });
            let connection = hyper::server::conn::http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(HEAD)
                // A client may shut down its write side and wait for the answer.
                .half_close(true)
                .keep_alive(false)
                .max_buf_size(64 << 10)
                .serve_connection(TokioIo::new(stream), service);
            // Protocol errors and the time limit end the connection.
            let _ = tokio::time::timeout(limit, connection).await;
        };
        room.spawn(room.place().await, serve);
    }
}
