//! Listeners of the proxy, the pods and the network outside; flows are sent one after the other.
//!
//! The substitute of the proxy connects to the original destination with the client's address, as ztunnel does.

use super::lab::{Lab, Place};
use crate::addresses::service;
use crate::flow::{Flow, Protocol, Receiver};
use crate::socket::{self, Listening, Options, PATIENCE, or_nothing};
use crate::stage::{
    PROXY_DNS_PORT, PROXY_INBOUND_PORT, PROXY_OUTBOUND_PORT, PROXY_TUNNEL_PORT, ZTUNNEL_MARK,
};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use socket2::Socket;
use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream, UdpSocket};
use std::os::fd::AsFd;
use std::time::Instant;
use weir_live::original_destination;
use weir_netlink::route::AddressFamily;
use weir_netlink::{Error, Result};

/// First source port; each flow has its own.
const FIRST_PORT: u16 = 20_000;

/// A listener and its place.
#[derive(Debug)]
struct Listener {
    receiver: Receiver,
    protocol: Protocol,
    place: Place,
    socket: Listening,
}

/// All listeners.
#[derive(Debug)]
pub struct Stage<'a> {
    lab: &'a Lab,
    listeners: Vec<Listener>,
    port: u16,
    /// Place of the proxy: its own network namespace, or the enrolled pod.
    proxy: Place,
}

/// Whether this is a listener of the proxy, including the one that also receives traffic without redirection.
fn is_of_proxy(receiver: Receiver) -> bool {
    receiver.is_proxy() || receiver == Receiver::ProxyTunnel
}

/// Result of a flow.
#[derive(Debug, Default)]
pub struct Arrival {
    /// The proxy's listener that received the flow, and the original destination that it saw.
    pub captured: Option<(Receiver, SocketAddr)>,
    /// The final receiver, and the client address that it saw.
    pub reached: Option<(Place, IpAddr)>,
    /// The sender's local address.
    pub sent_from: Option<SocketAddr>,
    /// The sender received the answer.
    pub answered: bool,
    /// Why the flow was lost.
    pub lost: Option<String>,
}

impl<'a> Stage<'a> {
    /// Opens all listeners, with the proxy at this place: [`Place::Proxy`], or [`Place::Web`] for the pod itself.
    ///
    /// # Errors
    /// A listener cannot be opened.
    pub fn open(lab: &'a Lab, proxy: Place) -> Result<Self> {
        let mut stage = Self {
            lab,
            listeners: Vec::new(),
            port: FIRST_PORT,
            proxy,
        };
        for &family in lab.families {
            let any: IpAddr = match family {
                AddressFamily::V4 => Ipv4Addr::UNSPECIFIED.into(),
                AddressFamily::V6 => Ipv6Addr::UNSPECIFIED.into(),
            };
            for (receiver, port) in [
                (Receiver::ProxyOutbound, PROXY_OUTBOUND_PORT),
                (Receiver::ProxyInbound, PROXY_INBOUND_PORT),
                (Receiver::ProxyTunnel, PROXY_TUNNEL_PORT),
            ] {
                stage.listen(receiver, Protocol::Tcp, proxy, (any, port).into())?;
            }
            // An answer must have the address that the datagram was sent to; in a pod that is loopback.
            let address = match (proxy, family) {
                (Place::Proxy, _) => lab.address(Place::Proxy, family),
                (_, AddressFamily::V4) => Ipv4Addr::LOCALHOST.into(),
                (_, AddressFamily::V6) => Ipv6Addr::LOCALHOST.into(),
            };
            let dns = (address, PROXY_DNS_PORT).into();
            stage.listen(Receiver::ProxyDns, Protocol::Udp, proxy, dns)?;
            for place in [Place::Web, Place::Plain] {
                let at = (any, 8080).into();
                stage.listen(Receiver::Application, Protocol::Tcp, place, at)?;
            }
            let server = Receiver::Server;
            stage.listen(server, Protocol::Tcp, Place::Outside, (any, 80).into())?;
            for port in [53, 443] {
                let at = (service(family), port).into();
                stage.listen(server, Protocol::Udp, Place::Outside, at)?;
            }
        }
        Ok(stage)
    }

    fn listen(
        &mut self,
        receiver: Receiver,
        protocol: Protocol,
        place: Place,
        at: SocketAddr,
    ) -> Result<()> {
        let options = Options {
            transparent: is_of_proxy(receiver),
            mark: self.mark().filter(|_| is_of_proxy(receiver)),
        };
        let opened = self
            .lab
            .netns(place)
            .run(|| socket::listen(protocol, at, options))?;
        let socket =
            opened.map_err(|e| Error::io("listen as", format!("{receiver} at {at}"), &e))?;
        self.listeners.push(Listener {
            receiver,
            protocol,
            place,
            socket,
        });
        Ok(())
    }

    /// The proxy in the pod marks its packets, so that they are not captured again.
    fn mark(&self) -> Option<u32> {
        (self.proxy == Place::Web).then_some(ZTUNNEL_MARK)
    }

    /// Opens an application's listener on another port, at all addresses of a place, unless one is already open.
    ///
    /// # Errors
    /// The listener cannot be opened.
    pub fn serve(&mut self, protocol: Protocol, place: Place, port: u16) -> Result<()> {
        for &family in self.lab.families {
            let any: IpAddr = match family {
                AddressFamily::V4 => Ipv4Addr::UNSPECIFIED.into(),
                AddressFamily::V6 => Ipv6Addr::UNSPECIFIED.into(),
            };
            // An answer must have the address that the datagram was sent to.
            let at = match (protocol, place) {
                (Protocol::Udp, Place::Outside) => service(family),
                _ => any,
            };
            let at = SocketAddr::new(at, port);
            let is_it = |l: &Listener| {
                let bound = socket::ip(&l.socket.local_addr()?)?;
                Ok((l.place, l.protocol, bound.port(), bound.is_ipv4())
                    == (place, protocol, port, at.is_ipv4()))
            };
            let known: io::Result<Vec<bool>> = self.listeners.iter().map(is_it).collect();
            let known = known.map_err(|e| Error::io("listen", at.to_string(), &e))?;
            if !known.contains(&true) {
                self.listen(Receiver::Application, protocol, place, at)?;
            }
        }
        Ok(())
    }

    /// Sends a flow from a place, follows it to the final receiver, and sends an answer back.
    ///
    /// # Errors
    /// The sender's namespace cannot be entered.
    pub fn send(&mut self, from: Place, flow: &Flow) -> Result<Arrival> {
        self.port = self.port.saturating_add(1);
        let port = self.port;
        let opened = self.lab.netns(from).run(|| socket::connect(flow, port))?;
        let mut arrival = Arrival::default();
        if let Err(e) = opened.and_then(|client| self.follow(&client, flow.protocol, &mut arrival))
        {
            arrival.lost = Some(e.to_string());
        }
        Ok(arrival)
    }

    fn follow(&self, client: &Socket, protocol: Protocol, arrival: &mut Arrival) -> io::Result<()> {
        let sent_from = socket::ip(&client.local_addr()?)?;
        arrival.sent_from = Some(sent_from);
        let token = sent_from.port().to_be_bytes();
        let mut client = client;
        client.write_all(&token)?;
        match protocol {
            Protocol::Tcp => {
                let (first, mut stream, from) = self.accept(&token)?;
                if is_of_proxy(first.receiver) {
                    let to = original_destination(&stream, stream.local_addr()?);
                    arrival.captured = Some((first.receiver, to));
                    // The substitute does not support HBONE: it answers itself.
                    if first.receiver != Receiver::ProxyTunnel {
                        self.pass_on(&token, from.ip(), to, arrival)?;
                    }
                } else {
                    arrival.reached = Some((first.place, from.ip()));
                }
                stream.write_all(&token)?;
            }
            Protocol::Udp => {
                let listener = self.wait(protocol)?;
                let socket = UdpSocket::from(listener.socket.try_clone()?);
                let mut got = [0; 16];
                let (length, from) = socket.recv_from(&mut got)?;
                if got.get(..length) != Some(token.as_slice()) {
                    return Err(io::Error::other("another datagram arrived"));
                }
                if is_of_proxy(listener.receiver) {
                    arrival.captured = Some((listener.receiver, socket.local_addr()?));
                } else {
                    arrival.reached = Some((listener.place, from.ip()));
                }
                socket.send_to(&token, from)?;
            }
        }
        let mut answer = [0; 2];
        client.read_exact(&mut answer)?;
        arrival.answered = answer == token;
        Ok(())
    }

    /// Acts as the proxy: connects to the same destination with the client's address, and forwards the bytes.
    fn pass_on(
        &self,
        token: &[u8; 2],
        client: IpAddr,
        to: SocketAddr,
        arrival: &mut Arrival,
    ) -> io::Result<()> {
        let connect = || socket::connect_as(client, to, self.mark());
        let netns = self.lab.netns(self.proxy);
        let upstream = netns.run(connect).map_err(io::Error::other)??;
        let mut upstream = TcpStream::from(upstream);
        upstream.write_all(token)?;
        let (last, mut stream, from) = self.accept(token)?;
        arrival.reached = Some((last.place, from.ip()));
        stream.write_all(token)?;
        let mut answer = [0; 2];
        upstream.read_exact(&mut answer)?;
        match answer == *token {
            true => Ok(()),
            false => Err(io::Error::other("the answer to the proxy was another")),
        }
    }

    /// Accepts the next connection that sends this token; returns its listener, too.
    fn accept(&self, token: &[u8; 2]) -> io::Result<(&Listener, TcpStream, SocketAddr)> {
        loop {
            let listener = self.wait(Protocol::Tcp)?;
            let Some((connection, from)) = or_nothing(listener.socket.accept())? else {
                continue;
            };
            connection.set_nonblocking(false)?;
            connection.set_read_timeout(Some(PATIENCE))?;
            connection.set_write_timeout(Some(PATIENCE))?;
            let mut stream = TcpStream::from(connection);
            let mut got = [0; 2];
            stream.read_exact(&mut got)?;
            // The connection of an earlier, abandoned flow may still be queued.
            if got == *token {
                return Ok((listener, stream, socket::ip(&from)?));
            }
        }
    }

    fn wait(&self, protocol: Protocol) -> io::Result<&Listener> {
        let deadline = Instant::now() + PATIENCE;
        let all: Vec<&Listener> = self
            .listeners
            .iter()
            .filter(|l| l.protocol == protocol)
            .collect();
        let mut fds: Vec<PollFd<'_>> = all
            .iter()
            .map(|l| PollFd::new(l.socket.as_fd(), PollFlags::POLLIN))
            .collect();
        let left = deadline.saturating_duration_since(Instant::now());
        poll(
            &mut fds,
            PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX),
        )?;
        let ready = all
            .iter()
            .zip(&fds)
            .find(|(_, fd)| fd.any().unwrap_or(false));
        match ready {
            Some((listener, _)) => Ok(listener),
            None => Err(io::Error::other("it was sent, and no receiver saw it")),
        }
    }
}
