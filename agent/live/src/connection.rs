//! Connections that are begun, looked at and reset. Every wait ends.

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use socket2::{Domain, Protocol, Socket, Type};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};
use weir_netfilter::conntrack::Transport;

/// How a connection began.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Begun {
    /// Something accepted it. Of UDP: it was sent.
    Accepted,
    /// The answer was a reset.
    Refused,
    /// There was no answer yet.
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

/// The address that the kernel chooses for packets to this one; `ENETUNREACH` without a route. No packet is sent.
fn source(to: SocketAddr) -> io::Result<IpAddr> {
    let socket = open(Transport::Udp, to.ip())?;
    socket.connect(&to.into())?;
    Ok(local(&socket)?.ip())
}

/// A port of this namespace that nothing listens at while this is held.
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

/// A connection that this crate began. It is reset when this is dropped.
#[derive(Debug)]
pub(crate) struct Connection {
    socket: Socket,
    transport: Transport,
    /// Address and port, which no other socket has.
    pub(crate) from: SocketAddr,
}

impl Connection {
    /// Begins one; `payload` is what UDP sends.
    ///
    /// # Errors
    /// As the kernel says: `ENETUNREACH` without a route, `EPERM` when a rule drops what is sent.
    pub(crate) fn begin(transport: Transport, to: SocketAddr, payload: &[u8]) -> io::Result<Self> {
        let socket = open(transport, to.ip())?;
        // Bound before it is connected: a connection that is refused at once would lose its address.
        socket.bind(&SocketAddr::new(source(to)?, 0).into())?;
        let from = local(&socket)?;
        match socket.connect(&to.into()) {
            Err(e) if is_begun(&e) => {}
            done => done?,
        }
        if transport == Transport::Udp {
            socket.send(payload)?;
        } else {
            // A reset in place of a farewell: nothing remains in TIME_WAIT.
            socket.set_linger(Some(Duration::ZERO))?;
        }
        Ok(Self {
            socket,
            transport,
            from,
        })
    }

    /// Whether it was answered, within `patience`.
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

/// Refused is for [`Connection::answer`] to say.
fn is_begun(e: &io::Error) -> bool {
    e.raw_os_error() == Some(Errno::EINPROGRESS as i32)
}

fn is_refused(e: &io::Error) -> bool {
    let kind = e.kind();
    kind == io::ErrorKind::ConnectionRefused || kind == io::ErrorKind::ConnectionReset
}
