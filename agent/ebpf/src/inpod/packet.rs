//! Parts of programs that read a packet, and look up and assign sockets.

use super::layout::*;
use super::report::Events;
use crate::asm::{Alu, Assembler, Helper, If, Label, MapRef, Reg, Size};
use Reg::{R0, R1, R2, R3, R4, R5, R6, R7, R8, R9, R10};

/// The size of `TUPLE` for each family, and the offset of the two ports.
pub(crate) const TUPLE_SIZE: [(i32, i16); 2] = [(12, TUPLE + 8), (36, TUPLE + 32)];

/// A program under construction. `R6` always holds the packet.
pub(crate) struct Builder {
    pub(crate) asm: Assembler,
    /// Returns [`NEXT`].
    pub(crate) pass: Label,
    /// Returns [`DROP`].
    pub(crate) drop: Label,
    /// Counts the number at `INDEX`, reports and drops.
    pub(super) refused: Label,
    /// Labels for TCP that passes for a reason.
    pub(super) passed: Vec<(Label, Pass)>,
    /// The destination of events; `None`: the kernel has no ring buffer.
    pub(super) events: Option<Events>,
    /// True if the program handles IPv6, too.
    pub(crate) dual: bool,
    /// Label for ICMP; `None`: it passes.
    pub(crate) icmp: Option<Label>,
}

/// Converts a number to network order, for comparison with a value loaded from the packet.
pub(crate) fn be16(number: u16) -> i32 {
    i32::from(u16::from_ne_bytes(number.to_be_bytes()))
}

impl Builder {
    #[track_caller]
    pub(crate) fn new(dual: bool, events: Option<Events>) -> Self {
        let mut asm = Assembler::new();
        let [pass, drop, refused] = [(); 3].map(|()| asm.label());
        asm.mov(R6, R1);
        Self {
            asm,
            pass,
            drop,
            refused,
            passed: Vec::new(),
            events,
            dual,
            icmp: None,
        }
    }

    /// Copies bytes of the packet to the stack. `from`, a number or a register, is the offset from the IP header.
    #[track_caller]
    pub(crate) fn read(
        &mut self,
        from: impl Into<crate::asm::Operand>,
        to: i16,
        length: i32,
        failed: Label,
    ) {
        self.read_from(BPF_HDR_START_NET, from, to, length, failed);
    }

    /// Like [`Self::read`], with an offset from this `BPF_HDR_START_*`.
    #[track_caller]
    pub(super) fn read_from(
        &mut self,
        start: i32,
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
        asm.mov(R5, start);
        asm.call(Helper::LoadBytesRelative);
        asm.jump_if(If::Ne, R0, 0, failed);
    }

    /// Looks up the key at this offset on the stack. `R0` is the address of the value, or null.
    #[track_caller]
    pub(crate) fn look_up(&mut self, map: MapRef, key: i16) {
        let asm = &mut self.asm;
        asm.map(R1, map);
        asm.mov(R2, R10);
        asm.alu(Alu::Add, R2, i32::from(key));
        asm.call(Helper::MapLookup);
    }

    /// Copies the ports that were read into the tuple. Clobbers `R1`.
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

    /// Copies bytes within the stack. Clobbers `R1`.
    #[track_caller]
    pub(crate) fn copy(&mut self, from: i16, to: i16, length: i16, unit: Size) {
        let step = if unit == Size::D { 8 } else { 4 };
        for at in (0..length).step_by(step) {
            self.asm.load(unit, R1, R10, from + at);
            self.asm.store(unit, R10, to + at, R1);
        }
    }

    /// Jumps if the tuple's address at this position (0: source, 1: destination) equals `v4` or `v6`.
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

    /// Looks up the socket of the tuple in this namespace. `R0` is the socket, or null.
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

    /// Jumps if a socket of the node's network namespace sent the packet. The source address is not sufficient: masqueraded connections
    /// of other hosts have one of the node, too. Keeps `R7` and the tuple; clobbers `R8` and the header.
    #[track_caller]
    pub(crate) fn jump_if_of_node(&mut self, to: Label) {
        let no = self.asm.label();
        self.asm.store(Size::W, R10, SCRATCH, 0);
        self.look_up(NODE, SCRATCH);
        let asm = &mut self.asm;
        asm.jump_if(If::Eq, R0, 0, no);
        asm.load(Size::W, R4, R0, 0);
        asm.jump_if(If::Eq, R4, NODE_NONE, no);
        asm.alu(Alu::Sub, R4, 1);
        self.jump_if_sent_in(to);
        self.asm.bind(no);
    }

    /// Jumps if a socket of the network namespace in `R4` sent the packet. Clobbers `R8` and the header.
    #[track_caller]
    pub(crate) fn jump_if_sent_in(&mut self, to: Label) {
        let [v4, turned] = [(); 2].map(|()| self.asm.label());
        // The local address of the socket is the source of the packet.
        if self.dual {
            self.asm.jump_if(If::Eq, R9, TUPLE_SIZE[0].0, v4);
            self.turn(16, Size::D);
            self.asm.jump(turned);
        }
        self.asm.bind(v4);
        self.turn(4, Size::W);
        self.asm.bind(turned);
        self.jump_if_connected_in(to);
    }

    /// Jumps if a socket of the network namespace in `R4` has the connection whose tuple is stored at the header's place. Clobbers `R8`.
    #[track_caller]
    pub(crate) fn jump_if_connected_in(&mut self, to: Label) {
        let (no, asm) = (self.asm.label(), &mut self.asm);
        asm.mov(R1, R6);
        asm.mov(R2, R10);
        asm.alu(Alu::Add, R2, i32::from(HEADER));
        asm.mov(R3, R9);
        asm.mov(R5, 0);
        asm.call(Helper::SkcLookupTcp);
        asm.jump_if(If::Eq, R0, 0, no);
        asm.load(Size::W, R8, R0, SOCK_STATE);
        asm.mov(R1, R0);
        asm.call(Helper::SkRelease);
        // A listener is found by its port alone.
        asm.jump_if(If::Eq, R8, BPF_TCP_LISTEN, no);
        asm.jump_if(If::Ne, R8, BPF_TCP_TIME_WAIT, to);
        asm.bind(no);
    }

    /// Writes the tuple with its ends swapped to the header's place. `address` is the length of an address.
    #[track_caller]
    fn turn(&mut self, address: i16, unit: Size) {
        self.copy(TUPLE + address, HEADER, address, unit);
        self.copy(TUPLE, HEADER + address, address, unit);
        let ports = 2 * address;
        for (from, to) in [(0, 2), (2, 0)] {
            self.asm.load(Size::H, R1, R10, TUPLE + ports + from);
            self.asm.store(Size::H, R10, HEADER + ports + to, R1);
        }
    }

    /// Sets `R1` to 1 if the TCP header on the stack has SYN and no ACK, otherwise to 0.
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

    /// Assigns the packet to a listener at this port of the unspecified address; without one it is dropped and counted as `absent`, or
    /// passes.
    #[track_caller]
    pub(crate) fn assign(&mut self, port: u16, absent: Option<Count>) {
        let [none, refused, done] = [(); 3].map(|()| self.asm.label());
        let asm = &mut self.asm;
        for at in [0, 8, 16, 24] {
            asm.store(Size::D, R10, TUPLE + at, 0);
        }
        asm.store(Size::W, R10, TUPLE + 32, 0);
        // The destination port follows the source port. The kernel does not read beyond the end of an IPv4 tuple.
        for (_, ports) in TUPLE_SIZE {
            asm.store(Size::H, R10, ports + 2, be16(port));
        }
        if self.dual {
            let is_v4 = asm.label();
            asm.jump_if(If::Eq, R9, TUPLE_SIZE[0].0, is_v4);
            // In an IPv6 tuple this offset is inside the source address.
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
        match absent {
            Some(count) => self.refuse(count),
            None => self.asm.jump(self.pass),
        }
        self.asm.bind(done);
    }
}
