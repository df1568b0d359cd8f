//! Redirection by eBPF programs in the network namespaces of pods (`WEIR_AMBIENT_ENGINE=ebpf`).

use super::hands::{Asked, Captured, NotCaptured, NotReleased, Outcome, Rules};
use super::kernel::{capture_in, held_last, proof, unwatched};
use super::settings::AmbientSettings;
use crate::dataplane::ambient::Ambient;
use crate::dataplane::programs::Programs;
use crate::dataplane::{Spent, converge, remove};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use weir_cni::log::count;
use weir_cni::redirection::Visit;
use weir_core::journal::ambient::By;
use weir_core::journal::pod::{Cause, Repair};
use weir_core::sandboxes::place::Processes;
use weir_core::sandboxes::{Held, Sandboxes};
use weir_drift::{Attached, Drift};
use weir_ebpf::{Bpffs, Pod, if_pinned};
use weir_live::{Direction, Proof};
use weir_reconcile::Uid;

/// Minimum interval between sweeps for pins of deleted network namespaces.
const SWEEP: Duration = Duration::from_secs(60);

/// Attaches and removes programs, maps and links of pods.
pub(super) struct ByPrograms {
    plane: Programs,
    sandboxes: Sandboxes,
    drift: Drift,
    attached: Attached,
    /// `WEIR_LIVE_PROOF`
    live_proof: bool,
    swept: Mutex<Option<Instant>>,
}

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

impl ByPrograms {
    /// # Errors
    /// No bpf file system is mounted at the path.
    pub(super) fn new(
        plane: Ambient,
        (sandboxes, drift, attached): (Sandboxes, Drift, Attached),
        settings: &AmbientSettings,
    ) -> Result<Self, String> {
        let bpffs = Bpffs::at(&settings.bpffs()).map_err(text)?;
        let (_, host) = settings.host.clone();
        Ok(Self {
            plane: Programs::new(plane, bpffs, host),
            sandboxes,
            drift,
            attached,
            live_proof: settings.live_proof,
            swept: Mutex::default(),
        })
    }

    /// Unpins the objects of deleted pods.
    fn sweep(&self) -> Result<(), String> {
        let mut swept = self.swept.lock().unwrap_or_else(PoisonError::into_inner);
        if swept.is_some_and(|last| last.elapsed() < SWEEP) {
            return Ok(());
        }
        *swept = Some(Instant::now());
        let living = || Processes::of_node().namespaces();
        self.plane.bpffs.sweep(living).map(drop).map_err(text)
    }
}

impl Rules for ByPrograms {
    fn capture(
        &self,
        asked: &Asked,
        before: Option<&Captured>,
        since: Instant,
        spent: &mut Spent,
    ) -> Result<(Captured, Outcome), NotCaptured> {
        let write = |held: &Arc<Held>, spent: &mut Spent| self.write(asked, before, held, spent);
        capture_in(&self.sandboxes, asked, since, spent, write)
    }

    fn prove(&self, captured: &Captured) -> Option<Proof> {
        let held = captured.held.as_ref().filter(|_| self.live_proof)?;
        let pod = Pod::in_sandbox(&held.sandbox, &self.plane.bpffs);
        let counted = |direction: Direction| pod.captured(direction == Direction::Dns);
        proof(&self.plane.ambient, captured, Some(&counted))
    }

    fn release(&self, asked: &Asked, before: Option<&Captured>) -> Result<(), NotReleased> {
        if let Some(uid) = asked.identity.uid() {
            self.drift.forget(&uid.into());
            self.attached.forget(uid);
        }
        let held = held_last(&self.sandboxes, asked, before)?;
        remove(&self.plane, &held.sandbox, None)?;
        Ok(())
    }
}

impl ByPrograms {
    /// Compares the programs in the pod's network namespace and attaches missing ones.
    fn write(
        &self,
        asked: &Asked,
        before: Option<&Captured>,
        held: &Arc<Held>,
        spent: &mut Spent,
    ) -> Result<(Captured, Outcome), String> {
        let redirect = self.plane.ambient.redirect(&asked.overrides)?;
        let uid = asked.identity.uid();
        // The watch starts before anything is read: the routing is part of the redirection.
        let mut blind = None;
        let watch = |visit: &Visit<'_>| {
            let uid = uid.inspect(|uid| self.attached.forget(uid)).map(Uid::from);
            blind = unwatched(&self.drift, uid.as_ref(), visit);
        };
        let is_known = before.is_some_and(|before| before.netns == held.id());
        let is_still_its = || self.sandboxes.check(held, &asked.identity);
        let done = converge(
            &self.plane,
            &held.sandbox,
            &redirect,
            watch,
            &is_still_its,
            spent,
        )?;
        let changes = done.observed.changes;
        let hindered = match done.applied.transpose()? {
            None => done.observed.hindered,
            Some(applied) => {
                self.sweep()?;
                applied.hindered
            }
        };
        // If the links cannot be read, only rounds detect a detached program.
        let pod = Pod::in_sandbox(&held.sandbox, &self.plane.bpffs);
        if let (Some(uid), Ok(links)) = (uid, pod.links()) {
            self.attached.put(uid, links);
        }
        if !is_known {
            // Removes rules written by an agent with another setting; not before the programs capture.
            redirect.remove_rules(&held.sandbox, false).map_err(text)?;
        }
        let captured = Captured {
            engine: Some(By::Ebpf),
            hindered: hindered.or(blind),
            // No fingerprint: every visit compares.
            ..Captured::at(Arc::clone(held), asked)
        };
        let summary = format!(
            "redirected by eBPF in {}: {}, verified",
            held.id(),
            count(changes.len(), "change")
        );
        Ok((
            captured,
            match (changes.first(), is_known) {
                (None, _) => Outcome::Same,
                (Some(_), false) => Outcome::Made { summary },
                (Some(first), true) => Outcome::Healed(Repair {
                    first: format!("weir would {first}"),
                    differences: changes.len(),
                    cause: Cause::Missing,
                    summary,
                }),
            },
        ))
    }
}

/// Detaches the programs of an agent with `WEIR_AMBIENT_ENGINE=ebpf`; called after netfilter rules capture.
///
/// # Errors
/// Programs are attached and cannot be detached.
pub(super) fn hand_over(held: &Held, root: &Path) -> Result<(), String> {
    let detached = if_pinned(&held.sandbox, root, |pod| pod.hand_over());
    let detached = detached.and_then(Option::transpose);
    detached.map(drop).map_err(text)
}
