//! One `weir apply --engine xtables`, compared with the legacy tools.
//!
//! The shell-out runs four programs: `save` for each family, because the existing rules must be known
//! first, then `restore --noflush` of the same rules. Unlike weir it does not read back.
//! It uses a separate lock file, so that waiting for another program is not measured.

use crate::report::{Goal, Report};
use crate::run::{Call, Cost, Scratch, measure, places};
use crate::setup::{Setup, entered};
use crate::stats::ratio;

pub(crate) fn run(
    setup: &Setup,
    scratch: &Scratch,
    samples: usize,
    report: &mut Report,
) -> Result<(), String> {
    let places = places(samples * 2 + 1)?;
    let (first, places) = places.split_first().expect("at least one");
    setup.apply_legacy(&first.path).run()?;
    let rules = held(setup, &first.path)?;
    let [v4, v6] = &rules;
    let count = |text: &str| text.lines().filter(|l| l.starts_with("-A ")).count();
    if count(v4) == 0 || count(v6) == 0 {
        return Err("weir apply --engine xtables: made no rules for one of the families".into());
    }
    let files = [
        scratch.write("rules.v4", v4.as_bytes())?,
        scratch.write("rules.v6", v6.as_bytes())?,
    ];

    let mut costs: [Vec<Cost>; 2] = Default::default();
    for (round, places) in places.chunks_exact(2).enumerate() {
        for turn in 0..2 {
            let way = (turn + round) % 2;
            let netns = &places[way].path;
            let calls = match way {
                0 => vec![setup.apply_legacy(netns)],
                _ => shell_out(setup, netns, &files),
            };
            costs[way].push(measure(&calls)?);
            if held(setup, netns)? != rules {
                return Err("the legacy rules are not the same".into());
            }
        }
    }

    let wall = |way: usize| costs[way].iter().map(|c| c.wall).collect::<Vec<_>>();
    let cpu = |way: usize| costs[way].iter().map(|c| c.cpu).collect::<Vec<_>>();
    Report::heading(&format!(
        "One pod, legacy tables, {} + {} rules, exec to exit",
        count(v4),
        count(v6)
    ));
    let names = ["weir apply --engine xtables", "save x2, restore x2"];
    for (way, name) in names.iter().enumerate() {
        report.arm(&format!("{name}, wall"), "us", &wall(way));
        report.arm(&format!("{name}, cpu"), "us", &cpu(way));
    }
    report.goal(
        "xtables apply / legacy tools, wall",
        ratio(&wall(0), &wall(1)),
        Goal::AtMost(0.3),
    );
    Ok(())
}

fn shell_out(setup: &Setup, netns: &str, [v4, v6]: &[String; 2]) -> Vec<Call> {
    [
        &["iptables-legacy-save"][..],
        &["ip6tables-legacy-save"],
        &["iptables-legacy-restore", "--noflush", v4],
        &["ip6tables-legacy-restore", "--noflush", v6],
    ]
    .map(|words| setup.own_lock(entered(netns, words)))
    .into()
}

/// The tables of both families as the tools list them, without comments, which contain the time.
fn held(setup: &Setup, netns: &str) -> Result<[String; 2], String> {
    let of = |program| {
        let text = setup.own_lock(entered(netns, &[program])).output()?;
        let lines = text.lines().filter(|l| !l.starts_with('#'));
        Ok::<_, String>(lines.map(|l| format!("{l}\n")).collect::<String>())
    };
    Ok([of("iptables-legacy-save")?, of("ip6tables-legacy-save")?])
}
