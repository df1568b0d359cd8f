//! Reading many rules that another writer installed.

use crate::peak::Samples;
use crate::report::Report;
use crate::run::{Call, Scratch, places};
use crate::setup::{Setup, entered};

pub(crate) fn run(
    setup: &Setup,
    scratch: &Scratch,
    rules: usize,
    samples: usize,
    report: &mut Report,
) -> Result<(), String> {
    let address = |n: usize| format!("10.{}.{}.{}", n >> 16 & 255, n >> 8 & 255, n & 255);
    let many = |rule: &dyn Fn(usize) -> String| (0..rules).map(rule).collect::<String>();
    let nft = many(&|n| {
        let port = 1 + n % 65_535;
        format!(
            "  ip saddr {} tcp dport {port} counter accept\n",
            address(n)
        )
    });
    let nft = format!("table ip bench {{\n chain forward {{\n{nft} }}\n}}\n");
    let legacy = many(&|n| {
        let (address, port) = (address(n), 1 + n % 65_535);
        format!("-A FORWARD -s {address}/32 -p tcp -m tcp --dport {port} -j ACCEPT\n")
    });
    let legacy = format!("*filter\n{legacy}COMMIT\n");
    let nft = scratch.write("rules.nft", nft.as_bytes())?;
    let legacy = scratch.write("rules.v4", legacy.as_bytes())?;

    let place = &places(1)?[0].path;
    entered(place, &["nft", "-f", &nft]).run()?;
    let load = ["iptables-legacy-restore", &legacy];
    setup.own_lock(entered(place, &load)).run()?;

    Report::heading(&format!("Reading {rules} rules, exec to exit"));
    for (engine, tool) in [
        ("nft", &["nft", "list", "ruleset"][..]),
        ("xtables", &["iptables-legacy-save"][..]),
    ] {
        let ways = [setup.show(place, engine), entered(place, tool)];
        let [ours, theirs] = [listed(&ways[0])?, listed(&ways[1])?];
        let count = ours.lines().filter(|l| l.contains("tcp")).count();
        if ours != theirs || count != rules {
            return Err(format!("weir and {tool:?} do not list the same rules"));
        }
        let mut costs: [Samples; 2] = Default::default();
        for round in 0..samples {
            for turn in 0..2 {
                let way = (turn + round) % 2;
                costs[way].add(setup, &ways[way])?;
            }
        }
        let (show, tool) = (format!("weir show --engine {engine}"), tool.join(" "));
        costs[0].report(&show, report);
        costs[1].report(&tool, report);
        let name = format!("show, {engine} / {tool}");
        costs[0].wall_goal(&costs[1], &name, 0.5, report);
    }
    Ok(())
}

/// The output without comments: those of the tools contain the time.
fn listed(call: &Call) -> Result<String, String> {
    let text = call.output()?;
    let lines = text.lines().filter(|l| !l.starts_with('#'));
    Ok(lines.map(|l| format!("{l}\n")).collect())
}
