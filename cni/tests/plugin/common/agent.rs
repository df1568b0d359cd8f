//! A fake node agent: one of its sockets, with one answer.

use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, channel};
use std::thread::JoinHandle;
use std::time::Duration;

/// Listens on a socket until it is dropped.
pub struct Agent {
    path: PathBuf,
    bodies: Receiver<(String, String)>,
    thread: Option<JoinHandle<()>>,
}

impl Agent {
    /// Answers every request with `status` and `body`; `None` never answers.
    pub fn listen(path: &Path, answer: Option<(u16, &str)>) -> Self {
        let http = |(status, body): (u16, &str)| {
            let length = body.len();
            format!("HTTP/1.1 {status} X\r\nContent-Length: {length}\r\n\r\n{body}")
        };
        Self::listen_raw(path, answer.map(http))
    }

    /// Answers every request with this text, and nothing after it; `None` never answers.
    pub fn listen_raw(path: &Path, answer: Option<String>) -> Self {
        let listener = UnixListener::bind(path).expect("a socket");
        let (send, bodies) = channel();
        let thread = std::thread::spawn(move || {
            // Held open so that a client that gets no answer waits.
            let mut silent = Vec::new();
            for stream in listener.incoming() {
                let mut stream = stream.expect("a connection");
                let Some(request) = read_request(&mut stream) else {
                    return;
                };
                let _ = send.send(request);
                match &answer {
                    // A client may close the connection before it has read everything.
                    Some(text) => _ = stream.write_all(text.as_bytes()),
                    None => silent.push(stream),
                }
            }
        });
        Self {
            path: path.to_owned(),
            bodies,
            thread: Some(thread),
        }
    }

    /// Head and body of the next request; fails the test when there is none.
    pub fn request(&self) -> (String, String) {
        self.bodies
            .recv_timeout(Duration::from_secs(10))
            .expect("a request to the agent")
    }

    /// True if there was no connection.
    pub fn is_untouched(&self) -> bool {
        self.bodies.try_recv().is_err()
    }
}

/// `None`: the connection was closed without a request.
fn read_request(stream: &mut UnixStream) -> Option<(String, String)> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        if stream.read(&mut byte).expect("readable") == 0 {
            return None;
        }
        head.push(byte[0]);
    }
    let head = String::from_utf8(head).expect("text");
    let length = head
        .lines()
        .find_map(|line| line.strip_prefix("Content-Length: "))
        .map_or(0, |length| length.parse().expect("a number"));
    let mut body = vec![0; length];
    stream.read_exact(&mut body).expect("the body");
    Some((head, String::from_utf8(body).expect("text")))
}

impl Drop for Agent {
    fn drop(&mut self) {
        // An empty connection ends the thread.
        drop(UnixStream::connect(&self.path));
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
