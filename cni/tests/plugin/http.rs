//! The time limit of an exchange on a socket, whatever the peer does.
// matrix: none: about values and programs, with no namespace, no rule and no kernel

use crate::common::TempDir;
use nix::sys::socket::{
    AddressFamily, Backlog, Shutdown, SockFlag, SockType, UnixAddr, bind, listen, shutdown, socket,
};
use std::io::{ErrorKind, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::time::{Duration, Instant};
use weir_cni::http::get;

const LIMIT: Duration = Duration::from_micros(199_123);

/// Sends a request that must time out after the limit and not much later.
fn times_out(socket: &Path) {
    let start = Instant::now();
    let error = get(socket, "/", LIMIT).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TimedOut, "{error}");
    assert!(
        error.to_string().contains("no answer within 200ms"),
        "{error}"
    );
    assert!(start.elapsed() >= LIMIT && start.elapsed() < LIMIT * 20);
}

#[test]
fn nobody_accepts() {
    let dir = TempDir::new();
    let path = dir.file("full.sock");
    let (unix, kind) = (AddressFamily::Unix, SockType::Stream);
    let listener = socket(unix, kind, SockFlag::SOCK_CLOEXEC, None).unwrap();
    bind(listener.as_raw_fd(), &UnixAddr::new(&path).unwrap()).unwrap();
    listen(&listener, Backlog::new(0).unwrap()).unwrap();
    // The kernel accepts one connection more than the backlog.
    let waiting = UnixStream::connect(&path).unwrap();
    times_out(&path);
    drop(waiting);
}

#[test]
fn a_silent_end_and_one_that_sends_a_byte_now_and_then() {
    let dir = TempDir::new();
    let path = dir.file("slow.sock");
    let listener = UnixListener::bind(&path).unwrap();
    let slow = std::thread::spawn(move || {
        let (silent, _) = listener.accept().unwrap();
        let (mut dripping, _) = listener.accept().unwrap();
        // A failed write shows that the client has closed the connection.
        while dripping.write_all(b"H").is_ok() {
            std::thread::sleep(LIMIT / 10);
        }
        drop(silent);
    });
    times_out(&path);
    times_out(&path);
    slow.join().unwrap();
}

#[test]
fn an_answer_in_time_and_nobody_there() {
    let dir = TempDir::new();
    let path = dir.file("agent.sock");
    assert_eq!(
        get(&path, "/", LIMIT).unwrap_err().kind(),
        ErrorKind::NotFound
    );
    let listener = UnixListener::bind(&path).unwrap();
    let answering = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut request = [0; 256];
        let read = stream.read(&mut request).unwrap();
        assert!(request[..read].starts_with(b"GET /x HTTP/1.1\r\n"));
        let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
        stream.write_all(answer).unwrap();
        // A process that another test starts has a copy of the listener until it executes its program.
        shutdown(listener.as_raw_fd(), Shutdown::Both).unwrap();
    });
    assert_eq!(get(&path, "/x", LIMIT * 50).unwrap().body, "ok");
    answering.join().unwrap();
    // The listener is closed; its file still exists.
    assert_eq!(
        get(&path, "/", LIMIT).unwrap_err().kind(),
        ErrorKind::ConnectionRefused
    );
}
