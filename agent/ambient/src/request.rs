//! What is asked for, as JSON.

use crate::config::{Config, DnsCapture, PodOverrides};
use serde::Deserialize;
use serde::de::IgnoredAny;
use std::collections::BTreeMap;
use std::net::{Ipv4Addr, Ipv6Addr};
use weir_cni::config::InputError;
use weir_cni::json;

/// Settings of the node and what the pod says, as one JSON object has them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Request {
    /// Settings of the node.
    pub config: Config,
    /// What the pod says.
    pub pod_overrides: PodOverrides,
    /// Keys that have no effect, a line each.
    pub notes: Vec<String>,
}

/// Keys beside the two are those of the description of a case, and noted.
#[derive(Default, Deserialize)]
struct Written {
    #[serde(default, deserialize_with = "json::object_or_default")]
    config: WrittenConfig,
    #[serde(default, deserialize_with = "json::object_or_default")]
    pod_overrides: WrittenOverrides,
    #[serde(flatten)]
    others: BTreeMap<String, IgnoredAny>,
}

/// What is absent or null is the default.
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct WrittenConfig {
    enable_ipv6: Option<bool>,
    redirect_dns: Option<bool>,
    host_probe_snat_address: Option<Ipv4Addr>,
    host_probe_v6_snat_address: Option<Ipv6Addr>,
    // Switches of upstream's program.
    trace_logging: Option<bool>,
    force_apply: Option<bool>,
    reconcile: Option<bool>,
    cleanup_only: Option<bool>,
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct WrittenOverrides {
    virtual_interfaces: Option<Vec<String>>,
    ingress_mode: Option<bool>,
    dns_proxy: Option<DnsCapture>,
}

impl WrittenConfig {
    /// Of the switches that are on.
    fn notes(&self) -> impl Iterator<Item = String> {
        let switches = [
            (
                "trace_logging",
                self.trace_logging,
                "there is no rule that logs",
            ),
            (
                "force_apply",
                self.force_apply,
                "what is in sync is not written again",
            ),
            ("reconcile", self.reconcile, "apply always reconciles"),
            (
                "cleanup_only",
                self.cleanup_only,
                "`weir clean ambient` removes the redirection",
            ),
        ];
        let on = switches
            .into_iter()
            .filter(|(_, is_on, _)| *is_on == Some(true));
        on.map(|(name, _, why)| format!("{name} has no effect: {why}"))
    }
}

impl Request {
    /// Reads the JSON text of an object with the keys `config` and `pod_overrides`, either of which may be absent.
    ///
    /// # Errors
    /// It is no JSON object, or a field of the two is unknown, there twice or of the wrong type: where, and what is accepted.
    pub fn from_json(text: &str, source_name: &str) -> Result<Self, InputError> {
        let written: Written = json::from_str(text).map_err(|e| {
            let why = match e.is_syntax() || e.is_eof() {
                true => format!("it is not JSON: {e}"),
                false => e.to_string(),
            };
            let accepted = "an object with the keys config and pod_overrides, whose members have the names and types that --help shows";
            InputError::whole(source_name, why, accepted)
        })?;
        let mut notes: Vec<String> = written.config.notes().collect();
        if !written.others.is_empty() {
            let names: Vec<&str> = written.others.keys().map(String::as_str).collect();
            notes.push(format!(
                "{} beside config and pod_overrides have no effect",
                names.join(", ")
            ));
        }
        let (config, pod, usual) = (written.config, written.pod_overrides, Config::default());
        Ok(Self {
            config: Config {
                enable_ipv6: config.enable_ipv6.unwrap_or(usual.enable_ipv6),
                redirect_dns: config.redirect_dns.unwrap_or(usual.redirect_dns),
                host_probe_snat_address: config
                    .host_probe_snat_address
                    .unwrap_or(usual.host_probe_snat_address),
                host_probe_v6_snat_address: config
                    .host_probe_v6_snat_address
                    .unwrap_or(usual.host_probe_v6_snat_address),
            },
            pod_overrides: PodOverrides {
                virtual_interfaces: pod.virtual_interfaces.unwrap_or_default(),
                ingress_mode: pod.ingress_mode.unwrap_or_default(),
                dns_proxy: pod.dns_proxy.unwrap_or_default(),
            },
            notes,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json() {
        let text = r#"{"case": 1, "config": {"enable_ipv6": true, "reconcile": false},
            "pod_overrides": {"virtual_interfaces": null, "dns_proxy": "enabled"}}"#;
        let request = Request::from_json(text, "-").unwrap();
        assert!(request.config.enable_ipv6 && !request.config.redirect_dns);
        assert_eq!(request.pod_overrides.dns_proxy, DnsCapture::Enabled);
        assert_eq!(
            request.notes,
            ["case beside config and pod_overrides have no effect"]
        );
        let text = r#"{"config": {"reconcile": true, "cleanup_only": true, "force_apply": null}}"#;
        let notes = Request::from_json(text, "-").unwrap().notes;
        assert_eq!(notes.len(), 2, "{notes:?}");
        assert!(notes[1].contains("weir clean ambient"), "{notes:?}");
        assert_eq!(
            Request::from_json(r#"{"pod_overrides": null}"#, "-").unwrap(),
            Request::default()
        );
        let nulls = r#"{"config": {"enable_ipv6": null, "redirect_dns": null, "host_probe_snat_address": null,
            "host_probe_v6_snat_address": null}, "pod_overrides": {"ingress_mode": null, "dns_proxy": null}}"#;
        assert_eq!(Request::from_json(nulls, "-").unwrap(), Request::default());
        for (text, part) in [
            ("[]", "object"),
            ("{", "JSON"),
            (r#"{"config": []}"#, "config"),
            (r#"{"config": {"enable_ipv6": "yes"}}"#, "enable_ipv6"),
            (r#"{"config": {"redirect_dn": true}}"#, "`redirect_dn`"),
            (
                r#"{"config": {"redirect_dns": true, "redirect_dns": false}}"#,
                "duplicate field `redirect_dns`",
            ),
            (
                r#"{"config": {}, "config": {}}"#,
                "duplicate field `config`",
            ),
            (
                r#"{"pod_overrides": {"ingres_mode": true}}"#,
                "`ingres_mode`",
            ),
            (
                r#"{"config": {"host_probe_snat_address": "::1"}}"#,
                "host_probe_snat_address",
            ),
            (r#"{"pod_overrides": {"dns_proxy": "maybe"}}"#, "dns_proxy"),
            (
                r#"{"pod_overrides": {"virtual_interfaces": [1]}}"#,
                "virtual_interfaces",
            ),
        ] {
            let error = Request::from_json(text, "f.json").unwrap_err().to_string();
            assert!(
                error.contains(part)
                    && (error.contains("not JSON") == (text == "{"))
                    && error.starts_with("f.json: ")
                    && !error.contains("\"\""),
                "{text}: {error}"
            );
        }
    }
}
