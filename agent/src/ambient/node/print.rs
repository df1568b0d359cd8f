//! Detects changes by another writer at the node without a comparison.

use super::{AtNode, State};
use weir_cni::redirection::{Fingerprint, FingerprintReader};
use weir_ebpf::Bpffs;
use weir_ebpf::node::{Attached, Node as Programs};
use weir_netlink::Netns;
use weir_node_ambient::Config;

/// The fingerprint of the node.
#[derive(Clone, PartialEq)]
pub(super) struct Print {
    rules: Fingerprint,
    /// The kernel reports neither a detached program nor a replaced one.
    programs: Option<Attached>,
}

impl AtNode {
    /// Returns true if the node's routing or nf_tables may have changed since the last comparison. State that cannot be
    /// read counts as changed.
    pub(in crate::ambient) fn has_changed(&self) -> bool {
        let mut state = self.state();
        let State {
            seen: Some(seen),
            reader,
            ..
        } = &mut *state
        else {
            return true;
        };
        let now = self.fingerprint(reader, &seen.config);
        now.is_none() || now != seen.fingerprint
    }

    pub(super) fn fingerprint(
        &self,
        reader: &mut Option<FingerprintReader>,
        config: &Config,
    ) -> Option<Print> {
        let rules = self.rules(reader)?;
        let programs = match self.by_programs() {
            true => Some(self.attached(config)?),
            false => None,
        };
        Some(Print { rules, programs })
    }

    fn attached(&self, config: &Config) -> Option<Attached> {
        let bpffs = Bpffs::at(&self.0.places.bpffs).ok()?;
        let active = config.active().into_iter();
        let active = active.map(|proxy| Netns::open(&proxy.netns));
        let active: weir_netlink::Result<Vec<Netns>> = active.collect();
        let host = self.host().ok()?;
        Programs::of(&host, &bpffs).attached(&active.ok()?).ok()
    }

    fn rules(&self, reader: &mut Option<FingerprintReader>) -> Option<Fingerprint> {
        if reader.is_none() {
            let host = self.host().ok()?;
            let of_host = FingerprintReader::of(&host).ok();
            // Legacy tables are compared in rounds only: a comparison is expensive if kube-proxy has thousands of rules there.
            *reader = of_host.map(FingerprintReader::without_legacy_tables);
        }
        let read = reader.as_mut()?.read();
        if read.is_err() {
            *reader = None;
        }
        read.ok()
    }
}
