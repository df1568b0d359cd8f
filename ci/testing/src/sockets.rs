//! Sockets in a process whose other threads start processes: until such a process executes its program it has a copy of every
//! descriptor, so that what was closed here is open for a moment longer.

use socket2::{Domain, SockAddr, Socket, Type};
use std::io::{ErrorKind, Result};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::time::{Duration, Instant};

/// Many times what such a moment lasts on a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);

/// Opens a socket at an address that another one may have had before.
///
/// # Errors
/// Of `open`; `EADDRINUSE` when the address is taken for longer than a moment.
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

/// The file of a stream socket at which nobody listens, as a process that was killed leaves it. Nobody ever did.
pub fn left_over(path: &Path) {
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None).expect("a socket");
    let at = SockAddr::unix(path).expect("a path of a socket");
    socket.bind(&at).expect("a new file");
}

/// A port of 127.0.0.1 that no other process can have and that refuses connections, both as long as the socket is there.
#[must_use]
pub fn refusing() -> (Socket, u16) {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
    let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    socket.bind(&any.into()).expect("a port");
    let at = socket.local_addr().expect("an address").as_socket();
    (socket, at.expect("an address of IP").port())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};
    use std::os::unix::net::UnixStream;
    use std::sync::mpsc;

    #[test]
    fn a_port_is_waited_for_while_another_process_has_the_socket() {
        let first = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = first.local_addr().unwrap();
        // As a process has it that is started and executes nothing yet.
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
                // After the first attempt nobody may wait for it any more.
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
    }
}
