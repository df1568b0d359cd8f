//! When IPv6 works on a new link, which is later than the calls that set it up return.
//!
//! The kernel does three things in work queues: it starts the queue of a link whose other end
//! came up after it (until then what is sent is dropped), gives the link its `fe80` address (from
//! which neighbours are asked), and for each address joins the group at which neighbours ask
//! and adds the route to itself. On a busy machine that is long enough to lose a datagram; a
//! connection would try again. The last step makes the route in table "local", for `fe80` too, so
//! that is what is looked at, each time the kernel says that something has changed.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::time::{Duration, Instant};

use ipnet::IpNet;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{
    AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, bind, recv, socket,
};
use weir_netlink::netns::Netns;
use weir_netlink::route::Routing;
use weir_netlink::{Error, Result};

/// `RT_TABLE_LOCAL` of `linux/rtnetlink.h`.
const RT_TABLE_LOCAL: u32 = 255;
/// `RTMGRP_LINK`, `RTMGRP_IPV6_IFADDR` and `RTMGRP_IPV6_ROUTE` of `linux/rtnetlink.h`.
const GROUPS: u32 = 0x1 | 0x100 | 0x400;
/// Many times what a machine that is out of breath needs.
const PATIENCE: Duration = Duration::from_secs(30);

/// Waits until every address of the namespace can be reached over every link that is up.
///
/// # Errors
///
/// `ETIMEDOUT` where the kernel gives a link no `fe80` address (`addr_gen_mode`), or the other end is
/// not up.
pub(super) fn wait(netns: &Netns) -> Result<()> {
    // Listening comes first: a change after the look is not missed.
    let news = netns
        .run(listen)?
        .map_err(|e| failed("listen for changes of", e))?;
    let routing = Routing::open_in(netns)?;
    let deadline = Instant::now() + PATIENCE;
    while !is_ready(&routing)? {
        let left = deadline.saturating_duration_since(Instant::now());
        let timeout = PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX);
        let mut fds = [PollFd::new(news.as_fd(), PollFlags::POLLIN)];
        match poll(&mut fds, timeout) {
            Ok(0) => return Err(failed("wait for", Errno::ETIMEDOUT)),
            Ok(_) => forget(&news)?,
            Err(Errno::EINTR) => {}
            Err(e) => return Err(failed("wait for", e)),
        }
    }
    Ok(())
}

fn failed(operation: &'static str, errno: Errno) -> Error {
    Error::kernel(operation, "IPv6 on the links of the lab", errno as i32)
}

fn listen() -> nix::Result<OwnedFd> {
    let fd = socket(
        AddressFamily::Netlink,
        SockType::Raw,
        SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK,
        SockProtocol::NetlinkRoute,
    )?;
    bind(fd.as_raw_fd(), &NetlinkAddr::new(0, GROUPS))?;
    Ok(fd)
}

/// Reads what has come; that something came is all that is asked.
fn forget(news: &OwnedFd) -> Result<()> {
    loop {
        match recv(news.as_raw_fd(), &mut [0; 1], MsgFlags::MSG_TRUNC) {
            // ENOBUFS: more came than was kept.
            Ok(_) | Err(Errno::ENOBUFS | Errno::EINTR) => {}
            Err(Errno::EAGAIN) => return Ok(()),
            Err(e) => return Err(failed("listen for changes of", e)),
        }
    }
}

fn is_ready(routing: &Routing) -> Result<bool> {
    let links = routing.links()?;
    for link in &links {
        // Asked for one link, newer kernels first do what is pending for it; otherwise a carrier that
        // comes up may be noticed up to 1 s later (net/core/link_watch.c).
        routing.link_by_index(link.index)?;
    }
    let addresses = routing.addresses()?;
    let local = routing.routes(RT_TABLE_LOCAL)?;
    Ok(links.iter().filter(|l| l.up && l.name != "lo").all(|link| {
        let mut found = false;
        addresses
            .iter()
            .filter(|a| a.index == link.index)
            .all(|a| match a.net {
                IpNet::V4(_) => true,
                IpNet::V6(net) => {
                    found |= net.addr().is_unicast_link_local();
                    let itself = IpNet::from(a.net.addr());
                    local
                        .iter()
                        .any(|r| r.oif == Some(link.index) && r.dst == itself)
                }
            })
            && found
    }))
}
