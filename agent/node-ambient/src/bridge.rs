//! Rules for bridges that have links of pods, or of the proxy, as ports.
//!
//! The node's other rules cannot see the port at which a packet arrived, nor packets between two ports. So the destination address
//! of each frame with TCP from or to an enrolled pod that is for another host is set to the bridge's own: the node then routes it,
//! as it does where each pod has its own link. Packets of the proxy get the same marks here that they get elsewhere by their link.
//!
//! TCP at a pod's port without one of its addresses is not captured and does not pass, except from and to the node: the bridge
//! does not forward it, packets that would be routed get the mark of packets to the proxy, and the node's other rules drop them.
//!
//! Foreign bridge rules with later priorities, and connection tracking on bridges (`br_netfilter`), see the changed frames.
//!
//! With `br_netfilter` the rules for IP see a frame before the bridge looks up its port, and may translate the connection. The
//! bridge then forwards a frame that was for this host if its new route leads to another port: to the proxy, or past the capture. The
//! frame passes if those rules have marked it, and is dropped like all others without such a mark. If `br_netfilter` is off, the same
//! packet is routed, so that `br_netfilter` may be turned on and off.

use crate::nft::{
    HOST_TABLE, MARK, address, at_links, links, mark, masked, matching, named, rule, set,
};
use crate::node::{Bridge, Family, Node};
use std::collections::BTreeMap;
use weir_netfilter::nft::expr::{DataAttrs, Expr, Immediate, Payload};
use weir_netfilter::nft::{
    Chain, ChainType, CmpOp, Data, Hook, L4Proto, MetaKey, Operand, Rule, RuleBuilder, Selector,
    Set, Source, Statement, Table, TableFamily, Verdict, raw,
};

/// `NF_BR_PRI_NAT_DST_BRIDGED` of `linux/netfilter_bridge.h`: before `br_netfilter` shows frames to rules for IP.
const PRIORITY: i32 = -300;
/// `PACKET_HOST` of `linux/if_packet.h`: for this host. The kernel sets the type before the rules here change the address.
const PACKET_HOST: u8 = 0;
/// `PACKET_OTHERHOST`: not for the bridge at whose port it arrived. `meta ibrname` needs a module that not all kernels have.
const PACKET_OTHERHOST: u8 = 3;
/// `ETH_P_IP` and `ETH_P_IPV6` of `linux/if_ether.h`
const ETH_P: [u16; 2] = [0x0800, 0x86dd];

/// Returns the table, or `None` without such a bridge.
pub(crate) fn table(node: &Node) -> Option<Table> {
    let bridges: BTreeMap<&str, &Bridge> = node
        .bridges
        .values()
        .map(|bridge| (bridge.name.as_str(), bridge))
        .collect();
    if bridges.is_empty() {
        return None;
    }
    let (mut rules, mut sets) = (Vec::new(), Vec::new());
    // Packets of the node's own processes have a socket.
    let own = rule().skuid(CmpOp::Neq, u32::MAX..=u32::MAX);
    let (mut switched, mut sent) = (Vec::new(), vec![own.verdict(Verdict::Return)]);
    for bridge in bridges.values() {
        sets.push(links(
            &ports(bridge),
            node.devices_of_pods(Some(&bridge.name)),
        ));
    }
    // Marks of packets that belong to the proxy's connections, or are not captured.
    let past = node.config.marks.skip | node.config.marks.proxy_return;
    for family in node.families() {
        rules.extend(of_proxies(node, family));
        for bridge in bridges.values() {
            let set = pods(node, bridge, family);
            rules.extend(to_node(node, bridge, family, &set.name));
            let at_port = |is_source| {
                let at_port = at_links(rule(), &ports(bridge), is_source);
                of_family(at_port, family, L4Proto::Tcp)
            };
            let unlisted = |is_source| {
                let address = address(family, is_source);
                matching(at_port(is_source), address, CmpOp::Neq, named(&set.name))
            };
            let for_host = |of, op| {
                let host = Operand::Value(Data::u8(PACKET_HOST));
                matching(of, Selector::Meta(MetaKey::Pkttype), op, host)
            };
            let routed = for_host(unlisted(true), CmpOp::Eq);
            rules.push(mark(routed, node.config.marks.outbound).build());
            let drop = |of: RuleBuilder| of.counter().verdict(Verdict::Drop);
            for is_source in [true, false] {
                let for_others = for_host(at_port(is_source), CmpOp::Neq);
                let unmarked = masked(at_port(is_source), MARK, 0, past);
                switched.extend([for_others, unlisted(is_source), unmarked].map(drop));
            }
            sent.push(drop(unlisted(false)));
            sets.push(set);
        }
    }
    let chain = |name: &str, hook, priority, rules| Chain {
        rules,
        ..Chain::base(name, ChainType::Filter, hook, priority)
    };
    Some(Table {
        sets,
        chains: vec![
            chain("prerouting", Hook::Prerouting, PRIORITY, rules),
            chain("forward", Hook::Forward, PRIORITY, switched),
            chain("output", Hook::Output, PRIORITY, sent),
        ],
        ..Table::new(TableFamily::Bridge, HOST_TABLE)
    })
}

/// Start of the names of the sets of the pods' ports.
pub(crate) const PORTS: &str = "ports-";

/// Returns the name of the set of the pods' ports at the bridge.
fn ports(bridge: &Bridge) -> String {
    format!("{PORTS}{}", bridge.name)
}

/// Returns the set of addresses of the pods that have a link at the bridge.
fn pods(node: &Node, bridge: &Bridge, family: Family) -> Set {
    let is_there = |uid: &str| {
        let devices = node.devices.get(uid);
        let mut bridges = devices.into_iter().flatten().map(|d| node.arrival(d));
        bridges.any(|name| name == bridge.name)
    };
    let mut pods = node.addresses(family);
    pods.retain(|_, uid| is_there(uid));
    let suffix = if family.is_v6 { "-v6" } else { "" };
    set(&format!("pods-{}{suffix}", bridge.name), family, pods)
}

/// Returns the rules for packets from a proxy's port. A packet with the address of a client belongs to a connection that the
/// proxy made on behalf of the client.
fn of_proxies(node: &Node, family: Family) -> Vec<Rule> {
    let marks = &node.config.marks;
    let mut rules = Vec::new();
    let proxies = node.proxies();
    for located in proxies.filter(|located| node.bridges.contains_key(&located.device)) {
        let from = || {
            of_family(
                rule().iifname(CmpOp::Eq, &located.device),
                family,
                L4Proto::Tcp,
            )
        };
        let Some(own) = located.address(family) else {
            rules.push(mark(from(), marks.conn_skip).build());
            continue;
        };
        let source = |op| {
            let operand = Operand::Value(Data::addr(own));
            matching(from(), address(family, true), op, operand)
        };
        let connection = node.bits(located).connection;
        rules.push(mark(source(CmpOp::Neq), connection).build());
        rules.push(mark(source(CmpOp::Eq), marks.conn_skip).build());
    }
    rules
}

/// Returns the rules that address frames from and to enrolled pods to the bridge. With DNS capture this includes UDP, because the
/// source of a DNS answer must be translated back to the server that was asked.
fn to_node(node: &Node, bridge: &Bridge, family: Family, pods: &str) -> Vec<Rule> {
    let names = node.config.dns_capture.then_some(L4Proto::Udp);
    let mut rules = Vec::new();
    for proto in [L4Proto::Tcp].into_iter().chain(names) {
        for is_source in [true, false] {
            let of_others = Operand::Value(Data::u8(PACKET_OTHERHOST));
            let kind = Selector::Meta(MetaKey::Pkttype);
            let between = matching(rule(), kind, CmpOp::Eq, of_others);
            let of_pods = of_family(between, family, proto);
            let of_pods = matching(of_pods, address(family, is_source), CmpOp::Eq, named(pods));
            let is_host = Source::Value(Data::u8(PACKET_HOST));
            rules.push(
                of_pods
                    .counter()
                    .push(addressed(bridge.mac))
                    .push(Statement::MetaSet(MetaKey::Pkttype, is_host))
                    .build(),
            );
        }
    }
    rules
}

/// Matches `meta protocol` and `meta l4proto`: the bridge family covers both versions of IP.
fn of_family(rule: RuleBuilder, family: Family, proto: L4Proto) -> RuleBuilder {
    let [v4, v6] = ETH_P.map(|number| Operand::Value(Data::be16(number)));
    let protocol = Selector::Meta(MetaKey::Protocol);
    let is_family = if family.is_v6 { v6 } else { v4 };
    matching(rule, protocol, CmpOp::Eq, is_family).l4proto(proto)
}

/// `ether daddr set MAC`
fn addressed(mac: [u8; 6]) -> Statement {
    let value = Immediate {
        dreg: Some(raw::NFT_REG_1),
        data: Some(DataAttrs::of(&mac)),
        ..Immediate::default()
    };
    let store = Payload {
        sreg: Some(raw::NFT_REG_1),
        base: Some(raw::NFT_PAYLOAD_LL_HEADER),
        offset: Some(0),
        len: Some(6),
        csum_type: Some(raw::NFT_PAYLOAD_CSUM_NONE),
        csum_offset: Some(0),
        ..Payload::default()
    };
    Statement::Opaque(vec![Expr::Immediate(value), Expr::Payload(store)])
}
