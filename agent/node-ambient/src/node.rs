//! A configuration with the discovered state of the node: everything that the desired objects depend on.

use crate::config::{Config, Proxy, WithoutProxy};
use ipnet::IpNet;
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The kind of link that carries the first packet of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Carrier {
    /// GENEVE to this UDP port.
    Geneve(u16),
    /// VXLAN to this UDP port.
    Vxlan(u16),
    /// A veth pair per direction.
    Veth,
}

impl std::fmt::Display for Carrier {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Geneve(port) => write!(f, "GENEVE to UDP port {port}"),
            Self::Vxlan(port) => write!(f, "VXLAN to UDP port {port}"),
            Self::Veth => f.write_str("veth pairs"),
        }
    }
}

/// A proxy with its links and addresses on the node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LocatedProxy {
    /// The configured proxy.
    pub proxy: Proxy,
    /// The host's end of its veth pair.
    pub device: String,
    /// The proxy's end of the pair.
    pub interface: String,
    /// The node's source address towards the proxy, which is the remote address of the proxy's tunnels.
    pub host: IpAddr,
    /// Index of its table, marks and pair of carriers: 0, or 1 if it took over while the other proxy was there.
    pub slot: usize,
}

/// A bridge that has links of pods or of a proxy as ports: their packets arrive at it, and are routed by it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bridge {
    /// Its name.
    pub name: String,
    /// Frames to this address leave the bridge for the node.
    pub mac: [u8; 6],
}

/// Everything that the desired objects are computed from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// The configuration.
    pub config: Config,
    /// The kind of link for first packets.
    pub carrier: Carrier,
    /// The active proxy; `None` without one.
    pub active: Option<LocatedProxy>,
    /// The previously active proxies, the newest first, until they are gone: their connections continue. At most one per slot.
    pub before: Vec<LocatedProxy>,
    /// Host ends of the pods' links, by UID.
    pub devices: BTreeMap<String, Vec<String>>,
    /// The bridges of those links, and of the proxies' links, that are ports of one, by the link's name.
    pub bridges: BTreeMap<String, Bridge>,
    /// The node's own address towards each address of a pod; [`Config::host_addresses`] takes precedence.
    pub sources: BTreeMap<IpAddr, IpAddr>,
    /// UIDs of pods that are not captured, each with the reason; they are not in [`Node::config`].
    pub left_out: BTreeMap<String, String>,
    /// True if the kernel has IPv6 and it is captured.
    pub has_ipv6: bool,
}

/// Marks of one proxy.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ProxyBits {
    pub(crate) connection: u32,
    pub(crate) reply: u32,
    pub(crate) mask: u32,
}

impl LocatedProxy {
    /// Returns the proxy's address of a family.
    pub(crate) fn address(&self, family: Family) -> Option<IpAddr> {
        let addresses = &self.proxy.addresses;
        addresses.iter().copied().find(|a| family.of(a))
    }
}

/// The addresses that differ between the families.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Family {
    pub(crate) is_v6: bool,
    /// The proxy's address.
    pub(crate) proxy: Option<IpAddr>,
    /// The host's and the proxy's address of the inbound carrier.
    pub(crate) inbound: [IpNet; 2],
    /// The host's and the proxy's address of the outbound carrier.
    pub(crate) outbound: [IpNet; 2],
}

impl Family {
    pub(crate) fn of(self, address: &IpAddr) -> bool {
        address.is_ipv6() == self.is_v6
    }

    /// Returns the prefix of full length for an address.
    pub(crate) fn alone(address: IpAddr) -> IpNet {
        address.into()
    }
}

/// A unique local prefix; 7765:6972 is "weir" in ASCII.
const PREFIX: [u16; 3] = [0xfd00, 0x7765, 0x6972];

/// True if the address is in one of the ranges for carriers.
pub(crate) fn is_carrier_address(net: &IpNet) -> bool {
    match net.addr() {
        IpAddr::V4(v4) => matches!(v4.octets(), [192, 168, 126 | 127, _]),
        IpAddr::V6(v6) => v6.segments().starts_with(&PREFIX),
    }
}

fn carrier_address(is_v6: bool, third: u8, last: u8) -> IpNet {
    let (address, len) = match is_v6 {
        false => (IpAddr::from(Ipv4Addr::new(192, 168, third, last)), 30),
        true => {
            let (third, last) = (u16::from(third), u16::from(last));
            let [a, b, c] = PREFIX;
            (Ipv6Addr::new(a, b, c, third, 0, 0, 0, last).into(), 126)
        }
    };
    // Both lengths are valid for their family.
    IpNet::new(address, len).unwrap_or_else(|_| address.into())
}

impl Node {
    /// True if pods are captured: always with a proxy, and without one if [`WithoutProxy::Closed`] is configured.
    #[must_use]
    pub fn is_capturing(&self) -> bool {
        self.active.is_some() || self.config.without_proxy == WithoutProxy::Closed
    }

    /// Returns the proxies that may have connections, the active one first.
    pub(crate) fn proxies(&self) -> impl Iterator<Item = &LocatedProxy> {
        self.active.iter().chain(&self.before)
    }

    /// Returns the interface where packets of a link arrive and by which they are routed to it: its bridge if the link is a port of
    /// one, otherwise the link itself.
    pub(crate) fn arrival<'a>(&'a self, device: &'a str) -> &'a str {
        self.bridges.get(device).map_or(device, |b| b.name.as_str())
    }

    /// Returns the host ends of the pods' links that are ports of this bridge; `None`: those that are ports of no bridge.
    pub(crate) fn devices_of_pods<'a>(
        &'a self,
        bridge: Option<&'a str>,
    ) -> impl Iterator<Item = &'a str> {
        let all = self.devices.values().flatten().map(String::as_str);
        all.filter(move |device| self.bridges.get(*device).map(|b| b.name.as_str()) == bridge)
    }

    /// True if two proxies must be distinguished, or the only one has the second slot.
    pub(crate) fn is_split(&self) -> bool {
        self.proxies().any(|located| located.slot == 1)
    }

    /// Returns the mark bits of this proxy's connections and of their replies, and the mask to compare them with.
    pub(crate) fn bits(&self, located: &LocatedProxy) -> ProxyBits {
        let marks = &self.config.marks;
        let second = if self.is_split() { marks.second } else { 0 };
        let own = if located.slot == 1 { marks.second } else { 0 };
        ProxyBits {
            connection: marks.proxy | own,
            reply: marks.proxy_return | own,
            mask: marks.proxy | second,
        }
    }

    pub(crate) fn families(&self) -> Vec<Family> {
        let of = |is_v6: &bool| {
            let slot = self.active.as_ref().map_or(0, |active| active.slot);
            // The second proxy uses the next prefix.
            let first = if slot == 0 { 1 } else { 5 };
            let pair = |third| [first, first + 1].map(|last| carrier_address(*is_v6, third, last));
            let addresses = self.active.iter().flat_map(|p| &p.proxy.addresses);
            Family {
                is_v6: *is_v6,
                proxy: addresses.copied().find(|a| a.is_ipv6() == *is_v6),
                inbound: pair(126),
                outbound: pair(127),
            }
        };
        let all = if self.has_ipv6 {
            &[false, true][..]
        } else {
            &[false]
        };
        all.iter().map(of).collect()
    }

    /// Returns the pods' addresses of a family, each with the UID of its pod.
    pub(crate) fn addresses(&self, family: Family) -> BTreeMap<IpAddr, &str> {
        let pairs = self.config.pods.iter();
        let pairs = pairs.flat_map(|p| p.addresses.iter().map(|a| (*a, p.uid.as_str())));
        pairs.filter(|(a, _)| family.of(a)).collect()
    }

    /// Returns the address and port of the node's end of the tunnels.
    pub(crate) fn tunnel(&self) -> Option<(IpAddr, u16)> {
        match self.carrier {
            Carrier::Geneve(port) | Carrier::Vxlan(port) => {
                Some((self.active.as_ref()?.host, port))
            }
            Carrier::Veth => None,
        }
    }

    /// Returns the address of the proxy's end of the tunnels.
    pub(crate) fn remote(&self) -> Option<IpAddr> {
        let addresses = &self.active.as_ref()?.proxy.addresses;
        let v4 = addresses.iter().find(|a| a.is_ipv4());
        v4.or(addresses.first()).copied()
    }
}
