//! DNS: queries are translated to ztunnel's address at loopback, and its answers back.
//!
//! ztunnel listens for DNS at 127.0.0.1 and ::1, and its sockets there are not transparent, so packets must have
//! these addresses. A map stores the server of each query, by the sender's address, port and protocol.

use super::layout::*;
use super::packet::{Builder, TUPLE_SIZE, be16};
use super::parse::Udp;
use crate::asm::{Alu, Helper, If, MapRef, Operand, Reg, Size};
use Reg::{R0, R1, R2, R3, R4, R5, R6, R7, R8, R9, R10};
use std::net::{Ipv4Addr, Ipv6Addr};
use weir_ambient::ztunnel;

/// Port of name servers.
pub(crate) const DNS_PORT: u16 = 53;
/// Offsets of the checksums in the headers.
const IPV4_CHECKSUM: i32 = 10;
const TCP_CHECKSUM: i32 = 16;
const UDP_CHECKSUM: i32 = 6;

/// One end of a packet.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    Source,
    Destination,
}

/// Builds the key of a map of queries on the stack from one end of the tuple.
#[track_caller]
fn key(b: &mut Builder, end: End) {
    let place = i16::from(end == End::Destination);
    for at in [0, 8] {
        b.asm.store(Size::D, R10, KEY + at, 0);
    }
    let [v4, done] = [(); 2].map(|()| b.asm.label());
    if b.dual {
        b.asm.jump_if(If::Eq, R9, TUPLE_SIZE[0].0, v4);
        b.copy(TUPLE + 16 * place, KEY, 16, Size::D);
        b.asm.jump(done);
    }
    b.asm.bind(v4);
    b.copy(TUPLE + 4 * place, KEY, 4, Size::W);
    b.asm.bind(done);
    b.asm.load(Size::H, R1, R10, PORTS + 2 * place);
    b.asm.store(Size::H, R10, KEY + 16, R1);
    b.asm.store(Size::H, R10, KEY + 18, R8);
}

/// Stores the server that the sender queries; without space in the map the packet is dropped.
#[track_caller]
pub(crate) fn remember(b: &mut Builder, queries: MapRef) {
    key(b, End::Source);
    for at in [0, 8] {
        b.asm.store(Size::D, R10, VALUE + at, 0);
    }
    let [v4, done, added] = [(); 3].map(|()| b.asm.label());
    if b.dual {
        b.asm.jump_if(If::Eq, R9, TUPLE_SIZE[0].0, v4);
        b.copy(TUPLE + 16, VALUE, 16, Size::D);
        b.asm.jump(done);
    }
    b.asm.bind(v4);
    b.copy(TUPLE + 4, VALUE, 4, Size::W);
    let asm = &mut b.asm;
    asm.bind(done);
    asm.map(R1, queries);
    asm.mov(R2, R10);
    asm.alu(Alu::Add, R2, i32::from(KEY));
    asm.mov(R3, R10);
    asm.alu(Alu::Add, R3, i32::from(VALUE));
    asm.mov(R4, 0);
    asm.call(Helper::MapUpdate);
    asm.jump_if(If::Eq, R0, 0, added);
    b.refuse(Count::OutOfMemory);
    b.asm.bind(added);
}

/// On `lo`, for packets without the mark of outbound connections: translates queries and answers, and passes all packets.
#[track_caller]
pub(super) fn translate(b: &mut Builder) {
    let [query, answer] = [(); 2].map(|()| b.asm.label());
    let pass = b.pass;
    b.asm.load(Size::W, R1, R6, SKB_MARK);
    b.asm.jump_if(If::Eq, R1, QUERY, query);
    b.asm.alu(Alu::And, R1, MASK);
    b.asm.jump_if(If::Eq, R1, ZTUNNEL, answer);
    b.asm.jump(pass);

    b.asm.bind(query);
    b.parse(Udp::Read);
    // The new destination address.
    let v6 = Ipv6Addr::LOCALHOST.octets();
    let [a, bb, c, d, e, f, g, h, low @ ..] = v6;
    let v4 = Ipv4Addr::LOCALHOST.octets();
    let is_v4 = b.asm.label();
    let over = b.asm.label();
    if b.dual {
        b.asm.jump_if(If::Eq, R9, TUPLE_SIZE[0].0, is_v4);
        for (at, half) in [(0, [a, bb, c, d, e, f, g, h]), (8, low)] {
            b.asm.number(R1, u64::from_ne_bytes(half));
            b.asm.store(Size::D, R10, VALUE + at, R1);
        }
        b.asm.jump(over);
    }
    b.asm.bind(is_v4);
    b.asm.number(R1, u64::from(u32::from_ne_bytes(v4)));
    b.asm.store(Size::W, R10, VALUE, R1);
    b.asm.bind(over);
    rewrite(b, End::Destination, ztunnel::DNS);
    // The policy rule of ambient mode compares only these bits; the others are not needed any longer.
    b.asm.mov(R1, LOCAL);
    b.asm.store(Size::W, R6, SKB_MARK, R1);
    b.asm.jump(pass);

    b.asm.bind(answer);
    b.parse(Udp::Read);
    b.asm.load(Size::H, R1, R10, PORTS);
    b.asm.jump_if(If::Ne, R1, be16(ztunnel::DNS), pass);
    let from_loopback = b.asm.label();
    b.jump_if_address(0, v4, v6, from_loopback);
    b.asm.jump(pass);
    b.asm.bind(from_loopback);
    answer_from_server(b, QUERIES);
    b.asm.jump(pass);
}

/// Sets the source of an answer to the server that was queried. An answer without an entry passes: the query was to ztunnel itself.
#[track_caller]
pub(crate) fn answer_from_server(b: &mut Builder, queries: MapRef) {
    key(b, End::Destination);
    b.look_up(queries, KEY);
    let pass = b.pass;
    b.asm.jump_if(If::Eq, R0, 0, pass);
    value_from(b);
    rewrite(b, End::Source, DNS_PORT);
}

/// Copies the address at `R0`, a value of a map, to `VALUE`.
#[track_caller]
pub(crate) fn value_from(b: &mut Builder) {
    for at in [0, 8] {
        b.asm.load(Size::D, R1, R0, at);
        b.asm.store(Size::D, R10, VALUE + at, R1);
    }
}

/// Writes the address at `VALUE` and a port to one end of the packet, and updates the checksums.
#[track_caller]
pub(crate) fn rewrite(b: &mut Builder, end: End, port: u16) {
    let place = i16::from(end == End::Destination);
    let [is_v4, done] = [(); 2].map(|()| b.asm.label());
    // From here on R8 is the offset of the transport header's checksum in the frame.
    let [udp, known] = [(); 2].map(|()| b.asm.label());
    let frame = i32::from(ETHERNET);
    b.asm.jump_if(If::Eq, R8, IPPROTO_UDP, udp);
    b.asm.mov(R8, TCP_CHECKSUM);
    b.asm.store(Size::W, R10, FLAGS, 0);
    b.asm.jump(known);
    b.asm.bind(udp);
    b.asm.mov(R8, UDP_CHECKSUM);
    // In UDP, 0 means no checksum, and stays 0. In TCP, 0 is a valid checksum.
    b.asm.store(Size::W, R10, FLAGS, BPF_F_MARK_MANGLED_0);
    b.asm.bind(known);
    b.asm.alu(Alu::Add, R7, frame);
    b.asm.alu(Alu::Add, R8, R7);
    if b.dual {
        b.asm.jump_if(If::Eq, R9, TUPLE_SIZE[0].0, is_v4);
        for word in 0..4 {
            replace(
                b,
                TUPLE + 16 * place + 4 * word,
                VALUE + 4 * word,
                BPF_F_PSEUDO_HDR | 4,
            );
        }
        store(
            b,
            Operand::Imm(frame + 8 + 16 * i32::from(place)),
            VALUE,
            16,
        );
        b.asm.jump(done);
    }
    b.asm.bind(is_v4);
    let asm = &mut b.asm;
    asm.mov(R1, R6);
    asm.mov(R2, frame + IPV4_CHECKSUM);
    asm.load(Size::W, R3, R10, TUPLE + 4 * place);
    asm.load(Size::W, R4, R10, VALUE);
    asm.mov(R5, 4);
    asm.call(Helper::L3Checksum);
    asm.jump_if(If::Ne, R0, 0, b.drop);
    replace(b, TUPLE + 4 * place, VALUE, BPF_F_PSEUDO_HDR | 4);
    store(b, Operand::Imm(frame + 12 + 4 * i32::from(place)), VALUE, 4);
    b.asm.bind(done);
    b.asm.store(Size::W, R10, SCRATCH, 0);
    b.asm.store(Size::W, R10, SCRATCH + 4, 0);
    b.asm.load(Size::H, R1, R10, PORTS + 2 * place);
    b.asm.store(Size::H, R10, SCRATCH, R1);
    b.asm.store(Size::H, R10, SCRATCH + 4, be16(port));
    replace(b, SCRATCH, SCRATCH + 4, 2);
    b.asm.alu(Alu::Add, R7, 2 * i32::from(place));
    store(b, Operand::Reg(R7), SCRATCH + 4, 2);
}

/// Sets ACK in the TCP header, at `R7` from the IP header. Clobbers `R7` and `R8`.
#[track_caller]
pub(crate) fn acknowledge(b: &mut Builder) {
    let asm = &mut b.asm;
    asm.store(Size::W, R10, FLAGS, 0);
    asm.store(Size::W, R10, SCRATCH, 0);
    asm.store(Size::W, R10, SCRATCH + 4, 0);
    // The header length and the flags.
    asm.load(Size::H, R1, R10, PORTS + 12);
    asm.store(Size::H, R10, SCRATCH, R1);
    asm.alu(Alu::Or, R1, be16(0x10));
    asm.store(Size::H, R10, SCRATCH + 4, R1);
    asm.alu(Alu::Add, R7, i32::from(ETHERNET));
    asm.mov(R8, R7);
    asm.alu(Alu::Add, R8, TCP_CHECKSUM);
    replace(b, SCRATCH, SCRATCH + 4, 2);
    b.asm.alu(Alu::Add, R7, 12);
    store(b, Operand::Reg(R7), SCRATCH + 4, 2);
}

/// Updates the checksum of the transport header for a changed word.
#[track_caller]
fn replace(b: &mut Builder, from: i16, to: i16, flags: i32) {
    let asm = &mut b.asm;
    asm.mov(R1, R6);
    asm.mov(R2, R8);
    asm.load(Size::W, R3, R10, from);
    asm.load(Size::W, R4, R10, to);
    asm.load(Size::W, R5, R10, FLAGS);
    asm.alu(Alu::Or, R5, flags);
    asm.call(Helper::L4Checksum);
    asm.jump_if(If::Ne, R0, 0, b.drop);
}

#[track_caller]
fn store(b: &mut Builder, at: Operand, from: i16, length: i32) {
    let asm = &mut b.asm;
    asm.mov(R2, at);
    asm.mov(R1, R6);
    asm.mov(R3, R10);
    asm.alu(Alu::Add, R3, i32::from(from));
    asm.mov(R4, length);
    asm.mov(R5, 0);
    asm.call(Helper::StoreBytes);
    asm.jump_if(If::Ne, R0, 0, b.drop);
}
