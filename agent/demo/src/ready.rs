//! When IPv6 works on a new link, which is later than the calls that set it up return.
//!
//! The kernel does three things in work queues: it starts the queue of a link whose other end
//! came up after it (until then what is sent is dropped), gives the link its `fe80` address (from
//! which neighbours are asked), and for each address joins the group at which neighbours ask
//! and adds the route to itself. On a busy machine that is long enough to lose a datagram; a
//! connection would try again. The last step makes the route in table "local", for `fe80` too, so
//! that is what is looked at, each time the kernel says that something has changed.

use std::time::{Duration, Instant};

use ipnet::IpNet;
use weir_netlink::Netns;
use weir_netlink::events::Events;
use weir_netlink::message;
use weir_netlink::route::{
    RT_TABLE_LOCAL, RTNLGRP_IPV6_IFADDR, RTNLGRP_IPV6_ROUTE, RTNLGRP_LINK, Routing,
};
use weir_netlink::{Error, Result};

/// What is listened to.
const GROUPS: [u32; 3] = [RTNLGRP_LINK, RTNLGRP_IPV6_IFADDR, RTNLGRP_IPV6_ROUTE];
/// Many times what a machine that is out of breath needs.
const PATIENCE: Duration = Duration::from_secs(30);

/// Waits until every address of the namespace can be reached over every link that is up.
///
/// # Errors
///
/// [`Error::is_timed_out`] where the kernel gives a link no `fe80` address (`addr_gen_mode`), or the other end is
/// not up.
pub(super) fn wait(netns: &Netns) -> Result<()> {
    // Listening comes first: a change after the look is not missed.
    let mut news = netns.run(|| Events::<message::Rtnetlink>::open(&GROUPS))??;
    let routing = Routing::open_in(netns)?;
    let begun = Instant::now();
    while !is_ready(&routing)? {
        let left = PATIENCE.saturating_sub(begun.elapsed());
        if news.next(left)?.is_none() {
            let what = "IPv6 on the links of the lab";
            return Err(Error::timed_out("wait for", what, begun.elapsed()));
        }
        // That something came is all that is asked, also when some of it was lost.
        while news.next(Duration::ZERO)?.is_some() {}
    }
    Ok(())
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
