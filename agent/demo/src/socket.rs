//! Sockets of a proxy, an application and their clients. Every wait has a timeout.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, Shutdown, SocketAddr};
use std::ops::Deref;
use std::time::Duration;

use socket2::{Domain, Protocol as Ip, Socket, Type};

use super::flow::{Flow, Protocol};

/// Timeout of every operation. A SYN is retransmitted after 1 s.
pub(super) const PATIENCE: Duration = Duration::from_secs(5);

/// Opens a socket of the right kind for an address.
fn open(protocol: Protocol, address: SocketAddr) -> io::Result<Socket> {
    let (kind, ip) = match protocol {
        Protocol::Tcp => (Type::STREAM, Ip::TCP),
        Protocol::Udp => (Type::DGRAM, Ip::UDP),
    };
    let socket = Socket::new(Domain::for_address(address), kind, Some(ip))?;
    if address.is_ipv6() {
        // Each family has its own listener; neither may receive the other's flows.
        socket.set_only_v6(true)?;
    }
    socket.set_read_timeout(Some(PATIENCE))?;
    socket.set_write_timeout(Some(PATIENCE))?;
    Ok(socket)
}

/// `IP_TRANSPARENT`: accept for, or send from, an address that is not ours.
fn make_transparent(socket: &Socket, address: SocketAddr) -> io::Result<()> {
    if address.is_ipv6() {
        socket.set_ip_transparent_v6(true)
    } else {
        socket.set_ip_transparent_v4(true)
    }
}

/// Options of a listener.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Options {
    /// `IP_TRANSPARENT`
    pub(super) transparent: bool,
    /// `SO_MARK`, which accepted connections inherit.
    pub(super) mark: Option<u32>,
}

/// A listening socket that is shut down on drop. Closing alone would not free the port for the next listener: a process started
/// by another thread holds copies of the sockets of this process until it executes its program.
#[derive(Debug)]
pub(super) struct Listening(Socket);

impl Drop for Listening {
    fn drop(&mut self) {
        // Datagram sockets return `ENOTCONN`; they share their port anyway (`SO_REUSEADDR`).
        let _ = self.0.shutdown(Shutdown::Both);
    }
}

impl Deref for Listening {
    type Target = Socket;

    fn deref(&self) -> &Socket {
        &self.0
    }
}

/// Opens a listening socket. `accept` and `recv` do not block.
pub(super) fn listen(
    protocol: Protocol,
    address: SocketAddr,
    options: Options,
) -> io::Result<Listening> {
    let socket = open(protocol, address)?;
    socket.set_reuse_address(true)?;
    if let Some(mark) = options.mark {
        socket.set_mark(mark)?;
    }
    if options.transparent {
        make_transparent(&socket, address)?;
    }
    socket.bind(&address.into())?;
    if protocol == Protocol::Tcp {
        socket.listen(16)?;
    }
    socket.set_nonblocking(true)?;
    Ok(Listening(socket))
}

/// Opens the sender's socket of a flow, at `port` unless the flow has one. A UDP socket is connected, too: it accepts answers only
/// from its destination.
pub(super) fn connect(flow: &Flow, port: u16) -> io::Result<Socket> {
    let socket = open(flow.protocol, flow.to)?;
    if let Some(mark) = flow.mark {
        socket.set_mark(mark)?;
        make_transparent(&socket, flow.to)?;
    }
    let any: IpAddr = match flow.to {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let mut source = flow.source.unwrap_or(SocketAddr::new(any, 0));
    if source.port() == 0 {
        source.set_port(port);
    }
    socket.bind(&source.into())?;
    socket.connect_timeout(&flow.to.into(), PATIENCE)?;
    Ok(socket)
}

/// Connects as a proxy does, with the address of its client.
pub(super) fn connect_as(client: IpAddr, to: SocketAddr, mark: Option<u32>) -> io::Result<Socket> {
    let socket = open(Protocol::Tcp, to)?;
    if let Some(mark) = mark {
        socket.set_mark(mark)?;
    }
    make_transparent(&socket, to)?;
    socket.bind(&SocketAddr::new(client, 0).into())?;
    socket.connect_timeout(&to.into(), PATIENCE)?;
    Ok(socket)
}

/// Converts a socket address to an IP address and port.
pub(super) fn ip(address: &socket2::SockAddr) -> io::Result<SocketAddr> {
    address
        .as_socket()
        .ok_or_else(|| io::Error::other("an address of another family"))
}

/// Maps errors of `accept` that mean "no connection" to `None`: nothing is queued, or the client has disconnected.
pub(super) fn or_nothing<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(e)
            if matches!(
                e.kind(),
                io::ErrorKind::WouldBlock | io::ErrorKind::ConnectionAborted
            ) =>
        {
            Ok(None)
        }
        Err(e) => Err(e),
    }
}

/// Whether the error is the network's answer to a flow, not a failure of this program.
pub(super) fn is_refusal(error: &io::Error) -> bool {
    use io::ErrorKind as Kind;
    matches!(
        error.kind(),
        Kind::ConnectionRefused
            | Kind::ConnectionReset
            | Kind::TimedOut
            | Kind::WouldBlock
            | Kind::HostUnreachable
            | Kind::NetworkUnreachable
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_is_free_again_though_another_process_holds_the_socket() {
        let any = "127.0.0.1:0".parse().unwrap();
        let first = listen(Protocol::Tcp, any, Options::default()).unwrap();
        let at = ip(&first.local_addr().unwrap()).unwrap();
        // As a process has it that is started and executes nothing yet.
        let _held = first.try_clone().unwrap();
        drop(first);
        listen(Protocol::Tcp, at, Options::default()).unwrap();
    }
}
