//! Many pods at once: 200, 16 at a time.
//!
//! The plugin reads each pod over TLS from an API server that runs in this process, on the same
//! processors; the shell-outs do not read the pod. Afterwards the rules of every namespace are checked.

use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use crate::report::{Goal, Report};
use crate::run::{Call, Place, Scratch, children_cpu, micros, places};
use crate::setup::Setup;
use crate::stats::ratio;
use weir_testing::api_server::{Answer, ApiServer, Asked};
use weir_testing::pods;

const AT_A_TIME: usize = 16;
const WAYS: [&str; 3] = [
    "weir-cni ADD, pod over TLS",
    "shell-out, no pod read",
    "weir apply",
];

pub(crate) fn run(
    setup: &Setup,
    scratch: &Scratch,
    pods: usize,
    rounds: usize,
    report: &mut Report,
) -> Result<(), String> {
    let run_dir = scratch.path().to_owned();
    let server = ApiServer::scripted(answer);
    server.write_kubeconfig(&run_dir);
    let rules = rules(setup, &run_dir)?;
    let file = scratch.write("throughput.nft", rules.as_bytes())?;

    // Pods per second, and processor time per pod.
    let mut rates: [Vec<f64>; WAYS.len()] = Default::default();
    let mut costs: [Vec<f64>; WAYS.len()] = Default::default();
    // Kept until the end, see `places`.
    let mut used = Vec::new();
    for round in 0..rounds {
        for turn in 0..WAYS.len() {
            let way = (turn + round) % WAYS.len();
            let places = places(pods)?;
            let (cpu, start) = (children_cpu(), Instant::now());
            all(&places, |n, netns| match way {
                0 => setup.add(netns, &format!("web-{n}"), &run_dir).run(),
                1 => setup.shell_out(netns, &file).iter().try_for_each(Call::run),
                _ => setup.apply(netns).run(),
            })?;
            let wall = start.elapsed();
            rates[way].push(pods as f64 / wall.as_secs_f64());
            costs[way].push(micros(children_cpu() - cpu) / pods as f64);
            all(&places, |_, netns| {
                let same = setup.listing(netns)? == rules;
                same.then_some(())
                    .ok_or_else(|| format!("{}: other rules in {netns}", WAYS[way]))
            })?;
            used.push(places);
        }
    }
    Report::heading(&format!("{pods} pods, {AT_A_TIME} at a time, no failure"));
    for (way, name) in WAYS.iter().enumerate() {
        report.arm(&format!("{name}, rate"), "pod/s", &rates[way]);
        report.arm(&format!("{name}, cpu of one"), "us", &costs[way]);
    }
    report.goal(
        "ADD / shell-out, rate",
        ratio(&rates[0], &rates[1]),
        Goal::AtLeast(1.0),
    );
    report.goal(
        "apply / shell-out, rate",
        ratio(&rates[2], &rates[1]),
        Goal::AtLeast(2.0),
    );
    Ok(())
}

/// The rules that every way must produce. Those of the plugin for the pod and those of `weir apply`
/// for the configuration must be equal; otherwise the ways could not be compared.
fn rules(setup: &Setup, run_dir: &Path) -> Result<String, String> {
    let places = places(2)?;
    setup.add(&places[0].path, "web-0", run_dir).run()?;
    setup.apply(&places[1].path).run()?;
    let (add, apply) = (
        setup.listing(&places[0].path)?,
        setup.listing(&places[1].path)?,
    );
    if add.is_empty() || add != apply {
        return Err(format!(
            "ADD and apply do not make the same rules:\n{add}\n{apply}"
        ));
    }
    Ok(add)
}

/// Calls `work` for every namespace, several at a time. Returns the first failure.
pub(crate) fn all(
    places: &[Place],
    work: impl Fn(usize, &str) -> Result<(), String> + Sync,
) -> Result<(), String> {
    let next = AtomicUsize::new(0);
    let failures = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..AT_A_TIME {
            scope.spawn(|| {
                loop {
                    let n = next.fetch_add(1, Ordering::Relaxed);
                    let Some(place) = places.get(n) else { return };
                    if let Err(failure) = work(n, &place.path) {
                        failures.lock().expect("failures").push(failure);
                    }
                }
            });
        }
    });
    let failures = failures.into_inner().expect("failures");
    match failures.first() {
        None => Ok(()),
        Some(first) => Err(format!(
            "{} of {} failed: {first}",
            failures.len(),
            places.len()
        )),
    }
}

/// Returns a pod with a sidecar, by the name in the path `/api/v1/namespaces/NS/pods/NAME`.
fn answer(asked: &Asked) -> Answer {
    match *asked.path.split('/').collect::<Vec<_>>() {
        [_, _, _, _, namespace, "pods", name] => {
            let mut pod = pods::sidecar(namespace, name);
            // The plugin regards a pod with another UID as an earlier pod of the same name.
            pod["metadata"]["uid"] = crate::agent::uid(name).into();
            Answer::Body(200, pod.to_string())
        }
        _ => Answer::Status(404),
    }
}
