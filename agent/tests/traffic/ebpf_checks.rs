//! Acceptance checks of eBPF mode inside the pod, with their numbers.
// matrix: smoke

use serde_json::json;
use weir_demo::{Flow, Lab, Outcome, Place, Protocol, Receiver, Stage};
use weir_netfilter::conntrack::Conntrack;
use weir_netlink::route::AddressFamily;

use crate::ambient::{lab_with_probes, wanted};
use crate::ebpf::{mount, redirect};
use crate::support::{Pod, tcp};

/// Runs a check in a pod that is redirected by eBPF, if the kernel supports it.
fn in_pod(dns: bool, check: impl Fn(&Pod<'_>)) {
    let Some(mounted) = mount() else { return };
    let Some(lab) = lab_with_probes() else { return };
    redirect(&mounted, lab.netns(Place::Pod), &wanted(dns, &json!({})));
    let stage = Stage::ambient(&lab).expect("all listeners");
    check(&Pod::by_ebpf(stage, &lab, &mounted));
}

/// The number of conntrack entries in the pod; zero if the kernel has no such table.
fn tracked(lab: &Lab) -> usize {
    let count = || {
        let mut entries = 0;
        for ipv6 in [false, true] {
            Conntrack::open()?.each(ipv6, |_| {
                entries += 1;
                Ok(())
            })?;
        }
        Ok::<_, weir_netlink::Error>(entries)
    };
    let counted = lab.netns(Place::Pod).run(count).expect("entered");
    counted.unwrap_or_else(|e| {
        println!("no connection tracking to read: {e}");
        0
    })
}

/// Original destination, client address and listener of each path, and no conntrack entry.
#[test]
fn check_2_addresses_are_kept_and_nothing_is_tracked() {
    in_pod(false, |pod| {
        for &family in pod.lab.families() {
            let own = pod.lab.address(Place::Pod, family);
            let client = pod.lab.address(Place::Client, family);
            for (from, to, by, sender) in [
                (
                    Place::Pod,
                    pod.service(family, 80),
                    Receiver::ProxyOutbound,
                    own,
                ),
                (
                    Place::Client,
                    pod.at(Place::Pod, family, 8080),
                    Receiver::ProxyInbound,
                    client,
                ),
                (
                    Place::Client,
                    pod.at(Place::Pod, family, 15008),
                    Receiver::ProxyTunnel,
                    client,
                ),
            ] {
                let got = pod.expect(tcp("path", from, to), by);
                let Outcome::Received { local, source, .. } = got else {
                    unreachable!()
                };
                assert_eq!((local, source.ip()), (to, sender), "{from:?} {by}");
            }
        }
        assert_eq!(tracked(pod.lab), 0);
    });
}

/// A second address is captured like the first. An interface that is added later is captured after the next comparison.
#[test]
fn check_7_more_addresses_and_interfaces_are_captured() {
    in_pod(false, |pod| {
        let second = pod.lab.attach("eth1", Place::Client, 8).expect("eth1");
        let inside = |family| {
            let to = (second.pod(family), 8080).into();
            tcp("in by eth1", Place::Client, to).source((second.peer(family), 0).into())
        };
        for &family in pod.lab.families() {
            // Without programs at eth1, its traffic is plain text.
            pod.expect(inside(family), Receiver::Application);
        }
        pod.again(&wanted(false, &json!({})));
        for &family in pod.lab.families() {
            pod.expect(inside(family), Receiver::ProxyInbound);
            let more = match family {
                AddressFamily::V4 => "10.99.0.7".parse().expect("an address"),
                AddressFamily::V6 => "fd99::7".parse().expect("an address"),
            };
            pod.lab
                .add_address(Place::Pod, more)
                .expect("a second address");
            let to = (more, 8080).into();
            // Without an explicit source the client might use its other address, that of probes.
            let client = (pod.lab.address(Place::Client, family), 0).into();
            let into = tcp("in", Place::Client, to).source(client);
            let got = pod.expect(into, Receiver::ProxyInbound);
            let Outcome::Received { source, .. } = got else {
                unreachable!()
            };
            assert_eq!(source.ip(), pod.lab.address(Place::Client, family));
            let out = tcp("out", Place::Pod, pod.service(family, 80)).source((more, 0).into());
            pod.expect(out, Receiver::ProxyOutbound);
        }
    });
}

/// A pair of netkit links in the modes `NETKIT_L2` and `NETKIT_L3`: with `NETKIT_L3` the frame has a header, too, without addresses.
#[test]
fn check_7_a_netkit_pair_is_captured() {
    for mode in [0, 1] {
        in_pod(false, |pod| {
            let attached = pod.lab.attach_netkit(mode, "eth1", Place::Client, 8);
            let second = match attached {
                Ok(second) => second,
                Err(e) if e.errno() == Some(nix::errno::Errno::EOPNOTSUPP as i32) => {
                    println!("skipped: link netkit (since 6.7): {e}");
                    return;
                }
                Err(e) => panic!("{e}"),
            };
            let outside = |family| tcp("out", Place::Pod, (second.peer(family), 80).into());
            let inside = |family| {
                let to = (second.pod(family), 8080).into();
                tcp("in", Place::Client, to).source((second.peer(family), 0).into())
            };
            for &family in pod.lab.families() {
                // Without programs at eth1, its traffic is plain text.
                pod.expect(inside(family), Receiver::Application);
            }
            pod.again(&wanted(false, &json!({})));
            for &family in pod.lab.families() {
                pod.expect(inside(family), Receiver::ProxyInbound);
                pod.expect(outside(family), Receiver::ProxyOutbound);
            }
        });
    }
}

/// Queries reach the server if DNS is not captured, and port 15053 if it is.
#[test]
fn check_9_dns_goes_to_ztunnel_only_where_it_is_captured() {
    for (dns, by) in [(false, Receiver::Server), (true, Receiver::ProxyDns)] {
        in_pod(dns, |pod| {
            for &family in pod.lab.families() {
                let to = pod.service(family, 53);
                pod.expect(Flow::new("query", Protocol::Udp, Place::Pod, to), by);
            }
        });
    }
}
