//! The stage: opens the listeners of the proxy, the application and the server, sends
//! flows one after the other, and finds the receiver of each.

use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream, UdpSocket};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use weir_live::{Owner, original_destination};
use weir_netlink::route::AddressFamily;
use weir_netlink::{Error, Result};

use super::flow::{Flow, Outcome, Protocol, Receiver};
use super::lab::{Lab, Place};
use super::socket::{self, Listening, Options, PATIENCE, is_refusal, or_nothing};

/// The proxy's outbound port.
pub const PROXY_OUTBOUND_PORT: u16 = 15001;
/// The proxy's inbound port.
pub const PROXY_INBOUND_PORT: u16 = 15006;
/// The proxy's port for DNS.
pub const PROXY_DNS_PORT: u16 = 15053;
/// ztunnel's port for connections of another ztunnel. The application listens there if its proxy is a sidecar.
pub const PROXY_TUNNEL_PORT: u16 = 15008;
/// `SO_MARK` of all sockets of ztunnel.
pub const ZTUNNEL_MARK: u32 = 0x539;
/// The application's ports.
pub const APPLICATION_PORTS: [u16; 4] = [8080, 9090, 15020, PROXY_TUNNEL_PORT];
/// The server's TCP ports; DNS (53) is also served over UDP.
pub const SERVER_PORTS: [u16; 4] = [80, 443, 5432, 53];

/// How the rules redirect a connection to the proxy's inbound port.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Mode {
    /// REDIRECT: the destination is rewritten.
    Redirect,
    /// TPROXY: the destination is kept; the proxy's socket must be transparent.
    Tproxy,
}

struct Listener {
    receiver: Receiver,
    protocol: Protocol,
    place: Place,
    owner: Owner,
    socket: Listening,
}

/// A lab with all listeners open.
pub struct Stage<'a> {
    lab: &'a Lab,
    listeners: Vec<Listener>,
    token: AtomicU32,
}

impl<'a> Stage<'a> {
    /// Opens all listeners, for both families.
    ///
    /// # Errors
    ///
    /// A port is in use; `EPERM` as [`Owner::run`].
    pub fn open(lab: &'a Lab, mode: Mode) -> Result<Self> {
        let inbound = Options {
            transparent: mode == Mode::Tproxy,
            mark: None,
        };
        Self::with(lab, Options::default(), inbound, Receiver::Application)
    }

    /// Opens all listeners of a pod in ambient mode: those of the proxy are transparent and marked, as ztunnel
    /// opens them, and include port 15008.
    ///
    /// # Errors
    ///
    /// As [`Stage::open`].
    pub fn ambient(lab: &'a Lab) -> Result<Self> {
        let ztunnel = Options {
            transparent: true,
            mark: Some(ZTUNNEL_MARK),
        };
        Self::with(lab, ztunnel, ztunnel, Receiver::ProxyTunnel)
    }

    fn with(lab: &'a Lab, proxy: Options, inbound: Options, tunnel: Receiver) -> Result<Self> {
        let mut stage = Self {
            lab,
            listeners: Vec::new(),
            token: AtomicU32::new(1),
        };
        let tcp = Protocol::Tcp;
        stage.listen(Receiver::ProxyOutbound, tcp, PROXY_OUTBOUND_PORT, proxy)?;
        stage.listen(Receiver::ProxyInbound, tcp, PROXY_INBOUND_PORT, inbound)?;
        for protocol in [tcp, Protocol::Udp] {
            stage.listen(Receiver::ProxyDns, protocol, PROXY_DNS_PORT, proxy)?;
        }
        for port in APPLICATION_PORTS {
            let (receiver, options) = match port {
                PROXY_TUNNEL_PORT => (tunnel, proxy),
                _ => (Receiver::Application, Options::default()),
            };
            stage.listen(receiver, tcp, port, options)?;
        }
        for port in SERVER_PORTS {
            stage.listen(Receiver::Server, tcp, port, Options::default())?;
        }
        stage.listen(Receiver::Server, Protocol::Udp, 53, Options::default())?;
        Ok(stage)
    }

    /// Opens one listener per family.
    fn listen(
        &mut self,
        receiver: Receiver,
        protocol: Protocol,
        port: u16,
        options: Options,
    ) -> Result<()> {
        let (place, owner) = match receiver {
            Receiver::Server => (Place::Server, Owner::ROOT),
            Receiver::Application => (Place::Pod, Owner::APPLICATION),
            _ => (Place::Pod, Owner::PROXY),
        };
        for &family in self.lab.families() {
            let address = SocketAddr::new(self.listening_at(receiver, protocol, family), port);
            let socket = owner
                .run(self.lab.netns(place), || {
                    socket::listen(protocol, address, options)
                })?
                .map_err(|e| Error::io("listen as", format!("{receiver} at {address}"), &e))?;
            self.listeners.push(Listener {
                receiver,
                protocol,
                place,
                owner,
                socket,
            });
        }
        Ok(())
    }

    /// Returns the address to listen on. An answer must have the address that the datagram
    /// was sent to. TCP does that; for a UDP socket at "any" the routing chooses the source, so it is bound to an
    /// address. Outbound datagrams that are redirected arrive at loopback.
    fn listening_at(
        &self,
        receiver: Receiver,
        protocol: Protocol,
        family: AddressFamily,
    ) -> IpAddr {
        match (protocol, receiver, family) {
            (Protocol::Udp, Receiver::Server, _) => self.lab.service(family),
            (Protocol::Udp, _, AddressFamily::V4) => Ipv4Addr::LOCALHOST.into(),
            (Protocol::Udp, _, AddressFamily::V6) => Ipv6Addr::LOCALHOST.into(),
            (Protocol::Tcp, _, AddressFamily::V4) => Ipv4Addr::UNSPECIFIED.into(),
            (Protocol::Tcp, _, AddressFamily::V6) => Ipv6Addr::UNSPECIFIED.into(),
        }
    }

    /// Sends a flow, finds its receiver, and sends an answer back.
    ///
    /// # Errors
    ///
    /// The flow could not be sent because of its owner or its source.
    /// A flow without a receiver is [`Outcome::Lost`], not an error.
    pub fn send(&self, flow: &Flow) -> Result<Outcome> {
        let token = self.token.fetch_add(1, Ordering::Relaxed).to_be_bytes();
        let failed = |e: &io::Error| Error::io("send", flow.to_string(), e);
        let port = self.lab.source_port();
        let opened = flow
            .owner
            .run(self.lab.netns(flow.from), || socket::connect(flow, port))?;
        let client = match opened {
            Ok(socket) => socket,
            Err(e) if is_refusal(&e) => return Ok(Outcome::Lost(e.to_string())),
            Err(e) => return Err(failed(&e)),
        };
        let sent_from = client
            .local_addr()
            .and_then(|a| socket::ip(&a))
            .map_err(|e| failed(&e))?;
        match (&client).write_all(&token) {
            Ok(()) => {}
            Err(e) if is_refusal(&e) => return Ok(Outcome::Lost(e.to_string())),
            Err(e) => return Err(failed(&e)),
        }
        let deadline = Instant::now() + PATIENCE;
        while let Some(ready) = self.wait(flow.protocol, deadline)? {
            for listener in ready {
                let got = listener.owner.run(self.lab.netns(listener.place), || {
                    listener.take(&token, sent_from)
                })?;
                let Some((original, local, source)) = got.map_err(|e| failed(&e))? else {
                    continue;
                };
                let mut answer = [0; 4];
                let answered = (&client).read_exact(&mut answer).is_ok() && answer == token;
                let by = listener.receiver;
                return Ok(Outcome::Received {
                    by,
                    original,
                    local,
                    source,
                    answered,
                });
            }
        }
        Ok(Outcome::Lost(
            "it was sent, and no receiver saw it".to_owned(),
        ))
    }

    /// Waits for listeners of a protocol that are readable; `None` on timeout.
    fn wait(&self, protocol: Protocol, deadline: Instant) -> Result<Option<Vec<&Listener>>> {
        let waiting: Vec<&Listener> = self
            .listeners
            .iter()
            .filter(|l| l.protocol == protocol)
            .collect();
        let mut fds: Vec<PollFd<'_>> = waiting
            .iter()
            .map(|l| PollFd::new(l.socket.as_fd(), PollFlags::POLLIN))
            .collect();
        let left = deadline.saturating_duration_since(Instant::now());
        let timeout = PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX);
        let count = poll(&mut fds, timeout)
            .map_err(|e| Error::kernel("wait for", "the listeners", e as i32))?;
        if count == 0 {
            return Ok(None);
        }
        let ready = waiting
            .iter()
            .zip(&fds)
            .filter(|(_, fd)| fd.any().unwrap_or(false));
        Ok(Some(ready.map(|(listener, _)| *listener).collect()))
    }
}

/// The original destination, the receiver's local address, and the source address.
type Taken = Option<(SocketAddr, SocketAddr, SocketAddr)>;

impl Listener {
    /// Receives one connection or datagram; answers it if it is the expected one, drops it
    /// otherwise.
    fn take(&self, token: &[u8; 4], sent_from: SocketAddr) -> io::Result<Taken> {
        match self.protocol {
            Protocol::Tcp => self.accept(token, sent_from),
            Protocol::Udp => self.receive(token),
        }
    }

    fn accept(&self, token: &[u8; 4], sent_from: SocketAddr) -> io::Result<Taken> {
        let Some((connection, from)) = or_nothing(self.socket.accept())? else {
            return Ok(None);
        };
        let source = socket::ip(&from)?;
        if source != sent_from {
            return Ok(None);
        }
        connection.set_nonblocking(false)?;
        connection.set_read_timeout(Some(PATIENCE))?;
        connection.set_write_timeout(Some(PATIENCE))?;
        let mut connection = TcpStream::from(connection);
        let local = connection.local_addr()?;
        let original = original_destination(&connection, local);
        let mut got = [0; 4];
        connection.read_exact(&mut got)?;
        if got != *token {
            return Ok(None);
        }
        connection.write_all(token)?;
        Ok(Some((original, local, source)))
    }

    fn receive(&self, token: &[u8; 4]) -> io::Result<Taken> {
        let socket = UdpSocket::from(self.socket.try_clone()?);
        let mut got = [0; 16];
        let Some((length, source)) = or_nothing(socket.recv_from(&mut got))? else {
            return Ok(None);
        };
        if got.get(..length) != Some(token.as_slice()) {
            return Ok(None);
        }
        socket.send_to(token, source)?;
        let local = socket.local_addr()?;
        Ok(Some((local, local, source)))
    }
}
