//! Redirection by netfilter rules in the network namespaces of pods.

use super::ebpf;
use super::hands::{Asked, Captured, NotCaptured, NotReleased, Outcome, Rules};
use crate::dataplane::ambient::Ambient;
use crate::dataplane::{Converged, Hindrance, Spent, converge, repair, still_holds};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;
use weir_cni::compile::Engine;
use weir_cni::plugin::Phase;
use weir_cni::redirection::Visit;
use weir_core::journal::ambient::By;
use weir_core::journal::pod::{Cause, Repair};
use weir_core::sandboxes::{Held, Sandboxes};
use weir_drift::Drift;
use weir_live::{Counted, DOCUMENTATION_V4, DOCUMENTATION_V6, Proof};
use weir_reconcile::Uid;

/// Writes and removes the rules of pods.
pub(super) struct Kernel {
    pub(super) plane: Ambient,
    pub(super) sandboxes: Sandboxes,
    pub(super) drift: Drift,
    /// `WEIR_LIVE_PROOF`
    pub(super) live_proof: bool,
    /// The bpf file system where an agent with another setting pinned programs.
    pub(super) bpffs: PathBuf,
}

/// Watches the visited network namespace of the pod for changes. If that fails, returns the reason.
pub(super) fn unwatched(drift: &Drift, uid: Option<&Uid>, visit: &Visit<'_>) -> Option<Hindrance> {
    let why = drift.watch(uid?, visit).err()?;
    Some(Hindrance::Unknown(format!(
        "whether other programs change it is known by rounds only: {why}"
    )))
}

/// Finds the network namespace of a pod and calls `write` to capture it there. If the network namespace is known and only the rules
/// fail, the error contains the network namespace.
///
/// # Errors
/// No network namespace is verified to be the pod's, or `write` failed.
pub(super) fn capture_in(
    sandboxes: &Sandboxes,
    asked: &Asked,
    since: Instant,
    spent: &mut Spent,
    write: impl FnOnce(&Arc<Held>, &mut Spent) -> Result<(Captured, Outcome), NotCaptured>,
) -> Result<(Captured, Outcome), NotCaptured> {
    let pod = &asked.identity;
    let at = |held| Box::new(Captured::at(held, asked));
    let held = match spent.measure(Phase::Facts, || sandboxes.find(pod, since)) {
        Ok(held) => held,
        Err(why) => {
            // A network namespace found before stays valid while its process or its path exists, regardless of its present addresses.
            let kept = sandboxes.kept(pod);
            if let (None, Some(uid)) = (&kept, pod.uid()) {
                sandboxes.forget(uid);
            }
            return Err(NotCaptured {
                at: kept.map(at),
                ..why.into()
            });
        }
    };
    write(&held, spent).map_err(|failed| {
        let is_its = sandboxes.check(&held, pod).is_ok();
        NotCaptured {
            at: is_its.then(|| at(held)),
            ..failed
        }
    })
}

/// Returns the network namespace in which to release a pod: the pod's, or the one where it was captured if the pod's is no longer
/// found.
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

/// Tests where connections of a pod arrive; `counted` reads the capture counters of eBPF programs.
pub(super) fn proof(
    plane: &Ambient,
    captured: &Captured,
    counted: Option<Counted<'_>>,
) -> Option<Proof> {
    let held = captured.held.as_ref()?;
    let redirect = match plane.redirect(&captured.asked.overrides) {
        Ok(redirect) => redirect,
        Err(why) => return Some(Proof::failed(held.id(), why)),
    };
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
    let proof = weir_live::prove(held.sandbox.netns(), &plan);
    // An error is an answer, too: unknown.
    Some(proof.unwrap_or_else(|e| Proof::failed(held.id(), e)))
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
        Ok(ebpf::remove_all(&self.plane, &held, asked, &self.bpffs)?)
    }
}

impl Kernel {
    /// Compares the rules in the pod's network namespace and writes the differences.
    fn write(
        &self,
        asked: &Asked,
        before: Option<&Captured>,
        held: &Arc<Held>,
        spent: &mut Spent,
    ) -> Result<(Captured, Outcome), NotCaptured> {
        let redirect = self.plane.redirect(&asked.overrides)?;
        let is_known = before.is_some_and(|before| before.netns == held.id());
        let uid = asked.identity.uid().map(Uid::from);
        // The watch starts before the rules are read. If it fails, the periodic verification detects drift and tries again.
        let mut blind = None;
        let watch = |visit: &Visit<'_>| blind = unwatched(&self.drift, uid.as_ref(), visit);
        let tables = uid.as_ref().and_then(|uid| self.drift.tables(uid, held));
        let is_still_its = || self.sandboxes.check(held, &asked.identity);
        // While no agent ran nobody watched the rules of a pod that an earlier one captured.
        let plane = Ambient {
            unwatched: asked.identity.was_found() && !is_known,
            ..self.plane.clone()
        };
        let Converged {
            observed, applied, ..
        } = converge(
            &plane,
            &held.sandbox,
            &redirect,
            watch,
            &is_still_its,
            spent,
        )?;
        let captured = |engine, fingerprint, hindered| Captured {
            engine: Option::map(engine, By::Rules),
            fingerprint: Option::filter(fingerprint, |_| blind.is_none()),
            hindered: Option::or(hindered, blind.clone()),
            ..Captured::at(Arc::clone(held), asked)
        };
        let detached = match applied {
            Some(Err(_)) => Vec::new(),
            _ => ebpf::hand_over(held, &self.bpffs)?,
        };
        match applied {
            None => {
                if let (Some(Engine::Xtables), Some(uid)) = (observed.engine, &uid) {
                    let _ = self.drift.tables_in_sync(uid, held, tables);
                }
                let by_nft = observed.engine == Some(Engine::Nft);
                let fingerprint = observed.fingerprint.filter(|_| by_nft);
                let captured = captured(observed.engine, fingerprint, observed.hindered);
                let outcome = match detached.first().filter(|_| is_known) {
                    None => Outcome::Same,
                    Some(first) => Outcome::Healed(Repair {
                        first: format!("weir would {first}"),
                        differences: detached.len(),
                        cause: Cause::Changed,
                        summary: format!("redirected by rules alone in {}, verified", held.id()),
                    }),
                };
                Ok((captured, outcome))
            }
            Some(applied) => {
                let was_lost = observed.lost && detached.is_empty();
                let is_drift = is_known || was_lost;
                let applied = applied.map_err(|why| NotCaptured {
                    drift: observed.drift().filter(|_| is_drift).map(Box::new),
                    ..why.into()
                })?;
                if let (Engine::Xtables, Some(uid), false) = (applied.engine, &uid, is_known) {
                    let _ = self.drift.tables_in_sync(uid, held, None);
                }
                let changes = observed.changes.as_ref().unwrap_or(&applied.changes);
                let summary = applied.summary;
                // Rules of Istio's agent that were replaced.
                let replaced = observed.changes.is_none() && Cause::of(changes) != Cause::Missing;
                let outcome = match (is_known, was_lost && !replaced) {
                    (true, _) => Outcome::Healed(repair(changes, summary)),
                    (false, true) => {
                        let summary =
                            format!("{summary}; it was changed while no agent watched it");
                        Outcome::Healed(repair(changes, summary))
                    }
                    (false, false) => Outcome::Made { summary },
                };
                let engine = Some(applied.engine);
                let captured = captured(engine, applied.fingerprint, applied.hindered);
                Ok((captured, outcome))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ambient::by_plugin::ByPlugin;
    use std::net::IpAddr;
    use weir_ambient::{Config, PodOverrides};
    use weir_core::pods::PodView;
    use weir_core::sandboxes::place::Identity;
    use weir_netlink::route::{LOOPBACK_IFINDEX, Routing};

    /// Each enrolment is followed by a look, because weir's own commit is reported like that of any other program.
    #[test]
    fn rules_that_were_just_verified_are_not_compared_again() {
        let netns = weir_testing::namespace_or_skip!();
        let routing = Routing::open_in(&netns).unwrap();
        let address = IpAddr::from([10, 0, 0, 1]);
        routing.set_up(LOOPBACK_IFINDEX).unwrap();
        assert!(
            routing
                .add_address(LOOPBACK_IFINDEX, address.into())
                .unwrap()
        );
        let kernel = Kernel {
            plane: Ambient {
                config: Config::default(),
                native_nftables: true,
                unwatched: false,
            },
            sandboxes: Sandboxes::of_node(),
            drift: Drift::new(Arc::new(|_, _| {})).0,
            live_proof: false,
            bpffs: PathBuf::new(),
        };
        kernel
            .sandboxes
            .announce_path("uid-twice", &netns.path())
            .unwrap();
        let uids = serde_json::json!({"uids": ["uid-twice"]});
        let identity: Identity = serde_json::from_value(uids).unwrap();
        let asked = Asked {
            identity: identity.with_addresses(vec![address]),
            overrides: PodOverrides::default(),
            by_plugin: Some(ByPlugin::new(
                vec![address],
                Vec::new(),
                &PodView::default(),
            )),
        };
        let capture = |asked: &Asked, before| {
            let (now, mut spent) = (Instant::now(), Spent::default());
            let (captured, outcome) = kernel.capture(asked, before, now, &mut spent).unwrap();
            (captured, outcome, spent.of(Phase::Verify))
        };
        let (first, outcome, _) = capture(&asked, None);
        assert!(matches!(outcome, Outcome::Made { .. }), "{outcome:?}");
        let next = Asked {
            identity: asked.identity.clone().with_any_of_addresses(),
            ..asked
        };
        let (second, outcome, compared) = capture(&next, Some(&first));
        assert!(matches!(outcome, Outcome::Same), "{outcome:?}");
        assert_eq!((second.compared, compared.as_nanos()), (first.compared, 0));
    }
}
