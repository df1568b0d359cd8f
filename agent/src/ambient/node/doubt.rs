//! Pods of which it is not known whether they belong to the mesh, or whether an address is theirs: what is captured stays
//! captured, and nothing else is. Rules in a pod's own namespace stay by themselves; here what is not asked for is removed.

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

/// A pod that is to be captured, and its namespace, if one is surely its own.
pub(super) struct Member {
    pub(super) identity: Identity,
    /// What is not to be captured of it, or why nothing of that is in force.
    pub(super) exclude: (Exclude, Option<String>),
    pub(super) found: Option<Arc<Held>>,
}

impl Member {
    pub(super) fn uid(&self) -> &str {
        self.identity.uid().unwrap_or_default()
    }

    /// Without a namespace the main table's routes say which link is the pod's.
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

    /// It had one of these addresses when the node was written last.
    fn had(&self, applied: Option<&Config>) -> bool {
        let mut pods = applied.into_iter().flat_map(|config| &config.pods);
        let has = |address| self.identity.addresses.contains(address);
        pods.any(|pod| pod.uid == self.uid() && pod.addresses.iter().any(has))
    }
}

/// What the doubts are decided by.
pub(super) struct Evidence<'a> {
    pub(super) claims: &'a Claims,
    /// The addresses that are known of a pod.
    pub(super) addresses: &'a dyn Fn(&PodView) -> Vec<IpAddr>,
    pub(super) sandboxes: &'a Sandboxes,
    pub(super) since: Instant,
}

impl Evidence<'_> {
    /// A pod that is none of these surely has the address.
    fn is_of_another(&self, address: IpAddr, these: &BTreeSet<String>) -> bool {
        let others = self.claims.of_address(address).iter();
        let mut others = others.filter(|other| !these.contains(other.uid()));
        others.any(|other| {
            let identity = Identity::of(other).with_addresses((self.addresses)(other));
            self.sandboxes.find(&identity, self.since).is_ok()
        })
    }
}

impl AtNode {
    /// The addresses of pods that are captured now. What this process did not write, or failed to, is read from the node.
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

/// A pod whose addresses are not known, or not those of its namespace, by those of its namespace that are `unclaimed`: the plugin told
/// them to an earlier agent, and the API server does not know them yet.
pub(super) fn told_before(
    pod: Identity,
    exclude: (Exclude, Option<String>),
    unclaimed: &BTreeSet<IpAddr>,
    sandboxes: &Sandboxes,
    since: Instant,
) -> Option<Member> {
    if unclaimed.is_empty() {
        return None;
    }
    let pod = pod.with_any_addresses();
    let found = sandboxes.find(&pod, since).ok()?;
    let mut own = found.sandbox.visit(|visit| visit.addresses()).ok()?;
    own.retain(|address| unclaimed.contains(address));
    (!own.is_empty()).then(|| Member {
        identity: pod.with_addresses(own),
        exclude,
        found: Some(found),
    })
}

/// Of pods in doubt those that stay captured, with the addresses that do. `certain` are the addresses of others. Of several that
/// claim the same one the first is that whose namespace has it, then that which had it before.
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
