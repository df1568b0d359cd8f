//! What is asked for: the settings of the node, and what the annotations of a pod say against them.

use serde::Deserialize;
use std::collections::BTreeMap;
use std::net::{Ipv4Addr, Ipv6Addr};
use weir_cni::config::{InputError, InterfaceName, text};

/// The annotation that leaves inbound traffic alone.
const BYPASS_INBOUND: &str = "ambient.istio.io/bypass-inbound-capture";
/// The annotation that switches the capture of DNS on or off.
const DNS: &str = "ambient.istio.io/dns-capture";
/// The annotation that lists interfaces of virtual machines.
const REROUTE: &str = "istio.io/reroute-virtual-interfaces";

/// Settings that all pods of a node share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Rules, policy rules and routes for IPv6, too.
    pub enable_ipv6: bool,
    /// DNS goes to ztunnel.
    pub redirect_dns: bool,
    /// Source address of the kubelet's probes over IPv4, which are not captured.
    pub host_probe_snat_address: Ipv4Addr,
    /// The same over IPv6.
    pub host_probe_v6_snat_address: Ipv6Addr,
}

impl Default for Config {
    /// As Istio's agent without settings.
    fn default() -> Self {
        Self {
            enable_ipv6: false,
            redirect_dns: false,
            host_probe_snat_address: Ipv4Addr::new(169, 254, 7, 127),
            host_probe_v6_snat_address: Ipv6Addr::new(
                0xfd16, 0x9254, 0x7127, 0x1337, 0xffff, 0xffff, 0xffff, 0xffff,
            ),
        }
    }
}

impl Config {
    /// From the settings of the node agent: their texts, and which of them are true.
    ///
    /// # Errors
    /// The setting that cannot be used, and why.
    pub fn of_settings<'a>(
        text: impl Fn(&'static str) -> &'a str,
        is_on: impl Fn(&'static str) -> bool,
    ) -> Result<Self, (&'static str, String)> {
        let (v4, v6) = ("HOST_PROBE_SNAT_IP", "HOST_PROBE_SNAT_IPV6");
        let refused = |name, family| {
            let why = format!("it is no {family} address; give one, or leave it out");
            (name, why)
        };
        Ok(Self {
            redirect_dns: is_on("AMBIENT_DNS_CAPTURE"),
            enable_ipv6: is_on("AMBIENT_IPV6"),
            host_probe_snat_address: text(v4).parse().map_err(|_| refused(v4, "IPv4"))?,
            host_probe_v6_snat_address: text(v6).parse().map_err(|_| refused(v6, "IPv6"))?,
        })
    }
}

/// What a pod says about the capture of DNS.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DnsCapture {
    /// Nothing: the node's setting applies.
    #[default]
    Unset,
    /// It is captured.
    Enabled,
    /// It is not.
    Disabled,
}

/// What one pod asks for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodOverrides {
    /// Interfaces of virtual machines: TCP that arrives there is outbound traffic.
    pub virtual_interfaces: Vec<String>,
    /// Inbound traffic is not captured.
    pub ingress_mode: bool,
    /// Whether DNS is captured.
    pub dns_proxy: DnsCapture,
}

impl PodOverrides {
    /// As the annotations of a pod say it. A boolean that is none counts as not set, as in Istio's agent.
    #[must_use]
    pub fn of_annotations(annotations: &BTreeMap<String, String>) -> Self {
        let boolean = |name| annotations.get(name).and_then(|value| text::boolean(value));
        let interfaces = annotations.get(REROUTE).map_or("", String::as_str);
        let interfaces = interfaces.split(',').map(str::trim);
        Self {
            virtual_interfaces: interfaces
                .filter(|name| !name.is_empty())
                .map(str::to_owned)
                .collect(),
            ingress_mode: boolean(BYPASS_INBOUND).unwrap_or(false),
            dns_proxy: match boolean(DNS) {
                None => DnsCapture::Unset,
                Some(true) => DnsCapture::Enabled,
                Some(false) => DnsCapture::Disabled,
            },
        }
    }

    /// Annotations whose values are no booleans, a line each.
    #[must_use]
    pub fn unreadable(annotations: &BTreeMap<String, String>) -> Vec<String> {
        let line = |name: &&str| {
            let value = annotations.get(*name)?;
            let input = format!("annotation {name}");
            let why = "is no boolean, and counts as not set";
            let error = InputError::value(input, value, why, "true, false");
            text::boolean(value).is_none().then(|| error.to_string())
        };
        [BYPASS_INBOUND, DNS].iter().filter_map(line).collect()
    }

    /// The interfaces, each of which may exist.
    pub(crate) fn interfaces(&self) -> Result<Vec<InterfaceName>, InputError> {
        let parse = |name: &String| InterfaceName::parse(REROUTE, name);
        self.virtual_interfaces.iter().map(parse).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn annotated(pairs: &[(&str, &str)]) -> PodOverrides {
        let own = |(k, v): &(&str, &str)| ((*k).to_owned(), (*v).to_owned());
        PodOverrides::of_annotations(&pairs.iter().map(own).collect())
    }

    #[test]
    fn annotations() {
        assert_eq!(annotated(&[]), PodOverrides::default());
        let all = annotated(&[
            (BYPASS_INBOUND, "True"),
            (DNS, "f"),
            (REROUTE, " tap0, ,tap1 ,"),
        ]);
        assert_eq!(all.virtual_interfaces, ["tap0", "tap1"]);
        assert!(all.ingress_mode && all.dns_proxy == DnsCapture::Disabled);
        let odd = annotated(&[(BYPASS_INBOUND, "yes"), (DNS, "")]);
        assert_eq!(odd, PodOverrides::default());
        let unreadable = |pairs: &[(&str, &str)]| {
            let own = |(k, v): &(&str, &str)| ((*k).to_owned(), (*v).to_owned());
            PodOverrides::unreadable(&pairs.iter().map(own).collect())
        };
        assert_eq!(unreadable(&[(BYPASS_INBOUND, "True"), (DNS, "f")]), [""; 0]);
        let lines = unreadable(&[(BYPASS_INBOUND, "yes"), (DNS, "")]);
        assert_eq!(
            lines[0],
            "annotation ambient.istio.io/bypass-inbound-capture: \"yes\" is no boolean, and counts as not set; accepted: true, false"
        );
        assert_eq!(lines.len(), 2);
    }

    #[test]
    fn names_of_interfaces_are_checked() {
        for name in ["a/b", "sixteen-bytes-16", "a b"] {
            let error = annotated(&[(REROUTE, name)]).interfaces().unwrap_err();
            let text = error.to_string();
            assert!(text.contains(REROUTE) && text.contains(name), "{text}");
        }
    }
}
