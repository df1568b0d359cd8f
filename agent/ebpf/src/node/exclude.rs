//! Exclusions: traffic of enrolled pods that is not captured, by peer and by port.
//!
//! The programs do not track connections, so they determine the direction of a connection packet by packet:
//! - Peers are excluded in both directions. The longest prefix decides.
//! - Answers from an excluded port pass only if the pod sent to it: a client cannot choose a source port to avoid the proxy.
//! - Packets from an excluded port of a pod pass unless they open a connection.
//! - Each pod may have its own exclusions. For networks, these take precedence over those of the node.

use super::owner;
use super::parts::put_address;
use super::programs::NodeTraits;
use crate::asm::{If, Label, MapRef, Reg, Size};
use crate::inpod::layout::{Count, KEY, OWNER, OWNER_KEY, PORTS, Pass};
use crate::inpod::nat::End;
use crate::inpod::packet::Builder;
use Reg::{R0, R1, R10};
use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv6Addr};

/// TCP that is not captured.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Exclusions {
    /// Networks of peers, with true if they are excluded. The longest prefix decides; peers in no network are captured.
    pub peers: BTreeMap<IpNet, bool>,
    /// Ports of peers that pods connect to.
    pub outbound_ports: BTreeSet<u16>,
    /// Ports of pods.
    pub inbound_ports: BTreeSet<u16>,
}

/// The owner of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Side {
    /// A peer that a pod connects to.
    Outbound,
    /// A pod.
    Inbound,
}

impl std::fmt::Display for Side {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Outbound => "outbound",
            Self::Inbound => "inbound",
        })
    }
}

impl Exclusions {
    /// True if nothing is excluded.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.peers.is_empty() && self.outbound_ports.is_empty() && self.inbound_ports.is_empty()
    }

    /// Returns the networks for the map: its IPv4 keys are mapped addresses, which a short IPv6 prefix would contain.
    pub(super) fn networks(&self) -> BTreeMap<IpNet, bool> {
        let mut all = self.peers.clone();
        let is_short = |net: &IpNet| match net {
            IpNet::V6(v6) => v6.contains(&Ipv6Addr::from([0, 0, 0, 0, 0, 0xffff, 0, 0])),
            IpNet::V4(_) => false,
        };
        if self.peers.keys().any(is_short) {
            let everything = IpNet::V4(Ipv4Net::default());
            all.entry(everything).or_insert(false);
        }
        all
    }

    /// Returns the networks of the same family as the pod's address.
    pub(super) fn networks_of(&self, pod: IpAddr) -> impl Iterator<Item = (IpNet, bool)> {
        let all = self.peers.iter().map(|(net, is)| (*net, *is));
        all.filter(move |(net, _)| net.addr().is_ipv4() == pod.is_ipv4())
    }

    pub(super) fn ports(&self) -> BTreeSet<(Side, u16)> {
        let outbound = self.outbound_ports.iter().map(|p| (Side::Outbound, *p));
        let inbound = self.inbound_ports.iter().map(|p| (Side::Inbound, *p));
        outbound.chain(inbound).collect()
    }
}

/// Size of a key of the map of peers: `struct bpf_lpm_trie_key` with an IPv6 or IPv4-mapped address.
pub(super) const PEER_KEY: u32 = 20;

/// Returns the key of a network.
pub(super) fn peer_key(net: IpNet) -> [u8; PEER_KEY as usize] {
    let (address, length) = match net {
        IpNet::V4(v4) => (
            v4.network().to_ipv6_mapped(),
            u32::from(v4.prefix_len()) + 96,
        ),
        IpNet::V6(v6) => (v6.network(), u32::from(v6.prefix_len())),
    };
    let mut key = [0; PEER_KEY as usize];
    let (head, tail) = key.split_at_mut(4);
    head.copy_from_slice(&length.to_ne_bytes());
    tail.copy_from_slice(&address.octets());
    key
}

/// Returns the network of a key.
pub(super) fn peer_of(key: &[u8]) -> Option<IpNet> {
    let (length, address) = key.split_first_chunk::<4>()?;
    let length = u8::try_from(u32::from_ne_bytes(*length)).ok()?;
    let octets: [u8; 16] = address.try_into().ok()?;
    let v6 = Ipv6Net::new(octets.into(), length).ok()?;
    Some(canonical(v6.into()))
}

/// Converts a network of IPv4-mapped addresses to IPv4.
#[must_use]
pub fn canonical(net: IpNet) -> IpNet {
    let mapped = match (net.addr(), net.prefix_len().checked_sub(96)) {
        (IpAddr::V6(v6), Some(length)) => v6.to_ipv4_mapped().map(|v4| (v4, length)),
        _ => None,
    };
    let v4 = mapped.and_then(|(v4, length)| IpNet::new(v4.into(), length).ok());
    v4.unwrap_or(net).trunc()
}

/// Size of a key of the map of pods' peers: the prefix length, the address of the pod, and that of the peer.
pub(super) const POD_PEER_KEY: u32 = PEER_KEY + 16;
/// Size of a key of the map of pods' ports: the address of the pod, and the key of a port.
pub(super) const POD_PORT_KEY: u32 = 20;
/// Bits of the pod's address, all of which are part of the prefix.
const ADDRESS: u32 = 128;

/// Returns the address in the form of the programs' keys.
pub(super) fn octets(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
        IpAddr::V6(v6) => v6.octets(),
    }
}

fn address_of(octets: &[u8]) -> Option<IpAddr> {
    let octets: [u8; 16] = octets.try_into().ok()?;
    Some(Ipv6Addr::from(octets).to_canonical())
}

/// Returns the key of a network that a pod excludes.
pub(super) fn pod_peer_key(pod: IpAddr, net: IpNet) -> Vec<u8> {
    let [a, b, c, d, peer @ ..] = peer_key(net);
    let length = ADDRESS + u32::from_ne_bytes([a, b, c, d]);
    [&length.to_ne_bytes()[..], &octets(pod), &peer].concat()
}

/// Returns the pod and the network of a key.
pub(super) fn pod_peer_of(key: &[u8]) -> Option<(IpAddr, IpNet)> {
    let (length, rest) = key.split_first_chunk::<4>()?;
    let (pod, peer) = rest.split_first_chunk::<16>()?;
    let length = u32::from_ne_bytes(*length).checked_sub(ADDRESS)?;
    let net = peer_of(&[&length.to_ne_bytes()[..], peer].concat())?;
    Some((address_of(pod)?, net))
}

/// Returns the key of a port that a pod excludes.
pub(super) fn pod_port_key(pod: IpAddr, port: (Side, u16)) -> Vec<u8> {
    [&octets(pod)[..], &port_key(port)].concat()
}

/// Returns the pod and the port of a key.
pub(super) fn pod_port_of(key: &[u8]) -> Option<(IpAddr, Side, u16)> {
    let (pod, port) = key.split_first_chunk::<16>()?;
    let (side, port) = port_of(port)?;
    Some((address_of(pod)?, side, port))
}

/// Returns the key as the programs build it: the port in network order, then the side in host order.
pub(super) fn port_key((side, port): (Side, u16)) -> [u8; 4] {
    let [a, b] = port.to_be_bytes();
    let [c, d] = number(side).to_ne_bytes();
    [a, b, c, d]
}

/// Returns the port of a key.
pub(super) fn port_of(key: &[u8]) -> Option<(Side, u16)> {
    let [a, b, c, d] = key.try_into().ok()?;
    let side = [Side::Outbound, Side::Inbound];
    let side = side
        .into_iter()
        .find(|s| number(*s) == u16::from_ne_bytes([c, d]))?;
    Some((side, u16::from_be_bytes([a, b])))
}

fn number(side: Side) -> u16 {
    match side {
        Side::Outbound => 1,
        Side::Inbound => 2,
    }
}

/// The maps, which follow those of DNS.
struct Refs {
    peers: MapRef,
    ports: MapRef,
    flows: MapRef,
    of_pods: MapRef,
    ports_of_pods: MapRef,
}

fn refs(traits: NodeTraits) -> Refs {
    let MapRef(first) = traits.exclude_map();
    Refs {
        peers: MapRef(first),
        ports: MapRef(first + 1),
        flows: MapRef(first + 2),
        of_pods: MapRef(first + 3),
        ports_of_pods: MapRef(first + 4),
    }
}

/// The origin of the tuple.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Told {
    /// The pod sent it.
    ByPod,
    /// An ICMP error quotes it, which any host may send.
    ByError,
}

/// Passes packets of an enrolled pod to an excluded peer or port, and its answers from an excluded port.
#[track_caller]
pub(super) fn from_pod(b: &mut Builder, traits: NodeTraits, told: Told) {
    let refs = refs(traits);
    let [ours, captured] = [(); 2].map(|()| b.asm.label());
    let pass = b.pass_for(Pass::Excluded);
    jump_if_peer(b, &refs, End::Destination, pass);
    find_port(b, &refs, End::Destination, Side::Outbound);
    b.asm.jump_if(If::Eq, R0, 0, ours);
    if told == Told::ByPod {
        remember(b, refs.flows);
    }
    b.asm.jump(pass);
    b.asm.bind(ours);
    b.is_first();
    b.asm.jump_if(If::Ne, R1, 0, captured);
    find_port(b, &refs, End::Source, Side::Inbound);
    b.asm.jump_if(If::Ne, R0, 0, pass);
    b.asm.bind(captured);
}

/// Passes packets from an excluded peer, to an excluded port of the pod, and answers to the pod from an excluded port.
#[track_caller]
pub(super) fn to_pod(b: &mut Builder, traits: NodeTraits) {
    let refs = refs(traits);
    let captured = b.asm.label();
    let pass = b.pass_for(Pass::Excluded);
    jump_if_peer(b, &refs, End::Source, pass);
    find_port(b, &refs, End::Destination, Side::Inbound);
    b.asm.jump_if(If::Ne, R0, 0, pass);
    find_port(b, &refs, End::Source, Side::Outbound);
    b.asm.jump_if(If::Eq, R0, 0, captured);
    owner::key(b, End::Destination);
    b.look_up(refs.flows, OWNER_KEY);
    b.asm.jump_if(If::Ne, R0, 0, pass);
    b.asm.bind(captured);
}

/// Stores that the pod sent the packet, unless it is stored; the lookup keeps the entry from eviction. Without space in the map the
/// packet is dropped.
#[track_caller]
fn remember(b: &mut Builder, flows: MapRef) {
    let known = b.asm.label();
    owner::key(b, End::Source);
    b.look_up(flows, OWNER_KEY);
    b.asm.jump_if(If::Ne, R0, 0, known);
    b.asm.store(Size::W, R10, OWNER, 1);
    owner::store(b, flows);
    b.asm.jump_if(If::Eq, R0, 0, known);
    b.refuse(Count::OutOfMemory);
    b.asm.bind(known);
}

/// Jumps if the packet of the pod is excluded, and so captured on its way to another pod.
#[track_caller]
pub(super) fn jump_if_sent_past(b: &mut Builder, traits: NodeTraits, to: Label) {
    let refs = refs(traits);
    jump_if_peer(b, &refs, End::Destination, to);
    find_port(b, &refs, End::Destination, Side::Outbound);
    b.asm.jump_if(If::Ne, R0, 0, to);
}

/// Jumps if `end` of the tuple is an excluded peer; the pod is at the other end.
#[track_caller]
fn jump_if_peer(b: &mut Builder, refs: &Refs, end: End, to: Label) {
    let [over, of_node] = [(); 2].map(|()| b.asm.label());
    let both = (ADDRESS * 2).cast_signed();
    b.asm.store(Size::W, R10, OWNER_KEY, both);
    put_address(b, end.other(), OWNER_KEY + 4);
    put_address(b, end, OWNER_KEY + 20);
    b.look_up(refs.of_pods, OWNER_KEY);
    b.asm.jump_if(If::Eq, R0, 0, of_node);
    b.asm.load(Size::W, R1, R0, 0);
    b.asm.jump_if(If::Ne, R1, 0, to);
    b.asm.jump(over);
    b.asm.bind(of_node);
    b.asm.store(Size::W, R10, KEY, 128);
    put_address(b, end, KEY + 4);
    b.look_up(refs.peers, KEY);
    b.asm.jump_if(If::Eq, R0, 0, over);
    b.asm.load(Size::W, R1, R0, 0);
    b.asm.jump_if(If::Ne, R1, 0, to);
    b.asm.bind(over);
}

/// Sets `R0` to non-null if the port of this end is excluded.
#[track_caller]
fn find_port(b: &mut Builder, refs: &Refs, end: End, side: Side) {
    let place = i16::from(end == End::Destination);
    let found = b.asm.label();
    let pod = match side {
        Side::Outbound => end.other(),
        Side::Inbound => end,
    };
    put_address(b, pod, OWNER_KEY);
    b.asm.load(Size::H, R1, R10, PORTS + 2 * place);
    b.asm.store(Size::H, R10, OWNER_KEY + 16, R1);
    b.asm
        .store(Size::H, R10, OWNER_KEY + 18, i32::from(number(side)));
    b.look_up(refs.ports_of_pods, OWNER_KEY);
    b.asm.jump_if(If::Ne, R0, 0, found);
    b.asm.load(Size::H, R1, R10, PORTS + 2 * place);
    b.asm.store(Size::H, R10, KEY, R1);
    b.asm.store(Size::H, R10, KEY + 2, i32::from(number(side)));
    b.look_up(refs.ports, KEY);
    b.asm.bind(found);
}
