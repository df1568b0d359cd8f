//! The configuration as text, as it was given.

use crate::duration;
use serde::{Deserialize, Deserializer, de::Error as _};
use std::net::IpAddr;
use std::path::Path;
use std::time::Duration;
use weir_cni::config::{InputError, lookup_name, quoted, said};

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
    #[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
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
        #[serde(deserialize_with = "read_duration")]
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
        /// Program IPv6 as well; upstream's installer sets it if the pod has IPv6.
        pub enable_ipv6: bool = false,
        /// IPv4 name servers, which upstream's installer finds.
        pub dns_servers_v4: Vec<String> = Vec::new(),
        /// IPv6 name servers, which upstream's installer finds.
        pub dns_servers_v6: Vec<String> = Vec::new(),
        /// Path of the network namespace; names the lock file and the user namespace.
        pub network_namespace: String = String::new(),
        /// The program sees the host's files and the pod's network (CNI).
        pub host_filesystem_pod_network: bool = false,
        /// Dual stack: both families are redirected.
        pub dual_stack: bool = false,
        /// The first usable address of the pod, which upstream's installer finds. In JSON empty text when there is
        /// none.
        #[serde(deserialize_with = "read_address")]
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

/// The default user and group id of the proxy.
const DEFAULT_PROXY_ID: u32 = 1337;

impl SidecarConfig {
    /// Parses a JSON object with these field names. `source_name` names the source in errors.
    ///
    /// # Errors
    /// The text is not JSON, a field is unknown (it is named) or has the wrong type.
    pub fn from_json(json: &str, source_name: &str) -> Result<Self, InputError> {
        weir_cni::json::from_str(json).map_err(|e| {
            let accepted =
                "one JSON object; ports, marks and lists are strings, switches are booleans";
            InputError::whole(
                source_name,
                format!("is not a configuration: {}", said(&e)),
                accepted,
            )
        })
    }

    /// Sets the proxy's ids if none are given: the user named by `ENVOY_USER`, and the group with the same number.
    ///
    /// # Errors
    /// `passwd(5)` cannot be read.
    pub fn fill_proxy_ids(
        &mut self,
        env: &dyn Fn(&str) -> Option<String>,
        passwd: &Path,
    ) -> Result<(), InputError> {
        if self.proxy_uid.is_empty() {
            let user = env("ENVOY_USER").unwrap_or_else(|| "istio-proxy".to_owned());
            let uid = lookup_name(passwd, &user)?;
            self.proxy_uid = uid.unwrap_or(DEFAULT_PROXY_ID).to_string();
        }
        if self.proxy_gid.is_empty() {
            self.proxy_gid.clone_from(&self.proxy_uid);
        }
        Ok(())
    }
}

fn read_duration<'de, D: Deserializer<'de>>(d: D) -> Result<Duration, D::Error> {
    let value = String::deserialize(d)?;
    duration::parse(&value).ok_or_else(|| {
        D::Error::custom(format!(
            "{} is not a duration, such as \"5s\" or \"500ms\"",
            quoted(&value)
        ))
    })
}

fn read_address<'de, D: Deserializer<'de>>(d: D) -> Result<Option<IpAddr>, D::Error> {
    let value = String::deserialize(d)?;
    if value.is_empty() {
        return Ok(None);
    }
    let error = |_| D::Error::custom(format!("{} is not an IP address", quoted(&value)));
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

    #[test]
    fn proxy_ids() {
        let dir = weir_testing::TempDir::new();
        let passwd = dir.path().join("passwd");
        let users = "root:x:0:0::/:\nistio-proxy:x:1500:1501::/:\nme:x:8:9::/:\n";
        std::fs::write(&passwd, users).unwrap();
        let ids = |uid: &str, gid: &str, user: Option<&str>, known: bool| {
            let mut config = SidecarConfig {
                proxy_uid: uid.into(),
                proxy_gid: gid.into(),
                ..SidecarConfig::default()
            };
            let env = |name: &str| user.filter(|_| name == "ENVOY_USER").map(str::to_owned);
            let passwd = match known {
                true => passwd.clone(),
                false => dir.path().join("none"),
            };
            config.fill_proxy_ids(&env, &passwd).unwrap();
            format!("{} {}", config.proxy_uid, config.proxy_gid)
        };
        assert_eq!(ids("", "", None, true), "1500 1500");
        assert_eq!(ids("", "", Some("me"), true), "8 8");
        assert_eq!(ids("", "", Some("nobody-knows"), true), "1337 1337");
        assert_eq!(ids("", "", None, false), "1337 1337");
        assert_eq!(ids("3,4", "", None, true), "3,4 3,4");
        assert_eq!(ids("3,4", "1,2", None, true), "3,4 1,2");
        assert_eq!(ids("", "5", None, true), "1500 5");
    }
}
