//! Traffic of the pod to itself: over `lo`, whatever the address.
// matrix: variants 6.12-rt

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use serde_json::json;
use weir_demo::{Owner, Place, Receiver};
use weir_netlink::route::AddressFamily;

use crate::support::{CASES, FAMILIES, TPROXY, each, tcp};

fn loopback(family: AddressFamily) -> IpAddr {
    match family {
        AddressFamily::V4 => Ipv4Addr::LOCALHOST.into(),
        AddressFamily::V6 => Ipv6Addr::LOCALHOST.into(),
    }
}

/// The source address of the proxy's passthrough connections.
fn passthrough(family: AddressFamily) -> IpAddr {
    match family {
        AddressFamily::V4 => Ipv4Addr::new(127, 0, 0, 6).into(),
        AddressFamily::V6 => Ipv6Addr::new(0, 0, 0, 0, 0, 0, 0, 6).into(),
    }
}

#[test]
fn the_application_reaches_itself() {
    each(&CASES, json!({}), |pod| {
        for family in FAMILIES {
            let own = pod.at(Place::Pod, family, 8080);
            pod.expect(tcp("own address", Place::Pod, own), Receiver::Application);
            let lo = (loopback(family), 8080).into();
            pod.expect(tcp("loopback", Place::Pod, lo), Receiver::Application);
        }
    });
}

#[test]
fn the_proxy_reaches_its_own_pod_through_the_inbound_listener() {
    each(&CASES, json!({}), |pod| {
        for family in FAMILIES {
            let own = pod.at(Place::Pod, family, 8080);
            let flow = tcp("own address", Place::Pod, own).of(Owner::PROXY);
            pod.expect(flow, Receiver::ProxyInbound);
            // On loopback it connects to the application.
            let lo = (loopback(family), 8080).into();
            let flow = tcp("loopback", Place::Pod, lo).of(Owner::PROXY);
            pod.expect(flow, Receiver::Application);
        }
    });
}

#[test]
fn what_the_proxy_passes_on_reaches_the_application() {
    each(&CASES, json!({}), |pod| {
        for family in FAMILIES {
            let own = pod.at(Place::Pod, family, 8080);
            let flow = tcp("passthrough", Place::Pod, own)
                .of(Owner::PROXY)
                .source((passthrough(family), 0).into());
            pod.expect(flow, Receiver::Application);
        }
    });
}

#[test]
fn under_tproxy_the_answer_to_a_marked_connection_returns_to_the_pod() {
    each(&TPROXY, json!({}), |pod| {
        for family in FAMILIES {
            let own = pod.at(Place::Pod, family, 8080);
            let client = (pod.lab.address(Place::Client, family), 40_001).into();
            // Not as the proxy's user, whose connections the nat rules send to the inbound listener.
            let flow = tcp("as the client", Place::Pod, own)
                .of(Owner::ROOT)
                .source(client)
                .mark(1337);
            // The destination of the answer is outside the pod; the connection mark leads it to `lo`. Without the mark the answer would
            // leave through `eth0`.
            pod.expect(flow, Receiver::Application);
        }
    });
}
