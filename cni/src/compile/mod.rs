//! From an [`Intent`] to rules: plain data, no kernel.
//!
//! The two engines have different rules and not two spellings of one: see [`weir_netfilter::xtables`]. What
//! both share is worked out in `family`; everything else is written twice.
//!
//! # What happens to a packet
//!
//! One line per group of rules, in the order of the chains. Beside the code stands one line per rule.
//!
//! - Packets from excluded interfaces, and to them, are left alone.
//! - Inbound: packets to the tunnel port and to excluded ports are left; other captured ports go to the
//!   proxy's inbound listener. Packets of virtual machines count as outbound.
//! - Outbound: excluded ports come first and cover everything, UDP, DNS and the proxy included. Then
//!   the proxy's own packets: those to the pod itself go to its inbound listener, the rest is left, or
//!   it would loop. Packets of groups outside the capture are left. DNS goes to the proxy's DNS
//!   listener. Packets to loopback and to excluded networks are left, included ports and networks go to
//!   the proxy's outbound listener.
//! - Transparent inbound: the proxy's connections carry a mark, their replies get it back from the
//!   connection and are routed to `lo`; a second mark tells the proxy's packets to its own pod.
//! - DNS: the way from the proxy to the server is conntrack zone 1, from the application to the proxy
//!   zone 2, because both may have the same addresses and ports.

mod family;
mod nft;
mod routing;
mod xtables;

pub use routing::{IpFamily, RoutingItem};

use crate::config::Intent;
use std::borrow::Cow;
use std::fmt;
use weir_netfilter as engines;

/// Who writes the rules into the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Engine {
    /// nf_tables with `inet` tables of our own. Since 5.2, which gave `inet` NAT and route chains.
    Nft,
    /// The legacy tables of `iptables-legacy` and `ip6tables-legacy`.
    Xtables,
}

/// What the kernel shall hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Compiled {
    /// Tables, chains and rules.
    pub rules: Rules,
    /// Addresses, policy rules and routes, to be added in this order after the rules.
    pub routing: Vec<RoutingItem>,
    /// What they were made of.
    intent: Intent,
}

impl Compiled {
    /// The same intent in legacy tables, as upstream's installer writes it there by default.
    pub(crate) fn in_legacy_tables(&self) -> Cow<'_, engines::xtables::Ruleset> {
        match &self.rules {
            Rules::Xtables(rules) => Cow::Borrowed(rules),
            Rules::Nft(_) => Cow::Owned(xtables::ruleset(&self.intent)),
        }
    }
}

/// Rules of one engine. Tables and chains are there only when they hold a rule or are jumped to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Rules {
    /// Our own tables as a whole.
    Nft(engines::nft::Ruleset),
    /// Our own chains as a whole; of built-in chains the rules that are to be there.
    Xtables(engines::xtables::Ruleset),
}

/// Compiles for one engine. Always succeeds: whatever could be wrong was found when the intent was
/// parsed.
#[must_use]
pub fn compile(intent: &Intent, engine: Engine) -> Compiled {
    let rules = match engine {
        Engine::Nft => Rules::Nft(nft::ruleset(intent)),
        Engine::Xtables => Rules::Xtables(xtables::ruleset(intent)),
    };
    Compiled {
        rules,
        routing: routing::routing(intent),
        intent: intent.clone(),
    }
}

/// The mark of the proxy's packets to its own pod, when inbound traffic is proxied transparently.
const OUTBOUND_MARK: u32 = 1338;
/// Where the proxy listens for DNS.
const DNS_LISTENER_PORT: u16 = 15053;
/// Where name servers listen.
const DNS_PORT: u16 = 53;
/// Conntrack zone between the proxy and its name server.
const ZONE_UPSTREAM: u16 = 1;
/// Conntrack zone between the application and the proxy.
const ZONE_APPLICATION: u16 = 2;

impl fmt::Display for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Nft => "nft",
            Self::Xtables => "xtables",
        })
    }
}

/// As the engine's own tool lists them.
impl fmt::Display for Rules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nft(ruleset) => ruleset.fmt(f),
            Self::Xtables(ruleset) => ruleset.fmt(f),
        }
    }
}

/// The rules, then one line for each address, policy rule and route.
impl fmt::Display for Compiled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.rules.fmt(f)?;
        self.routing
            .iter()
            .try_for_each(|item| writeln!(f, "{item}"))
    }
}

#[cfg(test)]
mod tests;
