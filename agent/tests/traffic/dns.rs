//! DNS queries.
// matrix: variants 6.12-rt

use serde_json::{Value, json};
use weir_demo::{Flow, Owner, Place, Protocol, Receiver};

use crate::support::{CASES, FAMILIES, REDIRECT, each};

fn capture() -> Value {
    json!({ "redirect_dns": true, "capture_all_dns": true })
}

#[test]
fn queries_go_to_the_proxy_and_answers_come_from_the_server_that_was_asked() {
    each(&CASES, capture(), |pod| {
        for family in FAMILIES {
            for protocol in [Protocol::Udp, Protocol::Tcp] {
                let query = Flow::new("query", protocol, Place::Pod, pod.service(family, 53));
                // The sender's socket is connected: an answer from another address would not arrive.
                pod.expect(query, Receiver::ProxyDns);
            }
        }
    });
}

#[test]
fn the_proxy_s_own_queries_go_to_the_server() {
    each(&REDIRECT, capture(), |pod| {
        for family in FAMILIES {
            for protocol in [Protocol::Udp, Protocol::Tcp] {
                for owner in [
                    Owner::PROXY,
                    Owner {
                        uid: 1000,
                        gid: 1337,
                    },
                ] {
                    let query = Flow::new("query", protocol, Place::Pod, pod.service(family, 53));
                    pod.expect(query.of(owner), Receiver::Server);
                }
            }
        }
    });
}

#[test]
fn the_same_port_can_ask_for_the_application_and_for_the_proxy() {
    each(&REDIRECT, capture(), |pod| {
        for family in FAMILIES {
            // Both use one source port: without conntrack zones, the second query would belong to the connection of the first.
            let source = (pod.lab.address(Place::Pod, family), 40_053).into();
            let to = pod.service(family, 53);
            let query = Flow::new("query", Protocol::Udp, Place::Pod, to).source(source);
            pod.expect(query.clone(), Receiver::ProxyDns);
            pod.expect(query.of(Owner::PROXY), Receiver::Server);
        }
    });
}

#[test]
fn without_capture_queries_go_straight_with_udp() {
    each(&REDIRECT, json!({}), |pod| {
        for family in FAMILIES {
            let to = pod.service(family, 53);
            let udp = Flow::new("query", Protocol::Udp, Place::Pod, to);
            pod.expect(udp, Receiver::Server);
            let tcp = Flow::new("query", Protocol::Tcp, Place::Pod, to);
            pod.expect(tcp, Receiver::ProxyOutbound);
        }
    });
}
