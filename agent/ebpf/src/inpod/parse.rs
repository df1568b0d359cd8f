//! Parts of programs that parse the headers of a packet.

use super::layout::*;
use super::nat::DNS_PORT;
use super::packet::{Builder, TUPLE_SIZE, be16};
use crate::asm::{Alu, If, Label, Reg, Size};
use Reg::{R1, R2, R6, R7, R8, R9, R10};

/// `ETH_P_IP` and `ETH_P_IPV6`
pub(super) const ETH_P: [u16; 2] = [0x0800, 0x86dd];
/// `ETH_P_8021Q` and `ETH_P_8021AD`
pub(super) const ETH_P_VLAN: [u16; 2] = [0x8100, 0x88a8];
/// `VLAN_VID_MASK`: the VLAN id in a tag.
const VLAN_ID: u16 = 0x0fff;
/// Maximum number of extension headers that are read. The kernel reads any number; a packet with more is dropped.
const EXTENSIONS: usize = 6;

/// The treatment of UDP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Udp {
    /// It passes.
    Passes,
    /// Its ports are read; fragments pass.
    Read,
    /// Like `Read`, but the first fragment of a DNS query is dropped: it would have to be captured, and the others have no ports.
    Queries,
}

impl Builder {
    /// Parses the packet. Other protocols than TCP, and UDP that is not read, pass; fragments of TCP and packets with headers that cannot
    /// be read are dropped. Afterwards `R7` is the offset of the transport header from the IP header, `R8` the protocol, `R9` the size of
    /// the tuple, and the tuple and the ports are on the stack.
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

        // R8 is the protocol, or a further extension header; R1 the fragment offset, and R7 the offset of the next header.
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

    /// Handles a frame with a VLAN tag in its data: one that arrives with more than one tag, or that a packet socket sends. Jumps to
    /// `hidden` if the outer tag has a priority only, but no VLAN id: the receiving kernel then removes all tags and delivers the packet
    /// without running a program again. The only use of such frames is to evade the programs.
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

    /// Skips extension headers, starting with the header at `R7` of the kind in `R8`.
    #[track_caller]
    fn extensions(&mut self, done: Label, fragment: Label, malformed: Label) {
        for _ in 0..EXTENSIONS {
            let [usual, fragmented, whole, next] = [(); 4].map(|()| self.asm.label());
            // Hop-by-hop options, routing, destination options.
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
            // Offset and M flag: without both, the fragment is the whole packet.
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
