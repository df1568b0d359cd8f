//! Enough HTTP/1.1 for the node agent's sockets and a GET to the API server: one
//! exchange for each connection.

use std::io::{BufRead, BufReader, Error, ErrorKind, Read, Result, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use nix::sys::socket::{AddressFamily, SockFlag, SockType, UnixAddr, connect, socket};

/// An agent's answer is short; more than this is not read.
const AGENT_BODY_LIMIT: u64 = 1 << 20;
/// Header bytes at most: answers of the agent have a few hundred.
const HEAD_LIMIT: u64 = 64 << 10;

/// An answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Response {
    /// The three digits of the status line.
    pub status: u16,
    /// The body, as far as it was read.
    pub body: String,
}

/// `curl --unix-socket SOCKET -X POST -H 'Content-Type: application/json' -d BODY http://unix/PATH`
/// within `limit`, connecting included.
///
/// # Errors
/// As [`get`].
pub(crate) fn post(socket: &Path, path: &str, body: String, limit: Duration) -> Result<Response> {
    let head = format!(
        "POST {path} HTTP/1.1\r\nHost: unix\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    send(socket, head + &body, limit)
}

/// `curl --unix-socket SOCKET http://unix/PATH` within `limit`, connecting included.
///
/// # Errors
/// `TimedOut` after `limit`; otherwise what `connect`, `read` or `write`
/// answered, or `InvalidData` for an answer that is not HTTP.
pub fn get(socket: &Path, path: &str, limit: Duration) -> Result<Response> {
    let head = format!("GET {path} HTTP/1.1\r\nHost: unix\r\nConnection: close\r\n\r\n");
    send(socket, head, limit)
}

fn send(socket: &Path, request: String, limit: Duration) -> Result<Response> {
    exchange(socket, &request, limit).map_err(|e| match e.kind() {
        // What the socket answers when its own limit has passed.
        ErrorKind::WouldBlock | ErrorKind::TimedOut => {
            Error::new(ErrorKind::TimedOut, format!("no answer within {limit:?}"))
        }
        _ => e,
    })
}

fn exchange(socket: &Path, request: &str, limit: Duration) -> Result<Response> {
    let mut stream = Until::connect(socket, limit)?;
    stream.write_all(request.as_bytes())?;
    read_response(stream, AGENT_BODY_LIMIT)
}

/// A stream whose time is up at a moment, however it is spent: a byte now and then does not prolong it.
struct Until {
    stream: UnixStream,
    deadline: Instant,
}

impl Until {
    /// `connect(2)`, which on a socket with a full backlog waits as long as `SO_SNDTIMEO` says (unix(7); since
    /// Linux 2.4), and without it for ever.
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

/// Never zero, which would be for ever.
fn left(deadline: Instant) -> Result<Duration> {
    match deadline.saturating_duration_since(Instant::now()) {
        Duration::ZERO => Err(ErrorKind::TimedOut.into()),
        left => Ok(left),
    }
}

fn invalid(what: &str) -> Error {
    Error::new(
        ErrorKind::InvalidData,
        format!("the answer is not HTTP: {what}"),
    )
}

/// Reads one answer, at most `body_limit` bytes of its body.
pub(crate) fn read_response(stream: impl Read, body_limit: u64) -> Result<Response> {
    let mut reader = BufReader::new(stream);
    let mut head = Vec::new();
    let mut limited = reader.by_ref().take(HEAD_LIMIT);
    loop {
        let before = head.len();
        limited.read_until(b'\n', &mut head)?;
        match head.get(before..) {
            Some(b"\r\n" | b"\n") if before > 0 => break,
            Some([.., b'\n']) => {}
            _ => return Err(invalid("it ends within the header")),
        }
    }
    let head = String::from_utf8_lossy(&head).into_owned();
    let mut lines = head.lines();
    let mut status_line = lines.next().unwrap_or_default().split_whitespace();
    let status = match (status_line.next(), status_line.next().map(str::parse)) {
        (Some(version), Some(Ok(status))) if version.starts_with("HTTP/1.") => status,
        _ => return Err(invalid("no status line")),
    };
    let header = |name: &str| {
        lines.clone().find_map(|line| {
            let (key, value) = line.split_once(':')?;
            key.trim()
                .eq_ignore_ascii_case(name)
                .then(|| value.trim().to_owned())
        })
    };
    let mut body = Vec::new();
    if header("Transfer-Encoding").is_some_and(|v| v.eq_ignore_ascii_case("chunked")) {
        read_chunks(&mut reader, &mut body, body_limit)?;
    } else {
        let length = header("Content-Length").and_then(|v| v.parse::<u64>().ok());
        let wanted = length.unwrap_or(body_limit).min(body_limit);
        reader.take(wanted).read_to_end(&mut body)?;
        if length.is_some() && (body.len() as u64) < wanted {
            return Err(invalid("the body is cut off"));
        }
    }
    Ok(Response {
        status,
        body: String::from_utf8_lossy(&body).into_owned(),
    })
}

/// RFC 9112 section 7.1, without trailers.
fn read_chunks(reader: &mut impl BufRead, body: &mut Vec<u8>, limit: u64) -> Result<()> {
    loop {
        let mut line = String::new();
        reader.by_ref().take(64).read_line(&mut line)?;
        let digits = line.trim().split(';').next().unwrap_or_default();
        let size = u64::from_str_radix(digits, 16).map_err(|_| invalid("a bad chunk size"))?;
        let room = limit.saturating_sub(body.len() as u64);
        if size == 0 || room == 0 {
            return Ok(());
        }
        reader.by_ref().take(size.min(room)).read_to_end(body)?;
        line.clear();
        reader.by_ref().take(2).read_line(&mut line)?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Response> {
        read_response(text.as_bytes(), 1 << 20)
    }

    #[test]
    fn bodies_by_length_by_end_and_in_chunks() {
        let ok = |body: &str| Response {
            status: 200,
            body: body.into(),
        };
        let head = "HTTP/1.1 200 OK\r\n";
        assert_eq!(
            read(&format!("{head}content-length: 2\r\n\r\nabc")).unwrap(),
            ok("ab")
        );
        assert_eq!(read(&format!("{head}\r\nabc")).unwrap(), ok("abc"));
        let chunks = "Transfer-Encoding: chunked\r\n\r\n2\r\nab\r\n1;x=y\r\nc\r\n0\r\n\r\n";
        assert_eq!(read(&format!("{head}{chunks}")).unwrap(), ok("abc"));
    }

    #[test]
    fn other_things_are_refused() {
        for text in [
            "",
            "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\na",
            "hello\r\n\r\n",
            "HTTP/1.1 abc\r\n\r\n",
            "HTTP/1.1 200 OK\r\nx",
            "\r\n",
        ] {
            assert_eq!(
                read(text).unwrap_err().kind(),
                ErrorKind::InvalidData,
                "{text:?}"
            );
        }
    }
}
