//! Redirection by eBPF programs in the network namespaces of pods (`WEIR_AMBIENT_ENGINE=ebpf`).

use super::hands::{Asked, Captured, NotCaptured, NotReleased, Outcome, Rules};
use super::kernel::{capture_in, held_last, proof, unwatched};
use super::settings::AmbientSettings;
use crate::dataplane::ambient::Ambient;
use crate::dataplane::programs::Programs;
use crate::dataplane::{Spent, converge, remove, repair};
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use weir_ambient::AMBIENT;
use weir_cni::log::count;
use weir_cni::redirection::{Failure, Visit};
use weir_core::journal::Journal;
use weir_core::journal::ambient::{By, Event};
use weir_core::journal::pod::{Cause, Repair};
use weir_core::pods::Pods;
use weir_core::sandboxes::place::Processes;
use weir_core::sandboxes::{Held, Sandboxes};
use weir_drift::{Attached, Drift};
use weir_ebpf::{Bpffs, Change, Links, Pod, if_pinned};
use weir_live::{Direction, Proof};
use weir_reconcile::Uid;

/// Delay of a sweep after a pod has left: by then its network namespace is deleted.
pub(super) const SWEEP: Duration = Duration::from_secs(60);

/// Attaches and removes programs, maps and links of pods.
pub(super) struct ByPrograms {
    plane: Programs,
    /// The bpf file system.
    root: PathBuf,
    sandboxes: Sandboxes,
    drift: Drift,
    attached: Attached,
    /// `WEIR_LIVE_PROOF`
    live_proof: bool,
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
        let root = settings.bpffs();
        let bpffs = Bpffs::at(&root).map_err(text)?;
        let (_, host) = settings.host.clone();
        Ok(Self {
            plane: Programs::new(plane, bpffs, host),
            root,
            sandboxes,
            drift,
            attached,
            live_proof: settings.live_proof,
        })
    }
}

/// Unpins the objects of deleted network namespaces, until the process ends: once for those that an earlier agent left, and whenever a
/// pod is gone or has other addresses, which a new sandbox gives it. At most once per `pause`.
pub(super) async fn sweeps(root: PathBuf, pods: Pods, journal: Journal, pause: Duration) {
    let mut changes = pods.subscribe();
    let mut before = BTreeSet::new();
    let (mut is_due, mut told) = (true, None);
    loop {
        changes.borrow_and_update();
        let now = running(&pods);
        is_due |= !before.is_subset(&now);
        before = now;
        if !is_due {
            match changes.changed().await {
                Ok(()) => continue,
                // Pods are no longer watched.
                Err(_) => return,
            }
        }
        tokio::time::sleep(pause).await;
        let of_thread = root.clone();
        let swept = tokio::task::spawn_blocking(move || sweep(&of_thread)).await;
        let failure = swept.unwrap_or_else(|e| Err(text(e))).err();
        is_due = failure.is_some();
        if let Some(why) = failure.clone().filter(|_| failure != told) {
            let why = format!("pins of deleted network namespaces: {why}");
            journal.record(Event::NodeNotCleaned { why });
        }
        told = failure;
    }
}

/// Returns the pods that may have a network namespace.
fn running(pods: &Pods) -> BTreeSet<(String, Vec<IpAddr>)> {
    let views = pods.all().into_iter().filter(|view| !view.ended());
    let named = views.map(|view| (view.uid().to_owned(), view.addresses()));
    named
        .filter(|(_, addresses)| !addresses.is_empty())
        .collect()
}

fn sweep(root: &Path) -> Result<(), String> {
    let living = || Processes::of_node().namespaces();
    match Bpffs::if_mounted(root).map_err(text)? {
        Some(bpffs) => bpffs.sweep(living).map(drop).map_err(text),
        None => Ok(()),
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
        Ok(remove_all(&self.plane.ambient, &held, asked, &self.root)?)
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
    ) -> Result<(Captured, Outcome), NotCaptured> {
        let redirect = self.plane.ambient.redirect(&asked.overrides)?;
        let uid = asked.identity.uid();
        // The watch starts before anything is read: the routing is part of the redirection.
        let mut blind = None;
        let watched = uid.inspect(|uid| self.attached.forget(uid)).map(Uid::from);
        let watch = |visit: &Visit<'_>| blind = unwatched(&self.drift, watched.as_ref(), visit);
        let is_known = before.is_some_and(|before| before.netns == held.id());
        let is_still_its = || self.sandboxes.check(held, &asked.identity);
        let pod = Pod::in_sandbox(&held.sandbox, &self.plane.bpffs);
        let was_present = asked.identity.was_found() && pod.has_pins().unwrap_or(true);
        // Read first: a link that changes while the programs are compared counts as changed.
        let links = pod.links();
        let done = converge(
            &self.plane,
            &held.sandbox,
            &redirect,
            watch,
            &is_still_its,
            spent,
        )?;
        let changes = done.observed.changes;
        // While no agent ran nobody watched the programs of a pod that an earlier one captured.
        let was_lost = was_present && Change::is_loss(&changes);
        let is_known = is_known || was_lost;
        let drift = |summary: &str| Repair {
            first: changes
                .first()
                .map(|first| format!("weir would {first}"))
                .unwrap_or_default(),
            differences: changes.len(),
            cause: Cause::Missing,
            summary: summary.to_owned(),
        };
        let failed = |why: String| NotCaptured {
            drift: is_known.then(|| Box::new(drift(""))),
            ..why.into()
        };
        let applied = done.applied.transpose().map_err(failed)?;
        let (hindered, links) = match applied {
            None => (done.observed.hindered, links),
            // What was written is compared once more.
            Some(applied) => (applied.hindered, Ok(Links::default())),
        };
        // If the links cannot be read, only rounds detect a detached program.
        if let (Some(uid), Ok(links)) = (uid, links) {
            self.attached.put(uid, links);
        }
        // Removes rules written by an agent with another setting, or by `weir apply`; not before the programs capture.
        let remove = |visit: &Visit<'_>| redirect.remove_rules(visit, false);
        let removed = held.sandbox.visit_for(&AMBIENT, remove).map_err(text);
        // What the failure says of a redirection is not that of the programs.
        let beside = |e: Failure| {
            format!(
                "the programs are attached, and netfilter rules may be in force beside them: {}",
                e.reason
            )
        };
        let rules = removed.and_then(|removed| removed.map_err(beside));
        let rules = rules.map_err(failed)?;
        let captured = Captured {
            engine: Some(By::Ebpf),
            hindered: hindered.or(blind),
            // No fingerprint: every visit compares.
            ..Captured::at(Arc::clone(held), asked)
        };
        let summary = format!(
            "redirected by eBPF in {}: {}, verified",
            held.id(),
            count(changes.len() + rules.len(), "change")
        );
        let outcome = match (changes.first(), rules.is_empty(), is_known) {
            (None, true, _) | (None, _, false) => Outcome::Same,
            (Some(_), _, false) => Outcome::Made { summary },
            (Some(_), _, true) => Outcome::Healed(Repair {
                differences: changes.len() + rules.len(),
                ..drift(&summary)
            }),
            (None, false, true) => Outcome::Healed(repair(&rules, summary)),
        };
        Ok((captured, outcome))
    }
}

/// Removes programs, rules and routing of every engine from the pod's network namespace: an agent with another setting may have written
/// them. Continues after a failure.
///
/// # Errors
/// What may still be in force.
pub(super) fn remove_all(
    plane: &Ambient,
    held: &Held,
    asked: &Asked,
    bpffs: &Path,
) -> Result<(), String> {
    let programs = hand_over(held, bpffs);
    // The pod's overrides may be invalid by now; the rules are removed nevertheless.
    let redirect = plane.redirect(&asked.overrides).ok();
    let rules = remove(plane, &held.sandbox, redirect.as_ref());
    programs.and(rules).map(drop)
}

/// True if an agent with `WEIR_AMBIENT_ENGINE=ebpf`, or `weir apply`, pinned programs of the namespace.
pub(super) fn has_pins(held: &Held, root: &Path) -> bool {
    let found = if_pinned(&held.sandbox, root, |pod| pod.has_pins());
    matches!(found, Ok(Some(Ok(true))))
}

/// Detaches the programs of an agent with `WEIR_AMBIENT_ENGINE=ebpf`, or of `weir apply`; called after netfilter rules capture.
///
/// # Errors
/// Programs are attached and cannot be detached.
pub(super) fn hand_over(held: &Held, root: &Path) -> Result<Vec<Change>, String> {
    let detached = if_pinned(&held.sandbox, root, |pod| pod.hand_over());
    let detached = detached.and_then(Option::transpose);
    Ok(detached.map_err(text)?.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use std::io::Write;
    use std::process::Stdio;
    use weir_ambient::{Config, PodOverrides, Redirect};
    use weir_core::pods::{PodView, Writer};
    use weir_core::sandboxes::place::Identity;
    use weir_netlink::Netns;
    use weir_netlink::route::Routing;
    use weir_testing::BpfFs;
    use weir_testing::tool::{inside, output};

    const PAUSE: Duration = Duration::from_millis(10);

    fn put(writer: &mut Writer, name: &str) {
        let view = PodView::from_value(&json!({
            "metadata": {"name": name, "namespace": "shop", "uid": name},
            "spec": {},
            "status": {"phase": "Running", "podIP": "10.0.0.7", "podIPs": [{"ip": "10.0.0.7"}]}
        }));
        writer.apply(view.unwrap()).unwrap();
    }

    /// Nothing has to be enrolled for that, and the pins of a pod that runs stay.
    #[tokio::test]
    async fn pins_of_a_pod_are_swept_after_it_has_left() {
        let (Some(mounted), Some(host)) = (BpfFs::mount(), weir_testing::namespace()) else {
            return;
        };
        if weir_bpf::attached(1, weir_bpf::BPF_TCX_INGRESS).is_err() {
            return println!("skipped: this kernel has no tcx links");
        }
        let bpffs = Bpffs::at(mounted.path()).unwrap();
        let wanted = Redirect::new(Config::default(), &PodOverrides::default()).unwrap();
        let redirected = |link: &str| {
            let netns = Netns::create().unwrap();
            let routing = Routing::open_in(&netns).unwrap();
            routing.add_veth("eth0", link, &host).unwrap();
            routing.set_up(1).unwrap();
            Pod::of(&netns, &bpffs).unwrap().apply(&wanted).unwrap();
            netns
        };
        let (stays, leaves) = (redirected("v0"), redirected("v1"));
        let folders = || {
            let all = std::fs::read_dir(mounted.path().join("weir/v2")).unwrap();
            let names = all.map(|folder| folder.unwrap().file_name().into_string().unwrap());
            names.collect::<Vec<_>>()
        };
        let (pods, mut writer) = Pods::new();
        put(&mut writer, "leaves");
        let root = mounted.path().to_owned();
        let sweeps = tokio::spawn(sweeps(root, pods, Journal::default(), PAUSE));
        tokio::time::sleep(PAUSE).await;
        assert_eq!(folders().len(), 2);
        drop(leaves);
        let begun = Instant::now();
        while folders().len() > 1 {
            assert!(begun.elapsed() < Duration::from_secs(30), "{:?}", folders());
            // The kernel deletes the namespace at some later time.
            put(&mut writer, "leaves");
            tokio::time::sleep(PAUSE).await;
            writer.delete("shop", "leaves", None);
            tokio::time::sleep(PAUSE).await;
        }
        assert_eq!(folders(), [stays.id().ino.to_string()]);
        sweeps.abort();
    }

    /// The next attempt finds the programs in sync.
    #[test]
    fn a_drift_is_known_although_rules_cannot_be_removed_after_its_repair() {
        let (Some(mounted), Some(netns)) = (BpfFs::mount(), weir_testing::namespace()) else {
            return;
        };
        if weir_bpf::attached(1, weir_bpf::BPF_TCX_INGRESS).is_err() {
            return println!("skipped: this kernel has no tcx links");
        }
        let routing = Routing::open_in(&netns).unwrap();
        let address = IpAddr::from([10, 0, 0, 2]);
        routing.set_up(1).unwrap();
        routing.add_address(1, address.into()).unwrap();
        let ambient = Ambient {
            config: Config::default(),
            native_nftables: false,
            unwatched: false,
        };
        let bpffs = Bpffs::at(mounted.path()).unwrap();
        let programs = ByPrograms {
            plane: Programs::new(ambient, bpffs, None),
            root: mounted.path().into(),
            sandboxes: Sandboxes::of_node(),
            drift: Drift::new(Arc::new(|_, _| {})).0,
            attached: Attached::default(),
            live_proof: false,
        };
        let path = netns.path();
        programs.sandboxes.announce_path("uid-own", &path).unwrap();
        let identity: Identity = serde_json::from_value(json!({"uids": ["uid-own"]})).unwrap();
        let asked = Asked {
            identity: identity.with_addresses(vec![address]),
            overrides: PodOverrides::default(),
            by_plugin: None,
        };
        let capture = |before: Option<&Captured>| {
            let (now, mut spent) = (Instant::now(), Spent::default());
            programs.capture(&asked, before, now, &mut spent)
        };
        let (first, _) = capture(None).unwrap();
        let pin = format!("weir/v2/{}/ingress_1", netns.id().ino);
        std::fs::remove_file(mounted.path().join(pin)).unwrap();
        // A table with an owner can be deleted by no other process.
        let mut nft = inside(&netns);
        let nft = nft.args(["nft", "-i"]).stdin(Stdio::piped());
        let mut nft = nft.stdout(Stdio::null()).spawn().unwrap();
        let mut lines = nft.stdin.take().unwrap();
        let line = b"add table inet istio-ambient-nat { flags owner; }\n";
        lines.write_all(line).unwrap();
        let begun = Instant::now();
        while output(&netns, "nft list tables").is_empty() {
            assert!(begun.elapsed() < Duration::from_secs(30));
            std::thread::sleep(PAUSE);
        }
        for is_drift in [true, false] {
            let failed = capture(Some(&first)).unwrap_err();
            assert!(!failed.why.contains("nothing is changed"), "{}", failed.why);
            let drift = failed.drift.unwrap();
            assert_eq!(drift.differences > 0, is_drift, "{drift:?}");
        }
        drop(lines);
        assert!(nft.wait().unwrap().success());
        assert!(capture(Some(&first)).is_ok());
    }
}
