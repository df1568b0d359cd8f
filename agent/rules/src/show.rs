//! All rules and sets of a network namespace, owned and foreign, for output. Nothing is created and no module is loaded.

use crate::of_node::read_sets;
use weir_cni::redirection::has_legacy_tables;
use weir_netfilter::ipset::{Header, IpsetEngine, Set};
use weir_netfilter::nft::{NftEngine, Ruleset};
use weir_netfilter::xtables::{self, XtEngine, XtListing};
use weir_netlink::{Netns, Result};

/// Reads all nf_tables objects.
///
/// # Errors
/// The namespace cannot be read.
pub fn nft(netns: &Netns) -> Result<Ruleset> {
    netns.run(|| Ok(NftEngine::open()?.read()?.ruleset))?
}

/// Reads the existing legacy tables.
///
/// # Errors
/// The namespace cannot be read.
pub fn legacy(netns: &Netns) -> Result<xtables::Ruleset> {
    netns.run(legacy_here)?
}

/// Like [`legacy`], in the namespace of this thread.
pub(crate) fn legacy_here() -> Result<xtables::Ruleset> {
    match has_legacy_tables()? {
        true => XtEngine::open()?.ruleset(),
        false => Ok(xtables::Ruleset::default()),
    }
}

/// Reads the legacy tables for output as text (`iptables-save` and `ip6tables-save`); `None` if the namespace has none.
/// With many rules this takes less time and memory than [`legacy`].
///
/// # Errors
/// As [`legacy`].
pub fn legacy_text(netns: &Netns) -> Result<Option<XtListing>> {
    netns.run(|| match has_legacy_tables()? {
        true => XtEngine::open()?.listing().map(Some),
        false => Ok(None),
    })?
}

/// Reads the sets of ipset (`ipset list`); empty if the kernel has no ipset or has not loaded it.
///
/// # Errors
/// The sets cannot be read.
pub fn sets(netns: &Netns) -> Result<Vec<Set>> {
    let sets = netns.run(|| read_sets(|e| e.list(None)))??;
    Ok(sets.into_iter().map(|l| l.set).collect())
}

/// Reads the sets as text (`ipset save`), which takes less memory than the entries of a large set.
///
/// # Errors
/// As [`sets`].
pub fn sets_text(netns: &Netns) -> Result<Vec<u8>> {
    netns.run(|| read_sets(IpsetEngine::text))?
}

/// Reads the sets without their entries (`ipset list -terse`).
///
/// # Errors
/// As [`sets`].
pub fn set_headers(netns: &Netns) -> Result<Vec<Header>> {
    let sets = netns.run(|| read_sets(|e| e.headers(None)))??;
    Ok(sets.into_iter().map(|l| l.set.header).collect())
}
