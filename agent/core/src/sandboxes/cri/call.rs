//! One unary gRPC call: an HTTP/2 request with a message behind a five-byte prefix, and a status in the trailers.

use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Bytes;
use hyper::client::conn::http2;
use hyper::header::{CONTENT_TYPE, TE};
use hyper::{HeaderMap, Request};
use hyper_util::rt::{TokioExecutor, TokioIo};
use std::path::Path;
use tokio::net::UnixStream;

/// Maximum size of an answer in bytes; containerd's configuration has about ten KiB.
const LIMIT: usize = 4 << 20;
/// Length in bytes of the message prefix: compression flag and message length.
const HEAD: usize = 5;

/// Calls `method` (`/package.Service/Method`) with an encoded message and returns the encoded answer.
///
/// # Errors
/// A text: nothing listens on the socket, the peer does not speak gRPC, or it returned an error status.
pub async fn unary(socket: &Path, method: &str, message: &[u8]) -> Result<Bytes, String> {
    let stream = UnixStream::connect(socket).await;
    let stream = stream.map_err(|e| format!("cannot connect: {e}"))?;
    let io = TokioIo::new(stream);
    let (mut sender, connection) = http2::handshake(TokioExecutor::new(), io)
        .await
        .map_err(no_http)?;
    // The task ends with the Tokio runtime on which it runs.
    tokio::spawn(connection);
    let mut body = vec![0];
    body.extend(u32::try_from(message.len()).unwrap_or(0).to_be_bytes());
    body.extend(message);
    let request = Request::post(format!("http://localhost{method}"))
        .header(TE, "trailers")
        .header(CONTENT_TYPE, "application/grpc")
        .body(Full::new(Bytes::from(body)))
        .map_err(|e| e.to_string())?;
    let response = sender.send_request(request).await.map_err(no_http)?;
    if !response.status().is_success() {
        return Err(format!("it answers with HTTP status {}", response.status()));
    }
    // A trailers-only response has its status in the headers.
    if let Some(status) = status(response.headers()) {
        status?;
    }
    let body = Limited::new(response.into_body(), LIMIT).collect().await;
    let body = body.map_err(|e| format!("the answer breaks off: {e}"))?;
    match body.trailers().and_then(status) {
        Some(status) => status?,
        None => return Err("the answer has no status: it is not gRPC, or broke off".to_owned()),
    }
    unframed(&body.to_bytes())
}

fn no_http(e: hyper::Error) -> String {
    use std::error::Error;
    let cause = e
        .source()
        .map_or(String::new(), |cause| format!(": {cause}"));
    format!("it does not speak HTTP/2 as gRPC does: {e}{cause}")
}

/// Reads `grpc-status` and `grpc-message`; 12 is UNIMPLEMENTED.
fn status(headers: &HeaderMap) -> Option<Result<(), String>> {
    let text = |name| {
        headers
            .get(name)
            .map(|v| String::from_utf8_lossy(v.as_bytes()))
    };
    let status = text("grpc-status")?;
    if status == "0" {
        return Some(Ok(()));
    }
    let message: String = text("grpc-message")
        .unwrap_or_default()
        .chars()
        .take(200)
        .collect();
    Some(Err(match status.as_ref() {
        "12" => format!("it does not speak CRI v1: {message}"),
        status => format!("it answers with gRPC status {status}: {message}"),
    }))
}

/// Returns the single message of an answer, without its prefix.
fn unframed(body: &Bytes) -> Result<Bytes, String> {
    let broken = |what: &str| Err(format!("the answer is not a gRPC message: {what}"));
    let Some((&[flag, a, b, c, d], message)) = body.split_first_chunk::<HEAD>() else {
        return broken("it has no head");
    };
    match (flag, u32::from_be_bytes([a, b, c, d]) as usize) {
        (0, length) if length == message.len() => Ok(body.slice(HEAD..)),
        (0, length) => broken(&format!("it has {} bytes and says {length}", message.len())),
        _ => broken("it is compressed, which was not requested"),
    }
}
