//! Whether a pod is redirected as it asks, and the repair of one that is not: the plugin's own path.

use super::settings::RepairSettings;
use crate::journal::pod::Mode;
use crate::pods::PodView;
use crate::sandboxes::place::{Identity, Place, Processes, Scan, owns};
use std::sync::Arc;
use std::time::{Duration, Instant};
use weir_cni::compile::Engine;
use weir_cni::config::InboundMode;
use weir_cni::log::Logger;
use weir_cni::plugin::{Desired, Deviation, Healed, KernelBackend, Phase, Phases, named_engine};
use weir_cni::pod::{PodFacts, PodRedirect, SidecarDecision, redirect_from};
use weir_cni::redirection::{Fingerprint, Sandbox};

/// Rules that did not change since are read again after this long all the same: a fingerprint does not have what a
/// main table holds.
pub(super) const WHOLE: Duration = Duration::from_secs(600);

/// What is desired for a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Wanted {
    identity: Identity,
    redirect: PodRedirect,
    /// The engine that the plugin's configuration names, if any.
    engine: Option<Engine>,
}

impl Wanted {
    pub(crate) fn mode(&self) -> Mode {
        match self.redirect.annotations.mode {
            InboundMode::Tproxy(_) => Mode::Tproxy,
            InboundMode::Redirect => Mode::Redirect,
        }
    }
}

/// A pod that was seen to be as it should.
#[derive(Debug, Clone)]
pub(crate) struct Verified {
    place: Place,
    wanted: Wanted,
    /// Who holds the rules.
    pub(crate) engine: Option<Engine>,
    /// Where nf_tables hold the rules and every change is told by it: from before they were compared. `None`: the next
    /// look compares them.
    fingerprint: Option<Fingerprint>,
    whole: Instant,
}

impl Verified {
    /// Whether it was seen for this desired state.
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
        differences: Vec<Deviation>,
        summary: String,
    },
}

/// What the pod asks for; none: nothing, or its namespace is not known or not its own.
///
/// # Errors
/// It asks for something that cannot be understood.
pub(crate) fn wanted(view: &PodView, settings: &RepairSettings) -> Result<Option<Wanted>, String> {
    let Some(facts) = asks(view) else {
        return Ok(None);
    };
    if settings.exclude_namespaces.contains(&facts.namespace) {
        return Ok(None);
    }
    let identity = Identity::of(view);
    asked(&facts, identity, settings).map(Some)
}

/// A pod that lives, has addresses of its own, and asks for redirection.
pub(crate) fn asks(view: &PodView) -> Option<PodFacts> {
    let facts = PodFacts::of(&view.pod);
    if !view.lives() || facts.host_network || view.addresses().is_empty() {
        return None;
    }
    match SidecarDecision::of(&facts) {
        SidecarDecision::Skip(_) => None,
        SidecarDecision::Redirect => Some(facts),
    }
}

/// The same without asking whether the plugin would redirect the pod.
///
/// # Errors
/// It has the node's network, no address yet, or asks for what cannot be understood.
pub(crate) fn demanded(view: &PodView, settings: &RepairSettings) -> Result<Wanted, String> {
    let facts = PodFacts::of(&view.pod);
    let identity = Identity::of(view);
    if facts.host_network {
        return Err(
            "it lives in the node's own network namespace, which is never redirected".into(),
        );
    }
    if identity.addresses.is_empty() {
        return Err("it has no address yet, so its network namespace cannot be told".into());
    }
    asked(&facts, identity, settings)
}

fn asked(
    facts: &PodFacts,
    identity: Identity,
    settings: &RepairSettings,
) -> Result<Wanted, String> {
    let redirect = redirect_from(facts).map_err(|e| e.to_string())?;
    let engine = named_engine(settings.native_nftables);
    Ok(Wanted {
        identity,
        redirect,
        engine,
    })
}

/// Whether the result of the last look still holds: same process, same desired state, same rules and routing.
fn still_right(verified: &Verified, wanted: &Wanted, processes: &Processes) -> bool {
    verified.fingerprint.is_some()
        && verified.wanted == *wanted
        && verified.whole.elapsed() < WHOLE
        && processes
            .open(&verified.place, &wanted.identity)
            .is_ok_and(|sandbox| fingerprint_of(&sandbox) == verified.fingerprint)
}

/// Finds the namespace of the pod, compares it with what is desired, and makes it so. `before` is what an earlier look
/// found; while that holds, nothing else is read.
///
/// # Errors
/// No namespace is surely the pod's, it cannot be read, or the rules are refused. It is as it was.
pub(crate) fn heal(
    wanted: &Wanted,
    before: Option<Verified>,
    processes: &Processes,
    scan: &dyn Fn() -> Result<Arc<Scan>, String>,
    phases: &Phases,
) -> Result<Found, String> {
    if let Some(before) = before.filter(|seen| still_right(seen, wanted, processes)) {
        return Ok(Found::Right(before));
    }
    let identity = &wanted.identity;
    let open = || {
        let place = processes.find(&*scan()?, identity)?;
        let sandbox = processes.open(&place, identity)?;
        Ok::<_, String>((place, sandbox))
    };
    let (place, sandbox) = phases.measure(Phase::Facts, open)?;
    // By our descriptor: a process may end, and its number be given away.
    let path = sandbox.netns().path();
    let log = Logger::silent();
    // The plugin runs with the runtime's environment, which is not this one.
    let lookup = |_: &str| None;
    let desired = Desired {
        netns: &path,
        redirect: &wanted.redirect,
        engine: wanted.engine,
        dry_run_file: None,
        lookup: &lookup,
        log: &log,
        phases,
    };
    let is_still_its = || match processes.is_there(&place, identity) {
        true => owns(&sandbox, identity),
        false => Err("its process ended while its rules were read".to_owned()),
    };
    let Healed {
        differences,
        summary,
        engine,
        fingerprint,
    } = KernelBackend.heal(&desired, &is_still_its)?;
    if summary.is_none() && !differences.is_empty() {
        return Err(not_healed(&differences));
    }
    let now = Verified {
        place,
        wanted: wanted.clone(),
        engine,
        // What was written has another one, and by the time it is read another writer may have changed it again.
        fingerprint: match engine {
            Some(Engine::Nft) if summary.is_none() => fingerprint,
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

/// What another writer has in a table of ours and may still need, a counter say, is not taken away: writing again would
/// change nothing, and be told as a repair each time.
fn not_healed(left: &[Deviation]) -> String {
    let first = left.first().map(Deviation::to_string).unwrap_or_default();
    format!(
        "it differs in what is not taken away ({} in all), {first}; find out who made it, and delete it",
        left.len()
    )
}

/// `None`: it cannot be read, and so nothing is taken for unchanged.
pub(super) fn fingerprint_of(sandbox: &Sandbox) -> Option<Fingerprint> {
    sandbox.fingerprint().ok()
}
