//! Proof of redirection: connections are made in a pod's network namespace, and the kernel is asked where they landed.
//!
//! `weir verify` compares rules with the desired ones. This crate needs no desired state and reads no rules: it sends a
//! packet through them. What a rule of another program, a route or a policy does to the packet counts, too.
//!
//! # How it is known where a connection lands
//!
//! By connection tracking ([`weir_netfilter::conntrack`]). Each connection has a source address and port that nothing else
//! in the namespace has, because the kernel gave them to a socket of this crate; they find the entry. The expected answer in
//! the entry tells where NAT sent the connection. The entry is in the table when `connect(2)` returns, and where no proxy
//! listens and a reset removed it again, a notification has told of it. So nothing depends on an answer, and it does not
//! matter whether a proxy listens, accepts, or cooperates. A proxy that does run
//! sees one connection that is reset at once.
//!
//! Redirection by a program of eBPF leaves no trace there. Where the caller can tell how many connections such programs have captured
//! ([`Plan::counted`]), outbound connections are judged by that: the number before the connection and after it. Connections that the pod
//! makes in the same milliseconds count, too.
//!
//! # What is proved
//!
//! - Outbound: a TCP connection of a socket without mark, of the calling user, to an address for documentation
//!   (RFC 5737, RFC 3849). If it is redirected it does not leave the pod; if not, one SYN does, and nothing answers.
//!   The calling user must not be the one whose traffic is excluded, usually 1337.
//! - DNS, where name servers are given: a query for a name below `.invalid` to each, over UDP and over TCP.
//! - Inbound: a TCP connection from another namespace, the caller, to a port of the pod at which a socket is bound that
//!   does not listen. Either NAT redirects it, or a transparent listener accepts it (`TPROXY`), or it is refused: then
//!   it was not redirected.
//!
//! # What is not
//!
//! In ambient mode the node's own connections to pods are let through as probes of the kubelet; when the node changed
//! the source address of the caller, a connection that is not redirected proves nothing, and the answer is unknown.
//! By a program whose counter is not known a connection to an address that no host has is accepted although connection tracking has no
//! trace of it: the answer is unknown. It is unknown too when the kernel cannot list connections, and when a connection did not arrive.
//! Unknown is never reported as yes.
#![forbid(unsafe_code)]

mod connection;
mod counted;
mod inbound;
mod outbound;
mod proof;
mod tracking;

pub use proof::{Answer, Check, Direction, Landed, Proof};

use outbound::Witness;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use tracking::{Kernel, Tracking};
use weir_netfilter::conntrack::Transport;
use weir_netlink::route::{AddressFamily, Routing};
use weir_netlink::{Netns, Result};

/// An address for documentation, which no host has.
pub const DOCUMENTATION_V4: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
/// The same of IPv6.
pub const DOCUMENTATION_V6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1);
/// The link of every namespace that has number 1: `lo`.
const LOOPBACK: u32 = 1;

/// How many connections of a direction programs of eBPF have captured in the namespace so far; `None`: that cannot be read.
pub type Counted<'a> = &'a (dyn Fn(Direction) -> Option<u64> + Sync);

/// What is tried, and what is expected.
#[derive(Clone)]
pub struct Plan<'a> {
    /// The port that outbound connections are expected at.
    pub outbound: u16,
    /// The port that inbound connections are expected at.
    pub inbound: u16,
    /// The port that DNS queries are expected at.
    pub dns: u16,
    /// Connections of IPv6 are made, too, where the namespace has an address for them.
    pub ipv6: bool,
    /// Where outbound connections go; at most one address of each family counts. Empty: addresses for documentation.
    pub destinations: Vec<IpAddr>,
    /// The name servers that DNS queries go to. Empty: DNS is not tried.
    pub name_servers: Vec<IpAddr>,
    /// The namespace that inbound connections come from; without it none is made.
    pub caller: Option<&'a Netns>,
    /// Programs of eBPF redirect, and have counted what; without it connection tracking tells.
    pub counted: Option<Counted<'a>>,
}

impl Default for Plan<'_> {
    /// The ports of Istio's proxies; outbound connections only.
    fn default() -> Self {
        Self {
            outbound: 15001,
            inbound: 15006,
            dns: 15053,
            ipv6: true,
            destinations: Vec::new(),
            name_servers: Vec::new(),
            caller: None,
            counted: None,
        }
    }
}

/// Makes the connections, one after the other, and says where each landed. Takes at most some seconds, when nothing
/// answers; a redirected pod takes milliseconds.
///
/// # Errors
/// The namespace cannot be entered, or its addresses cannot be read. That a connection could not be made, or where it
/// landed could not be found out, is part of the proof.
pub fn prove(netns: &Netns, plan: &Plan<'_>) -> Result<Proof> {
    let checks = netns.run(|| here(plan))??;
    Ok(Proof {
        netns: netns.id(),
        checks,
    })
}

/// In the namespace of the calling thread.
fn here(plan: &Plan<'_>) -> Result<Vec<Check>> {
    with(plan, &mut Kernel::open())
}

fn with(plan: &Plan<'_>, conntrack: &mut dyn Tracking) -> Result<Vec<Check>> {
    let addresses = Routing::open()?.addresses()?;
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
        // A family without an address has no traffic that could be captured.
        let Some(pod) = own.iter().find(is_of) else {
            continue;
        };
        let documented: IpAddr = match family {
            AddressFamily::V4 => DOCUMENTATION_V4.into(),
            AddressFamily::V6 => DOCUMENTATION_V6.into(),
        };
        let to = plan.destinations.iter().find(is_of).copied();
        let to = to.unwrap_or(documented);
        let mut witness = match plan.counted {
            Some(counted) => Witness::Programs(counted),
            None => Witness::Tracking(&mut *conntrack),
        };
        checks.push(outbound::connection(
            &mut witness,
            family,
            to,
            plan.outbound,
        ));
        for to in plan.name_servers.iter().filter(is_of) {
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
                expected: plan.inbound,
                tracks,
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
