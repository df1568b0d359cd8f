//! One `weir apply`, compared with the shell-out and with lower bounds.
//!
//! The shell-out runs two programs, because the existing rules must be known first:
//! `nsenter nft -j list ruleset`, then `nsenter nft -f FILE` with the same rules. Unlike weir it does
//! not read back. Every sample has a fresh namespace, and the ways alternate, so that other load on
//! the machine affects all of them.

use crate::capture;
use crate::report::{Goal, Report};
use crate::run::{Call, Cost, Scratch, measure, places};
use crate::setup::Setup;
use crate::stats::ratio;

const WAYS: [&str; 6] = [
    "weir apply",
    "shell-out",
    "weir apply, nothing to do",
    "shell-out, replacing",
    "floor: replay of the same system calls",
    "floor: an empty static program",
];

pub(crate) fn run(
    setup: &Setup,
    scratch: &Scratch,
    samples: usize,
    report: &mut Report,
) -> Result<(), String> {
    let places = places(samples * WAYS.len() + 1)?;
    let (last, places) = places.split_last().expect("at least one");
    let apply = setup.apply(&last.path);
    let words: Vec<&str> = apply.arguments.iter().map(String::as_str).collect();
    let script = scratch.write(
        "script",
        &capture::script(&words, &last.path, scratch.path())?,
    )?;
    let rules = setup.listing(&last.path)?;
    let fresh = scratch.write("fresh.nft", rules.as_bytes())?;
    let again = scratch.write("again.nft", replacing(&rules).as_bytes())?;

    let mut costs: [Vec<Cost>; WAYS.len()] = Default::default();
    for (round, places) in places.chunks_exact(WAYS.len()).enumerate() {
        for turn in 0..WAYS.len() {
            // The order rotates, so that no way always follows the same other one.
            let way = (turn + round) % WAYS.len();
            let netns = &places[way].path;
            let calls = match way {
                0 => vec![setup.apply(netns)],
                1 => setup.shell_out(netns, &fresh),
                2 => {
                    setup.apply(netns).run()?;
                    vec![setup.apply(netns)]
                }
                3 => {
                    setup
                        .shell_out(netns, &fresh)
                        .iter()
                        .try_for_each(Call::run)?;
                    setup.shell_out(netns, &again)
                }
                4 => vec![Call::new(&[&setup.replay, &script, netns])],
                _ => vec![Call::new(&[&setup.empty])],
            };
            costs[way].push(measure(&calls)?);
            // A way that does not produce the rules must not be compared.
            if way != 5 && setup.listing(netns)? != rules {
                return Err(format!("{}: the rules are not the same", WAYS[way]));
            }
        }
    }

    let wall = |way: usize| costs[way].iter().map(|c| c.wall).collect::<Vec<_>>();
    let cpu = |way: usize| costs[way].iter().map(|c| c.cpu).collect::<Vec<_>>();
    Report::heading(&format!(
        "One pod, {} rules, exec to exit",
        rules.matches("counter").count()
    ));
    for (way, name) in WAYS.iter().enumerate() {
        report.arm(&format!("{name}, wall"), "us", &wall(way));
        report.arm(&format!("{name}, cpu"), "us", &cpu(way));
    }
    report.goal(
        "apply / shell-out, wall",
        ratio(&wall(0), &wall(1)),
        Goal::AtMost(0.5),
    );
    report.goal(
        "apply / shell-out, cpu",
        ratio(&cpu(0), &cpu(1)),
        Goal::AtMost(0.3),
    );
    report.goal(
        "nothing to do / shell-out, wall",
        ratio(&wall(2), &wall(1)),
        Goal::AtMost(0.3),
    );
    report.goal(
        "nothing to do / replacing, wall",
        ratio(&wall(2), &wall(3)),
        Goal::AtMost(0.3),
    );
    report.goal(
        "apply / floor, wall",
        ratio(&wall(0), &wall(4)),
        Goal::AtMost(1.4),
    );
    Ok(())
}

/// The same listing as a file that replaces existing tables.
fn replacing(listing: &str) -> String {
    let mut text = String::new();
    for line in listing.lines().filter(|l| l.starts_with("table ")) {
        let table = line.trim_end_matches(" {");
        text.push_str(&format!("{table}\ndelete {table}\n"));
    }
    text + listing
}
