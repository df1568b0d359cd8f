//! Sockets in a process whose other threads start processes: until such a child calls execve(2), it has a copy of every
//! descriptor, so a socket that was closed here stays open for a moment longer.

use socket2::{Domain, SockAddr, Socket, Type};
use std::io::{ErrorKind, Result};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::Path;
use std::time::{Duration, Instant};

/// Far longer than such a moment on a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);

/// Opens a socket at an address that another socket may have had before.
///
/// # Errors
/// The error of `open`; `EADDRINUSE` if the address stays in use.
pub fn bound<T>(open: impl Fn() -> Result<T>) -> Result<T> {
    let end = Instant::now() + PATIENCE;
    loop {
        match open() {
            Err(e) if e.kind() == ErrorKind::AddrInUse && Instant::now() < end => {
                std::thread::sleep(Duration::from_millis(1));
            }
            opened => return opened,
        }
    }
}

/// Creates the file of a stream socket without a listener, as a killed process leaves it.
pub fn left_over(path: &Path) {
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None).expect("a socket");
    let at = SockAddr::unix(path).expect("a path of a socket");
    socket.bind(&at).expect("a new file");
}

/// A port of 127.0.0.1 that refuses connections and that no other process can bind while the returned socket is open.
#[must_use]
pub fn refusing() -> (Socket, u16) {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
    let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    socket.bind(&any.into()).expect("a port");
    let at = socket.local_addr().expect("an address").as_socket();
    (socket, at.expect("an address of IP").port())
}

/// A socket that listens at a port of 127.0.0.1, and one that keeps the port from other processes when the former is closed.
///
/// # Panics
/// If there is no port.
#[must_use]
pub fn listening() -> (TcpListener, Socket) {
    let kept = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
    // The kernel gives a bound port to no other socket that asks for any port.
    kept.set_reuse_address(true).expect("an option");
    let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    kept.bind(&any.into()).expect("a port");
    let at = kept.local_addr().expect("an address").as_socket();
    let listener = TcpListener::bind(at.expect("an address of IP"));
    (listener.expect("a port that two sockets may have"), kept)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpStream;
    use std::os::unix::net::UnixStream;
    use std::sync::mpsc;

    #[test]
    fn a_port_is_waited_for_while_another_process_has_the_socket() {
        let first = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = first.local_addr().unwrap();
        // The copy that a child has between fork(2) and execve(2).
        let held = first.try_clone().unwrap();
        drop(first);
        let (tries, tried) = mpsc::channel();
        std::thread::scope(|scope| {
            scope.spawn(move || {
                tried.recv().unwrap();
                drop(held);
            });
            let open = || {
                let opened = TcpListener::bind(at);
                // The receiver only waits for the first attempt.
                let _ = tries.send(());
                opened
            };
            assert!(bound(open).is_ok());
        });
    }

    #[test]
    fn where_nobody_listens_connections_are_refused() {
        let dir = crate::TempDir::new();
        let path = dir.file("left.sock");
        left_over(&path);
        let error = UnixStream::connect(&path).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
        let (_held, port) = refusing();
        let error = TcpStream::connect(("127.0.0.1", port)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
        let (listener, _kept) = listening();
        let at = listener.local_addr().unwrap();
        TcpStream::connect(at).unwrap();
        // A child of another test may have a copy of the socket.
        let of_all = socket2::SockRef::from(&listener);
        of_all.shutdown(std::net::Shutdown::Both).unwrap();
        let error = TcpStream::connect(at).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
    }
}
