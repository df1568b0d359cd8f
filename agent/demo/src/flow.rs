//! One flow: its sender, its destination, and its receiver.

use std::fmt;
use std::net::SocketAddr;

use weir_live::Owner;

use super::lab::Place;

/// `IPPROTO_TCP` or `IPPROTO_UDP`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Protocol {
    /// A TCP connection.
    Tcp,
    /// One UDP datagram and its answer.
    Udp,
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Tcp => "tcp",
            Self::Udp => "udp",
        })
    }
}

/// A flow to send.
#[derive(Debug, Clone)]
pub struct Flow {
    /// Short description for people.
    pub name: String,
    /// Place of the sender.
    pub from: Place,
    /// Owner of the socket.
    pub owner: Owner,
    /// Address to bind to; `None`: the kernel chooses the address. If no port is given (0), one that no other flow has is
    /// used. An address that is not the sender's own needs [`Flow::mark`].
    pub source: Option<SocketAddr>,
    /// `SO_MARK`, together with `IP_TRANSPARENT`: a proxy connects to the application
    /// like this, with the client's address.
    pub mark: Option<u32>,
    /// TCP or UDP.
    pub protocol: Protocol,
    /// Destination.
    pub to: SocketAddr,
}

impl Flow {
    /// Creates a flow from a place, owned by the application's user.
    #[must_use]
    pub fn new(name: &str, protocol: Protocol, from: Place, to: SocketAddr) -> Self {
        let owner = Owner::APPLICATION;
        Self {
            name: name.to_owned(),
            from,
            owner,
            source: None,
            mark: None,
            protocol,
            to,
        }
    }

    /// Sets the owner of the socket.
    #[must_use]
    pub fn of(self, owner: Owner) -> Self {
        Self { owner, ..self }
    }

    /// Sets the source address.
    #[must_use]
    pub fn source(self, source: SocketAddr) -> Self {
        Self {
            source: Some(source),
            ..self
        }
    }

    /// Sets the mark; the source address may then be foreign.
    #[must_use]
    pub fn mark(self, mark: u32) -> Self {
        Self {
            mark: Some(mark),
            ..self
        }
    }
}

impl fmt::Display for Flow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} {} -> {} as {}",
            self.protocol, self.name, self.to, self.owner
        )
    }
}

/// A listener that can receive a flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Receiver {
    /// The proxy's outbound port, 15001.
    ProxyOutbound,
    /// The proxy's inbound port, 15006.
    ProxyInbound,
    /// The proxy's DNS port, 15053.
    ProxyDns,
    /// ztunnel's port for connections of another ztunnel, 15008.
    ProxyTunnel,
    /// The application itself.
    Application,
    /// The server itself.
    Server,
}

impl Receiver {
    /// Whether it is one of the three listeners of the proxy that rules redirect traffic to.
    #[must_use]
    pub fn is_proxy(self) -> bool {
        matches!(
            self,
            Self::ProxyOutbound | Self::ProxyInbound | Self::ProxyDns
        )
    }
}

impl fmt::Display for Receiver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::ProxyOutbound => "proxy outbound 15001",
            Self::ProxyInbound => "proxy inbound 15006",
            Self::ProxyDns => "proxy DNS 15053",
            Self::ProxyTunnel => "proxy HBONE 15008",
            Self::Application => "application",
            Self::Server => "server",
        })
    }
}

/// Result of a flow.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// A listener received it.
    Received {
        /// The receiver.
        by: Receiver,
        /// The original destination as the receiver can determine it: from
        /// connection tracking (`SO_ORIGINAL_DST`), else its own address. For UDP,
        /// only the receiver's own address is known.
        original: SocketAddr,
        /// The receiver's local address (`getsockname`): with TPROXY the original
        /// destination, with REDIRECT the proxy's port.
        local: SocketAddr,
        /// The source address as the receiver sees it.
        source: SocketAddr,
        /// The sender received the answer, from the address that it had sent to.
        answered: bool,
    },
    /// No listener received it; the reason as the sender saw it.
    Lost(String),
}

impl Outcome {
    /// The receiver; `None` if the flow was lost.
    #[must_use]
    pub fn by(&self) -> Option<Receiver> {
        match self {
            Self::Received { by, .. } => Some(*by),
            Self::Lost(_) => None,
        }
    }

    /// The original destination as the receiver knows it.
    #[must_use]
    pub fn original(&self) -> Option<SocketAddr> {
        match self {
            Self::Received { original, .. } => Some(*original),
            Self::Lost(_) => None,
        }
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Received {
                by,
                original,
                answered,
                ..
            } => {
                write!(f, "{by}, asked for {original}")?;
                if *answered {
                    Ok(())
                } else {
                    f.write_str(", but the answer was lost")
                }
            }
            Self::Lost(reason) => write!(f, "lost: {reason}"),
        }
    }
}
