//! The configuration as text, as it was given.

use super::{InputError, text};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};
use std::net::IpAddr;
use std::time::Duration;

/// All settings of a sidecar's redirection. Lists are comma-separated text; a field that is not given has its
/// default.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SidecarConfig {
    /// Port of the proxy's outbound listener.
    pub proxy_port: String,
    /// Port of the proxy's inbound listener.
    pub inbound_capture_port: String,
    /// Port of the proxy's tunnel (HBONE) listener, which is never redirected to the inbound one.
    pub inbound_tunnel_port: String,
    /// Users whose traffic is the proxy's own: numbers, ranges `A-B` or names.
    pub proxy_uid: String,
    /// Groups whose traffic is the proxy's own.
    pub proxy_gid: String,
    /// `TPROXY` selects transparent proxying; every other text selects redirection.
    pub inbound_interception_mode: String,
    /// The mark for transparent proxying.
    pub inbound_tproxy_mark: String,
    /// The routing table for marked packets.
    pub inbound_tproxy_route_table: String,
    /// Ports whose inbound traffic is captured; `*` for all, empty for none.
    pub inbound_ports_include: String,
    /// Ports that are not captured when all inbound ports are.
    pub inbound_ports_exclude: String,
    /// Groups whose outbound traffic is captured; `*` for all.
    pub owner_groups_include: String,
    /// Groups that are not captured when all groups are.
    pub owner_groups_exclude: String,
    /// Destination ports that are captured for every address.
    pub outbound_ports_include: String,
    /// Destination ports that are not captured for any address.
    pub outbound_ports_exclude: String,
    /// Destination networks that are captured; `*` for all, empty for none.
    pub outbound_ip_ranges_include: String,
    /// Destination networks that are not captured.
    pub outbound_ip_ranges_exclude: String,
    /// Interfaces that connect virtual machines, whose inbound traffic is treated as outbound.
    pub reroute_virtual_interfaces: String,
    /// Interfaces whose traffic is not captured.
    pub exclude_interfaces: String,
    /// Port that the probe connects to.
    pub iptables_probe_port: u16,
    /// Time limit of the probe; in JSON text such as `5s`.
    #[serde(serialize_with = "write_duration", deserialize_with = "read_duration")]
    pub probe_timeout: Duration,
    /// Change nothing in the kernel.
    pub dry_run: bool,
    /// Apply neither rules nor routes.
    pub skip_rule_apply: bool,
    /// Probe after applying.
    pub run_validation: bool,
    /// Redirect DNS to the proxy's DNS listener.
    pub redirect_dns: bool,
    /// Drop packets that conntrack finds invalid.
    pub drop_invalid: bool,
    /// Redirect DNS to any server instead of only to the configured ones.
    pub capture_all_dns: bool,
    /// Program IPv6 as well; set when the configuration is filled.
    pub enable_ipv6: bool,
    /// IPv4 name servers; set when the configuration is filled.
    pub dns_servers_v4: Vec<String>,
    /// IPv6 name servers; set when the configuration is filled.
    pub dns_servers_v6: Vec<String>,
    /// Path of the network namespace; names the lock file and the user namespace.
    pub network_namespace: String,
    /// The program sees the host's files and the pod's network (CNI).
    pub host_filesystem_pod_network: bool,
    /// Dual stack: both families are redirected.
    pub dual_stack: bool,
    /// The first usable address; set when the configuration is filled. In JSON empty text when there is
    /// none.
    #[serde(serialize_with = "write_address", deserialize_with = "read_address")]
    pub host_ip: Option<IpAddr>,
    /// The IPv4 addresses that count as loopback.
    pub host_ipv4_loopback_cidr: String,
    /// Replace rules that differ.
    pub reconcile: bool,
    /// Remove rules and add none.
    pub cleanup_only: bool,
    /// Apply even when the rules exist.
    pub force_apply: bool,
    /// Use nf_tables' own tables.
    pub native_nftables: bool,
    /// `legacy`, `nft` or empty: the variant of xtables.
    pub force_iptables_binary: String,
}

impl Default for SidecarConfig {
    fn default() -> Self {
        let text = str::to_owned;
        Self {
            proxy_port: text("15001"),
            inbound_capture_port: text("15006"),
            inbound_tunnel_port: text("15008"),
            proxy_uid: String::new(),
            proxy_gid: String::new(),
            inbound_interception_mode: String::new(),
            inbound_tproxy_mark: text("1337"),
            inbound_tproxy_route_table: text("133"),
            inbound_ports_include: String::new(),
            inbound_ports_exclude: String::new(),
            owner_groups_include: text("*"),
            owner_groups_exclude: String::new(),
            outbound_ports_include: String::new(),
            outbound_ports_exclude: String::new(),
            outbound_ip_ranges_include: String::new(),
            outbound_ip_ranges_exclude: String::new(),
            reroute_virtual_interfaces: String::new(),
            exclude_interfaces: String::new(),
            iptables_probe_port: 15002,
            probe_timeout: Duration::from_secs(5),
            dry_run: false,
            skip_rule_apply: false,
            run_validation: false,
            redirect_dns: false,
            drop_invalid: false,
            capture_all_dns: false,
            enable_ipv6: false,
            dns_servers_v4: Vec::new(),
            dns_servers_v6: Vec::new(),
            network_namespace: String::new(),
            host_filesystem_pod_network: false,
            dual_stack: false,
            host_ip: None,
            host_ipv4_loopback_cidr: text("127.0.0.1/32"),
            reconcile: false,
            cleanup_only: false,
            force_apply: false,
            native_nftables: false,
            force_iptables_binary: String::new(),
        }
    }
}

impl SidecarConfig {
    /// Parses a JSON object with these field names. `source_name` names the source in errors.
    /// # Errors
    ///
    /// The text is not JSON, a field is unknown (it is named) or has the wrong type.
    pub fn from_json(json: &str, source_name: &str) -> Result<Self, InputError> {
        crate::json::from_str(json).map_err(|e| {
            let accepted =
                "one JSON object; ports, marks and lists are strings, switches are booleans";
            InputError::whole(
                source_name,
                format!("is not a configuration: {}", super::said(&e)),
                accepted,
            )
        })
    }
}

fn write_duration<S: Serializer>(value: &Duration, s: S) -> Result<S::Ok, S::Error> {
    s.serialize_str(&text::duration_text(*value))
}

fn read_duration<'de, D: Deserializer<'de>>(d: D) -> Result<Duration, D::Error> {
    let value = String::deserialize(d)?;
    text::duration(&value).ok_or_else(|| {
        D::Error::custom(format!(
            "{} is not a duration, such as \"5s\" or \"500ms\"",
            super::quoted(&value)
        ))
    })
}

fn write_address<S: Serializer>(value: &Option<IpAddr>, s: S) -> Result<S::Ok, S::Error> {
    match value {
        Some(addr) => s.collect_str(addr),
        None => s.serialize_str(""),
    }
}

fn read_address<'de, D: Deserializer<'de>>(d: D) -> Result<Option<IpAddr>, D::Error> {
    let value = String::deserialize(d)?;
    if value.is_empty() {
        return Ok(None);
    }
    let error = |_| D::Error::custom(format!("{} is not an IP address", super::quoted(&value)));
    value.parse().map(Some).map_err(error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_object_is_the_default() {
        let config = SidecarConfig::from_json("{}", "test").unwrap();
        assert_eq!(config, SidecarConfig::default());
    }

    #[test]
    fn written_and_read_back() {
        let config = SidecarConfig {
            probe_timeout: Duration::from_millis(1500),
            host_ip: Some("fd00::1".parse().unwrap()),
            ..SidecarConfig::default()
        };
        let json = serde_json::to_string(&config).unwrap();
        assert_eq!(SidecarConfig::from_json(&json, "test").unwrap(), config);
    }

    #[test]
    fn errors_name_the_source_and_the_field() {
        for (json, words) in [
            (r#"{"proxy_portt": "1"}"#, "unknown field `proxy_portt`"),
            (r#"{"proxy_port": 1}"#, "integer `1`"),
            (r#"{"probe_timeout": "5"}"#, "\"5\" is not a duration"),
            (r#"{"host_ip": "x"}"#, "\"x\" is not an IP address"),
            (r#"{"iptables_probe_port": 70000}"#, "70000"),
            ("{", "EOF"),
        ] {
            let error = SidecarConfig::from_json(json, "golden.json")
                .unwrap_err()
                .to_string();
            assert!(
                error.starts_with("golden.json: ") && error.contains(words),
                "{error}"
            );
        }
    }
}
