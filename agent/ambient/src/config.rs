//! The configuration: settings of the node, and annotations of a pod that override them.

use serde::Deserialize;
use std::collections::BTreeMap;
use std::net::{Ipv4Addr, Ipv6Addr};
use weir_cni::config::{InputError, InterfaceName, text};

/// Annotation that disables the capture of inbound traffic.
const BYPASS_INBOUND: &str = "ambient.istio.io/bypass-inbound-capture";
/// Annotation that enables or disables the capture of DNS.
const DNS: &str = "ambient.istio.io/dns-capture";
/// Annotation that lists interfaces of virtual machines.
const REROUTE: &str = "istio.io/reroute-virtual-interfaces";

/// Maximum number of those: each makes two rules, and the others of a table are few.
const MOST_INTERFACES: usize = 2000;

/// Settings that all pods of a node share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Write rules, policy rules and routes for IPv6, too.
    pub enable_ipv6: bool,
    /// Redirect DNS to ztunnel.
    pub redirect_dns: bool,
    /// Source address of the kubelet's probes over IPv4, which are not captured.
    pub host_probe_snat_address: Ipv4Addr,
    /// Source address of the kubelet's probes over IPv6.
    pub host_probe_v6_snat_address: Ipv6Addr,
}

impl Default for Config {
    /// The defaults of Istio's agent.
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
    /// Builds the configuration from the settings of the node agent: `text` returns a setting's text, `is_on` whether it is true.
    ///
    /// # Errors
    /// The name of the invalid setting, and the reason.
    pub fn of_settings<'a>(
        text: impl Fn(&'static str) -> &'a str,
        is_on: impl Fn(&'static str) -> bool,
    ) -> Result<Self, (&'static str, String)> {
        let (v4, v6) = ("HOST_PROBE_SNAT_IP", "HOST_PROBE_SNAT_IPV6");
        let refused = |name, family| {
            let why = format!("it is not an {family} address; give one, or leave it out");
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

/// A pod's setting for the capture of DNS.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DnsCapture {
    /// Not set: the node's setting applies.
    #[default]
    Unset,
    /// DNS is captured.
    Enabled,
    /// DNS is not captured.
    Disabled,
}

/// What one pod asks for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodOverrides {
    /// Interfaces of virtual machines: TCP that arrives there is outbound traffic.
    pub virtual_interfaces: Vec<String>,
    /// Inbound traffic is not captured.
    pub ingress_mode: bool,
    /// Capture of DNS.
    pub dns_proxy: DnsCapture,
}

impl PodOverrides {
    /// Reads the annotations of a pod. An invalid boolean counts as not set, as in Istio's agent.
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

    /// Returns one line per annotation whose value is not a boolean.
    #[must_use]
    pub fn unreadable(annotations: &BTreeMap<String, String>) -> Vec<String> {
        let line = |name: &&str| {
            let value = annotations.get(*name)?;
            let input = format!("annotation {name}");
            let why = "is not a boolean, and counts as not set";
            let error = InputError::value(input, value, why, "true, false");
            text::boolean(value).is_none().then(|| error.to_string())
        };
        [BYPASS_INBOUND, DNS].iter().filter_map(line).collect()
    }

    /// The interface names, checked for number and validity.
    pub(crate) fn interfaces(&self) -> Result<Vec<InterfaceName>, InputError> {
        let count = self.virtual_interfaces.len();
        if count > MOST_INTERFACES {
            let why = format!("its {count} elements are too many: each makes two rules");
            let accepted = format!(
                "at most {MOST_INTERFACES}; a beginning with * behind it names many interfaces"
            );
            return Err(InputError::whole(REROUTE, why, accepted));
        }
        let parse = |name: &String| InterfaceName::parse(REROUTE, name);
        self.virtual_interfaces.iter().map(parse).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Redirect;
    use weir_cni::compile::{Compiled, Engine, Rules};
    use weir_cni::config::MAX_RULES;
    use weir_cni::redirection::Desired;

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
            "annotation ambient.istio.io/bypass-inbound-capture: \"yes\" is not a boolean, and counts as not set; accepted: true, false"
        );
        assert_eq!(lines.len(), 2);
    }

    #[test]
    fn names_of_interfaces_are_checked() {
        let many = |n: usize| vec!["vm0"; n].join(",");
        let most = annotated(&[(REROUTE, &many(2000)), (DNS, "true")]);
        let config = Config {
            enable_ipv6: true,
            ..Config::default()
        };
        let redirect = Redirect::new(config, &most).unwrap();
        let rules = |compiled: Compiled| match compiled.rules {
            Rules::Nft(rules) => {
                let chains = rules.tables.iter().flat_map(|table| &table.chains);
                chains.map(|chain| chain.rules.len()).sum::<usize>()
            }
            // Of one family.
            Rules::Xtables(rules) => {
                let chains = rules.tables.iter().flat_map(|table| &table.chains);
                chains.map(|chain| chain.rules.len()).sum::<usize>() / 2
            }
        };
        for engine in [Engine::Nft, Engine::Xtables] {
            for compiled in [redirect.compile(engine), redirect.compile_chosen(engine)] {
                let rules = rules(compiled);
                assert!((4000..=MAX_RULES).contains(&rules), "{engine}: {rules}");
            }
        }
        let error = annotated(&[(REROUTE, &many(2001))]).interfaces();
        let error = error.unwrap_err().to_string();
        assert!(
            error.contains("its 2001 elements") && error.contains("at most 2000"),
            "{error}"
        );
        for name in ["a/b", "sixteen-bytes-16", "a b"] {
            let error = annotated(&[(REROUTE, name)]).interfaces().unwrap_err();
            let text = error.to_string();
            assert!(text.contains(REROUTE) && text.contains(name), "{text}");
        }
    }
}
