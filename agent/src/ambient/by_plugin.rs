//! Addresses of a pod by the plugin, which knows those of a new sandbox before the API server does.

use std::net::IpAddr;
use weir_core::pods::PodView;

/// What the plugin said at ADD, and what the API server said in that moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ByPlugin {
    addresses: Vec<IpAddr>,
    /// Until the API server says something else: it is of the sandbox before.
    stale: Option<Vec<IpAddr>>,
}

impl ByPlugin {
    /// `before` is what the API server said when the pod was handed over; `now` may be newer.
    pub(super) fn new(addresses: Vec<IpAddr>, before: Vec<IpAddr>, now: &PodView) -> Self {
        Self {
            addresses,
            stale: Some(before).filter(|old| *old == now.addresses()),
        }
    }

    /// What it tells.
    pub(super) fn told(&self) -> &[IpAddr] {
        &self.addresses
    }

    /// Of what it tells, only these are there.
    pub(super) fn retain(&mut self, there: &[IpAddr]) {
        self.addresses.retain(|address| there.contains(address));
    }

    /// The API server says this now.
    pub(super) fn saw(&mut self, view: &PodView) {
        self.stale = self.stale.take().filter(|old| *old == view.addresses());
    }

    /// The addresses that are known of the pod when this is what the API server says. None are, where the plugin knows none
    /// and what the API server says is of the sandbox before.
    pub(super) fn addresses(&self, view: &PodView) -> Vec<IpAddr> {
        let known = view.addresses();
        let is_old = known.is_empty() || self.stale.as_ref() == Some(&known);
        match is_old {
            true => self.addresses.clone(),
            false => known,
        }
    }

    /// Of those, the ones that the API server alone knows. About the others the runtime has told the plugin.
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
            // It is news now.
            assert_eq!(by.addresses(&says(Some(old))), [old]);
        }
    }
}
