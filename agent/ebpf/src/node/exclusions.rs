//! How the maps of exclusions differ from what is desired.
//!
//! What is new is added before what is old is deleted: a longer prefix that is captured protects a part of a shorter one. The maps
//! have room for both. Only what pods excluded that are gone is deleted first, which has no effect on any packet.

use super::change::Change;
use super::contents::Contents;
use super::desired::Wanted;
use super::exclude::Side;
use super::maps::Excluded;
use ipnet::IpNet;
use std::net::IpAddr;

/// What is desired or there, each with its value.
type Entry = (Excluded, u32);

/// Pure. Programs without exclusions do not read these maps.
pub(super) fn plan(wanted: &Wanted, there: &Contents) -> Vec<Change> {
    if !wanted.excludes() {
        return Vec::new();
    }
    let (peers, ports) = (wanted.exclude.networks(), wanted.exclude.ports());
    let (mut old, mut new) = (Vec::new(), Vec::new());
    let peer = |(net, is): (&IpNet, &bool)| (Excluded::Peer(*net), u32::from(*is));
    let is_new = |(net, is): &(&IpNet, &bool)| there.peers.get(*net) != Some(*is);
    new.extend(peers.iter().filter(is_new).map(peer));
    let is_old = |(net, _): &(&IpNet, &bool)| !peers.contains_key(*net);
    old.extend(there.peers.iter().filter(is_old).map(peer));
    let port = |(side, port): &(Side, u16)| (Excluded::Port(*side, *port), 1);
    new.extend(ports.difference(&there.ports).map(port));
    old.extend(there.ports.difference(&ports).map(port));
    let (of_gone, of_pods) = of_pods(wanted, there, &mut new);
    let delete = |(what, _): Entry| Change::NoExclude(what);
    let gone = of_gone.into_iter().map(delete);
    let new = new.into_iter();
    let new = new.map(|(what, value)| Change::Exclude(what, value));
    gone.chain(new)
        .chain(old.into_iter().chain(of_pods).map(delete))
        .collect()
}

/// What is new of pods is added to the list. Returns what is old of pods that are gone, and of others.
fn of_pods(wanted: &Wanted, there: &Contents, new: &mut Vec<Entry>) -> (Vec<Entry>, Vec<Entry>) {
    for (pod, exclude) in &wanted.exclude_of {
        let peers = exclude.networks_of(*pod);
        let peers = peers.filter(|(net, is)| there.of_pods.get(&(*pod, *net)) != Some(is));
        new.extend(peers.map(|(net, is)| (Excluded::PodPeer(*pod, net), u32::from(is))));
        let ports = exclude.ports().into_iter();
        let ports =
            ports.filter(|(side, port)| !there.ports_of_pods.contains(&(*pod, *side, *port)));
        new.extend(ports.map(|(side, port)| (Excluded::PodPort(*pod, side, port), 1)));
    }
    let of = |pod: &IpAddr| wanted.exclude_of.get(pod);
    let peers = there.of_pods.iter();
    let peers = peers.filter(|((pod, net), _)| !of(pod).is_some_and(|e| e.peers.contains_key(net)));
    let peers = peers.map(|((pod, net), is)| (Excluded::PodPeer(*pod, *net), u32::from(*is)));
    let ports = there.ports_of_pods.iter();
    let ports = ports
        .filter(|(pod, side, port)| !of(pod).is_some_and(|e| e.ports().contains(&(*side, *port))));
    let ports = ports.map(|(pod, side, port)| (Excluded::PodPort(*pod, *side, *port), 1));
    let is_gone = |(what, _): &Entry| match what {
        Excluded::PodPeer(pod, _) | Excluded::PodPort(pod, ..) => !wanted.pods.contains_key(pod),
        _ => false,
    };
    peers.chain(ports).partition(is_gone)
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
                "exclude peers of 10.0.0.1 in 10.0.0.0/8",
                "capture peers of 10.0.0.1 in 10.1.0.0/16 of a longer prefix",
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
                "exclude inbound port 81 of 10.0.0.9 no longer",
                "exclude peers of 10.0.0.1 in 10.0.0.0/8",
                "capture peers of 10.0.0.1 in 10.1.0.0/16 of a longer prefix",
                "exclude outbound port 80 of 10.0.0.1",
                "exclude peers of 10.0.0.1 in 10.2.0.0/16 no longer",
                "exclude inbound port 81 of 10.0.0.1 no longer",
            ]
        );
        there.of_pods.clear();
        there.ports_of_pods = [(pod(1), Side::Outbound, 80)].into();
        assert_eq!(words(&wanted(&[1], &[]), &there), Vec::<String>::new());
        assert_eq!(words(&wanted(&[], &[]), &there), Vec::<String>::new());
    }
}
