//! The comparison and repair of one pod's network namespace; runs on a separate thread.

use crate::dataplane::sidecar::{Desired, Found, Plan, Sidecar};
use crate::dataplane::{Converged, Spent, converge, repair, still_holds};
use std::time::Instant;
use weir_cni::compile::Engine;
use weir_cni::plugin::Phase;
use weir_cni::redirection::{Change, Fingerprint, Visit};
use weir_core::journal::pod::Repair;
use weir_core::sandboxes::Sandboxes;
use weir_core::sandboxes::place::Identity;
use weir_drift::Drift;
use weir_netlink::NetnsId;

/// The pod to look at and its desired state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Look {
    pub(super) identity: Identity,
    pub(super) desired: Desired,
}

/// A network namespace that was found in sync.
#[derive(Debug, Clone)]
pub(super) struct InSync {
    pub(super) look: Look,
    netns: NetnsId,
    /// The engine that holds the rules.
    pub(super) engine: Option<Engine>,
    /// Fingerprint taken before the comparison, if nf_tables holds the rules and every change alters the fingerprint.
    /// `None`: the next look compares them.
    fingerprint: Option<Fingerprint>,
    compared: Instant,
}

/// The result of a look.
#[derive(Debug)]
pub(super) enum Seen {
    /// The actual state matches the desired state.
    InSync(InSync),
    /// The rules differed and were repaired.
    Repaired {
        now: InSync,
        repair: Repair,
        /// What still keeps packets from the redirection.
        hindered: Option<String>,
    },
    /// Our objects in the network namespace of a pod that does not ask for redirection, and the result of their removal.
    Unasked(String, Result<(), String>),
}

/// The result of a look and the time it took.
pub(super) type Answer = (Result<Seen, String>, Spent);

/// Makes the look. `before` is the previous result; while it is still valid, nothing else is read.
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
    // The watch starts before the rules are read. While it fails, the pod does not count as verified, and is compared again.
    let mut unwatched = None;
    let watch = |visit: &Visit<'_>| {
        if let (Some(uid), Desired::Redirection { .. }) = (look.identity.uid(), &look.desired) {
            let failed = drift.watch(&uid.into(), visit).err();
            unwatched = failed
                .map(|why| format!("it is not known when other programs change its rules: {why}"));
        }
    };
    let tables = look.identity.uid();
    let tables = tables.and_then(|uid| drift.tables(&uid.into(), &held));
    let is_still_its = || sandboxes.check(&held, &look.identity);
    let Converged {
        observed,
        plan,
        applied,
    } = converge(
        plane,
        &held.sandbox,
        &look.desired,
        watch,
        &is_still_its,
        spent,
    )?;
    let in_sync = |engine, fingerprint| InSync {
        look: look.clone(),
        netns: held.id(),
        engine,
        fingerprint: Option::filter(fingerprint, |_| unwatched.is_none()),
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
                hindered: applied.hindered.or_else(|| unwatched.clone()),
            })
        }
        (_, Plan::Leave(why), None) => Err(why),
        (Found::Unasked(None), ..) => Ok(Seen::InSync(in_sync(None, observed.fingerprint))),
        (Found::Compared { .. }, _, None) => {
            if let Some(why) = unwatched {
                return Err(why);
            }
            let by_nft = observed.engine == Some(Engine::Nft);
            in_tables(observed.engine, tables);
            let fingerprint = observed.fingerprint.filter(|_| by_nft);
            Ok(Seen::InSync(in_sync(observed.engine, fingerprint)))
        }
    }
}

/// Formats as `table inet istio-proxy-nat (3 in all)`.
fn first_of(changes: &[Change], text: impl Fn(&Change) -> String) -> String {
    let first = changes.first().map(text).unwrap_or_default();
    format!("{first} ({} in all)", changes.len())
}
