//! What enrolled pods send and receive although it is not captured: by peer and by port.
//!
//! No connection is tracked here, so that the direction of a connection has to be told packet by packet:
//! - Peers are excluded in both directions. The longest prefix decides.
//! - Answers to an excluded port are known by what the pod sent there: a client cannot choose a source port to avoid the proxy.
//! - What a pod sends from an excluded port of its own passes unless it begins a connection.

use super::parts::put_address;
use super::programs::NodeTraits;
use crate::asm::{If, MapRef, Reg, Size};
use crate::inpod::layout::{KEY, PORTS, Pass};
use crate::inpod::nat::{self, End};
use crate::inpod::packet::Builder;
use Reg::{R0, R1, R10};
use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv6Addr};

/// TCP that is not captured.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Exclusions {
    /// Networks of peers: whether these are excluded. The longest prefix decides; peers in none are captured.
    pub peers: BTreeMap<IpNet, bool>,
    /// Ports of peers that pods connect to.
    pub outbound_ports: BTreeSet<u16>,
    /// Ports of pods.
    pub inbound_ports: BTreeSet<u16>,
}

/// Whose port it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Side {
    /// A peer's, that a pod connects to.
    Outbound,
    /// A pod's.
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
    /// Nothing is excluded.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.peers.is_empty() && self.outbound_ports.is_empty() && self.inbound_ports.is_empty()
    }

    /// As the map has them: its keys of IPv4 are mapped addresses, which a short prefix of IPv6 would contain.
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

    pub(super) fn ports(&self) -> BTreeSet<(Side, u16)> {
        let outbound = self.outbound_ports.iter().map(|p| (Side::Outbound, *p));
        let inbound = self.inbound_ports.iter().map(|p| (Side::Inbound, *p));
        outbound.chain(inbound).collect()
    }
}

/// Bytes of a key of the map of peers: `struct bpf_lpm_trie_key` with an address of IPv6, or one of IPv4 mapped to it.
pub(super) const PEER_KEY: u32 = 20;

/// The key of a network.
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

/// The network of a key.
pub(super) fn peer_of(key: &[u8]) -> Option<IpNet> {
    let (length, address) = key.split_first_chunk::<4>()?;
    let length = u8::try_from(u32::from_ne_bytes(*length)).ok()?;
    let octets: [u8; 16] = address.try_into().ok()?;
    let v6 = Ipv6Net::new(octets.into(), length).ok()?;
    Some(canonical(v6.into()))
}

/// A network of mapped addresses is one of IPv4.
#[must_use]
pub fn canonical(net: IpNet) -> IpNet {
    let mapped = match (net.addr(), net.prefix_len().checked_sub(96)) {
        (IpAddr::V6(v6), Some(length)) => v6.to_ipv4_mapped().map(|v4| (v4, length)),
        _ => None,
    };
    let v4 = mapped.and_then(|(v4, length)| IpNet::new(v4.into(), length).ok());
    v4.unwrap_or(net).trunc()
}

/// As the programs store it: the port in the order of the packet, then the side.
pub(super) fn port_key((side, port): (Side, u16)) -> [u8; 4] {
    let [a, b] = port.to_be_bytes();
    let [c, d] = number(side).to_ne_bytes();
    [a, b, c, d]
}

/// The port of a key.
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

/// The maps, behind those of names.
struct Refs {
    peers: MapRef,
    ports: MapRef,
    flows: MapRef,
}

fn refs(traits: NodeTraits) -> Refs {
    let MapRef(first) = traits.exclude_map();
    Refs {
        peers: MapRef(first),
        ports: MapRef(first + 1),
        flows: MapRef(first + 2),
    }
}

/// Lets pass what an enrolled pod sends to an excluded peer or port, or answers from one.
#[track_caller]
pub(super) fn from_pod(b: &mut Builder, traits: NodeTraits) {
    let refs = refs(traits);
    let [ours, captured] = [(); 2].map(|()| b.asm.label());
    let pass = b.pass_for(Pass::Excluded);
    pass_peer(b, &refs, End::Destination);
    find_port(b, &refs, End::Destination, Side::Outbound);
    b.asm.jump_if(If::Eq, R0, 0, ours);
    nat::remember(b, refs.flows);
    b.asm.jump(pass);
    b.asm.bind(ours);
    b.is_first();
    b.asm.jump_if(If::Ne, R1, 0, captured);
    find_port(b, &refs, End::Source, Side::Inbound);
    b.asm.jump_if(If::Ne, R0, 0, pass);
    b.asm.bind(captured);
}

/// Lets pass what comes from an excluded peer, for an excluded port of the pod, or in answer to the pod from an excluded port.
#[track_caller]
pub(super) fn to_pod(b: &mut Builder, traits: NodeTraits) {
    let refs = refs(traits);
    let captured = b.asm.label();
    let pass = b.pass_for(Pass::Excluded);
    pass_peer(b, &refs, End::Source);
    find_port(b, &refs, End::Destination, Side::Inbound);
    b.asm.jump_if(If::Ne, R0, 0, pass);
    find_port(b, &refs, End::Source, Side::Outbound);
    b.asm.jump_if(If::Eq, R0, 0, captured);
    nat::jump_unless_asked(b, refs.flows, captured);
    b.asm.jump(pass);
    b.asm.bind(captured);
}

/// Jumps to the end if one end of the tuple is excluded.
#[track_caller]
fn pass_peer(b: &mut Builder, refs: &Refs, end: End) {
    let over = b.asm.label();
    b.asm.store(Size::W, R10, KEY, 128);
    put_address(b, end, KEY + 4);
    b.look_up(refs.peers, KEY);
    b.asm.jump_if(If::Eq, R0, 0, over);
    b.asm.load(Size::W, R1, R0, 0);
    let pass = b.pass_for(Pass::Excluded);
    b.asm.jump_if(If::Ne, R1, 0, pass);
    b.asm.bind(over);
}

/// `R0` is not null if the port of this end is excluded.
#[track_caller]
fn find_port(b: &mut Builder, refs: &Refs, end: End, side: Side) {
    let place = i16::from(end == End::Destination);
    b.asm.load(Size::H, R1, R10, PORTS + 2 * place);
    b.asm.store(Size::H, R10, KEY, R1);
    b.asm.store(Size::H, R10, KEY + 2, i32::from(number(side)));
    b.look_up(refs.ports, KEY);
}
