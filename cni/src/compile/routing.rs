//! Addresses, policy rules and routes that the rules need.

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

/// One thing to add beside the rules. What is there already is left.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RoutingItem {
    /// `ip address add ADDRESS dev lo`
    Address {
        /// The address and its prefix length.
        address: IpNet,
    },
    /// `ip rule add fwmark MARK/MASK lookup TABLE`, without a priority of its own.
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
    /// `ip route add local default dev lo table TABLE`: everything is for this machine. In IPv4
    /// with host scope.
    LocalDefault {
        /// Family.
        family: IpFamily,
        /// `RTA_TABLE`
        table: u32,
    },
}

/// - `::6` is the source of the proxy's connections to the application over IPv6; IPv4 has all of
///   127.0.0.0/8 on `lo`.
/// - Marked packets are looked up in a table of their own, where everything is local. The routes come before the
///   policy rules that lead to them: at no moment is a packet looked up in a table that has none.
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
    /// What it is, without the verb: `ip -4 rule fwmark 0x539 lookup 133`.
    #[must_use]
    pub fn object(&self) -> String {
        self.command("")
    }

    /// The command that would take it away.
    #[must_use]
    pub fn removal(&self) -> String {
        self.command("delete ")
    }

    /// With this verb, which has a blank behind it.
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
