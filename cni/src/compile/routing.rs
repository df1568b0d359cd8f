//! Addresses, policy rules and routes that the netfilter rules need.

use super::family::Family;
use crate::config::Intent;
use ipnet::IpNet;
use std::fmt;

/// The protocol family of a policy rule or route.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum IpFamily {
    /// `ip -4`
    V4,
    /// `ip -6`
    V6,
}

/// One address, policy rule or route to add. An item that exists is kept.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RoutingItem {
    /// `ip address add ADDRESS dev lo`
    Address {
        /// The address and its prefix length.
        address: IpNet,
    },
    /// `ip rule add fwmark MARK/MASK lookup TABLE`, without an explicit priority.
    PolicyRule {
        /// Family.
        family: IpFamily,
        /// `FRA_FWMARK`
        mark: u32,
        /// `FRA_FWMASK`
        mask: u32,
        /// `FRA_TABLE`
        table: u32,
    },
    /// `ip route add local default dev lo table TABLE`: every address is local. For IPv4 with
    /// host scope.
    LocalDefault {
        /// Family.
        family: IpFamily,
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
            address: Family::v6(intent).passthrough,
        });
    }
    let Some((mark, table)) = intent.tproxy().and_then(|t| Some((t.mark, t.table?))) else {
        return items;
    };
    let families = [IpFamily::V4, IpFamily::V6];
    let families = families
        .iter()
        .copied()
        .take(if intent.enable_ipv6 { 2 } else { 1 });
    let rule = |family| RoutingItem::PolicyRule {
        family,
        mark,
        mask: u32::MAX,
        table,
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
                let family = match address {
                    IpNet::V4(_) => IpFamily::V4,
                    IpNet::V6(_) => IpFamily::V6,
                };
                format!("ip {family} address {verb}{address} dev lo")
            }
            Self::PolicyRule {
                family,
                mark,
                mask,
                table,
            } => {
                let mask = match *mask {
                    u32::MAX => String::new(),
                    mask => format!("/{mask:#x}"),
                };
                format!("ip {family} rule {verb}fwmark {mark:#x}{mask} lookup {table}")
            }
            Self::LocalDefault { family, table } => {
                let scope = match family {
                    IpFamily::V4 => " scope host",
                    IpFamily::V6 => "",
                };
                format!("ip {family} route {verb}local default dev lo{scope} table {table}")
            }
        }
    }
}

impl fmt::Display for IpFamily {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::V4 => "-4",
            Self::V6 => "-6",
        })
    }
}

/// The command that adds it.
impl fmt::Display for RoutingItem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.command("add "))
    }
}
