//! Foreign rules that keep packets of probes from the translation by the host rules: a probe that keeps the host's address is
//! captured in the pod.
//!
//! | What | Where | Why |
//! |---|---|---|
//! | a translation of the source, `drop` | `postrouting`, before our rules | only the first translation of a connection counts |
//! | `notrack` | `output`, before conntrack | packets without a connection are not translated |
//!
//! Reports only rules that certainly match: for all TCP, or for all TCP to the address of an enrolled pod, in a chain that
//! such rules lead to. Rules with other matches, such as those of kube-proxy and network plugins, are usually for other
//! packets. Both engines are searched, as the kernel calls the chains of both.

mod legacy;
mod tables;

use super::Host;
use std::net::IpAddr;
use std::ops::ControlFlow::{self, Break, Continue};
use weir_cni::compile::Engine;
use weir_cni::redirection::has_legacy_tables;
use weir_netfilter::nft::NftEngine;
use weir_netfilter::xtables::XtFamily;
use weir_netlink::Result;
use weir_rules::of_node::{if_supported, legacy_tables};

/// Maximum number of comparisons of a rule with packets; beyond that the result is unknown, and nothing is reported.
const COMPARISONS: usize = 10_000_000;
/// Maximum depth of chains that jump to each other.
const MAX_DEPTH: usize = 32;
/// The priority of conntrack (`NF_IP_PRI_CONNTRACK`).
const CONNTRACK: i32 = -200;
const TCP: u8 = 6;

/// Foreign rules before the host rules.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Ahead {
    /// Rules that certainly match packets of probes first.
    pub takes: Vec<String>,
    /// One of them precedes our jump in a legacy table.
    pub takes_in_table: bool,
    /// Any rule precedes our jump in a legacy table; [`to_front`](super::to_front) moves the jump to the front.
    pub is_behind: bool,
}

/// Finds such rules in the network namespace of this thread.
///
/// # Errors
/// The rules cannot be read.
pub fn ahead(host: &Host, engine: Engine) -> Result<Ahead> {
    let in_tables = |mut engine| tables::find(&mut engine, host);
    let mut found = Ahead {
        takes: if_supported(NftEngine::open().and_then(in_tables))?,
        ..Ahead::default()
    };
    if !has_legacy_tables()? {
        return Ok(found);
    }
    let mut legacy = legacy_tables()?;
    for is_v6 in host.families() {
        let family = if *is_v6 { XtFamily::Ip6 } else { XtFamily::Ip };
        let of_probes = || Packets::of_probes(host, *is_v6);
        // Reading a table creates it.
        if legacy.names(family)?.iter().any(|name| name == "raw") {
            let read = legacy.read_tables(&[(family, "raw".to_owned())])?;
            for table in &read.ruleset.tables {
                found.takes.extend(legacy::untracked(table, of_probes()));
            }
        }
        if engine == Engine::Xtables {
            let read = legacy.read_tables(&[(family, "nat".to_owned())])?;
            for table in &read.ruleset.tables {
                legacy::translates(table, of_probes(), &mut found);
            }
        }
    }
    Ok(found)
}

/// Packets of probes. Their other properties are unknown.
#[derive(Clone, Copy, Debug)]
struct Packets {
    is_v6: bool,
    /// The pod's address; `None`: any.
    to: Option<IpAddr>,
}

impl Packets {
    /// Those to any pod, and those to each enrolled one.
    fn of_probes(host: &Host, is_v6: bool) -> Vec<Self> {
        let addresses = host.addresses(is_v6).map(|(address, _)| Some(*address));
        let all = std::iter::once(None).chain(addresses);
        all.map(|to| Self { is_v6, to }).collect()
    }
}

/// What a rule does with a packet that it matches.
#[derive(Clone, Copy)]
enum Does<'t> {
    Nothing,
    Takes,
    Return,
    Jump(&'t str),
    Goto(&'t str),
    /// The packet may reach our rules without the rest of these.
    Leaves,
}

/// The rules of one table.
trait Rules<'t> {
    type Rule: 't;

    /// A packet that a chain keeps does not reach our rules: whether or not a rule leads there, it is taken or returns.
    fn keeps(&self) -> bool;

    fn chain(&self, name: &str) -> Option<(&'t str, &'t [Self::Rule])>;

    fn does(&self, rule: &'t Self::Rule) -> Does<'t>;

    /// Whether the rule matches the packets; `None`: unknown.
    fn holds(&self, rule: &'t Self::Rule, packets: Packets) -> Option<bool>;
}

/// Follows the rules of a chain. `Break`: this rule of this chain takes some of the packets; `Continue`: these packets reach
/// the end of the chain, or were taken by a rule for which that is not certain.
fn follow<'t, R: Rules<'t>>(
    table: &R,
    (name, rules): (&'t str, &'t [R::Rule]),
    mut packets: Vec<Packets>,
    (depth, budget): (usize, &mut usize),
) -> ControlFlow<(&'t str, &'t R::Rule), Vec<Packets>> {
    let mut ended = Vec::new();
    for rule in rules {
        let does = match table.does(rule) {
            // From a built-in chain packets return to its policy.
            Does::Return if table.keeps() && depth == MAX_DEPTH => Does::Takes,
            does => does,
        };
        if packets.is_empty() || matches!(does, Does::Nothing) {
            continue;
        }
        let left = budget.checked_sub(packets.len());
        let (Some(left), Some(below)) = (left, depth.checked_sub(1)) else {
            return Continue(Vec::new());
        };
        *budget = left;
        let (mut matched, mut unsure, mut others) = (Vec::new(), Vec::new(), Vec::new());
        for of in packets {
            match table.holds(rule, of) {
                Some(true) => matched.push(of),
                Some(false) => others.push(of),
                None => unsure.push(of),
            }
        }
        let mut led = |to: &str, packets: Vec<Packets>| match table.chain(to) {
            Some(chain) => follow(table, chain, packets, (below, &mut *budget)),
            None => Continue(packets),
        };
        match does {
            Does::Takes if !matched.is_empty() => return Break((name, rule)),
            Does::Takes | Does::Nothing => {
                others.append(&mut matched);
                others.append(&mut unsure);
            }
            Does::Return => {
                ended.append(&mut matched);
                ended.extend(unsure.into_iter().filter(|_| table.keeps()));
            }
            Does::Goto(to) => {
                ended.extend(led(to, matched)?);
                ended.extend(unsure.into_iter().filter(|_| table.keeps()));
            }
            Does::Jump(to) => {
                others.extend(led(to, matched)?);
                others.extend(unsure.into_iter().filter(|_| table.keeps()));
            }
            Does::Leaves => {}
        }
        packets = others;
    }
    ended.append(&mut packets);
    Continue(ended)
}

/// The rule that takes some of these packets, with its chain.
fn taken<'t, R: Rules<'t>>(
    table: &R,
    chain: (&'t str, &'t [R::Rule]),
    packets: Vec<Packets>,
) -> Option<(&'t str, &'t R::Rule)> {
    follow(table, chain, packets, (MAX_DEPTH, &mut { COMPARISONS })).break_value()
}
