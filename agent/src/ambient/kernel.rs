//! The rules of pods, in their namespaces.

use super::ebpf;
use super::hands::{Asked, Captured, NotCaptured, NotReleased, Outcome, Rules};
use crate::dataplane::ambient::Ambient;
use crate::dataplane::{Converged, Hindrance, Spent, converge, remove, repair, still_holds};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;
use weir_cni::compile::Engine;
use weir_cni::plugin::Phase;
use weir_core::journal::ambient::By;
use weir_core::sandboxes::{Held, Sandboxes};
use weir_drift::Drift;
use weir_live::{Counted, DOCUMENTATION_V4, DOCUMENTATION_V6, Proof};
use weir_reconcile::Uid;

/// The rules of pods.
pub(super) struct Kernel {
    pub(super) plane: Ambient,
    pub(super) sandboxes: Sandboxes,
    pub(super) drift: Drift,
    /// `WEIR_LIVE_PROOF`
    pub(super) live_proof: bool,
    /// Where an agent with another setting pinned programs.
    pub(super) bpffs: PathBuf,
}

/// Listens to changes in the pod's namespace; or what is to be said where that fails.
pub(super) fn unwatched(drift: &Drift, uid: &Uid, held: &Held) -> Option<Hindrance> {
    let why = drift.watch(uid, held).err()?;
    Some(Hindrance::Unknown(format!(
        "whether other programs change it is known by rounds only: {why}"
    )))
}

/// Finds the namespace of a pod, and has `write` capture it there. Which namespace is the pod's is one question, whether its rules
/// are right another: where only the second has a bad answer, the error says where the pod is.
///
/// # Errors
/// There is no namespace that is surely the pod's, or as `write`.
pub(super) fn capture_in(
    sandboxes: &Sandboxes,
    asked: &Asked,
    since: Instant,
    spent: &mut Spent,
    write: impl FnOnce(&Arc<Held>, &mut Spent) -> Result<(Captured, Outcome), String>,
) -> Result<(Captured, Outcome), NotCaptured> {
    let pod = &asked.identity;
    let at = |held| Box::new(Captured::at(held, asked));
    let held = match spent.measure(Phase::Facts, || sandboxes.find(pod, since)) {
        Ok(held) => held,
        Err(why) => {
            // Where it was found before it is for as long as its process or its name is there, whatever its addresses are now.
            let kept = sandboxes.kept(pod);
            if let (None, Some(uid)) = (&kept, pod.uid()) {
                sandboxes.forget(uid);
            }
            return Err(NotCaptured {
                why,
                at: kept.map(at),
            });
        }
    };
    write(&held, spent).map_err(|why| {
        let is_its = sandboxes.check(&held, pod).is_ok();
        NotCaptured {
            why,
            at: is_its.then(|| at(held)),
        }
    })
}

/// The namespace to release a pod in: its own, or where that is not found any more the one in which it was captured.
pub(super) fn held_last(
    sandboxes: &Sandboxes,
    asked: &Asked,
    before: Option<&Captured>,
) -> Result<Arc<Held>, NotReleased> {
    let since = Instant::now();
    sandboxes.find(&asked.identity, since).or_else(|why| {
        let held = before.and_then(|before| before.held.clone());
        held.ok_or_else(|| match sandboxes.is_absent(&asked.identity, since) {
            true => NotReleased::Absent(why),
            false => NotReleased::Unseen(why),
        })
    })
}

/// Where connections of a pod land; programs of eBPF have counted what they captured.
pub(super) fn proof(
    plane: &Ambient,
    captured: &Captured,
    counted: Option<Counted<'_>>,
) -> Option<Proof> {
    let held = captured.held.as_ref()?;
    let redirect = plane.redirect(&captured.asked.overrides).ok()?;
    let name_servers = match redirect.captures_dns() {
        true => vec![DOCUMENTATION_V4.into(), DOCUMENTATION_V6.into()],
        false => Vec::new(),
    };
    let plan = weir_live::Plan {
        name_servers,
        ipv6: redirect.captures_ipv6(),
        counted,
        ..weir_live::Plan::default()
    };
    weir_live::prove(held.sandbox.netns(), &plan).ok()
}

impl Rules for Kernel {
    fn capture(
        &self,
        asked: &Asked,
        before: Option<&Captured>,
        since: Instant,
        spent: &mut Spent,
    ) -> Result<(Captured, Outcome), NotCaptured> {
        let still_holds = |before: &&Captured| {
            let of = (before.netns, before.fingerprint.as_ref(), before.compared);
            before.asked == *asked && still_holds(&self.sandboxes, &asked.identity, of)
        };
        if let Some(before) = before.filter(still_holds) {
            return Ok((before.clone(), Outcome::Same));
        }
        let write = |held: &Arc<Held>, spent: &mut Spent| self.write(asked, before, held, spent);
        capture_in(&self.sandboxes, asked, since, spent, write)
    }

    fn prove(&self, captured: &Captured) -> Option<Proof> {
        let prove = || proof(&self.plane, captured, None);
        self.live_proof.then(prove).flatten()
    }

    fn release(&self, asked: &Asked, before: Option<&Captured>) -> Result<(), NotReleased> {
        if let Some(uid) = asked.identity.uid() {
            self.drift.forget(&uid.into());
        }
        let held = held_last(&self.sandboxes, asked, before)?;
        // What the pod asks for now may be nothing that can be understood, and what is there goes all the same.
        let redirect = self.plane.redirect(&asked.overrides).ok();
        remove(&self.plane, &held.sandbox, redirect.as_ref())?;
        Ok(())
    }
}

impl Kernel {
    /// Compares the rules in the pod's namespace, and writes what differs.
    fn write(
        &self,
        asked: &Asked,
        before: Option<&Captured>,
        held: &Arc<Held>,
        spent: &mut Spent,
    ) -> Result<(Captured, Outcome), String> {
        let redirect = self.plane.redirect(&asked.overrides)?;
        let is_known = before.is_some_and(|before| before.netns == held.id());
        let uid = asked.identity.uid().map(Uid::from);
        // From before they are read. Where they cannot be watched, rounds look, and try again.
        let unwatched = uid
            .as_ref()
            .and_then(|uid| unwatched(&self.drift, uid, held));
        let tables = uid.as_ref().and_then(|uid| self.drift.tables(uid, held));
        let is_still_its = || self.sandboxes.check(held, &asked.identity);
        let Converged {
            observed, applied, ..
        } = converge(&self.plane, &held.sandbox, &redirect, &is_still_its, spent)?;
        let captured = |engine, fingerprint, hindered| Captured {
            engine: Option::map(engine, By::Rules),
            fingerprint: Option::filter(fingerprint, |_| unwatched.is_none()),
            hindered: Option::or(hindered, unwatched.clone()),
            ..Captured::at(Arc::clone(held), asked)
        };
        if !is_known && !matches!(applied, Some(Err(_))) {
            ebpf::hand_over(held, &self.bpffs)?;
        }
        match applied {
            None => {
                if let (Some(Engine::Xtables), Some(uid)) = (observed.engine, &uid) {
                    let _ = self.drift.tables_in_sync(uid, held, tables);
                }
                let by_nft = observed.engine == Some(Engine::Nft);
                let fingerprint = observed.fingerprint.filter(|_| by_nft);
                let captured = captured(observed.engine, fingerprint, observed.hindered);
                Ok((captured, Outcome::Same))
            }
            Some(applied) => {
                let applied = applied?;
                if let (Engine::Xtables, Some(uid), false) = (applied.engine, &uid, is_known) {
                    let _ = self.drift.tables_in_sync(uid, held, None);
                }
                let changes = observed.changes.as_ref().unwrap_or(&applied.changes);
                let outcome = match is_known {
                    true => Outcome::Healed(repair(changes, applied.summary)),
                    false => Outcome::Made {
                        summary: applied.summary,
                    },
                };
                let engine = Some(applied.engine);
                let captured = captured(engine, applied.fingerprint, applied.hindered);
                Ok((captured, outcome))
            }
        }
    }
}
