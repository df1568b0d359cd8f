//! TCP of enrolled pods that is not captured, by peer and by port.

use ipnet::IpNet;
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use weir_cni::config::InputError;
use weir_ebpf::node::canonical;

/// Most networks, and most ports of each direction.
const MOST: usize = 1000;

/// What is not captured.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Exclude {
    /// Networks: connections of pods to them, and of them to pods, are not captured. Of several the longest prefix decides.
    /// Mapped addresses (`::ffff:10.0.0.0/104`) are those of IPv4.
    pub peers: Vec<IpNet>,
    /// Networks that are captured although a shorter prefix of `peers` contains them.
    pub except: Vec<IpNet>,
    /// Ports: connections of pods to them are not captured.
    pub outbound_ports: BTreeSet<u16>,
    /// Ports of pods: connections to them are not captured.
    pub inbound_ports: BTreeSet<u16>,
}

impl Exclude {
    /// Each network, and whether it is excluded. No prefix of IPv6 contains addresses of IPv4.
    #[must_use]
    pub fn networks(&self) -> BTreeMap<IpNet, bool> {
        let peers = self.peers.iter().map(|net| (canonical(*net), true));
        let except = self.except.iter().map(|net| (canonical(*net), false));
        peers.chain(except).collect()
    }

    /// The longest prefixes first.
    pub(crate) fn ordered(&self) -> Vec<(IpNet, bool)> {
        let mut all: Vec<_> = self.networks().into_iter().collect();
        all.sort_by_key(|(net, _)| std::cmp::Reverse(net.prefix_len()));
        all
    }

    /// Nothing is excluded.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    pub(crate) fn check(&self, source: &str) -> Result<(), InputError> {
        let bad = |value: String, reason: &str, accepted: &str| {
            Err(InputError::value(source, value, reason, accepted))
        };
        let lengths = [
            self.peers.len() + self.except.len(),
            self.outbound_ports.len(),
            self.inbound_ports.len(),
        ];
        if lengths.iter().any(|length| *length > MOST) {
            let accepted = format!("at most {MOST} networks, and {MOST} ports of each direction");
            return bad("exclude".to_owned(), "it is too long", &accepted);
        }
        let ports = self.outbound_ports.iter().chain(&self.inbound_ports);
        if ports.into_iter().any(|port| *port == 0) {
            return bad("exclude port 0".to_owned(), "it is no port", "1 to 65535");
        }
        let except: BTreeSet<IpNet> = self.except.iter().map(|net| canonical(*net)).collect();
        let mut peers = self.peers.iter().map(|net| canonical(*net));
        match peers.find(|net| except.contains(net)) {
            Some(net) => {
                let reason = "it is in exclude.peers and in exclude.except";
                bad(net.to_string(), reason, "each network in one of them")
            }
            None => Ok(()),
        }
    }
}
