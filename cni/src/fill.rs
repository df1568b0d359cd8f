//! Completes a configuration from the environment: variables, addresses, local files.

use crate::config::{self, InputError, OwnerGroups, SidecarConfig};
use ipnet::Ipv4Net;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::{Path, PathBuf};

/// The sources that [`fill`] reads: parameters, so that the caller can supply those of a test or of another namespace.
pub struct FillSources<'a> {
    /// Looks up a variable of the process; `None` if it is not set, which differs from empty.
    pub env: &'a dyn Fn(&str) -> Option<String>,
    /// Addresses of the network namespace, the default network's first: see
    /// [`Visit::addresses`](crate::redirection::Visit::addresses).
    pub addresses: &'a [IpAddr],
    /// `passwd(5)`
    pub passwd: PathBuf,
    /// `resolv.conf(5)`; read only if DNS is redirected for the servers that it names.
    pub resolv_conf: PathBuf,
}

impl<'a> FillSources<'a> {
    /// Creates sources with the files of this machine.
    #[must_use]
    pub fn new(env: &'a dyn Fn(&str) -> Option<String>, addresses: &'a [IpAddr]) -> Self {
        Self {
            env,
            addresses,
            passwd: "/etc/passwd".into(),
            resolv_conf: "/etc/resolv.conf".into(),
        }
    }
}

/// Settings in the process's environment that apply to the redirection of every pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeEnvironment {
    /// `ISTIO_OUTBOUND_OWNER_GROUPS`, `ISTIO_OUTBOUND_OWNER_GROUPS_EXCLUDE`
    pub owner_groups: OwnerGroups,
    /// `ISTIO_OUTBOUND_IPV4_LOOPBACK_CIDR`
    pub loopback_v4: Ipv4Net,
}

impl Default for NodeEnvironment {
    /// The settings without any variable.
    fn default() -> Self {
        Self {
            owner_groups: OwnerGroups::AllBut(Vec::new()),
            loopback_v4: Ipv4Net::from(Ipv4Addr::LOCALHOST),
        }
    }
}

const OWNER_GROUPS: (&str, &str) = ("ISTIO_OUTBOUND_OWNER_GROUPS", "*");
const OWNER_GROUPS_EXCLUDE: (&str, &str) = ("ISTIO_OUTBOUND_OWNER_GROUPS_EXCLUDE", "");
const LOOPBACK: (&str, &str) = ("ISTIO_OUTBOUND_IPV4_LOOPBACK_CIDR", "127.0.0.1/32");

impl NodeEnvironment {
    /// Reads the variables; resolves group names in the group file.
    ///
    /// # Errors
    /// The error names the variable that cannot be parsed, and the accepted values.
    pub fn read(env: &dyn Fn(&str) -> Option<String>, group: &Path) -> Result<Self, InputError> {
        let var = |(name, default): (&'static str, &str)| {
            (name, env(name).unwrap_or_else(|| default.to_owned()))
        };
        let (include, exclude) = (var(OWNER_GROUPS), var(OWNER_GROUPS_EXCLUDE));
        let loopback = var(LOOPBACK);
        Ok(Self {
            owner_groups: OwnerGroups::parse(
                (include.0, &include.1),
                (exclude.0, &exclude.1),
                group,
            )?,
            loopback_v4: config::loopback(loopback.0, &loopback.1)?,
        })
    }
}

/// Sorts addresses of the default network from another source, such as a pod's status, into the order in which
/// [`fill`] finds them in a namespace: IPv4 before IPv6, regardless of the cluster's preference.
pub fn order_as_dumped(addresses: &mut [IpAddr]) {
    addresses.sort_by_key(IpAddr::is_ipv6);
}

/// The default user and group id of the proxy.
const DEFAULT_PROXY_ID: u32 = 1337;

/// Sets the owner groups, the loopback network, the proxy's ids, the family and the name servers.
/// Returns warnings.
///
/// # Errors
/// The namespace has no address that can be the pod's; a required file cannot be read.
pub fn fill(
    config: &mut SidecarConfig,
    sources: &FillSources<'_>,
) -> Result<Vec<String>, InputError> {
    let var =
        |(name, default): (&str, &str)| (sources.env)(name).unwrap_or_else(|| default.to_owned());
    config.owner_groups_include = var(OWNER_GROUPS);
    config.owner_groups_exclude = var(OWNER_GROUPS_EXCLUDE);
    config.host_ipv4_loopback_cidr = var(LOOPBACK);

    fill_proxy_ids(config, sources.env, &sources.passwd)?;

    let (host_ip, enable_ipv6) = local_address(sources.addresses, config.dual_stack)?;
    config.host_ip = Some(host_ip);
    config.enable_ipv6 = enable_ipv6;

    let mut warnings = Vec::new();
    if config.redirect_dns && !config.capture_all_dns {
        let servers = name_servers(&sources.resolv_conf, &mut warnings)?;
        let (v4, v6) = servers
            .into_iter()
            .partition(|server| !server.contains(':'));
        config.dns_servers_v4 = v4;
        config.dns_servers_v6 = v6;
    }
    Ok(warnings)
}

/// Sets the proxy's ids if none are given: the user named by `ENVOY_USER`, and the group with the same number.
///
/// # Errors
/// `passwd(5)` cannot be read.
pub fn fill_proxy_ids(
    config: &mut SidecarConfig,
    env: &dyn Fn(&str) -> Option<String>,
    passwd: &Path,
) -> Result<(), InputError> {
    if config.proxy_uid.is_empty() {
        let user = env("ENVOY_USER").unwrap_or_else(|| "istio-proxy".to_owned());
        let uid = crate::config::lookup_name(passwd, &user)?;
        config.proxy_uid = uid.unwrap_or(DEFAULT_PROXY_ID).to_string();
    }
    if config.proxy_gid.is_empty() {
        config.proxy_gid.clone_from(&config.proxy_uid);
    }
    Ok(())
}

/// Returns the first usable address, which becomes the host's address, and whether IPv6 is enabled: the family of that
/// address decides; with dual stack any IPv6 address suffices.
///
/// # Errors
/// There is no such address.
pub(crate) fn local_address(
    addresses: &[IpAddr],
    dual_stack: bool,
) -> Result<(IpAddr, bool), InputError> {
    let mut usable = addresses.iter().map(IpAddr::to_canonical).filter(is_usable);
    let host_ip = usable.next().ok_or_else(|| {
        let reason = if addresses.is_empty() {
            "there is no address".to_owned()
        } else {
            let all: Vec<_> = addresses.iter().map(ToString::to_string).collect();
            format!(
                "only loopback and link-local addresses are there ({})",
                all.join(", ")
            )
        };
        let accepted = "a network namespace whose interfaces have their addresses";
        InputError::whole("addresses of the network namespace", reason, accepted)
    })?;
    let enable_ipv6 = host_ip.is_ipv6() || (dual_stack && usable.any(|addr| addr.is_ipv6()));
    Ok((host_ip, enable_ipv6))
}

/// True for an address that is neither loopback nor link-local (unicast or multicast).
fn is_usable(addr: &IpAddr) -> bool {
    let link_local = match addr {
        IpAddr::V4(a) => a.is_link_local() || matches!(a.octets(), [224, 0, 0, _]),
        IpAddr::V6(a) => a.is_unicast_link_local() || is_link_local_multicast(a),
    };
    !addr.is_loopback() && !link_local
}

/// True for `ffX2::/16` with any flags digit X (RFC 4291, 2.7).
fn is_link_local_multicast(addr: &Ipv6Addr) -> bool {
    matches!(addr.octets(), [0xff, second, ..] if second & 0x0f == 2)
}

/// Reads the addresses in the `nameserver` lines, as written there.
fn name_servers(file: &Path, warnings: &mut Vec<String>) -> Result<Vec<String>, InputError> {
    let bytes = crate::files::read(file).map_err(|e| {
        let accepted = "a readable file, or capture_all_dns";
        InputError::whole(
            file.display().to_string(),
            format!("cannot be read: {e}"),
            accepted,
        )
    })?;
    let mut servers = Vec::new();
    for line in String::from_utf8_lossy(&bytes).lines() {
        let mut words = line.split_whitespace();
        // A comment character counts only at the start of a line, and there changes the first word.
        if words.next() != Some("nameserver") {
            continue;
        }
        let Some(value) = words.next() else { continue };
        if value.parse::<IpAddr>().is_ok() {
            servers.push(value.to_owned());
        } else {
            let file = file.display();
            warnings.push(format!(
                "{file}: the name server {value:?} is no address: ignored"
            ));
        }
    }
    Ok(servers)
}

#[cfg(test)]
mod tests;
