//! Parts of programs: the headers of a packet.

use super::layout::*;
use super::nat::DNS_PORT;
use super::packet::{Builder, TUPLE_SIZE, be16};
use crate::asm::{Alu, If, Label, Reg, Size};
use Reg::{R1, R2, R6, R7, R8, R9, R10};

/// `ETH_P_IP` and `ETH_P_IPV6`
pub(super) const ETH_P: [u16; 2] = [0x0800, 0x86dd];
/// `ETH_P_8021Q` and `ETH_P_8021AD`
pub(super) const ETH_P_VLAN: [u16; 2] = [0x8100, 0x88a8];
/// The number of the VLAN in a tag: `VLAN_VID_MASK`.
const VLAN_ID: u16 = 0x0fff;
/// Extension headers that are read in one packet. The kernel reads any number; a packet with more is dropped.
const EXTENSIONS: usize = 6;

/// What becomes of UDP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Udp {
    /// It passes.
    Passes,
    /// Its ports are read; fragments pass.
    Read,
    /// The same, but the first fragment of a DNS query is dropped: it is to be captured, and the others have no ports.
    Queries,
}

impl Builder {
    /// Parses the packet. What is neither TCP nor read UDP passes; fragments of TCP and headers that cannot be read are dropped.
    /// After it: `R7` is the offset of the transport header from the IP header, `R8` the protocol, `R9` the size of the tuple, and
    /// the tuple and the ports are on the stack.
    #[track_caller]
    pub(crate) fn parse(&mut self, udp: Udp) {
        let [v4, v6, transport, read] = [(); 4].map(|()| self.asm.label());
        let (malformed, fragment, over) = (self.asm.label(), self.asm.label(), self.asm.label());
        let pass = self.pass;
        self.asm.load(Size::W, R2, R6, SKB_PROTOCOL);
        self.asm.jump_if(If::Eq, R2, be16(ETH_P[0]), v4);
        if self.dual {
            self.asm.jump_if(If::Eq, R2, be16(ETH_P[1]), v6);
        }
        self.tags(malformed);
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
        let whole = asm.label();
        asm.jump_if(If::Eq, R1, 0, whole);
        asm.alu(Alu::And, R1, be16(0x1fff));
        asm.jump(fragment);
        asm.bind(whole);
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
            Udp::Passes => asm.jump(pass),
            Udp::Read | Udp::Queries => {
                asm.jump_if(If::Ne, R8, IPPROTO_UDP, pass);
                self.read(R7, PORTS, 4, malformed);
                self.asm.jump(read);
            }
        }
        self.asm.bind(is_tcp);
        self.read(R7, PORTS, 14, malformed);
        let asm = &mut self.asm;
        asm.bind(read);
        self.put_ports();
        let asm = &mut self.asm;
        asm.jump(over);

        // In R8 is the protocol, or a further extension header; in R1 the offset, and R7 is that of what follows.
        asm.bind(fragment);
        asm.jump_if(If::Eq, R8, IPPROTO_ICMP, pass);
        asm.jump_if(If::Eq, R8, IPPROTO_ICMPV6, pass);
        if udp == Udp::Queries {
            let refused = asm.label();
            asm.jump_if(If::Ne, R8, IPPROTO_UDP, refused);
            asm.jump_if(If::Ne, R1, 0, pass);
            self.read(R7, PORTS, 4, malformed);
            self.asm.load(Size::H, R1, R10, PORTS + 2);
            self.asm.jump_if(If::Ne, R1, be16(DNS_PORT), pass);
            self.asm.bind(refused);
        } else {
            asm.jump_if(If::Eq, R8, IPPROTO_UDP, pass);
        }
        self.refuse(Count::Fragment);
        self.asm.bind(malformed);
        self.refuse(Count::Malformed);
        self.asm.bind(over);
    }

    /// Of a frame with a tag that has not been taken off: one that arrives with more tags than one, or one of a packet socket that
    /// leaves. Where it says no VLAN, but a priority only, the kernel that receives it takes all tags off and delivers what is in
    /// them, and asks no program again. Nobody sends such frames but to hide in them.
    #[track_caller]
    fn tags(&mut self, hidden: Label) {
        let [tagged, known, leaves] = [(); 3].map(|()| self.asm.label());
        let (asm, pass) = (&mut self.asm, self.pass);
        for kind in ETH_P_VLAN {
            asm.jump_if(If::Eq, R2, be16(kind), tagged);
        }
        asm.jump(pass);
        asm.bind(tagged);
        asm.load(Size::W, R1, R6, SKB_VLAN_PRESENT);
        asm.jump_if(If::Eq, R1, 0, leaves);
        asm.load(Size::W, R1, R6, SKB_VLAN_TCI);
        asm.alu(Alu::And, R1, i32::from(VLAN_ID));
        asm.jump(known);
        asm.bind(leaves);
        self.read_from(BPF_HDR_START_MAC, i32::from(ETHERNET), PORTS, 2, hidden);
        let asm = &mut self.asm;
        asm.load(Size::H, R1, R10, PORTS);
        asm.alu(Alu::And, R1, be16(VLAN_ID));
        asm.bind(known);
        asm.jump_if(If::Eq, R1, 0, hidden);
    }

    /// Follows extension headers from the next header in `R8` at `R7`.
    #[track_caller]
    fn extensions(&mut self, done: Label, fragment: Label, malformed: Label) {
        for _ in 0..EXTENSIONS {
            let [usual, fragmented, whole, next] = [(); 4].map(|()| self.asm.label());
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
            self.asm.alu(Alu::Add, R7, 8);
            self.asm.jump_if(If::Eq, R1, 0, whole);
            self.asm.alu(Alu::And, R1, be16(0xfff8));
            self.asm.jump(fragment);
            self.asm.bind(whole);
            self.asm.bind(next);
        }
        for kind in [0, 43, 60, 44, 51] {
            self.asm.jump_if(If::Eq, R8, kind, malformed);
        }
    }
}
