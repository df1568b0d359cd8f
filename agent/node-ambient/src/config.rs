//! The configuration: the proxies of the node, the enrolled pods, and numbers that other writers may use, too.

use crate::exclude::{Exclude, fit};
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::path::PathBuf;
use weir_cni::config::InputError;
use weir_cni::json;

/// Maximum number of pods of one node, and of proxies. The kubelet's default limit is 110 pods.
const MAX_PODS: usize = 4096;
const MAX_PROXIES: usize = 16;

/// The desired state of a node. Names in JSON are those of the fields.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Proxies on this node. The active one is the newest that is ready.
    pub proxies: Vec<Proxy>,
    /// Enrolled pods.
    pub pods: Vec<Pod>,
    /// Source addresses of the node's own connections to enrolled pods, at most one per family; without one
    /// it is the address that the node has towards the pod by its main table.
    pub host_addresses: Vec<IpAddr>,
    /// The link that carries the first packet of a connection to the proxy. The old name of the key is `carrier`.
    #[serde(rename = "tunnel", alias = "carrier")]
    pub carrier: CarrierChoice,
    /// UDP port of the tunnels; by default the first free one from 6081.
    pub tunnel_port: Option<u16>,
    /// True to redirect DNS over UDP of enrolled pods to the proxy.
    pub dns_capture: bool,
    /// Traffic that is not captured.
    pub exclude: Exclude,
    /// What happens to enrolled pods while no proxy is ready.
    pub without_proxy: WithoutProxy,
    /// Marks of packets and connections.
    pub marks: Marks,
    /// Numbers of routing tables and policy rules.
    pub routing: Numbers,
    /// Host ends of pods' links from an earlier discovery, by UID: while a link of that name exists, the pod's namespace is
    /// not entered again.
    #[serde(skip)]
    pub devices: BTreeMap<String, Vec<String>>,
    /// If true, a pod whose link is not found, or is of a kind that cannot be captured, is left out ([`crate::Node::left_out`]) and
    /// the others are captured; if false, it is an error.
    #[serde(skip)]
    pub leave_out: bool,
    /// If true, nothing is set up for IPv6: see [`Config::without_ipv6`].
    #[serde(skip)]
    pub ipv4_only: bool,
    /// Previous values of sysctls: from an earlier [`crate::Change`], because the rules that store them may have been deleted since, or
    /// from before the programs that capture now ([`crate::ebpf::sysctls_before`]).
    #[serde(skip)]
    pub sysctls: BTreeMap<String, String>,
}

/// One proxy (ztunnel) pod.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Proxy {
    /// Its UID, for messages.
    #[serde(default)]
    pub uid: String,
    /// Its network namespace: `/run/netns/NAME` or `/proc/PID/ns/net`.
    pub netns: PathBuf,
    /// Its addresses, at most one per family.
    pub addresses: Vec<IpAddr>,
    /// Creation time in seconds; a later one wins.
    #[serde(default)]
    pub created: u64,
    /// True if the pod is Ready.
    #[serde(default = "yes")]
    pub ready: bool,
}

fn yes() -> bool {
    true
}

/// One enrolled pod.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pod {
    /// Its UID, the comment of its addresses.
    pub uid: String,
    /// Its addresses.
    pub addresses: Vec<IpAddr>,
    /// Its network namespace, if known: then its device is found as the peer of the pod's own interface.
    #[serde(default)]
    pub netns: Option<PathBuf>,
    /// Traffic of this pod that is not captured, in addition to [`Config::exclude`]. For a network in both, this one takes precedence.
    #[serde(default)]
    pub exclude: Exclude,
    /// Reason why `exclude` is not in force, if it is not.
    #[serde(skip)]
    pub refused: Option<String>,
}

/// The kind of link that carries the first packet of a connection from the node's namespace to the proxy's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CarrierChoice {
    /// The first of [`CarrierChoice::ORDER`] that the kernel supports: GENEVE, VXLAN, veth pairs.
    #[default]
    Auto,
    /// GENEVE, as in Istio 1.18 to 1.20.
    Geneve,
    /// VXLAN with the same network identifiers.
    Vxlan,
    /// A veth pair per direction, without encapsulation.
    Veth,
}

/// What happens to enrolled pods while no proxy is ready.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum WithoutProxy {
    /// Their TCP connections fail: nothing leaves in plain text.
    #[default]
    Closed,
    /// They are not captured.
    Open,
}

/// Bits of packet marks in the node's namespace, and two marks in the proxy's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Marks {
    /// Mark of TCP from an enrolled pod to the proxy's outbound port.
    pub outbound: u32,
    /// Mark of packets that are routed by the main table.
    pub skip: u32,
    /// With [`Marks::skip`]: saved in the connection mark, so that replies are skipped, too.
    pub conn_skip: u32,
    /// With [`Marks::skip`]: the connection was made by the proxy with the address of a client.
    pub proxy: u32,
    /// A reply to such a connection, for the proxy.
    pub proxy_return: u32,
    /// With [`Marks::proxy`] and [`Marks::proxy_return`]: the second of two proxies, while one takes over from the other.
    pub second: u32,
}

impl Default for Marks {
    fn default() -> Self {
        Self {
            outbound: 0x100,
            skip: 0x200,
            conn_skip: 0x220,
            proxy: 0x210,
            proxy_return: 0x040,
            second: 0x800,
        }
    }
}

impl Marks {
    /// Every bit that is set or compared.
    #[must_use]
    pub fn all(&self) -> u32 {
        self.outbound | self.skip | self.conn_skip | self.proxy | self.proxy_return | self.second
    }

    /// The bits of [`Marks::all`] that are saved in connection marks.
    #[must_use]
    pub fn of_connections(&self) -> u32 {
        self.conn_skip | self.proxy | self.second
    }

    fn check(&self, source: &str) -> Result<(), InputError> {
        let bad = |field: &str, value: u32, reason: &str| {
            let accepted = "outbound, skip, proxy_return and second of one bit each; conn_skip and proxy with the bit of skip and one more each; no bit twice";
            Err(InputError::value(
                source,
                format!("marks.{field} {value:#x}"),
                reason,
                accepted,
            ))
        };
        let mut used = 0;
        for (field, value, alone) in [
            ("outbound", self.outbound, self.outbound),
            ("skip", self.skip, self.skip),
            ("conn_skip", self.conn_skip, self.conn_skip & !self.skip),
            ("proxy", self.proxy, self.proxy & !self.skip),
            ("proxy_return", self.proxy_return, self.proxy_return),
            ("second", self.second, self.second),
        ] {
            if alone.count_ones() != 1 {
                return bad(field, value, "it does not have exactly one bit of its own");
            }
            if used & alone != 0 {
                return bad(field, value, "its bit has another meaning already");
            }
            used |= alone;
        }
        for (field, value) in [("conn_skip", self.conn_skip), ("proxy", self.proxy)] {
            if value & self.skip == 0 {
                return bad(field, value, "it does not contain the bit of skip");
            }
        }
        Ok(())
    }
}

/// Numbers of routing tables, and of policy rules in the node's namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Numbers {
    /// Table for connections to enrolled pods; in the proxy's namespace, the table of the local route.
    pub inbound_table: u32,
    /// Table for connections of enrolled pods.
    pub outbound_table: u32,
    /// Table for replies to the proxy.
    pub proxy_table: u32,
    /// Table for replies to the second of two proxies, while one takes over from the other.
    pub second_table: u32,
    /// Priority of the first of four policy rules.
    pub priority: u32,
}

impl Default for Numbers {
    fn default() -> Self {
        Self {
            inbound_table: 100,
            outbound_table: 101,
            proxy_table: 102,
            second_table: 103,
            priority: 100,
        }
    }
}

impl Numbers {
    /// The four tables.
    #[must_use]
    pub fn tables(&self) -> [u32; 4] {
        let [first, second] = self.proxy_tables();
        [self.inbound_table, self.outbound_table, first, second]
    }

    /// The tables for replies, by [`crate::LocatedProxy::slot`].
    pub(crate) fn proxy_tables(&self) -> [u32; 2] {
        [self.proxy_table, self.second_table]
    }

    fn check(&self, source: &str) -> Result<(), InputError> {
        let tables = self.tables();
        let text = || format!("routing tables {tables:?}, priority {}", self.priority);
        let bad = |reason: &str| {
            let accepted =
                "four different tables except 0 and 253 to 255, and a priority from 1 to 32762";
            Err(InputError::value(source, text(), reason, accepted))
        };
        if tables.iter().collect::<BTreeSet<_>>().len() < tables.len() {
            return bad("two of the tables are the same");
        }
        if tables.iter().any(|t| *t == 0 || (253..=255).contains(t)) {
            return bad("one of the tables is the kernel's own");
        }
        // Four rules must come before the one for "main", at 32766.
        if !(1..=32_762).contains(&self.priority) {
            return bad("the four rules would not lie between those for local and main");
        }
        Ok(())
    }
}

impl Config {
    /// Reads and checks the JSON text.
    ///
    /// # Errors
    /// The text is not a JSON object of this form, or a value is invalid: which one, why, and what is accepted.
    pub fn from_json(text: &str, source: &str) -> Result<Self, InputError> {
        let accepted = "an object with the keys that `weir plan node-ambient --help` shows";
        let value = json::from_str(text)
            .map_err(|e| InputError::whole(source, format!("it is not JSON: {e}"), accepted))?;
        let config: Self = json::from_value(&value)
            .map_err(|e| InputError::whole(source, e.to_string(), accepted))?;
        config.check(source)?;
        Ok(config)
    }

    /// Restricts the configuration to IPv4: connections over IPv6 pass as without weir.
    #[must_use]
    pub fn without_ipv6(mut self) -> Self {
        let addresses = self.pods.iter_mut().map(|pod| &mut pod.addresses);
        let addresses = addresses.chain(self.proxies.iter_mut().map(|proxy| &mut proxy.addresses));
        for addresses in addresses.chain([&mut self.host_addresses]) {
            addresses.retain(IpAddr::is_ipv4);
        }
        self.ipv4_only = true;
        self
    }

    /// The active proxy: the newest that is ready.
    #[must_use]
    pub fn active(&self) -> Option<&Proxy> {
        let ready = self.proxies.iter().filter(|p| p.ready);
        ready.max_by_key(|p| (p.created, p.uid.as_str()))
    }

    /// Returns an address of the pod whose family the active proxy lacks, with the reason why that is refused.
    #[must_use]
    pub fn unserved(&self, pod: &Pod) -> Option<(IpAddr, String)> {
        let proxy = self.active()?;
        let has = |v6: bool| proxy.addresses.iter().any(|a| a.is_ipv6() == v6);
        let address = pod.addresses.iter().find(|a| !has(a.is_ipv6()))?;
        let reason = format!(
            "the active proxy {} has no address of this family, so its traffic would be dropped",
            proxy.uid
        );
        Some((*address, reason))
    }

    fn check(&self, source: &str) -> Result<(), InputError> {
        self.marks.check(source)?;
        self.routing.check(source)?;
        self.exclude.check(source)?;
        self.check_sizes(source)?;
        self.check_proxies(source)?;
        let mut fitting = self.pods.clone();
        fit(&mut fitting);
        for pod in &fitting {
            if let Some(why) = &pod.refused {
                let accepted = "fewer networks and ports in its exclude";
                return bad(source, format!("pod {}", pod.uid), why, accepted);
            }
        }
        let mut owners = BTreeMap::new();
        for pod in &self.pods {
            pod.exclude.check(source)?;
            if pod.uid.is_empty() || !is_uid(&pod.uid) {
                let reason = "the UID of a pod is empty, longer than 64 bytes, or has other characters than those of ASCII that are visible";
                let value = format!("pod {:?}", pod.uid);
                return bad(source, value, reason, "metadata.uid of the pod");
            }
            for address in &pod.addresses {
                self.check_address(source, pod, address)?;
                if let Some(other) = owners.insert(*address, &pod.uid)
                    && *other != pod.uid
                {
                    let value = format!("pod {} address {address}", pod.uid);
                    let reason = format!("pod {other} has the same address");
                    return bad(source, value, reason, "each address once");
                }
            }
            if let Some((address, reason)) = self.unserved(pod) {
                let value = format!("pod {} address {address}", pod.uid);
                let accepted = "a proxy with an address of each family that pods have";
                return bad(source, value, reason, accepted);
            }
        }
        Ok(())
    }

    fn check_sizes(&self, source: &str) -> Result<(), InputError> {
        if self.pods.len() > MAX_PODS || self.proxies.len() > MAX_PROXIES {
            let value = format!("{} pods, {} proxies", self.pods.len(), self.proxies.len());
            let accepted = format!("at most {MAX_PODS} pods and {MAX_PROXIES} proxies");
            return bad(source, value, "there are too many", &accepted);
        }
        if self.tunnel_port == Some(0) {
            return bad(source, "tunnel_port 0", "it is not a port", "1 to 65535");
        }
        let proxies = (self.proxies.iter()).map(|p| ("proxy", p.uid.as_str(), &p.addresses));
        let lists = proxies.chain([("node", "host_addresses", &self.host_addresses)]);
        for (what, name, addresses) in lists {
            let of = |v6: bool| addresses.iter().filter(move |a| a.is_ipv6() == v6).count();
            if of(false) > 1 || of(true) > 1 {
                let reason = "two addresses have the same family";
                return bad(
                    source,
                    format!("{what} {name}"),
                    reason,
                    "one address per family",
                );
            }
        }
        Ok(())
    }

    fn check_proxies(&self, source: &str) -> Result<(), InputError> {
        let Some(proxy) = self.proxies.iter().find(|proxy| !is_uid(&proxy.uid)) else {
            return Ok(());
        };
        let reason = "it is longer than 64 bytes, or has other characters than those of ASCII that are visible";
        let value = format!("proxy {:?}", proxy.uid);
        bad(source, value, reason, "metadata.uid of the proxy's pod")
    }

    fn check_address(&self, source: &str, pod: &Pod, address: &IpAddr) -> Result<(), InputError> {
        let reason = if self.host_addresses.contains(address) {
            "it is an address of the node: a pod in the node's network cannot be enrolled"
        } else if self.proxies.iter().any(|p| p.addresses.contains(address)) {
            "it is an address of a proxy"
        } else if address.is_unspecified() || address.is_loopback() || address.is_multicast() {
            "no pod can have it"
        } else {
            return Ok(());
        };
        let value = format!("pod {} address {address}", pod.uid);
        let accepted = "addresses of the pod's own network namespace";
        bad(source, value, reason, accepted)
    }
}

fn bad(
    source: &str,
    value: impl Into<String>,
    reason: impl Into<String>,
    accepted: &str,
) -> Result<(), InputError> {
    Err(InputError::value(source, value, reason, accepted))
}

/// True if the text can be printed without escaping.
fn is_uid(text: &str) -> bool {
    text.len() <= 64 && text.bytes().all(|byte| byte.is_ascii_graphic())
}
