//! Generates random rulesets that the kernel accepts, for property tests.
//!
//! A generated ruleset meets the constraints of the kernel: NAT only in chains of type nat and after a match on a
//! protocol, jumps only forward and only to regular chains, elements that do not overlap.

mod rules;
mod sets;
mod statements;

use super::{Chain, ChainType, Hook, Policy, Ruleset, Set, Table, TableFamily, priority};
use proptest::prelude::*;

/// Which statements a chain may hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// Reachable from any chain: matches, counters, marks, verdicts.
    Regular,
    /// A base chain of this type and hook.
    Base(Kind, Hook),
}

/// The type of a base chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Filter,
    Nat,
    Route,
}

/// Up to three tables of the family `inet`.
pub fn ruleset() -> BoxedStrategy<Ruleset> {
    proptest::sample::subsequence(vec!["a", "b", "weir-x"], 0..=3)
        .prop_flat_map(|names| {
            names
                .into_iter()
                .map(table)
                .collect::<Vec<_>>()
                .prop_map(|tables| Ruleset { tables })
        })
        .boxed()
}

/// A table of this name with sets, maps and chains.
pub fn table(name: &'static str) -> BoxedStrategy<Table> {
    let chains = proptest::collection::vec(base(), 0..4);
    (
        chains,
        0..3usize,
        sets::sets(),
        option(comment()),
        Just(name),
    )
        .prop_flat_map(|(bases, regular, sets, comment, name)| {
            let places: Vec<Chain> = bases
                .into_iter()
                .enumerate()
                .map(|(i, b)| Chain {
                    name: format!("base{i}"),
                    ..b
                })
                .chain((0..regular).map(|i| Chain::regular(&format!("regular{i}"))))
                .collect();
            let sets = with_verdicts(sets, regular);
            let chains: Vec<_> = places
                .into_iter()
                .map(|c| filled(c, regular, sets.clone()))
                .collect();
            (chains, Just((sets, comment, name)))
        })
        .prop_map(|(chains, (sets, comment, name))| Table {
            chains,
            sets,
            comment,
            ..Table::new(TableFamily::Inet, name)
        })
        .boxed()
}

/// Verdict maps jump to an existing chain.
fn with_verdicts(mut sets: Vec<Set>, regular: usize) -> Vec<Set> {
    use super::Verdict;
    for v in sets
        .iter_mut()
        .flat_map(|s| &mut s.elements)
        .filter_map(|e| e.extra_mut().verdict.as_mut())
    {
        if regular == 0 && matches!(v, Verdict::Jump(_) | Verdict::Goto(_)) {
            *v = Verdict::Accept;
        }
    }
    sets
}

fn option<T: std::fmt::Debug + 'static>(s: BoxedStrategy<T>) -> BoxedStrategy<Option<T>> {
    proptest::option::weighted(0.3, s).boxed()
}

/// Text that `nft` lists unchanged.
fn comment() -> BoxedStrategy<String> {
    text("[a-zA-Z0-9 .,:;_+*/-]{1,40}")
}

/// A text that matches the pattern.
fn text(pattern: &'static str) -> BoxedStrategy<String> {
    match proptest::string::string_regex(pattern) {
        Ok(s) => s.boxed(),
        Err(_) => Just(String::from("x")).boxed(),
    }
}

fn base() -> BoxedStrategy<Chain> {
    let hooks = prop_oneof![
        (Just(ChainType::Filter), hook(&[0, 1, 2, 3, 4]), -400..400),
        // Conntrack has priority -200: the kernel refuses NAT before it.
        (Just(ChainType::Nat), hook(&[0, 1, 3, 4]), -199..400),
        (Just(ChainType::Route), hook(&[3]), -400..400),
    ];
    let near = (
        Just(ChainType::Filter),
        hook(&[0, 1, 2, 3, 4]),
        well_known(),
    );
    (prop_oneof![hooks, near], any::<bool>(), option(comment()))
        .prop_map(|((kind, hook, priority), drop, comment)| {
            let mut chain = Chain::base("", kind, hook, priority);
            if let (true, Some(base)) = (drop, chain.base.as_mut()) {
                base.policy = Policy::Drop;
            }
            Chain { comment, ..chain }
        })
        .boxed()
}

fn hook(numbers: &'static [u32]) -> BoxedStrategy<Hook> {
    proptest::sample::select(numbers)
        .prop_map(Hook::from)
        .boxed()
}

/// Priorities that have names, and adjacent ones.
fn well_known() -> BoxedStrategy<i32> {
    let names: &[i32] = &[
        priority::RAW,
        priority::MANGLE,
        priority::DSTNAT,
        priority::FILTER,
        priority::SECURITY,
        priority::SRCNAT,
    ];
    (proptest::sample::select(names), -11..=11i32)
        .prop_map(|(n, d)| n + d)
        .boxed()
}

fn place(chain: &Chain) -> Place {
    let Some(base) = &chain.base else {
        return Place::Regular;
    };
    let kind = match base.chain_type {
        ChainType::Nat => Kind::Nat,
        ChainType::Route => Kind::Route,
        _ => Kind::Filter,
    };
    Place::Base(kind, base.hook)
}

/// A chain with rules that it may contain.
fn filled(chain: Chain, regular: usize, sets: Vec<Set>) -> BoxedStrategy<Chain> {
    // A regular chain jumps only to later ones, so there is no loop.
    let first = chain
        .name
        .strip_prefix("regular")
        .and_then(|n| n.parse::<usize>().ok());
    let targets: Vec<String> = (first.map_or(0, |n| n + 1)..regular)
        .map(|i| format!("regular{i}"))
        .collect();
    // A verdict map may jump to any regular chain, so only base chains use it: no chain jumps to them.
    let sets = if chain.base.is_some() {
        sets
    } else {
        sets::without_verdicts(sets)
    };
    proptest::collection::vec(rules::rule(place(&chain), targets, sets), 0..6)
        .prop_map(move |rules| Chain {
            rules,
            ..chain.clone()
        })
        .boxed()
}
