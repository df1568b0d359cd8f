//! Addresses of a pod as reported by the plugin, which knows those of a new sandbox before the API server does.

use std::net::IpAddr;
use weir_core::pods::PodView;

/// The addresses reported by the plugin at ADD, and those of the API server at that time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ByPlugin {
    addresses: Vec<IpAddr>,
    /// The API server's addresses of the previous sandbox, until it reports others.
    stale: Option<Vec<IpAddr>>,
}

impl ByPlugin {
    /// `before` are the API server's addresses when the pod was handed over; `now` may be newer.
    pub(super) fn new(addresses: Vec<IpAddr>, before: Vec<IpAddr>, now: &PodView) -> Self {
        Self {
            addresses,
            stale: Some(before).filter(|old| *old == now.addresses()),
        }
    }

    /// Returns the addresses reported by the plugin.
    pub(super) fn told(&self) -> &[IpAddr] {
        &self.addresses
    }

    /// Drops reported addresses that are not in `there`.
    pub(super) fn retain(&mut self, there: &[IpAddr]) {
        self.addresses.retain(|address| there.contains(address));
    }

    /// Takes a new view of the API server.
    pub(super) fn saw(&mut self, view: &PodView) {
        self.stale = self.stale.take().filter(|old| *old == view.addresses());
    }

    /// Returns the pod's addresses given this view of the API server. Empty if the plugin reported none
    /// and those of the API server belong to the previous sandbox.
    pub(super) fn addresses(&self, view: &PodView) -> Vec<IpAddr> {
        let known = view.addresses();
        let is_old = known.is_empty() || self.stale.as_ref() == Some(&known);
        match is_old {
            true => self.addresses.clone(),
            false => known,
        }
    }

    /// Returns those of [`ByPlugin::addresses`] that only the API server reports. The container runtime gave the others to the plugin.
    pub(super) fn hearsay(&self, view: &PodView) -> Vec<IpAddr> {
        let mut addresses = self.addresses(view);
        addresses.retain(|address| !self.addresses.contains(address));
        addresses
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_a_sandbox_before_are_not_those_of_the_new_one() {
        let [old, new] = ["10.0.0.1", "10.0.0.2"].map(|a| a.parse::<IpAddr>().unwrap());
        let says = |address: Option<IpAddr>| {
            let mut view = PodView::default();
            view.pod.status.pod_ip = address;
            view
        };
        for by_plugin in [vec![], vec![new]] {
            let mut by = ByPlugin::new(by_plugin.clone(), vec![old], &says(Some(old)));
            for address in [Some(old), None] {
                assert_eq!(by.addresses(&says(address)), by_plugin, "{address:?}");
            }
            by.saw(&says(Some(new)));
            assert_eq!(by.addresses(&says(Some(new))), [new]);
            // The old address counts as new again.
            assert_eq!(by.addresses(&says(Some(old))), [old]);
        }
    }
}
