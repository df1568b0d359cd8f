//! The programs of the node and of its proxy, by the hook where they run.

use super::exclude::{self, Told};
use super::parts::{
    NAMES, NODE, OF_NODE, OF_PROXY, PODS, PROXY, QUERIES, count_first, element, find, find_active,
    find_proxy, keep_here, redirect,
};
use super::{icmp, owner, proxied};
use crate::asm::{Alu, AsmError, Code, Helper, If, MapRef, Reg, Size};
use crate::inpod::layout::{Count, IPPROTO_TCP, PORTS, Pass, SKB_IFINDEX};
use crate::inpod::nat::{self, End};
use crate::inpod::packet::{Builder, be16};
use crate::inpod::parse::Udp;
use crate::inpod::programs::jump_if_connected;
use crate::inpod::report::Events;
use Reg::{R0, R1, R2, R6, R7, R8, R10};
use weir_ambient::ztunnel;

/// The role of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum NodeRole {
    /// At the proxy's own interface: redirected packets go to its listeners and sockets.
    Proxy,
    /// For packets of the proxy: those to enrolled pods go there directly.
    FromProxy,
    /// For packets to an enrolled pod: they go to the proxy.
    ToPod,
    /// For packets of an enrolled pod: they go to the proxy.
    FromPod,
}

impl NodeRole {
    /// All roles in the order of attachment: a program that redirects is attached after the one that receives.
    pub(crate) const ALL: [Self; 4] = [Self::Proxy, Self::FromProxy, Self::ToPod, Self::FromPod];

    /// Returns the letter of the role in the name of the program.
    pub(crate) fn letter(self) -> char {
        match self {
            Self::Proxy => 'p',
            Self::FromProxy => 'f',
            Self::ToPod => 't',
            Self::FromPod => 'o',
        }
    }

    /// True if the program is attached to the link of a pod.
    pub(super) fn is_of_pod(self) -> bool {
        matches!(self, Self::ToPod | Self::FromPod)
    }

    /// Returns the role of a program with this name, as chosen by [`super::Node`].
    pub(crate) fn of_name(name: &str) -> Option<Self> {
        let letter = name.strip_prefix("weir_")?.chars().next()?;
        Self::ALL.into_iter().find(|role| role.letter() == letter)
    }

    /// Returns a description of what the program does.
    pub(crate) fn words(self) -> &'static str {
        match self {
            Self::Proxy => "gives redirected TCP to ztunnel's listeners and connections",
            Self::FromProxy => "sends TCP of ztunnel to enrolled pods directly",
            Self::ToPod => "sends TCP for the pod to the node's ztunnel",
            Self::FromPod => "sends TCP of the pod to the node's ztunnel",
        }
    }
}

/// Assembles one program.
///
/// # Errors
/// A mistake in this source.
pub fn assemble(role: NodeRole, traits: NodeTraits) -> Result<Code, AsmError> {
    let events = traits.events.then(|| Events {
        first: traits.events_map(),
        role: role.letter(),
    });
    let mut b = Builder::new(traits.dual, events);
    if matches!(role, NodeRole::ToPod | NodeRole::Proxy) {
        b.icmp = Some(b.asm.label());
    }
    let udp = match role {
        NodeRole::FromPod if traits.dns => Udp::Queries,
        NodeRole::FromProxy if traits.dns => Udp::Read,
        _ => Udp::Passes,
    };
    b.parse(udp);
    if udp != Udp::Passes {
        let tcp = b.asm.label();
        b.asm.jump_if(If::Eq, R8, IPPROTO_TCP, tcp);
        match role {
            NodeRole::FromPod => query(&mut b),
            _ => answer(&mut b),
        }
        b.asm.bind(tcp);
    }
    match role {
        NodeRole::Proxy => proxy(&mut b, traits),
        NodeRole::FromProxy => {
            owner::remember(&mut b);
            from_proxy(&mut b);
        }
        NodeRole::ToPod => to_pod(&mut b, traits),
        NodeRole::FromPod => from_pod(&mut b, traits),
    }
    if let Some(label) = b.icmp {
        b.asm.bind(label);
        match role {
            NodeRole::Proxy => error_to_proxy(&mut b),
            _ => error_to_pod(&mut b, traits),
        }
    }
    b.finish()
}

/// Parameters of the programs. Equal values result in equal programs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NodeTraits {
    /// True if IPv6 is captured, too.
    pub dual: bool,
    /// True if DNS over UDP is redirected to the proxy.
    pub dns: bool,
    /// True if peers or ports are excluded.
    pub exclude: bool,
    /// True if events are written to a ring buffer.
    pub events: bool,
}

impl NodeTraits {
    /// Returns the first map of exclusions, which follow the permanent maps and those of DNS.
    pub(super) fn exclude_map(self) -> MapRef {
        MapRef(if self.dns { 9 } else { 7 })
    }

    /// Returns the first map of events, which follow all others.
    fn events_map(self) -> MapRef {
        MapRef(self.exclude_map().0 + if self.exclude { 5 } else { 0 })
    }
}

/// Handles a UDP packet of a pod: the destination of a DNS query is set to the proxy, and it goes there. Without a proxy it passes.
#[track_caller]
fn query(b: &mut Builder) {
    let pass = b.pass;
    b.asm.load(Size::H, R1, R10, PORTS + 2);
    b.asm.jump_if(If::Ne, R1, be16(nat::DNS_PORT), pass);
    find(b, PODS, End::Source);
    b.asm.jump_if(If::Eq, R0, 0, pass);
    element(b, PROXY, false);
    b.asm.load(Size::W, R1, R0, 0);
    b.asm.jump_if(If::Eq, R1, 0, pass);
    element(b, NAMES, true);
    b.asm.load(Size::D, R1, R0, 0);
    b.asm.load(Size::D, R2, R0, 8);
    b.asm.alu(Alu::Or, R1, R2);
    b.asm.jump_if(If::Eq, R1, 0, pass);
    nat::remember(b, QUERIES);
    element(b, NAMES, true);
    nat::value_from(b);
    nat::rewrite(b, End::Destination, ztunnel::DNS);
    b.count(Count::Dns);
    let found = b.asm.label();
    find_active(b, found);
    b.asm.bind(found);
    redirect(b, Helper::RedirectPeer);
}

/// Handles a UDP packet of the proxy: the source of an answer to a query is set to the server that was queried, and it goes to the pod.
#[track_caller]
fn answer(b: &mut Builder) {
    let pass = b.pass;
    b.asm.load(Size::H, R1, R10, PORTS);
    b.asm.jump_if(If::Ne, R1, be16(ztunnel::DNS), pass);
    find(b, PODS, End::Destination);
    b.asm.jump_if(If::Eq, R0, 0, pass);
    nat::answer_from_server(b, QUERIES);
    find(b, PODS, End::Destination);
    b.asm.jump_if(If::Eq, R0, 0, pass);
    b.asm.load(Size::W, R7, R0, 0);
    redirect(b, Helper::RedirectPeer);
}

/// Handles TCP of a pod. Packets to the node itself or to a proxy, including answers to probes, pass unless they belong to a connection
/// of the proxy. A packet whose source is not an address of an enrolled pod is dropped: ztunnel knows no workload for it, and it would
/// pass in plain text.
#[track_caller]
fn from_pod(b: &mut Builder, traits: NodeTraits) {
    let [others, captured, unlisted] = [(); 3].map(|()| b.asm.label());
    let node = b.pass_for(Pass::Node);
    find(b, NODE, End::Destination);
    b.asm.jump_if(If::Eq, R0, 0, others);
    proxied::to_node(b, node, captured);
    b.asm.bind(others);
    find(b, PODS, End::Source);
    b.asm.jump_if(If::Eq, R0, 0, unlisted);
    if traits.exclude {
        // A packet with the address of another pod is not excluded.
        b.asm.load(Size::W, R1, R0, 0);
        b.asm.load(Size::W, R2, R6, SKB_IFINDEX);
        b.asm.jump_if(If::Ne, R1, R2, captured);
        exclude::from_pod(b, traits, Told::ByPod);
    }
    b.asm.bind(captured);
    proxied::forget_first(b, End::Destination);
    find_proxy(b, End::Source);
    count_first(b, Count::Outbound);
    redirect(b, Helper::RedirectPeer);
    b.asm.bind(unlisted);
    b.refuse(Count::Unlisted);
}

/// Handles TCP to a pod. Packets from the node itself, including probes, pass, except answers to the proxy. Connections that the node
/// masquerades for other hosts are not its own. Packets of other hosts to an address that is not captured, such as those of a neighbour
/// on a bridge to the pod's link-local address, are dropped.
#[track_caller]
fn to_pod(b: &mut Builder, traits: NodeTraits) {
    let [others, captured, unlisted, refused] = [(); 4].map(|()| b.asm.label());
    let node = b.pass_for(Pass::Node);
    find(b, PODS, End::Destination);
    b.asm.jump_if(If::Eq, R0, 0, unlisted);
    find(b, NODE, End::Source);
    b.asm.jump_if(If::Eq, R0, 0, others);
    proxied::from_node(b, node, captured);
    b.asm.bind(others);
    if traits.exclude {
        exclude::to_pod(b, traits);
    }
    b.asm.bind(captured);
    proxied::remember_of_pod(b);
    find_proxy(b, End::Destination);
    count_first(b, Count::Inbound);
    // `bpf_redirect_peer` works at the ingress hook only.
    redirect(b, Helper::Redirect);

    b.asm.bind(unlisted);
    find(b, NODE, End::Source);
    b.asm.jump_if(If::Eq, R0, 0, refused);
    proxied::from_node(b, node, refused);
    b.asm.bind(refused);
    b.refuse(Count::Unlisted);
}

/// Handles an ICMP error about a packet with a pod's source address: the proxy sent the packet, unless it went to the node or is
/// excluded.
#[track_caller]
fn error_to_pod(b: &mut Builder, traits: NodeTraits) {
    let [others, captured] = [(); 2].map(|()| b.asm.label());
    let pass = b.pass;
    icmp::inner(b);
    find(b, NODE, End::Destination);
    b.asm.jump_if(If::Eq, R0, 0, others);
    proxied::jump_if_proxied(b, End::Source, captured);
    b.asm.jump(pass);
    b.asm.bind(others);
    find(b, PODS, End::Source);
    b.asm.jump_if(If::Eq, R0, 0, pass);
    if traits.exclude {
        exclude::from_pod(b, traits, Told::ByError);
    }
    b.asm.bind(captured);
    find_proxy(b, End::Source);
    redirect(b, Helper::Redirect);
}

/// Handles an ICMP error at the proxy: it is for a connection of this namespace.
#[track_caller]
fn error_to_proxy(b: &mut Builder) {
    let pass = b.pass;
    icmp::inner(b);
    find(b, PODS, End::Source);
    b.asm.jump_if(If::Eq, R0, 0, pass);
    keep_here(b);
    b.asm.jump(pass);
}

/// Handles TCP of the proxy: packets to an enrolled pod go there directly, and the programs at the pod's link do not see them again.
/// A connection with an address of a pod at one end and one of the node at the other is stored, because the answers have the same
/// addresses. An answer to another pod whose first packet the node forwarded goes back through the node, which may have translated it.
#[track_caller]
fn from_proxy(b: &mut Builder) {
    let pass = b.pass;
    let [other, between, send] = [(); 3].map(|()| b.asm.label());
    find(b, PODS, End::Destination);
    b.asm.jump_if(If::Eq, R0, 0, other);
    b.asm.load(Size::W, R7, R0, 0);
    find(b, NODE, End::Source);
    b.asm.jump_if(If::Eq, R0, 0, between);
    b.asm.load(Size::W, R1, R0, 0);
    b.asm.jump_if(If::Ne, R1, OF_NODE.cast_signed(), between);
    proxied::remember_first(b, End::Destination);
    b.asm.jump(send);
    b.asm.bind(between);
    proxied::jump_if_proxied(b, End::Source, pass);
    b.asm.bind(send);
    redirect(b, Helper::RedirectPeer);
    b.asm.bind(other);
    find(b, NODE, End::Destination);
    b.asm.jump_if(If::Eq, R0, 0, pass);
    find(b, PODS, End::Source);
    b.asm.jump_if(If::Eq, R0, 0, pass);
    proxied::remember(b, End::Source);
    b.asm.jump(pass);
}

/// Handles TCP that arrives at the proxy:
/// 1. Packets without an address of an enrolled pod pass: they are ztunnel's own. So do packets of a pod to an address of the proxy.
/// 2. Packets of ztunnel's connections are marked, so that they stay in this namespace.
/// 3. A first packet goes to a listener: from a pod to the outbound one, to a pod to an inbound one. Without a listener it is
///    dropped; it never passes. Between two pods it is outbound, unless that is excluded.
/// 4. A packet without a connection goes to a listener, too: it opens a connection if it returns a SYN cookie of the listener.
///    Otherwise the listener resets it or, without one, the kernel.
#[track_caller]
fn proxy(b: &mut Builder, traits: NodeTraits) {
    let [outbound, inbound] = [(); 2].map(|()| b.asm.label());
    let pass = b.pass;
    find(b, PODS, End::Source);
    b.asm.jump_if(If::Ne, R0, 0, outbound);
    find(b, PODS, End::Destination);
    b.asm.jump_if(If::Ne, R0, 0, inbound);
    b.asm.jump(pass);

    b.asm.bind(outbound);
    let to_others = b.asm.label();
    find(b, NODE, End::Destination);
    b.asm.jump_if(If::Eq, R0, 0, to_others);
    b.asm.load(Size::W, R1, R0, 0);
    b.asm.jump_if(If::Eq, R1, OF_PROXY.cast_signed(), pass);
    b.asm.bind(to_others);
    if traits.exclude {
        let from_pod = b.asm.label();
        find(b, PODS, End::Destination);
        b.asm.jump_if(If::Eq, R0, 0, from_pod);
        exclude::jump_if_sent_past(b, traits, inbound);
        b.asm.bind(from_pod);
    }
    to_listener(b, ztunnel::OUTBOUND, Count::NoOutboundListener);

    b.asm.bind(inbound);
    let plain = b.asm.label();
    b.asm.load(Size::H, R1, R10, PORTS + 2);
    b.asm.jump_if(If::Ne, R1, be16(ztunnel::HBONE), plain);
    to_listener(b, ztunnel::HBONE, Count::NoInboundListener);
    b.asm.bind(plain);
    to_listener(b, ztunnel::INBOUND, Count::NoInboundListener);
}

/// Passes packets of connections of this namespace, and assigns all others to this listener.
#[track_caller]
fn to_listener(b: &mut Builder, port: u16, absent: Count) {
    let (pass, new) = (b.pass, b.asm.label());
    keep_here(b);
    jump_if_connected(b, pass);
    b.is_first();
    b.asm.jump_if(If::Ne, R1, 0, new);
    b.asm.jump_if(If::Ne, R7, 0, new);
    b.assign(port, None);
    b.asm.jump(pass);
    b.asm.bind(new);
    b.assign(port, Some(absent));
    b.asm.jump(pass);
}
