//! Flows of a pod in ambient mode.

use super::flow::{Flow, Protocol, Receiver};
use super::lab::{Lab, Place};
use super::scene::Scene;
use super::stage::{PROXY_TUNNEL_PORT, ZTUNNEL_MARK};
use std::net::{IpAddr, SocketAddr};
use weir_ambient::Config;
use weir_netlink::route::AddressFamily;

/// The source address of the kubelet's probes.
pub(super) fn probe(family: AddressFamily) -> IpAddr {
    let config = Config::default();
    match family {
        AddressFamily::V4 => config.host_probe_snat_address.into(),
        AddressFamily::V6 => config.host_probe_v6_snat_address.into(),
    }
}

/// Returns the flows of a family, for rules of ambient mode with DNS capture. The client must have the source address of probes
/// ([`Lab::add_address`]).
#[must_use]
pub fn ambient_scenes(lab: &Lab, family: AddressFamily) -> Vec<Scene> {
    let at = SocketAddr::new;
    let pod = lab.address(Place::Pod, family);
    let service = lab.service(family);
    let client = at(lab.address(Place::Client, family), 0);
    let tcp = |name: &str, from, to| Flow::new(name, Protocol::Tcp, from, to);
    let dns = |name: &str, protocol| Flow::new(name, protocol, Place::Pod, at(service, 53));
    [
        (
            tcp("client to pod", Place::Client, at(pod, 8080)),
            Receiver::ProxyInbound,
        ),
        (
            tcp(
                "ztunnel to ztunnel",
                Place::Client,
                at(pod, PROXY_TUNNEL_PORT),
            ),
            Receiver::ProxyTunnel,
        ),
        (
            tcp("probe of the kubelet", Place::Client, at(pod, 8080)).source(at(probe(family), 0)),
            Receiver::Application,
        ),
        (
            // The reply must return to ztunnel, although it is addressed to the client.
            tcp("ztunnel as the client", Place::Pod, at(pod, 8080))
                .source(client)
                .mark(ZTUNNEL_MARK),
            Receiver::Application,
        ),
        (
            tcp("pod to itself", Place::Pod, at(pod, 8080)),
            Receiver::Application,
        ),
        (
            tcp("pod to service", Place::Pod, at(service, 80)),
            Receiver::ProxyOutbound,
        ),
        (
            tcp("ztunnel to service", Place::Pod, at(service, 80)).mark(ZTUNNEL_MARK),
            Receiver::Server,
        ),
        (dns("name query", Protocol::Udp), Receiver::ProxyDns),
        (dns("name query", Protocol::Tcp), Receiver::ProxyDns),
        (
            dns("ztunnel's name query", Protocol::Udp).mark(ZTUNNEL_MARK),
            Receiver::Server,
        ),
    ]
    .into_iter()
    .map(|(flow, expect)| Scene { flow, expect })
    .collect()
}
