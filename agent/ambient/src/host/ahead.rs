//! Foreign rules that translate packets of probes before the host rules do: only the first translation of a connection counts,
//! and a probe that keeps the host's address is captured in the pod.
//!
//! Reports only rules that certainly match: for all TCP, or for all TCP to the address of an enrolled pod, in a chain that
//! such rules lead to. Rules with other matches, such as those of kube-proxy and network plugins, are usually for other
//! packets.

use super::Host;
use super::legacy::CHAIN;
use std::net::IpAddr;
use std::ops::ControlFlow::{self, Break, Continue};
use weir_cni::compile::Engine;
use weir_cni::of_node::{if_supported, legacy_tables};
use weir_netfilter::nft::{
    self, ChainType, CmpOp, Data, Hook, MetaKey, NatKind, NftEngine, Operand, Selector, Statement,
    TableFamily, Verdict, priority, text_without_counters,
};
use weir_netfilter::xtables::{
    Chain, Match, Network, Not, Protocol, Rule, Table, Target, Tcp, XtFamily,
};
use weir_netlink::Result;

/// Maximum number of rules to follow; beyond that the result is unknown, and nothing is reported.
const MAX_RULES: usize = 100_000;
/// Maximum depth of chains that jump to each other.
const MAX_DEPTH: usize = 32;
/// `NFT_TABLE_F_DORMANT`: the kernel calls none of its chains.
const DORMANT: u32 = 1;
const TCP: u8 = 6;

/// Foreign rules before the host rules.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Ahead {
    /// Rules that certainly match packets of probes first.
    pub takes: Vec<String>,
    /// Any rule precedes our jump in a legacy table; [`to_front`](super::to_front) moves the jump to the front.
    pub is_behind: bool,
}

/// Finds such rules in the network namespace of this thread.
///
/// # Errors
/// The rules cannot be read.
pub fn ahead(host: &Host, engine: Engine) -> Result<Ahead> {
    let mut found = Ahead {
        takes: if_supported(NftEngine::open().and_then(|mut engine| in_tables(&mut engine, host)))?,
        is_behind: false,
    };
    if engine == Engine::Xtables {
        for is_v6 in host.families() {
            let family = if *is_v6 { XtFamily::Ip6 } else { XtFamily::Ip };
            let read = legacy_tables()?.read_tables(&[(family, "nat".to_owned())])?;
            if let Some(table) = read.ruleset.table(family, "nat") {
                in_legacy(host, table, &mut found);
            }
        }
    }
    Ok(found)
}

/// What a rule does with a packet that it matches.
#[derive(Clone, Copy)]
enum Does<'t> {
    Nothing,
    Takes,
    Return,
    Jump(&'t str),
    Goto(&'t str),
    /// The packet may reach our rules untranslated.
    Leaves,
}

struct Step<'t> {
    does: Does<'t>,
    /// The rule matches all packets of probes.
    holds: bool,
    /// The chain, and the index of the rule in it.
    at: (&'t str, usize),
}

/// Follows the rules. `Break(Some)`: this rule takes the packets; `Break(None)`: unknown; `Continue`: the packets reach the
/// end of the chain.
fn follow<'t>(
    steps: Vec<Step<'t>>,
    chain: &dyn Fn(&str) -> Vec<Step<'t>>,
    (depth, budget): (usize, &mut usize),
) -> ControlFlow<Option<(&'t str, usize)>> {
    for step in steps {
        if depth == 0 || *budget == 0 {
            return Break(None);
        }
        *budget -= 1;
        match (step.does, step.holds) {
            (Does::Nothing, _) | (Does::Takes | Does::Jump(_), false) => {}
            (Does::Takes, true) => return Break(Some(step.at)),
            (Does::Return, true) => return Continue(()),
            (Does::Leaves, _) | (Does::Return | Does::Goto(_), false) => return Break(None),
            (Does::Jump(to), true) => follow(chain(to), chain, (depth - 1, &mut *budget))?,
            (Does::Goto(to), true) => {
                return follow(chain(to), chain, (depth - 1, budget));
            }
        }
    }
    Continue(())
}

fn taken<'t>(
    steps: Vec<Step<'t>>,
    chain: &dyn Fn(&str) -> Vec<Step<'t>>,
) -> Option<(&'t str, usize)> {
    match follow(steps, chain, (MAX_DEPTH, &mut { MAX_RULES })) {
        Break(taken) => taken,
        Continue(()) => None,
    }
}

fn in_legacy(host: &Host, table: &Table, found: &mut Ahead) {
    let Some(hook) = table.chains.iter().find(|c| c.name == "POSTROUTING") else {
        return;
    };
    let is_ours = |rule: &Rule| matches!(&rule.target, Some(Target::Jump(to)) if to == CHAIN);
    let ours = hook.rules.iter().position(is_ours).unwrap_or(0);
    found.is_behind |= ours > 0;
    let steps = |name: &str| in_legacy_chain(host, table, name);
    let mut before = steps(&hook.name);
    before.truncate(ours);
    if let Some((name, n)) = taken(before, &steps) {
        let chain = table.chains.iter().find(|c| c.name == name);
        let rule = chain.and_then(|c| c.rules.get(n)).map(ToString::to_string);
        let rule = rule.unwrap_or_default();
        let line = format!("{} -t nat -A {name}{rule}", table.family);
        found.takes.push(line);
    }
}

fn in_legacy_chain<'t>(host: &Host, table: &'t Table, name: &str) -> Vec<Step<'t>> {
    let chain = table.chains.iter().filter(|c| c.name == name);
    let rules = chain.flat_map(|c| {
        c.rules
            .iter()
            .enumerate()
            .map(move |(n, rule)| (c, n, rule))
    });
    let step = |(chain, n, rule): (&'t Chain, usize, &'t Rule)| Step {
        does: legacy_does(rule),
        holds: legacy_holds(host, rule),
        at: (chain.name.as_str(), n),
    };
    rules.map(step).collect()
}

/// A verdict that ends the built-in chain counts as a translation.
fn legacy_does(rule: &Rule) -> Does<'_> {
    match &rule.target {
        Some(Target::Jump(to)) => Does::Jump(to),
        Some(Target::Goto(to)) => Does::Goto(to),
        Some(Target::Return) => Does::Return,
        Some(Target::Accept | Target::Drop | Target::Masquerade(_) | Target::Snat(_)) => {
            Does::Takes
        }
        Some(target) if target.name() == "NETMAP" => Does::Takes,
        _ => Does::Nothing,
    }
}

fn legacy_holds(host: &Host, rule: &Rule) -> bool {
    let is_to_pod = |network: &Network| {
        let mut addresses = host.addresses.keys();
        network.is_any() || addresses.any(|address| contains(network, *address))
    };
    let is_tcp = rule
        .protocol
        .as_ref()
        .is_none_or(|of| *of == (Not(false), Protocol::TCP));
    let to = rule.destination.as_ref();
    let plain = |m: &Match| match m {
        Match::Comment(_) => true,
        Match::Tcp(tcp) => *tcp == Tcp::default(),
        _ => false,
    };
    is_tcp
        && rule.source.is_none()
        && to.is_none_or(|(not, to)| *not == Not(false) && is_to_pod(to))
        && (&rule.in_interface, &rule.out_interface) == (&None, &None)
        && (&rule.fragment, &rule.header) == (&None, &None)
        && rule.matches.iter().all(plain)
}

fn contains(network: &Network, address: IpAddr) -> bool {
    Network::new(address, network.mask).is_some_and(|of| of.address == network.address)
}

/// Checks base chains with a lower priority value than ours, which are called earlier. Of chains with the same priority the
/// kernel calls the one registered last first, and it does not report the order of registration.
fn in_tables(engine: &mut NftEngine, host: &Host) -> Result<Vec<String>> {
    let is_before = |chain: &nft::Chain| {
        let mut base = chain.base.iter();
        base.any(|base| {
            let is_nat = base.chain_type == ChainType::Nat && base.hook == Hook::Postrouting;
            is_nat && base.priority < priority::SRCNAT
        })
    };
    let concerns = |family| match family {
        TableFamily::Inet | TableFamily::Ip => true,
        TableFamily::Ip6 => host.config.enable_ipv6,
        _ => false,
    };
    let chains = engine.chains()?.into_iter();
    let tables = chains.filter(|((family, _), chain)| concerns(*family) && is_before(chain));
    let mut tables: Vec<_> = tables.map(|(table, _)| table).collect();
    tables.dedup();
    if tables.is_empty() {
        return Ok(Vec::new());
    }
    let mut lines = Vec::new();
    for table in &engine.read_tables(&tables)?.ruleset.tables {
        if table.flags & DORMANT != 0 {
            continue;
        }
        let steps = |name: &str| in_chain(table, name);
        for base in table.chains.iter().filter(|chain| is_before(chain)) {
            let found = taken(steps(&base.name), &steps);
            let rule =
                found.and_then(|(chain, n)| Some((chain, table.chain(chain)?.rules.get(n)?)));
            lines.extend(rule.map(|(chain, rule)| {
                let text = text_without_counters(rule, table.family);
                format!(
                    "table {} {} chain {chain}: {text}",
                    table.family, table.name
                )
            }));
        }
    }
    Ok(lines)
}

fn in_chain<'t>(table: &'t nft::Table, name: &str) -> Vec<Step<'t>> {
    let Some(chain) = table.chain(name) else {
        return Vec::new();
    };
    let rules = chain.rules.iter().enumerate();
    let step = |(n, rule): (usize, &'t nft::Rule)| {
        let (does, holds) = nft_does(rule);
        let at = (chain.name.as_str(), n);
        Step { does, holds, at }
    };
    rules.map(step).collect()
}

/// What the rule does, and whether it matches all TCP. `accept` passes the packet on to the next chain.
fn nft_does(rule: &nft::Rule) -> (Does<'_>, bool) {
    let mut holds = true;
    for statement in &rule.statements {
        let does = match statement {
            Statement::Match(of) => {
                let is_tcp = of.selector == Selector::Meta(MetaKey::L4proto)
                    && (of.mask.is_none(), of.op) == (true, CmpOp::Eq)
                    && of.operand == Operand::Value(Data::u8(TCP));
                holds &= is_tcp;
                continue;
            }
            Statement::Masquerade(_) => Does::Takes,
            Statement::Nat(nat) if nat.kind == NatKind::Snat => Does::Takes,
            Statement::Verdict(Verdict::Drop) => Does::Takes,
            Statement::Verdict(Verdict::Return) => Does::Return,
            Statement::Verdict(Verdict::Jump(to)) if holds => Does::Jump(to),
            Statement::Verdict(Verdict::Goto(to)) => Does::Goto(to),
            Statement::Verdict(Verdict::Continue) => Does::Nothing,
            Statement::Verdict(_) | Statement::Vmap(..) => Does::Leaves,
            Statement::Counter(_) | Statement::MetaSet(..) | Statement::CtSet(..) => continue,
            Statement::Log(_) => continue,
            _ => {
                holds = false;
                continue;
            }
        };
        return (does, holds);
    }
    (Does::Nothing, holds)
}
