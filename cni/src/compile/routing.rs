//! Addresses, policy rules and routes that the netfilter rules need.

use super::family::PASSTHROUGH_V6;
use crate::config::Intent;
use ipnet::IpNet;
use std::fmt;
use std::net::IpAddr;
use weir_netlink::route::AddressFamily;

/// One address, policy rule or route to add. An item that exists is kept.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RoutingItem {
    /// `ip address add ADDRESS dev lo`
    Address {
        /// The address and its prefix length.
        address: IpNet,
    },
    /// `ip rule add fwmark MARK/MASK lookup TABLE [priority PRIORITY]`
    PolicyRule {
        /// Family.
        family: AddressFamily,
        /// `FRA_FWMARK`
        mark: u32,
        /// `FRA_FWMASK`
        mask: u32,
        /// `FRA_TABLE`
        table: u32,
        /// `FRA_PRIORITY`; `None`: the kernel chooses one before all others.
        priority: Option<u32>,
    },
    /// `ip route add local default dev lo table TABLE`: every address is local. For IPv4 with
    /// host scope.
    LocalDefault {
        /// Family.
        family: AddressFamily,
        /// `RTA_TABLE`
        table: u32,
    },
}

/// - `::6` is the source of the proxy's connections to the application over IPv6; IPv4 has all of
///   127.0.0.0/8 on `lo`.
/// - Marked packets are looked up in a separate table, where every address is local. The routes are added before
///   the policy rules that select their table, so no packet is looked up in an empty table.
pub(super) fn routing(intent: &Intent) -> Vec<RoutingItem> {
    let mut items = Vec::new();
    if intent.enable_ipv6 {
        items.push(RoutingItem::Address {
            address: IpNet::from(IpAddr::from(PASSTHROUGH_V6)),
        });
    }
    let Some((mark, table)) = intent.tproxy().and_then(|t| Some((t.mark, t.table?))) else {
        return items;
    };
    let families = [AddressFamily::V4, AddressFamily::V6];
    let families = families
        .iter()
        .copied()
        .take(if intent.enable_ipv6 { 2 } else { 1 });
    let rule = |family| RoutingItem::PolicyRule {
        family,
        mark,
        mask: u32::MAX,
        table,
        priority: None,
    };
    let route = |family| RoutingItem::LocalDefault { family, table };
    items.extend(families.clone().map(route));
    items.extend(families.map(rule));
    items
}

impl RoutingItem {
    /// The item without the verb: `ip -4 rule fwmark 0x539 lookup 133`.
    #[must_use]
    pub fn object(&self) -> String {
        self.command("")
    }

    /// The command that deletes it.
    #[must_use]
    pub fn removal(&self) -> String {
        self.command("delete ")
    }

    /// The command with this verb, which ends with a blank.
    fn command(&self, verb: &str) -> String {
        match self {
            Self::Address { address } => {
                let option = match address {
                    IpNet::V4(_) => "-4",
                    IpNet::V6(_) => "-6",
                };
                format!("ip {option} address {verb}{address} dev lo")
            }
            Self::PolicyRule {
                family,
                mark,
                mask,
                table,
                priority,
            } => {
                let mask = match *mask {
                    u32::MAX => String::new(),
                    mask => format!("/{mask:#x}"),
                };
                let priority = priority.map(|p| format!(" priority {p}"));
                format!(
                    "ip {} rule {verb}fwmark {mark:#x}{mask} lookup {table}{}",
                    option(*family),
                    priority.unwrap_or_default()
                )
            }
            Self::LocalDefault { family, table } => {
                let scope = match family {
                    AddressFamily::V4 => " scope host",
                    AddressFamily::V6 => "",
                };
                format!(
                    "ip {} route {verb}local default dev lo{scope} table {table}",
                    option(*family)
                )
            }
        }
    }
}

/// The option of `ip` that selects the family.
fn option(family: AddressFamily) -> &'static str {
    match family {
        AddressFamily::V4 => "-4",
        AddressFamily::V6 => "-6",
    }
}

/// The command that adds it.
impl fmt::Display for RoutingItem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.command("add "))
    }
}
