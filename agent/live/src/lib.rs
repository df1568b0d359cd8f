//! Proof of redirection: opens connections in a pod's network namespace and asks the kernel where they landed.
//!
//! `weir verify` compares actual rules with desired ones. This crate needs no desired state and reads no rules: it sends
//! packets through them. The result therefore includes the effect of foreign rules, routes and policies.
//!
//! [`prove`] opens the connections of a [`Plan`]. The [`Proof`] has one [`Check`] per connection, each with an [`Answer`].
//! [`probe`] is the check of upstream's `istio-validation` container.
//!
//! ```
//! use weir_live::{Answer, Plan, prove};
//! use weir_netlink::Netns;
//!
//! # fn main() -> weir_netlink::Result<()> {
//! # if Netns::create().is_err_and(|e| e.is_permission()) { return Ok(()); } // an unprivileged user
//! let pod = Netns::create()?;
//! let proof = prove(&pod, &Plan::default())?;
//! // A pod without an address opens no connection, which proves nothing.
//! assert_eq!((proof.checks.len(), proof.answer()), (0, Answer::Unknown));
//! # Ok(())
//! # }
//! ```
//!
//! # How the destination is determined
//!
//! By connection tracking ([`weir_netfilter::conntrack`]). The kernel assigns each socket of this crate a source address and
//! port that are unique in the namespace; they identify the entry. The reply direction of the entry shows where NAT sent the
//! connection. The entry exists when `connect(2)` returns. If no proxy listens and a reset has removed the entry again, a
//! notification has reported it. The result therefore does not depend on an answer, and it does not matter whether a proxy
//! listens, accepts or cooperates. A running proxy sees one connection that is reset immediately.
//!
//! Redirection by eBPF programs is not visible to connection tracking. If the caller can read how many connections the
//! programs have captured ([`Plan::counted`]), connections are judged by that counter before and after. Other connections of the
//! pod within the same time are counted as well: milliseconds, or 1.5 s for an inbound connection that nothing answers.
//!
//! # What is proved
//!
//! - Outbound: a TCP connection of an unmarked socket of the calling user to a documentation address (RFC 5737, RFC 3849).
//!   A redirected connection does not leave the pod; otherwise one SYN leaves it and nothing answers. The calling user must
//!   not be the excluded one, usually 1337.
//! - DNS, if name servers are given: a query for a name below `.invalid` to each server, over UDP and over TCP.
//! - Inbound: a TCP connection from another namespace, the caller, to a port of the pod on which a socket is bound but does
//!   not listen. NAT redirects it, or a transparent listener accepts it (`TPROXY`), or it is refused, which means that it
//!   was not redirected.
//!
//! # What is not proved
//!
//! In ambient mode, connections from the node to pods are let through as kubelet probes. If the node changed the source
//! address of the caller, or programs let its connections pass, a connection that is not redirected proves nothing: the answer is
//! unknown. The answer is also
//! unknown if a documentation address accepts although connection tracking has no entry (an eBPF program without a known
//! counter), if the kernel cannot list connections, and if a connection did not arrive. Unknown is never reported as yes.
#![forbid(unsafe_code)]

mod connection;
mod counted;
mod inbound;
mod outbound;
mod owner;
pub mod probe;
mod proof;
mod tracking;

pub use owner::Owner;
pub use probe::original_destination;
pub use proof::{Answer, Check, Direction, Landed, Proof};

use outbound::Witness;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use tracking::{Kernel, Tracking};
use weir_netfilter::conntrack::Transport;
use weir_netlink::route::{AddressFamily, Routing};
use weir_netlink::{Netns, Result};

/// A documentation address of IPv4 (RFC 5737), which no host uses.
pub const DOCUMENTATION_V4: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
/// A documentation address of IPv6 (RFC 3849).
pub const DOCUMENTATION_V6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1);
/// Interface index of `lo` in every network namespace.
const LOOPBACK: u32 = 1;

/// Returns how many connections of a direction the eBPF programs have captured in the namespace; `None` if unreadable.
pub type Counted<'a> = &'a (dyn Fn(Direction) -> Option<u64> + Sync);

/// The connections to open and the expected ports.
#[derive(Clone)]
pub struct Plan<'a> {
    /// Expected port of outbound connections.
    pub outbound: u16,
    /// Expected port of inbound connections.
    pub inbound: u16,
    /// Expected port of DNS queries.
    pub dns: u16,
    /// Also opens IPv6 connections, if the namespace has an IPv6 address.
    pub ipv6: bool,
    /// Destinations of outbound connections. Of a family without one: its documentation address.
    pub destinations: Vec<IpAddr>,
    /// Name servers for DNS queries. Empty: DNS is not tested.
    pub name_servers: Vec<IpAddr>,
    /// Destinations and name servers of a family in which the namespace has no address become checks with the answer unknown;
    /// otherwise they are left out.
    pub all: bool,
    /// The network namespace from which inbound connections are opened. `None`: inbound is not tested.
    pub caller: Option<&'a Netns>,
    /// Counters of the eBPF programs that redirect. `None`: connection tracking is used.
    pub counted: Option<Counted<'a>>,
    /// True if the programs may let connections of `caller` pass, as those of the node.
    pub passes: bool,
}

impl Default for Plan<'_> {
    /// The ports of Istio's proxies, and outbound connections only.
    fn default() -> Self {
        Self {
            outbound: 15001,
            inbound: 15006,
            dns: 15053,
            ipv6: true,
            destinations: Vec::new(),
            name_servers: Vec::new(),
            all: false,
            caller: None,
            counted: None,
            passes: false,
        }
    }
}

/// Opens the connections one after the other and reports where each landed. This takes milliseconds for a redirected pod and
/// some seconds if nothing answers.
///
/// # Errors
/// The namespace cannot be entered, or its addresses cannot be read. A connection that cannot be opened, or whose destination
/// cannot be determined, is part of the proof and not an error.
pub fn prove(netns: &Netns, plan: &Plan<'_>) -> Result<Proof> {
    let checks = netns.run(|| here(plan))??;
    Ok(Proof {
        netns: netns.id(),
        checks,
        failure: None,
    })
}

/// Runs the plan in the network namespace of the calling thread.
fn here(plan: &Plan<'_>) -> Result<Vec<Check>> {
    with(plan, &mut Kernel::open())
}

fn with(plan: &Plan<'_>, conntrack: &mut dyn Tracking) -> Result<Vec<Check>> {
    let addresses = Routing::open()?.addresses()?;
    let local: Vec<IpAddr> = addresses.iter().map(|a| a.net.addr()).collect();
    let own: Vec<IpAddr> = addresses
        .iter()
        .filter(|a| a.index != LOOPBACK && !a.tentative)
        .map(|a| a.net.addr())
        .filter(reaches_far)
        .collect();
    let mut checks = Vec::new();
    for family in [AddressFamily::V4, AddressFamily::V6] {
        if family == AddressFamily::V6 && !plan.ipv6 {
            continue;
        }
        let is_of = |ip: &&IpAddr| ip.is_ipv4() == (family == AddressFamily::V4);
        let given = |all: &[IpAddr]| -> Vec<IpAddr> { all.iter().filter(is_of).copied().collect() };
        let (mut destinations, servers) = (given(&plan.destinations), given(&plan.name_servers));
        // A family without an address has no traffic.
        let Some(pod) = own.iter().find(is_of) else {
            if plan.all {
                let expected = (plan.outbound, plan.dns);
                checks.extend(outbound::untried(family, &destinations, &servers, expected));
            }
            continue;
        };
        let documented: IpAddr = match family {
            AddressFamily::V4 => DOCUMENTATION_V4.into(),
            AddressFamily::V6 => DOCUMENTATION_V6.into(),
        };
        if destinations.is_empty() {
            destinations.push(documented);
        }
        let mut witness = match plan.counted {
            Some(counted) => Witness::Programs(counted),
            None => Witness::Tracking(&mut *conntrack, &local),
        };
        for to in destinations {
            checks.push(outbound::connection(
                &mut witness,
                family,
                to,
                plan.outbound,
            ));
        }
        for to in &servers {
            for transport in [Transport::Udp, Transport::Tcp] {
                checks.push(outbound::query(
                    &mut witness,
                    family,
                    transport,
                    *to,
                    plan.dns,
                ));
            }
        }
        if let Some(caller) = plan.caller {
            let tracks = checks.iter().any(|check| check.landed.is_some());
            let inbound = inbound::Inbound {
                family,
                pod: *pod,
                local: &local,
                expected: plan.inbound,
                tracks,
                programs: plan.counted.map(|counted| (counted, plan.passes)),
            };
            checks.push(inbound.check(conntrack, caller));
        }
    }
    Ok(checks)
}

fn reaches_far(ip: &IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => !ip.is_loopback() && !ip.is_link_local() && !ip.is_multicast(),
        IpAddr::V6(ip) => !ip.is_loopback() && !ip.is_unicast_link_local() && !ip.is_multicast(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU64, Ordering};
    use weir_netfilter::conntrack::{Entry, Tuple};
    use weir_netlink::Error;
    use weir_netlink::route::Route;

    /// A kernel without `nf_conntrack_netlink`.
    struct Blind;

    fn lacks<T>() -> Result<T> {
        Err(Error::unsupported(
            "read",
            "connection tracking",
            "nf_conntrack_netlink",
        ))
    }

    impl Tracking for Blind {
        fn find(&mut self, _: &Tuple, _: u16) -> Result<Option<Entry>> {
            lacks()
        }
        fn begun(&mut self, _: &dyn Fn(&Entry) -> bool) -> Result<Option<Entry>> {
            lacks()
        }
        fn reports(&self) -> bool {
            false
        }
    }

    /// A pod and a caller, joined by a veth.
    fn pod_and_caller() -> (Netns, Netns) {
        let (pod, caller) = (Netns::create().unwrap(), Netns::create().unwrap());
        let routing = Routing::open_in(&pod).unwrap();
        routing.add_veth("eth0", "veth0", &caller).unwrap();
        for (netns, name, address) in [
            (&pod, "eth0", "10.0.0.2/24"),
            (&caller, "veth0", "10.0.0.1/24"),
        ] {
            let routing = Routing::open_in(netns).unwrap();
            let index = routing.link(name).unwrap().index;
            routing
                .add_address(index, address.parse().unwrap())
                .unwrap();
            routing.set_up(index).unwrap();
        }
        let eth0 = routing.link("eth0").unwrap().index;
        let gateway = Some(IpAddr::from([10, 0, 0, 1]));
        let default = Route::unicast("0.0.0.0/0".parse().unwrap(), gateway, Some(eth0));
        routing.add_route(&default).unwrap();
        (pod, caller)
    }

    #[test]
    fn a_kernel_that_does_not_show_its_connections_proves_nothing() {
        let _ = weir_testing::namespace_or_skip!();
        let (pod, caller) = pod_and_caller();
        let plan = Plan {
            name_servers: vec![DOCUMENTATION_V4.into()],
            caller: Some(&caller),
            ..Plan::default()
        };
        let checks = pod.run(|| with(&plan, &mut Blind)).unwrap().unwrap();
        assert_eq!(checks.len(), 4, "{checks:?}");
        for check in checks {
            assert_eq!(check.answer, Answer::Unknown, "{check}");
            assert!(check.reason.contains("nf_conntrack_netlink"), "{check}");
            assert_eq!(check.landed, None, "{check}");
        }
    }

    /// The kernel's connection tracking shows nothing of them.
    #[test]
    fn a_connection_to_a_pod_is_judged_by_what_programs_count() {
        let _ = weir_testing::namespace_or_skip!();
        let (pod, caller) = pod_and_caller();
        let total = AtomicU64::new(0);
        let counts = |_| Some(total.fetch_add(1, Ordering::Relaxed));
        let (rests, unread) = (|_| Some(7), |_| None);
        let is_dropped = || {
            let tables = "add table ip t; add chain ip t c { type filter hook input priority 0; }";
            let rules = format!("{tables}; add rule ip t c meta l4proto tcp drop");
            let run = std::process::Command::new("nft").arg(rules).status();
            run.is_ok_and(|status| status.success())
        };
        let inbound = |counted: Counted<'_>, passes| {
            let plan = Plan {
                caller: Some(&caller),
                counted: Some(counted),
                passes,
                ..Plan::default()
            };
            let checks = pod.run(|| with(&plan, &mut Blind)).unwrap().unwrap();
            checks.into_iter().last().unwrap()
        };
        // Nothing captures it: the pod refuses it.
        for (counted, passes, answer, words) in [
            (
                &counts as Counted<'_>,
                false,
                Answer::No,
                "no program captured it",
            ),
            (&rests, false, Answer::No, "no program captured it"),
            (
                &rests,
                true,
                Answer::Unknown,
                "give a caller in another pod",
            ),
            (
                &unread,
                true,
                Answer::Unknown,
                "give a caller in another pod",
            ),
        ] {
            let check = inbound(counted, passes);
            assert_eq!(
                (check.direction, check.answer),
                (Direction::Inbound, answer),
                "{check}"
            );
            assert!(check.reason.contains(words), "{check}");
        }
        if !pod.run(is_dropped).unwrap() {
            return println!("skipped: nothing drops packets without nft");
        }
        for (counted, answer, words) in [
            (&counts as Counted<'_>, Answer::Yes, "nothing listens there"),
            (&rests, Answer::Unknown, "did not arrive"),
            (&unread, Answer::Unknown, "cannot be read"),
        ] {
            let check = inbound(counted, false);
            assert_eq!(
                (check.direction, check.answer),
                (Direction::Inbound, answer),
                "{check}"
            );
            assert!(check.reason.contains(words), "{check}");
        }
    }

    #[test]
    fn a_namespace_without_rules_redirects_nothing_and_one_without_routes_is_unknown() {
        let _ = weir_testing::namespace_or_skip!();
        let (pod, caller) = pod_and_caller();
        let plan = Plan {
            name_servers: vec![DOCUMENTATION_V4.into()],
            caller: Some(&caller),
            ..Plan::default()
        };
        let proof = prove(&pod, &plan).unwrap();
        assert_eq!(proof.checks.len(), 4, "{proof}");
        for check in &proof.checks {
            assert_eq!(check.answer, Answer::No, "{proof}");
        }
        let routing = Routing::open_in(&pod).unwrap();
        for route in routing.routes(254).unwrap() {
            routing.del_route(&route).unwrap();
        }
        let proof = prove(&pod, &Plan::default()).unwrap();
        assert_eq!(proof.answer(), Answer::Unknown, "{proof}");
        assert!(proof.to_string().contains("has no route there"), "{proof}");
    }

    #[test]
    fn everything_that_is_given_is_tried_or_said_to_be_unknown() {
        let _ = weir_testing::namespace_or_skip!();
        let (pod, _caller) = pod_and_caller();
        let to = ["192.0.2.1", "192.0.2.2", "2001:db8::1"].map(|ip| ip.parse().unwrap());
        let plan = Plan {
            destinations: to.to_vec(),
            name_servers: vec![DOCUMENTATION_V6.into()],
            all: true,
            ..Plan::default()
        };
        let proof = prove(&pod, &plan).unwrap();
        let asked = |check: &Check| check.to.map(|to| to.ip());
        let (v4, v6): (Vec<_>, Vec<_>) = proof
            .checks
            .iter()
            .partition(|check| check.family == AddressFamily::V4);
        assert_eq!(
            v4.into_iter().map(asked).collect::<Vec<_>>(),
            [Some(to[0]), Some(to[1])],
            "{proof}"
        );
        // TCP to the destination, UDP and TCP to the name server.
        assert_eq!(v6.len(), 3, "{proof}");
        for check in v6 {
            assert_eq!((check.answer, asked(check)), (Answer::Unknown, Some(to[2])));
            assert!(check.reason.contains("no IPv6 address"), "{proof}");
        }
    }

    #[test]
    fn a_namespace_without_addresses_is_unknown() {
        let pod = weir_testing::namespace_or_skip!();
        let proof = prove(&pod, &Plan::default()).unwrap();
        assert_eq!(
            (proof.answer(), proof.checks.len()),
            (Answer::Unknown, 0),
            "{proof}"
        );
    }
}
