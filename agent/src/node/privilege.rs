//! Capabilities: what the agent needs, and nothing else.
//!
//! `capabilities(7)`. A container that is started as Istio's chart does has these already; one that is started with more
//! gives the rest up, for good: it leaves the bounding set too.

use crate::node::log::Log;
use caps::{CapSet, Capability, CapsHashSet};

/// Each with what it is needed for. The list is that of Istio's chart.
const NEEDED: [(Capability, &str); 5] = [
    (
        Capability::CAP_NET_ADMIN,
        "rules and routes of pods; without it no pod is verified or repaired",
    ),
    (
        Capability::CAP_NET_RAW,
        "legacy tables of pods; without it pods whose rules are there are not repaired",
    ),
    (
        Capability::CAP_SYS_PTRACE,
        "finding the network namespaces of pods by their processes; without it no pod is repaired",
    ),
    (
        Capability::CAP_SYS_ADMIN,
        "entering the network namespaces of pods; without it no pod is verified or repaired",
    ),
    (
        Capability::CAP_DAC_OVERRIDE,
        "files of the node that belong to others; without it the plugin is only installed where root may write",
    ),
];

/// Gives up what is not needed, says what is missing. Only for a process that has one thread: each has sets of its
/// own, and new ones begin with those of their parent.
pub(crate) fn drop_all_but_needed(log: &Log) {
    let has = match caps::read(None, CapSet::Permitted) {
        Ok(has) => has,
        Err(e) => return log.warn(&format!("cannot read this process's capabilities: {e}")),
    };
    for (capability, purpose) in NEEDED {
        if !has.contains(&capability) {
            log.warn(&format!("{capability} is missing: it is for {purpose}"));
        }
    }
    let kept: CapsHashSet = NEEDED
        .iter()
        .map(|(c, _)| *c)
        .filter(|c| has.contains(c))
        .collect();
    if let Err(e) = keep(&kept) {
        log.warn(&format!(
            "cannot give up capabilities that are not needed: {e}"
        ));
    }
}

fn keep(kept: &CapsHashSet) -> Result<(), caps::errors::CapsError> {
    caps::clear(None, CapSet::Ambient)?;
    // While CAP_SETPCAP is in force. Without it the bounding set stays, and what it allows cannot be had: nothing here
    // executes another program.
    if caps::has_cap(None, CapSet::Effective, Capability::CAP_SETPCAP)? {
        let bounding = caps::read(None, CapSet::Bounding)?;
        for capability in bounding.difference(kept) {
            caps::drop(None, CapSet::Bounding, *capability)?;
        }
    }
    caps::clear(None, CapSet::Inheritable)?;
    caps::set(None, CapSet::Effective, kept)?;
    caps::set(None, CapSet::Permitted, kept)
}

/// Gives up all of the calling thread: it answers whoever asks, with sockets that are open already.
pub(crate) fn drop_all_of_thread(log: &Log) {
    let none = CapsHashSet::new();
    let done = caps::set(None, CapSet::Effective, &none)
        .and_then(|()| caps::set(None, CapSet::Permitted, &none));
    if let Err(e) = done {
        log.warn(&format!(
            "a thread keeps capabilities that it does not need: {e}"
        ));
    }
}
