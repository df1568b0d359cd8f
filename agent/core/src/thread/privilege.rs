//! Reduces the capabilities of the process to those that the agent needs.
//!
//! See `capabilities(7)`. A container that is started as in Istio's chart has exactly these; one with more drops the others
//! permanently, from the bounding set too.

use caps::{CapSet, Capability, CapsHashSet};

/// A needed capability and its purpose.
struct Need {
    capability: Capability,
    purpose: &'static str,
    /// The effect of its absence.
    fails: &'static str,
    /// It is needed only to verify and repair pods.
    of_pods: bool,
}

/// The capabilities of Istio's chart.
const NEEDED: [Need; 5] = [
    Need {
        capability: Capability::CAP_NET_ADMIN,
        purpose: "reading and writing rules and routes of pods",
        fails: "no pod is verified or repaired",
        of_pods: true,
    },
    Need {
        capability: Capability::CAP_NET_RAW,
        purpose: "the legacy tables of pods, which are asked for over raw sockets",
        fails: "pods whose rules are in legacy tables are neither verified nor repaired",
        of_pods: true,
    },
    Need {
        capability: Capability::CAP_SYS_PTRACE,
        purpose: "finding the network namespaces of pods by their processes",
        fails: "pods none of whose processes runs as root, with capabilities that this agent has, are neither verified \
                nor repaired",
        of_pods: true,
    },
    Need {
        capability: Capability::CAP_SYS_ADMIN,
        purpose: "entering the network namespaces of pods",
        fails: "no pod is verified or repaired, and what the kernel is good for cannot be tried out",
        of_pods: true,
    },
    Need {
        capability: Capability::CAP_DAC_OVERRIDE,
        purpose: "files of the node that belong to others",
        fails: "installing fails where a directory or file of the node belongs to another user and is closed to others",
        of_pods: false,
    },
];

/// Prevents executed programs from gaining privileges (`PR_SET_NO_NEW_PRIVS`, since Linux 3.5). The agent
/// executes none, so this is a defence against an attacker.
///
/// # Errors
/// The kernel refuses; a text.
pub fn set_no_new_privs() -> Result<(), String> {
    nix::sys::prctl::set_no_new_privs().map_err(|e| format!("cannot set no_new_privs: {e}"))
}

/// Drops the capabilities that are not needed. Returns one line per missing capability, with the effect of its absence. Call
/// it only while the process has one thread: each thread has its own sets, and a new thread inherits those of its parent.
pub fn drop_all_but_needed(verifies: bool) -> Vec<String> {
    let has = match caps::read(None, CapSet::Permitted) {
        Ok(has) => has,
        Err(e) => return vec![format!("cannot read this process's capabilities: {e}")],
    };
    let mut said = Vec::new();
    for need in NEEDED.iter().filter(|n| !has.contains(&n.capability)) {
        let fails = match need.of_pods && !verifies {
            true => {
                "pods are neither verified nor repaired in place anyway, and what an agent in ambient mode left at the node stays"
            }
            false => need.fails,
        };
        let Need {
            capability,
            purpose,
            ..
        } = need;
        said.push(format!(
            "{capability} is missing: it is for {purpose}; without it {fails}"
        ));
    }
    let kept: CapsHashSet = NEEDED
        .iter()
        .map(|n| n.capability)
        .filter(|c| has.contains(c))
        .collect();
    if let Err(e) = keep(&kept) {
        said.push(format!(
            "cannot give up capabilities that are not needed: {e}"
        ));
    }
    said
}

fn keep(kept: &CapsHashSet) -> Result<(), caps::errors::CapsError> {
    caps::clear(None, CapSet::Ambient)?;
    // The bounding set is reduced first, while CAP_SETPCAP is effective. Without that capability the bounding set stays, and
    // has no effect: the agent executes no other program.
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
