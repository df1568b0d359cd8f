//! The part of HTTP/1.1 needed for the node agent's sockets and a GET to the API server: one exchange per connection.
//! There is no HTTP client here, because every one needs an async runtime or a connection pool.

mod response;

use std::io::{Error, ErrorKind, Read, Result, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use nix::sys::socket::{AddressFamily, SockFlag, SockType, UnixAddr, connect, socket};

pub use response::Response;
pub(crate) use response::read_response;
use response::{Answer, read_beginning};

/// Maximum size of the body that is read from the agent's answer, which is short; the rest is ignored.
const AGENT_BODY_LIMIT: u64 = 1 << 20;

/// Performs `curl --unix-socket SOCKET -X POST -H 'Content-Type: application/json' -d BODY http://unix/PATH`
/// within `limit`, including the time to connect.
///
/// # Errors
/// As [`get`].
pub(crate) fn post(socket: &Path, path: &str, body: String, limit: Duration) -> Result<Response> {
    send(socket, head_of_post(path, &body) + &body, limit)
}

/// Like [`post`], for callers that need only the status: it is known once the header has arrived, even if reading the
/// body fails. For a status other than 200 the body is the part that could be read.
///
/// # Errors
/// As [`get`], except for errors of the body.
pub(crate) fn post_for_status(
    socket: &Path,
    path: &str,
    body: &str,
    limit: Duration,
) -> Result<Response> {
    within(limit, || {
        let mut stream = Until::connect(socket, limit)?;
        stream.write_all(head_of_post(path, body).as_bytes())?;
        stream.write_all(body.as_bytes())?;
        let mut answer = Answer::begin(stream)?;
        let mut body = Vec::new();
        if answer.status != 200 {
            let _ = answer.read_body(&mut body, AGENT_BODY_LIMIT);
        }
        Ok((answer.status, body).into())
    })
}

fn head_of_post(path: &str, body: &str) -> String {
    format!(
        "POST {path} HTTP/1.1\r\nHost: unix\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    )
}

/// Performs `curl --unix-socket SOCKET http://unix/PATH` within `limit`, including the time to connect.
///
/// # Errors
/// `TimedOut` after `limit`; otherwise the error of `connect`, `read` or `write`, or `InvalidData` for an answer that is
/// not HTTP.
pub fn get(socket: &Path, path: &str, limit: Duration) -> Result<Response> {
    let head = format!("GET {path} HTTP/1.1\r\nHost: unix\r\nConnection: close\r\n\r\n");
    send(socket, head, limit)
}

/// Formats a limit for messages, in whole milliseconds: it may be the rest of a longer limit.
#[must_use]
pub fn shown(limit: Duration) -> String {
    let ms = u64::try_from(limit.as_micros().div_ceil(1000)).unwrap_or(u64::MAX);
    format!("{:?}", Duration::from_millis(ms))
}

fn send(socket: &Path, request: String, limit: Duration) -> Result<Response> {
    within(limit, || exchange(socket, &request, limit))
}

/// Calls `work`, and adds the limit to a timeout error.
fn within<T>(limit: Duration, work: impl FnOnce() -> Result<T>) -> Result<T> {
    work().map_err(|e| match e.kind() {
        // The errors of a socket whose own timeout has passed.
        ErrorKind::WouldBlock | ErrorKind::TimedOut => Error::new(
            ErrorKind::TimedOut,
            format!("no answer within {}", shown(limit)),
        ),
        _ => e,
    })
}

fn exchange(socket: &Path, request: &str, limit: Duration) -> Result<Response> {
    let mut stream = Until::connect(socket, limit)?;
    stream.write_all(request.as_bytes())?;
    read_beginning(stream, AGENT_BODY_LIMIT).map(Response::from)
}

/// A stream with one deadline for all reads and writes: a peer that sends single bytes cannot extend it.
struct Until {
    stream: UnixStream,
    deadline: Instant,
}

impl Until {
    /// `connect(2)`. On a socket with a full backlog it waits for `SO_SNDTIMEO` (unix(7); since Linux 2.4), and
    /// without that option forever.
    fn connect(path: &Path, limit: Duration) -> Result<Self> {
        let deadline = Instant::now() + limit;
        let socket = socket(
            AddressFamily::Unix,
            SockType::Stream,
            SockFlag::SOCK_CLOEXEC,
            None,
        )?;
        let stream = UnixStream::from(socket);
        stream.set_write_timeout(Some(left(deadline)?))?;
        connect(stream.as_raw_fd(), &UnixAddr::new(path)?)?;
        Ok(Self { stream, deadline })
    }
}

impl Read for Until {
    fn read(&mut self, buf: &mut [u8]) -> Result<usize> {
        self.stream.set_read_timeout(Some(left(self.deadline)?))?;
        self.stream.read(buf)
    }
}

impl Write for Until {
    fn write(&mut self, buf: &[u8]) -> Result<usize> {
        self.stream.set_write_timeout(Some(left(self.deadline)?))?;
        self.stream.write(buf)
    }

    fn flush(&mut self) -> Result<()> {
        Ok(())
    }
}

/// Returns the time left; never zero, which would mean no timeout.
fn left(deadline: Instant) -> Result<Duration> {
    match deadline.saturating_duration_since(Instant::now()) {
        Duration::ZERO => Err(ErrorKind::TimedOut.into()),
        left => Ok(left),
    }
}
