//! Addresses, policy rules and routes that the netfilter rules need.

use super::family::PASSTHROUGH_V6;
use crate::config::Intent;
use crate::redirection::WEIR;
use ipnet::IpNet;
use std::fmt;
use std::net::IpAddr;
use weir_netlink::route::{AddressFamily, LOOPBACK_IFINDEX, PolicyRule, Route};

/// One address, policy rule or route to add. An item that exists is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RoutingItem {
    /// `ip address add ADDRESS dev lo`
    Address(IpNet),
    /// `ip rule add fwmark MARK/MASK lookup TABLE [priority PRIORITY]`; without a priority the kernel chooses one before
    /// all others.
    PolicyRule(PolicyRule),
    /// `ip route add local default dev lo table TABLE`: every address is local. For IPv4 with
    /// host scope.
    LocalDefault(Route),
}

/// Compiles the routing of a redirection to a sidecar:
///
/// - `::6` is the source of the proxy's connections to the application over IPv6; IPv4 has all of
///   127.0.0.0/8 on `lo`.
/// - Marked packets are looked up in a separate table, where every address is local. The routes are added before
///   the policy rules that select their table, so no packet is looked up in an empty table.
pub(super) fn routing(intent: &Intent) -> Vec<RoutingItem> {
    let (mut items, mut families) = (Vec::new(), vec![AddressFamily::V4]);
    if intent.enable_ipv6 {
        items.push(RoutingItem::Address(IpNet::from(IpAddr::from(
            PASSTHROUGH_V6,
        ))));
        families.push(AddressFamily::V6);
    }
    if let Some((mark, table)) = intent.tproxy().and_then(|t| Some((t.mark, t.table?))) {
        let rule = |family| RoutingItem::marked(family, (mark, u32::MAX), table, None);
        let route = |family| RoutingItem::local_default(family, table);
        items.extend(families.iter().copied().map(route));
        items.extend(families.into_iter().map(rule));
    }
    items
}

impl RoutingItem {
    /// Creates the route that makes every address of the family local, with weir's protocol number.
    #[must_use]
    pub fn local_default(family: AddressFamily, table: u32) -> Self {
        Self::LocalDefault(Route::local_default(family, LOOPBACK_IFINDEX, table).by(WEIR))
    }

    /// Creates the policy rule for packets with this mark under the mask, with weir's protocol number.
    #[must_use]
    pub fn marked(
        family: AddressFamily,
        (mark, mask): (u32, u32),
        table: u32,
        priority: Option<u32>,
    ) -> Self {
        let mut rule = PolicyRule::mark(family, mark, table).by(WEIR);
        (rule.fwmask, rule.priority) = (Some(mask), priority);
        Self::PolicyRule(rule)
    }

    /// Returns the address family.
    #[must_use]
    pub fn family(&self) -> AddressFamily {
        match self {
            Self::Address(address) => AddressFamily::of_address(address.addr()),
            Self::PolicyRule(rule) => rule.family,
            Self::LocalDefault(route) => route.family(),
        }
    }

    /// Formats the item without a verb: `ip -4 rule fwmark 0x539 lookup 133`.
    #[must_use]
    pub fn object(&self) -> String {
        self.command("")
    }

    /// Formats the command that deletes the item.
    #[must_use]
    pub fn removal(&self) -> String {
        self.command("delete ")
    }

    /// Formats the command with this verb, which ends with a blank.
    fn command(&self, verb: &str) -> String {
        let (option, scope) = match self.family() {
            AddressFamily::V4 => ("-4", " scope host"),
            AddressFamily::V6 => ("-6", ""),
        };
        let rest = match self {
            Self::Address(address) => format!("address {verb}{address} dev lo"),
            Self::PolicyRule(rule) => {
                // Without a mark it is for every packet: none of its bits are compared.
                let (mark, table) = (rule.fwmark.unwrap_or(0), rule.table);
                let mask = match rule.fwmask.unwrap_or(0) {
                    u32::MAX => String::new(),
                    mask => format!("/{mask:#x}"),
                };
                let priority = rule.priority.map(|p| format!(" priority {p}"));
                let priority = priority.unwrap_or_default();
                format!("rule {verb}fwmark {mark:#x}{mask} lookup {table}{priority}")
            }
            Self::LocalDefault(route) => {
                let table = route.table;
                format!("route {verb}local default dev lo{scope} table {table}")
            }
        };
        format!("ip {option} {rest}")
    }
}

/// The command that adds it.
impl fmt::Display for RoutingItem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.command("add "))
    }
}
