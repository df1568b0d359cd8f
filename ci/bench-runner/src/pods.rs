//! The start of a pod with the node agent's cache, compared with a request to the API server, and the cost of the agent.
//!
//! The API server runs in this process and answers at once; a remote one takes longer.

use crate::agent::{Agent, CLUSTER, PODS, answer, directories};
use crate::report::{Goal, Report};
use crate::run::{Cost, Scratch, measure, places};
use crate::setup::Setup;
use crate::stats::{Ratio, ratio};
use weir_testing::api_server::ApiServer;

/// The goal for the agent's resident memory.
const RSS_KIB: f64 = 20.0 * 1024.0;
const WAYS: [&str; 4] = [
    "ADD, pod from the agent",
    "ADD, pod from the API server",
    "ADD without sidecar, pod from the agent",
    "ADD without sidecar, pod from the API server",
];

pub(crate) fn run(
    setup: &Setup,
    scratch: &Scratch,
    samples: usize,
    report: &mut Report,
) -> Result<(), String> {
    let server = ApiServer::scripted(answer);
    // One run directory with the agent's socket, the other without.
    let root = scratch.path().join("pods");
    let dirs = [root.join("run"), root.join("without")];
    directories(&root, &["without"])?;
    server.write_kubeconfig(&dirs[1]);
    let agent = Agent::start(setup, &root, &server)?;
    let (rss, cpu) = agent.wait()?;
    // The plugin sends log lines in both cases.
    let [socket, link] = [0, 1].map(|n| dirs[n].join(weir_cni::plugin::LOG_SOCKET));
    std::os::unix::fs::symlink(socket, link).map_err(|e| e.to_string())?;

    let places = places(samples * WAYS.len())?;
    let mut costs: [Vec<Cost>; WAYS.len()] = Default::default();
    for (round, places) in places.chunks_exact(WAYS.len()).enumerate() {
        for turn in 0..WAYS.len() {
            let way = (turn + round) % WAYS.len();
            let (netns, dir) = (&places[way].path, &dirs[way % 2]);
            let (kind, asked) = (["web", "plain"][way / 2], server.asked().len());
            let call = setup.add(netns, &format!("{kind}-{}", round % (PODS / 2)), dir);
            costs[way].push(measure(&[call])?);
            let redirected = !setup.listing(netns)?.is_empty();
            let asked = server.asked().len() - asked;
            if redirected != (kind == "web") || asked != way % 2 {
                return Err(format!("{}: {asked} requests", WAYS[way]));
            }
        }
    }
    let wall = |way: usize| costs[way].iter().map(|c| c.wall).collect::<Vec<_>>();
    Report::heading("One pod's start by the plugin, exec to exit");
    for (way, name) in WAYS.iter().enumerate() {
        report.arm(&format!("{name}, wall"), "us", &wall(way));
    }
    for (way, name) in [(0, "agent / API server"), (2, "the same without sidecar")] {
        let found = ratio(&wall(way), &wall(way + 1));
        report.goal(&format!("{name}, wall"), found, Goal::AtMost(0.5));
    }
    Report::heading(&format!(
        "The agent with {PODS} pods of its node, {CLUSTER} in the cluster"
    ));
    report.arm("cpu until they are known", "us", &[cpu]);
    report.arm("resident memory", "KiB", &[rss]);
    report.goal(
        "resident memory / 20 MiB",
        Ratio::of_one(rss / RSS_KIB),
        Goal::AtMost(1.0),
    );
    Ok(())
}
