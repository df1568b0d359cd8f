//! The pods whose traffic is captured now, whichever process set that up: for an agent that has just started.

use crate::objects::{GUARD, WEIR};
use std::collections::BTreeSet;
use std::net::IpAddr;
use weir_ebpf::Bpffs;
use weir_ebpf::node::Node as Programs;
use weir_netlink::route::{Route, RouteType, Routing};
use weir_netlink::{Netns, Result};

/// Returns the addresses of pods that are captured in a node's namespace, by rules or, if `bpffs` is given, by pinned programs.
///
/// # Errors
/// The routes or the maps of programs cannot be read.
pub fn captured(host: &Netns, bpffs: Option<&Bpffs>) -> Result<BTreeSet<IpAddr>> {
    let mut all = by_rules(&host.run(|| Routing::open()?.routes_by(WEIR))??);
    if let Some(bpffs) = bpffs {
        all.extend(Programs::of(host, bpffs).links()?.into_keys());
    }
    Ok(all)
}

/// Returns the addresses of pods that rules capture; `routes` are those of weir.
pub(crate) fn by_rules(routes: &[Route]) -> BTreeSet<IpAddr> {
    // Each address has a guard, independent of the engine of the rules and the numbers of tables.
    let is_guard = |route: &&Route| {
        let is_of_one = route.dst.prefix_len() == route.dst.max_prefix_len();
        is_of_one && route.kind == RouteType::Unreachable && route.priority == Some(GUARD)
    };
    let guards = routes.iter().filter(is_guard);
    guards.map(|route| route.dst.addr()).collect()
}
