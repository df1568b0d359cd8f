//! The host's part: probes of the kubelet reach pods of ambient mode in plain text.
//!
//! A probe has the source address of the host, as traffic of kube-proxy has. So packets of the host's own sockets to pods
//! of ambient mode get a link-local source address of their own, which the rules of the pod let through. The pods are a
//! set of addresses, each with the UID of its pod as comment: an address that another pod has now is not removed with the
//! pod that had it before.
//!
//! Two forms, as Istio's agent has them: legacy tables with sets of ipset, and nf_tables with sets of their own, where the
//! sender is known by the user of the kubelet only. Everything is desired state: [`apply`] writes what differs. The tables
//! have no owner (`NFT_TABLE_F_OWNER`): with one they would go with the agent's socket, and probes would fail until the
//! next agent runs.

use crate::config::Config;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use weir_cni::compile::Engine;
use weir_netfilter::ipset::{self, Entry, Header, IpsetEngine, Key, SetFamily, SetType};
use weir_netfilter::nft::{
    Chain, ChainType, CmpOp, Data, DataType, Element, ElementChanges, ElementKey, Extra, Hook,
    L4Proto, Match, NatKind, NftEngine, Operand, PayloadBase, Rule, Ruleset, Selector, Set,
    Statement, Table, TableFamily, TableId, priority,
};
use weir_netfilter::{nft, xtables};
use weir_netlink::{Error, Result};

/// The sets of addresses, by family.
pub const SETS: [&str; 2] = ["istio-inpod-probes-v4", "istio-inpod-probes-v6"];
/// The legacy chain.
const CHAIN: &str = "ISTIO_POSTRT";
/// The table of nf_tables.
const TABLE: &str = crate::redirect::TABLES[0];
/// Time limit for the lock of the tools; kube-proxy has the same.
const LOCK: Duration = Duration::from_secs(5);
/// The tag of the rule that jumps to it.
const TAG: u32 = u32::from_be_bytes(*b"weir");

/// What the host should have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Host {
    /// Settings of the node.
    pub config: Config,
    /// Addresses of pods, each with the UID of its pod. Those of a family that is not captured are left out.
    pub addresses: BTreeMap<IpAddr, Arc<str>>,
    /// The user of the kubelet; needed for nf_tables.
    pub kubelet: Option<u32>,
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
/// changes nothing; then what the settings say; then legacy tables if any are in use here.
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
    if has_sets {
        return Ok(Engine::Xtables);
    }
    let used = |family: &str| std::fs::read(format!("/proc/thread-self/net/{family}_tables_names"));
    let is_used = ["ip", "ip6"]
        .iter()
        .any(|f| used(f).is_ok_and(|names| !names.is_empty()));
    match in_nft {
        Ok(_) if native_nftables || !is_used => Ok(Engine::Nft),
        Ok(_) => Ok(Engine::Xtables),
        Err(_) if used("ip").is_ok() => Ok(Engine::Xtables),
        Err(e) => Err(e),
    }
}

/// What [`update`] has verified last.
#[derive(Debug)]
pub struct InForce {
    host: Host,
    /// Of nf_tables; every commit of any writer is another one.
    generation: u32,
}

/// Makes the network namespace of this thread as it should be. Returns what was changed, a line each.
///
/// # Errors
/// What failed; of legacy tables and sets the rest may be in force.
pub fn apply(host: &Host, engine: Engine) -> Result<Vec<String>> {
    update(host, engine, &mut None)
}

/// As [`apply`], for a node with many pods of which one changes: what was verified last, and that no other writer has
/// committed anything since, leaves only the addresses that differ to be written and read back. Legacy tables and sets of
/// ipset have no generation, and are compared as a whole.
///
/// # Errors
/// As [`apply`].
pub fn update(host: &Host, engine: Engine, in_force: &mut Option<InForce>) -> Result<Vec<String>> {
    let known = in_force.take();
    match engine {
        Engine::Nft => {
            let mut nft = NftEngine::open()?;
            let quick = known.and_then(|known| addresses_that_differ(&mut nft, host, known));
            let (changes, generation) = match quick {
                Some(done) => done,
                None => by_nft(&mut nft, host)?,
            };
            let host = host.clone();
            *in_force = Some(InForce { host, generation });
            Ok(changes)
        }
        Engine::Xtables => by_legacy(host),
    }
}

/// The changes, and the generation after them. `None`: more differs, or something failed, or another writer was there.
fn addresses_that_differ(
    engine: &mut NftEngine,
    host: &Host,
    InForce {
        host: before,
        mut generation,
    }: InForce,
) -> Option<(Vec<String>, u32)> {
    if (&before.config, before.kubelet) != (&host.config, host.kubelet) {
        return None;
    }
    let mut lines = Vec::new();
    for is_v6 in host.families() {
        let only = |of: &Host, other: &Host| -> Vec<Element> {
            let is_new =
                |(address, uid): &(&IpAddr, &Arc<str>)| other.addresses.get(*address) != Some(*uid);
            of.addresses(*is_v6).filter(is_new).map(element).collect()
        };
        let changes = ElementChanges {
            delete: only(&before, host),
            add: only(host, &before),
        };
        if changes.is_empty() {
            continue;
        }
        let set = set(*is_v6);
        for (verb, elements) in [("delete", &changes.delete), ("add", &changes.add)] {
            let elements = elements.clone();
            let texts = Set {
                elements,
                ..set.clone()
            }
            .element_texts();
            let line = |text| {
                format!(
                    "{verb} element {} {TABLE} {} {{ {text} }}",
                    id().0,
                    set.name
                )
            };
            lines.extend(texts.into_iter().map(line));
        }
        generation = engine
            .change_elements(&id(), &set, &changes, generation)
            .ok()??;
    }
    let is_same = !lines.is_empty() || engine.generation().is_ok_and(|now| now == generation);
    is_same.then_some((lines, generation))
}

/// The addresses that are there now, each with its comment, in the network namespace of this thread.
///
/// # Errors
/// They cannot be read.
pub fn addresses(engine: Engine) -> Result<BTreeMap<IpAddr, Arc<str>>> {
    let mut found = BTreeMap::new();
    let mut add = |address: Option<IpAddr>, comment: Option<&str>| {
        if let Some(address) = address {
            found.insert(address, Arc::from(comment.unwrap_or_default()));
        }
    };
    match engine {
        Engine::Nft => {
            let mut engine = NftEngine::open()?;
            if !engine.tables()?.contains(&id()) {
                return Ok(found);
            }
            let read = engine.read_tables(&[id()])?;
            let tables = read.ruleset.tables.iter();
            for element in tables.flat_map(|t| &t.sets).flat_map(|s| &s.elements) {
                add(
                    address(element.key.first().as_bytes()),
                    element.extra().comment.as_deref(),
                );
            }
        }
        Engine::Xtables => {
            let mut engine = IpsetEngine::open()?;
            for name in engine.names()? {
                if !SETS.contains(&name.as_str()) {
                    continue;
                }
                for listed in engine.list(Some(&name))? {
                    for entry in &listed.set.entries {
                        let address = match entry.key {
                            Key::Ip(address) => Some(address),
                            _ => None,
                        };
                        add(address, entry.comment.as_deref());
                    }
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

/// Removes all of it from the network namespace of this thread, by whichever engine it is there. Returns what was removed.
///
/// # Errors
/// What may be there still.
pub fn remove() -> Result<Vec<String>> {
    let mut removed = Vec::new();
    let tables = NftEngine::open().and_then(|mut engine| engine.tables());
    if tables.is_ok_and(|tables| tables.contains(&id())) {
        let applied = NftEngine::open()?.apply(&Ruleset::default(), &[id()])?;
        removed.extend(applied.ops.iter().map(ToString::to_string));
    }
    let used = std::fs::read("/proc/thread-self/net/ip_tables_names").unwrap_or_default();
    if !used.is_empty() {
        let gone = legacy_engine()?.remove(&ownership());
        removed.extend(gone.ops.iter().map(ToString::to_string));
        if let Some(e) = gone.failures.into_iter().next() {
            return Err(e);
        }
    }
    let names = IpsetEngine::open().and_then(|mut engine| engine.names());
    for name in names.unwrap_or_default() {
        if SETS.contains(&name.as_str()) {
            IpsetEngine::open()?.destroy(&name)?;
            removed.push(format!("destroy {name}"));
        }
    }
    Ok(removed)
}

fn id() -> TableId {
    (TableFamily::Inet, TABLE.to_owned())
}

fn by_nft(engine: &mut NftEngine, host: &Host) -> Result<(Vec<String>, u32)> {
    let applied = engine.apply(&ruleset(host)?, &[id()])?;
    let changes = applied.ops.iter().map(ToString::to_string);
    Ok((changes.collect(), applied.generation))
}

/// A set of nf_tables, without addresses.
fn set(is_v6: bool) -> Set {
    let (key_type, key_len) = match is_v6 {
        true => (DataType::IPV6_ADDR, 16),
        false => (DataType::IPV4_ADDR, 4),
    };
    Set {
        comment: Some("UUID of the pods that are part of ambient mesh".to_owned()),
        ..Set::new(set_name(is_v6), key_type, key_len)
    }
}

fn element((address, uid): (&IpAddr, &Arc<str>)) -> Element {
    Element::new(ElementKey::Value(Data::addr(*address))).with(Extra {
        comment: Some(uid.to_string()),
        ..Extra::default()
    })
}

/// The table for nf_tables: both sets, whatever is captured, and a rule for each family.
///
/// # Errors
/// It is not known who the kubelet is.
pub fn ruleset(host: &Host) -> Result<Ruleset> {
    let Some(kubelet) = host.kubelet else {
        let reason = "no process of the kubelet is seen; mount the node's /proc at /host/proc";
        return Err(Error::refused("write", "rules for probes", reason));
    };
    let filled = |is_v6: bool| {
        let addresses = host
            .addresses(is_v6)
            .filter(|_| host.families().contains(&is_v6));
        Set {
            elements: addresses.map(element).collect(),
            ..set(is_v6)
        }
    };
    let rule = |is_v6: &bool| {
        let (family, offset, len, nfproto) = match is_v6 {
            true => (TableFamily::Ip6, 24, 16, nft::raw::NFPROTO_IPV6),
            false => (TableFamily::Ip, 16, 4, nft::raw::NFPROTO_IPV4),
        };
        let to_pods = Match {
            selector: Selector::Payload {
                base: PayloadBase::Network,
                offset,
                len,
            },
            mask: None,
            op: CmpOp::Eq,
            operand: Operand::Named {
                set: set_name(*is_v6).to_owned(),
                turned: false,
            },
        };
        let of_family = Match {
            selector: Selector::Meta(nft::MetaKey::Nfproto),
            mask: None,
            op: CmpOp::Eq,
            operand: Operand::Value(Data::u8(nfproto)),
        };
        let probe = host.probe(*is_v6);
        Rule::builder()
            .l4proto(L4Proto::Tcp)
            .skuid(CmpOp::Eq, kubelet..=kubelet)
            .push(Statement::Match(of_family))
            .push(Statement::Match(to_pods))
            .counter()
            .push(Statement::Nat(nft::Nat {
                kind: NatKind::Snat,
                family,
                addrs: Some((probe, probe)),
                ports: None,
                flags: 0,
            }))
            .build()
    };
    let chain = Chain {
        rules: host.families().iter().map(rule).collect(),
        ..Chain::base(
            "postrouting",
            ChainType::Nat,
            Hook::Postrouting,
            priority::SRCNAT,
        )
    };
    Ok(Ruleset {
        tables: vec![Table {
            sets: vec![filled(false), filled(true)],
            chains: vec![chain],
            ..Table::new(TableFamily::Inet, TABLE)
        }],
    })
}

/// The sets come first: a rule refers to one by its number.
fn by_legacy(host: &Host) -> Result<Vec<String>> {
    let names: Vec<String> = SETS.iter().map(|name| (*name).to_owned()).collect();
    let sets = IpsetEngine::open()?.apply(&sets(host), &names)?;
    let rules = legacy_engine()?.apply(&legacy(host), &ownership())?;
    let mut changes: Vec<String> = sets.ops.iter().map(ToString::to_string).collect();
    changes.extend(rules.ops.iter().map(ToString::to_string));
    Ok(changes)
}

/// kube-proxy and the network's plugin write the tables of the host, too: by the lock that the tools have, nobody's change
/// is lost.
fn legacy_engine() -> Result<xtables::XtEngine> {
    Ok(xtables::XtEngine::open()?.writers(xtables::Writers::Others { patience: LOCK }))
}

fn ownership() -> xtables::Ownership {
    xtables::Ownership {
        prefix: CHAIN.to_owned(),
        tag: TAG,
        // A rule of the network's plugin may end the chain.
        first: true,
        ..xtables::Ownership::default()
    }
}

/// The sets of ipset.
#[must_use]
pub fn sets(host: &Host) -> Vec<ipset::Set> {
    let set = |is_v6: &bool| {
        let family = match is_v6 {
            true => SetFamily::Inet6,
            false => SetFamily::Inet,
        };
        let entry = |(address, uid): (&IpAddr, &Arc<str>)| Entry {
            comment: Some(uid.to_string()),
            ..Entry::new(Key::Ip(*address))
        };
        ipset::Set {
            header: Header {
                comment: true,
                ..Header::new(set_name(*is_v6), SetType::HashIp, family)
            },
            entries: host.addresses(*is_v6).map(entry).collect(),
        }
    };
    host.families().iter().map(set).collect()
}

/// The rules of legacy tables.
#[must_use]
pub fn legacy(host: &Host) -> xtables::Ruleset {
    let table = |is_v6: &bool| {
        let owner = xtables::Owner {
            socket: Some(xtables::Not(false)),
            ..xtables::Owner::default()
        };
        let to_pods = xtables::SetMatch {
            set: xtables::SetRef {
                name: set_name(*is_v6).to_owned(),
                source: vec![false],
            },
            not: xtables::Not(false),
            return_nomatch: false,
            keep_counters: false,
            keep_subcounters: false,
            packets: None,
            bytes: None,
        };
        let probe = host.probe(*is_v6);
        let snat = xtables::Nat {
            addresses: Some(probe..=probe),
            ..xtables::Nat::new(xtables::NatKind::Snat)
        };
        let rule = xtables::Rule::builder()
            .protocol(xtables::Protocol::TCP)
            .matching(xtables::Match::Owner(owner))
            .matching(xtables::Match::Set(to_pods))
            .target(xtables::Target::Nat(snat));
        let family = match is_v6 {
            true => xtables::XtFamily::Ip6,
            false => xtables::XtFamily::Ip,
        };
        xtables::Table {
            chains: vec![
                xtables::Chain {
                    rules: vec![xtables::Rule::builder().jump(CHAIN)],
                    ..xtables::Chain::builtin("POSTROUTING")
                },
                xtables::Chain {
                    rules: vec![rule],
                    ..xtables::Chain::user(CHAIN)
                },
            ],
            ..xtables::Table::new(family, "nat")
        }
    };
    xtables::Ruleset {
        tables: host.families().iter().map(table).collect(),
    }
}

/// The user of the kubelet, by its processes below a mount of `/proc`. `None`: none is seen.
#[must_use]
pub fn kubelet(proc: &std::path::Path) -> Option<u32> {
    let mut pids: Vec<u32> = std::fs::read_dir(proc)
        .ok()?
        .flatten()
        .filter_map(|e| e.file_name().to_str()?.parse().ok())
        .collect();
    pids.sort_unstable();
    pids.into_iter().find_map(|pid| {
        let read = |name: &str| {
            use std::io::Read;
            let mut text = Vec::new();
            let file = std::fs::File::open(proc.join(pid.to_string()).join(name)).ok()?;
            file.take(64 << 10).read_to_end(&mut text).ok()?;
            Some(String::from_utf8_lossy(&text).into_owned())
        };
        let comm = read("comm")?;
        let is_kubelet = match comm.trim_end() {
            "k3s" => true,
            "kubelet" | "kubelite" => read("cmdline")?.to_lowercase().contains("kubelet"),
            _ => false,
        };
        let status = is_kubelet.then(|| read("status"))??;
        let users = status.lines().find_map(|l| l.strip_prefix("Uid:"))?;
        users.split_whitespace().next()?.parse().ok()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn host(addresses: &[(&str, &str)]) -> Host {
        let pair = |(address, uid): &(&str, &str)| (address.parse().unwrap(), Arc::from(*uid));
        Host {
            config: Config {
                enable_ipv6: true,
                ..Config::default()
            },
            addresses: addresses.iter().map(pair).collect::<BTreeMap<_, _>>(),
            kubelet: Some(0),
        }
    }

    #[test]
    fn both_forms_come_change_and_go() {
        for engine in [Engine::Nft, Engine::Xtables] {
            let netns = weir_testing::namespace_or_skip!();
            let (one, two) = (
                host(&[("10.0.0.1", "a"), ("fd00::1", "a")]),
                host(&[("10.0.0.1", "b"), ("10.0.0.2", "c")]),
            );
            netns
                .run(|| {
                    let first = apply(&one, engine);
                    if engine == Engine::Xtables && first.as_ref().is_err_and(Error::is_unsupported)
                    {
                        println!("skipped: {}", first.unwrap_err());
                        return;
                    }
                    assert!(!first.unwrap().is_empty(), "{engine}");
                    assert_eq!(choose(engine == Engine::Xtables).unwrap(), engine);
                    assert_eq!(
                        apply(&one, engine).unwrap(),
                        Vec::<String>::new(),
                        "{engine}"
                    );
                    assert!(!apply(&two, engine).unwrap().is_empty());
                    assert_eq!(
                        apply(&two, engine).unwrap(),
                        Vec::<String>::new(),
                        "{engine}"
                    );
                    assert!(!remove().unwrap().is_empty());
                    assert_eq!(remove().unwrap(), Vec::<String>::new(), "{engine}");
                })
                .unwrap();
        }
    }

    /// Only what differs is written, unless another writer was there.
    #[test]
    fn one_address_changes_among_many() {
        let netns = weir_testing::namespace_or_skip!();
        let (one, two, three) = (
            host(&[("10.0.0.1", "a"), ("10.0.0.3", "c"), ("fd00::1", "a")]),
            host(&[("10.0.0.1", "b"), ("10.0.0.2", "d"), ("10.0.0.3", "c")]),
            host(&[("10.0.0.1", "b"), ("10.0.0.2", "d"), ("fd00::1", "e")]),
        );
        let steps = || {
            let mut in_force = None;
            let mut put = |host: &Host| update(host, Engine::Nft, &mut in_force).unwrap();
            let now = || addresses(Engine::Nft).unwrap();
            assert!(!put(&one).is_empty());
            let element = |text: &str, v: u8| {
                let (verb, text) = text.split_once(' ').unwrap();
                format!("{verb} element inet {TABLE} istio-inpod-probes-v{v} {{ {text} }}")
            };
            let expected = [
                element("delete 10.0.0.1 comment \"a\"", 4),
                element("add 10.0.0.1 comment \"b\"", 4),
                element("add 10.0.0.2 comment \"d\"", 4),
                element("delete fd00::1 comment \"a\"", 6),
            ];
            assert_eq!(put(&two), expected);
            assert_eq!((put(&two), now()), (vec![], two.addresses.clone()));
            // Another writer takes one away: the whole is compared.
            let flush = |text: &str| {
                let done = std::process::Command::new("nft").arg(text).status();
                assert!(done.unwrap().success(), "{text}");
            };
            flush("flush set inet istio-ambient-nat istio-inpod-probes-v4");
            assert!(!put(&three).is_empty());
            assert_eq!(now(), three.addresses);
            flush("flush chain inet istio-ambient-nat postrouting");
            assert!(!put(&three).is_empty(), "the rules are there again");
            assert_eq!(put(&three), Vec::<String>::new());
            remove().unwrap();
            assert!(!put(&one).is_empty());
            assert_eq!(now(), one.addresses);
            remove().unwrap();
        };
        netns.run(steps).unwrap();
    }

    #[test]
    fn addresses_of_a_family_that_is_not_captured_are_left_out() {
        let mut host = host(&[("10.0.0.1", "a"), ("fd00::1", "a")]);
        host.config.enable_ipv6 = false;
        let text = ruleset(&host).unwrap().to_string();
        assert!(
            text.contains("10.0.0.1 comment \"a\"") && !text.contains("fd00::1"),
            "{text}"
        );
        assert_eq!(sets(&host).len(), 1);
        host.kubelet = None;
        assert!(ruleset(&host).is_err());
    }

    #[test]
    fn the_kubelet_by_its_processes() {
        let dir = weir_testing::TempDir::new();
        let process = |pid: u32, comm: &str, cmdline: &str, uid: u32| {
            let at = dir.path().join(pid.to_string());
            std::fs::create_dir(&at).unwrap();
            std::fs::write(at.join("comm"), format!("{comm}\n")).unwrap();
            std::fs::write(at.join("cmdline"), cmdline).unwrap();
            std::fs::write(
                at.join("status"),
                format!("Name:\t{comm}\nUid:\t{uid}\t0\t0\t0\n"),
            )
            .unwrap();
        };
        process(20, "bash", "bash\0kubelet", 1);
        process(21, "kubelet", "sleep", 2);
        assert_eq!(kubelet(dir.path()), None);
        process(30, "kubelite", "/snap/Kubelet\0--x", 1000);
        process(9, "k3s", "k3s\0server", 7);
        assert_eq!(kubelet(dir.path()), Some(7));
    }
}
