//! The processes of the node at one moment, by the pods to which they belong.

use super::{FoundNetns, Identity};
use caps::{CapSet, Capability};
use std::collections::{BTreeMap, BTreeSet};
use weir_netlink::NetnsId;

/// The network namespaces of processes, without the node's own.
#[derive(Debug, Default)]
pub struct Scan {
    /// The oldest process by UID of the pod and namespace.
    oldest: BTreeMap<(String, NetnsId), FoundNetns>,
    /// All namespaces, whether of pods or not.
    pub(super) seen: BTreeSet<NetnsId>,
    /// Number of processes whose namespace cannot be read for lack of permission, by the UID of the pod that their control
    /// group names.
    pub(super) hidden: BTreeMap<Option<String>, usize>,
}

impl Scan {
    pub(super) fn add(&mut self, place: FoundNetns, uid: Option<String>) {
        self.seen.insert(place.id);
        let Some(uid) = uid else {
            return;
        };
        let known = self.oldest.entry((uid, place.id)).or_insert(place);
        if place.started < known.started {
            *known = place;
        }
    }

    /// Returns the places of processes of this pod.
    pub(super) fn of(&self, pod: &Identity) -> impl Iterator<Item = FoundNetns> {
        let all = self.oldest.iter();
        all.filter(|((uid, _), _)| pod.is_called(uid))
            .map(|(_, place)| *place)
    }

    /// Returns true if no process is in a control group of this pod, while processes of other pods are seen in theirs.
    pub(in crate::sandboxes) fn has_none_of(&self, pod: &Identity) -> bool {
        let names_pods = !self.oldest.is_empty();
        names_pods && self.of(pod).next().is_none() && !self.hides(pod)
    }

    /// Returns true if the namespace of a process of this pod cannot be read for lack of permission.
    pub(super) fn hides(&self, pod: &Identity) -> bool {
        let mut uids = self.hidden.keys().flatten();
        uids.any(|uid| pod.is_called(uid))
    }

    /// Explains why no namespace is the pod's. A missing capability is reported alone if it is the whole explanation: control
    /// groups can be read without it, namespaces cannot.
    pub(super) fn missing(&self, pod: &Identity, other: Option<String>) -> String {
        let may_be_of_pod = |uid: &Option<String>| uid.as_ref().is_none_or(|u| pod.is_called(u));
        let hidden = self.hidden.iter().filter(|(uid, _)| may_be_of_pod(uid));
        let (named, unnamed): (Vec<_>, Vec<_>) = hidden.partition(|(uid, _)| uid.is_some());
        let pods_are_named = !self.oldest.is_empty() || self.hidden.keys().any(|uid| uid.is_some());
        // If control groups name pods, a process in none of them belongs to no pod.
        let unknown = if pods_are_named { 0 } else { sum(&unnamed) };
        let of_pod = sum(&named);
        if of_pod > 0 && other.is_none() {
            return format!(
                "the network namespace of this pod's processes may not be looked at: {}",
                withheld()
            );
        }
        let why = match other {
            Some(first) => first,
            None if !pods_are_named && !self.seen.is_empty() => {
                "no process of this node is in a control group that names a pod; the kubelet makes them unless it \
                 runs with cgroupsPerQOS: false"
                    .to_owned()
            }
            None => format!(
                "no process is in a control group of the UID {}",
                pod.uids.join(" or ")
            ),
        };
        let hidden = match of_pod + unknown {
            0 => String::new(),
            n => format!(
                "; of {n} processes the namespace may not be looked at: {}",
                withheld()
            ),
        };
        format!(
            "none of the {} network namespaces of pods has a process of this pod{}: {why}{hidden}",
            self.seen.len(),
            pod.and_addresses(" and has the addresses ")
        )
    }
}

fn sum(hidden: &[(&Option<String>, &usize)]) -> usize {
    hidden.iter().map(|(_, count)| **count).sum()
}

/// Explains why the kernel denies access to the namespace of another user's process (`PTRACE_MODE_READ_FSCREDS`,
/// `ptrace(2)`).
pub(super) fn withheld() -> &'static str {
    match caps::has_cap(None, CapSet::Effective, Capability::CAP_SYS_PTRACE) {
        Ok(false) => "this agent lacks CAP_SYS_PTRACE; add it to the container's capabilities",
        _ => {
            "this agent has CAP_SYS_PTRACE, so a security module (AppArmor, SELinux) refuses it; its audit log names \
             the profile"
        }
    }
}
