//! Requests and answers in HTTP/1.1.

use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::{BufRead, Result, Write};

/// A received request.
#[derive(Clone, Debug)]
pub struct Asked {
    /// The number of the request, starting at 1.
    pub number: usize,
    pub method: String,
    /// The path without the query.
    pub path: String,
    pub query: BTreeMap<String, String>,
    /// The headers by lower-case name.
    pub headers: BTreeMap<String, String>,
    /// The body; `Null` without one.
    pub body: Value,
}

impl Asked {
    /// Returns a parameter of the query; empty if it is absent.
    pub fn get(&self, name: &str) -> &str {
        self.query.get(name).map_or("", String::as_str)
    }

    pub fn is_watch(&self) -> bool {
        self.get("watch") == "true"
    }

    pub fn streams(&self) -> bool {
        self.get("sendInitialEvents") == "true"
    }

    pub fn is_for_pods(&self) -> bool {
        self.path == "/api/v1/pods"
    }
}

/// Reads a request; `None` at the end of the connection.
pub(super) fn read(stream: &mut impl BufRead) -> Option<Asked> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let length = stream.read_until(b'\n', &mut head).ok()?;
        (length > 0).then_some(())?;
    }
    let head = String::from_utf8(head).ok()?;
    let mut lines = head.lines();
    let mut words = lines.next()?.split(' ').map(str::to_owned);
    let (method, uri) = (words.next()?, words.next()?);
    let (path, query) = uri.split_once('?').unwrap_or((&uri, ""));
    let header = |line: &str| {
        let (name, value) = line.split_once(": ")?;
        Some((name.to_lowercase(), value.to_owned()))
    };
    let headers: BTreeMap<String, String> = lines.filter_map(header).collect();
    let length = headers.get("content-length").map_or("0", String::as_str);
    let mut body = vec![0; length.parse().ok()?];
    stream.read_exact(&mut body).ok()?;
    let pair = |text: &str| {
        let (name, value) = text.split_once('=')?;
        Some((name.to_owned(), value.replace("%3D", "=")))
    };
    Some(Asked {
        number: 0,
        method,
        body: serde_json::from_slice(&body).unwrap_or_default(),
        path: path.to_owned(),
        query: query.split('&').filter_map(pair).collect(),
        headers,
    })
}

/// Sends an answer with Content-Length in one write, which usually becomes one TLS record.
pub(super) fn whole(stream: &mut impl Write, code: u16, body: &str) -> Result<()> {
    let length = body.len();
    let text = format!(
        "HTTP/1.1 {code} X\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}"
    );
    stream.write_all(text.as_bytes())
}

/// Sends the head of a chunked answer.
pub(super) fn begin(stream: &mut impl Write) -> Result<()> {
    stream.write_all(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
}

pub(super) fn chunk(stream: &mut impl Write, data: &[u8]) -> Result<()> {
    write!(stream, "{:x}\r\n", data.len())?;
    stream.write_all(data)?;
    stream.write_all(b"\r\n")
}

/// Sends an event of a watch.
pub(super) fn event(stream: &mut impl Write, kind: &str, object: &Value) -> Result<()> {
    let line = format!("{}\n", json!({"type": kind, "object": object}));
    chunk(stream, line.as_bytes())
}

/// Sends the last chunk.
pub(super) fn end(stream: &mut impl Write) -> Result<()> {
    stream.write_all(b"0\r\n\r\n")
}
