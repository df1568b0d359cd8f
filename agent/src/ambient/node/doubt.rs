//! Pods whose membership in the mesh, or whose address, is uncertain: what is captured stays captured, and nothing else is added. Rules
//! in a pod's own network namespace would stay by themselves; at the node everything that is not requested is removed.

use super::{AtNode, text};
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;
use weir_core::pods::PodView;
use weir_core::sandboxes::claims::Claims;
use weir_core::sandboxes::place::Identity;
use weir_core::sandboxes::{Held, Sandboxes};
use weir_ebpf::Bpffs;
use weir_node_ambient::{Config, Exclude, Pod};

/// A pod to capture, and its network namespace, if one is verified to be its own.
pub(super) struct Member {
    pub(super) identity: Identity,
    /// The traffic excluded from capture, and why the exclusion is not in force.
    pub(super) exclude: (Exclude, Option<String>),
    pub(super) found: Option<Arc<Held>>,
}

impl Member {
    pub(super) fn uid(&self) -> &str {
        self.identity.uid().unwrap_or_default()
    }

    /// Returns the configuration of the pod. Without a network namespace the routes of the main table determine its link.
    pub(super) fn pod(&self) -> Pod {
        let found = self.found.as_ref();
        let (exclude, refused) = self.exclude.clone();
        Pod {
            uid: self.uid().to_owned(),
            addresses: self.identity.addresses.clone(),
            netns: found.map(|found| found.sandbox.netns().path()),
            exclude,
            refused,
        }
    }

    /// Returns true if the pod had one of its addresses in the configuration written last.
    fn had(&self, applied: Option<&Config>) -> bool {
        let mut pods = applied.into_iter().flat_map(|config| &config.pods);
        let has = |address| self.identity.addresses.contains(address);
        pods.any(|pod| pod.uid == self.uid() && pod.addresses.iter().any(has))
    }
}

/// The data by which uncertain cases are decided.
pub(super) struct Evidence<'a> {
    pub(super) claims: &'a Claims,
    /// Returns the known addresses of a pod.
    pub(super) addresses: &'a dyn Fn(&PodView) -> Vec<IpAddr>,
    pub(super) sandboxes: &'a Sandboxes,
    pub(super) since: Instant,
}

impl Evidence<'_> {
    /// Returns true if the address is verified to belong to a pod that is not one of `these`.
    fn is_of_another(&self, address: IpAddr, these: &BTreeSet<String>) -> bool {
        let others = self.claims.of_address(address);
        let mut others = others.filter(|other| !these.contains(other.uid()));
        others.any(|other| {
            let identity = Identity::of(other).with_addresses((self.addresses)(other));
            self.sandboxes.find(&identity, self.since).is_ok()
        })
    }
}

impl AtNode {
    /// Returns the captured addresses of pods. They are read from the node if this process has not written them, or if its write failed.
    pub(super) fn captured<'a>(
        &self,
        known: &'a mut Option<BTreeSet<IpAddr>>,
    ) -> Result<&'a BTreeSet<IpAddr>, String> {
        Ok(match known {
            Some(known) => known,
            None => {
                let bpffs = Bpffs::if_mounted(&self.0.places.bpffs).map_err(text)?;
                let found = weir_node_ambient::captured(&self.host()?, bpffs.as_ref());
                known.insert(found.map_err(text)?)
            }
        })
    }
}

/// Identifies a pod whose addresses are unknown, or differ from those of its network namespace, by the `unclaimed` addresses of its
/// network namespace: the plugin reported them to an earlier agent, and the API server does not know them yet. If that cannot be read, all
/// of them may be its own, unless one of its known addresses `is_captured`.
pub(super) fn told_before(
    pod: Identity,
    exclude: (Exclude, Option<String>),
    (unclaimed, is_captured): (&BTreeSet<IpAddr>, bool),
    sandboxes: &Sandboxes,
    since: Instant,
) -> Option<Member> {
    if unclaimed.is_empty() {
        return None;
    }
    let pod = pod.with_any_addresses();
    let found = match sandboxes.find(&pod, since) {
        Err(_) if sandboxes.is_absent(&pod, since) => return None,
        found => found.ok(),
    };
    let read =
        found.and_then(|found| Some((found.sandbox.visit(|v| v.addresses(&[])).ok()?, found)));
    let (mut own, found) = match read {
        Some((own, found)) => (own, Some(found)),
        None if is_captured => return None,
        None => (unclaimed.iter().copied().collect(), None),
    };
    own.retain(|address| unclaimed.contains(address));
    (!own.is_empty()).then(|| Member {
        identity: pod.with_addresses(own),
        exclude,
        found,
    })
}

/// Returns the uncertain pods that stay captured, with those of their addresses that do. `certain` are the addresses of other pods. If
/// several claim an address, the pod whose network namespace has it gets it, otherwise the pod that had it before.
pub(super) fn kept(
    mut doubtful: Vec<Member>,
    certain: BTreeSet<IpAddr>,
    captured: &BTreeSet<IpAddr>,
    applied: Option<&Config>,
    evidence: &Evidence<'_>,
) -> Vec<Member> {
    let uids = doubtful.iter().map(|member| member.uid().to_owned());
    let uids: BTreeSet<String> = uids.collect();
    doubtful.sort_by_key(|member| (member.found.is_none(), !member.had(applied)));
    let mut taken = certain;
    for member in &mut doubtful {
        let is_found = member.found.is_some();
        member.identity.addresses.retain(|address| {
            let may_stay = captured.contains(address) && !taken.contains(address);
            may_stay && (is_found || !evidence.is_of_another(*address, &uids))
        });
        taken.extend(member.identity.addresses.iter().copied());
    }
    doubtful.retain(|member| !member.identity.addresses.is_empty());
    doubtful
}
