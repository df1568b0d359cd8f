//! ICMP errors about packets that the proxy sent with the address of a pod: they are sent to that address, and are for the proxy.
//!
//! One of them reports the path MTU; without it, large segments of the proxy would be lost repeatedly.

use crate::asm::{Alu, If, Reg, Size};
use crate::inpod::layout::{HEADER, IPPROTO_ICMP, IPPROTO_TCP, PORTS, TUPLE};
use crate::inpod::packet::{Builder, TUPLE_SIZE};
use Reg::{R1, R7, R8, R9, R10};

/// `ICMP_DEST_UNREACH`, `ICMP_TIME_EXCEEDED` and `ICMP_PARAMETERPROB` of `linux/icmp.h`
const ERRORS: [i32; 3] = [3, 11, 12];
/// `ICMPV6_DEST_UNREACH`, `ICMPV6_PKT_TOOBIG`, `ICMPV6_TIME_EXCEED` and `ICMPV6_PARAMPROB` of `linux/icmpv6.h`
const ERRORS_V6: [i32; 4] = [1, 2, 3, 4];
/// Length of the ICMP header before the quoted packet, in both families.
const LENGTH: i32 = 8;

/// Copies the addresses and ports of the packet that an error quotes to the tuple, as if it had been parsed. Packets other than errors
/// about TCP pass, and so do errors about a packet with IPv6 extension headers.
#[track_caller]
pub(super) fn inner(b: &mut Builder) {
    let [v4, v6, of_v4, of_v6, ports] = [(); 5].map(|()| b.asm.label());
    let pass = b.pass;
    b.read(R7, PORTS, LENGTH, pass);
    b.asm.load(Size::B, R1, R10, PORTS);
    b.asm.alu(Alu::Add, R7, LENGTH);
    b.asm.jump_if(If::Eq, R9, TUPLE_SIZE[0].0, v4);
    b.asm.jump_if(If::Ne, R8, IPPROTO_ICMP, v6);
    b.asm.jump(pass);

    b.asm.bind(v4);
    b.asm.jump_if(If::Ne, R8, IPPROTO_ICMP, pass);
    for kind in ERRORS {
        b.asm.jump_if(If::Eq, R1, kind, of_v4);
    }
    b.asm.jump(pass);
    b.asm.bind(of_v4);
    b.read(R7, HEADER, 20, pass);
    b.asm.load(Size::B, R1, R10, HEADER + 9);
    b.asm.jump_if(If::Ne, R1, IPPROTO_TCP, pass);
    b.asm.load(Size::B, R1, R10, HEADER);
    b.asm.alu(Alu::And, R1, 0x0f);
    b.asm.alu(Alu::ShiftLeft, R1, 2);
    b.asm.alu(Alu::Add, R7, R1);
    b.copy(HEADER + 12, TUPLE, 8, Size::W);
    b.asm.jump(ports);

    b.asm.bind(v6);
    if b.dual {
        for kind in ERRORS_V6 {
            b.asm.jump_if(If::Eq, R1, kind, of_v6);
        }
        b.asm.jump(pass);
        b.asm.bind(of_v6);
        b.read(R7, HEADER, 40, pass);
        b.asm.load(Size::B, R1, R10, HEADER + 6);
        b.asm.jump_if(If::Ne, R1, IPPROTO_TCP, pass);
        b.asm.alu(Alu::Add, R7, 40);
        b.copy(HEADER + 8, TUPLE, 32, Size::D);
    } else {
        b.asm.bind(of_v6);
        b.asm.jump(pass);
    }

    b.asm.bind(ports);
    // The quoted packet may end after the ports, so the flags are set to none.
    b.asm.store(Size::W, R10, PORTS + 12, 0);
    b.read(R7, PORTS, 4, pass);
    b.put_ports();
    b.asm.mov(R8, IPPROTO_TCP);
}
