//! Parts of the node's programs: maps, the choice of the proxy for a packet, and redirection.

use super::owner;
use crate::asm::{Helper, If, Label, MapRef, Reg, Size};
use crate::inpod::layout::{Count, INDEX, KEY, SKB_MARK, TUPLE};
use crate::inpod::nat::End;
use crate::inpod::packet::{Builder, TUPLE_SIZE};
use Reg::{R0, R1, R2, R6, R7, R9, R10};

/// Host ends of the links of enrolled pods, by address.
pub(super) const PODS: MapRef = MapRef(0);
// MapRef(1) is the map of counters, as in a pod.
/// Addresses of the node, with [`OF_NODE`], and those of its proxies, with [`OF_PROXY`].
pub(super) const NODE: MapRef = MapRef(2);
pub(super) const OF_NODE: u32 = 1;
pub(super) const OF_PROXY: u32 = 2;
/// The host end of the active proxy's link; 0 without one.
pub(super) const PROXY: MapRef = MapRef(3);

/// Connections of the proxy with an address of the node at the other end: see `proxied`.
pub(super) const PROXIED: MapRef = MapRef(4);
// MapRef(5) and MapRef(6) are the maps of connections and their proxies: see `owner`.
/// The proxy's address for DNS, by family; zeros without one. Only with DNS capture.
pub(super) const NAMES: MapRef = MapRef(7);
/// The servers that DNS queries were sent to, by sender. Only with DNS capture.
pub(super) const QUERIES: MapRef = MapRef(8);

/// The mark of packets that are for a socket of the proxy, although their destination is another host.
pub(super) const TPROXY_MARK: u32 = 0x400;
/// `PACKET_HOST` of `linux/if_packet.h`
const PACKET_HOST: i32 = 0;

/// Looks up an address. `R0` is the address of the value, or null. Keys are IPv6 or IPv4-mapped addresses.
#[track_caller]
pub(super) fn find(b: &mut Builder, map: MapRef, end: End) {
    put_address(b, end, KEY);
    b.look_up(map, KEY);
}

/// Copies an address of the tuple to the stack, as IPv6 or IPv4-mapped address.
#[track_caller]
pub(super) fn put_address(b: &mut Builder, end: End, at: i16) {
    let place = i16::from(end == End::Destination);
    let [v4, done] = [(); 2].map(|()| b.asm.label());
    if b.dual {
        b.asm.jump_if(If::Eq, R9, TUPLE_SIZE[0].0, v4);
        b.copy(TUPLE + 16 * place, at, 16, Size::W);
        b.asm.jump(done);
    }
    b.asm.bind(v4);
    b.asm.store(Size::W, R10, at, 0);
    b.asm.store(Size::W, R10, at + 4, 0);
    let mapped = i32::from_ne_bytes([0, 0, 0xff, 0xff]);
    b.asm.store(Size::W, R10, at + 8, mapped);
    b.copy(TUPLE + 4 * place, at + 12, 4, Size::W);
    b.asm.bind(done);
}

/// Sets `R7` to the link index of the proxy that has the connection of the pod at this end, or else of the active proxy; without a
/// proxy the packet is dropped and counted.
#[track_caller]
pub(super) fn find_proxy(b: &mut Builder, pod: End) {
    let found = b.asm.label();
    owner::jump_to_former(b, pod, found);
    find_active(b, found);
    b.asm.bind(found);
}

/// Like [`find_proxy`], for the active proxy only.
#[track_caller]
pub(super) fn find_active(b: &mut Builder, found: Label) {
    element(b, PROXY, false);
    b.asm.load(Size::W, R7, R0, 0);
    b.asm.jump_if(If::Ne, R7, 0, found);
    b.refuse(Count::NoProxy);
}

/// Counts first packets of connections.
#[track_caller]
pub(super) fn count_first(b: &mut Builder, what: Count) {
    b.is_first();
    let later = b.asm.label();
    b.asm.jump_if(If::Eq, R1, 0, later);
    b.captured(what);
    b.asm.bind(later);
}

/// Redirects the packet to the link in `R7`, and ends the program.
#[track_caller]
pub(super) fn redirect(b: &mut Builder, helper: Helper) {
    if helper == Helper::RedirectPeer {
        // At a port of a bridge the frame may be for another host, and before 6.15 `bpf_redirect_peer` keeps that packet type
        // in the other namespace.
        for_this_host(b);
    }
    let asm = &mut b.asm;
    asm.mov(R1, R7);
    asm.mov(R2, 0);
    asm.call(helper);
    asm.exit();
}

/// Sets `R0` to the address of an array element: the only one, or that of the tuple's family.
#[track_caller]
pub(super) fn element(b: &mut Builder, map: MapRef, by_family: bool) {
    let known = b.asm.label();
    b.asm.store(Size::W, R10, INDEX, 0);
    if by_family && b.dual {
        b.asm.jump_if(If::Eq, R9, TUPLE_SIZE[0].0, known);
        b.asm.store(Size::W, R10, INDEX, 1);
    }
    b.asm.bind(known);
    b.look_up(map, INDEX);
    b.asm.jump_if(If::Eq, R0, 0, b.pass);
}

/// Makes the kernel deliver the packet in this namespace, although its destination is an address of another one.
#[track_caller]
pub(super) fn keep_here(b: &mut Builder) {
    b.asm.mov(R1, TPROXY_MARK.cast_signed());
    b.asm.store(Size::W, R6, SKB_MARK, R1);
    for_this_host(b);
}

/// Sets the packet type to `PACKET_HOST`, because the frame may have the address of another host.
#[track_caller]
pub(super) fn for_this_host(b: &mut Builder) {
    let asm = &mut b.asm;
    asm.mov(R1, R6);
    asm.mov(R2, PACKET_HOST);
    asm.call(Helper::ChangeType);
    asm.jump_if(If::Ne, R0, 0, b.drop);
}
