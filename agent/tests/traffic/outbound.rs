//! Outbound traffic of the pod.
// matrix: smoke; variants 6.12-rt

use serde_json::json;
use weir_demo::{Owner, Place, Receiver};

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
            // The group alone is sufficient.
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

/// Upstream accepts 64 groups. In nf_tables a rule has no room for so many comparisons, and even less for ranges.
#[test]
fn as_many_groups_as_upstream_takes_are_captured() {
    fn list(group: impl Fn(u32) -> String) -> String {
        (0..64).map(group).collect::<Vec<_>>().join(",")
    }
    let single = list(|n| (2000 + 10 * n).to_string());
    let ranges = list(|n| format!("{}-{}", 2000 + 10 * n, 2004 + 10 * n));
    // Each range begins where the next one ends.
    let overlapping = list(|n| format!("{}-{}", 2630 - 10 * n, 2640 - 10 * n));
    for (list, inside, outside) in [
        (single, vec![2000, 2630], vec![1999, 2001, 2625, 2631]),
        (ranges, vec![2000, 2002, 2004, 2634], vec![1999, 2005, 2635]),
        (overlapping, vec![2000, 2005, 2333, 2640], vec![1999, 2641]),
    ] {
        let (inside, outside) = (&inside, &outside);
        let more = json!({ "owner_groups_include": list });
        each(&REDIRECT, more, |pod| {
            for family in FAMILIES {
                let to = pod.service(family, 80);
                for (groups, by) in [
                    (inside, Receiver::ProxyOutbound),
                    (outside, Receiver::Server),
                ] {
                    for gid in groups.iter().copied() {
                        let owner = Owner { uid: 1000, gid };
                        pod.expect(tcp("group", Place::Pod, to).of(owner), by);
                    }
                }
            }
        });
    }
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
