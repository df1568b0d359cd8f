//! The host's part: probes of the kubelet reach pods of ambient mode in plain text.
//!
//! A probe has the source address of the host, as traffic of kube-proxy has. So packets of the host's own sockets to pods
//! of ambient mode get a link-local source address of their own, which the rules of the pod let through. The pods are a
//! set of addresses, each with the UID of its pod as comment: an address that another pod has now is not removed with the
//! pod that had it before.
//!
//! Two forms, as Istio's agent has them (what it wrote through `iptables-nft` is replaced by one of them): legacy tables
//! with sets of ipset, and nf_tables with sets of their own, where the sender is known by its user: that of the kubelet as upstream (`NATIVE_NFTABLES`), or whoever
//! has a socket, as in legacy tables. Everything is desired state: [`apply`] writes what differs. The tables have no owner (`NFT_TABLE_F_OWNER`): with one they would go with the agent's socket, and probes would fail until the
//! next agent runs.

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
use std::sync::Arc;
use weir_cni::compile::Engine;
use weir_cni::of_node::{if_supported, sets_among};
use weir_netfilter::ipset::IpsetEngine;
use weir_netfilter::nft::NftEngine;
use weir_netlink::Result;

/// The sets of addresses, by family.
pub const SETS: [&str; 2] = ["istio-inpod-probes-v4", "istio-inpod-probes-v6"];
/// Whoever has a socket on the host, as for `-m owner --socket-exists` in legacy tables. `(uid_t) -1` is nobody.
pub const EVERY_USER: RangeInclusive<u32> = 0..=u32::MAX - 1;

/// What the host should have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Host {
    /// Settings of the node.
    pub config: Config,
    /// Addresses of pods, each with the UID of its pod. Those of a family that is not captured are left out.
    pub addresses: BTreeMap<IpAddr, Arc<str>>,
    /// Users whose connections to pods are taken for probes: that of the kubelet, or [`EVERY_USER`]. Needed for nf_tables.
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

/// Which form the network namespace of this thread has, or should get. What is there already decides, so that a restart
/// changes nothing; then what the settings say; then legacy tables if any are in use here. Sets of ipset whose rules are those
/// of `iptables-nft` are no reason to begin with legacy tables, which this kernel may not have.
///
/// # Errors
/// Neither can be read.
pub fn choose(native_nftables: bool) -> Result<Engine> {
    let in_nft = NftEngine::open().and_then(|mut engine| engine.tables());
    if in_nft.as_ref().is_ok_and(|tables| tables.contains(&id())) {
        return Ok(Engine::Nft);
    }
    let sets = IpsetEngine::open().and_then(|mut engine| engine.names());
    let has_sets = sets.is_ok_and(|names| names.iter().any(|n| SETS.contains(&n.as_str())));
    let used = |family: &str| std::fs::read(format!("/proc/thread-self/net/{family}_tables_names"));
    let is_used = ["ip", "ip6"]
        .iter()
        .any(|f| used(f).is_ok_and(|names| !names.is_empty()));
    let by_tool = || NftEngine::open().and_then(|mut engine| leftovers::are_there(&mut engine));
    if has_sets && (is_used || in_nft.is_err() || !by_tool().unwrap_or(false)) {
        return Ok(Engine::Xtables);
    }
    match in_nft {
        Ok(_) if native_nftables || !is_used => Ok(Engine::Nft),
        Ok(_) => Ok(Engine::Xtables),
        Err(_) if used("ip").is_ok() => Ok(Engine::Xtables),
        Err(e) => Err(e),
    }
}

/// Makes the network namespace of this thread as it should be; what an earlier run left in the other form goes last. Returns
/// what was changed, a line each.
///
/// # Errors
/// What failed; of legacy tables and sets the rest may be in force.
pub fn apply(host: &Host, engine: Engine) -> Result<Vec<String>> {
    let mut changes = update(host, engine, &mut None)?;
    changes.extend(remove_other(engine)?);
    Ok(changes)
}

/// As [`apply`], for a node with many pods of which one changes: what was verified last, and that no other writer has
/// committed anything since, leaves only the addresses that differ to be written and read back. Legacy tables and sets of
/// ipset have no generation, and are compared as a whole. What is there in the other form is for [`remove_other`].
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

/// Removes what an earlier run wrote in another form than this. Beside the present one it does no harm: both give probes the
/// same address. Returns what was removed, a line each.
///
/// # Errors
/// What may be there still.
pub fn remove_other(engine: Engine) -> Result<Vec<String>> {
    match engine {
        Engine::Nft => legacy::remove(true),
        Engine::Xtables => nftables::remove(),
    }
}

/// The addresses that are there now, each with its comment, in the network namespace of this thread; with nf_tables also those
/// of sets of ipset that they take the place of.
///
/// # Errors
/// They cannot be read.
pub fn addresses(engine: Engine) -> Result<BTreeMap<IpAddr, Arc<str>>> {
    if engine == Engine::Xtables {
        return in_sets();
    }
    // A kernel without ipset has none.
    let mut found = match sets_among(&SETS).is_ok_and(|names| !names.is_empty()) {
        true => in_sets().unwrap_or_default(),
        false => BTreeMap::new(),
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

/// Whether any of it is in the network namespace of this thread, in whichever form that is written here.
///
/// # Errors
/// It cannot be read.
pub fn is_present() -> Result<bool> {
    let in_nft = NftEngine::open().and_then(|mut engine| {
        let has_table = engine.tables()?.contains(&id());
        Ok((has_table, leftovers::are_there(&mut engine)?))
    });
    let (has_table, has_others) = if_supported(in_nft)?;
    // Rules in legacy tables need the sets, and so do those of Istio's agent.
    Ok(has_table || (!has_others && !sets_among(&SETS)?.is_empty()))
}

/// Removes all of it from the network namespace of this thread, in whichever form it is there. Returns what was removed.
///
/// # Errors
/// What may be there still.
pub fn remove() -> Result<Vec<String>> {
    remove_all(true)
}

/// The same, but what only Istio's agent writes, through `iptables-nft`: it may be in use.
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
    // One form that cannot be removed keeps none of the others.
    let (mut removed, mut failed) = (Vec::new(), None);
    for part in parts {
        match part() {
            Ok(of_part) => removed.extend(of_part),
            Err(e) => _ = failed.get_or_insert(e),
        }
    }
    failed.map_or(Ok(removed), Err)
}
