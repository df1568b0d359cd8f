//! Policy rules that come before ours and lead replies past the proxy.
//!
//! The packets that our policy rule selects have its mark and a source address of the pod, or with a sidecar one of `lo`.
//! The kernel looks up their route twice: when they are sent, and when they come back by `lo`. For both lookups the input
//! interface is `lo` (`iif lo`); the second one knows the protocol. Rules with other selectors (`to`, ports, users) are meant
//! for specific packets and are not judged; rules that take every packet, or ours by mark, block ours: see `standing`.

use crate::compile::{Compiled, RoutingItem};
use crate::redirection::routing::leads_away;
use crate::redirection::{SIDECAR, WEIR};
use crate::sysctl;
use std::fs;
use std::net::IpAddr;
use weir_netlink::route::{
    Address, AddressFamily, LOOPBACK_IFINDEX, PolicyRule, Routing, RuleSelectors,
};
use weir_netlink::{Error, Result};

/// Has a directory for each interface in the network namespace of the thread that opens it.
const INTERFACES: &str = "/proc/sys/net/ipv4/conf";

/// The properties of a packet that policy rules match.
#[derive(Clone, Copy, Debug)]
pub(super) struct Packet<'a> {
    pub(super) mark: u32,
    pub(super) from: IpAddr,
    pub(super) iif: &'a str,
    pub(super) protocol: u8,
}

/// Returns one line for each hindrance.
pub(super) fn find(
    desired: &Compiled,
    routing: &Routing,
    addresses: &[Address],
) -> Result<Vec<String>> {
    if ours(desired).next().is_none() {
        return Ok(Vec::new());
    }
    let found = past(desired, routing, &routing.rules()?, addresses)?;
    let line = |(rule, priority): &(PolicyRule, u32)| {
        format!(
            "a foreign policy rule before ours leads replies past the proxy: {rule}; restrict it, or give it a higher number \
             than {priority}"
        )
    };
    let mut lines: Vec<String> = found.iter().map(line).collect();
    if desired.scheme() == &SIDECAR {
        super::extend(&mut lines, sysctls(routing))?;
    }
    Ok(lines)
}

fn ours(desired: &Compiled) -> impl Iterator<Item = &PolicyRule> {
    desired.routing.iter().filter_map(|item| match item {
        RoutingItem::PolicyRule(rule) => Some(rule),
        _ => None,
    })
}

/// The foreign policy rules that lead replies past the proxy, each with the priority of our rule behind it.
pub(in crate::redirection) fn past(
    desired: &Compiled,
    routing: &Routing,
    rules: &[PolicyRule],
    addresses: &[Address],
) -> Result<Vec<(PolicyRule, u32)>> {
    if ours(desired).next().is_none() {
        return Ok(Vec::new());
    }
    // A sidecar's proxy also connects to loopback addresses, with the client's address and the mark.
    let by_lo = desired.scheme() == &SIDECAR;
    // Such a rule may be meant for addresses of interfaces that are excluded from the redirection.
    let may_be_of_others =
        |rule: &PolicyRule| rule.selectors.from.is_some() && desired.leaves_interfaces_alone();
    let by_lo = |address: IpAddr| {
        // If the sysctl cannot be read, the address is included.
        by_lo
            && (address.is_ipv6() || !address.is_loopback() || leaves_by_loopback().unwrap_or(true))
    };
    let addresses = addresses
        .iter()
        .filter(|a| a.index != LOOPBACK_IFINDEX || by_lo(a.net.addr()));
    let addresses: Vec<IpAddr> = addresses.map(|a| a.net.addr()).collect();
    let mut found = Vec::new();
    for desired_rule in ours(desired) {
        let at = rules.iter().position(|r| r.same_effect(desired_rule));
        let Some((at, here)) = at.and_then(|at| Some((at, rules.get(at)?))) else {
            continue;
        };
        let takes = |rule: &PolicyRule| {
            addresses.iter().any(|from| {
                let packet = Packet {
                    mark: here.fwmark.unwrap_or(0),
                    from: *from,
                    iif: "lo",
                    protocol: super::TCP,
                };
                selects(rule, &packet)
            })
        };
        for rule in rules.iter().take(at) {
            if rule.protocol != WEIR
                && rule.family == here.family
                && !may_be_of_others(rule)
                && takes(rule)
                && !leads_away(rule, here)
                && routing.leads_past(rule, here)?
            {
                found.push((rule.clone(), here.priority.unwrap_or(0)));
            }
        }
    }
    Ok(found)
}

/// Reports sysctls that cause the loss of packets with the mark of transparent interception. If the kernel looks up a source
/// address with the mark, our policy rule makes it local, and the kernel drops the packet unless it accepts local sources.
/// Sources of packets from `lo` are not looked up. An interface that is down receives no packets: every namespace has such ones
/// while modules of tunnels are loaded (`tunl0`, `sit0`).
///
/// # Errors
/// A sysctl or an interface cannot be read, and may be on.
fn sysctls(routing: &Routing) -> Result<Vec<String>> {
    let mut found = None;
    for name in interfaces()? {
        if found.is_none()
            && on(&name, "accept_local")?.is_none()
            && let Some(key) = on(&name, "src_valid_mark")?
            && is_up(routing, &name)?
        {
            found = Some(key);
        }
    }
    let found = found.as_deref().map(lost);
    Ok(found.into_iter().chain(marked_answers()?).collect())
}

fn lost(key: &str) -> String {
    format!("sysctl net/{key} is on: inbound connections are lost; set it to 0")
}

/// Reports the sysctl with which a listener's answers have the mark of the client's packets. For answers to the mark of transparent
/// interception our policy rule applies; eBPF programs in a pod let answers with ztunnel's mark pass uncaptured.
///
/// # Errors
/// The sysctl cannot be read, and may be on.
pub(in crate::redirection) fn marked_answers() -> Result<Option<String>> {
    let accept = "ipv4/tcp_fwmark_accept";
    Ok(is_on(accept)?.then(|| lost(accept)))
}

/// False for an interface that no longer exists.
fn is_up(routing: &Routing, name: &str) -> Result<bool> {
    match routing.is_up(name) {
        Err(e) if e.is_not_found() => Ok(false),
        found => found,
    }
}

/// True if packets with a source in 127.0.0.0/8 may leave by an interface other than `lo`. Otherwise the proxy cannot connect
/// to such an address from another one, regardless of policy rules: the reply has no route.
fn leaves_by_loopback() -> Result<bool> {
    for name in interfaces()? {
        if on(&name, "route_localnet")?.is_some() {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The interfaces of the pod except `lo`.
fn interfaces() -> Result<Vec<String>> {
    let io = |e: &std::io::Error| Error::io("list", INTERFACES, e);
    let mut names = Vec::new();
    for entry in fs::read_dir(INTERFACES).map_err(|e| io(&e))? {
        let name = entry.map_err(|e| io(&e))?.file_name();
        let name = name.to_string_lossy().into_owned();
        if !matches!(&*name, "all" | "default" | "lo") {
            names.push(name);
        }
    }
    Ok(names)
}

/// The sysctl that is on, that of all interfaces or of this one.
fn on(interface: &str, what: &str) -> Result<Option<String>> {
    for of in ["all", interface] {
        let key = format!("ipv4/conf/{of}/{what}");
        if is_on(&key)? {
            return Ok(Some(key));
        }
    }
    Ok(None)
}

/// True if the sysctl is on; false if it does not exist in this kernel, or its interface has disappeared.
fn is_on(key: &str) -> Result<bool> {
    Ok(sysctl::find(key)?.is_some_and(|value| value != "0"))
}

/// True if a policy rule that does not select by mark may select packets of a redirection.
pub(in crate::redirection) fn may_select(rule: &PolicyRule) -> bool {
    // `not` excludes only one of many kinds of packets.
    let comes_by_lo = rule
        .selectors
        .iif
        .as_deref()
        .is_none_or(|name| name == "lo");
    rule.not || (is_judged(rule) && comes_by_lo)
}

/// True if all selectors match properties of packets that are known.
fn is_judged(rule: &PolicyRule) -> bool {
    let mut others = rule.selectors.clone();
    (others.from, others.iif, others.ip_proto) = (None, None, None);
    (others.suppress_prefixlength, others.flags) = (None, 0);
    others == RuleSelectors::default()
}

/// True if a rule certainly selects this packet.
pub(super) fn selects(rule: &PolicyRule, packet: &Packet<'_>) -> bool {
    let by = &rule.selectors;
    let mask = rule.fwmask.unwrap_or(u32::MAX);
    let family = AddressFamily::of_address(packet.from);
    !rule.not
        && is_judged(rule)
        && rule.family == family
        && rule
            .fwmark
            .is_none_or(|mark| (mark ^ packet.mark) & mask == 0)
        && by.from.is_none_or(|net| net.contains(&packet.from))
        && by.iif.as_deref().is_none_or(|name| name == packet.iif)
        && by.ip_proto.is_none_or(|number| number == packet.protocol)
}
