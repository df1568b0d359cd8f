//! Detects addresses that several live pods of the node claim, and UIDs that belong to another pod.

use crate::pods::PodView;
use std::net::IpAddr;
use std::sync::Arc;

/// The addresses claimed by pods, and the UIDs of all pods.
#[derive(Debug, Default)]
pub struct Claims {
    /// Sorted by address.
    addresses: Vec<(IpAddr, Arc<PodView>)>,
    /// All pods, including those that have ended.
    all: Vec<Arc<PodView>>,
}

impl Claims {
    /// Collects the claims of pods that have not ended and are not being deleted. Pods with the node's network are left out:
    /// they all have its addresses.
    pub fn of(views: &[Arc<PodView>]) -> Self {
        Self::with(views, PodView::addresses)
    }

    /// As [`Claims::of`], with the addresses of each pod from `addresses` instead of the API server.
    pub fn with(views: &[Arc<PodView>], addresses: impl Fn(&PodView) -> Vec<IpAddr>) -> Self {
        let ended =
            |view: &PodView| view.deleting || matches!(view.phase.as_str(), "Succeeded" | "Failed");
        let mut claimed = Vec::with_capacity(views.len());
        for view in views {
            if ended(view) || view.pod.spec.host_network {
                continue;
            }
            let addresses = addresses(view).into_iter();
            claimed.extend(addresses.map(|address| (address, Arc::clone(view))));
        }
        // Stable: the pods of an address stay in their order.
        claimed.sort_by_key(|(address, _)| *address);
        Self {
            addresses: claimed,
            all: views.to_vec(),
        }
    }

    /// Returns all pods that claim an address.
    pub fn of_address(&self, address: IpAddr) -> impl Iterator<Item = &Arc<PodView>> {
        let first = self.addresses.partition_point(|(of, _)| *of < address);
        let from = self.addresses.iter().skip(first);
        from.take_while(move |(of, _)| *of == address)
            .map(|(_, view)| view)
    }

    /// Checks that no other pod claims an address of this one, and that this one does not name another pod's UID as its mirror.
    /// If two pods claim an address, the API server's data about one of them is outdated; which one cannot be determined here.
    ///
    /// # Errors
    /// Names the address and the other pod that claims it, or the UID.
    pub fn check(&self, view: &PodView) -> Result<(), String> {
        self.check_for(view, &view.addresses())
    }

    /// As [`Claims::check`], for these addresses only: the others are known to be right.
    ///
    /// # Errors
    /// As [`Claims::check`].
    pub fn check_for(&self, view: &PodView, addresses: &[IpAddr]) -> Result<(), String> {
        let mut uids = view.pod.uids().filter(|uid| *uid != view.uid());
        let is_known = |uid: &&str| self.all.iter().any(|other| other.uid() == *uid);
        if let Some(uid) = uids.find(is_known) {
            return Err(format!(
                "its annotation kubernetes.io/config.mirror has the UID {uid} of another pod: nothing is written to \
                 either by that name; remove the annotation"
            ));
        }
        for address in addresses {
            let mut all = self.of_address(*address);
            if let Some(other) = all.find(|other| other.uid() != view.uid()) {
                return Err(format!(
                    "the address {address} is claimed by pod {}/{} too: nothing is written to either until only one has it",
                    other.namespace(),
                    other.name()
                ));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(name: &str, address: &str, change: impl FnOnce(&mut PodView)) -> Arc<PodView> {
        let mut view = PodView::default();
        view.pod.metadata.name = name.into();
        view.pod.metadata.uid = format!("uid-{name}");
        view.pod.status.pod_ip = address.parse().ok();
        view.phase = "Running".into();
        change(&mut view);
        Arc::new(view)
    }

    #[test]
    fn a_mirror_of_another_pod() {
        let web = pod("web", "10.0.0.1", |_| {});
        let mirror = |uid: &str| {
            pod("mirror", "10.0.0.2", |v| {
                v.pod.spec.node_name = "node1".into();
                let annotation = ("kubernetes.io/config.mirror".to_owned(), uid.to_owned());
                v.pod.metadata.annotations.extend([annotation]);
                let node = weir_cni::pod::OwnerReference {
                    kind: "Node".into(),
                    name: "node1".into(),
                };
                v.pod.metadata.owner_references.push(node);
            })
        };
        let (own, others) = (mirror("of-the-file"), mirror("uid-web"));
        assert_eq!(Claims::of(&[web.clone(), own.clone()]).check(&own), Ok(()));
        let claims = Claims::of(&[web.clone(), others.clone()]);
        assert!(claims.check(&others).is_err_and(|e| e.contains("uid-web")));
        assert_eq!(claims.check(&web), Ok(()));
    }

    #[test]
    fn only_live_pods_with_a_network_of_their_own_claim() {
        let web = pod("web", "10.0.0.1", |_| {});
        let others = [
            pod("deleted", "10.0.0.1", |v| v.deleting = true),
            pod("done", "10.0.0.1", |v| v.phase = "Succeeded".into()),
            pod("host", "10.0.0.1", |v| v.pod.spec.host_network = true),
            pod("else", "10.0.0.2", |_| {}),
        ];
        let mut all = vec![Arc::clone(&web)];
        all.extend(others);
        assert_eq!(Claims::of(&all).check(&web), Ok(()));
        all.push(pod("thief", "10.0.0.1", |v| v.phase = "Pending".into()));
        let error = Claims::of(&all).check(&web).unwrap_err();
        assert!(
            error.contains("10.0.0.1") && error.contains("/thief"),
            "{error}"
        );
    }
}
