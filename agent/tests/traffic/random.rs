//! Whatever is configured, both engines do the same to every flow.
//!
//! Where nf_tables are named, left out is where their rules are meant to differ: IPv6 that is not programmed, and prefixes of
//! interface names. `alike` looks at these, and at packets that no flow has.
//!
//! `WEIR_LONG` tries many configurations, `WEIR_SEED` the same ones again. What failed once is kept in
//! `proptest-regressions` and comes first.

mod configs;

use std::fmt::Write as _;
use std::net::SocketAddr;

use configs::configs;
use proptest::prelude::{ProptestConfig, Strategy};
use proptest::test_runner::{FileFailurePersistence, RngSeed, TestCaseError, TestRunner};
use serde_json::Value;
use weir_cni::compile::Engine;
use weir_cni::redirection::Sandbox;
use weir_demo::{Flow, Lab, Mode, Outcome, Owner, Place, Protocol, Stage};
use weir_netlink::route::AddressFamily;

use crate::lab_or_skip;
use crate::support::{FAMILIES, lab, program_for, tcp};

const ENGINES: [Engine; 2] = [Engine::Nft, Engine::Xtables];
/// Of the application; which of them is included or excluded is random.
const MEMBER: Owner = Owner {
    uid: 1000,
    gid: 2000,
};
/// In the proxy's group, but not its user.
const COMPANION: Owner = Owner {
    uid: 1000,
    gid: 1337,
};

/// The pod's address and the other side's on one more interface.
type Ends = (SocketAddr, SocketAddr);

/// What everybody sends. The addresses are the same in every lab.
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

/// What became of one flow.
struct Probe {
    flow: String,
    /// Who got it, what that one knows, and whether the answer came back; or that nobody got it.
    decision: String,
    /// What became of it the first time, when it was sent twice.
    lost: Option<String>,
}

impl Probe {
    /// A flow that comes to nothing is sent again from a fresh socket: a packet may be lost, but a decision is
    /// made twice.
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

/// Everything but the sender's port, which is another one when a flow is sent again.
fn decision(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Received { local, source, .. } => {
            format!("{outcome}, at {local}, from {}", source.ip())
        }
        Outcome::Lost(_) => outcome.to_string(),
    }
}

/// One engine's rules as the kernel holds them, and what they did.
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
        Engine::Nft => Sandbox::show(pod).expect("read").to_string(),
        Engine::Xtables => Sandbox::show_legacy(pod).expect("read").to_string(),
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

/// Everything that is needed to understand a difference.
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

/// Fails with what `differs` says of a random value; `cases` are so many usually and with `WEIR_LONG`. What failed is kept in
/// `kept` and comes first.
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
        // Each step builds a lab for each way.
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
            // Side by side: most of the time goes into making namespaces and taking them away.
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
