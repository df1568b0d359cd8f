//! Parts of programs: parse a packet, count, look up and assign sockets.

use super::layout::*;
use crate::asm::{Alu, Assembler, Helper, If, Label, MapRef, Reg, Size};
use Reg::{R0, R1, R2, R3, R4, R5, R6, R7, R8, R9, R10};

/// `ETH_P_IP` and `ETH_P_IPV6`
const ETH_P: [u16; 2] = [0x0800, 0x86dd];
/// Extension headers that are read in one packet. The kernel reads any number; a packet with more is dropped.
const EXTENSIONS: usize = 6;
/// What `TUPLE` has for each family: bytes, and where the two ports are.
pub(crate) const TUPLE_SIZE: [(i32, i16); 2] = [(12, TUPLE + 8), (36, TUPLE + 32)];

/// A program under construction. `R6` is the packet everywhere.
pub(crate) struct Builder {
    pub(crate) asm: Assembler,
    /// Returns [`NEXT`].
    pub(crate) pass: Label,
    /// Returns [`DROP`].
    pub(crate) drop: Label,
    /// With IPv6.
    pub(crate) dual: bool,
    /// Where ICMP goes on; without it, it passes.
    pub(crate) icmp: Option<Label>,
}

/// A number as it is in a packet, compared with what was loaded from there.
pub(crate) fn be16(number: u16) -> i32 {
    i32::from(u16::from_ne_bytes(number.to_be_bytes()))
}

impl Builder {
    #[track_caller]
    pub(crate) fn new(dual: bool) -> Self {
        let mut asm = Assembler::new();
        let (pass, drop) = (asm.label(), asm.label());
        asm.mov(R6, R1);
        Self {
            asm,
            pass,
            drop,
            dual,
            icmp: None,
        }
    }

    /// Appends the two ends that most jumps lead to.
    #[track_caller]
    pub(crate) fn finish(mut self) -> Result<crate::asm::Code, crate::asm::AsmError> {
        let asm = &mut self.asm;
        for (label, verdict) in [(self.pass, NEXT), (self.drop, DROP)] {
            asm.bind(label);
            asm.mov(R0, verdict);
            asm.exit();
        }
        self.asm.finish()
    }

    /// Adds one to a counter. `R0` to `R5` are lost.
    #[track_caller]
    pub(crate) fn count(&mut self, what: Count) {
        self.asm.store(Size::W, R10, INDEX, what as i32);
        self.look_up(COUNTS, INDEX);
        let asm = &mut self.asm;
        let absent = asm.label();
        asm.jump_if(If::Eq, R0, 0, absent);
        asm.mov(R1, 1);
        asm.atomic_add(R0, 0, R1);
        asm.bind(absent);
    }

    /// Counts and drops.
    #[track_caller]
    pub(crate) fn refuse(&mut self, why: Count) {
        self.count(why);
        let drop = self.drop;
        self.asm.jump(drop);
    }

    /// Copies bytes of the packet, counted from its IP header, to the stack. `from` is a number or a register.
    #[track_caller]
    pub(crate) fn read(
        &mut self,
        from: impl Into<crate::asm::Operand>,
        to: i16,
        length: i32,
        failed: Label,
    ) {
        let asm = &mut self.asm;
        asm.mov(R2, from);
        asm.mov(R1, R6);
        asm.mov(R3, R10);
        asm.alu(Alu::Add, R3, i32::from(to));
        asm.mov(R4, length);
        asm.mov(R5, BPF_HDR_START_NET);
        asm.call(Helper::LoadBytesRelative);
        asm.jump_if(If::Ne, R0, 0, failed);
    }

    /// Parses the packet. What is no TCP (with `udp` also: no UDP) passes, as fragments of UDP do; fragments of TCP and
    /// headers that cannot be read are dropped. After it: `R7` is the offset of the transport header from the IP header,
    /// `R8` the protocol, `R9` the size of the tuple, and the tuple and the ports are on the stack.
    #[track_caller]
    pub(crate) fn parse(&mut self, udp: bool) {
        let [v4, v6, transport, read] = [(); 4].map(|()| self.asm.label());
        let (malformed, fragment, over) = (self.asm.label(), self.asm.label(), self.asm.label());
        let pass = self.pass;
        self.asm.load(Size::W, R2, R6, SKB_PROTOCOL);
        self.asm.jump_if(If::Eq, R2, be16(ETH_P[0]), v4);
        if self.dual {
            self.asm.jump_if(If::Eq, R2, be16(ETH_P[1]), v6);
        }
        self.asm.jump(pass);

        self.asm.bind(v4);
        self.read(0, HEADER, 20, malformed);
        let asm = &mut self.asm;
        asm.load(Size::B, R7, R10, HEADER);
        asm.alu(Alu::And, R7, 0x0f);
        asm.alu(Alu::ShiftLeft, R7, 2);
        asm.jump_if(If::Lt, R7, 20, malformed);
        asm.load(Size::B, R8, R10, HEADER + 9);
        // More fragments, or an offset: MF and IP_OFFSET.
        asm.load(Size::H, R1, R10, HEADER + 6);
        asm.alu(Alu::And, R1, be16(0x3fff));
        asm.jump_if(If::Ne, R1, 0, fragment);
        asm.mov(R9, TUPLE_SIZE[0].0);
        self.copy(HEADER + 12, TUPLE, 8, Size::W);
        self.asm.jump(transport);

        if self.dual {
            self.asm.bind(v6);
            self.read(0, HEADER, 40, malformed);
            self.asm.load(Size::B, R8, R10, HEADER + 6);
            self.asm.mov(R7, 40);
            self.asm.mov(R9, TUPLE_SIZE[1].0);
            self.copy(HEADER + 8, TUPLE, 32, Size::D);
            self.extensions(transport, fragment, malformed);
        }

        let asm = &mut self.asm;
        asm.bind(transport);
        if let Some(icmp) = self.icmp {
            asm.jump_if(If::Eq, R8, IPPROTO_ICMP, icmp);
            asm.jump_if(If::Eq, R8, IPPROTO_ICMPV6, icmp);
        }
        let is_tcp = asm.label();
        asm.jump_if(If::Eq, R8, IPPROTO_TCP, is_tcp);
        match udp {
            true => asm.jump_if(If::Ne, R8, IPPROTO_UDP, pass),
            false => asm.jump(pass),
        }
        if udp {
            self.read(R7, PORTS, 4, malformed);
            self.asm.jump(read);
        }
        self.asm.bind(is_tcp);
        self.read(R7, PORTS, 14, malformed);
        let asm = &mut self.asm;
        asm.bind(read);
        self.put_ports();
        let asm = &mut self.asm;
        asm.jump(over);

        // In R8 is the protocol, or a further extension header.
        asm.bind(fragment);
        asm.jump_if(If::Eq, R8, IPPROTO_UDP, pass);
        asm.jump_if(If::Eq, R8, IPPROTO_ICMP, pass);
        asm.jump_if(If::Eq, R8, IPPROTO_ICMPV6, pass);
        self.refuse(Count::Fragment);
        self.asm.bind(malformed);
        self.refuse(Count::Malformed);
        self.asm.bind(over);
    }

    /// Looks up the key that is on the stack there: `R0` is the value or null.
    #[track_caller]
    pub(crate) fn look_up(&mut self, map: MapRef, key: i16) {
        let asm = &mut self.asm;
        asm.map(R1, map);
        asm.mov(R2, R10);
        asm.alu(Alu::Add, R2, i32::from(key));
        asm.call(Helper::MapLookup);
    }

    /// Copies the ports that were read into the tuple. `R1` is lost.
    #[track_caller]
    pub(crate) fn put_ports(&mut self) {
        let [ports4, over] = [(); 2].map(|()| self.asm.label());
        let asm = &mut self.asm;
        asm.load(Size::W, R1, R10, PORTS);
        if self.dual {
            asm.jump_if(If::Eq, R9, TUPLE_SIZE[0].0, ports4);
            asm.store(Size::W, R10, TUPLE_SIZE[1].1, R1);
            asm.jump(over);
        }
        asm.bind(ports4);
        asm.store(Size::W, R10, TUPLE_SIZE[0].1, R1);
        asm.bind(over);
    }

    /// Follows extension headers from the next header in `R8` at `R7`.
    #[track_caller]
    fn extensions(&mut self, done: Label, fragment: Label, malformed: Label) {
        for _ in 0..EXTENSIONS {
            let [usual, fragmented, next] = [(); 3].map(|()| self.asm.label());
            // Hop by hop, routing, destination options.
            for kind in [0, 43, 60] {
                self.asm.jump_if(If::Eq, R8, kind, usual);
            }
            self.asm.jump_if(If::Eq, R8, 44, fragmented);
            self.asm.jump_if(If::Ne, R8, 51, done);
            self.read(R7, PORTS, 2, malformed);
            self.asm.load(Size::B, R8, R10, PORTS);
            self.asm.load(Size::B, R1, R10, PORTS + 1);
            self.asm.alu(Alu::Add, R1, 2);
            self.asm.alu(Alu::ShiftLeft, R1, 2);
            self.asm.alu(Alu::Add, R7, R1);
            self.asm.jump(next);

            self.asm.bind(usual);
            self.read(R7, PORTS, 2, malformed);
            self.asm.load(Size::B, R8, R10, PORTS);
            self.asm.load(Size::B, R1, R10, PORTS + 1);
            self.asm.alu(Alu::Add, R1, 1);
            self.asm.alu(Alu::ShiftLeft, R1, 3);
            self.asm.alu(Alu::Add, R7, R1);
            self.asm.jump(next);

            self.asm.bind(fragmented);
            self.read(R7, PORTS, 8, malformed);
            self.asm.load(Size::B, R8, R10, PORTS);
            self.asm.load(Size::H, R1, R10, PORTS + 2);
            // Offset and "more": a fragment that is the whole packet is none.
            self.asm.alu(Alu::And, R1, be16(0xfff9));
            self.asm.jump_if(If::Ne, R1, 0, fragment);
            self.asm.alu(Alu::Add, R7, 8);
            self.asm.bind(next);
        }
        for kind in [0, 43, 60, 44, 51] {
            self.asm.jump_if(If::Eq, R8, kind, malformed);
        }
    }

    /// Copies bytes within the stack. `R1` is lost.
    #[track_caller]
    pub(crate) fn copy(&mut self, from: i16, to: i16, length: i16, unit: Size) {
        let step = if unit == Size::D { 8 } else { 4 };
        for at in (0..length).step_by(step) {
            self.asm.load(unit, R1, R10, from + at);
            self.asm.store(unit, R10, to + at, R1);
        }
    }

    /// Jumps if the tuple's address at this position (0 the source, 1 the destination) is this one.
    #[track_caller]
    pub(crate) fn jump_if_address(&mut self, position: i16, v4: [u8; 4], v6: [u8; 16], to: Label) {
        let [is_v4, over] = [(); 2].map(|()| self.asm.label());
        let asm = &mut self.asm;
        if self.dual {
            asm.jump_if(If::Eq, R9, TUPLE_SIZE[0].0, is_v4);
            let [a, b, c, d, e, f, g, h, low @ ..] = v6;
            let base = TUPLE + 16 * position;
            for (at, half) in [(0, [a, b, c, d, e, f, g, h]), (8, low)] {
                asm.load(Size::D, R1, R10, base + at);
                asm.number(R2, u64::from_ne_bytes(half));
                asm.jump_if(If::Ne, R1, R2, over);
            }
            asm.jump(to);
        }
        asm.bind(is_v4);
        asm.load(Size::W, R1, R10, TUPLE + 4 * position);
        asm.number(R2, u64::from(u32::from_ne_bytes(v4)));
        asm.jump_if(If::Eq, R1, R2, to);
        asm.bind(over);
    }

    /// Looks up the socket of the tuple, in this namespace: `R0`, or null.
    #[track_caller]
    pub(crate) fn lookup(&mut self) {
        let asm = &mut self.asm;
        asm.mov(R1, R6);
        asm.mov(R2, R10);
        asm.alu(Alu::Add, R2, i32::from(TUPLE));
        asm.mov(R3, R9);
        // BPF_F_CURRENT_NETNS
        asm.mov(R4, -1);
        asm.mov(R5, 0);
        asm.call(Helper::SkcLookupTcp);
    }

    /// `R1` is not zero if the TCP header on the stack has SYN and no ACK.
    #[track_caller]
    pub(crate) fn is_first(&mut self) {
        let (no, asm) = (self.asm.label(), &mut self.asm);
        asm.load(Size::B, R2, R10, PORTS + 13);
        asm.mov(R1, 0);
        // SYN is 2, ACK 16.
        asm.alu(Alu::And, R2, 0x12);
        asm.jump_if(If::Ne, R2, 2, no);
        asm.mov(R1, 1);
        asm.bind(no);
    }

    /// Gives the packet to a listener at this port of the unspecified address; without one it is dropped and counted.
    #[track_caller]
    pub(crate) fn assign(&mut self, port: u16, absent: Count) {
        let [none, refused, done] = [(); 3].map(|()| self.asm.label());
        let asm = &mut self.asm;
        for at in [0, 8, 16, 24] {
            asm.store(Size::D, R10, TUPLE + at, 0);
        }
        asm.store(Size::W, R10, TUPLE + 32, 0);
        // The destination port is behind the source port. What is beyond a tuple of IPv4 is not read for it.
        for (_, ports) in TUPLE_SIZE {
            asm.store(Size::H, R10, ports + 2, be16(port));
        }
        if self.dual {
            let is_v4 = asm.label();
            asm.jump_if(If::Eq, R9, TUPLE_SIZE[0].0, is_v4);
            // In a tuple of IPv6 that place is inside of the source address.
            asm.store(Size::H, R10, TUPLE_SIZE[0].1 + 2, 0);
            asm.bind(is_v4);
        }
        self.lookup();
        let asm = &mut self.asm;
        asm.jump_if(If::Eq, R0, 0, none);
        asm.mov(R7, R0);
        asm.load(Size::W, R1, R7, SOCK_STATE);
        asm.mov(R8, 1);
        asm.jump_if(If::Ne, R1, BPF_TCP_LISTEN, refused);
        asm.mov(R1, R6);
        asm.mov(R2, R7);
        asm.mov(R3, 0);
        asm.call(Helper::SkAssign);
        asm.mov(R8, R0);
        asm.bind(refused);
        asm.mov(R1, R7);
        asm.call(Helper::SkRelease);
        asm.jump_if(If::Eq, R8, 0, done);
        self.refuse(Count::Unassigned);
        self.asm.bind(none);
        self.refuse(absent);
        self.asm.bind(done);
    }
}
