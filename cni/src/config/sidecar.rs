//! The configuration as text, as it was given.

use super::{InputError, text};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};
use std::net::IpAddr;
use std::time::Duration;

/// Declares the settings: each field with its type and its default.
macro_rules! settings {
    ($(#[$m:meta])* pub struct $name:ident {
        $($(#[$fm:meta])* pub $field:ident: $ty:ty = $default:expr,)*
    }) => {
        $(#[$m])*
        pub struct $name {
            $($(#[$fm])* pub $field: $ty,)*
        }

        impl Default for $name {
            fn default() -> Self {
                Self { $($field: $default,)* }
            }
        }
    };
}

settings! {
    /// All settings of a sidecar's redirection. Lists are comma-separated text; a field that is not given has its
    /// default.
    #[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
    #[serde(default, deny_unknown_fields)]
    pub struct SidecarConfig {
        /// Port of the proxy's outbound listener.
        pub proxy_port: String = "15001".to_owned(),
        /// Port of the proxy's inbound listener.
        pub inbound_capture_port: String = "15006".to_owned(),
        /// Port of the proxy's tunnel (HBONE) listener, which is never redirected to the inbound one.
        pub inbound_tunnel_port: String = "15008".to_owned(),
        /// Users whose traffic is the proxy's own: numbers, ranges `A-B` or names.
        pub proxy_uid: String = String::new(),
        /// Groups whose traffic is the proxy's own.
        pub proxy_gid: String = String::new(),
        /// `TPROXY` selects transparent proxying; every other text selects redirection.
        pub inbound_interception_mode: String = String::new(),
        /// The mark for transparent proxying.
        pub inbound_tproxy_mark: String = "1337".to_owned(),
        /// The routing table for marked packets.
        pub inbound_tproxy_route_table: String = "133".to_owned(),
        /// Ports whose inbound traffic is captured; `*` for all, empty for none.
        pub inbound_ports_include: String = String::new(),
        /// Ports that are not captured when all inbound ports are.
        pub inbound_ports_exclude: String = String::new(),
        /// Groups whose outbound traffic is captured; `*` for all.
        pub owner_groups_include: String = "*".to_owned(),
        /// Groups that are not captured when all groups are.
        pub owner_groups_exclude: String = String::new(),
        /// Destination ports that are captured for every address.
        pub outbound_ports_include: String = String::new(),
        /// Destination ports that are not captured for any address.
        pub outbound_ports_exclude: String = String::new(),
        /// Destination networks that are captured; `*` for all, empty for none.
        pub outbound_ip_ranges_include: String = String::new(),
        /// Destination networks that are not captured.
        pub outbound_ip_ranges_exclude: String = String::new(),
        /// Interfaces that connect virtual machines, whose inbound traffic is treated as outbound.
        pub reroute_virtual_interfaces: String = String::new(),
        /// Interfaces whose traffic is not captured.
        pub exclude_interfaces: String = String::new(),
        /// Port that the probe connects to.
        pub iptables_probe_port: u16 = 15002,
        /// Time limit of the probe; in JSON text such as `5s`.
        #[serde(serialize_with = "write_duration", deserialize_with = "read_duration")]
        pub probe_timeout: Duration = Duration::from_secs(5),
        /// Change nothing in the kernel.
        pub dry_run: bool = false,
        /// Apply neither rules nor routes.
        pub skip_rule_apply: bool = false,
        /// Probe after applying.
        pub run_validation: bool = false,
        /// Redirect DNS to the proxy's DNS listener.
        pub redirect_dns: bool = false,
        /// Drop packets that conntrack finds invalid.
        pub drop_invalid: bool = false,
        /// Redirect DNS to any server instead of only to the configured ones.
        pub capture_all_dns: bool = false,
        /// Program IPv6 as well; set when the configuration is filled.
        pub enable_ipv6: bool = false,
        /// IPv4 name servers; set when the configuration is filled.
        pub dns_servers_v4: Vec<String> = Vec::new(),
        /// IPv6 name servers; set when the configuration is filled.
        pub dns_servers_v6: Vec<String> = Vec::new(),
        /// Path of the network namespace; names the lock file and the user namespace.
        pub network_namespace: String = String::new(),
        /// The program sees the host's files and the pod's network (CNI).
        pub host_filesystem_pod_network: bool = false,
        /// Dual stack: both families are redirected.
        pub dual_stack: bool = false,
        /// The first usable address; set when the configuration is filled. In JSON empty text when there is
        /// none.
        #[serde(serialize_with = "write_address", deserialize_with = "read_address")]
        pub host_ip: Option<IpAddr> = None,
        /// The IPv4 addresses that count as loopback.
        pub host_ipv4_loopback_cidr: String = "127.0.0.1/32".to_owned(),
        /// Replace rules that differ.
        pub reconcile: bool = false,
        /// Remove rules and add none.
        pub cleanup_only: bool = false,
        /// Apply even when the rules exist.
        pub force_apply: bool = false,
        /// Use nf_tables' own tables.
        pub native_nftables: bool = false,
        /// `legacy`, `nft` or empty: the variant of xtables.
        pub force_iptables_binary: String = String::new(),
    }
}

impl SidecarConfig {
    /// Parses a JSON object with these field names. `source_name` names the source in errors.
    ///
    /// # Errors
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
