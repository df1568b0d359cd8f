//! Rules of the host's network namespace: probes of the kubelet reach pods of ambient mode in plain text.
//!
//! A probe has the source address of the host, as traffic of kube-proxy has. So packets from the host's own sockets to pods
//! of ambient mode get a dedicated link-local source address, which the rules of the pod accept. The pods are a set of
//! addresses, each with the UID of its pod as comment: if an address was reused by another pod, deleting the first pod does
//! not remove it.
//!
//! There are two forms, as in Istio's agent (rules that it wrote through `iptables-nft` are replaced by one of them):
//! - legacy tables with sets of ipset;
//! - nf_tables with its own sets. They match the sender by user: that of the kubelet as upstream (`NATIVE_NFTABLES`), or every
//!   user with a socket, as in legacy tables.
//!
//! Everything is desired state: [`apply`] writes the differences. The tables have no owner (`NFT_TABLE_F_OWNER`): otherwise
//! the kernel would delete them with the agent's socket, and probes would fail until the next agent runs.

mod ahead;
mod kubelet;
mod leftovers;
mod legacy;
mod nftables;
#[cfg(test)]
mod tests;

pub use ahead::{Ahead, ahead};
pub use kubelet::kubelet;
pub use leftovers::remove_of_iptables_nft;
pub use legacy::{legacy, sets, to_front};
pub use nftables::{InForce, ruleset};

use crate::config::Config;
use legacy::by_legacy;
use nftables::{by_nft, id};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::path::Path;
use std::sync::Arc;
use weir_cni::compile::Engine;
use weir_cni::redirection::has_legacy_tables;
use weir_netfilter::ipset::IpsetEngine;
use weir_netfilter::nft::NftEngine;
use weir_netlink::Result;
use weir_rules::of_node::{if_supported, sets_among};

/// The sets of addresses, by family.
pub const SETS: [&str; 2] = ["istio-inpod-probes-v4", "istio-inpod-probes-v6"];
/// Every user with a socket on the host, as `-m owner --socket-exists` in legacy tables. `(uid_t) -1` is not a user.
pub const EVERY_USER: RangeInclusive<u32> = 0..=u32::MAX - 1;

/// Desired state of the host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Host {
    /// Settings of the node.
    pub config: Config,
    /// Addresses of pods, each with the UID of its pod. Addresses of a family that is not captured are ignored.
    pub addresses: BTreeMap<IpAddr, Arc<str>>,
    /// Users whose connections to pods count as probes: that of the kubelet, or [`EVERY_USER`]. Required for nf_tables.
    pub users: Option<RangeInclusive<u32>>,
}

impl Host {
    fn families(&self) -> &'static [bool] {
        match self.config.enable_ipv6 {
            true => &[false, true],
            false => &[false],
        }
    }

    fn probe(&self, is_v6: bool) -> IpAddr {
        match is_v6 {
            true => self.config.host_probe_v6_snat_address.into(),
            false => self.config.host_probe_snat_address.into(),
        }
    }

    fn addresses(&self, is_v6: bool) -> impl Iterator<Item = (&IpAddr, &Arc<str>)> {
        let of_family = move |(address, _): &(&IpAddr, _)| address.is_ipv6() == is_v6;
        self.addresses.iter().filter(of_family)
    }
}

fn set_name(is_v6: bool) -> &'static str {
    let [v4, v6] = SETS;
    if is_v6 { v6 } else { v4 }
}

/// Chooses the form for the network namespace of this thread. An existing form is kept, so that a restart changes nothing;
/// then the setting decides; then legacy tables are chosen if any are in use here. Sets of ipset used by rules of
/// `iptables-nft` do not count as an existing form: this kernel may have no legacy tables.
///
/// # Errors
/// A form cannot be read, and may exist; the kernel has neither.
pub fn choose(native_nftables: bool) -> Result<Engine> {
    let in_nft = NftEngine::open().and_then(|mut engine| engine.tables());
    // A kernel without nf_tables has no table there.
    if if_supported(in_nft.clone())?.contains(&id()) {
        return Ok(Engine::Nft);
    }
    let (has_sets, is_used) = (!sets_among(&SETS)?.is_empty(), has_legacy_tables()?);
    if has_sets && (is_used || !leftovers::are_there_here()?) {
        return Ok(Engine::Xtables);
    }
    match in_nft {
        Ok(_) if native_nftables || !is_used => Ok(Engine::Nft),
        Ok(_) => Ok(Engine::Xtables),
        Err(_) if Path::new("/proc/thread-self/net/ip_tables_names").exists() => {
            Ok(Engine::Xtables)
        }
        Err(e) => Err(e),
    }
}

/// Brings the network namespace of this thread in sync, then removes the other form if an earlier run left it. Returns one
/// line per change.
///
/// # Errors
/// The operation that failed. Legacy tables and sets may be partly in force.
pub fn apply(host: &Host, engine: Engine) -> Result<Vec<String>> {
    let mut changes = update(host, engine, &mut None)?;
    changes.extend(remove_other(engine)?);
    Ok(changes)
}

/// Like [`apply`], but cheap for a node with many pods if one changes: if no other writer has committed since the last
/// verified state, only the addresses that differ are written and read back. Legacy tables and sets of ipset have no
/// generation and are compared as a whole. The other form is not removed: see [`remove_other`].
///
/// # Errors
/// As [`apply`].
pub fn update(host: &Host, engine: Engine, in_force: &mut Option<InForce>) -> Result<Vec<String>> {
    let known = in_force.take();
    match engine {
        Engine::Nft => by_nft(host, known, in_force),
        Engine::Xtables => by_legacy(host),
    }
}

/// Removes what an earlier run wrote in another form than `engine`. Both forms together do no harm: they give probes the
/// same address. Returns one line per change.
///
/// # Errors
/// Rules or sets may remain.
pub fn remove_other(engine: Engine) -> Result<Vec<String>> {
    match engine {
        Engine::Nft => legacy::remove(true),
        Engine::Xtables => nftables::remove(),
    }
}

/// Reads the current addresses in the network namespace of this thread, each with its comment. With nf_tables, addresses in
/// the sets of ipset that it replaces are included.
///
/// # Errors
/// The sets cannot be read.
pub fn addresses(engine: Engine) -> Result<BTreeMap<IpAddr, Arc<str>>> {
    if engine == Engine::Xtables {
        return in_sets();
    }
    // A kernel without ipset has none.
    let mut found = match sets_among(&SETS)?.is_empty() {
        true => BTreeMap::new(),
        false => in_sets()?,
    };
    let mut engine = NftEngine::open()?;
    if !engine.tables()?.contains(&id()) {
        return Ok(found);
    }
    let read = engine.read_tables(&[id()])?;
    let tables = read.ruleset.tables.iter();
    for element in tables.flat_map(|t| &t.sets).flat_map(|s| &s.elements) {
        if let Some(address) = address(element.key.first().as_bytes()) {
            let comment = element.extra().comment.as_deref();
            found.insert(address, Arc::from(comment.unwrap_or_default()));
        }
    }
    Ok(found)
}

fn in_sets() -> Result<BTreeMap<IpAddr, Arc<str>>> {
    let mut found = BTreeMap::new();
    let mut engine = IpsetEngine::open()?;
    for name in engine.names()? {
        if !SETS.contains(&name.as_str()) {
            continue;
        }
        for listed in engine.list(Some(&name))? {
            for entry in &listed.set.entries {
                if let Some(address) = entry.key.address() {
                    let comment = entry.comment.as_deref().unwrap_or_default();
                    found.insert(address, Arc::from(comment));
                }
            }
        }
    }
    Ok(found)
}

fn address(bytes: &[u8]) -> Option<IpAddr> {
    let v4 = <[u8; 4]>::try_from(bytes).map(IpAddr::from);
    v4.or_else(|_| <[u8; 16]>::try_from(bytes).map(IpAddr::from))
        .ok()
}

/// Whether the network namespace of this thread has host rules in any form that this module writes.
///
/// # Errors
/// The rules cannot be read.
pub fn is_present() -> Result<bool> {
    let in_nft = NftEngine::open().and_then(|mut engine| {
        let has_table = engine.tables()?.contains(&id());
        Ok((has_table, leftovers::are_there(&mut engine)?))
    });
    let (has_table, has_others) = if_supported(in_nft)?;
    // Rules in legacy tables need the sets, but so do those of Istio's agent.
    Ok(has_table || (!has_others && !sets_among(&SETS)?.is_empty()))
}

/// Removes host rules and sets in every form from the network namespace of this thread. Returns one line per change.
///
/// # Errors
/// Rules or sets may remain.
pub fn remove() -> Result<Vec<String>> {
    remove_all(true)
}

/// Like [`remove`], but keeps rules that only Istio's agent writes, through `iptables-nft`: they may be in use.
///
/// # Errors
/// As [`remove`].
pub fn remove_own() -> Result<Vec<String>> {
    remove_all(false)
}

fn remove_all(with_iptables_nft: bool) -> Result<Vec<String>> {
    let of_iptables_nft = || match with_iptables_nft {
        true => remove_of_iptables_nft(),
        false => Ok(Vec::new()),
    };
    let of_legacy = || legacy::remove(with_iptables_nft);
    let parts: [&dyn Fn() -> Result<Vec<String>>; 3] =
        [&nftables::remove, &of_legacy, &of_iptables_nft];
    // If one form cannot be removed, the others still are.
    let (mut removed, mut failed) = (Vec::new(), None);
    for part in parts {
        match part() {
            Ok(of_part) => removed.extend(of_part),
            Err(e) => _ = failed.get_or_insert(e),
        }
    }
    failed.map_or(Ok(removed), Err)
}
