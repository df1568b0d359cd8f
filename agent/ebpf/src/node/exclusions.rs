//! The changes of the exclusion maps.
//!
//! New entries are added before old ones are deleted, and captured networks before excluded ones: a longer prefix that is captured
//! protects a part of a shorter one. If a map has no space for both, old exclusions are deleted first, which temporarily captures more,
//! never less. Entries of pods that are gone are deleted first of all, which affects no packet.

use super::change::Change;
use super::contents::Contents;
use super::desired::Wanted;
use super::exclude::Side;
use super::maps::{Excluded, PEERS_MAP, POD_PEERS_MAP, POD_PORTS_MAP, PORTS_MAP};
use ipnet::IpNet;
use std::collections::BTreeMap;
use std::net::IpAddr;
use weir_bpf::MapSpec;

/// Existing or desired entries of a map: excluded (1), or captured although a shorter prefix is excluded (0).
type Entries = BTreeMap<Excluded, u32>;

/// Plans the changes. Pure. Programs without exclusions do not read these maps.
pub(super) fn plan(wanted: &Wanted, there: &Contents) -> Vec<Change> {
    if !wanted.excludes() {
        return Vec::new();
    }
    let peer = |(net, is): (&IpNet, &bool)| (Excluded::Peer(*net), u32::from(*is));
    let port = |(side, port): &(Side, u16)| (Excluded::Port(*side, *port), 1);
    let of_pod = |((pod, net), is): (&(IpAddr, IpNet), &bool)| {
        (Excluded::PodPeer(*pod, *net), u32::from(*is))
    };
    let port_of =
        |(pod, side, port): &(IpAddr, Side, u16)| (Excluded::PodPort(*pod, *side, *port), 1);
    let (mut of_pods, mut ports_of_pods) = (Entries::new(), Entries::new());
    // Pods that are left out have no entries.
    let of_pods_there = wanted.exclude_of.iter();
    for (pod, exclude) in of_pods_there.filter(|(pod, _)| wanted.pods.contains_key(pod)) {
        let peers = exclude.networks_of(*pod);
        of_pods.extend(peers.map(|(net, is)| (Excluded::PodPeer(*pod, net), u32::from(is))));
        let ports = exclude.ports().into_iter();
        ports_of_pods.extend(ports.map(|(side, port)| (Excluded::PodPort(*pod, side, port), 1)));
    }
    let all: [(&MapSpec<'_>, Entries, Entries); 4] = [
        (
            &PEERS_MAP,
            there.peers.iter().map(peer).collect(),
            wanted.exclude.networks().iter().map(peer).collect(),
        ),
        (
            &PORTS_MAP,
            there.ports.iter().map(port).collect(),
            wanted.exclude.ports().iter().map(port).collect(),
        ),
        (
            &POD_PEERS_MAP,
            there.of_pods.iter().map(of_pod).collect(),
            of_pods,
        ),
        (
            &POD_PORTS_MAP,
            there.ports_of_pods.iter().map(port_of).collect(),
            ports_of_pods,
        ),
    ];
    let changes = all.into_iter().flat_map(|(spec, there, desired)| {
        let is_gone = |pod: &IpAddr| !wanted.pods.contains_key(pod);
        difference(spec.max_entries, there, &desired, is_gone)
    });
    changes.collect()
}

/// Returns the changes of one map.
fn difference(
    room: u32,
    mut there: Entries,
    desired: &Entries,
    is_gone: impl Fn(&IpAddr) -> bool,
) -> Vec<Change> {
    let mut changes = Vec::new();
    let mut delete = |there: &mut Entries, which: &dyn Fn(&Excluded, u32) -> bool| {
        there.retain(|what, value| {
            let goes = which(what, *value);
            if goes {
                changes.push(Change::NoExclude(*what));
            }
            !goes
        });
    };
    delete(&mut there, &|what, _| match what {
        Excluded::PodPeer(pod, _) | Excluded::PodPort(pod, ..) => is_gone(pod),
        _ => false,
    });
    let is_old = |what: &Excluded| !desired.contains_key(what);
    // Before 6.12 a full trie also rejects a new value for an existing key.
    let has_room = |there: &Entries| {
        let added = desired.keys().filter(|what| !there.contains_key(what));
        u32::try_from(there.len() + added.count()).is_ok_and(|both| both < room)
    };
    if !has_room(&there) {
        delete(&mut there, &|what, value| value != 0 && is_old(what));
    }
    if !has_room(&there) {
        // Delete all exclusions before the longer prefixes that protect parts of them.
        delete(&mut there, &|_, value| value != 0);
        delete(&mut there, &|what, _| is_old(what));
    }
    for wanted in [0, 1] {
        let new = desired
            .iter()
            .filter(|(what, value)| **value == wanted && there.get(what) != Some(value));
        changes.extend(new.map(|(what, value)| Change::Exclude(*what, *value)));
    }
    for wanted in [1, 0] {
        let old = there
            .iter()
            .filter(|(what, value)| **value == wanted && is_old(what));
        changes.extend(old.map(|(what, _)| Change::NoExclude(*what)));
    }
    changes
}

#[cfg(test)]
mod tests {
    use super::super::exclude::Exclusions;
    use super::*;

    fn pod(last: u8) -> IpAddr {
        IpAddr::from([10, 0, 0, last])
    }

    fn wanted(pods: &[u8], peers: &[(&str, bool)]) -> Wanted {
        let net = |(net, is): &(&str, bool)| (net.parse().unwrap(), *is);
        let exclude = Exclusions {
            peers: peers.iter().map(net).collect(),
            outbound_ports: [80].into(),
            ..Exclusions::default()
        };
        Wanted {
            pods: pods.iter().map(|n| (pod(*n), format!("v{n}"))).collect(),
            exclude_of: pods.iter().map(|n| (pod(*n), exclude.clone())).collect(),
            ..Wanted::default()
        }
    }

    fn words(wanted: &Wanted, there: &Contents) -> Vec<String> {
        plan(wanted, there)
            .iter()
            .map(ToString::to_string)
            .collect()
    }

    #[test]
    fn what_is_new_comes_before_what_is_old() {
        let both = wanted(
            &[1],
            &[
                ("10.0.0.0/8", true),
                ("10.1.0.0/16", false),
                ("fd00::/8", true),
            ],
        );
        let mut there = Contents::default();
        assert_eq!(
            words(&both, &there),
            [
                "capture peers of 10.0.0.1 in 10.1.0.0/16 of a longer prefix",
                "exclude peers of 10.0.0.1 in 10.0.0.0/8",
                "exclude outbound port 80 of 10.0.0.1",
            ],
            "networks of another family are none that it has peers in"
        );
        for last in [1, 9] {
            there
                .of_pods
                .insert((pod(last), "10.2.0.0/16".parse().unwrap()), false);
            there.ports_of_pods.insert((pod(last), Side::Inbound, 81));
        }
        assert_eq!(
            words(&both, &there),
            [
                "exclude peers of 10.0.0.9 in 10.2.0.0/16 no longer",
                "capture peers of 10.0.0.1 in 10.1.0.0/16 of a longer prefix",
                "exclude peers of 10.0.0.1 in 10.0.0.0/8",
                "exclude peers of 10.0.0.1 in 10.2.0.0/16 no longer",
                "exclude inbound port 81 of 10.0.0.9 no longer",
                "exclude outbound port 80 of 10.0.0.1",
                "exclude inbound port 81 of 10.0.0.1 no longer",
            ]
        );
        there.of_pods.clear();
        there.ports_of_pods = [(pod(1), Side::Outbound, 80)].into();
        assert_eq!(words(&wanted(&[1], &[]), &there), Vec::<String>::new());
        assert_eq!(words(&wanted(&[], &[]), &there), Vec::<String>::new());
    }

    /// A map that is written as the kernel does it never has more than fits, and never excludes what neither the old nor the new list
    /// excludes.
    #[test]
    fn a_list_is_replaced_in_the_room_of_the_map() {
        let net = |n: u8| IpNet::V4(ipnet::Ipv4Net::new([10, n, 0, 0].into(), 16).unwrap());
        let list = |nets: std::ops::Range<u8>, is: u32| -> Entries {
            nets.map(|n| (Excluded::Peer(net(n)), is)).collect()
        };
        let everything = (Excluded::Peer("10.0.0.0/8".parse().unwrap()), 1);
        let protected = |nets: std::ops::Range<u8>| -> Entries {
            list(nets, 0).into_iter().chain([everything]).collect()
        };
        for (old, new) in [
            (list(0..60, 1), list(100..160, 1)),
            (list(0..60, 1), list(50..110, 0)),
            (list(0..60, 0), list(50..110, 1)),
            (protected(0..60), protected(60..120)),
            (protected(0..90), list(90..180, 1)),
            (list(90..180, 1), protected(0..90)),
        ] {
            let (mut map, room) = (old.clone(), 100);
            let is_excluded = |map: &Entries, n: u8| {
                let whole = map.get(&everything.0).copied().unwrap_or(0);
                map.get(&Excluded::Peer(net(n))).copied().unwrap_or(whole) == 1
            };
            for change in difference(room, old.clone(), &new, |_| false) {
                match change {
                    Change::Exclude(what, value) => _ = map.insert(what, value),
                    Change::NoExclude(what) => assert!(map.remove(&what).is_some(), "{what}"),
                    other => panic!("{other}"),
                }
                assert!(map.len() <= 100, "{}", map.len());
                for n in 0..=255 {
                    let before_or_after = is_excluded(&old, n) || is_excluded(&new, n);
                    assert!(before_or_after || !is_excluded(&map, n), "{n}: {map:?}");
                }
            }
            assert_eq!(map, new);
        }
    }
}
