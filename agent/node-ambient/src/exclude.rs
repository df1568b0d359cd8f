//! Exclusions: TCP of enrolled pods that is not captured, by peer and by port, for all pods of a node and for single ones.

use crate::config::Pod;
use ipnet::IpNet;
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use weir_cni::config::InputError;
use weir_cni::json;
use weir_ebpf::node::canonical;

/// Maximum number of networks, and of ports per direction.
const MOST: usize = 1000;
/// Maximum length of an annotation, in bytes.
const LONGEST: usize = 4096;
/// Maximum number of entries of one pod, so that one pod cannot use up the space. Each network and port counts once for each
/// address of the pod that it applies to.
const MOST_OF_POD: usize = 64;
/// Maximum number of networks, and of ports, of all pods of a node: half the size of the programs' maps, so that new entries can be
/// written before old ones are deleted.
const MOST_OF_PODS: usize = 32_768;

/// Traffic that is not captured.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Exclude {
    /// Networks: connections of pods to them, and from them to pods, are not captured. The longest prefix decides.
    /// IPv4-mapped addresses (`::ffff:10.0.0.0/104`) count as IPv4.
    pub peers: Vec<IpNet>,
    /// Networks that are captured although a shorter prefix of `peers` contains them.
    pub except: Vec<IpNet>,
    /// Ports: connections of pods to them are not captured.
    pub outbound_ports: BTreeSet<u16>,
    /// Ports of pods: connections to them are not captured.
    pub inbound_ports: BTreeSet<u16>,
}

impl Exclude {
    /// Reads the exclusions of a pod from its annotation, which is JSON.
    ///
    /// # Errors
    /// The text is not such an object, or a value is invalid: which one, why, and what is accepted.
    pub fn from_annotation(text: &str, name: &str) -> Result<Self, InputError> {
        let accepted = r#"an object with any of "peers", "except" (networks), "outbound_ports" and "inbound_ports""#;
        let bad = |reason: String| InputError::whole(name, reason, accepted);
        if text.len() > LONGEST {
            return Err(bad(format!("it has more than {LONGEST} bytes")));
        }
        let value = json::from_str(text).map_err(|e| bad(format!("it is not JSON: {e}")))?;
        let exclude: Self = json::from_value(&value).map_err(|e| bad(e.to_string()))?;
        exclude.check(name)?;
        Ok(exclude)
    }

    /// Returns the networks of the same family as the pod's address, longest prefix first.
    pub(crate) fn of(&self, pod: IpAddr) -> impl Iterator<Item = (IpNet, bool)> {
        let all = self.ordered().into_iter();
        all.filter(move |(net, _)| net.addr().is_ipv4() == pod.is_ipv4())
    }

    /// Returns the number of entries of networks and of ports for a pod with these addresses.
    fn entries(&self, addresses: &[IpAddr]) -> [usize; 2] {
        let networks = addresses.iter().map(|pod| self.of(*pod).count()).sum();
        let ports = self.outbound_ports.len() + self.inbound_ports.len();
        [networks, ports * addresses.len()]
    }

    /// Each network, with true if it is excluded. No IPv6 prefix contains IPv4 addresses.
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

    /// True if nothing is excluded.
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
            return bad(
                "exclude port 0".to_owned(),
                "it is not a port",
                "1 to 65535",
            );
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

/// Returns the chain of a pod with exclusions: at most 28 bytes, the limit of chain names in legacy tables.
pub(crate) fn chain_of(pod: &Pod) -> String {
    // FNV-1a: names must not change between versions.
    let hash = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    let hash = pod.uid.bytes().fold(0xcbf2_9ce4_8422_2325, hash);
    format!("ztunnel-X-{hash:016x}")
}

/// Clears the exclusions of a pod that has more than [`MOST_OF_POD`], or more than fit on the node, where earlier pods in the list
/// take precedence. [`Pod::refused`] gets the reason.
pub(crate) fn fit(pods: &mut [Pod]) {
    let mut used = [0; 2];
    for pod in pods {
        let [networks, ports] = pod.exclude.entries(&pod.addresses);
        let all = networks + ports;
        let sum = [used[0] + networks, used[1] + ports];
        let why = if all > MOST_OF_POD {
            format!(
                "it has {all} exclusions, each network and port counted for each address of the pod; at most {MOST_OF_POD} are possible"
            )
        } else if all > 0 && sum.iter().any(|n| *n > MOST_OF_PODS) {
            format!(
                "older pods of the node have as many exclusions as there is room for ({MOST_OF_PODS} networks and as many ports)"
            )
        } else {
            used = sum;
            continue;
        };
        pod.exclude = Exclude::default();
        pod.refused = Some(format!("{why}; nothing of it is excluded"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(number: u16, ports: u16) -> Pod {
        let [a, b] = number.to_be_bytes();
        Pod {
            uid: number.to_string(),
            addresses: vec![IpAddr::from([10, 0, a, b])],
            exclude: Exclude {
                outbound_ports: (1..=ports).collect(),
                ..Exclude::default()
            },
            ..Pod::default()
        }
    }

    #[test]
    fn annotations_are_read_whole_or_refused() {
        let read = |text: &str| Exclude::from_annotation(text, "ambient.weir/exclude");
        let text = r#"{"peers": ["10.0.0.0/8"], "except": ["10.1.0.0/16"], "outbound_ports": [5432], "inbound_ports": [9090]}"#;
        let exclude = read(text).unwrap();
        assert_eq!(exclude.networks().len(), 2);
        assert_eq!(exclude.outbound_ports, [5432].into());
        assert!(read("{}").unwrap().is_empty());
        for (text, part) in [
            ("", "not JSON"),
            ("[]", "object"),
            (r#"{"peers": ["10.0.0.0/33"]}"#, "peers"),
            (r#"{"peers": ["10.0.0.0/8"], "ports": [1]}"#, "ports"),
            (r#"{"outbound_ports": [0]}"#, "port 0"),
            (r#"{"outbound_ports": [65536]}"#, "outbound_ports"),
            (r#"{"peers": ["::/0"], "except": ["::/0"]}"#, "::/0"),
            (&" ".repeat(4097), "4096"),
        ] {
            let error = read(text).unwrap_err().to_string();
            assert!(
                error.contains(part) && error.contains("ambient.weir/exclude"),
                "{text}: {error}"
            );
        }
    }

    #[test]
    fn one_pod_does_not_take_the_room_of_others() {
        let mut two = pod(0, 32);
        two.addresses.push("fd00::1".parse().unwrap());
        let mut pods = vec![pod(1, 65), pod(2, 64), two.clone()];
        two.exclude.peers.push("10.0.0.0/8".parse().unwrap());
        pods.push(two);
        fit(&mut pods);
        let refused: Vec<bool> = pods.iter().map(|pod| pod.refused.is_some()).collect();
        assert_eq!(
            refused,
            [true, false, false, true],
            "by addresses and families"
        );
        assert!(pods[0].exclude.is_empty() && !pods[1].exclude.is_empty());
    }

    #[test]
    fn a_configuration_with_too_much_is_refused() {
        let ports: Vec<u16> = (1..=65).collect();
        let of = |exclude: &str| {
            let text = format!(
                r#"{{"pods": [{{"uid": "a", "addresses": ["10.0.0.9"], "exclude": {exclude}}}]}}"#
            );
            crate::Config::from_json(&text, "node.json")
                .map(|config| config.pods[0].exclude.clone())
        };
        let error = of(&format!(r#"{{"inbound_ports": {ports:?}}}"#)).unwrap_err();
        assert!(error.to_string().contains("at most 64"), "{error}");
        let error = of(r#"{"inbound_ports": [0]}"#).unwrap_err();
        assert!(error.to_string().contains("port 0"), "{error}");
        assert_eq!(
            of(r#"{"inbound_ports": [9]}"#).unwrap().inbound_ports,
            [9].into()
        );
    }

    #[test]
    fn pods_that_come_later_have_no_exclusions_in_a_full_node() {
        let mut pods: Vec<Pod> = (0..514).map(|number| pod(number, 64)).collect();
        pods.push(pod(514, 0));
        // Networks are another map.
        let mut of_network = pod(515, 0);
        of_network.exclude.peers.push("10.0.0.0/8".parse().unwrap());
        pods.push(of_network);
        fit(&mut pods);
        let refused = pods.iter().filter(|pod| pod.refused.is_some());
        let refused: Vec<&str> = refused.map(|pod| pod.uid.as_str()).collect();
        assert_eq!(refused, ["512", "513"]);
        assert!(pods[512].refused.as_ref().unwrap().contains("32768"));
    }
}
