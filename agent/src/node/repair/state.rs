//! Whether a pod is redirected as it asks, and the repair of one that is not: the plugin's own path.

use super::sandbox::{Place, Processes, owns};
use super::settings::RepairSettings;
use crate::node::pods::PodView;
use crate::node::status::Mode;
use std::net::IpAddr;
use std::time::{Duration, Instant};
use weir_cni::compile::Engine;
use weir_cni::config::SidecarConfig;
use weir_cni::log::Logger;
use weir_cni::plugin::{Backend, Kernel, Phase, Phases, Wish, choose_engine};
use weir_cni::pod::{Placement, PodFacts, SidecarDecision, redirect_from};
use weir_cni::redirection::Sandbox;
use weir_netfilter::nft;

/// Rules that did not change since are read again after this long all the same: the generation of nf_tables
/// says nothing about routes and policy rules.
const WHOLE: Duration = Duration::from_secs(600);

/// What is wished for a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Wanted {
    pub(crate) addresses: Vec<IpAddr>,
    config: SidecarConfig,
}

impl Wanted {
    pub(crate) fn mode(&self) -> Mode {
        match self.config.inbound_interception_mode.as_str() {
            "TPROXY" => Mode::Tproxy,
            _ => Mode::Redirect,
        }
    }
}

/// A pod that was seen to be as it should.
#[derive(Debug)]
pub(crate) struct Verified {
    place: Place,
    wanted: Wanted,
    /// Who holds the rules.
    pub(crate) engine: Option<Engine>,
    /// Of nf_tables, where the rules are there and every change is told by it.
    generation: Option<u32>,
    whole: Instant,
}

impl Verified {
    /// Whether it was seen for this wish.
    pub(crate) fn is_for(&self, wanted: &Wanted) -> bool {
        self.wanted == *wanted
    }
}

/// What was found.
#[derive(Debug)]
pub(crate) enum Found {
    /// All was as it should be.
    Right(Verified),
    /// It was not, and is now.
    Repaired {
        now: Verified,
        differences: Vec<String>,
        summary: String,
    },
}

/// What the pod asks for; none: nothing, or its namespace is not known or not its own.
///
/// # Errors
/// It asks for something that cannot be understood.
pub(crate) fn wanted(view: &PodView, settings: &RepairSettings) -> Result<Option<Wanted>, String> {
    let Some((facts, addresses)) = asks(view) else {
        return Ok(None);
    };
    if settings.exclude_namespaces.contains(&facts.namespace) {
        return Ok(None);
    }
    asked(&facts, settings).map(|config| Some(Wanted { addresses, config }))
}

/// A pod that lives, has addresses of its own, and asks for redirection.
pub(crate) fn asks(view: &PodView) -> Option<(PodFacts, Vec<IpAddr>)> {
    let facts = PodFacts::of(&view.pod);
    let lives = matches!(view.phase.as_str(), "Pending" | "Running") && !view.deleting;
    let addresses = view.addresses();
    if !lives || facts.host_network || addresses.is_empty() {
        return None;
    }
    match SidecarDecision::of(&facts) {
        SidecarDecision::Skip(_) => None,
        SidecarDecision::Redirect => Some((facts, addresses)),
    }
}

/// The same without asking whether the plugin would redirect the pod.
///
/// # Errors
/// It has the node's network, no address yet, or asks for what cannot be understood.
pub(crate) fn demanded(view: &PodView, settings: &RepairSettings) -> Result<Wanted, String> {
    let facts = PodFacts::of(&view.pod);
    let addresses = view.addresses();
    if facts.host_network {
        return Err(
            "it lives in the node's own network namespace, which is never redirected".into(),
        );
    }
    if addresses.is_empty() {
        return Err("it has no address yet, so its network namespace cannot be told".into());
    }
    asked(&facts, settings).map(|config| Wanted { addresses, config })
}

fn asked(facts: &PodFacts, settings: &RepairSettings) -> Result<SidecarConfig, String> {
    let placement = Placement {
        native_nftables: settings.native_nftables,
        ..Placement::default()
    };
    let asked = redirect_from(facts, &placement).map_err(|e| e.to_string())?;
    Ok(asked.config)
}

/// Whether nothing speaks for another look: the same process, wish and generation as when all was right.
pub(crate) fn still_right(verified: &Verified, wanted: &Wanted, processes: &Processes) -> bool {
    let Some(generation) = verified.generation else {
        return false;
    };
    verified.wanted == *wanted
        && verified.whole.elapsed() < WHOLE
        && processes.is_there(&verified.place)
        && processes
            .open(&verified.place)
            .is_ok_and(|sandbox| generation_of(&sandbox) == Some(generation))
}

/// Compares, and makes it right. Who owns the namespace is looked at again right before anything is written.
///
/// # Errors
/// The namespace is not the pod's, cannot be read, or the rules are refused. It is as it was.
pub(crate) fn heal(
    place: Place,
    wanted: &Wanted,
    processes: &Processes,
    phases: &Phases,
) -> Result<Found, String> {
    let open = || {
        let sandbox = processes.open(&place)?;
        owns(&sandbox, &wanted.addresses).map(|()| sandbox)
    };
    let sandbox = phases.measure(Phase::Facts, open)?;
    // By our descriptor: a process may end, and its number be given away.
    let path = sandbox.netns().path();
    let log = Logger::silent();
    // The plugin runs with the runtime's environment, which is not this one.
    let lookup = |_: &str| None;
    let wish = Wish {
        netns: &path,
        config: &wanted.config,
        lookup: &lookup,
        log: &log,
        phases,
    };
    let differences = Kernel.verify(&wish)?;
    let mut summary = None;
    if !differences.is_empty() {
        owns(&sandbox, &wanted.addresses)?;
        summary = Some(Kernel.apply(&wish)?.summary);
    }
    let engine = choose_engine(wanted.config.native_nftables, &sandbox).ok();
    let now = Verified {
        place,
        wanted: wanted.clone(),
        engine,
        generation: match engine {
            Some(Engine::Nft) => generation_of(&sandbox),
            _ => None,
        },
        whole: Instant::now(),
    };
    Ok(match summary {
        None => Found::Right(now),
        Some(summary) => Found::Repaired {
            now,
            differences,
            summary,
        },
    })
}

fn generation_of(sandbox: &Sandbox) -> Option<u32> {
    let read = || nft::Engine::open()?.generation();
    sandbox.netns().run(read).ok()?.ok()
}
