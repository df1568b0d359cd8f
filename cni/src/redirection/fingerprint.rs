//! Detects whether a namespace changed since it was compared.

use super::routing::RTPROT_WEIR;
use super::{Sandbox, Visit};
use std::collections::BTreeSet;
use weir_netfilter::nft;
use weir_netlink::route::{
    Address, LOOPBACK_IFINDEX, PolicyRule, RT_TABLE_DEFAULT, RT_TABLE_LOCAL, RT_TABLE_MAIN, Route,
    RouteProtocol, Routing,
};
use weir_netlink::{Error, Result};

/// Tables that the policy rules of every namespace look up.
const STANDARD: [u32; 3] = [RT_TABLE_DEFAULT, RT_TABLE_MAIN, RT_TABLE_LOCAL];
/// Maximum number of tables that policy rules select by a mark. A redirection has one; each costs a dump.
const TABLES: usize = 16;

/// Changes whenever rules of nf_tables or routing of a redirection change. If two fingerprints of a namespace are
/// equal, the result of a comparison at the first is valid at the second. Legacy tables are not covered: they have
/// no generation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fingerprint {
    /// `NFTA_GEN_ID`: every commit of any writer increments it.
    generation: u32,
    rules: Vec<PolicyRule>,
    /// Routes of the tables that marks select, and those with weir's protocol number in any table.
    routes: Vec<Route>,
    /// Addresses of `lo`.
    addresses: Vec<Address>,
}

impl Sandbox {
    /// Reads the fingerprint: the generation of nf_tables (`NFT_MSG_GETGEN`), policy rules, addresses of `lo` and the
    /// few routes that concern a redirection. Cheaper than a comparison, and detects a change as soon.
    ///
    /// # Errors
    /// The namespace cannot be read, or its policy rules lead to more than 16 tables by mark.
    pub fn fingerprint(&self) -> Result<Fingerprint> {
        self.netns().run(read)?
    }
}

impl Visit<'_> {
    /// As [`Sandbox::fingerprint`].
    ///
    /// # Errors
    /// As [`Sandbox::fingerprint`].
    pub fn fingerprint(&self) -> Result<Fingerprint> {
        read()
    }
}

/// Reads the fingerprint of the namespace of this thread.
fn read() -> Result<Fingerprint> {
    // Read first, so that a change during the dumps is noticed the next time.
    let generation = nft::NftEngine::open()?.generation()?;
    let routing = Routing::open()?;
    let rules = routing.rules()?;
    let by_mark = rules.iter().filter(|rule| rule.fwmark.is_some());
    let tables: BTreeSet<u32> = by_mark.map(|rule| rule.table).collect();
    let mut routes = routing.routes_by(RouteProtocol::Other(RTPROT_WEIR))?;
    if tables.len() > TABLES {
        return Err(Error::exhausted(
            "compare",
            "the policy rules",
            "marks lead to more than 16 tables; delete unused rules",
        ));
    }
    for table in tables.iter().filter(|table| !STANDARD.contains(table)) {
        routes.extend(routing.routes(*table)?);
    }
    let mut addresses = routing.addresses()?;
    addresses.retain(|address| address.index == LOOPBACK_IFINDEX);
    Ok(Fingerprint {
        generation,
        rules,
        routes,
        addresses,
    })
}
