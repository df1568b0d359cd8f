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

/// ztunnel's ports.
const OUTBOUND_PORT: u16 = 15001;
const INBOUND_PORT: u16 = 15006;
const HBONE_PORT: u16 = 15008;

/// Which program it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum NodeRole {
    /// At the proxy's own interface: what is redirected goes to its listeners and sockets.
    Proxy,
    /// What the proxy sends: to enrolled pods directly.
    FromProxy,
    /// What goes to an enrolled pod: to the proxy.
    ToPod,
    /// What an enrolled pod sends: to the proxy.
    FromPod,
}

impl NodeRole {
    /// In the order in which they are attached: nothing is redirected before the other end is there.
    pub(crate) const ALL: [Self; 4] = [Self::Proxy, Self::FromProxy, Self::ToPod, Self::FromPod];

    /// One letter, for the name of the program.
    pub(crate) fn letter(self) -> char {
        match self {
            Self::Proxy => 'p',
            Self::FromProxy => 'f',
            Self::ToPod => 't',
            Self::FromPod => 'o',
        }
    }

    /// It is at the link of a pod.
    pub(super) fn is_of_pod(self) -> bool {
        matches!(self, Self::ToPod | Self::FromPod)
    }

    /// The role of a program with this name, which [`super::Node`] gave it.
    pub(crate) fn of_name(name: &str) -> Option<Self> {
        let letter = name.strip_prefix("weir_")?.chars().next()?;
        Self::ALL.into_iter().find(|role| role.letter() == letter)
    }

    /// What the program does, in words.
    pub(crate) fn words(self) -> &'static str {
        match self {
            Self::Proxy => "gives redirected TCP to ztunnel's listeners and connections",
            Self::FromProxy => "sends TCP of ztunnel to enrolled pods directly",
            Self::ToPod => "sends TCP for the pod to the node's ztunnel",
            Self::FromPod => "sends TCP of the pod to the node's ztunnel",
        }
    }
}

/// The code of one program.
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

/// What the programs depend on. Equal values need the same programs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NodeTraits {
    /// IPv6 is captured, too.
    pub dual: bool,
    /// DNS over UDP goes to the proxy.
    pub dns: bool,
    /// Peers or ports are excluded.
    pub exclude: bool,
    /// What happens to packets is reported in a ring buffer.
    pub events: bool,
}

impl NodeTraits {
    /// The first map behind those that are always there and those of names.
    pub(super) fn exclude_map(self) -> MapRef {
        MapRef(if self.dns { 9 } else { 7 })
    }

    /// The first map of events, behind all others.
    fn events_map(self) -> MapRef {
        MapRef(self.exclude_map().0 + if self.exclude { 5 } else { 0 })
    }
}

/// A datagram of a pod: a query for a name goes to the proxy, whose address it gets. Without a proxy it passes.
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
    nat::rewrite(b, End::Destination, nat::PROXY_PORT);
    b.count(Count::Dns);
    let found = b.asm.label();
    find_active(b, found);
    b.asm.bind(found);
    redirect(b, Helper::RedirectPeer);
}

/// A datagram of the proxy: an answer to a query gets the address of the server that was asked, and goes to the pod.
#[track_caller]
fn answer(b: &mut Builder) {
    let pass = b.pass;
    b.asm.load(Size::H, R1, R10, PORTS);
    b.asm.jump_if(If::Ne, R1, be16(nat::PROXY_PORT), pass);
    find(b, PODS, End::Destination);
    b.asm.jump_if(If::Eq, R0, 0, pass);
    nat::answer_from_server(b, QUERIES);
    find(b, PODS, End::Destination);
    b.asm.jump_if(If::Eq, R0, 0, pass);
    b.asm.load(Size::W, R7, R0, 0);
    redirect(b, Helper::RedirectPeer);
}

/// What goes to the node itself or to a proxy passes, answers to probes among it, but for connections of the proxy. What has another source than
/// the addresses of enrolled pods is dropped: ztunnel knows no workload for it, and it would pass in plain text.
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
        // With the address of another pod nothing is excluded for it.
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

/// What comes from the node itself passes, probes among it, but for answers to the proxy. What the node masquerades for others is
/// not its own. What others send to an address that is not captured, as a neighbour on a bridge does to the pod's link-local one, is
/// dropped.
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
    // The other end of a pair can be reached from the ingress hook only.
    redirect(b, Helper::Redirect);

    b.asm.bind(unlisted);
    find(b, NODE, End::Source);
    b.asm.jump_if(If::Eq, R0, 0, refused);
    proxied::from_node(b, node, refused);
    b.asm.bind(refused);
    b.refuse(Count::Unlisted);
}

/// An error about what a pod sent: unless it went to the node or is excluded, the proxy sent it.
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

/// It is for a connection of this namespace.
#[track_caller]
fn error_to_proxy(b: &mut Builder) {
    let pass = b.pass;
    icmp::inner(b);
    find(b, PODS, End::Source);
    b.asm.jump_if(If::Eq, R0, 0, pass);
    keep_here(b);
    b.asm.jump(pass);
}

/// To an enrolled pod directly: the programs at the pod's link do not see it again. What has the address of a pod at one end and one
/// of the node at the other is remembered, since the answer has these addresses as well. An answer to another pod whose first packet the
/// node forwarded goes back through the node, which may have translated it.
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

/// 1. What has no address of an enrolled pod passes: it is ztunnel's own. So does what a pod sends to an address of the proxy.
/// 2. Packets of ztunnel's connections are marked, so that they stay in this namespace.
/// 3. A first packet goes to a listener: of a pod to the outbound one, to a pod to an inbound one. Without it, it is
///    dropped; it never passes. Between two pods it is outbound, unless that is excluded.
/// 4. So does what belongs to no connection: it begins one if it returns a SYN cookie of the listener. Otherwise it is reset by that or,
///    without it, by the kernel.
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
    to_listener(b, OUTBOUND_PORT, Count::NoOutboundListener);

    b.asm.bind(inbound);
    let plain = b.asm.label();
    b.asm.load(Size::H, R1, R10, PORTS + 2);
    b.asm.jump_if(If::Ne, R1, be16(HBONE_PORT), plain);
    to_listener(b, HBONE_PORT, Count::NoInboundListener);
    b.asm.bind(plain);
    to_listener(b, INBOUND_PORT, Count::NoInboundListener);
}

/// Packets of connections of this namespace pass, everything else goes to this listener.
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
