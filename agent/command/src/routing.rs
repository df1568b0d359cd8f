//! Addresses, policy rules and routes of a namespace, for `weir show`: in the syntax of `ip`, as `weir plan` and
//! `weir verify` print them.
//!
//! Objects that the kernel creates in every namespace are omitted: `127.0.0.1/8` and `::1/128` of `lo` and their routes,
//! the rules for the tables local, main and default, and its own routes in the table local.

use serde_json::{Value, json};
use std::collections::BTreeMap;
use weir_cni::redirection::RTPROT_WEIR;
use weir_netlink::route::{
    Address, AddressFamily, PolicyRule, RT_TABLE_LOCAL, RT_TABLE_MAIN, Route, RouteProtocol,
    RouteScope, RouteType, Routing,
};
use weir_netlink::{Netns, Result};

/// The priorities and tables of the kernel's own rules (`fib_default_rules_init()` in net/ipv4/fib_rules.c).
const DEFAULT_RULES: [(u32, u32); 3] = [(0, RT_TABLE_LOCAL), (32766, RT_TABLE_MAIN), (32767, 253)];

/// A line without the word `ip`, and whether weir created the object.
struct Line {
    text: String,
    ours: bool,
}

/// Addresses, policy rules and routes of a namespace.
pub(super) struct Shown {
    addresses: Vec<Line>,
    rules: Vec<Line>,
    routes: Vec<Line>,
}

/// Reads the network namespace.
pub(super) fn read(netns: &Netns) -> Result<Shown> {
    let routing = Routing::open_in(netns)?;
    let links: BTreeMap<u32, String> = routing
        .links()?
        .into_iter()
        .map(|link| (link.index, link.name))
        .collect();
    let all_rules = routing.rules()?;
    // Routes of all tables: a table without a policy rule may be used by a packet's link (VRF), or by a rule added later.
    let mut routes = routing.all_routes()?;
    routes.retain(|route| !is_of_lo(route, &links) && !is_local(route));
    routes.sort_by_key(|route| route.table);
    let routes = routes.iter().map(|route| of_route(route, &links));
    let addresses = routing.addresses()?;
    let addresses = addresses.iter().filter(|a| !is_loopback(a));
    Ok(Shown {
        addresses: addresses.map(|a| of_address(a, &links)).collect(),
        rules: all_rules
            .iter()
            .filter(|rule| !is_default(rule))
            .map(of_rule)
            .collect(),
        routes: routes.collect(),
    })
}

impl Shown {
    /// One line per object.
    pub(super) fn text(&self) -> String {
        let lines = [&self.addresses, &self.rules, &self.routes];
        let mut text = String::new();
        for line in lines.into_iter().flatten() {
            super::output::push_line(&mut text, &format!("ip {}", line.text));
        }
        text
    }

    pub(super) fn json(&self) -> Value {
        let list = |lines: &[Line]| -> Value {
            let one =
                |line: &Line| json!({ "text": format!("ip {}", line.text), "ours": line.ours });
            lines.iter().map(one).collect()
        };
        json!({
            "addresses": list(&self.addresses),
            "rules": list(&self.rules),
            "routes": list(&self.routes),
        })
    }
}

fn dash(family: AddressFamily) -> &'static str {
    match family {
        AddressFamily::V4 => "-4",
        AddressFamily::V6 => "-6",
    }
}

fn device(index: u32, links: &BTreeMap<u32, String>) -> String {
    match links.get(&index) {
        Some(name) => name.clone(),
        // The link was created after the links were read.
        None => format!("if{index}"),
    }
}

fn is_loopback(address: &Address) -> bool {
    let net = address.net.to_string();
    net == "127.0.0.1/8" || net == "::1/128"
}

fn is_of_lo(route: &Route, links: &BTreeMap<u32, String>) -> bool {
    route.protocol == RouteProtocol::Kernel
        && route.dst.addr().is_loopback()
        && route
            .oif
            .and_then(|index| links.get(&index))
            .is_some_and(|name| name == "lo")
}

/// Whether this is one of the kernel's own routes in the table local. Before 5.11 the IPv6 multicast route has the protocol of
/// `ip` (boot), and others may have none.
fn is_local(route: &Route) -> bool {
    let made = matches!(u8::from(route.protocol), 0 | 2);
    route.table == RT_TABLE_LOCAL && (made || route.dst.to_string() == "ff00::/8")
}

fn is_default(rule: &PolicyRule) -> bool {
    let key = (rule.priority.unwrap_or(0), rule.table);
    rule.only_mark() && rule.fwmark.is_none() && DEFAULT_RULES.contains(&key)
}

fn of_address(address: &Address, links: &BTreeMap<u32, String>) -> Line {
    let family = match address.net.addr().is_ipv4() {
        true => AddressFamily::V4,
        false => AddressFamily::V6,
    };
    let mut text = format!(
        "{} address {} dev {}",
        dash(family),
        address.net,
        device(address.index, links)
    );
    if address.tentative {
        text += " tentative";
    }
    Line {
        text,
        // Addresses do not record their creator; this one has no other use.
        ours: address.net.to_string() == "::6/128",
    }
}

fn of_rule(rule: &PolicyRule) -> Line {
    let mut text = format!("{} rule {}", dash(rule.family), rule.words(table));
    if let Some(priority) = rule.priority {
        text += &format!(" pref {priority}");
    }
    let made = proto(rule.protocol);
    Line {
        text: text + &made,
        ours: rule.protocol == RouteProtocol::Other(RTPROT_WEIR),
    }
}

fn of_route(route: &Route, links: &BTreeMap<u32, String>) -> Line {
    let mut text = format!("{} route", dash(route.family()));
    if route.kind != RouteType::Unicast {
        text += &format!(" {}", format!("{:?}", route.kind).to_lowercase());
    }
    match route.dst.prefix_len() {
        0 => text += " default",
        _ => text += &format!(" {}", route.dst),
    }
    if let Some(from) = route.from {
        text += &format!(" from {from}");
    }
    let router = route.router();
    if let Some(router) = &router {
        text += &format!(" {router}");
    }
    let mut more = if route.more { " (and more)" } else { "" };
    match route.oif {
        Some(index) => text += &format!(" dev {}", device(index, links)),
        None if route.kind == RouteType::Unicast && router.is_none() => {
            more = " (several next hops)";
        }
        None => {}
    }
    match route.scope {
        RouteScope::Host => text += " scope host",
        RouteScope::Link => text += " scope link",
        _ => {}
    }
    if route.table != RT_TABLE_MAIN {
        text += &format!(" table {}", table(route.table));
    }
    if let Some(metric) = route.priority.filter(|metric| *metric != 0) {
        text += &format!(" metric {metric}");
    }
    if let Some(source) = route.prefsrc {
        text += &format!(" src {source}");
    }
    if route.onlink {
        text += " onlink";
    }
    let made = proto(route.protocol);
    Line {
        text: text + &made + more,
        ours: route.protocol == RouteProtocol::Other(RTPROT_WEIR),
    }
}

fn table(number: u32) -> String {
    match number {
        253 => "default".to_owned(),
        RT_TABLE_MAIN => "main".to_owned(),
        RT_TABLE_LOCAL => "local".to_owned(),
        number => number.to_string(),
    }
}

/// The creator of a route or rule (`proto`), with the names of `rt_protos`; empty for protocol 0.
fn proto(protocol: RouteProtocol) -> String {
    let name = match u8::from(protocol) {
        0 => return String::new(),
        2 => "kernel".to_owned(),
        3 => "boot".to_owned(),
        4 => "static".to_owned(),
        9 => "ra".to_owned(),
        16 => "dhcp".to_owned(),
        number => number.to_string(),
    };
    format!(" proto {name}")
}
