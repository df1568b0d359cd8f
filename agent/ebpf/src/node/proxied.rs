//! Connections of the proxy whose other end has an address of the node: what it asks the node with the address of a pod, and what
//! others send to a pod through the node, which gives them its own address (NodePorts, masquerading).
//!
//! An address of the node does not say whose a connection is. Who began it does:
//! - The first packet of the node's own connections, probes among them, has a socket in the node's namespace. If the node
//!   translates their destination (services), that socket has other ends than the packet.
//! - What the proxy sends to such an address, or in the name of one, is written down; later packets are looked up.
//! - A first packet of the node or of the pod itself with the same ends takes the connection back.
//!
//! What one pod sends to another through the node (a NodePort, or a service that it excludes) is written down in the same way: the node
//! may have translated it, and only the node knows what the answer is to look like.

use super::owner::{jump_unless_syn, key, store};
use super::parts::{PODS, PROXIED, find};
use crate::asm::{Alu, Helper, If, Label, Reg, Size};
use crate::inpod::layout::{
    HEADER, IPPROTO_TCP, OWNER, OWNER_KEY, SKB_IFINDEX, SKB_SK, SOCK_DST_IP4, SOCK_DST_IP6,
    SOCK_DST_PORT, SOCK_SRC_IP4, SOCK_SRC_IP6, SOCK_SRC_PORT,
};
use crate::inpod::nat::End;
use crate::inpod::packet::{Builder, TUPLE_SIZE};
use Reg::{R0, R1, R2, R3, R4, R6, R8, R9, R10};

/// `BPF_F_CURRENT_NETNS`
const CURRENT_NETNS: i32 = -1;

/// Jumps if the connection of the packet is the proxy's; the pod is at this end.
#[track_caller]
pub(super) fn jump_if_proxied(b: &mut Builder, pod: End, to: Label) {
    key(b, pod);
    b.look_up(PROXIED, OWNER_KEY);
    b.asm.jump_if(If::Ne, R0, 0, to);
}

/// Writes down that it is, unless that is there: looking it up keeps it from being evicted, and costs less.
#[track_caller]
pub(super) fn remember(b: &mut Builder, pod: End) {
    let known = b.asm.label();
    jump_if_proxied(b, pod, known);
    b.asm.store(Size::W, R10, OWNER, 1);
    store(b, PROXIED);
    b.asm.bind(known);
}

/// The same at the first packet and its answer only.
#[track_caller]
pub(super) fn remember_first(b: &mut Builder, pod: End) {
    let over = b.asm.label();
    jump_unless_syn(b, over);
    remember(b, pod);
    b.asm.bind(over);
}

/// Of a first packet from another pod, which did not go to the proxy at once: the node forwarded it.
#[track_caller]
pub(super) fn remember_of_pod(b: &mut Builder) {
    let over = b.asm.label();
    b.is_first();
    b.asm.jump_if(If::Eq, R1, 0, over);
    find(b, PODS, End::Source);
    b.asm.jump_if(If::Eq, R0, 0, over);
    remember(b, End::Destination);
    b.asm.bind(over);
}

/// A first packet goes to the proxy at once: no earlier connection with these ends counts.
#[track_caller]
pub(super) fn forget_first(b: &mut Builder, pod: End) {
    let over = b.asm.label();
    b.is_first();
    b.asm.jump_if(If::Eq, R1, 0, over);
    forget(b, pod);
    b.asm.bind(over);
}

#[track_caller]
fn forget(b: &mut Builder, pod: End) {
    key(b, pod);
    b.asm.map(R1, PROXIED);
    b.asm.mov(R2, R10);
    b.asm.alu(Alu::Add, R2, i32::from(OWNER_KEY));
    b.asm.call(Helper::MapDelete);
}

/// Of a packet to a pod from an address of the node: goes on where it is another's first one, and jumps to `node` if it is the
/// node's, or to `captured` if it is of a connection of the proxy.
#[track_caller]
pub(super) fn from_node(b: &mut Builder, node: Label, captured: Label) {
    let [first, own, of_others] = [(); 3].map(|()| b.asm.label());
    b.is_first();
    b.asm.jump_if(If::Ne, R1, 0, first);
    jump_if_proxied(b, End::Destination, captured);
    b.asm.jump(node);

    b.asm.bind(first);
    b.asm.mov(R4, CURRENT_NETNS);
    b.jump_if_sent_in(own);
    sender(b, of_others);
    b.asm.mov(R4, CURRENT_NETNS);
    b.jump_if_connected_in(own);
    b.asm.jump(of_others);

    b.asm.bind(own);
    forget(b, End::Destination);
    b.asm.jump(node);
    b.asm.bind(of_others);
    b.asm.mov(R8, IPPROTO_TCP);
}

/// Of a packet of a pod to an address of the node: jumps to `captured` if it is of a connection of the proxy.
#[track_caller]
pub(super) fn to_node(b: &mut Builder, node: Label, captured: Label) {
    let first = b.asm.label();
    b.is_first();
    b.asm.jump_if(If::Ne, R1, 0, first);
    jump_if_proxied(b, End::Source, captured);
    b.asm.jump(node);
    // With the address of another pod it says nothing.
    b.asm.bind(first);
    find(b, PODS, End::Source);
    b.asm.jump_if(If::Eq, R0, 0, node);
    b.asm.load(Size::W, R1, R0, 0);
    b.asm.load(Size::W, R2, R6, SKB_IFINDEX);
    b.asm.jump_if(If::Ne, R1, R2, node);
    forget(b, End::Source);
    b.asm.jump(node);
}

/// Writes the ends of the socket that sent the packet over the header, as a packet to it has them. At a port of a bridge it may be
/// one of another namespace.
#[track_caller]
fn sender(b: &mut Builder, none: Label) {
    let [v4, over] = [(); 2].map(|()| b.asm.label());
    b.asm.load(Size::D, R1, R6, SKB_SK);
    b.asm.jump_if(If::Eq, R1, 0, none);
    b.asm.call(Helper::SkFullsock);
    b.asm.jump_if(If::Eq, R0, 0, none);
    // In network order, and the other one is not.
    b.asm.load(Size::W, R3, R0, SOCK_DST_PORT);
    b.asm.load(Size::W, R4, R0, SOCK_SRC_PORT);
    b.asm.mov(R1, R4);
    b.asm.alu(Alu::ShiftLeft, R4, 8);
    b.asm.alu(Alu::ShiftRight, R1, 8);
    b.asm.alu(Alu::Or, R4, R1);
    if b.dual {
        b.asm.jump_if(If::Eq, R9, TUPLE_SIZE[0].0, v4);
        for (from, to) in [(SOCK_DST_IP6, HEADER), (SOCK_SRC_IP6, HEADER + 16)] {
            for at in [0, 4, 8, 12] {
                b.asm.load(Size::W, R1, R0, from + at);
                b.asm.store(Size::W, R10, to + at, R1);
            }
        }
        b.asm.store(Size::H, R10, HEADER + 32, R3);
        b.asm.store(Size::H, R10, HEADER + 34, R4);
        b.asm.jump(over);
    }
    b.asm.bind(v4);
    for (from, to) in [(SOCK_DST_IP4, HEADER), (SOCK_SRC_IP4, HEADER + 4)] {
        b.asm.load(Size::W, R1, R0, from);
        b.asm.store(Size::W, R10, to, R1);
    }
    b.asm.store(Size::H, R10, HEADER + 8, R3);
    b.asm.store(Size::H, R10, HEADER + 10, R4);
    b.asm.bind(over);
}
