//! Connections of the proxy whose other end has an address of the node: those that the proxy opens to the node with the address of a
//! pod, and those of other hosts to a pod through the node, which replaces their source by its own (NodePorts, masquerading).
//!
//! An address of the node does not tell to whom a connection belongs. The origin of its first packet does:
//! - The first packet of the node's own connections, including probes, has a socket in the node's namespace. If the node
//!   translates the destination (services), that socket has other ends than the packet.
//! - Connections in which the proxy sends packets to or from such an address are stored; later packets are looked up.
//! - A first packet of the node or of the pod itself with the same ends deletes the entry.
//!
//! Connections of one pod to another through the node (a NodePort, or a service that it excludes) are stored in the same way: the node
//! may have translated them, and only the node knows the addresses of the answer.

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

/// Jumps if the connection of the packet belongs to the proxy; `pod` is the pod's end.
#[track_caller]
pub(super) fn jump_if_proxied(b: &mut Builder, pod: End, to: Label) {
    key(b, pod);
    b.look_up(PROXIED, OWNER_KEY);
    b.asm.jump_if(If::Ne, R0, 0, to);
}

/// Stores that the connection belongs to the proxy, unless it is stored: the lookup keeps the entry from eviction, and costs less.
#[track_caller]
pub(super) fn remember(b: &mut Builder, pod: End) {
    let known = b.asm.label();
    jump_if_proxied(b, pod, known);
    b.asm.store(Size::W, R10, OWNER, 1);
    store(b, PROXIED);
    b.asm.bind(known);
}

/// Like [`remember`], only for the first packet and its answer.
#[track_caller]
pub(super) fn remember_first(b: &mut Builder, pod: End) {
    let over = b.asm.label();
    jump_unless_syn(b, over);
    remember(b, pod);
    b.asm.bind(over);
}

/// Stores the connection of a first packet from another pod that did not go to the proxy directly, but was forwarded by the node.
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

/// Deletes the entry of an earlier connection with the same ends, for a first packet that goes to the proxy.
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

/// Handles a packet to a pod from an address of the node: jumps to `node` if it is the node's own, or to `captured` if it belongs to a
/// connection of the proxy; continues if it is the first packet of another host.
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

/// Handles a packet of a pod to an address of the node: jumps to `captured` if it belongs to a connection of the proxy, otherwise to
/// `node`.
#[track_caller]
pub(super) fn to_node(b: &mut Builder, node: Label, captured: Label) {
    let first = b.asm.label();
    b.is_first();
    b.asm.jump_if(If::Ne, R1, 0, first);
    jump_if_proxied(b, End::Source, captured);
    b.asm.jump(node);
    // A packet with the address of another pod deletes no entry.
    b.asm.bind(first);
    find(b, PODS, End::Source);
    b.asm.jump_if(If::Eq, R0, 0, node);
    b.asm.load(Size::W, R1, R0, 0);
    b.asm.load(Size::W, R2, R6, SKB_IFINDEX);
    b.asm.jump_if(If::Ne, R1, R2, node);
    forget(b, End::Source);
    b.asm.jump(node);
}

/// Writes the ends of the sending socket to the header's place, in the order of a packet to that socket. At a port of a bridge the
/// socket may belong to another namespace.
#[track_caller]
fn sender(b: &mut Builder, none: Label) {
    let [v4, over] = [(); 2].map(|()| b.asm.label());
    b.asm.load(Size::D, R1, R6, SKB_SK);
    b.asm.jump_if(If::Eq, R1, 0, none);
    b.asm.call(Helper::SkFullsock);
    b.asm.jump_if(If::Eq, R0, 0, none);
    // `dst_port` is in network order, `src_port` in host order.
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
