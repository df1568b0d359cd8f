//! Acceptance checks of eBPF mode inside of the pod, each by its number.
// matrix: smoke

use serde_json::json;
use weir_demo::{Flow, Lab, Outcome, Place, Protocol, Receiver, Stage};
use weir_netfilter::conntrack::Conntrack;
use weir_netlink::route::AddressFamily;

use crate::ambient::{lab_with_probes, wanted};
use crate::ebpf::{mount, redirect};
use crate::support::{Pod, tcp};

/// Runs a check in a pod that is redirected by eBPF, where the kernel has it.
fn in_pod(dns: bool, check: impl Fn(&Pod<'_>)) {
    let Some(mounted) = mount() else { return };
    let Some(lab) = lab_with_probes() else { return };
    redirect(&mounted, lab.netns(Place::Pod), &wanted(dns, &json!({})));
    let stage = Stage::ambient(&lab).expect("all listeners");
    check(&Pod::by_ebpf(stage, &lab, &mounted));
}

/// Entries of connection tracking in the pod; none where the kernel has no such table.
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

/// Original destination, client address and listener of each path, and no entry of connection tracking.
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

/// A second address, and an interface that comes later: captured as the first ones, the interface after the next look.
#[test]
fn check_7_more_addresses_and_interfaces_are_captured() {
    in_pod(false, |pod| {
        let second = pod.lab.attach("eth1", Place::Client, 8).expect("eth1");
        let inside = |family| {
            let to = (second.pod(family), 8080).into();
            tcp("in by eth1", Place::Client, to).source((second.peer(family), 0).into())
        };
        for &family in pod.lab.families() {
            // Without programs at eth1 it is plain text.
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
            // Without a source the client might choose its other address, which is that of probes.
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

/// A pair of netkit links in mode `NETKIT_L2` and `NETKIT_L3`: the header of a frame is there in `NETKIT_L3`, too, without addresses in it.
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
                // Without programs at eth1 it is plain text.
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

/// Queries go to the server without the capture of DNS, and to port 15053 with it.
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
