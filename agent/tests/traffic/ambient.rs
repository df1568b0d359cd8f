//! Pods in ambient mode, with a stand-in for ztunnel: transparent sockets with its mark.
// matrix: smoke; variants 6.12-rt

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, TcpListener, TcpStream};
use std::time::Duration;

use serde_json::{Value, json};
use weir_ambient::{Redirect, Request};
use weir_cni::compile::Engine;
use weir_cni::redirection::{Desired, Sandbox};
use weir_demo::{Flow, Lab, Mode, Outcome, Owner, Place, Protocol, Receiver, Stage, ZTUNNEL_MARK};
use weir_netlink::Netns;
use weir_netlink::route::{AddressFamily, Route, Routing};

use crate::ebpf;
use crate::support::{Case, Pod, REDIRECT, lab, tcp};

/// The source address of the kubelet's probes.
pub(super) fn probe(family: AddressFamily) -> IpAddr {
    match family {
        AddressFamily::V4 => Ipv4Addr::new(169, 254, 7, 127).into(),
        AddressFamily::V6 => Ipv6Addr::new(
            0xfd16, 0x9254, 0x7127, 0x1337, 0xffff, 0xffff, 0xffff, 0xffff,
        )
        .into(),
    }
}

fn loopback(family: AddressFamily) -> IpAddr {
    match family {
        AddressFamily::V4 => Ipv4Addr::LOCALHOST.into(),
        AddressFamily::V6 => Ipv6Addr::LOCALHOST.into(),
    }
}

/// The desired redirection of a pod with these overrides.
pub(super) fn wanted(dns: bool, pod: &Value) -> Redirect {
    let given = json!({
        "config": { "enable_ipv6": true, "redirect_dns": dns },
        "pod_overrides": pod,
    });
    let given = Request::from_json(&given.to_string(), "the test").expect("a request");
    Redirect::new(given.config, &given.pod_overrides).expect("a redirection")
}

/// Writes the rules into a namespace as the agent does.
pub(super) fn redirect(netns: &Netns, engine: Engine, dns: bool, pod: &Value) {
    let wanted = wanted(dns, pod);
    let sandbox = Sandbox::of(netns.try_clone().expect("a descriptor")).expect("a pod");
    let inside = |visit: &weir_cni::redirection::Visit<'_>| {
        visit.apply_intent(&wanted, Some(engine)).map(drop)
    };
    let done = sandbox.visit_for(Redirect::SCHEME, inside);
    done.expect("entered").unwrap_or_else(|e| panic!("{e}"));
}

/// A lab whose client has the address of the kubelet's probes.
pub(super) fn lab_with_probes() -> Option<Lab> {
    let lab = lab()?;
    for &family in lab.families() {
        lab.add_address(Place::Client, probe(family))
            .expect("the address of probes");
    }
    Some(lab)
}

/// Runs a check in a new pod for each engine of netfilter, and for eBPF if the kernel supports it.
fn each(dns: bool, overrides: &Value, check: impl Fn(&Pod<'_>)) {
    for case in REDIRECT {
        let Some(lab) = lab_with_probes() else { return };
        redirect(lab.netns(Place::Pod), case.engine, dns, overrides);
        let stage = Stage::ambient(&lab).expect("all listeners");
        check(&Pod::on(stage, &lab, case));
    }
    let Some(bpffs) = ebpf::mount() else { return };
    let Some(lab) = lab_with_probes() else { return };
    ebpf::redirect(&bpffs, lab.netns(Place::Pod), &wanted(dns, overrides));
    let stage = Stage::ambient(&lab).expect("all listeners");
    check(&Pod::by_ebpf(stage, &lab, &bpffs));
}

/// Connections without a mark: unlike beside a sidecar, the user does not matter.
#[test]
fn outbound_goes_to_ztunnel_and_its_own_does_not() {
    each(false, &json!({}), |pod| {
        for &family in pod.lab.families() {
            for to in [pod.service(family, 80), pod.outside(family, 443)] {
                for owner in [Owner::APPLICATION, Owner::ROOT, Owner::PROXY] {
                    pod.expect(
                        tcp("out", Place::Pod, to).of(owner),
                        Receiver::ProxyOutbound,
                    );
                }
                pod.expect(
                    tcp("ztunnel", Place::Pod, to).mark(ZTUNNEL_MARK),
                    Receiver::Server,
                );
                // The rules compare the mark under the mask 0xfff.
                let more = tcp("more bits", Place::Pod, to).mark(0x7000 | ZTUNNEL_MARK);
                pod.expect(more, Receiver::Server);
                let other = tcp("another mark", Place::Pod, to).mark(0x538);
                pod.expect(other, Receiver::ProxyOutbound);
            }
            for protocol in [Protocol::Udp, Protocol::Tcp] {
                let query = Flow::new("query", protocol, Place::Pod, pod.service(family, 53));
                let by = match protocol {
                    Protocol::Udp => Receiver::Server,
                    Protocol::Tcp => Receiver::ProxyOutbound,
                };
                pod.expect(query, by);
            }
        }
    });
}

#[test]
fn inbound_goes_to_ztunnel_but_for_hbone_and_probes() {
    each(false, &json!({}), |pod| {
        for &family in pod.lab.families() {
            for port in [8080, 9090, 4321] {
                let to = pod.at(Place::Pod, family, port);
                let seen = pod.expect(tcp("in", Place::Client, to), Receiver::ProxyInbound);
                let Outcome::Received { source, .. } = seen else {
                    unreachable!()
                };
                assert_eq!(source.ip(), pod.lab.address(Place::Client, family));
            }
            let to = pod.at(Place::Pod, family, 15008);
            pod.expect(tcp("HBONE", Place::Client, to), Receiver::ProxyTunnel);
            let to = pod.at(Place::Pod, family, 8080);
            let of_kubelet = tcp("probe", Place::Client, to).source((probe(family), 0).into());
            pod.expect(of_kubelet, Receiver::Application);
        }
    });
}

/// ztunnel connects with the address of the client. Without the policy rule and table 100, answers of the application would leave through
/// `eth0`.
#[test]
fn answers_to_ztunnel_return_to_it() {
    each(false, &json!({}), |pod| {
        for &family in pod.lab.families() {
            let client = (pod.lab.address(Place::Client, family), 0).into();
            let to = pod.at(Place::Pod, family, 8080);
            let flow = tcp("as the client", Place::Pod, to).source(client);
            pod.expect(flow.mark(ZTUNNEL_MARK), Receiver::Application);
        }
    });
}

#[test]
fn the_pod_reaches_itself() {
    each(true, &json!({}), |pod| {
        for &family in pod.lab.families() {
            for ip in [pod.lab.address(Place::Pod, family), loopback(family)] {
                let flow = tcp("itself", Place::Pod, (ip, 8080).into());
                pod.expect(flow, Receiver::Application);
            }
        }
    });
}

#[test]
fn captured_queries_go_to_ztunnel_and_its_own_to_the_server() {
    each(true, &json!({}), |pod| {
        for &family in pod.lab.families() {
            let to = pod.service(family, 53);
            for protocol in [Protocol::Udp, Protocol::Tcp] {
                let query = || Flow::new("query", protocol, Place::Pod, to);
                pod.expect(query(), Receiver::ProxyDns);
                pod.expect(query().mark(ZTUNNEL_MARK), Receiver::Server);
            }
            // Both use one source port: without a conntrack zone of its own, the second would belong to the connection of the first.
            let source = (pod.lab.address(Place::Pod, family), 40_053).into();
            let query = || Flow::new("query", Protocol::Udp, Place::Pod, to).source(source);
            pod.expect(query(), Receiver::ProxyDns);
            pod.expect(query().mark(ZTUNNEL_MARK), Receiver::Server);
        }
    });
}

#[test]
fn overrides_of_the_pod_leave_inbound_alone_and_switch_dns() {
    let overrides = json!({ "ingress_mode": true, "dns_proxy": "disabled" });
    each(true, &overrides, |pod| {
        for &family in pod.lab.families() {
            let to = pod.at(Place::Pod, family, 8080);
            pod.expect(tcp("in", Place::Client, to), Receiver::Application);
            let to = pod.service(family, 53);
            let query = Flow::new("query", Protocol::Udp, Place::Pod, to);
            pod.expect(query, Receiver::Server);
            let to = pod.service(family, 80);
            pod.expect(tcp("out", Place::Pod, to), Receiver::ProxyOutbound);
        }
    });
}

#[test]
fn what_comes_from_a_virtual_machine_is_outbound() {
    let overrides = json!({ "virtual_interfaces": ["k6t-a", "k6t-b"] });
    each(false, &overrides, |pod| {
        let vm = pod.lab.attach("k6t-a", Place::Client, 8).expect("k6t-a");
        pod.again(&wanted(false, &overrides));
        for &family in pod.lab.families() {
            let to = (vm.pod(family), 80).into();
            let guest = tcp("guest", Place::Client, to).source((vm.peer(family), 0).into());
            pod.expect(guest, Receiver::ProxyOutbound);
            let to = pod.at(Place::Pod, family, 8080);
            pod.expect(tcp("in", Place::Client, to), Receiver::ProxyInbound);
        }
    });
}

/// The answers of a virtual machine are no new connections, and in ingress mode nothing captures those that others open to it.
#[test]
fn a_virtual_machine_answers_connections() {
    let overrides = json!({ "virtual_interfaces": ["k6t-a"], "ingress_mode": true });
    each(false, &overrides, |pod| {
        let [pod_netns, server, client] =
            [Place::Pod, Place::Server, Place::Client].map(|place| pod.lab.netns(place));
        let vm = pod.lab.attach("k6t-a", Place::Client, 8).expect("k6t-a");
        let other = pod.lab.attach("eth1", Place::Server, 9).expect("eth1");
        pod.again(&wanted(false, &overrides));
        for &family in pod.lab.families() {
            let sysctl = match family {
                AddressFamily::V4 => "/proc/sys/net/ipv4/ip_forward",
                AddressFamily::V6 => "/proc/sys/net/ipv6/conf/all/forwarding",
            };
            let forward = pod_netns.run(|| std::fs::write(sysctl, "1"));
            forward.expect("entered").expect("forwards");
            let to_vm = Route::unicast(vm.peer(family).into(), Some(other.pod(family)), None);
            let back = Route::unicast(other.peer(family).into(), Some(vm.pod(family)), None);
            for (netns, route) in [(server, to_vm), (client, back)] {
                let routing = Routing::open_in(netns).expect("a socket");
                routing.add_route(&route).expect("a route");
            }
            let listens = client.run(|| TcpListener::bind((vm.peer(family), 2222)));
            let listens = listens.expect("entered").expect("listens");
            let to = listens.local_addr().expect("an address");
            let begins = server.run(|| TcpStream::connect_timeout(&to, Duration::from_secs(3)));
            let mut begun = begins.expect("entered").expect("the machine answers");
            let (mut accepted, from) = listens.accept().expect("accepted");
            assert_eq!(from.ip(), other.peer(family));
            accepted.write_all(b"data").expect("written");
            let mut read = [0; 4];
            begun.read_exact(&mut read).expect("read");
            assert_eq!(&read, b"data");
        }
    });
}

/// Writes the rules into a namespace as an agent without `NATIVE_NFTABLES` does, with an automatically chosen engine.
fn redirect_chosen(netns: &Netns, engine: Engine, wanted: &Redirect) {
    let sandbox = Sandbox::of(netns.try_clone().expect("a descriptor")).expect("a pod");
    let applied = sandbox.apply(&wanted.compile_chosen(engine));
    applied.unwrap_or_else(|e| panic!("{e}"));
}

/// Rules of an automatically chosen engine have the effect of upstream's rules in legacy tables.
#[test]
fn a_chosen_engine_leaves_ipv6_alone_and_takes_interfaces_by_their_prefix() {
    for case in REDIRECT {
        let Some(lab) = lab_with_probes() else { return };
        let given = json!({
            "config": { "enable_ipv6": false, "redirect_dns": true },
            "pod_overrides": { "virtual_interfaces": ["k6t+"] },
        });
        let given = Request::from_json(&given.to_string(), "the test").expect("a request");
        let wanted = Redirect::new(given.config, &given.pod_overrides).expect("a redirection");
        redirect_chosen(lab.netns(Place::Pod), case.engine, &wanted);
        let stage = Stage::ambient(&lab).expect("all listeners");
        let pod = Pod::on(stage, &lab, case);
        let vm = lab.attach("k6t-a", Place::Client, 8).expect("k6t-a");
        for &family in lab.families() {
            let is_v4 = family == AddressFamily::V4;
            let by = |receiver, other| if is_v4 { receiver } else { other };
            let query = Flow::new("query", Protocol::Udp, Place::Pod, pod.service(family, 53));
            pod.expect(query, by(Receiver::ProxyDns, Receiver::Server));
            let out = tcp("out", Place::Pod, pod.service(family, 80));
            pod.expect(out, by(Receiver::ProxyOutbound, Receiver::Server));
            let guest = tcp("guest", Place::Client, (vm.pod(family), 8080).into());
            let guest = guest.source((vm.peer(family), 0).into());
            let direct = Receiver::Application;
            pod.expect(guest, by(Receiver::ProxyOutbound, direct));
            let to = pod.at(Place::Pod, family, 8080);
            let into = tcp("in", Place::Client, to);
            pod.expect(into, by(Receiver::ProxyInbound, direct));
        }
    }
}

/// This proves that the other tests would fail without rules: plain text reaches receivers that they do not expect.
#[test]
fn without_rules_everything_passes_ztunnel_by() {
    let Some(lab) = lab() else { return };
    let stage = Stage::ambient(&lab).expect("all listeners");
    let case = Case {
        mode: Mode::Redirect,
        engine: Engine::Nft,
    };
    let pod = Pod::on(stage, &lab, case);
    for &family in pod.lab.families() {
        let to = pod.service(family, 80);
        pod.expect(tcp("out", Place::Pod, to), Receiver::Server);
        let to = pod.at(Place::Pod, family, 8080);
        pod.expect(tcp("in", Place::Client, to), Receiver::Application);
        for protocol in [Protocol::Udp, Protocol::Tcp] {
            let query = Flow::new("query", protocol, Place::Pod, pod.service(family, 53));
            pod.expect(query, Receiver::Server);
        }
    }
}
