//! Random routing objects between two implementations: the crate rtnetlink writes and this crate reads, and the reverse.
//!
//! Messages of rtnetlink go through a plain socket.

use weir_testing::effort;
use weir_testing::namespace_or_skip;

use crate::common::routing;
use ipnet::IpNet;
use nix::sys::socket::{
    AddressFamily as Domain, MsgFlags, SockFlag, SockProtocol, SockType, recv, send, socket,
};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use rtnetlink::packet_core::{
    NLM_F_ACK, NLM_F_CREATE, NLM_F_DUMP, NLM_F_EXCL, NLM_F_REQUEST, NetlinkMessage, NetlinkPayload,
};
use rtnetlink::packet_route::address::{AddressAttribute, AddressMessage};
use rtnetlink::packet_route::link::{
    InfoData, InfoGeneve, InfoKind, InfoVxlan, LinkAttribute, LinkInfo, LinkMessage,
};
use rtnetlink::packet_route::neighbour::{
    NeighbourAddress, NeighbourAttribute, NeighbourMessage, NeighbourState,
};
use rtnetlink::packet_route::route::{
    RouteAddress, RouteAttribute, RouteMessage, RouteProtocol as TheirProtocol,
    RouteScope as TheirScope, RouteType as TheirType,
};
use rtnetlink::packet_route::rule::{RuleAction, RuleAttribute, RuleMessage};
use rtnetlink::packet_route::{self, RouteNetlinkMessage};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsRawFd, OwnedFd};
use weir_netlink::Netns;
use weir_netlink::route::{
    AddressFamily, Geneve, Link, LinkKind, Neighbour, PolicyRule, Route, RouteProtocol, RouteScope,
    RouteType, Routing, Vxlan,
};

/// The socket of the other implementation.
pub struct Theirs(OwnedFd);

impl Theirs {
    fn open(netns: &Netns) -> Self {
        let open = || {
            socket(
                Domain::Netlink,
                SockType::Raw,
                SockFlag::SOCK_CLOEXEC,
                SockProtocol::NetlinkRoute,
            )
        };
        Self(netns.run(open).expect("entered").expect("open"))
    }

    fn ask(&self, message: RouteNetlinkMessage, flags: u16) -> Vec<RouteNetlinkMessage> {
        let mut request = NetlinkMessage::from(message);
        request.header.flags = NLM_F_REQUEST | flags;
        request.finalize();
        let mut bytes = vec![0; request.buffer_len()];
        request.serialize(&mut bytes);
        send(self.0.as_raw_fd(), &bytes, MsgFlags::empty()).expect("sent");
        let mut found = Vec::new();
        let mut buf = vec![0; 1 << 17];
        loop {
            let length = recv(self.0.as_raw_fd(), &mut buf, MsgFlags::empty()).expect("received");
            let mut rest = &buf[..length];
            while rest.len() >= 16 {
                let read = NetlinkMessage::<RouteNetlinkMessage>::deserialize(rest);
                let read = read.expect("it reads its own language");
                let length = usize::try_from(read.header.length).expect("short");
                rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
                match read.payload {
                    NetlinkPayload::InnerMessage(object) => found.push(object),
                    NetlinkPayload::Error(e) => {
                        assert_eq!(e.raw_code(), 0, "{e:?}");
                        return found;
                    }
                    NetlinkPayload::Done(_) => return found,
                    other => panic!("{other:?}"),
                }
            }
        }
    }

    pub fn add(&self, message: RouteNetlinkMessage) {
        self.ask(message, NLM_F_ACK | NLM_F_CREATE | NLM_F_EXCL);
    }

    pub fn delete(&self, message: RouteNetlinkMessage) {
        self.ask(message, NLM_F_ACK);
    }

    pub fn list(&self, message: RouteNetlinkMessage) -> Vec<RouteNetlinkMessage> {
        self.ask(message, NLM_F_DUMP)
    }
}

pub fn random<S: Strategy>(strategy: S, test: impl Fn(S::Value)) {
    let config = Config {
        cases: effort::cases(64),
        failure_persistence: None,
        ..Config::default()
    };
    let run = TestRunner::new(config).run(&strategy, |value| {
        test(value);
        Ok(())
    });
    run.unwrap_or_else(|e| panic!("{e}"));
}

/// A namespace with a link that is up, and both implementations in it.
pub fn scene(netns: &Netns) -> (Routing, Theirs, u32) {
    let ours = routing(netns);
    let peer = Link {
        name: "d1".to_owned(),
        ..Link::default()
    };
    let pair = Link::new("d0", LinkKind::veth(&peer, None).expect("fits"));
    ours.add_link(&pair, None).expect("a pair");
    let found = ours.link("d0").expect("d0");
    ours.set_up(found.lower.expect("a peer")).expect("up");
    ours.set_up(found.index).expect("up");
    let link = found.index;
    (ours, Theirs::open(netns), link)
}

/// Networks that every kernel accepts: no multicast, no loopback, and none that the kernel adds itself.
pub fn networks() -> impl Strategy<Value = IpNet> {
    let v4 = (any::<[u8; 3]>(), 1..=32u8).prop_map(|([a, b, c], bits)| {
        IpNet::new(Ipv4Addr::new(10, a, b, c).into(), bits.max(8)).expect("a network")
    });
    let v6 = (any::<[u16; 4]>(), 16..=128u8).prop_map(|([a, b, c, d], bits)| {
        IpNet::new(Ipv6Addr::new(0x2001, a, b, 0, 0, 0, c, d).into(), bits).expect("a network")
    });
    prop_oneof![v4.boxed(), v6.boxed()]
}

pub fn family(ip: IpAddr) -> packet_route::AddressFamily {
    match ip {
        IpAddr::V4(_) => packet_route::AddressFamily::Inet,
        IpAddr::V6(_) => packet_route::AddressFamily::Inet6,
    }
}

#[test]
fn routes() {
    let netns = namespace_or_skip!();
    let (ours, theirs, link) = scene(&netns);
    let kinds = prop_oneof![
        Just(RouteType::Unicast),
        Just(RouteType::BlackHole),
        Just(RouteType::Prohibit)
    ];
    let strategy = (networks(), 256..90_000u32, 1..u32::MAX, 5..=255u8, kinds);
    random(strategy, |(net, table, metric, protocol, kind)| {
        let has_link = kind == RouteType::Unicast;
        let route = Route {
            kind,
            scope: match (net, has_link) {
                (IpNet::V4(_), true) => RouteScope::Link,
                _ => RouteScope::Universe,
            },
            table,
            protocol: protocol.into(),
            priority: Some(metric),
            ..Route::unicast(net, None, has_link.then_some(link))
        };
        let mut message = RouteMessage::default();
        message.header.address_family = family(net.addr());
        message.header.destination_prefix_length = net.prefix_len();
        message.header.kind = TheirType::from(u8::from(kind));
        message.header.scope = TheirScope::from(u8::from(route.scope));
        message.header.protocol = TheirProtocol::from(protocol);
        message.attributes = vec![
            RouteAttribute::Destination(RouteAddress::from(net.network())),
            RouteAttribute::Priority(metric),
            RouteAttribute::Table(table),
        ];
        if has_link {
            message.attributes.push(RouteAttribute::Oif(link));
        }
        theirs.add(RouteNetlinkMessage::NewRoute(message.clone()));
        let found = ours.routes(table).expect("listed");
        // The kernel puts such IPv6 routes on `lo`.
        let is_ours = |found: &Route| {
            let oif = if has_link { route.oif } else { found.oif };
            *found
                == Route {
                    oif,
                    ..route.clone()
                }
        };
        assert!(
            found.len() == 1 && is_ours(&found[0]),
            "{route:?}: {found:?}"
        );
        assert!(ours.del_route(&route).expect("deleted"));

        assert!(ours.add_route(&route).expect("added"));
        let mut all = RouteMessage::default();
        all.header.address_family = family(net.addr());
        let found = theirs.list(RouteNetlinkMessage::GetRoute(all));
        let found: Vec<_> = found
            .into_iter()
            .filter_map(|m| match m {
                RouteNetlinkMessage::NewRoute(m) => Some(m),
                _ => None,
            })
            .filter(|m| m.attributes.contains(&RouteAttribute::Table(table)))
            .collect();
        let [found] = found.as_slice() else {
            panic!("{found:?}")
        };
        assert_eq!(found.header.destination_prefix_length, net.prefix_len());
        assert_eq!(found.header.kind, message.header.kind);
        assert_eq!(found.header.protocol, message.header.protocol);
        for attribute in &message.attributes {
            assert!(
                found.attributes.contains(attribute),
                "{attribute:?}: {found:?}"
            );
        }
        theirs.delete(RouteNetlinkMessage::DelRoute(message));
    });
}

#[test]
fn addresses() {
    let netns = namespace_or_skip!();
    let (ours, theirs, link) = scene(&netns);
    random(networks(), |net| {
        let mut message = AddressMessage::default();
        message.header.family = family(net.addr());
        message.header.prefix_len = net.prefix_len();
        message.header.index = link;
        message.attributes = vec![
            AddressAttribute::Local(net.addr()),
            AddressAttribute::Address(net.addr()),
        ];
        theirs.add(RouteNetlinkMessage::NewAddress(message.clone()));
        let found = ours.addresses().expect("listed");
        let found = found.iter().find(|a| a.net == net).expect("theirs");
        assert_eq!((found.index, found.scope), (link, RouteScope::Universe));
        assert!(ours.del_address(link, net).expect("deleted"));

        assert!(ours.add_address(link, net).expect("added"));
        let found = theirs.list(RouteNetlinkMessage::GetAddress(AddressMessage::default()));
        let is_ours = |m: &RouteNetlinkMessage| {
            let RouteNetlinkMessage::NewAddress(m) = m else {
                return false;
            };
            m.header.index == link
                && m.header.prefix_len == net.prefix_len()
                && m.attributes
                    .contains(&AddressAttribute::Address(net.addr()))
        };
        assert!(found.iter().any(is_ours), "{net}: {found:?}");
        theirs.delete(RouteNetlinkMessage::DelAddress(message));
    });
}

/// Each implementation writes this rule, and the other one reads and deletes it.
pub fn rule_both_ways(ours: &Routing, theirs: &Theirs, rule: &PolicyRule, message: RuleMessage) {
    theirs.add(RouteNetlinkMessage::NewRule(message.clone()));
    let found = ours.rules().expect("listed");
    let is_theirs = |found: &PolicyRule| {
        let mut found = found.clone();
        if rule.selectors.iif.is_some() {
            // The kernel marks a rule whose link does not exist.
            found.selectors.flags = 0;
        }
        found == *rule
    };
    assert!(found.iter().any(is_theirs), "{rule:?}: {found:?}");
    assert!(ours.del_rule(rule).expect("deleted"));

    assert!(ours.add_rule(rule).expect("added"));
    let found = theirs.list(RouteNetlinkMessage::GetRule(RuleMessage::default()));
    let is_ours = |m: &RouteNetlinkMessage| {
        let RouteNetlinkMessage::NewRule(m) = m else {
            return false;
        };
        let head = |m: &RuleMessage| (m.header.family, m.header.dst_len);
        head(m) == head(&message) && message.attributes.iter().all(|a| m.attributes.contains(a))
    };
    assert!(found.iter().any(is_ours), "{rule:?}: {found:?}");
    theirs.delete(RouteNetlinkMessage::DelRule(message));
}

#[test]
fn policy_rules() {
    let netns = namespace_or_skip!();
    let (ours, theirs, _) = scene(&netns);
    let families = prop_oneof![Just(AddressFamily::V4), Just(AddressFamily::V6)];
    let strategy = (
        families,
        any::<u32>(),
        1..=u32::MAX,
        1..90_000u32,
        1..32_000u32,
        5..=255u8,
    );
    random(
        strategy,
        |(family, mark, mask, table, priority, protocol)| {
            let rule = PolicyRule {
                fwmask: Some(mask),
                priority: Some(priority),
                protocol: RouteProtocol::from(protocol),
                ..PolicyRule::mark(family, mark | 1, table)
            };
            let mut message = RuleMessage::default();
            message.header.family = match family {
                AddressFamily::V4 => packet_route::AddressFamily::Inet,
                AddressFamily::V6 => packet_route::AddressFamily::Inet6,
            };
            message.header.action = RuleAction::ToTable;
            message.attributes = vec![
                RuleAttribute::FwMark(mark | 1),
                RuleAttribute::FwMask(mask),
                RuleAttribute::Table(table),
                RuleAttribute::Priority(priority),
                RuleAttribute::Protocol(TheirProtocol::from(protocol)),
            ];
            rule_both_ways(&ours, &theirs, &rule, message);
        },
    );
}

#[test]
fn neighbours() {
    let netns = namespace_or_skip!();
    let (ours, theirs, link) = scene(&netns);
    random((networks(), any::<[u8; 5]>()), |(net, [a, b, c, d, e])| {
        let (ip, mac) = (net.addr(), [2, a, b, c, d, e]);
        let mut message = NeighbourMessage::default();
        message.header.family = family(ip);
        message.header.ifindex = link;
        message.header.state = NeighbourState::Permanent;
        message.attributes = vec![
            NeighbourAttribute::Destination(match ip {
                IpAddr::V4(ip) => NeighbourAddress::Inet(ip),
                IpAddr::V6(ip) => NeighbourAddress::Inet6(ip),
            }),
            NeighbourAttribute::LinkLayerAddress(mac.to_vec()),
        ];
        theirs.add(RouteNetlinkMessage::NewNeighbour(message.clone()));
        let neighbour = Neighbour::permanent(link, ip, mac);
        let found = ours.neighbours().expect("listed");
        let found = found.into_iter().find(|n| n.ip == ip).expect("theirs");
        assert_eq!(
            Neighbour {
                other: Vec::new(),
                ..found
            },
            neighbour
        );
        assert!(ours.delete_neighbour(&neighbour).expect("deleted"));

        ours.replace_neighbour(&neighbour).expect("added");
        let found = theirs.list(RouteNetlinkMessage::GetNeighbour(
            NeighbourMessage::default(),
        ));
        let is_ours = |m: &RouteNetlinkMessage| {
            let RouteNetlinkMessage::NewNeighbour(m) = m else {
                return false;
            };
            m.header.state == NeighbourState::Permanent
                && message.attributes.iter().all(|a| m.attributes.contains(a))
        };
        assert!(found.iter().any(is_ours), "{ip}: {found:?}");
        theirs.delete(RouteNetlinkMessage::DelNeighbour(message));
    });
}

/// The other implementation's description of a tunnel, and that of this crate.
fn tunnel(is_geneve: bool, id: u32, remote: Ipv4Addr, port: u16) -> (InfoKind, InfoData, LinkKind) {
    let (id_, remote_, port_) = (Some(id), Some(remote.into()), Some(port));
    if is_geneve {
        let data = vec![
            InfoGeneve::Id(id),
            InfoGeneve::Remote(remote),
            InfoGeneve::Port(port),
        ];
        let ours = Geneve {
            id: id_,
            remote: remote_,
            port: port_,
            ..Geneve::default()
        };
        (
            InfoKind::Geneve,
            InfoData::Geneve(data),
            LinkKind::Geneve(ours),
        )
    } else {
        let data = vec![
            InfoVxlan::Id(id),
            InfoVxlan::Group(remote),
            InfoVxlan::Port(port),
        ];
        let ours = Vxlan {
            id: id_,
            remote: remote_,
            port: port_,
            ..Vxlan::default()
        };
        (
            InfoKind::Vxlan,
            InfoData::Vxlan(data),
            LinkKind::Vxlan(ours),
        )
    }
}

#[test]
fn tunnels() {
    let netns = namespace_or_skip!();
    let (ours, theirs, _) = scene(&netns);
    let (_, _, geneve) = tunnel(true, 1, Ipv4Addr::new(10, 0, 0, 1), 1);
    let made = ours.add_link(&Link::new("t1", geneve), None);
    let has_geneve = !matches!(&made, Err(e) if e.errno() == Some(nix::libc::EOPNOTSUPP));
    if !has_geneve {
        weir_testing::lacks::skip("link geneve", "4.2", made.expect_err("none"));
    }
    let strategy = (
        any::<bool>().prop_map(move |yes| yes && has_geneve),
        0..1u32 << 24,
        any::<[u8; 3]>(),
        1..=u16::MAX,
        any::<[u8; 5]>(),
    );
    random(
        strategy,
        |(is_geneve, id, [a, b, c], port, [d, e, f, g, h])| {
            let remote = Ipv4Addr::new(10, a, b, c);
            let mac = [2, d, e, f, g, h];
            let (word, data, kind) = tunnel(is_geneve, id, remote, port);
            let mut message = LinkMessage::default();
            message.attributes = vec![
                LinkAttribute::IfName("t0".to_owned()),
                LinkAttribute::Address(mac.to_vec()),
                LinkAttribute::LinkInfo(vec![LinkInfo::Kind(word), LinkInfo::Data(data)]),
            ];
            theirs.add(RouteNetlinkMessage::NewLink(message));
            let found = ours.link("t0").expect("theirs");
            assert_eq!(found.mac, Some(mac));
            let key = |kind: &LinkKind| match kind {
                LinkKind::Geneve(g) => (g.id, g.remote, g.port),
                LinkKind::Vxlan(v) => (v.id, v.remote, v.port),
                other => panic!("{other:?}"),
            };
            assert_eq!(key(found.kind.as_ref().expect("a kind")), key(&kind));
            assert!(ours.delete_link(found.index).expect("deleted"));

            let link = Link {
                mac: Some(mac),
                ..Link::new("t0", kind)
            };
            ours.add_link(&link, None).expect("added");
            let index = ours.link("t0").expect("ours").index;
            let found = theirs.list(RouteNetlinkMessage::GetLink(LinkMessage::default()));
            let found = found.iter().find_map(|m| match m {
                RouteNetlinkMessage::NewLink(m) if m.header.index == index => Some(m),
                _ => None,
            });
            let found = found.expect("listed");
            assert!(
                found
                    .attributes
                    .contains(&LinkAttribute::Address(mac.to_vec()))
            );
            let infos = found.attributes.iter().find_map(|a| match a {
                LinkAttribute::LinkInfo(infos) => Some(infos),
                _ => None,
            });
            let data = infos.expect("infos").iter().find_map(|info| match info {
                LinkInfo::Data(data) => Some(data),
                _ => None,
            });
            let is_told = match data.expect("data") {
                InfoData::Geneve(all) => [
                    InfoGeneve::Id(id),
                    InfoGeneve::Remote(remote),
                    InfoGeneve::Port(port),
                ]
                .iter()
                .all(|one| all.contains(one)),
                InfoData::Vxlan(all) => [
                    InfoVxlan::Id(id),
                    InfoVxlan::Group(remote),
                    InfoVxlan::Port(port),
                ]
                .iter()
                .all(|one| all.contains(one)),
                other => panic!("{other:?}"),
            };
            assert!(is_told, "{found:?}");
            let mut gone = LinkMessage::default();
            gone.header.index = index;
            theirs.delete(RouteNetlinkMessage::DelLink(gone));
        },
    );
}
