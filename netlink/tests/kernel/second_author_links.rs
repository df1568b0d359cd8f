//! Random pairs, bridges and dummies between two implementations, as in [`crate::second_author`].

use crate::objects::lacks;
use crate::second_author::{Theirs, random, scene};
use proptest::prelude::*;
use rtnetlink::packet_route::RouteNetlinkMessage;
use rtnetlink::packet_route::link::{
    BridgeStpState, InfoBridge, InfoData, InfoKind, InfoNetkit, InfoVeth, LinkAttribute, LinkInfo,
    LinkMessage, NetkitMode, NetkitPolicy, VlanProtocol,
};
use weir_netlink::route::{Bridge, Dummy, Link, LinkKind, Netkit, Routing, Veth};
use weir_testing::namespace_or_skip;

fn described(attributes: Vec<LinkAttribute>) -> LinkMessage {
    let mut message = LinkMessage::default();
    message.attributes = attributes;
    message
}

/// A request of the other implementation for a link of this kind.
fn request(
    mut attributes: Vec<LinkAttribute>,
    kind: InfoKind,
    data: Option<InfoData>,
) -> RouteNetlinkMessage {
    let data = data.into_iter().map(LinkInfo::Data);
    let info = [LinkInfo::Kind(kind)].into_iter().chain(data).collect();
    attributes.push(LinkAttribute::LinkInfo(info));
    RouteNetlinkMessage::NewLink(described(attributes))
}

/// The link of this name as the other implementation lists it: its attributes, its kind and the data of its kind.
fn listed(theirs: &Theirs, name: &str) -> (Vec<LinkAttribute>, InfoKind, Option<InfoData>) {
    let name = LinkAttribute::IfName(name.to_owned());
    let found = theirs.list(RouteNetlinkMessage::GetLink(LinkMessage::default()));
    let found = found.into_iter().find_map(|m| match m {
        RouteNetlinkMessage::NewLink(m) if m.attributes.contains(&name) => Some(m.attributes),
        _ => None,
    });
    let found = found.expect("listed");
    let infos = found.iter().find_map(|a| match a {
        LinkAttribute::LinkInfo(infos) => Some(infos.clone()),
        _ => None,
    });
    let infos = infos.expect("infos");
    let kind = infos.iter().find_map(|info| match info {
        LinkInfo::Kind(kind) => Some(kind.clone()),
        _ => None,
    });
    let data = infos.into_iter().find_map(|info| match info {
        LinkInfo::Data(data) => Some(data),
        _ => None,
    });
    (found, kind.expect("a kind"), data)
}

fn delete(ours: &Routing, name: &str) {
    let index = ours.link(name).expect("found").index;
    assert!(ours.delete_link(index).expect("deleted"));
}

/// The kinds of pairs that the kernel has.
fn kinds_of_pairs(ours: &Routing) -> Vec<&'static str> {
    let made = ours.add_link(&Link::new("k0", LinkKind::plain("netkit")), None);
    match lacks(&made, "link netkit", "6.7") {
        true => vec!["veth"],
        false => {
            delete(ours, "k0");
            vec!["veth", "netkit"]
        }
    }
}

fn policy(drops: bool) -> (u32, NetkitPolicy) {
    match drops {
        true => (2, NetkitPolicy::Drop),
        false => (0, NetkitPolicy::Pass),
    }
}

#[test]
fn pairs() {
    let netns = namespace_or_skip!();
    let (ours, theirs, _) = scene(&netns);
    let strategy = (
        proptest::sample::select(kinds_of_pairs(&ours)),
        any::<[u8; 5]>(),
        1280..9000u32,
        1280..9000u32,
        any::<[bool; 3]>(),
    );
    random(strategy, |(kind, [a, b, c, d, e], mtu, peer_mtu, bits)| {
        let [is_l3, drops, peer_drops] = bits;
        let is_netkit = kind == "netkit";
        let peer = Link {
            name: "p1".to_owned(),
            mtu: Some(peer_mtu),
            ..Link::default()
        };
        let own = Netkit {
            mode: Some(u32::from(is_l3)),
            policy: Some(policy(drops).0),
            peer_policy: Some(policy(peer_drops).0),
            ..Netkit::default()
        };
        let their_own = [
            InfoNetkit::Mode(if is_l3 {
                NetkitMode::L3
            } else {
                NetkitMode::L2
            }),
            InfoNetkit::Policy(policy(drops).1),
            InfoNetkit::PeerPolicy(policy(peer_drops).1),
        ];
        let their_peer = described(vec![
            LinkAttribute::IfName("p1".to_owned()),
            LinkAttribute::Mtu(peer_mtu),
        ]);
        // A netkit link accepts no hardware address.
        let mac = (!is_netkit).then_some([2, a, b, c, d, e]);
        let (ours_kind, word, data) = if is_netkit {
            let LinkKind::Netkit(with_peer) = LinkKind::netkit(&peer, None).expect("fits") else {
                panic!("no netkit");
            };
            let peer = with_peer.peer;
            let mut data = their_own.to_vec();
            data.push(InfoNetkit::Peer(their_peer));
            let kind = LinkKind::Netkit(Netkit {
                peer,
                ..own.clone()
            });
            (kind, InfoKind::Netkit, InfoData::Netkit(data))
        } else {
            let data = InfoData::Veth(InfoVeth::Peer(their_peer));
            (
                LinkKind::veth(&peer, None).expect("fits"),
                InfoKind::Veth,
                data,
            )
        };
        let mut attributes = vec![
            LinkAttribute::IfName("p0".to_owned()),
            LinkAttribute::Mtu(mtu),
        ];
        attributes.extend(mac.map(|mac| LinkAttribute::Address(mac.to_vec())));
        theirs.add(request(attributes.clone(), word.clone(), Some(data)));
        let (found, other) = (ours.link("p0").expect("p0"), ours.link("p1").expect("p1"));
        assert_eq!((found.mtu, other.mtu), (Some(mtu), Some(peer_mtu)));
        assert_eq!(
            (found.lower, other.lower),
            (Some(other.index), Some(found.index))
        );
        assert!(mac.is_none() || found.mac == mac, "{found:?}");
        if is_netkit {
            let of = |link: &Link| match link.kind.clone() {
                Some(LinkKind::Netkit(n)) => (n.primary, n.mode, n.policy, n.peer_policy),
                other => panic!("{other:?}"),
            };
            assert_eq!(of(&found), (Some(1), own.mode, own.policy, own.peer_policy));
            assert_eq!(of(&other), (Some(0), own.mode, own.peer_policy, own.policy));
        } else {
            assert_eq!(found.kind, Some(LinkKind::Veth(Veth::default())));
        }
        delete(&ours, "p0");

        let link = Link {
            mac,
            mtu: Some(mtu),
            ..Link::new("p0", ours_kind)
        };
        ours.add_link(&link, None).expect("added");
        let (found, kind, data) = listed(&theirs, "p0");
        assert!(attributes.iter().all(|a| found.contains(a)), "{found:?}");
        assert_eq!(kind, word);
        if is_netkit {
            let Some(InfoData::Netkit(data)) = data else {
                panic!("{data:?}");
            };
            assert!(their_own.iter().all(|a| data.contains(a)), "{data:?}");
        }
        let (found, kind, _) = listed(&theirs, "p1");
        assert!(found.contains(&LinkAttribute::Mtu(peer_mtu)), "{found:?}");
        assert_eq!(kind, word);
        delete(&ours, "p1");
    });
}

/// Times in whole seconds: the kernel counts them in jiffies and rounds others.
fn seconds(range: std::ops::RangeInclusive<u32>) -> impl Strategy<Value = u32> {
    range.prop_map(|seconds| 100 * seconds)
}

#[test]
fn bridges() {
    let netns = namespace_or_skip!();
    let (ours, theirs, _) = scene(&netns);
    let made = ours.add_link(&Link::new("b0", LinkKind::plain("bridge")), None);
    if lacks(&made, "link bridge", "2.6.12") {
        return;
    }
    let Some(LinkKind::Bridge(usual)) = ours.link("b0").expect("b0").kind else {
        panic!("no bridge");
    };
    let has_vlans = usual.vlan_protocol.is_some();
    if !has_vlans {
        println!("without VLANs, which this kernel's bridges lack");
    }
    delete(&ours, "b0");
    let strategy = (
        (
            seconds(2..=30),
            seconds(1..=10),
            seconds(6..=40),
            seconds(0..=9000),
        ),
        any::<[bool; 3]>(),
        any::<u16>(),
        any::<u16>(),
        any::<[u8; 5]>(),
    );
    random(
        strategy,
        |(times, bits, priority, mask, [a, b, c, d, e])| {
            let (delay, hello, age, ageing) = times;
            let [stp, filters, is_ad] = bits;
            // The last bits of the mask are reserved.
            let (mask, mac) = (mask & !7, [2, a, b, c, d, e]);
            let bridge = Bridge {
                forward_delay: Some(delay),
                hello_time: Some(hello),
                max_age: Some(age),
                ageing_time: Some(ageing),
                stp_state: Some(stp.into()),
                priority: Some(priority),
                vlan_filtering: has_vlans.then_some(filters.into()),
                vlan_protocol: has_vlans.then_some(if is_ad { 0x88a8 } else { 0x8100 }),
                group_fwd_mask: Some(mask),
                ..Bridge::default()
            };
            let mut data = vec![
                InfoBridge::ForwardDelay(delay),
                InfoBridge::HelloTime(hello),
                InfoBridge::MaxAge(age),
                InfoBridge::AgeingTime(ageing),
                InfoBridge::StpState(match stp {
                    true => BridgeStpState::KernelStp,
                    false => BridgeStpState::Disabled,
                }),
                InfoBridge::Priority(priority),
                InfoBridge::GroupFwdMask(mask),
            ];
            if has_vlans {
                data.push(InfoBridge::VlanFiltering(filters));
                data.push(InfoBridge::VlanProtocol(match is_ad {
                    true => VlanProtocol::Ieee8021Ad,
                    false => VlanProtocol::Ieee8021Q,
                }));
            }
            let attributes = vec![
                LinkAttribute::IfName("b0".to_owned()),
                LinkAttribute::Address(mac.to_vec()),
            ];
            let info = Some(InfoData::Bridge(data.clone()));
            theirs.add(request(attributes.clone(), InfoKind::Bridge, info));
            let found = ours.link("b0").expect("theirs");
            assert_eq!(found.mac, Some(mac));
            let Some(LinkKind::Bridge(read)) = found.kind else {
                panic!("{found:?}");
            };
            let declared = Bridge {
                unknown: Vec::new(),
                vlan_filtering: read.vlan_filtering.filter(|_| has_vlans),
                ..read
            };
            assert_eq!(declared, bridge);
            delete(&ours, "b0");

            let link = Link {
                mac: Some(mac),
                ..Link::new("b0", LinkKind::Bridge(bridge))
            };
            ours.add_link(&link, None).expect("added");
            let (found, kind, info) = listed(&theirs, "b0");
            assert!(attributes.iter().all(|a| found.contains(a)), "{found:?}");
            assert_eq!(kind, InfoKind::Bridge);
            let Some(InfoData::Bridge(found)) = info else {
                panic!("{info:?}");
            };
            assert!(
                data.iter().all(|a| found.contains(a)),
                "{data:?}: {found:?}"
            );
            delete(&ours, "b0");
        },
    );
}

#[test]
fn dummies() {
    let netns = namespace_or_skip!();
    let (ours, theirs, _) = scene(&netns);
    let dummy = || LinkKind::Dummy(Dummy::default());
    let made = ours.add_link(&Link::new("u0", dummy()), None);
    if lacks(&made, "link dummy", "2.6.12") {
        return;
    }
    delete(&ours, "u0");
    random((any::<[u8; 5]>(), 68..65_536u32), |(mac, mtu)| {
        let [a, b, c, d, e] = mac;
        let mac = [2, a, b, c, d, e];
        let attributes = vec![
            LinkAttribute::IfName("u0".to_owned()),
            LinkAttribute::Address(mac.to_vec()),
            LinkAttribute::Mtu(mtu),
        ];
        theirs.add(request(attributes.clone(), InfoKind::Dummy, None));
        let found = ours.link("u0").expect("theirs");
        assert_eq!((found.mac, found.mtu), (Some(mac), Some(mtu)));
        assert_eq!(found.kind, Some(dummy()));
        delete(&ours, "u0");

        let link = Link {
            mac: Some(mac),
            mtu: Some(mtu),
            ..Link::new("u0", dummy())
        };
        ours.add_link(&link, None).expect("added");
        let (found, kind, _) = listed(&theirs, "u0");
        assert!(attributes.iter().all(|a| found.contains(a)), "{found:?}");
        assert_eq!(kind, InfoKind::Dummy);
        delete(&ours, "u0");
    });
}
