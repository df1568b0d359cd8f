//! Unusual frames and interfaces, with programs in the pod.
// matrix: smoke

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::process::Command;
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::socket::{MsgFlags, sendto};
use serde_json::json;
use weir_demo::{Place, Receiver, Stage};
use weir_ebpf::Pod as EbpfPod;
use weir_ebpf::asm::{Assembler, Helper, Reg};
use weir_netlink::Netns;
use weir_netlink::route::{AddressFamily, Filter, FilterKind, Qdisc, Routing, TcHandle};

use crate::ambient::{lab_with_probes, wanted};
use crate::ebpf::{bpffs, count, mount, redirect, syn, until};
use crate::lab_or_skip;
use crate::support::tcp;

/// Adds `tags` tags with VLAN ID 0 to every frame that leaves through the link.
fn tag(netns: &Netns, link: &str, tags: usize) {
    use Reg::{R0, R1, R2, R3, R6};
    let mut asm = Assembler::new();
    asm.mov(R6, R1);
    for _ in 0..tags {
        asm.mov(R1, R6);
        // 802.1Q
        asm.mov(R2, 0);
        asm.mov(R3, 0);
        asm.call(Helper::VlanPush);
    }
    asm.mov(R0, 0);
    asm.exit();
    let code = asm.finish().expect("assembled");
    let program = code.load("tags", &[]).expect("loaded");
    let routing = Routing::open_in(netns).expect("a socket");
    let index = routing.link(link).expect("a link").index;
    let added = routing.add_qdisc(&Qdisc::clsact(index));
    assert!(added.expect("a qdisc"));
    let kind = FilterKind::bpf(program.as_fd(), "tags");
    let added = routing.add_filter(&Filter::new(index, TcHandle::EGRESS, 1, kind));
    assert!(added.expect("a filter"));
}

/// A tag with VLAN ID 0 only carries a priority: the kernel delivers such frames as if untagged, whatever the number of tags.
///
/// Before the programs run, the kernel has removed the first tag, but no further ones.
#[test]
fn frames_with_tags_of_a_priority_do_not_pass_the_capture_by() {
    let Some(mounted) = mount() else { return };
    for tags in 0..=3 {
        let Some(lab) = lab_with_probes() else { return };
        let eth1 = lab.attach("eth1", Place::Client, 8).expect("eth1");
        tag(lab.netns(Place::Client), "eth1", tags);
        let stage = Stage::ambient(&lab).expect("all listeners");
        let got = |by: Option<Receiver>| {
            for &family in lab.families() {
                let to = (eth1.pod(family), 8080).into();
                let source = (eth1.peer(family), 0).into();
                let inside = tcp("in by eth1", Place::Client, to).source(source);
                let outcome = stage.send(&inside).expect("sent");
                assert_eq!(outcome.by(), by, "{tags} tags: {outcome}");
            }
        };
        got(Some(Receiver::Application));
        redirect(&mounted, lab.netns(Place::Pod), &wanted(false, &json!({})));
        got((tags < 2).then_some(Receiver::ProxyInbound));
    }
}

/// Acceptance check 7 of eBPF mode: a pod with ten interfaces.
#[test]
fn check_7_ten_interfaces_are_captured() {
    const MORE: u8 = 9;
    let Some(mounted) = mount() else { return };
    let Some(lab) = lab_with_probes() else { return };
    let attach = |number| {
        let name = format!("eth{number}");
        lab.attach(&name, Place::Client, 20 + number)
            .expect("a pair")
    };
    let more: Vec<_> = (1..=MORE).map(attach).collect();
    let stage = Stage::ambient(&lab).expect("all listeners");
    let got = |inbound: Receiver, outbound: Option<Receiver>| {
        for (n, link) in more.iter().enumerate() {
            for &family in lab.families() {
                let (own, peer) = (link.pod(family), link.peer(family));
                let inside = tcp("in", Place::Client, (own, 8080).into()).source((peer, 0).into());
                let outcome = stage.send(&inside).expect("sent");
                assert_eq!(outcome.by(), Some(inbound), "eth{}: {outcome}", n + 1);
                // Nothing listens there.
                let out = tcp("out", Place::Pod, (peer, 80).into());
                let outcome = stage.send(&out).expect("sent");
                assert_eq!(outcome.by(), outbound, "eth{}: {outcome}", n + 1);
            }
        }
    };
    got(Receiver::Application, None);
    redirect(&mounted, lab.netns(Place::Pod), &wanted(false, &json!({})));
    got(Receiver::ProxyInbound, Some(Receiver::ProxyOutbound));
    let bpffs = bpffs(&mounted);
    let pod = EbpfPod::of(lab.netns(Place::Pod), &bpffs).expect("a pod");
    pod.remove().expect("removed");
    got(Receiver::Application, None);
}

/// Packets of an interface without Ethernet headers, such as WireGuard's, cannot be redirected: the error names it, and nothing is changed.
///
/// While the interface is down, no packet leaves through it.
#[test]
fn an_interface_without_ethernet_is_named_and_nothing_is_changed() {
    let Some(mounted) = mount() else { return };
    let Some(lab) = lab_with_probes() else { return };
    let netns = lab.netns(Place::Pod);
    let ip = |args: &str| {
        let run = || Command::new("ip").args(args.split_whitespace()).output();
        let run = netns.run(run).expect("entered");
        run.is_ok_and(|run| run.status.success())
    };
    if !ip("tuntap add mode tun name tun0") {
        println!("skipped: no ip, or no TUN in this kernel");
        return;
    }
    let bpffs = bpffs(&mounted);
    let pod = EbpfPod::of(netns, &bpffs).expect("a pod");
    assert!(ip("link set tun0 up"));
    for refused in [
        pod.plan(&wanted(false, &json!({}))).map(drop),
        pod.apply(&wanted(false, &json!({}))).map(drop),
    ] {
        let text = refused.expect_err("refused").to_string();
        let is_named = text.contains("interface tun0") && text.contains("no Ethernet header");
        assert!(is_named, "{text}");
    }
    assert!(!pod.is_present().expect("read"));
    let shown = weir_ebpf::show::read(netns, Some(&bpffs)).expect("read");
    assert!(shown.programs.is_empty(), "{shown}");
    assert!(ip("link set tun0 down"));
    redirect(&mounted, netns, &wanted(false, &json!({})));
    // The error occurs once the interface is up.
    assert!(ip("link set tun0 up"));
    let text = pod.verify(&wanted(false, &json!({}))).expect_err("refused");
    assert!(text.to_string().contains("interface tun0"), "{text}");
}

/// Only the first fragment contains the port. If DNS is captured, that fragment is dropped, so that no query bypasses ztunnel.
#[test]
fn a_query_in_fragments_does_not_pass_the_capture_by() {
    let Some(mounted) = mount() else { return };
    let lab = lab_or_skip!();
    let bpffs = bpffs(&mounted);
    let netns = lab.netns(Place::Pod);
    let pod = EbpfPod::of(netns, &bpffs).expect("a pod");
    let bound = |place: Place, at: SocketAddr| {
        let bind = || weir_testing::sockets::bound(|| UdpSocket::bind(at));
        let bound = lab.netns(place).run(bind).expect("entered");
        bound.expect("a free port")
    };
    let mut dropped = 0;
    for (dns, port) in [(false, 53), (true, 54), (true, 53)] {
        redirect(&mounted, netns, &wanted(dns, &json!({})));
        for &family in lab.families() {
            let any = match family {
                AddressFamily::V4 => Ipv4Addr::UNSPECIFIED.into(),
                AddressFamily::V6 => Ipv6Addr::UNSPECIFIED.into(),
            };
            let to = SocketAddr::new(lab.service(family), port);
            let server = bound(Place::Server, to);
            let client = bound(Place::Pod, SocketAddr::new(any, 0));
            client.send_to(&[7; 4000], to).expect("sent");
            let is_query = dns && port == 53;
            dropped += u64::from(is_query);
            if is_query {
                until("it is dropped", || count(&pod, "fragments") == dropped);
            } else {
                let limit = Some(Duration::from_secs(30));
                server.set_read_timeout(limit).expect("a limit");
                let mut got = [0; 5000];
                assert_eq!(server.recv(&mut got).expect("it arrives"), 4000, "{to}");
            }
        }
    }
    assert_eq!(count(&pod, "fragments"), dropped);
}

/// Sends the frame through a packet socket, so that no tag is removed before the programs run. Returns whether they accept it.
fn send_frame(netns: &Netns, frame: &[u8]) -> bool {
    let send = || {
        let socket = socket2::Socket::new(socket2::Domain::PACKET, socket2::Type::RAW, None);
        let socket = socket.expect("a packet socket");
        let links = nix::ifaddrs::getifaddrs().expect("the links");
        let links = links.filter(|link| link.interface_name == "eth0");
        let to = links.filter_map(|link| link.address?.as_link_addr().copied());
        let to = to.last().expect("the address of eth0");
        sendto(socket.as_raw_fd(), frame, &to, MsgFlags::empty())
    };
    match netns.run(send).expect("entered") {
        Ok(sent) => sent == frame.len(),
        // The kernel reports the drop to the sender.
        Err(Errno::ENOBUFS) => false,
        Err(e) => panic!("cannot send: {e}"),
    }
}

/// The peer removes tags with VLAN ID 0 and delivers the contents; it has no interface for other VLANs.
#[test]
fn frames_of_packet_sockets_do_not_hide_behind_tags() {
    let Some(mounted) = mount() else { return };
    let lab = lab_or_skip!();
    let netns = lab.netns(Place::Pod);
    redirect(&mounted, netns, &wanted(false, &json!({})));
    let bpffs = bpffs(&mounted);
    let pod = EbpfPod::of(netns, &bpffs).expect("a pod");
    let [IpAddr::V4(from), IpAddr::V4(to)] = [
        lab.address(Place::Pod, AddressFamily::V4),
        lab.service(AddressFamily::V4),
    ] else {
        unreachable!()
    };
    let mut packet = vec![0x45, 0, 0, 40, 0, 1, 0, 0, 64, 6, 0, 0];
    packet.extend(from.octets());
    packet.extend(to.octets());
    packet.extend(syn(80));
    let mut hidden = 0;
    for (tags, is_hidden) in [
        (&[][..], false),
        (&[(0x8100, 5)], false),
        (&[(0x8100, 0)], true),
        (&[(0x8100, 0xe000)], true),
        (&[(0x88a8, 0), (0x8100, 0)], true),
    ] {
        let mut frame = vec![2; 12];
        for (kind, tag) in tags {
            frame.extend(u16::to_be_bytes(*kind));
            frame.extend(u16::to_be_bytes(*tag));
        }
        frame.extend([8, 0]);
        frame.extend(&packet);
        hidden += u64::from(is_hidden);
        assert_eq!(send_frame(netns, &frame), !is_hidden, "{tags:x?}");
        assert_eq!(count(&pod, "cannot be read"), hidden, "{tags:x?}");
    }
}
