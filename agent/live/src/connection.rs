//! Test connections: opened, observed and reset. Every wait has a deadline.

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use socket2::{Domain, Protocol, Socket, Type};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};
use weir_netfilter::conntrack::Transport;

/// The state of a test connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Begun {
    /// Accepted by a listener; for UDP: sent.
    Accepted,
    /// Answered with a reset.
    Refused,
    /// Not answered yet.
    Silent,
}

fn open(transport: Transport, family_of: IpAddr) -> io::Result<Socket> {
    let (kind, protocol) = match transport {
        Transport::Tcp => (Type::STREAM, Protocol::TCP),
        Transport::Udp => (Type::DGRAM, Protocol::UDP),
    };
    let address = SocketAddr::new(family_of, 0);
    let socket = Socket::new(Domain::for_address(address), kind, Some(protocol))?;
    if family_of.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    socket.set_nonblocking(true)?;
    Ok(socket)
}

fn local(socket: &Socket) -> io::Result<SocketAddr> {
    let address = socket.local_addr()?.as_socket();
    address.ok_or_else(|| io::Error::other("the socket has an address of another family"))
}

/// Returns the source address that the kernel selects for packets to `to`; `ENETUNREACH` without a route. Sends nothing.
fn source(to: SocketAddr) -> io::Result<IpAddr> {
    let socket = open(Transport::Udp, to.ip())?;
    socket.connect(&to.into())?;
    Ok(local(&socket)?.ip())
}

/// Reserves a port of this network namespace. Nothing listens on it while the socket exists.
pub(crate) fn reserve(address: IpAddr) -> io::Result<(Socket, u16)> {
    let any: IpAddr = match address {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = open(Transport::Tcp, address)?;
    socket.bind(&SocketAddr::new(any, 0).into())?;
    let port = local(&socket)?.port();
    Ok((socket, port))
}

/// A connection opened by this crate. Dropping it resets the connection.
#[derive(Debug)]
pub(crate) struct Connection {
    socket: Socket,
    transport: Transport,
    /// Source address and port; unique in the network namespace.
    pub(crate) from: SocketAddr,
}

impl Connection {
    /// Opens a connection. With UDP, sends `payload`.
    ///
    /// # Errors
    /// The kernel's error: `ENETUNREACH` without a route, `EPERM` if a rule drops the packet.
    pub(crate) fn begin(transport: Transport, to: SocketAddr, payload: &[u8]) -> io::Result<Self> {
        let socket = open(transport, to.ip())?;
        // Bind before connect: a connection that is refused immediately loses its local address.
        socket.bind(&SocketAddr::new(source(to)?, 0).into())?;
        let from = local(&socket)?;
        match socket.connect(&to.into()) {
            Err(e) if is_begun(&e) => {}
            done => done?,
        }
        if transport == Transport::Udp {
            socket.send(payload)?;
        } else {
            // Close with a reset, so that no socket remains in TIME_WAIT.
            socket.set_linger(Some(Duration::ZERO))?;
        }
        Ok(Self {
            socket,
            transport,
            from,
        })
    }

    /// Waits for an answer for at most `patience`.
    pub(crate) fn answer(&self, patience: Duration) -> io::Result<Begun> {
        if self.transport == Transport::Udp {
            return Ok(Begun::Accepted);
        }
        let deadline = Instant::now() + patience;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let timeout = PollTimeout::try_from(left.as_millis()).unwrap_or(PollTimeout::MAX);
            let mut fds = [PollFd::new(self.socket.as_fd(), PollFlags::POLLOUT)];
            match poll(&mut fds, timeout) {
                Ok(0) => return Ok(Begun::Silent),
                Err(Errno::EINTR) if !left.is_zero() => {}
                Err(Errno::EINTR) => return Ok(Begun::Silent),
                Err(e) => return Err(e.into()),
                Ok(_) => break,
            }
        }
        match self.socket.take_error()? {
            None => Ok(Begun::Accepted),
            Some(e) if is_refused(&e) => Ok(Begun::Refused),
            Some(e) => Err(e),
        }
    }
}

/// True for `EINPROGRESS`. A refusal is reported by [`Connection::answer`].
fn is_begun(e: &io::Error) -> bool {
    e.raw_os_error() == Some(Errno::EINPROGRESS as i32)
}

fn is_refused(e: &io::Error) -> bool {
    let kind = e.kind();
    kind == io::ErrorKind::ConnectionRefused || kind == io::ErrorKind::ConnectionReset
}
