//! Waits until IPv6 works on a new link, which is later than the calls that set it up return.
//!
//! The kernel does three things in work queues: it starts the queue of a link whose peer came up after it (packets are
//! dropped until then), adds the link's `fe80` address (the source of neighbour solicitations), and for each address joins
//! the solicited-node multicast group and adds the local route. On a busy machine this takes long enough to lose a datagram;
//! a TCP connection would retransmit. The last step adds the route to table "local", for `fe80`, too, so this code checks
//! for it after each notification of the kernel.

use std::time::{Duration, Instant};

use ipnet::IpNet;
use weir_netlink::Netns;
use weir_netlink::events::Events;
use weir_netlink::message;
use weir_netlink::route::{
    RT_TABLE_LOCAL, RTNLGRP_IPV6_IFADDR, RTNLGRP_IPV6_ROUTE, RTNLGRP_LINK, Routing,
};
use weir_netlink::{Error, Result};

/// Multicast groups of the notifications.
const GROUPS: [u32; 3] = [RTNLGRP_LINK, RTNLGRP_IPV6_IFADDR, RTNLGRP_IPV6_ROUTE];
/// Timeout; much longer than an overloaded machine needs.
const PATIENCE: Duration = Duration::from_secs(30);

/// Waits until every address of the namespace can be reached over every link that is up.
///
/// # Errors
///
/// [`Error::is_timed_out`] if the kernel adds no `fe80` address to a link (`addr_gen_mode`), or the peer is
/// not up.
pub(super) fn wait(netns: &Netns) -> Result<()> {
    // Subscribe before checking, so that no change is missed.
    let mut news = netns.run(|| Events::<message::Rtnetlink>::open(&GROUPS))??;
    let routing = Routing::open_in(netns)?;
    let begun = Instant::now();
    while !is_ready(&routing)? {
        let left = PATIENCE.saturating_sub(begun.elapsed());
        if news.next(left)?.is_none() {
            let what = "IPv6 on the links of the lab";
            return Err(Error::timed_out("wait for", what, begun.elapsed()));
        }
        // The content does not matter, nor whether some notifications were lost.
        while news.next(Duration::ZERO)?.is_some() {}
    }
    Ok(())
}

fn is_ready(routing: &Routing) -> Result<bool> {
    let links = routing.links()?;
    for link in &links {
        // A request for one link makes newer kernels process its pending events first; otherwise a carrier
        // change may be noticed up to 1 s later (net/core/link_watch.c).
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
