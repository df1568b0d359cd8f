//! Links, addresses, routes and policy rules: `rtnetlink(7)`, with a synchronous face.
//!
//! [`Routing`] is one socket; each kernel
//! object has a file of its own. Messages are built and read by the `rtnetlink`
//! crate. What carries them is ours:
//!
//! - **Deadlines.** Every exchange ends in time, see [`Patience`].
//! - **Whole dumps.** One that was interrupted (`NLM_F_DUMP_INTR`) or lost a
//!   datagram (`ENOBUFS`, `NLMSG_OVERRUN`) is asked for again, for at most
//!   [`CONTENTION`](crate::contention::CONTENTION); one with a message that the crate cannot decode is an error. A link
//!   is looked up by name or index without a dump.
//! - **What is in force.** When the answer to a change is lost, the error says so
//!   ([`Error::in_force`](crate::Error::in_force)).
//! - **The kernel's words.** The socket asks for extended acks and an error
//!   carries their text.
//! - **Strict dumps** (`NETLINK_GET_STRICT_CHK`, Linux 4.20): the kernel filters
//!   by table, rather than sending everything.

mod address;
mod exchange;
mod link;
mod routes;
mod rule;
mod trial;

use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

pub use address::Address;
pub use link::{LOOPBACK_IFINDEX, Link};
pub use routes::{Route, RouteProtocol, RouteScope, RouteType};
pub use rule::PolicyRule;
pub use trial::TrialLink;

pub use rtnetlink::packet_route::address::AddressScope;

use crate::Result;
use crate::netns::Netns;
use crate::nfnetlink::Socket;
use crate::transport::{Kernel, Patience};

/// `rtm_protocol`, `FRA_PROTOCOL` and `IFA_PROTO` of every route, policy rule and address that
/// weir adds: who made it, so that it is found again.
///
/// The kernel gives no meaning to numbers above `RTPROT_STATIC`. 119 is assigned
/// neither in `linux/rtnetlink.h` nor in iproute2's `rt_protos`.
pub const RTPROT_WEIR: u8 = 119;

/// IPv4 or IPv6: the families that routing is done for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Family {
    /// `AF_INET`.
    #[doc(alias = "AF_INET")]
    V4,
    /// `AF_INET6`.
    #[doc(alias = "AF_INET6")]
    V6,
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::V4 => "IPv4",
            Self::V6 => "IPv6",
        })
    }
}

/// A routing socket (`socket(AF_NETLINK, SOCK_RAW, NETLINK_ROUTE)`) in the
/// namespace of the thread that opened it.
///
/// It stays in that namespace wherever it is used afterwards.
pub struct Routing {
    /// One exchange at a time.
    socket: Mutex<Socket<Kernel>>,
}

impl fmt::Debug for Routing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Routing").finish_non_exhaustive()
    }
}

impl Routing {
    /// Opens a socket in the namespace of the calling thread.
    ///
    /// # Errors
    ///
    /// `EMFILE`: no descriptor is left; `ENOPROTOOPT`: a kernel older than 4.20.
    pub fn open() -> Result<Self> {
        let socket = Socket::with_transport(Kernel::open_route()?);
        Ok(Self {
            socket: Mutex::new(socket),
        })
    }

    /// Another one in the same namespace, on a fresh socket: nothing that was lost on this one is missed there.
    ///
    /// # Errors
    ///
    /// As [`Transport::reopen`](crate::Transport::reopen).
    pub fn reopen(&self) -> Result<Self> {
        let socket = self.socket().twin()?;
        Ok(Self {
            socket: Mutex::new(socket),
        })
    }

    /// With other limits of time for every exchange.
    #[must_use]
    pub fn patience(self, patience: Patience) -> Self {
        let socket = self.socket.into_inner();
        let socket = socket.unwrap_or_else(PoisonError::into_inner);
        Self {
            socket: Mutex::new(socket.patience(patience)),
        }
    }

    /// A panic in an exchange leaves unread answers behind, which the next one passes over.
    fn socket(&self) -> MutexGuard<'_, Socket<Kernel>> {
        self.socket.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Opens a socket in another namespace, on a thread that enters it.
    ///
    /// # Errors
    ///
    /// As [`Routing::open`] and [`crate::netns::Netns::run`].
    pub fn open_in(netns: &Netns) -> Result<Self> {
        netns.run(Self::open)?
    }
}
