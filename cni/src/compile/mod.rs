//! Compiles an [`Intent`] to rules. The result is plain data; the kernel is not accessed.
//!
//! The two engines have different rules, not two spellings of the same ones: see [`weir_netfilter::xtables`].
//! `family` computes what both share; everything else exists once per engine.
//!
//! Upstream's rules for nf_tables treat a few packets differently from those for legacy tables: see `Semantics` in
//! `nft`. [`compile`] is for a configured engine and generates upstream's rules for it. [`compile_chosen`] is for an
//! engine that was chosen automatically: for either engine its rules have the effect of those for legacy tables.
//!
//! # What happens to a packet
//!
//! One line per group of rules, in the order of the chains. The code documents each rule in one line.
//! *Returns* is the verdict: the packet is not redirected.
//!
//! - Packets from and to excluded interfaces return.
//! - Inbound: packets to the tunnel port and to excluded ports return; other captured ports go to the
//!   proxy's inbound listener. Packets of virtual machines count as outbound.
//! - Outbound: excluded ports come first and cover everything, including UDP, DNS and the proxy. Then
//!   the proxy's own packets: those to the pod itself go to its inbound listener, the rest returns, or
//!   it would loop. Packets of groups that are not captured return. DNS goes to the proxy's DNS
//!   listener. Packets to loopback and to excluded networks return, included ports and networks go to
//!   the proxy's outbound listener.
//! - Transparent inbound: the proxy's connections carry a mark; their replies get it back from
//!   conntrack and are routed to `lo`. A second mark identifies the proxy's packets to its own pod.
//! - DNS: packets between the proxy and the server are in conntrack zone 1, those between the application
//!   and the proxy in zone 2, because both may have the same addresses and ports.

mod family;
mod nft;
mod routing;
mod xtables;

pub(crate) use family::PASSTHROUGH_V6;
pub use routing::RoutingItem;

use crate::config::Intent;
use crate::redirection::{SIDECAR, Scheme};
use std::borrow::Cow;
use std::fmt;
use weir_netfilter as engines;

/// The kernel interface for which rules are compiled. Exhaustive: code that does not know an engine must not compile, because
/// rules of an ignored engine would stay in force.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Engine {
    /// nf_tables with owned `inet` tables. Since 5.2, which added NAT and route chains to `inet`.
    Nft,
    /// The legacy tables of `iptables-legacy` and `ip6tables-legacy`.
    Xtables,
}

/// The desired state of the kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Compiled {
    /// Tables, chains and rules.
    pub rules: Rules,
    /// Addresses, policy rules and routes, in the order in which they are added.
    pub routing: Vec<RoutingItem>,
    scheme: &'static Scheme,
    origin: Origin,
    /// The rules for nf_tables return IPv6 packets first.
    leaves_ipv6_alone: bool,
}

/// The source of the rules.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Origin {
    Intent(Box<Intent>),
    /// The same redirection as rules for legacy tables.
    Legacy(engines::xtables::Ruleset),
}

impl Compiled {
    /// Creates the desired state of a redirection other than that to a sidecar. `legacy` is the same redirection in legacy
    /// tables, as upstream writes it: rules of built-in chains that equal these count as upstream's.
    #[must_use]
    pub fn new(
        scheme: &'static Scheme,
        mut rules: Rules,
        routing: Vec<RoutingItem>,
        legacy: engines::xtables::Ruleset,
    ) -> Self {
        if let Rules::Nft(ruleset) = &mut rules {
            for table in &mut ruleset.tables {
                table.version = scheme.version;
            }
        }
        Self {
            rules,
            routing,
            scheme,
            origin: Origin::Legacy(legacy),
            leaves_ipv6_alone: false,
        }
    }

    /// Declares that the rules for nf_tables return IPv6 packets first, so foreign rules for IPv6 are no hindrance.
    #[must_use]
    pub fn leaving_ipv6_alone(self) -> Self {
        Self {
            leaves_ipv6_alone: matches!(self.rules, Rules::Nft(_)),
            ..self
        }
    }

    /// Returns the kind of redirection.
    #[must_use]
    pub fn scheme(&self) -> &'static Scheme {
        self.scheme
    }

    /// True if the rules for nf_tables return IPv6 packets first.
    pub(crate) fn leaves_ipv6_alone(&self) -> bool {
        self.leaves_ipv6_alone
    }

    /// True if packets of some interfaces are not redirected.
    pub(crate) fn leaves_interfaces_alone(&self) -> bool {
        matches!(&self.origin, Origin::Intent(intent) if !intent.exclude_interfaces.is_empty())
    }

    /// Returns the same redirection in legacy tables, as upstream's installer writes it by default.
    pub(crate) fn in_legacy_tables(&self) -> Cow<'_, engines::xtables::Ruleset> {
        match (&self.rules, &self.origin) {
            (Rules::Xtables(rules), _) | (_, Origin::Legacy(rules)) => Cow::Borrowed(rules),
            (Rules::Nft(_), Origin::Intent(intent)) => Cow::Owned(xtables::ruleset(intent)),
        }
    }
}

/// Rules of one engine; exhaustive like [`Engine`]. Tables and chains exist only when they hold a rule or are jumped to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Rules {
    /// Owned tables, complete.
    Nft(engines::nft::Ruleset),
    /// Owned chains, complete; for built-in chains only the desired rules.
    Xtables(engines::xtables::Ruleset),
}

/// Compiles for a configured engine. Never fails: parsing the intent found all input errors.
#[must_use]
pub fn compile(intent: &Intent, engine: Engine) -> Compiled {
    with(intent, engine, nft::Semantics::Nft)
}

/// Compiles for an engine that was chosen automatically: rules for nf_tables have the same effect on every packet as the
/// rules for legacy tables.
#[must_use]
pub fn compile_chosen(intent: &Intent, engine: Engine) -> Compiled {
    with(intent, engine, nft::Semantics::Xtables)
}

fn with(intent: &Intent, engine: Engine, semantics: nft::Semantics) -> Compiled {
    let rules = match engine {
        Engine::Nft => Rules::Nft(nft::ruleset(intent, semantics)),
        Engine::Xtables => Rules::Xtables(xtables::ruleset(intent)),
    };
    Compiled {
        rules,
        routing: routing::routing(intent),
        scheme: &SIDECAR,
        origin: Origin::Intent(Box::new(intent.clone())),
        leaves_ipv6_alone: engine == Engine::Nft && semantics.leaves_ipv6_alone(intent),
    }
}

/// The mark of the proxy's packets to its own pod, set when inbound traffic is proxied transparently.
const OUTBOUND_MARK: u32 = 1338;
/// Port of the proxy's DNS listener.
const DNS_LISTENER_PORT: u16 = 15053;
/// Port of name servers.
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

/// Prints the rules as the engine's own tool lists them.
impl fmt::Display for Rules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nft(ruleset) => ruleset.fmt(f),
            Self::Xtables(ruleset) => ruleset.fmt(f),
        }
    }
}

/// Prints the rules, then one line per address, policy rule and route.
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
