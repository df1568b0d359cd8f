//! Links, addresses, routes and policy rules: `rtnetlink(7)`, with a synchronous face.
//!
//! [`Routing`] is one socket and the small runtime that drives it; each kernel
//! object has a file of its own. Messages are built and read by the `rtnetlink`
//! crate. What is added here:
//!
//! - **Interrupted dumps.** The crate's typed requests drop `NLM_F_DUMP_INTR`. So
//!   every request goes through one function that sees each header, the end
//!   of the dump included, and a dump that was interrupted is asked for again, at
//!   most [`DUMP_ATTEMPTS`] times. A link is looked up by name or index without a
//!   dump.
//! - **The kernel's words.** The socket asks for extended acks and an error
//!   carries their text.
//! - **Strict dumps** (`NETLINK_GET_STRICT_CHK`, Linux 4.20): the kernel filters
//!   by table, rather than sending everything.
//!
//! One limit remains: a message of a dump that the crate cannot decode is logged
//! by it and left out.

mod address;
mod exchange;
mod link;
mod routes;
mod rule;
mod trial;

use std::fmt;

pub use address::Address;
pub use link::Link;
pub use routes::{Route, RouteProtocol, RouteScope, RouteType};
pub use rule::PolicyRule;
pub use trial::TrialLink;

pub use rtnetlink::packet_route::address::AddressScope;

use rtnetlink::sys::AsyncSocket;

use crate::netns::Netns;
use crate::{Error, Result};

/// How often a dump is asked for while the kernel keeps reporting it as
/// interrupted.
pub const DUMP_ATTEMPTS: usize = 5;

/// `rtm_protocol` and `FRA_PROTOCOL` of every route and policy rule that weir adds: who
/// made it, so that it is found again.
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
/// It stays in that namespace wherever it is used afterwards. Not for use inside
/// a tokio runtime: its methods block.
pub struct Routing {
    runtime: tokio::runtime::Runtime,
    handle: rtnetlink::Handle,
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
        let failed = |e: std::io::Error| Error::io("open", "a routing socket", &e);
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_io()
            .build()
            .map_err(failed)?;
        let handle = {
            let _context = runtime.enter();
            let (mut connection, handle, _notifications) =
                rtnetlink::new_connection_with_strict_check().map_err(failed)?;
            // Acks and ends of dumps are what tells success from a lost socket.
            connection.set_forward_ack(true);
            connection.set_forward_done(true);
            connection
                .socket_mut()
                .socket_mut()
                .set_ext_ack(true)
                .map_err(failed)?;
            runtime.spawn(connection);
            handle
        };
        Ok(Self { runtime, handle })
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
