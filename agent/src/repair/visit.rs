//! A look at a pod's namespace, on a thread of its own, and what follows from it.

use crate::dataplane::sidecar::{Desired, Found, Plan, Sidecar};
use crate::dataplane::{Converged, Spent, converge, repair, still_holds};
use std::time::Instant;
use weir_cni::compile::Engine;
use weir_cni::plugin::Phase;
use weir_cni::redirection::{Change, Fingerprint};
use weir_core::journal::pod::Repair;
use weir_core::sandboxes::Sandboxes;
use weir_core::sandboxes::place::Identity;
use weir_drift::Drift;
use weir_netlink::NetnsId;

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
        repair: Repair,
        /// What keeps packets from it all the same.
        hindered: Option<String>,
    },
    /// Owned objects in the namespace of a pod that asks for nothing: what, and whether they were removed, or why not.
    Unasked(String, Result<(), String>),
}

/// What was found, and how long it took.
pub(super) type Answer = (Result<Seen, String>, Spent);

/// Makes the look. `before` is what an earlier one found; while that holds, nothing else is read.
pub(super) fn visit(
    plane: &Sidecar,
    (sandboxes, drift): (&Sandboxes, &Drift),
    look: Look,
    before: Option<InSync>,
    since: Instant,
    spent: &mut Spent,
) -> Result<Seen, String> {
    let still_holds = |before: &InSync| {
        let of = (before.netns, before.fingerprint.as_ref(), before.compared);
        before.look == look && still_holds(sandboxes, &look.identity, of)
    };
    if let Some(before) = before.filter(still_holds) {
        return Ok(Seen::InSync(before));
    }
    let find = || sandboxes.find(&look.identity, since);
    let held = spent.measure(Phase::Facts, find)?;
    let is_watched = match (look.identity.uid(), &look.desired) {
        // From before the rules are read. Where that fails rounds look, and try again.
        (Some(uid), Desired::Redirection { .. }) => drift.watch(&uid.into(), &held).is_ok(),
        _ => true,
    };
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
        fingerprint: Option::filter(fingerprint, |_| is_watched),
        compared: Instant::now(),
    };
    let in_tables = |engine, before| {
        if let (Some(Engine::Xtables), Some(uid)) = (engine, look.identity.uid()) {
            let _ = drift.tables_in_sync(&uid.into(), &held, before);
        }
    };
    match (&observed.found, plan, applied) {
        (Found::Unasked(Some(unasked)), Plan::Leave(why), _) => Ok(Seen::Unasked(
            first_of(&unasked.changes, Change::object),
            Err(why),
        )),
        (Found::Unasked(Some(unasked)), _, applied) => {
            let what = first_of(&unasked.changes, Change::object);
            Ok(Seen::Unasked(
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
                repair: repair(changes, applied.summary),
                hindered: applied.hindered,
            })
        }
        (_, Plan::Leave(why), None) => Err(why),
        (Found::Unasked(None), ..) => Ok(Seen::InSync(in_sync(None, observed.fingerprint))),
        (Found::Compared { .. }, _, None) => {
            let by_nft = observed.engine == Some(Engine::Nft);
            in_tables(observed.engine, tables);
            let fingerprint = observed.fingerprint.filter(|_| by_nft);
            Ok(Seen::InSync(in_sync(observed.engine, fingerprint)))
        }
    }
}

/// `table inet istio-proxy-nat (3 in all)`
fn first_of(changes: &[Change], text: impl Fn(&Change) -> String) -> String {
    let first = changes.first().map(text).unwrap_or_default();
    format!("{first} ({} in all)", changes.len())
}
