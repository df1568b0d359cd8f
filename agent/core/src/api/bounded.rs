//! How much of an answer is taken, and for how long.

use futures::future::FutureExt;
use hyper::body::{Body, Bytes, Frame, Incoming, SizeHint};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::time::Sleep;

/// One event of a watch, a line. The API server stores objects of at most 1.5 MiB; as JSON they may be larger.
const LINE: usize = 16 << 20;
/// A page of a list.
const ANSWER: usize = 64 << 20;
/// All of a page: a server that sends a byte now and then is none.
const ANSWER_TIME: Duration = Duration::from_secs(60);

/// A watch without a byte. A server that lives sends a bookmark about every minute (`defaultBookmarkFrequency` of its
/// watch cache) where anything ever changed. Where nothing did, another watch from the same version costs little; one that
/// is frozen with its connections open does not answer it.
const IDLE: Duration = Duration::from_secs(90);

/// What is too much.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    bytes: usize,
    /// A line feed begins anew: events of a watch are lines.
    lines: bool,
    /// `None`: it goes on as long as there are bytes.
    time: Option<Duration>,
    /// Without a byte for so long, it ends, as if the server had ended it.
    idle: Option<Duration>,
}

impl Limits {
    /// For a list, and the watch after it.
    pub fn of_watch() -> Self {
        Self {
            bytes: LINE,
            lines: true,
            time: None,
            idle: Some(IDLE),
        }
    }

    /// For one answer.
    pub fn of_answer() -> Self {
        Self {
            bytes: ANSWER,
            lines: false,
            time: Some(ANSWER_TIME),
            idle: None,
        }
    }
}

/// A body that ends with an error when it is too much.
pub struct Bounded {
    body: Incoming,
    limits: Limits,
    seen: usize,
    deadline: Option<Pin<Box<Sleep>>>,
    idle: Option<Pin<Box<Sleep>>>,
}

impl Bounded {
    /// A body that ends with an error at its limits.
    pub fn new(body: Incoming, limits: Limits) -> Self {
        let timer = |time| Box::pin(tokio::time::sleep(time));
        let (deadline, idle) = (limits.time.map(timer), limits.idle.map(timer));
        Self {
            body,
            limits,
            seen: 0,
            deadline,
            idle,
        }
    }
}

/// Bytes that count against the limit after `data`.
fn count(seen: usize, data: &[u8], lines: bool) -> usize {
    match data.iter().rposition(|b| *b == b'\n') {
        Some(at) if lines => data.len() - at - 1,
        _ => seen + data.len(),
    }
}

impl Body for Bounded {
    type Data = Bytes;
    type Error = kube::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, kube::Error>>> {
        let this = self.get_mut();
        let too = |what: String| {
            let error = std::io::Error::new(std::io::ErrorKind::InvalidData, what);
            Poll::Ready(Some(Err(kube::Error::ReadEvents(error))))
        };
        if let Some(deadline) = &mut this.deadline
            && deadline.poll_unpin(cx).is_ready()
        {
            return too(format!("it is not complete within {ANSWER_TIME:?}"));
        }
        let Poll::Ready(frame) = Pin::new(&mut this.body).poll_frame(cx) else {
            let silent = |idle: &mut Pin<Box<Sleep>>| idle.poll_unpin(cx).is_ready();
            return match this.idle.as_mut().is_some_and(silent) {
                true => Poll::Ready(None),
                false => Poll::Pending,
            };
        };
        if let (Some(idle), Some(limit)) = (&mut this.idle, this.limits.idle) {
            idle.as_mut().reset(tokio::time::Instant::now() + limit);
        }
        if let Some(Ok(frame)) = &frame
            && let Some(data) = frame.data_ref()
        {
            this.seen = count(this.seen, data, this.limits.lines);
            if this.seen > this.limits.bytes {
                return too(format!("more than {} bytes at once", this.limits.bytes));
            }
        }
        Poll::Ready(frame.map(|f| f.map_err(kube::Error::HyperError)))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::thread::runtime;
    use http_body_util::BodyExt;
    use hyper_util::rt::TokioIo;
    use std::io::{Read, Write};

    /// A server that sends a line of a watch, and then nothing, and keeps the connection.
    #[test]
    fn a_watch_without_a_byte_ends() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let place = listener.local_addr().unwrap();
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut request = [0; 1024];
            assert!(stream.read(&mut request).unwrap() > 0);
            let head = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\n{}\n\r\n";
            stream.write_all(head).unwrap();
            // Until the client goes.
            while stream.read(&mut request).is_ok_and(|n| n > 0) {}
        });
        let read = async {
            let stream = tokio::net::TcpStream::connect(place).await.unwrap();
            let (mut sender, connection) =
                hyper::client::conn::http1::handshake(TokioIo::new(stream))
                    .await
                    .unwrap();
            let connection = tokio::spawn(connection);
            let request = hyper::Request::new(http_body_util::Empty::<Bytes>::new());
            let answer = sender.send_request(request).await.unwrap();
            let limits = Limits {
                idle: Some(Duration::from_millis(100)),
                ..Limits::of_watch()
            };
            let mut body = Bounded::new(answer.into_body(), limits);
            let first = body.frame().await.unwrap().unwrap();
            assert_eq!(first.data_ref().unwrap(), "{}\n");
            let next = tokio::time::timeout(Duration::from_secs(30), body.frame()).await;
            assert!(next.expect("it ends").is_none());
            drop((body, sender));
            connection.abort();
        };
        runtime::of_one_thread("test").unwrap().block_on(read);
        server.join().unwrap();
    }

    #[test]
    fn lines_begin_anew() {
        assert_eq!(count(5, b"abc", true), 8);
        assert_eq!(count(5, b"a\nbc", true), 2);
        assert_eq!(count(5, b"a\nb\n", true), 0);
        assert_eq!(count(5, b"a\nbc", false), 9);
    }
}
