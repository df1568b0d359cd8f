//! Redirection by netfilter rules in the network namespaces of pods.

use super::ebpf;
use super::hands::{Asked, Captured, NotCaptured, NotReleased, Outcome, Rules};
use crate::dataplane::ambient::Ambient;
use crate::dataplane::{Converged, Hindrance, Spent, converge, repair, still_holds};
use std::path::PathBuf;
use std::sync::{Arc, LazyLock};
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
    /// An agent with another setting captured at the node when this one began; read before the first write.
    pub(super) at_node: LazyLock<bool, Box<dyn FnOnce() -> bool + Send>>,
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
        // While no agent ran nobody watched the rules of a pod that an earlier one captured by rules.
        let plane = Ambient {
            unwatched: asked.identity.was_found()
                && !is_known
                && !ebpf::has_pins(held, &self.bpffs)
                && !*self.at_node,
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
        let drift = (is_known || observed.lost).then(|| Box::new(observed.drift()));
        let failed = |why: String| NotCaptured {
            drift: drift.clone(),
            ..why.into()
        };
        let applied = applied.transpose().map_err(failed)?;
        let detached = ebpf::hand_over(held, &self.bpffs).map_err(failed)?;
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
                if let (Engine::Xtables, Some(uid), false) = (applied.engine, &uid, is_known) {
                    let _ = self.drift.tables_in_sync(uid, held, None);
                }
                let changes = observed.changes.as_ref().unwrap_or(&applied.changes);
                let mut summary = applied.summary;
                if observed.lost && !is_known {
                    summary += "; it was changed while no agent watched it";
                }
                let outcome = match drift {
                    Some(_) => Outcome::Healed(repair(changes, summary)),
                    None => Outcome::Made { summary },
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
    use std::time::Duration;
    use weir_ambient::{Config, PodOverrides};
    use weir_core::pods::PodView;
    use weir_core::sandboxes::place::Identity;
    use weir_ebpf::{Bpffs, Pod};
    use weir_netlink::Netns;
    use weir_netlink::route::{LOOPBACK_IFINDEX, Routing};
    use weir_testing::tool::output;
    use weir_testing::{BpfFs, TempDir};

    /// A pod with a stand-in for its namespace.
    struct Scene {
        netns: Netns,
        kernel: Kernel,
        asked: Asked,
    }

    impl Scene {
        fn new(uid: &str, at_node: bool, bpffs: PathBuf) -> Option<Self> {
            let netns = weir_testing::namespace()?;
            let routing = Routing::open_in(&netns).unwrap();
            let address = IpAddr::from([10, 0, 0, 1]);
            routing.set_up(LOOPBACK_IFINDEX).unwrap();
            let add = routing.add_address(LOOPBACK_IFINDEX, address.into());
            assert!(add.unwrap());
            let kernel = Kernel {
                plane: Ambient {
                    config: Config::default(),
                    native_nftables: true,
                    unwatched: false,
                },
                sandboxes: Sandboxes::of_node(),
                drift: Drift::new(Arc::new(|_, _| {})).0,
                live_proof: false,
                bpffs,
                at_node: LazyLock::new(Box::new(move || at_node)),
            };
            let path = netns.path();
            kernel.sandboxes.announce_path(uid, &path).unwrap();
            let uids = serde_json::json!({"uids": [uid]});
            let identity: Identity = serde_json::from_value(uids).unwrap();
            let by_plugin = ByPlugin::new(vec![address], Vec::new(), &PodView::default());
            let asked = Asked {
                identity: identity.with_addresses(vec![address]),
                overrides: PodOverrides::default(),
                by_plugin: Some(by_plugin),
            };
            Some(Self {
                netns,
                kernel,
                asked,
            })
        }

        /// As asked for after it was captured.
        fn asked_again(&self) -> Asked {
            let identity = self.asked.identity.clone().with_any_of_addresses();
            Asked {
                identity,
                ..self.asked.clone()
            }
        }

        fn capture(
            &self,
            asked: &Asked,
            before: Option<&Captured>,
        ) -> Result<(Captured, Outcome, Duration), NotCaptured> {
            let (now, mut spent) = (Instant::now(), Spent::default());
            let done = self.kernel.capture(asked, before, now, &mut spent);
            done.map(|(captured, outcome)| (captured, outcome, spent.of(Phase::Verify)))
        }

        fn run(&self, command: &str) {
            assert_eq!(output(&self.netns, command), "");
        }
    }

    /// Each enrolment is followed by a look, because weir's own commit is reported like that of any other program.
    #[test]
    fn rules_that_were_just_verified_are_not_compared_again() {
        let Some(scene) = Scene::new("uid-twice", false, PathBuf::new()) else {
            return;
        };
        let (first, outcome, _) = scene.capture(&scene.asked, None).unwrap();
        assert!(matches!(outcome, Outcome::Made { .. }), "{outcome:?}");
        let next = scene.capture(&scene.asked_again(), Some(&first));
        let (second, outcome, compared) = next.unwrap();
        assert!(matches!(outcome, Outcome::Same), "{outcome:?}");
        assert_eq!((second.compared, compared.as_nanos()), (first.compared, 0));
    }

    /// The next attempt finds the rules in sync.
    #[test]
    fn a_drift_is_known_although_programs_cannot_be_removed_after_its_repair() {
        let dir = TempDir::new();
        let root = dir.file("loop");
        let Some(scene) = Scene::new("uid-loop", false, root.clone()) else {
            return;
        };
        let (first, ..) = scene.capture(&scene.asked, None).unwrap();
        scene.run("nft flush ruleset");
        std::os::unix::fs::symlink("loop", &root).unwrap();
        let again = || scene.capture(&scene.asked_again(), Some(&first));
        for is_drift in [true, false] {
            let drift = again().unwrap_err().drift.unwrap();
            assert_eq!(drift.differences > 0, is_drift, "{drift:?}");
        }
        std::fs::remove_file(root).unwrap();
        assert!(matches!(again(), Ok((_, Outcome::Same, _))));
    }

    /// It had no rules before, or had programs.
    #[test]
    fn what_was_captured_in_another_way_is_not_lost() {
        for at_node in [false, true] {
            let scene = Scene::new("uid-node", at_node, PathBuf::new());
            let Some(scene) = scene else { return };
            // As the node's agent removed rules there.
            scene.run("nft add table t");
            let (_, outcome, _) = scene.capture(&scene.asked_again(), None).unwrap();
            let is_made = matches!(outcome, Outcome::Made { .. });
            assert_eq!(is_made, at_node, "{outcome:?}");
        }
        let Some(mounted) = BpfFs::mount() else {
            return;
        };
        if weir_bpf::attached(1, weir_bpf::BPF_TCX_INGRESS).is_err() {
            return println!("skipped: this kernel has no tcx links");
        }
        for by_programs in [false, true] {
            let scene = Scene::new("uid-pins", false, mounted.path().into());
            let Some(scene) = scene else { return };
            scene.run("nft add table t");
            if by_programs {
                let bpffs = Bpffs::at(mounted.path()).unwrap();
                let redirect = scene.kernel.plane.redirect(&scene.asked.overrides);
                let pod = Pod::of(&scene.netns, &bpffs).unwrap();
                pod.apply(&redirect.unwrap()).unwrap();
                scene.run("ip route flush table 100");
            }
            // The rules cannot be written, or not all of the routing.
            scene.run("ip route add blackhole default table 100");
            let failed = scene.capture(&scene.asked_again(), None).unwrap_err();
            assert_eq!(failed.drift.is_none(), by_programs, "{failed:?}");
        }
    }
}
