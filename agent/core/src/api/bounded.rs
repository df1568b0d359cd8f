//! Limits on the size and duration of an answer, and a check of the kind of a list.

use super::connection::Unanswered;
use crate::journal::cut;
use futures::future::FutureExt;
use hyper::body::{Body, Bytes, Frame, Incoming, SizeHint};
use serde::Deserialize;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::time::Sleep;

/// Maximum bytes of a line, which is one event of a watch. The API server stores objects of at most 1.5 MiB; their JSON may
/// be larger.
const LINE: usize = 16 << 20;
/// Maximum bytes of a page of a list.
const ANSWER: usize = 64 << 20;
/// Time limit for a complete page, against a server that sends a byte now and then.
const ANSWER_TIME: Duration = Duration::from_secs(60);

/// Time without a byte after which a watch ends. A working server sends a bookmark about every minute
/// (`defaultBookmarkFrequency` of its watch cache) if anything ever changed. If nothing did, another watch from the same
/// version costs little; a server that is frozen with open connections does not answer it.
const IDLE: Duration = Duration::from_secs(90);

/// The limits of an answer.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    bytes: usize,
    /// A line feed resets the byte count: events of a watch are lines.
    lines: bool,
    /// Time limit for the whole answer; `None` for no limit.
    time: Option<Duration>,
    /// Time without a byte after which the answer ends, as if the server had ended it.
    idle: Option<Duration>,
}

impl Limits {
    /// Limits for a watch, which may begin with a list.
    pub fn of_watch() -> Self {
        Self {
            bytes: LINE,
            lines: true,
            time: None,
            idle: Some(IDLE),
        }
    }

    /// Limits for a single answer.
    pub fn of_answer() -> Self {
        Self {
            bytes: ANSWER,
            lines: false,
            time: Some(ANSWER_TIME),
            idle: None,
        }
    }
}

/// Accepted kinds of a list.
pub type Kinds = &'static [&'static str];

/// A body that ends with an error if it exceeds its limits, or is not a list of the requested kind.
pub struct Bounded {
    body: Incoming,
    /// The accepted kinds of the list, and the bytes read so far. A list of another kind has none of the requested objects, which
    /// does not mean that there are none.
    list: Option<(Kinds, Vec<u8>)>,
    limits: Limits,
    seen: usize,
    /// State of the current line, for a watch.
    line: Line,
    deadline: Option<Pin<Box<Sleep>>>,
    idle: Option<Pin<Box<Sleep>>>,
}

impl Bounded {
    /// Wraps a body so that it ends with an error if it exceeds its limits.
    pub fn new(body: Incoming, limits: Limits) -> Self {
        let timer = |time| Box::pin(tokio::time::sleep(time));
        let (deadline, idle) = (limits.time.map(timer), limits.idle.map(timer));
        Self {
            body,
            list: None,
            limits,
            seen: 0,
            line: Line::default(),
            deadline,
            idle,
        }
    }

    /// Also requires a list of one of these kinds. The body is read to its end before any of it is returned.
    pub fn of_list(self, kinds: Kinds) -> Self {
        let list = (!kinds.is_empty()).then(|| (kinds, Vec::new()));
        Self { list, ..self }
    }
}

/// Checks that the body is a list of one of these kinds.
///
/// # Errors
/// Names what it is instead.
fn check(list: &[u8], kinds: Kinds) -> Result<(), String> {
    #[derive(Deserialize)]
    struct List {
        #[serde(default)]
        kind: String,
    }
    let expected = kinds.join(" or ");
    match serde_json::from_slice(list) {
        Ok(List { kind }) if kinds.contains(&kind.as_str()) => Ok(()),
        Ok(List { kind }) if kind.is_empty() => Err(format!("no kind instead of {expected}")),
        Ok(List { kind }) => Err(format!("kind {} instead of {expected}", cut(&kind))),
        Err(e) => Err(format!("no JSON of {expected}: {e}")),
    }
}

/// The nesting of the current line of a watch. kube's client takes a line that ends within its event for the end of the watch, and
/// drops it: its object would stay unknown.
#[derive(Debug, Default)]
struct Line {
    depth: usize,
    in_string: bool,
    escaped: bool,
    /// An object began.
    is_event: bool,
    /// It is not blank.
    begun: bool,
}

impl Line {
    /// Reads further bytes. Fails if a line ends within its event.
    fn read(&mut self, data: &[u8]) -> Result<(), &'static str> {
        for byte in data {
            self.begun |= !byte.is_ascii_whitespace();
            match byte {
                b'\n' => {
                    self.end()?;
                    *self = Self::default();
                }
                _ if self.escaped => self.escaped = false,
                b'\\' => self.escaped = self.in_string,
                b'"' => self.in_string = !self.in_string,
                _ if self.in_string => {}
                b'{' | b'[' => (self.depth, self.is_event) = (self.depth + 1, true),
                b'}' | b']' => self.depth = self.depth.saturating_sub(1),
                _ => {}
            }
        }
        Ok(())
    }

    /// Checks that the line may end here.
    fn end(&self) -> Result<(), &'static str> {
        let is_whole = self.is_event && self.depth == 0 && !self.in_string;
        match is_whole || !self.begun {
            true => Ok(()),
            false => Err("it ends within an event"),
        }
    }
}

/// Returns the number of bytes that count against the limit after `data`.
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
        let Some((kinds, mut read)) = this.list.take() else {
            return this.poll_next(cx);
        };
        loop {
            match this.poll_next(cx) {
                Poll::Pending => {
                    this.list = Some((kinds, read));
                    return Poll::Pending;
                }
                Poll::Ready(Some(Ok(frame))) => {
                    if let Some(data) = frame.data_ref() {
                        read.extend_from_slice(data);
                    }
                }
                Poll::Ready(Some(Err(e))) => return Poll::Ready(Some(Err(e))),
                Poll::Ready(None) => {
                    this.deadline = None;
                    let checked = check(&read, kinds);
                    let garbage = |why| kube::Error::Service(Unanswered::Garbage(why).into());
                    let checked = checked.map(|()| Frame::data(read.into()));
                    return Poll::Ready(Some(checked.map_err(garbage)));
                }
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.list.is_none() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Bounded {
    fn poll_next(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, kube::Error>>> {
        let this = self;
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
            return match (this.idle.as_mut().is_some_and(silent), this.line.end()) {
                (true, Ok(())) => Poll::Ready(None),
                (true, Err(why)) => too(why.to_owned()),
                (false, _) => Poll::Pending,
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
            if this.limits.lines
                && let Err(why) = this.line.read(data)
            {
                return too(why.to_owned());
            }
        }
        if frame.is_none()
            && let Err(why) = this.line.end()
        {
            return too(why.to_owned());
        }
        Poll::Ready(frame.map(|f| f.map_err(kube::Error::HyperError)))
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
    fn a_line_that_ends_within_its_event_is_none() {
        let read = |parts: &[&str]| {
            let mut line = Line::default();
            let mut parts = parts.iter().map(|part| line.read(part.as_bytes()));
            let read = parts.try_for_each(|read| read);
            (read, line.end())
        };
        let whole = r#"{"type":"ADDED","object":{"a":["}\\\"",1]}}"#;
        let line = format!("{whole}\n");
        for (n, _) in whole.char_indices().skip(1) {
            let (begin, rest) = line.split_at(n);
            assert_eq!(read(&[begin, rest]), (Ok(()), Ok(())), "{begin}");
            assert!(read(&[begin]).1.is_err(), "{begin}");
            assert!(read(&[begin, "\n"]).0.is_err(), "{begin}");
        }
        for (text, ends) in [("", true), ("\r\n \n", true), (whole, true), ("tru", false)] {
            let (begun, end) = read(&[text]);
            assert!(begun.is_ok() && end.is_ok() == ends, "{text}");
        }
    }

    #[test]
    fn a_list_of_another_kind_is_none() {
        let kinds: Kinds = &["PodList", "NamespaceList"];
        let of = |text: &str| check(text.as_bytes(), kinds);
        // Go encodes an empty slice like this.
        for list in [
            r#"{"kind": "PodList", "items": null}"#,
            r#"{"items": [{"kind": "x"}], "kind": "NamespaceList"}"#,
        ] {
            assert_eq!(of(list), Ok(()), "{list}");
        }
        for (other, why) in [
            (r#"{"kind": "ConfigMapList", "items": []}"#, "ConfigMapList"),
            (r#"{"kind": "PodList or NamespaceList"}"#, "instead of"),
            (r#"{"kind": "List", "items": []}"#, "kind List"),
            (r#"{"items": []}"#, "no kind"),
            (r#"{"kind": null, "items": []}"#, "no JSON"),
            (r#"{"kind": "PodList", "kind": "PodList"}"#, "duplicate"),
            (r#"[]"#, "no kind"),
            ("<html>", "no JSON"),
            ("", "no JSON"),
        ] {
            let error = of(other).unwrap_err();
            assert!(error.contains(why) && error.contains("PodList"), "{error}");
        }
    }

    #[test]
    fn lines_begin_anew() {
        assert_eq!(count(5, b"abc", true), 8);
        assert_eq!(count(5, b"a\nbc", true), 2);
        assert_eq!(count(5, b"a\nb\n", true), 0);
        assert_eq!(count(5, b"a\nbc", false), 9);
    }
}
