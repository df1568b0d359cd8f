//! The programs of a pod, by the hook where they run.

use super::layout::*;
use super::nat::{self, DNS_PORT};
use super::packet::{Builder, be16};
use super::parse::Udp;
use super::report::Events;
use crate::asm::{Alu, AsmError, Code, Helper, If, Label, MapRef, Reg, Size};
use Reg::{R0, R1, R2, R3, R4, R5, R6, R7, R8, R10};
use std::net::{Ipv4Addr, Ipv6Addr};
use weir_ambient::ztunnel;

/// Parameters of the programs. Equal values result in equal programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Traits {
    /// True if IPv6 is captured, too.
    pub dual: bool,
    /// True if DNS is redirected to ztunnel.
    pub dns: bool,
    /// Source address of the kubelet's probes over IPv4.
    pub probe4: Ipv4Addr,
    /// Source address of the kubelet's probes over IPv6.
    pub probe6: Ipv6Addr,
    /// True if events are written to a ring buffer.
    pub events: bool,
}

impl Traits {
    /// Creates a builder. The maps of events follow those that every pod has.
    fn builder(&self, role: Role) -> Builder {
        let events = self.events.then(|| Events {
            first: MapRef(QUERIES.0 + usize::from(self.dns)),
            role: role.letter(),
        });
        Builder::new(self.dual, events)
    }
}

/// The role of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// For packets that leave by an interface: new connections and their packets go to `lo`.
    Egress,
    /// For packets that arrive at an interface: new connections go to ztunnel's inbound listener.
    Ingress,
    /// For packets that arrive at the interface of a virtual machine: they are outbound traffic.
    Guest,
    /// For packets that arrive at `lo`, redirected by the program for egress: they go to ztunnel's outbound listener, and DNS is
    /// translated.
    Loopback,
}

impl Role {
    /// Returns the letter of the role in the name of the program.
    pub(crate) fn letter(self) -> char {
        match self {
            Self::Egress => 'e',
            Self::Ingress => 'i',
            Self::Guest => 'g',
            Self::Loopback => 'l',
        }
    }

    /// Returns the role of a program with this name, as chosen by [`crate::Pod`].
    pub(crate) fn of_name(name: &str) -> Option<Self> {
        let letter = name.strip_prefix("weir_")?.chars().next()?;
        let all = [Self::Egress, Self::Ingress, Self::Guest, Self::Loopback];
        all.into_iter().find(|role| role.letter() == letter)
    }

    /// Returns a description of what the program does.
    pub(crate) fn words(self) -> &'static str {
        match self {
            Self::Egress => "sends TCP that leaves the pod to ztunnel's outbound port 15001",
            Self::Ingress => "gives TCP that arrives to ztunnel's inbound port 15006",
            Self::Guest => "gives TCP of a virtual machine to ztunnel's outbound port 15001",
            Self::Loopback => "hands redirected packets to ztunnel's listeners",
        }
    }
}

/// Assembles one program.
///
/// # Errors
/// A mistake in this source.
pub fn assemble(role: Role, traits: &Traits) -> Result<Code, AsmError> {
    match role {
        Role::Egress => egress(traits),
        Role::Ingress => ingress(traits),
        Role::Guest => guest(traits),
        Role::Loopback => loopback(traits),
    }
}

/// Jumps if the packet carries ztunnel's mark.
#[track_caller]
fn jump_if_of_ztunnel(b: &mut Builder, to: Label) {
    b.asm.load(Size::W, R1, R6, SKB_MARK);
    b.asm.alu(Alu::And, R1, MASK);
    b.asm.jump_if(If::Eq, R1, ZTUNNEL, to);
}

fn jump_if_probe(b: &mut Builder, position: i16, traits: &Traits, to: Label) {
    let (v4, v6) = (traits.probe4.octets(), traits.probe6.octets());
    b.jump_if_address(position, v4, v6, to);
}

/// Marks the packet and redirects it to ingress of `lo`. Link-layer addresses are set to zero, as in packets sent on `lo`.
#[track_caller]
fn to_loopback(b: &mut Builder, mark: i32) {
    let asm = &mut b.asm;
    asm.store(Size::D, R10, SCRATCH, 0);
    asm.store(Size::W, R10, SCRATCH + 8, 0);
    asm.mov(R1, R6);
    asm.mov(R2, 0);
    asm.mov(R3, R10);
    asm.alu(Alu::Add, R3, i32::from(SCRATCH));
    asm.mov(R4, 12);
    asm.mov(R5, 0);
    asm.call(Helper::StoreBytes);
    asm.jump_if(If::Ne, R0, 0, b.drop);
    asm.mov(R1, mark);
    asm.store(Size::W, R6, SKB_MARK, R1);
    asm.mov(R1, LO);
    asm.mov(R2, BPF_F_INGRESS);
    asm.call(Helper::Redirect);
    asm.exit();
}

/// Assembles the program for egress:
/// 1. ztunnel's own packets, packets other than TCP, and answers to probes pass. With DNS capture, port 53 goes to `lo`.
/// 2. The first packet of a connection marks the sending socket, and goes to `lo`, like all later packets of that socket.
/// 3. Packets whose other end is a socket of ztunnel go to `lo`: the application answers a connection that
///    ztunnel opened with the client's address, or its own connection was captured by programs that are gone.
/// 4. Everything else passes: answers to connections that are not captured, and forwarded packets.
fn egress(traits: &Traits) -> Result<Code, AsmError> {
    let mut b = traits.builder(Role::Egress);
    let pass = b.pass;
    jump_if_of_ztunnel(&mut b, pass);
    b.parse(match traits.dns {
        true => Udp::Queries,
        false => Udp::Passes,
    });
    let [captured, other, passed_on] = [(); 3].map(|()| b.asm.label());
    if traits.dns {
        let no_query = b.asm.label();
        b.asm.load(Size::H, R1, R10, PORTS + 2);
        b.asm.jump_if(If::Ne, R1, be16(DNS_PORT), no_query);
        jump_if_probe(&mut b, 1, traits, pass);
        nat::remember(&mut b, QUERIES);
        b.count(Count::Dns);
        to_loopback(&mut b, QUERY);
        b.asm.bind(no_query);
        b.asm.jump_if(If::Ne, R8, IPPROTO_TCP, pass);
    }
    let (probe, forwarded) = (b.pass_for(Pass::Probe), b.pass_for(Pass::Forwarded));
    jump_if_probe(&mut b, 1, traits, probe);
    b.is_first();
    let asm = &mut b.asm;
    asm.mov(R7, R1);
    asm.load(Size::D, R1, R6, SKB_SK);
    asm.jump_if(If::Eq, R1, 0, other);
    asm.call(Helper::SkFullsock);
    asm.jump_if(If::Eq, R0, 0, other);
    asm.map(R1, SOCKETS);
    asm.mov(R2, R0);
    asm.mov(R3, 0);
    let later = asm.label();
    asm.mov(R4, 0);
    asm.jump_if(If::Eq, R7, 0, later);
    asm.mov(R4, BPF_SK_STORAGE_GET_F_CREATE);
    asm.bind(later);
    asm.call(Helper::SkStorageGet);
    let unmarked = asm.label();
    asm.jump_if(If::Eq, R0, 0, unmarked);
    asm.jump_if(If::Eq, R7, 0, captured);
    b.captured(Count::Outbound);
    b.asm.bind(captured);
    to_loopback(&mut b, OUTBOUND);

    b.asm.bind(unmarked);
    b.asm.jump_if(If::Eq, R7, 0, other);
    b.refuse(Count::OutOfMemory);

    b.asm.bind(other);
    b.asm.jump_if(If::Ne, R7, 0, forwarded);
    b.lookup();
    let asm = &mut b.asm;
    asm.jump_if(If::Eq, R0, 0, pass);
    asm.load(Size::W, R7, R0, SOCK_STATE);
    asm.mov(R1, R0);
    asm.call(Helper::SkRelease);
    asm.jump_if(If::Ne, R7, BPF_TCP_LISTEN, passed_on);
    asm.jump(pass);
    asm.bind(passed_on);
    to_loopback(&mut b, LOCAL);
    b.finish()
}

/// Jumps to `known` if the packet belongs to a connection of this namespace; otherwise sets `R7` to 1 if a listener
/// of the application would get it, and to 0 if not.
///
/// A first packet does not belong to a connection in `TIME_WAIT`, whose ports a client may reuse. A listener cannot accept it
/// while that connection exists: the kernel silently drops it (`inet_ehash_insert`; seen on 6.18). So ACK is set in the packet, which
/// makes it neither a first packet nor part of the connection: the kernel answers with the state of the old connection
/// (`tcp_timewait_state_process`), the client replies with a reset, which ends `TIME_WAIT`, and resends its first packet at once.
#[track_caller]
pub(crate) fn jump_if_connected(b: &mut Builder, known: Label) {
    let [none, listens, waits, done] = [(); 4].map(|()| b.asm.label());
    b.lookup();
    b.asm.jump_if(If::Eq, R0, 0, none);
    b.asm.load(Size::W, R8, R0, SOCK_STATE);
    b.asm.mov(R1, R0);
    b.asm.call(Helper::SkRelease);
    b.asm.jump_if(If::Eq, R8, BPF_TCP_LISTEN, listens);
    b.asm.jump_if(If::Eq, R8, BPF_TCP_TIME_WAIT, waits);
    b.asm.jump(known);
    b.asm.bind(waits);
    b.is_first();
    b.asm.jump_if(If::Eq, R1, 0, known);
    nat::acknowledge(b);
    b.asm.jump(known);
    b.asm.bind(none);
    b.asm.mov(R7, 0);
    b.asm.jump(done);
    b.asm.bind(listens);
    b.asm.mov(R7, 1);
    b.asm.bind(done);
    b.asm.mov(R8, IPPROTO_TCP);
}

/// Assembles the program for ingress:
/// 1. Packets with the address of probes, HBONE, and packets other than TCP pass.
/// 2. Packets of existing connections pass, including ztunnel's.
/// 3. Packets of a process in the node's namespace pass: this includes the kubelet's probes, which so need no rule at the node.
/// 4. A packet that is not a first packet passes if the application does not listen there: the kernel resets it.
/// 5. Everything else goes to ztunnel's listener.
///
/// The application's answers to the node leave by rule 4 of the program for egress: their other end is not a socket of ztunnel.
fn ingress(traits: &Traits) -> Result<Code, AsmError> {
    let mut b = traits.builder(Role::Ingress);
    let (pass, new) = (b.pass, b.asm.label());
    b.parse(Udp::Passes);
    b.asm.load(Size::H, R1, R10, PORTS + 2);
    b.asm.jump_if(If::Eq, R1, be16(ztunnel::HBONE), pass);
    let probe = b.pass_for(Pass::Probe);
    jump_if_probe(&mut b, 0, traits, probe);
    jump_if_connected(&mut b, pass);
    let of_node = b.pass_for(Pass::Node);
    b.jump_if_of_node(of_node);
    b.is_first();
    let repeated = b.asm.label();
    b.asm.jump_if(If::Eq, R1, 0, repeated);
    b.captured(Count::Inbound);
    b.asm.jump(new);
    b.asm.bind(repeated);
    b.asm.jump_if(If::Eq, R7, 0, pass);
    b.asm.bind(new);
    b.assign(ztunnel::INBOUND, Some(Count::NoInboundListener));
    b.asm.jump(pass);
    b.finish()
}

/// Assembles the program for virtual machines:
/// 1. Packets of existing connections of this namespace are marked, so that they stay here.
/// 2. First packets are marked, too, and go to ztunnel's outbound listener.
/// 3. Everything else passes: answers of the virtual machine to connections that others opened.
fn guest(traits: &Traits) -> Result<Code, AsmError> {
    let mut b = traits.builder(Role::Guest);
    let (pass, known) = (b.pass, b.asm.label());
    b.parse(Udp::Passes);
    jump_if_connected(&mut b, known);
    b.is_first();
    b.asm.jump_if(If::Eq, R1, 0, pass);
    b.captured(Count::Outbound);
    b.assign(ztunnel::OUTBOUND, Some(Count::NoOutboundListener));
    b.asm.bind(known);
    b.asm.mov(R1, LOCAL);
    b.asm.store(Size::W, R6, SKB_MARK, R1);
    b.asm.jump(pass);
    b.finish()
}

/// Assembles the program for `lo`:
/// 1. Packets that the program for egress sent here and that have no connection yet go to ztunnel's outbound listener. This includes
///    a packet of a connection that ztunnel does not have: it opens one if it returns a SYN cookie, and is reset otherwise.
/// 2. Queries go to ztunnel's address for DNS, and the source of its answers is set to the server that was queried.
fn loopback(traits: &Traits) -> Result<Code, AsmError> {
    let mut b = traits.builder(Role::Loopback);
    let (pass, outbound, first) = (b.pass, b.asm.label(), b.asm.label());
    b.asm.load(Size::W, R1, R6, SKB_MARK);
    b.asm.jump_if(If::Eq, R1, OUTBOUND, outbound);
    if traits.dns {
        nat::translate(&mut b);
    } else {
        b.asm.jump(pass);
    }
    b.asm.bind(outbound);
    b.parse(Udp::Passes);
    jump_if_connected(&mut b, pass);
    b.is_first();
    b.asm.jump_if(If::Ne, R1, 0, first);
    b.asm.jump_if(If::Ne, R7, 0, first);
    // If ztunnel does not listen, the kernel resets the connection.
    b.assign(ztunnel::OUTBOUND, None);
    b.asm.jump(pass);
    b.asm.bind(first);
    b.assign(ztunnel::OUTBOUND, Some(Count::NoOutboundListener));
    b.asm.jump(pass);
    b.finish()
}
