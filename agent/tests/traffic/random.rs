//! For every configuration, both engines have the same effect on every flow.
//!
//! If nf_tables is named, the test leaves out the intended differences: IPv6 that is not programmed, and prefixes of interface names.
//! `alike` tests these, and packets that no flow has.
//!
//! `WEIR_LONG` tries many configurations, and `WEIR_SEED` repeats a run. Earlier failures are stored in `proptest-regressions` and run
//! first.

mod configs;

use std::fmt::Write as _;
use std::net::SocketAddr;

use configs::configs;
use proptest::prelude::{ProptestConfig, Strategy};
use proptest::test_runner::{FileFailurePersistence, RngSeed, TestCaseError, TestRunner};
use serde_json::Value;
use weir_cni::compile::Engine;
use weir_demo::{Flow, Lab, Mode, Outcome, Owner, Place, Protocol, Stage};
use weir_netlink::route::AddressFamily;
use weir_rules::show;

use crate::lab_or_skip;
use crate::support::{FAMILIES, lab, program_for, tcp};

const ENGINES: [Engine; 2] = [Engine::Nft, Engine::Xtables];
/// A group of the application; random settings include or exclude some of its groups.
const MEMBER: Owner = Owner {
    uid: 1000,
    gid: 2000,
};
/// In the proxy's group, but not its user.
const COMPANION: Owner = Owner {
    uid: 1000,
    gid: 1337,
};

/// The addresses of the pod and of its peer on one more interface.
type Ends = (SocketAddr, SocketAddr);

/// The flows of all senders. The addresses are the same in every lab.
fn flows(lab: &Lab, net1: Ends, guest: Ends, family: AddressFamily) -> Vec<Flow> {
    let at = |place, port| SocketAddr::new(lab.address(place, family), port);
    let service = |port| SocketAddr::new(lab.service(family), port);
    let outside = |port| SocketAddr::new(lab.outside(family), port);
    let mut flows = Vec::new();
    for port in [8080, 9090, 15020, 15008, 4321] {
        flows.push(tcp("in", Place::Client, at(Place::Pod, port)));
    }
    flows.push(tcp("in at net1", Place::Server, net1.0));
    flows.push(tcp("out at net1", Place::Pod, net1.1));
    flows.push(tcp("guest", Place::Client, guest.0).source((guest.1.ip(), 0).into()));
    for port in [80, 5432, 53] {
        flows.push(tcp("service", Place::Pod, service(port)));
        flows.push(tcp("outside", Place::Pod, outside(port)));
    }
    for owner in [MEMBER, COMPANION, Owner::PROXY, Owner::ROOT] {
        flows.push(tcp("service", Place::Pod, service(443)).of(owner));
        flows.push(tcp("its own pod", Place::Pod, at(Place::Pod, 8080)).of(owner));
        flows.push(Flow::new("query", Protocol::Udp, Place::Pod, service(53)).of(owner));
    }
    flows.push(tcp("another pod", Place::Pod, at(Place::Server, 80)));
    flows
}

/// The result of one flow.
struct Probe {
    flow: String,
    /// The receiver, what it learned, and whether the answer arrived; or that nothing received the flow.
    decision: String,
    /// The first result, if the flow was sent twice.
    lost: Option<String>,
}

impl Probe {
    /// Sends a flow. If it fails, sends it again from a new socket: a packet may be lost, but a decision repeats.
    fn send(stage: &Stage<'_>, flow: &Flow) -> Self {
        let once = || match stage.send(flow) {
            Ok(outcome) => (decision(&outcome), is_whole(&outcome)),
            Err(e) => (format!("failed: {e}"), false),
        };
        let (first, is_whole) = once();
        let (decision, lost) = if is_whole {
            (first, None)
        } else {
            (once().0, Some(first))
        };
        if lost.as_ref().is_some_and(|lost| *lost != decision) {
            println!("sent again: {flow}: {lost:?}, then {decision}");
        }
        Self {
            flow: flow.to_string(),
            decision,
            lost,
        }
    }

    fn line(&self) -> String {
        match &self.lost {
            None => self.decision.clone(),
            Some(lost) if *lost == self.decision => format!("{lost} (twice)"),
            Some(lost) => format!("{} (sent again; first {lost})", self.decision),
        }
    }
}

fn is_whole(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::Received { answered: true, .. })
}

/// The complete outcome except the sender's port, which differs if the flow is sent again.
fn decision(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Received { local, source, .. } => {
            format!("{outcome}, at {local}, from {}", source.ip())
        }
        Outcome::Lost(_) => outcome.to_string(),
    }
}

/// One engine's rules as the kernel lists them, and their effect.
struct Seen {
    listing: String,
    probes: Vec<Probe>,
}

fn seen(named: Option<Engine>, engine: Engine, mode: Mode, config: &Value) -> Seen {
    let lab = lab().expect("there was one before");
    let net1 = lab.attach("net1", Place::Server, 9).expect("net1");
    let guest = lab.attach("k6t-a", Place::Client, 8).expect("k6t-a");
    let pod = lab.netns(Place::Pod);
    program_for(pod, named, engine, config);
    let listing = match engine {
        Engine::Nft => show::nft(pod).expect("read").to_string(),
        Engine::Xtables => show::legacy(pod).expect("read").to_string(),
    };
    let stage = Stage::open(&lab, mode).expect("everybody in place");
    let mut probes = Vec::new();
    for family in FAMILIES {
        let net1 = (
            (net1.pod(family), 8080).into(),
            (net1.peer(family), 80).into(),
        );
        let guest = (
            (guest.pod(family), 8080).into(),
            (guest.peer(family), 0).into(),
        );
        let flows = flows(&lab, net1, guest, family);
        probes.extend(flows.iter().map(|flow| Probe::send(&stage, flow)));
    }
    Seen { listing, probes }
}

/// The complete description of a difference.
fn explain(config: &Value, nft: &Seen, xtables: &Seen) -> Option<String> {
    let pairs = || nft.probes.iter().zip(&xtables.probes);
    let differs = |(a, b): &(&Probe, &Probe)| a.decision != b.decision;
    if !pairs().any(|pair| differs(&pair)) {
        return None;
    }
    let mut text = format!("the engines decide differently (!)\n{config:#}\n");
    for pair in pairs() {
        let (a, b) = pair;
        let sign = if differs(&pair) { '!' } else { ' ' };
        let lines = (a.line(), b.line());
        let _ = writeln!(
            text,
            "{sign} {}\n    nft:     {}\n    xtables: {}",
            a.flow, lines.0, lines.1
        );
    }
    text.extend(["\n", &nft.listing, "\n", &xtables.listing]);
    Some(text)
}

/// Fails with the difference that `differs` returns for a random value.
///
/// `cases` are the numbers of values without and with `WEIR_LONG`. Earlier failures are stored in `kept` and run first.
pub(super) fn for_all<S: Strategy>(
    values: &S,
    cases: [u32; 2],
    kept: &'static str,
    differs: impl Fn(S::Value) -> Option<String>,
) {
    let is_long = std::env::var_os("WEIR_LONG").is_some();
    let cases = crate::effort::cases(cases[usize::from(is_long)]);
    let seed = crate::effort::seed();
    println!("{cases} cases; the same again with WEIR_SEED={seed}");
    let config = ProptestConfig {
        cases,
        // Each step builds a lab for each engine.
        max_shrink_iters: 60,
        failure_persistence: Some(Box::new(FileFailurePersistence::Direct(kept))),
        rng_seed: RngSeed::Fixed(seed),
        ..ProptestConfig::default()
    };
    let outcome = TestRunner::new(config).run(values, |value| {
        differs(value).map_or(Ok(()), |text| Err(TestCaseError::fail(text)))
    });
    if let Err(e) = outcome {
        panic!("WEIR_SEED={seed}: {e}");
    }
}

#[test]
fn both_engines_do_the_same_to_every_flow() {
    drop(lab_or_skip!());
    let kept = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/proptest-regressions/traffic.txt"
    );
    for_all(
        &configs(),
        [40, 12_000],
        kept,
        |(is_named, mode, config)| {
            // In parallel, because creating and deleting namespaces takes most of the time.
            let [nft, xtables] = std::thread::scope(|scope| {
                let config = &config;
                let running = ENGINES.map(|engine| {
                    let named = is_named.then_some(engine);
                    scope.spawn(move || seen(named, engine, mode, config))
                });
                running.map(|one| one.join().expect("it says itself why not"))
            });
            explain(&config, &nft, &xtables)
        },
    );
}
