//! Detects whether a namespace changed since it was compared.

use super::routing::{Held, WEIR};
use super::{AppliedRedirection, Sandbox, Visit, hindrance};
use crate::compile::PASSTHROUGH_V6;
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;
use weir_netfilter::nft::NftEngine;
use weir_netfilter::xtables::{XtOutline, XtSizes};
use weir_netlink::events::Events;
use weir_netlink::message;
use weir_netlink::route::{
    Address, LOOPBACK_IFINDEX, PolicyRule, RT_TABLE_DEFAULT, RT_TABLE_LOCAL, RT_TABLE_MAIN,
    RTNLGRP_IPV4_IFADDR, RTNLGRP_IPV4_ROUTE, RTNLGRP_IPV4_RULE, RTNLGRP_IPV6_IFADDR,
    RTNLGRP_IPV6_ROUTE, RTNLGRP_IPV6_RULE, RTNLGRP_LINK, Route, Routing, RuleAction,
};
use weir_netlink::{Error, Netns, Result};

/// Tables that the policy rules of every namespace look up.
const STANDARD: [u32; 3] = [RT_TABLE_DEFAULT, RT_TABLE_MAIN, RT_TABLE_LOCAL];
/// Maximum number of tables that policy rules select by mark, and of tables that other policy rules select. A redirection
/// has one; each costs a dump. A node may have more of the second kind, one per interface: the periodic comparison covers
/// their routes.
const TABLES: usize = 16;

/// Multicast groups of rtnetlink that report changes of a redirection's routing: links, addresses, policy rules and routes.
/// The kernel does not report routes that disappear with their link.
pub const ROUTING_GROUPS: [u32; 7] = [
    RTNLGRP_LINK,
    RTNLGRP_IPV4_RULE,
    RTNLGRP_IPV6_RULE,
    RTNLGRP_IPV4_ROUTE,
    RTNLGRP_IPV6_ROUTE,
    RTNLGRP_IPV4_IFADDR,
    RTNLGRP_IPV6_IFADDR,
];

/// A value that changes whenever nf_tables rules or the routing of a redirection change, or the sizes of legacy tables,
/// where foreign rules may take packets first. If two fingerprints of a namespace are equal, the result of a comparison
/// at the first is valid at the second, unless a rule of a legacy table was replaced by one of the same size.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fingerprint {
    /// `NFTA_GEN_ID`: every commit of any writer increments it.
    generation: u32,
    /// `None` if legacy tables are not read.
    legacy: Option<XtOutline>,
    /// Shared by all fingerprints that were read while the kernel reported no change.
    routing: Arc<RoutingState>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct RoutingState {
    rules: Vec<PolicyRule>,
    /// Routes of the tables that affect packets of a redirection, and routes of any table with weir's protocol number.
    routes: Vec<Route>,
    /// Addresses of every link: they determine which families are redirected.
    addresses: Vec<Address>,
    /// Its local routes of IPv4 stay while it is down.
    is_lo_up: bool,
}

/// Reads the fingerprint of one namespace repeatedly, from any thread: its sockets stay in the namespace and keep it
/// alive. Uses at most nine descriptors. Reads routing again only after the kernel reported a change or lost a report.
#[derive(Debug)]
pub struct FingerprintReader {
    nft: NftEngine,
    legacy: Option<XtSizes>,
    routing: Routing,
    changes: Events<message::Rtnetlink>,
    last: Option<Arc<RoutingState>>,
}

impl Sandbox {
    /// Creates a reader for repeated reads of the fingerprint.
    ///
    /// # Errors
    /// The namespace cannot be entered, or no descriptor is free.
    pub fn fingerprint_reader(&self) -> Result<FingerprintReader> {
        FingerprintReader::of(self.netns())
    }
}

impl Visit<'_> {
    /// Reads the fingerprint once.
    ///
    /// # Errors
    /// As [`FingerprintReader::read`]; or the addresses, which determine the desired state, have changed since the beginning
    /// of the visit.
    pub fn fingerprint(&self) -> Result<Fingerprint> {
        let generation = NftEngine::open()?.generation()?;
        let legacy = Some(XtSizes::open()?.read()?);
        let routing = RoutingState::read(&self.routing)?;
        // Ignores the passthrough address, which this visit may have added: it does not affect the desired state.
        let others = |a: &&Address| {
            a.index != LOOPBACK_IFINDEX || a.net.addr() != IpAddr::from(PASSTHROUGH_V6)
        };
        let (now, before) = (&routing.addresses, &self.addresses);
        if !now.iter().filter(others).eq(before.iter().filter(others)) {
            let why = "an address came or went meanwhile; it is looked at again";
            return Err(Error::exhausted("compare", "the addresses", why));
        }
        Ok(Fingerprint {
            generation,
            legacy,
            routing: Arc::new(routing),
        })
    }

    /// Returns the fingerprint of the state that [`Visit::apply_intent`] verified in this visit. `None` if legacy tables hold
    /// the rules, or if something has changed since the verification or cannot be read.
    #[must_use]
    pub fn fingerprint_of(&self, applied: &AppliedRedirection) -> Option<Fingerprint> {
        let of_rules = applied.generation?;
        let fingerprint = self.fingerprint().ok()?;
        // Routing has no generation, so compare the routing in the fingerprint with the desired one.
        let RoutingState {
            rules,
            routes,
            addresses,
            ..
        } = (*fingerprint.routing).clone();
        let held = Held::listed(self.scheme, addresses, rules, routes);
        let items = &applied.routing;
        let is_same = fingerprint.generation == of_rules
            && held.missing(items).is_empty()
            && held.stale(items).is_empty();
        is_same.then_some(fingerprint)
    }
}

impl FingerprintReader {
    /// Creates a reader for any namespace, including the host's.
    ///
    /// # Errors
    /// The namespace cannot be entered, or no descriptor is free.
    pub fn of(netns: &Netns) -> Result<Self> {
        netns.run(Self::open)?
    }

    /// Excludes legacy tables, for a namespace in which kube-proxy writes them all the time.
    #[must_use]
    pub fn without_legacy_tables(mut self) -> Self {
        self.legacy = None;
        self
    }

    /// Opens the sockets in the namespace of this thread.
    fn open() -> Result<Self> {
        Ok(Self {
            nft: NftEngine::open()?,
            legacy: Some(XtSizes::open()?),
            routing: Routing::open()?,
            changes: Events::open(&ROUTING_GROUPS)?,
            last: None,
        })
    }

    /// Reads the fingerprint: the generation of nf_tables (`NFT_MSG_GETGEN`), the sizes of legacy tables, policy rules,
    /// addresses and the few routes that concern a redirection. Cheaper than a comparison, and detects a change as early.
    ///
    /// # Errors
    /// The namespace cannot be read, or its policy rules lead to more than 16 tables by mark.
    pub fn read(&mut self) -> Result<Fingerprint> {
        // Read these first, so that the next read notices a change during the dumps.
        let generation = self.nft.generation()?;
        let legacy = self.legacy.as_mut().map(XtSizes::read).transpose()?;
        let has_changed = self.changes.discard()?;
        let routing = match self.last.take().filter(|_| !has_changed) {
            Some(last) => last,
            None => Arc::new(RoutingState::read(&self.routing)?),
        };
        self.last = Some(Arc::clone(&routing));
        Ok(Fingerprint {
            generation,
            legacy,
            routing,
        })
    }
}

impl RoutingState {
    fn read(routing: &Routing) -> Result<Self> {
        let rules = routing.rules()?;
        let (mut tables, before) = deciding(&rules);
        if tables.len() > TABLES {
            return Err(Error::exhausted(
                "compare",
                "the policy rules",
                "marks lead to more than 16 tables; delete unused rules",
            ));
        }
        tables.extend(before.into_iter().take(TABLES));
        let mut routes = routing.routes_by(WEIR)?;
        routes.retain(|route| !tables.contains(&route.table));
        for table in &tables {
            routes.extend(routing.routes(*table)?);
        }
        Ok(Self {
            rules,
            routes,
            addresses: routing.addresses()?,
            is_lo_up: routing.is_up("lo")?,
        })
    }
}

/// The tables that policy rules select by mark, and the tables that earlier rules may select for the same packets.
fn deciding(rules: &[PolicyRule]) -> (BTreeSet<u32>, BTreeSet<u32>) {
    let (mut by_mark, mut before) = (BTreeSet::new(), BTreeSet::new());
    let mut families = Vec::new();
    for rule in rules.iter().rev() {
        let is_other = !STANDARD.contains(&rule.table);
        if rule.fwmark.is_some() {
            families.push(rule.family);
            by_mark.extend(is_other.then_some(rule.table));
        } else if is_other
            && rule.action == RuleAction::Lookup
            && families.contains(&rule.family)
            && hindrance::may_select(rule)
        {
            before.insert(rule.table);
        }
    }
    (by_mark, before)
}
