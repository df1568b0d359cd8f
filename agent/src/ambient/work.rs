//! The steps for one pod; they run on a separate thread.

use super::hands::{Asked, Captured, Hands, NotCaptured, NotReleased, Outcome, Workload};
use super::roster::Roster;
use crate::dataplane::Spent;
use std::net::IpAddr;
use std::sync::OnceLock;
use std::time::{Duration, Instant};
use weir_core::journal::pod::Repair;
use weir_live::Proof;
use weir_netlink::NetnsId;

/// Time limit for the proxy's answer. A retry does not wait: the answer triggers the next job.
const LIMIT: Duration = Duration::from_secs(1);

/// A pod to enrol, with its known state.
pub(super) struct Enrolment {
    pub(super) asked: Asked,
    pub(super) workload: Workload,
    pub(super) before: Option<Captured>,
    /// Set if it was captured before; the network namespace is unknown if an earlier agent captured it.
    pub(super) was_captured: Option<Option<NetnsId>>,
    pub(super) taken: Option<(u64, NetnsId)>,
    /// The proxy was asked before and has not answered.
    pub(super) waits: bool,
    pub(super) addresses: Vec<IpAddr>,
    pub(super) probed: Vec<IpAddr>,
    pub(super) probes_pass: bool,
    /// The connection test was made already, and did not fail as a whole.
    pub(super) proved: bool,
    pub(super) since: Instant,
}

impl Enrolment {
    /// Limits the addresses reported by the plugin to those that exist in the network namespace it named. The result of the previous
    /// plugin may include addresses of the host's end of a link.
    pub(super) fn has_only(&mut self, there: &[IpAddr]) {
        let Some(by_plugin) = &mut self.asked.by_plugin else {
            return;
        };
        if self.addresses == by_plugin.told() {
            self.addresses.retain(|address| there.contains(address));
            self.asked.identity.addresses.clone_from(&self.addresses);
        }
        by_plugin.retain(there);
    }
}

/// The result of an enrolment.
pub(super) struct Enrolled {
    pub(super) captured: Captured,
    pub(super) outcome: Outcome,
    /// The proxy connection that has taken it; `None`: the proxy has not answered yet.
    pub(super) taken: Result<Option<u64>, String>,
    /// The addresses in the host's rules, and the error if some are missing.
    pub(super) probed: (Vec<IpAddr>, Result<(), String>),
    pub(super) took: Duration,
    /// The result of the connection test, made after its rules were written or seen for the first time.
    pub(super) proof: Option<Proof>,
}

/// Why its rules are not known to be in force.
#[derive(Debug)]
pub(super) struct NotEnrolled {
    pub(super) why: String,
    /// Its network namespace, if verified and the pod was captured there before, and the proxy connection that has taken it.
    pub(super) at: Option<(Box<Captured>, Option<u64>)>,
    /// See [`NotCaptured::drift`].
    pub(super) drift: Option<Box<Repair>>,
}

impl From<String> for NotEnrolled {
    fn from(why: String) -> Self {
        let (at, drift) = (None, None);
        Self { why, at, drift }
    }
}

/// Captures the pod's traffic, then hands the pod to the proxy, then lets probes through. The proxy never takes a pod
/// before it was captured once, and a pod that is captured and not taken gets no traffic at all. The newest proxy therefore gets
/// it even if its rules cannot be compared or repaired. An agent that starts only knows that the pod was captured, which may have been in
/// an earlier sandbox.
///
/// # Errors
/// Its rules are not known to be in force.
pub(super) fn enrol(
    hands: &Hands,
    roster: &Roster,
    work: Enrolment,
    in_flight: &OnceLock<Vec<IpAddr>>,
    spent: &mut Spent,
) -> Result<Enrolled, NotEnrolled> {
    let begun = Instant::now();
    let before = work.before.as_ref();
    let captured = hands.rules.capture(&work.asked, before, work.since, spent);
    let limit = if work.waits { Duration::ZERO } else { LIMIT };
    let hand_over = |captured: &Captured| {
        let workload = Workload {
            captured: Some(captured.clone()),
            ..work.workload.clone()
        };
        // A proxy that connects from now on receives it in the snapshot.
        roster.put(workload.clone());
        match (work.taken, hands.proxy.newest()) {
            (Some((by, of)), Some(newest)) if by == newest && of == captured.netns => Ok(Some(by)),
            _ => hands.proxy.add(&workload, limit),
        }
    };
    let (captured, outcome) = captured.map_err(|failed| {
        let NotCaptured { mut why, at, drift } = failed;
        let is_it = |at: &Captured| {
            let of = work.was_captured;
            of.is_some_and(|of| of.is_none_or(|netns| netns == at.netns))
        };
        let at = at.filter(|at| is_it(at)).map(|at| {
            let taken = hand_over(&at);
            if let Err(refused) = &taken
                && hands.proxy.newest().is_some()
            {
                why = format!("{why}; besides: {refused}");
            }
            (at, taken.ok().flatten())
        });
        NotEnrolled { why, at, drift }
    })?;
    let taken = hand_over(&captured);
    // Only now: before, the addresses that the plugin reported may be those of a sandbox that is gone.
    let _ = in_flight.set(work.addresses.clone());
    let probed = match work.probes_pass && work.addresses == work.probed {
        true => (work.probed, Ok(())),
        false => probe(hands, &work.workload.uid, work.addresses, work.probed),
    };
    let took = begun.elapsed();
    let proof = match outcome {
        // Rules of an earlier agent are tested once.
        Outcome::Same if work.proved => None,
        _ => hands.rules.prove(&captured),
    };
    Ok(Enrolled {
        captured,
        outcome,
        taken,
        probed,
        took,
        proof,
    })
}

/// Adds the present addresses to the host's rules and removes others.
fn probe(
    hands: &Hands,
    uid: &str,
    addresses: Vec<IpAddr>,
    probed: Vec<IpAddr>,
) -> (Vec<IpAddr>, Result<(), String>) {
    let old: Vec<IpAddr> = probed
        .iter()
        .copied()
        .filter(|old| !addresses.contains(old))
        .collect();
    let forgotten = match old.is_empty() {
        true => Ok(()),
        false => hands.probes.remove(uid, &old),
    };
    match forgotten.and_then(|()| hands.probes.put(uid, &addresses)) {
        Ok(()) => (addresses, Ok(())),
        // Some may have been added, so all are kept for a later removal.
        Err(why) => {
            let new = addresses.into_iter().filter(|new| !probed.contains(new));
            let all = probed.iter().copied().chain(new).collect();
            (all, Err(why))
        }
    }
}

/// A pod that leaves the mesh.
pub(super) struct Leaving {
    pub(super) asked: Asked,
    pub(super) uid: std::sync::Arc<str>,
    /// It keeps running: its rules are removed, too.
    pub(super) running: bool,
    /// The API server reports it ready, so some of its processes run.
    pub(super) is_ready: bool,
    pub(super) before: Option<Captured>,
    pub(super) probed: Vec<IpAddr>,
    /// The proxy may know it.
    pub(super) announced: bool,
}

/// The result of a leave: what remains, and why.
#[derive(Debug, Default)]
pub(super) struct Left {
    pub(super) probed: Vec<IpAddr>,
    pub(super) captured: Option<Captured>,
    /// Its rules may still be present.
    pub(super) suspected: bool,
    pub(super) announced: bool,
    /// Its network namespace was not examined.
    pub(super) unseen: bool,
    pub(super) why: Option<String>,
}

/// Removes everything of the pod: the host's entries first, then its rules, then the proxy's entry. Continues after
/// a failure.
pub(super) fn leave(hands: &Hands, roster: &Roster, work: Leaving) -> Left {
    let mut left = Left::default();
    // Also if no addresses are known: an earlier agent may have left some.
    if (!work.probed.is_empty() || work.announced)
        && let Err(why) = hands.probes.remove(&work.uid, &work.probed)
    {
        left.why = Some(why);
        left.probed = work.probed;
    }
    let released = match work.running {
        true => hands.rules.release(&work.asked, work.before.as_ref()),
        false => Ok(()),
    };
    let kept = match released {
        Ok(()) => None,
        // Its network namespace disappeared with the last process, and the rules with it.
        Err(NotReleased::Absent(_)) if !work.is_ready => None,
        Err(NotReleased::Absent(why) | NotReleased::Unseen(why)) => Some((why, true)),
        Err(NotReleased::Failed(why)) => Some((why, false)),
    };
    if let Some((why, unseen)) = kept {
        left.why.get_or_insert(why);
        left.captured = work.before;
        (left.suspected, left.unseen) = (true, unseen);
        // Captured without a proxy it would have no network.
        left.announced = work.announced;
        return left;
    }
    roster.remove(&work.uid);
    if work.announced
        && let Err(why) = hands.proxy.remove(&work.uid)
    {
        left.why.get_or_insert(why);
        left.announced = true;
    }
    left
}
