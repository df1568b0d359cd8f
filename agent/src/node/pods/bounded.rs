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

/// What is too much.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    bytes: usize,
    /// A line feed begins anew: events of a watch are lines.
    lines: bool,
    /// `None`: a watch has its own, of the time without events.
    time: Option<Duration>,
}

impl Limits {
    pub(super) fn of_watch() -> Self {
        Self {
            bytes: LINE,
            lines: true,
            time: None,
        }
    }

    pub(super) fn of_answer() -> Self {
        Self {
            bytes: ANSWER,
            lines: false,
            time: Some(ANSWER_TIME),
        }
    }
}

/// A body that ends with an error when it is too much.
pub(crate) struct Bounded {
    body: Incoming,
    limits: Limits,
    seen: usize,
    deadline: Option<Pin<Box<Sleep>>>,
}

impl Bounded {
    pub(super) fn new(body: Incoming, limits: Limits) -> Self {
        let deadline = limits.time.map(|time| Box::pin(tokio::time::sleep(time)));
        Self {
            body,
            limits,
            seen: 0,
            deadline,
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
            return Poll::Pending;
        };
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
    use super::count;

    #[test]
    fn lines_begin_anew() {
        assert_eq!(count(5, b"abc", true), 8);
        assert_eq!(count(5, b"a\nbc", true), 2);
        assert_eq!(count(5, b"a\nb\n", true), 0);
        assert_eq!(count(5, b"a\nbc", false), 9);
    }
}
