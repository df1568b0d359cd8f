//! The proxy of each connection, while one proxy takes over from another: packets continue to go to the proxy that has the connection.
//!
//! The first packet of the proxy is stored: its answer to the first packet of a pod or a client, or the first packet of its own
//! connection. The map is looked up only while a previously active proxy still exists; otherwise a packet costs one additional array
//! lookup.

use super::parts::{PODS, element, find, put_address};
use crate::asm::{Alu, Helper, If, Label, MapRef, Reg, Size};
use crate::inpod::layout::{OWNER, OWNER_KEY, PORTS, SKB_IFINDEX};
use crate::inpod::nat::End;
use crate::inpod::packet::Builder;
use Reg::{R0, R1, R2, R3, R4, R6, R7, R10};

/// The host end of the proxy's link, by connection.
const OWNERS: MapRef = MapRef(5);
/// The number of previously active proxies that have connections.
const FORMER: MapRef = MapRef(6);
/// Size of a key: the address of the pod and that of the peer, as IPv6 or IPv4-mapped, then the port of the pod and that of the peer.
pub(super) const KEY_SIZE: u32 = 36;

impl End {
    pub(super) fn other(self) -> Self {
        match self {
            Self::Source => Self::Destination,
            Self::Destination => Self::Source,
        }
    }
}

/// Builds the key on the stack; `pod` is the pod's end of the packet.
#[track_caller]
pub(super) fn key(b: &mut Builder, pod: End) {
    put_address(b, pod, OWNER_KEY);
    put_address(b, pod.other(), OWNER_KEY + 16);
    for (end, at) in [(pod, 32), (pod.other(), 34)] {
        let place = i16::from(end == End::Destination);
        b.asm.load(Size::H, R1, R10, PORTS + 2 * place);
        b.asm.store(Size::H, R10, OWNER_KEY + at, R1);
    }
}

/// Jumps, with the link in `R7`, if a previously active proxy has the connection of the packet. First packets do not jump.
#[track_caller]
pub(super) fn jump_to_former(b: &mut Builder, pod: End, found: Label) {
    let active = b.asm.label();
    b.is_first();
    b.asm.jump_if(If::Ne, R1, 0, active);
    element(b, FORMER, false);
    b.asm.load(Size::W, R1, R0, 0);
    b.asm.jump_if(If::Eq, R1, 0, active);
    key(b, pod);
    b.look_up(OWNERS, OWNER_KEY);
    b.asm.jump_if(If::Eq, R0, 0, active);
    b.asm.load(Size::W, R7, R0, 0);
    b.asm.jump(found);
    b.asm.bind(active);
}

/// If the packet has SYN, stores that the connection belongs to the proxy at this link. If the entry is evicted because it was idle
/// for longest in a full map, the connection ends at a hand-over.
#[track_caller]
pub(super) fn remember(b: &mut Builder) {
    let [of_source, write, over] = [(); 3].map(|()| b.asm.label());
    jump_unless_syn(b, over);
    find(b, PODS, End::Destination);
    b.asm.jump_if(If::Eq, R0, 0, of_source);
    key(b, End::Destination);
    b.asm.jump(write);
    b.asm.bind(of_source);
    find(b, PODS, End::Source);
    b.asm.jump_if(If::Eq, R0, 0, over);
    key(b, End::Source);
    b.asm.bind(write);
    b.asm.load(Size::W, R1, R6, SKB_IFINDEX);
    b.asm.store(Size::W, R10, OWNER, R1);
    store(b, OWNERS);
    b.asm.bind(over);
}

/// Jumps unless the packet has SYN: the first one of a connection, or its answer.
#[track_caller]
pub(super) fn jump_unless_syn(b: &mut Builder, to: Label) {
    b.asm.load(Size::B, R1, R10, PORTS + 13);
    b.asm.alu(Alu::And, R1, 2);
    b.asm.jump_if(If::Eq, R1, 0, to);
}

/// Stores the key and the value on the stack in a map.
#[track_caller]
pub(super) fn store(b: &mut Builder, map: MapRef) {
    let asm = &mut b.asm;
    asm.map(R1, map);
    asm.mov(R2, R10);
    asm.alu(Alu::Add, R2, i32::from(OWNER_KEY));
    asm.mov(R3, R10);
    asm.alu(Alu::Add, R3, i32::from(OWNER));
    asm.mov(R4, 0);
    asm.call(Helper::MapUpdate);
}
