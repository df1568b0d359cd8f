//! Captured bytes of iproute2 6.1 and of the crate rtnetlink, and random values of every declaration.

use super::*;
use crate::attr::Writer;
use crate::message::{FamilyHeader, IfInfoMsg, Message};
use std::fmt::Debug;

fn bytes(hex: &str) -> Vec<u8> {
    let hex = hex.replace(' ', "");
    let byte = |n| u8::from_str_radix(&hex[n..n + 2], 16).unwrap();
    (0..hex.len()).step_by(2).map(byte).collect()
}

/// Checks that the payload after `struct nlmsghdr` that `ip` or `tc` sent (`strace -e trace=sendmsg -e write=all`) decodes to
/// the header and attributes that this crate builds for the same object.
fn golden<H, A>(hex: &str, (header, attrs): (H, A))
where
    H: FamilyHeader + PartialEq + Debug,
    A: AttrSet + PartialEq + Debug,
{
    let theirs = Message::<H>::of(0, 0, &bytes(hex)).unwrap();
    assert_eq!(theirs.header, header);
    // Both are compared after decoding, because the order of attributes may differ.
    let mut w = Writer::new();
    attrs.encode(&mut w);
    let ours = A::decode(&w.finish().unwrap()).unwrap();
    assert_eq!(theirs.decode::<A>().unwrap(), ours);
}

#[test]
fn links_are_what_ip_sends() {
    let geneve = LinkKind::Geneve(Geneve {
        id: Some(42),
        remote: Some([192, 0, 2, 1].into()),
        label: Some(0),
        ttl: Some(3),
        tos: Some(0),
        port: Some(6082),
        ..Geneve::default()
    });
    // ip link add g0 type geneve id 42 remote 192.0.2.1 dstport 6082 ttl 3
    let head = "00000000000000000000000000000000";
    let name = "0700030067300000";
    let kind = "440012000a00010067656e6576650000";
    let data = "34000200080001002a00000008000200c000020108000b0000000000050003000300000005000400000000000600050017c20000";
    let hex = [head, name, kind, data].concat();
    let theirs = Message::<IfInfoMsg>::of(0, 0, &bytes(&hex)).unwrap();
    let read = link::read(&theirs).unwrap().unwrap();
    assert_eq!((read.name.as_str(), read.kind), ("g0", Some(geneve)));
    // ip link add v0 type veth peer name v1
    let hex = [
        head,
        "07000300763000002c00120008000100766574682000",
        "02001c00010000000000000000000000000000000000070003007631",
        "0000",
    ];
    let peer = Link {
        name: "v1".to_owned(),
        ..Link::default()
    };
    let pair = Link::new("v0", LinkKind::veth(&peer, None).unwrap());
    let ours = pair.build("add", None).unwrap();
    // Only this crate sets NLA_F_NESTED for the peer.
    let mut plain = ours.clone();
    if let Some(data) = plain.1.info.as_mut().and_then(|info| info.data.as_mut()) {
        data[3] &= 0x7f;
    }
    golden(&hex.concat(), plain);
}

/// Checks that the request of `ip` is read as this kind, and that this crate sends the same for it.
fn golden_kind(hex: &str, name: &str, kind: &LinkKind) {
    let theirs = Message::<IfInfoMsg>::of(0, 0, &bytes(hex)).unwrap();
    let read = link::read(&theirs).unwrap().unwrap();
    assert_eq!((read.name.as_str(), read.kind.as_ref()), (name, Some(kind)));
    golden(
        hex,
        Link::new(name, kind.clone()).build("add", None).unwrap(),
    );
}

#[test]
fn tunnels_bridges_and_dummies_are_what_ip_sends() {
    let head = "00000000000000000000000000000000";
    // ip link add x0 type vxlan id 42 remote 192.0.2.7 dstport 4789 ttl 3 dev d0
    let vxlan = LinkKind::Vxlan(Vxlan {
        id: Some(42),
        remote: Some([192, 0, 2, 7].into()),
        link: Some(3),
        ttl: Some(3),
        learning: Some(1),
        port: Some(4789),
        ..Vxlan::default()
    });
    let name = "07000300 78300000 44001200 09000100 76786c61 6e000000 34000200";
    let data = "05000500 03000000 08000300 03000000 08000100 2a000000 08000200 c0000207 05000700 01000000 06000f00 12b50000";
    // The order of the attributes differs.
    let hex = [head, name, data].concat();
    let theirs = Message::<IfInfoMsg>::of(0, 0, &bytes(&hex)).unwrap();
    let read = link::read(&theirs).unwrap().unwrap();
    assert_eq!((read.name.as_str(), read.kind), ("x0", Some(vxlan)));
    // ip link add b0 type bridge forward_delay 1500 hello_time 200 max_age 2000 ageing_time 30000 stp_state 1 priority 4096
    // vlan_filtering 1 vlan_protocol 802.1ad group_fwd_mask 8
    let bridge = LinkKind::Bridge(Bridge {
        forward_delay: Some(1500),
        hello_time: Some(200),
        max_age: Some(2000),
        ageing_time: Some(30_000),
        stp_state: Some(1),
        priority: Some(4096),
        vlan_filtering: Some(1),
        vlan_protocol: Some(0x88a8),
        group_fwd_mask: Some(8),
        ..Bridge::default()
    });
    let name = "07000300 62300000 5c001200 0a000100 62726964 67650000 4c000200";
    let times = "08000100 dc050000 08000200 c8000000 08000300 d0070000 08000400 30750000";
    let others =
        "08000500 01000000 06000600 00100000 05000700 01000000 06000800 88a80000 06000900 08000000";
    golden_kind(&[head, name, times, others].concat(), "b0", &bridge);
    // ip link add u0 type dummy
    let hex = [
        head,
        "07000300 75300000 10001200 09000100 64756d6d 79000000",
    ]
    .concat();
    golden_kind(&hex, "u0", &LinkKind::Dummy(Dummy::default()));
}

/// iproute2 has netkit since 6.7.
#[test]
fn a_netkit_pair_is_what_rtnetlink_sends() {
    use rtnetlink::packet_core::{Emitable as _, Parseable as _};
    use rtnetlink::packet_route::link::{
        InfoData, InfoKind, InfoNetkit, LinkAttribute, LinkInfo, LinkMessage, NetkitMode,
        NetkitPolicy,
    };
    let mut peer = LinkMessage::default();
    peer.attributes = vec![LinkAttribute::IfName("n1".to_owned())];
    let data = vec![
        InfoNetkit::Peer(peer),
        InfoNetkit::Policy(NetkitPolicy::Drop),
        InfoNetkit::PeerPolicy(NetkitPolicy::Pass),
        InfoNetkit::Mode(NetkitMode::L3),
    ];
    let mut message = LinkMessage::default();
    message.attributes = vec![
        LinkAttribute::IfName("n0".to_owned()),
        LinkAttribute::LinkInfo(vec![
            LinkInfo::Kind(InfoKind::Netkit),
            LinkInfo::Data(InfoData::Netkit(data)),
        ]),
    ];
    let mut bytes = vec![0; message.buffer_len()];
    message.emit(&mut bytes);
    let peer = Link {
        name: "n1".to_owned(),
        ..Link::default()
    };
    let kind = LinkKind::netkit(&peer, None).unwrap();
    let LinkKind::Netkit(netkit) = kind else {
        panic!("{kind:?}")
    };
    let kind = LinkKind::Netkit(Netkit {
        policy: Some(2),
        peer_policy: Some(0),
        ..netkit
    });
    let theirs = Message::<IfInfoMsg>::of(0, 0, &bytes).unwrap();
    let read = link::read(&theirs).unwrap().unwrap();
    assert_eq!(
        (read.name.as_str(), read.kind.as_ref()),
        ("n0", Some(&kind))
    );
    let (_, ours) = Link::new("n0", kind).build("add", None).unwrap();
    let mut w = Writer::new();
    ours.encode(&mut w);
    let ours = [[0; 16].as_slice(), &w.finish().unwrap()].concat();
    assert_eq!(LinkMessage::parse(ours.as_slice()).unwrap(), message);
}

#[test]
fn routes_rules_and_addresses_are_what_ip_sends() {
    // ip route add 10.9.0.0/16 dev lo table 300 metric 5 proto 119
    let route = Route {
        table: 300,
        priority: Some(5),
        ..Route::unicast("10.9.0.0/16".parse().unwrap(), None, Some(1)).by(119.into())
    };
    let hex = "0210000000 77fd01 00000000 080001000a090000 08000f002c010000 0800060005000000 0800040001000000";
    golden(hex, routes::build(&route));
    // ip -6 route add 2001:db8::/64 via fe80::1 dev d0 metric 7 table 133 proto 119
    let gateway = Some("fe80::1".parse().unwrap());
    let route = Route {
        table: 133,
        priority: Some(7),
        ..Route::unicast("2001:db8::/64".parse().unwrap(), gateway, Some(3)).by(119.into())
    };
    let hex = "0a400000 85770001 00000000 14000100 20010db8000000000000000000000000 \
               14000500 fe800000000000000000000000000001 0800060007000000 0800040003000000";
    golden(hex, routes::build(&route));
    // ip rule add fwmark 0x539/0xfff lookup 133 pref 100 proto 119
    let rule = PolicyRule {
        fwmask: Some(0xfff),
        priority: Some(100),
        ..PolicyRule::mark(AddressFamily::V4, 0x539, 133).by(119.into())
    };
    let hex = "02000000 85000001 00000000 08000a0039050000 08001000ff0f0000 0800060064000000 0500150077000000";
    golden(hex, rule::build(&rule));
    // ip address add 10.1.2.3/24 dev lo
    let hex = "02180000 01000000 080002000a010203 080001000a010203";
    let ours = address::build(1, "10.1.2.3/24".parse().unwrap());
    golden(hex, ours);
    // ip address add fd00::5/64 dev d0
    let local = "fd000000000000000000000000000005";
    let hex = format!("0a400000 03000000 14000200 {local} 14000100 {local}");
    let (header, ours) = address::build(3, "fd00::5/64".parse().unwrap());
    // This crate adds the flag `nodad`.
    let plain = address::AddressAttrs {
        flags: None,
        ..ours
    };
    golden(
        &hex,
        (crate::message::IfAddrMsg { flags: 0, ..header }, plain),
    );
}

#[test]
fn neighbours_qdiscs_and_filters_are_what_the_tools_send() {
    // ip neigh replace fd00::9 lladdr 02:00:00:00:00:01 dev d0 nud permanent
    let neighbour = Neighbour::permanent(3, "fd00::9".parse().unwrap(), [2, 0, 0, 0, 0, 1]);
    let hex = "0a000000 03000000 80000000 14000100fd000000000000000000000000000009 0a00020002000000 00010000";
    golden(hex, neighbour.build());
    // tc qdisc add dev lo clsact
    let hex = "00000000 01000000 0000ffff f1ffffff 00000000 0b000100636c736163740000";
    golden(hex, Qdisc::clsact(1).build());
    // tc filter add dev d0 egress pref 77 handle 9 matchall classid 1:2
    let kind = FilterKind::Matchall(Matchall {
        classid: Some(0x0001_0002),
        ..Matchall::default()
    });
    let filter = Filter {
        handle: 9,
        ..Filter::new(3, TcHandle::EGRESS, 77, kind)
    };
    let hex = "00000000 03000000 09000000 f3ffffff 00034d00 0d0001006d61746368616c6c00000000 0c0002000800010002000100";
    golden(hex, filter.build().unwrap());
    // tc filter add dev d0 ingress pref 6 handle 1 bpf da object-pinned /sys/fs/bpf/prog
    let kind = FilterKind::Bpf(BpfFilter {
        fd: Some(4),
        name: Some("prog:[*fsobj]".to_owned()),
        flags: Some(1),
        ..BpfFilter::default()
    });
    let filter = Filter {
        handle: 1,
        ..Filter::new(3, TcHandle::INGRESS, 6, kind)
    };
    let hex = "00000000 03000000 01000000 f2ffffff 00030600 08000100 62706600 28000200 08000600 04000000 \
               12000700 70726f67 3a5b2a66 736f626a 5d000000 08000800 01000000";
    golden(hex, filter.build().unwrap());
    // ip netns set other 12
    let attrs = nsid::NsidAttrs {
        nsid: Some(12),
        fd: Some(6),
        ..nsid::NsidAttrs::default()
    };
    let header = crate::message::RtGenMsg::default();
    golden(
        "00000000 08000300 06000000 08000100 0c000000",
        (header, attrs),
    );
}

#[cfg(feature = "testing")]
mod properties {
    use super::*;
    use proptest::prelude::*;

    fn survives<A: AttrSet + PartialEq + Debug>(set: &A) {
        let mut w = Writer::new();
        set.encode(&mut w);
        assert_eq!(&A::decode(&w.finish().unwrap()).unwrap(), set);
    }

    proptest! {
        #[test]
        fn every_set_survives(
            link in LinkAttrs::arbitrary(), veth in Veth::arbitrary(), geneve in Geneve::arbitrary(),
            vxlan in Vxlan::arbitrary(), netkit in Netkit::arbitrary(),
            address in address::AddressAttrs::arbitrary(), route in routes::RouteAttrs::arbitrary(),
            rule in rule::RuleAttrs::arbitrary(), neigh in neigh::NeighbourAttrs::arbitrary(),
            tc in tc::TcAttrs::arbitrary(), bpf in BpfFilter::arbitrary(),
        ) {
            survives(&link);
            survives(&veth);
            survives(&geneve);
            survives(&vxlan);
            survives(&netkit);
            survives(&address);
            survives(&route);
            survives(&rule);
            survives(&neigh);
            survives(&tc);
            survives(&bpf);
        }

        #[test]
        fn every_other_set_survives(
            nsid in nsid::NsidAttrs::arbitrary(), matchall in Matchall::arbitrary(), xdp in XdpAttrs::arbitrary(),
            bridge in Bridge::arbitrary(), dummy in Dummy::arbitrary(), info in LinkInfoAttrs::arbitrary(),
        ) {
            survives(&nsid);
            survives(&matchall);
            survives(&xdp);
            survives(&bridge);
            survives(&dummy);
            survives(&info);
        }

        #[test]
        fn any_bytes_are_survived(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = Message::of(16, 0, &bytes).map(|m| link::read(&m));
            let _ = Message::of(24, 0, &bytes).map(|m| routes::read(&m));
            let _ = Message::of(32, 0, &bytes).map(|m| rule::read(&m));
            let _ = Message::of(20, 0, &bytes).map(|m| address::read(&m));
            let _ = Message::of(28, 0, &bytes).map(|m| neigh::read(&m));
            let _ = Message::of(36, 0, &bytes).map(|m| tc::read_qdisc(&m));
            let _ = Message::of(44, 0, &bytes).map(|m| tc::read_filter(&m));
            let _ = Message::of(88, 0, &bytes).map(|m| nsid::read(&m));
            for kind in ["veth", "netkit", "bridge", "dummy", "geneve", "vxlan"] {
                let _ = LinkKind::read(kind.to_owned(), Some(bytes.clone()));
            }
            for kind in ["bpf", "matchall"] {
                let _ = FilterKind::read(kind.to_owned(), Some(bytes.clone()));
            }
            let other = vec![(xdp::IFLA_XDP, bytes)];
            let _ = Link { other, ..Link::default() }.xdp();
        }
    }
}
