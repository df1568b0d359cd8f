//! A look at a pod's namespace, on a thread of its own, and what follows from it.

use crate::dataplane::sidecar::{Desired, Found, Plan, Sidecar, difference};
use crate::dataplane::{Converged, Spent, converge};
use crate::drift::Drift;
use std::sync::Arc;
use std::time::{Duration, Instant};
use weir_cni::compile::Engine;
use weir_cni::plugin::{Phase, Phases};
use weir_cni::redirection::{Change, Fingerprint};
use weir_core::journal::pod::Cause;
use weir_core::sandboxes::Sandboxes;
use weir_core::sandboxes::place::Identity;
use weir_netlink::NetnsId;

/// Rules that did not change since are read again after this long all the same: a fingerprint does not have what a
/// main table holds.
const WHOLE: Duration = Duration::from_secs(600);

/// A look that is to be made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Look {
    pub(super) identity: Identity,
    pub(super) desired: Desired,
}

/// A namespace that was seen to be as it should.
#[derive(Debug, Clone)]
pub(super) struct InSync {
    pub(super) look: Look,
    netns: NetnsId,
    /// Who holds the rules.
    pub(super) engine: Option<Engine>,
    /// Where nf_tables hold the rules and every change is told by it: from before they were compared. `None`: the next
    /// look compares them.
    fingerprint: Option<Fingerprint>,
    compared: Instant,
}

/// What was found.
#[derive(Debug)]
pub(super) enum Seen {
    /// All is as it should be.
    InSync(InSync),
    /// It was not, and is now.
    Repaired {
        now: InSync,
        cause: Cause,
        /// The first difference, and how many there were.
        first: String,
        differences: usize,
        summary: String,
        /// What keeps packets from it all the same.
        hindered: Option<String>,
    },
    /// Owned objects in the namespace of a pod that asks for nothing: what, and whether they were removed, or why not.
    Strays(String, Result<(), String>),
}

/// What was found, and how long it took.
pub(super) type Answer = (Result<Seen, String>, Spent);

/// Makes the look. `before` is what an earlier one found; while that holds, nothing else is read.
fn visit(
    plane: &Sidecar,
    (sandboxes, drift): (&Sandboxes, &Drift),
    look: Look,
    before: Option<InSync>,
    since: Instant,
) -> Answer {
    let mut spent = Spent::default();
    let seen = seen(plane, (sandboxes, drift), look, before, since, &mut spent);
    (seen, spent)
}

fn seen(
    plane: &Sidecar,
    (sandboxes, drift): (&Sandboxes, &Drift),
    look: Look,
    before: Option<InSync>,
    since: Instant,
    spent: &mut Spent,
) -> Result<Seen, String> {
    if let Some(before) = before.filter(|before| still_holds(before, &look, sandboxes)) {
        return Ok(Seen::InSync(before));
    }
    let find = || sandboxes.find(&look.identity, since);
    let held = spent.measure(Phase::Facts, find)?;
    if let (Some(uid), Desired::Redirection { .. }) = (look.identity.uid(), &look.desired) {
        // From before the rules are read. Without nf_tables there are no notifications; rounds look.
        let _ = drift.watch(&uid.into(), &held);
    }
    let tables = look.identity.uid();
    let tables = tables.and_then(|uid| drift.tables(&uid.into(), &held));
    let is_still_its = || sandboxes.check(&held, &look.identity);
    let Converged {
        observed,
        plan,
        applied,
    } = converge(plane, &held.sandbox, &look.desired, &is_still_its, spent)?;
    let in_sync = |engine, fingerprint| InSync {
        look: look.clone(),
        netns: held.id(),
        engine,
        fingerprint,
        compared: Instant::now(),
    };
    let in_tables = |engine, before| {
        if let (Some(Engine::Xtables), Some(uid)) = (engine, look.identity.uid()) {
            let _ = drift.tables_in_sync(&uid.into(), &held, before);
        }
    };
    match (&observed.found, plan, applied) {
        (Found::Strays(Some(strays)), Plan::Leave(why), _) => Ok(Seen::Strays(
            first_of(&strays.changes, Change::object),
            Err(why),
        )),
        (Found::Strays(Some(strays)), _, applied) => {
            let what = first_of(&strays.changes, Change::object);
            Ok(Seen::Strays(
                what,
                applied
                    .unwrap_or(Err("it is not to be removed".into()))
                    .map(|_| ()),
            ))
        }
        (Found::Compared { changes, .. }, _, Some(applied)) => {
            let applied = applied?;
            if tables.is_none() {
                in_tables(applied.engine, None);
            }
            Ok(Seen::Repaired {
                now: in_sync(applied.engine, applied.fingerprint),
                cause: Cause::of(changes),
                first: changes.first().map(difference).unwrap_or_default(),
                differences: changes.len(),
                summary: applied.summary,
                hindered: applied.hindered,
            })
        }
        (_, Plan::Leave(why), None) => Err(why),
        (Found::Strays(None), ..) => Ok(Seen::InSync(in_sync(None, observed.fingerprint))),
        (Found::Compared { .. }, _, None) => {
            let by_nft = observed.engine == Some(Engine::Nft);
            in_tables(observed.engine, tables);
            let fingerprint = observed.fingerprint.filter(|_| by_nft);
            Ok(Seen::InSync(in_sync(observed.engine, fingerprint)))
        }
    }
}

/// Whether the result of the last look still holds: same pod, same namespace, same desired state, same rules and routing.
fn still_holds(before: &InSync, look: &Look, sandboxes: &Sandboxes) -> bool {
    before.fingerprint.is_some()
        && before.look == *look
        && before.compared.elapsed() < WHOLE
        && sandboxes.kept(&look.identity).is_some_and(|held| {
            held.id() == before.netns && held.fingerprint() == before.fingerprint
        })
}

/// `table inet istio-proxy-nat (3 in all)`
fn first_of(changes: &[Change], text: impl Fn(&Change) -> String) -> String {
    let first = changes.first().map(text).unwrap_or_default();
    format!("{first} ({} in all)", changes.len())
}

/// For the metrics.
pub(super) fn phases(spent: &Spent) -> Phases {
    let phases = Phases::default();
    for (phase, time) in &spent.0 {
        phases.add(*phase, *time);
    }
    phases
}

/// Work for the thread of a pod.
pub(super) fn job(
    plane: &Arc<Sidecar>,
    (sandboxes, drift): (&Sandboxes, &Drift),
    look: Look,
    before: Option<InSync>,
    since: Instant,
) -> impl FnOnce() -> Answer + Send + use<> {
    let (plane, sandboxes, drift) = (Arc::clone(plane), sandboxes.clone(), drift.clone());
    move || visit(&plane, (&sandboxes, &drift), look, before, since)
}
