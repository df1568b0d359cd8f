//! Large sets of ipset and of nf_tables.
//!
//! Every sample has a fresh namespace, the ways alternate, and the tool checks the result of each.

use std::fmt::Write;
use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use crate::peak::Samples;
use crate::report::Report;
use crate::run::{Call, Scratch, places};
use crate::setup::{Setup, entered};

/// Distinct addresses that are not consecutive: multiplication by an odd factor permutes the 24-bit numbers.
fn addresses(count: u32) -> Vec<Ipv4Addr> {
    let spread = |n: u32| 0x0a00_0000 | (n.wrapping_mul(0x009e_3779) & 0x00ff_ffff);
    (0..count).map(|n| Ipv4Addr::from(spread(n))).collect()
}

/// Measures adding, listing and removing the addresses of a `hash:ip`.
pub(crate) fn ipset(
    setup: &Setup,
    scratch: &Scratch,
    count: u32,
    samples: usize,
    report: &mut Report,
) -> Result<(), String> {
    let addresses = addresses(count);
    let lines = |verb: &str| {
        addresses.iter().fold(String::new(), |mut text, address| {
            let _ = writeln!(text, "{verb} bench {address}");
            text
        })
    };
    let create = format!("create bench hash:ip family inet maxelem {count}\n");
    let add = scratch.write("add.ipset", (create + &lines("add")).as_bytes())?;
    let del = scratch.write("del.ipset", lines("del").as_bytes())?;
    let mut wanted: Vec<String> = lines("add").lines().map(str::to_owned).collect();
    wanted.sort_unstable();

    const STEPS: [(&str, &str); 3] = [
        ("add", "ipset restore"),
        ("list", "ipset save"),
        ("remove", "ipset restore of del"),
    ];
    let mut costs: [[Samples; 2]; STEPS.len()] = Default::default();
    let mut empty = Samples::default();
    for round in 0..samples {
        empty.add(setup, &Call::new(&[&setup.empty]))?;
        let places = places(2)?;
        for turn in 0..2 {
            let way = (turn + round) % 2;
            let netns = &places[way].path;
            for (step, cost) in costs.iter_mut().enumerate() {
                let call = match (step, way) {
                    (0, 0) => setup.restore_sets(netns, &add),
                    (1, 0) => setup.show(netns, "ipset"),
                    (_, 0) => setup.restore_sets(netns, &del),
                    (0, _) => entered(netns, &["ipset", "restore", "-file", &add]),
                    (1, _) => entered(netns, &["ipset", "save"]),
                    _ => entered(netns, &["ipset", "restore", "-file", &del]),
                };
                cost[way].add(setup, &call)?;
                if step == 1 {
                    same_elements(&call, &wanted)?;
                }
                let held = elements(&entered(netns, &["ipset", "save"]))?;
                let right = match step {
                    2 => held.is_empty(),
                    _ => held == wanted,
                };
                if !right {
                    return Err(format!("{:?}: {} elements", call.arguments, held.len()));
                }
            }
        }
    }
    Report::heading(&format!("ipset, {count} addresses, exec to exit"));
    for ((name, tool), [weir, other]) in STEPS.iter().zip(&costs) {
        weir.report(&format!("weir, {name}"), report);
        other.report(tool, report);
    }
    for ((name, tool), [weir, other]) in STEPS.iter().zip(&costs) {
        let name = format!("{name} / {tool}");
        weir.wall_goal(other, &name, 0.8, report);
        weir.peak_goal(other, &name, 0.5, report);
        other.peak_floor(&empty, report);
    }
    Ok(())
}

/// The elements that a command lists, sorted: their order depends on the set's random hash seed.
fn elements(call: &Call) -> Result<Vec<String>, String> {
    let text = call.output()?;
    let adds = text.lines().filter(|l| l.starts_with("add "));
    let mut adds: Vec<String> = adds.map(str::to_owned).collect();
    adds.sort_unstable();
    Ok(adds)
}

fn same_elements(call: &Call, wanted: &[String]) -> Result<(), String> {
    let same = elements(call)? == wanted;
    same.then_some(())
        .ok_or_else(|| format!("{:?}: lists other elements", call.arguments))
}

/// Measures creating an nf_tables set in one transaction: one that grows while it is filled, and one that declares its size.
///
/// For a declared size the kernel creates a hash table that never grows (`nft_hash_fast_ops`); otherwise one that is
/// doubled repeatedly while it is filled (`nft_rhash_ops`), and every program waits for that in the same way.
pub(crate) fn nft(
    setup: &Setup,
    scratch: &Scratch,
    count: u32,
    samples: usize,
    report: &mut Report,
) -> Result<(), String> {
    let mut addresses = addresses(count);
    addresses.sort_unstable();
    let text = |between: &str| {
        let words: Vec<String> = addresses.iter().map(ToString::to_string).collect();
        words.join(between)
    };
    let list = scratch.write("addresses", text("\n").as_bytes())?;
    let size = count.to_string();
    for (kind, sized) in [("set", None), ("sized set", Some(&*size))] {
        let declared = sized.map_or_else(String::new, |size| format!(" size {size}\n"));
        let script = format!(
            "table ip bench {{\n set s {{\n type ipv4_addr\n{declared} elements = {{ {} }}\n }}\n}}\n",
            text(",\n")
        );
        let script = scratch.write("set.nft", script.as_bytes())?;

        const WAYS: [&str; 2] = ["weir, one transaction", "nft -f"];
        let mut costs: [Samples; WAYS.len()] = Default::default();
        for round in 0..samples {
            let places = places(WAYS.len())?;
            for turn in 0..WAYS.len() {
                let way = (turn + round) % WAYS.len();
                let netns = &places[way].path;
                let weir = [&[&*setup.set, netns, &list][..], sized.as_slice()].concat();
                let call = match way {
                    0 => Call::new(&weir),
                    _ => entered(netns, &["nft", "-f", &script]),
                };
                costs[way].add(setup, &call)?;
            }
            for place in &places {
                wait_for(setup, &place.path, &addresses)?;
            }
        }
        Report::heading(&format!(
            "nf_tables, a {kind}, {count} elements, exec to exit"
        ));
        for (name, cost) in WAYS.iter().zip(&costs) {
            cost.report(&format!("{kind}, {name}"), report);
        }
        let [one, tool] = &costs;
        let name = format!("{kind}, one transaction / nft -f");
        one.wall_goal(tool, &name, 0.5, report);
        one.peak_goal(tool, &name, 0.3, report);
    }
    Ok(())
}

/// Polls until the tool lists exactly these addresses. For a moment after the set was filled the
/// kernel still moves elements to a larger hash table; a dump then repeats some elements and misses others.
fn wait_for(setup: &Setup, netns: &str, wanted: &[Ipv4Addr]) -> Result<(), String> {
    let deadline = Instant::now() + Duration::from_secs(10);
    loop {
        let text = setup.listing(netns)?;
        let words = text.split(|c: char| c != '.' && !c.is_ascii_digit());
        let mut held: Vec<Ipv4Addr> = words.flat_map(str::parse).collect();
        held.sort_unstable();
        if held == wanted {
            return Ok(());
        }
        if Instant::now() > deadline {
            return Err(format!("{} elements and not those wanted", held.len()));
        }
    }
}

#[test]
fn every_address_is_another() {
    let many = addresses(100_000);
    let distinct: std::collections::HashSet<_> = many.iter().collect();
    assert_eq!(distinct.len(), many.len());
    assert!(many.iter().all(|a| a.octets()[0] == 10));
}
