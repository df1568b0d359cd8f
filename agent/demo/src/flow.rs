//! One flow: who sends what where, and who got it.

use std::fmt;
use std::net::SocketAddr;

use super::lab::Place;
use super::owner::Owner;

/// `IPPROTO_TCP` or `IPPROTO_UDP`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Protocol {
    /// A connection.
    Tcp,
    /// One datagram and its answer.
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

/// What is to be sent.
#[derive(Debug, Clone)]
pub struct Flow {
    /// In a few words, for people.
    pub name: String,
    /// Where the sender is.
    pub from: Place,
    /// Whose socket it is.
    pub owner: Owner,
    /// Where it is bound to. Otherwise the kernel chooses the address; a port that is not given is one that
    /// no other flow has. An address that is not the sender's own needs [`Flow::mark`].
    pub source: Option<SocketAddr>,
    /// `SO_MARK`, together with `IP_TRANSPARENT`: how a proxy calls the application
    /// with the address of the caller.
    pub mark: Option<u32>,
    /// TCP or UDP.
    pub protocol: Protocol,
    /// The address that the sender asks for.
    pub to: SocketAddr,
}

impl Flow {
    /// A flow from a place, as the application's user.
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

    /// The same flow of another sender.
    #[must_use]
    pub fn of(self, owner: Owner) -> Self {
        Self { owner, ..self }
    }

    /// The same flow from a chosen address.
    #[must_use]
    pub fn source(self, source: SocketAddr) -> Self {
        Self {
            source: Some(source),
            ..self
        }
    }

    /// The same flow with a mark, from an address that may be foreign.
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

/// Who can be found at the other end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Receiver {
    /// The proxy, where it expects what the application sends: port 15001.
    ProxyOutbound,
    /// The proxy, where it expects what is sent to the pod: port 15006.
    ProxyInbound,
    /// The proxy, where it expects name queries: port 15053.
    ProxyDns,
    /// ztunnel, where it expects connections of another ztunnel: port 15008.
    ProxyTunnel,
    /// The application itself.
    Application,
    /// The server itself.
    Server,
}

impl Receiver {
    /// One of the three listeners of the proxy to which rules hand traffic.
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

/// What became of a flow.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// Somebody got it.
    Received {
        /// Who.
        by: Receiver,
        /// The address that was asked for, as the receiver can find out: from
        /// connection tracking (`SO_ORIGINAL_DST`), else its own address. For UDP the
        /// port that it came in at is all there is.
        original: SocketAddr,
        /// The receiver's own end (`getsockname`): under TPROXY the address that was
        /// asked for, under REDIRECT the proxy's port.
        local: SocketAddr,
        /// The sender as the receiver sees it.
        source: SocketAddr,
        /// The answer came back to the sender, from the address that it had asked.
        answered: bool,
    },
    /// Nobody got it; the reason as the sender saw it.
    Lost(String),
}

impl Outcome {
    /// Who got it.
    #[must_use]
    pub fn by(&self) -> Option<Receiver> {
        match self {
            Self::Received { by, .. } => Some(*by),
            Self::Lost(_) => None,
        }
    }

    /// The address that was asked for, as the receiver knows it.
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
