//! Addresses, policy rules and routes of a namespace, for `weir show`: in the words of `ip`, as `weir plan` and
//! `weir verify` print them.
//!
//! What the kernel puts into every namespace is left out: `127.0.0.1/8` and `::1/128` of `lo` and their routes,
//! the rules for the tables local, main and default, and the table local.

use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use weir_cni::redirection::RTPROT_WEIR;
use weir_netlink::route::{
    Address, AddressFamily, PolicyRule, RT_TABLE_LOCAL, RT_TABLE_MAIN, Route, RouteProtocol,
    RouteScope, RouteType, Routing,
};
use weir_netlink::{Netns, Result};

/// The priorities and tables of the kernel's own rules (`fib_default_rules_init()` in net/ipv4/fib_rules.c).
const DEFAULT_RULES: [(u32, u32); 3] = [(0, RT_TABLE_LOCAL), (32766, RT_TABLE_MAIN), (32767, 253)];

/// So many tables that rules look up are read; a pod may make rules for any number of them.
const TABLES: usize = 256;

/// A line without the word "ip", and whether weir made the object.
struct Line {
    text: String,
    ours: bool,
}

/// What a namespace has.
pub(super) struct Shown {
    addresses: Vec<Line>,
    rules: Vec<Line>,
    routes: Vec<Line>,
    /// Tables that were not read.
    unread: usize,
}

/// Reads all of it.
pub(super) fn read(netns: &Netns) -> Result<Shown> {
    let routing = Routing::open_in(netns)?;
    let links: BTreeMap<u32, String> = routing
        .links()?
        .into_iter()
        .map(|link| (link.index, link.name))
        .collect();
    let all_rules = routing.rules()?;
    let mut tables: BTreeSet<u32> = all_rules.iter().map(|rule| rule.table).collect();
    tables.insert(RT_TABLE_MAIN);
    tables.remove(&RT_TABLE_LOCAL);
    // Rules that look nothing up.
    tables.remove(&0);
    let unread = tables.len().saturating_sub(TABLES);
    let mut routes = Vec::new();
    for table in tables.into_iter().take(TABLES) {
        let here = routing.routes(table)?;
        let here = here.iter().filter(|route| !is_of_lo(route, &links));
        routes.extend(here.map(|route| of_route(route, &links)));
    }
    let addresses = routing.addresses()?;
    let addresses = addresses.iter().filter(|a| !is_loopback(a));
    Ok(Shown {
        addresses: addresses.map(|a| of_address(a, &links)).collect(),
        rules: all_rules
            .iter()
            .filter(|rule| !is_default(rule))
            .map(of_rule)
            .collect(),
        routes,
        unread,
    })
}

impl Shown {
    /// One line for each object.
    pub(super) fn text(&self) -> String {
        let lines = [&self.addresses, &self.rules, &self.routes];
        let mut text = String::new();
        for line in lines.into_iter().flatten() {
            super::output::push_line(&mut text, &format!("ip {}", line.text));
        }
        if self.unread > 0 {
            text += &format!(
                "# the routes of {} more tables were not read\n",
                self.unread
            );
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
            "tablesNotRead": self.unread,
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
        // It came into being in the meantime.
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
        // An address bears no sign of who made it; this one has no other use.
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
    if let Some(gateway) = route.gateway {
        text += &format!(" via {gateway}");
    }
    match route.oif {
        Some(index) => text += &format!(" dev {}", device(index, links)),
        None if route.kind == RouteType::Unicast && route.gateway.is_none() => {
            text += " (several next hops)";
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
    let made = proto(route.protocol);
    Line {
        text: text + &made,
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

/// Who made it, with the names of `rt_protos`; nothing where nobody said.
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
