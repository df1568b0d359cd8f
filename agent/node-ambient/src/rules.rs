//! Rules and sets of one namespace, by either engine, and the previous values of sysctls stored in them.

use crate::bridge::PORTS;
use crate::nft::{HOST_TABLE, LINKS, MEMORY, PROXY_TABLE, SET};
use crate::node::Node;
use crate::rule_change::RuleChange;
use crate::{nft, xtables};
use std::collections::{BTreeMap, BTreeSet};
use weir_cni::compile::Engine;
use weir_cni::redirection::has_legacy_tables;
use weir_netfilter::ipset::{IpsetEngine, IpsetOp, Set};
use weir_netfilter::nft::{Data, ElementKey, NftEngine, Ruleset, TableFamily, TableId};
use weir_netfilter::xtables::XtFamily;
use weir_netlink::route::{Link, LinkKind};
use weir_netlink::{Netns, Result};
use weir_rules::of_node::{if_supported, legacy_tables, sets_among};

/// Maximum number of sysctls with a stored value: one per pod and a few more.
const MAX_MEMORY: usize = 8192;

/// The owner of a namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The node's.
    Host,
    /// The proxy's.
    Proxy,
}

fn tables() -> Vec<TableId> {
    let tables = [
        (TableFamily::Inet, HOST_TABLE),
        (TableFamily::Inet, PROXY_TABLE),
        (TableFamily::Bridge, HOST_TABLE),
    ];
    tables
        .map(|(family, name)| (family, name.to_owned()))
        .to_vec()
}

fn set_names() -> [String; 2] {
    [SET.to_owned(), format!("{SET}-v6")]
}

/// Returns the existing sets of this crate.
fn sets() -> Result<Vec<String>> {
    sets_among(&set_names().each_ref().map(String::as_str))
}

/// True if rules of this engine are in the network namespace of this thread.
fn is_there(engine: Engine) -> Result<bool> {
    match engine {
        Engine::Nft => {
            let found = NftEngine::open().and_then(|mut engine| engine.tables());
            let found = if_supported(found)?;
            Ok(tables().iter().any(|id| found.contains(id)))
        }
        Engine::Xtables => {
            Ok(has_legacy_tables()? && legacy_tables()?.holds(&xtables::ownership())?)
        }
    }
}

/// Returns the engine whose rules are in the network namespace of this thread.
///
/// # Errors
/// The rules cannot be read.
pub fn present() -> Result<Option<Engine>> {
    for engine in [Engine::Nft, Engine::Xtables] {
        if is_there(engine)? {
            return Ok(Some(engine));
        }
    }
    Ok(None)
}

fn other(engine: Engine) -> Engine {
    match engine {
        Engine::Nft => Engine::Xtables,
        Engine::Xtables => Engine::Nft,
    }
}

/// Chooses the engine: that of existing rules, else nf_tables if the kernel supports everything that these rules need. This is
/// tried in a new network namespace, so that nothing changes in the current one.
///
/// # Errors
/// The rules cannot be read, or the trial failed for another reason than missing support.
pub fn choose(node: &Node, side: Side) -> Result<Engine> {
    if let Some(engine) = present()? {
        return Ok(engine);
    }
    let Desired::Nft(rules) = desired(node, side, Engine::Nft, &BTreeMap::new()) else {
        return Ok(Engine::Xtables);
    };
    let tried = Netns::create()?.run(|| NftEngine::open()?.apply(&rules, &tables()))?;
    match tried {
        Ok(_) => Ok(Engine::Nft),
        Err(e) if e.is_unsupported() => Ok(Engine::Xtables),
        // The trial namespace is gone, so nothing is in force.
        Err(e) => Err(e.with_in_force(weir_netlink::InForce::No)),
    }
}

/// Returns the previous values of sysctls stored in the rules of this namespace.
///
/// # Errors
/// The rules cannot be read.
pub fn memory() -> Result<BTreeMap<String, String>> {
    let mut texts: Vec<String> = Vec::new();
    // Read both: during a change of engine, rules of both exist.
    if is_there(Engine::Nft)? {
        let read = NftEngine::open()?.read_tables(&tables())?;
        let found = read.ruleset.tables.iter().filter_map(|t| t.chain(MEMORY));
        let rules = found.flat_map(|c| &c.rules);
        texts.extend(rules.filter_map(|r| r.comment.clone()));
    }
    if is_there(Engine::Xtables)? {
        // Foreign tables may be large, so read only `mangle`.
        let mut legacy = legacy_tables()?;
        let mut names = legacy.names(XtFamily::Ip)?.into_iter();
        let table = names.find(|name| name == "mangle");
        let table = table.map(|name| (XtFamily::Ip, name));
        let rules = legacy.read_tables(table.as_slice())?.ruleset;
        texts.extend(xtables::memory(&rules).into_iter().map(str::to_owned));
    }
    let pairs = texts.iter().filter_map(|text| text.split_once('='));
    let pairs = pairs.filter(|(key, value)| is_usual(key) && value.parse::<i32>().is_ok());
    let pairs = pairs.map(|(key, value)| (key.to_owned(), value.to_owned()));
    Ok(pairs.take(MAX_MEMORY).collect())
}

/// Returns the names of those links at which the rules in the network namespace of this thread capture pods. Legacy tables do not
/// list them: then those whose sysctls were changed.
pub(crate) fn captured_at(links: &[Link]) -> Result<BTreeSet<String>> {
    let read = match is_there(Engine::Nft)? {
        true => NftEngine::open()?.read_tables(&tables())?.ruleset,
        false => Ruleset::default(),
    };
    let sets = read.tables.iter().flat_map(|table| &table.sets);
    let sets = sets.filter(|set| set.name == LINKS || set.name.starts_with(PORTS));
    let listed: Vec<&ElementKey> = sets.flat_map(|set| &set.elements).map(|e| &e.key).collect();
    let memory = memory()?;
    let is_captured = |link: &&Link| {
        let key = crate::objects::rp_filter(&link.name).key;
        let is_pair = matches!(link.kind, Some(LinkKind::Veth(_) | LinkKind::Netkit(_)));
        let is_listed = || listed.contains(&&ElementKey::Value(Data::ifname(&link.name)));
        is_pair && (memory.contains_key(&key) || is_listed())
    };
    let captured = links.iter().filter(is_captured);
    Ok(captured.map(|link| link.name.clone()).collect())
}

/// True for the sysctls of one interface that this crate changes. The key is used as a path, so nothing else is accepted.
fn is_usual(key: &str) -> bool {
    let mut parts = key.split('/');
    let fixed = (parts.next(), parts.next()) == (Some("ipv4"), Some("conf"));
    let device = parts
        .next()
        .is_some_and(|d| !d.is_empty() && d != "." && d != "..");
    let last = parts.next();
    let last = matches!(last, Some("rp_filter" | "accept_local" | "src_valid_mark"));
    fixed && device && last && parts.next().is_none()
}

fn pairs(memory: &BTreeMap<String, String>) -> impl Iterator<Item = (&str, &str)> {
    memory.iter().map(|(k, v)| (k.as_str(), v.as_str()))
}

/// The desired rules of one side.
pub(crate) enum Desired {
    Nft(Ruleset),
    Legacy(weir_netfilter::xtables::Ruleset, Vec<Set>),
}

pub(crate) fn desired(
    node: &Node,
    side: Side,
    engine: Engine,
    memory: &BTreeMap<String, String>,
) -> Desired {
    match (engine, side) {
        (Engine::Nft, Side::Host) => Desired::Nft(nft::host(node, pairs(memory))),
        (Engine::Nft, Side::Proxy) => Desired::Nft(nft::proxy(node, pairs(memory))),
        (Engine::Xtables, Side::Host) => {
            Desired::Legacy(xtables::host(node, pairs(memory)), xtables::sets(node))
        }
        (Engine::Xtables, Side::Proxy) => {
            Desired::Legacy(xtables::proxy(node, pairs(memory)), Vec::new())
        }
    }
}

/// Returns the rules as text, for `plan`.
#[must_use]
pub fn text(node: &Node, side: Side, engine: Engine) -> String {
    match desired(node, side, engine, &BTreeMap::new()) {
        Desired::Nft(rules) => rules.to_string(),
        Desired::Legacy(rules, sets) => {
            let sets: String = sets.iter().map(|s| format!("{s}\n")).collect();
            format!("{sets}{rules}")
        }
    }
}

/// Returns the difference from the desired rules. Changes nothing.
///
/// # Errors
/// The rules cannot be read.
pub fn drift(
    node: &Node,
    side: Side,
    engine: Engine,
    memory: &BTreeMap<String, String>,
) -> Result<Vec<RuleChange>> {
    let mut changes: Vec<RuleChange> = Vec::new();
    match desired(node, side, engine, memory) {
        Desired::Nft(rules) => {
            let drift = NftEngine::open()?.drift(&rules, &tables())?;
            changes.extend(drift.ops.into_iter().map(RuleChange::from));
        }
        Desired::Legacy(rules, sets) => {
            if !sets.is_empty() {
                let missing = IpsetEngine::open()?.drift(&sets, &set_names())?;
                changes.extend(missing.into_iter().map(RuleChange::from));
            }
            let drift = legacy_tables()?.drift(&rules, &xtables::ownership())?;
            changes.extend(drift.ops.into_iter().map(RuleChange::from));
        }
    }
    let other = other(engine);
    if is_there(other)? {
        changes.push(RuleChange::RemoveRules(other));
    }
    Ok(changes)
}

/// Writes the difference; each engine's change is atomic. Removes rules of the other engine after that.
///
/// # Errors
/// The step that failed. With legacy tables and sets, other parts may be in force.
pub fn apply(
    node: &Node,
    side: Side,
    engine: Engine,
    memory: &BTreeMap<String, String>,
) -> Result<()> {
    match desired(node, side, engine, memory) {
        Desired::Nft(rules) => {
            NftEngine::open()?.apply(&rules, &tables())?;
        }
        Desired::Legacy(rules, sets) => {
            let write = |names: &[String]| IpsetEngine::open()?.apply(&sets, names);
            let names: Vec<String> = sets.iter().map(|set| set.header.name.clone()).collect();
            if !names.is_empty() {
                write(&names)?;
            }
            legacy_tables()?.apply(&rules, &xtables::ownership())?;
            // Unused sets are destroyed last: a set that a rule refers to cannot be destroyed.
            if !names.is_empty() {
                write(&set_names())?;
            }
        }
    }
    remove_of(other(engine), &BTreeMap::new()).map(drop)
}

/// Removes rules and sets of both engines, except for the stored values of the sysctls in `kept`.
///
/// # Errors
/// The first failure; the other engine was attempted, and some rules or sets may be left.
pub fn remove(kept: &BTreeMap<String, String>) -> Result<Vec<RuleChange>> {
    let [by_nft, legacy] = [Engine::Nft, Engine::Xtables].map(|engine| remove_of(engine, kept));
    let mut removed = by_nft?;
    removed.extend(legacy?);
    Ok(removed)
}

fn remove_of(engine: Engine, kept: &BTreeMap<String, String>) -> Result<Vec<RuleChange>> {
    let mut removed: Vec<RuleChange> = Vec::new();
    if engine == Engine::Nft {
        if is_there(engine)? {
            let rest = match kept.is_empty() {
                true => Ruleset::default(),
                false => nft::only_memory(pairs(kept)),
            };
            let applied = NftEngine::open()?.apply(&rest, &tables())?;
            removed.extend(applied.ops.into_iter().map(RuleChange::from));
        }
        return Ok(removed);
    }
    if !kept.is_empty() && is_there(engine)? {
        let rest = xtables::only_memory(pairs(kept));
        let applied = legacy_tables()?.apply(&rest, &xtables::ownership())?;
        removed.extend(applied.ops.into_iter().map(RuleChange::from));
    } else if has_legacy_tables()? {
        let gone = legacy_tables()?.remove(&xtables::ownership());
        removed.extend(gone.ops.into_iter().map(RuleChange::from));
        if let Some(e) = gone.failures.into_iter().next() {
            return Err(e);
        }
    }
    let mut failure = None;
    for name in sets()? {
        match IpsetEngine::open().and_then(|mut engine| engine.destroy(&name)) {
            Ok(_) => removed.push(IpsetOp::Destroy(name).into()),
            Err(e) => failure = failure.or(Some(e)),
        }
    }
    failure.map_or(Ok(removed), Err)
}
