//! What the pod sends.

use serde_json::json;
use weir_agent::demo::{Owner, Place, Receiver};

use crate::support::{CASES, FAMILIES, REDIRECT, each, tcp};

#[test]
fn outbound_is_captured_and_the_proxy_s_own_is_not() {
    each(&CASES, json!({}), |pod| {
        for family in FAMILIES {
            let to = pod.service(family, 80);
            pod.expect(tcp("application", Place::Pod, to), Receiver::ProxyOutbound);
            let root = tcp("root", Place::Pod, to).of(Owner::ROOT);
            pod.expect(root, Receiver::ProxyOutbound);
            let proxy = tcp("proxy", Place::Pod, to).of(Owner::PROXY);
            pod.expect(proxy, Receiver::Server);
            // The group alone is enough.
            let group = tcp("proxy's group", Place::Pod, to).of(Owner {
                uid: 1000,
                gid: 1337,
            });
            pod.expect(group, Receiver::Server);
        }
    });
}

#[test]
fn excluded_outbound_ports_go_straight() {
    each(
        &REDIRECT,
        json!({ "outbound_ports_exclude": "5432" }),
        |pod| {
            for family in FAMILIES {
                pod.expect(
                    tcp("excluded", Place::Pod, pod.service(family, 5432)),
                    Receiver::Server,
                );
                pod.expect(
                    tcp("captured", Place::Pod, pod.service(family, 443)),
                    Receiver::ProxyOutbound,
                );
            }
        },
    );
}

#[test]
fn excluded_cidrs_go_straight() {
    each(
        &REDIRECT,
        json!({ "outbound_ip_ranges_exclude": "192.0.2.0/24,2001:db8::/33" }),
        |pod| {
            for family in FAMILIES {
                pod.expect(
                    tcp("excluded", Place::Pod, pod.outside(family, 443)),
                    Receiver::Server,
                );
                pod.expect(
                    tcp("captured", Place::Pod, pod.service(family, 443)),
                    Receiver::ProxyOutbound,
                );
            }
        },
    );
}

#[test]
fn only_included_cidrs_and_ports_are_captured() {
    each(
        &REDIRECT,
        json!({
            "outbound_ip_ranges_include": "10.96.0.0/15,fd00:10:96::/112",
            "outbound_ports_include": "5432",
        }),
        |pod| {
            for family in FAMILIES {
                pod.expect(
                    tcp("in", Place::Pod, pod.service(family, 80)),
                    Receiver::ProxyOutbound,
                );
                pod.expect(
                    tcp("out", Place::Pod, pod.outside(family, 80)),
                    Receiver::Server,
                );
                let server = pod.at(Place::Server, family, 80);
                pod.expect(tcp("another pod", Place::Pod, server), Receiver::Server);
                pod.expect(
                    tcp("port", Place::Pod, pod.outside(family, 5432)),
                    Receiver::ProxyOutbound,
                );
            }
        },
    );
}

#[test]
fn only_included_groups_are_captured() {
    each(
        &REDIRECT,
        json!({ "owner_groups_include": "2000,2001" }),
        |pod| {
            for family in FAMILIES {
                let to = pod.service(family, 80);
                for (gid, by) in [
                    (2000, Receiver::ProxyOutbound),
                    (2001, Receiver::ProxyOutbound),
                    (1000, Receiver::Server),
                    (1337, Receiver::Server),
                ] {
                    pod.expect(
                        tcp("group", Place::Pod, to).of(Owner { uid: 1000, gid }),
                        by,
                    );
                }
            }
        },
    );
}

#[test]
fn excluded_groups_are_not_captured() {
    each(
        &REDIRECT,
        json!({ "owner_groups_exclude": "3000,3001" }),
        |pod| {
            for family in FAMILIES {
                let to = pod.service(family, 80);
                for (gid, by) in [
                    (3000, Receiver::Server),
                    (3001, Receiver::Server),
                    (1000, Receiver::ProxyOutbound),
                ] {
                    pod.expect(
                        tcp("group", Place::Pod, to).of(Owner { uid: 1000, gid }),
                        by,
                    );
                }
            }
        },
    );
}
