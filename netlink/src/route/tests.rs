//! Captured bytes of iproute2 6.1, and random values of every declaration.

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
        fn any_bytes_are_survived(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = Message::of(16, 0, &bytes).map(|m| link::read(&m));
            let _ = Message::of(24, 0, &bytes).map(|m| routes::read(&m));
            let _ = Message::of(32, 0, &bytes).map(|m| rule::read(&m));
            let _ = Message::of(36, 0, &bytes).map(|m| tc::read_filter(&m));
            let _ = LinkKind::read("veth".to_owned(), Some(bytes));
        }
    }
}
