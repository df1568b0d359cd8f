//! Pods behind an AWS branch ENI: policy rules for the node's probes and their answers.

use super::State;
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::path::Path;
use weir_ambient::eni;
use weir_netlink::route::Routing;

impl State {
    pub(super) fn spares(&self, address: IpAddr, uid: &str) -> bool {
        self.spared.contains_key(uid) || self.spared.values().any(|all| all.contains(&address))
    }

    /// Writes the policy rules of pods behind a branch ENI, in the network namespace of this thread. Returns what was changed.
    pub(super) fn branch_enis(
        &mut self,
        (proc, ipv6): (&Path, bool),
        changed: Option<&[IpAddr]>,
    ) -> weir_netlink::Result<Vec<String>> {
        // The value is that of this thread's network namespace, regardless of the /proc it is read from.
        let has_enis = match self.has_enis {
            Some(known) => known,
            None => eni::early_demux_is_off(proc)?,
        };
        self.has_enis = Some(has_enis);
        if !has_enis {
            return Ok(Vec::new());
        }
        let routing = Routing::open()?;
        // Rules for pods of an earlier agent stay, as in the sets.
        let spared = || self.spared.values().flatten().copied();
        let known = || self.addresses.keys().copied().chain(spared());
        let all = || known().chain(self.enis.addresses());
        // Probes of an address family that is not captured need no rule.
        let is_captured = |address: &IpAddr| address.is_ipv4() || ipv6;
        let due: BTreeSet<IpAddr> = match changed {
            Some(changed) => changed.iter().copied().filter(is_captured).collect(),
            None => all().filter(is_captured).collect(),
        };
        let mut changes = Vec::new();
        for address in due {
            match self.addresses.contains_key(&address) || spared().any(|of| of == address) {
                true => {
                    let added = self.enis.put(&routing, address)?.unwrap_or_default();
                    changes.extend(added.iter().map(|rule| format!("add policy rule {rule}")));
                }
                false => self.enis.remove(&routing, address)?,
            }
        }
        // The rules of a spared pod without a known address cannot be identified.
        let are_known = self.spared.values().all(|addresses| !addresses.is_empty());
        if changed.is_none() && self.complete && are_known {
            let removed = self.enis.remove_others(&routing)?;
            changes.extend(
                removed
                    .iter()
                    .map(|rule| format!("delete policy rule {rule}")),
            );
        }
        Ok(changes)
    }
}
