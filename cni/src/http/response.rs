//! Answers of HTTP/1.1. httparse parses headers and chunk sizes; this file handles limits and bodies.

use std::io::{BufRead, BufReader, Error, ErrorKind, Read, Result};

use httparse::{Header, Status};

use crate::config::text::decimal;

/// Maximum header size in bytes: answers of the agent have a few hundred.
const HEAD_LIMIT: u64 = 64 << 10;
/// Maximum number of header lines: answers of the API server have a dozen.
const HEADERS: usize = 64;
/// Maximum number of interim answers (1xx) before the answer: a server sends one or two.
const INTERIM: usize = 8;
/// Maximum length in bytes of a chunk's first line: a size and an extension.
const CHUNK_LINE: u64 = 64;

/// An HTTP response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Response {
    /// The three digits of the status line.
    pub status: u16,
    /// The body, up to the limit.
    pub body: String,
}

fn invalid(what: &str) -> Error {
    Error::new(
        ErrorKind::InvalidData,
        format!("the answer is not HTTP: {what}"),
    )
}

impl From<(u16, Vec<u8>)> for Response {
    fn from((status, body): (u16, Vec<u8>)) -> Self {
        Self {
            status,
            body: String::from_utf8_lossy(&body).into_owned(),
        }
    }
}

/// Reads one answer.
///
/// # Errors
/// As [`get`](super::get); `FileTooLarge` if its body has more than `body_limit` bytes: a truncated body is useless.
pub(crate) fn read_response(stream: impl Read, body_limit: u64) -> Result<Response> {
    let answer = read_beginning(stream, body_limit + 1)?;
    if answer.1.len() as u64 > body_limit {
        let why = format!("the answer has more than {} MiB", body_limit >> 20);
        return Err(Error::new(ErrorKind::FileTooLarge, why));
    }
    Ok(answer.into())
}

/// Reads the status of one answer, and at most `body_limit` bytes of its body.
pub(super) fn read_beginning(stream: impl Read, body_limit: u64) -> Result<(u16, Vec<u8>)> {
    let mut answer = Answer::begin(stream)?;
    let mut body = Vec::new();
    answer.read_body(&mut body, body_limit)?;
    Ok((answer.status, body))
}

/// An answer whose header was read.
pub(super) struct Answer<R: Read> {
    pub(super) status: u16,
    /// Framing of the body.
    form: Result<Form>,
    reader: BufReader<R>,
}

/// How the end of a body is determined.
#[derive(Clone, Copy)]
enum Form {
    Chunks,
    Length(u64),
    UntilTheEnd,
}

impl<R: Read> Answer<R> {
    pub(super) fn begin(stream: R) -> Result<Self> {
        let mut reader = BufReader::new(stream);
        for _ in 0..INTERIM {
            let (status, form) = Self::head(&mut reader)?;
            // RFC 9110 section 15.2: a client may ignore all but 101, which it has to request.
            if !matches!(status, 100 | 102..=199) {
                return Ok(Self {
                    status,
                    form,
                    reader,
                });
            }
        }
        Err(invalid("only interim answers"))
    }

    /// Reads the status and the framing of the body.
    fn head(reader: &mut BufReader<R>) -> Result<(u16, Result<Form>)> {
        let head = read_head(reader)?;
        let mut headers = [httparse::EMPTY_HEADER; HEADERS];
        let mut answer = httparse::Response::new(&mut headers);
        let parsed = answer.parse(&head);
        let status = match (parsed, answer.code) {
            (Ok(Status::Complete(_)), Some(status)) => status,
            (Err(error), _) => return Err(invalid(&error.to_string())),
            _ => return Err(invalid("it ends within the header")),
        };
        let headers = &*answer.headers;
        let chunked = |v: &[u8]| v.eq_ignore_ascii_case(b"chunked");
        let form = match values(headers, "Transfer-Encoding").any(chunked) {
            true => Ok(Form::Chunks),
            false => length(headers).map(|l| l.map_or(Form::UntilTheEnd, Form::Length)),
        };
        Ok((status, form))
    }

    /// Reads at most `limit` bytes. Bytes read before an error are in `body`.
    pub(super) fn read_body(&mut self, body: &mut Vec<u8>, limit: u64) -> Result<()> {
        let form = match &self.form {
            Ok(form) => *form,
            Err(e) => return Err(invalid(&e.to_string())),
        };
        let wanted = match form {
            Form::Chunks => return read_chunks(&mut self.reader, body, limit),
            Form::Length(length) => length.min(limit),
            Form::UntilTheEnd => limit,
        };
        self.reader.by_ref().take(wanted).read_to_end(body)?;
        match form {
            Form::Length(_) if (body.len() as u64) < wanted => Err(invalid("the body is cut off")),
            _ => Ok(()),
        }
    }
}

/// Reads the status line and the header, including the empty line after them.
fn read_head(reader: &mut impl BufRead) -> Result<Vec<u8>> {
    let mut head = Vec::new();
    let mut limited = reader.take(HEAD_LIMIT);
    loop {
        let before = head.len();
        limited.read_until(b'\n', &mut head)?;
        match head.get(before..) {
            Some(b"\r\n" | b"\n") if before > 0 => return Ok(head),
            Some([.., b'\n']) => {}
            _ => return Err(invalid("it ends within the header")),
        }
    }
}

fn values<'h>(headers: &'h [Header<'h>], name: &str) -> impl Iterator<Item = &'h [u8]> {
    let named = headers
        .iter()
        .filter(move |h| h.name.eq_ignore_ascii_case(name));
    named.map(|h| h.value.trim_ascii())
}

/// Returns `Content-Length`; repeated headers must agree (RFC 9112 section 6.3).
fn length(headers: &[Header<'_>]) -> Result<Option<u64>> {
    let mut length = None;
    for value in values(headers, "Content-Length") {
        let number = std::str::from_utf8(value).ok().and_then(decimal::<u64>);
        if number.is_none() || length.is_some_and(|l| Some(l) != number) {
            return Err(invalid("a bad Content-Length"));
        }
        length = number;
    }
    Ok(length)
}

/// Reads a chunked body (RFC 9112 section 7.1) without trailers.
fn read_chunks(reader: &mut impl BufRead, body: &mut Vec<u8>, limit: u64) -> Result<()> {
    loop {
        let mut line = Vec::new();
        reader
            .by_ref()
            .take(CHUNK_LINE)
            .read_until(b'\n', &mut line)?;
        let Ok(Status::Complete((_, size))) = httparse::parse_chunk_size(&line) else {
            return Err(invalid("a bad chunk size"));
        };
        let room = limit.saturating_sub(body.len() as u64);
        if size == 0 || room == 0 {
            return Ok(());
        }
        reader.by_ref().take(size.min(room)).read_to_end(body)?;
        line.clear();
        reader.by_ref().take(2).read_until(b'\n', &mut line)?;
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
    fn interim_answers_are_skipped_up_to_a_limit() {
        let hint = "HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n";
        let last = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
        let interim = format!("HTTP/1.1 100 Continue\r\n\r\n{hint}");
        let answer = read(&format!("{interim}{last}")).unwrap();
        assert_eq!((answer.status, answer.body.as_str()), (200, "ok"));
        for text in [interim, hint.repeat(100) + last] {
            let error = read(&text).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidData, "{error}");
        }
        let switched = read("HTTP/1.1 101 Switching Protocols\r\n\r\n").unwrap();
        assert_eq!(switched.status, 101);
    }

    /// A truncated answer would be mistaken for one that ends too early.
    #[test]
    fn a_body_that_is_too_long_is_said_to_be() {
        let head = "HTTP/1.1 200 OK\r\n";
        let (full, more) = ("x".repeat(1 << 20), "x".repeat((1 << 20) + 1));
        let endless = |body: &str| format!("{head}\r\n{body}");
        let sized = |body: &str| format!("{head}Content-Length: {}\r\n\r\n{body}", body.len());
        let chunked = |body: &str| {
            let size = body.len();
            format!("{head}Transfer-Encoding: chunked\r\n\r\n{size:x}\r\n{body}\r\n0\r\n\r\n")
        };
        let forms: [&dyn Fn(&str) -> String; 3] = [&endless, &sized, &chunked];
        for form in forms {
            assert_eq!(read(&form(&full)).unwrap().body.len(), 1 << 20);
            let error = read(&form(&more)).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::FileTooLarge, "{error}");
            assert!(error.to_string().contains("more than 1 MiB"), "{error}");
        }
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
            "HTTP/1.1 200 OK\r\nno colon\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\na",
            "HTTP/1.1 200 OK\r\nContent-Length: +1\r\n\r\na",
            "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n+1\r\na\r\n0\r\n\r\n",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\na",
        ] {
            assert_eq!(
                read(text).unwrap_err().kind(),
                ErrorKind::InvalidData,
                "{text:?}"
            );
        }
    }
}
