//! What a redirection takes from the environment: variables, and addresses of the network namespace.

use crate::config::{self, InputError, Intent, OwnerGroups};
use ipnet::Ipv4Net;
use std::net::{IpAddr, Ipv6Addr};
use std::path::Path;

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
        let Intent {
            owner_groups,
            loopback_v4,
            ..
        } = Intent::default();
        Self {
            owner_groups,
            loopback_v4,
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

/// Returns whether IPv6 is enabled: the family of the first usable address decides; with dual stack any IPv6 address
/// suffices.
///
/// # Errors
/// There is no such address.
pub(super) fn has_ipv6(addresses: &[IpAddr], dual_stack: bool) -> Result<bool, InputError> {
    let mut usable = addresses.iter().map(IpAddr::to_canonical).filter(is_usable);
    let first = usable.next().ok_or_else(|| {
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
    Ok(first.is_ipv6() || (dual_stack && usable.any(|addr| addr.is_ipv6())))
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::texts;

    fn ips(list: &[&str]) -> Vec<IpAddr> {
        list.iter().map(|ip| ip.parse().unwrap()).collect()
    }

    #[test]
    fn absence_of_a_variable_is_the_default() {
        let read = |env: &[(&str, &str)]| {
            let env = |name: &str| {
                let mut set = env.iter().filter(|(n, _)| *n == name);
                set.next().map(|(_, value)| (*value).to_owned())
            };
            NodeEnvironment::read(&env, "/nonexistent".as_ref()).unwrap()
        };
        assert_eq!(read(&[]), NodeEnvironment::default());
        let exclude = ("ISTIO_OUTBOUND_OWNER_GROUPS_EXCLUDE", "7");
        let loopback = ("ISTIO_OUTBOUND_IPV4_LOOPBACK_CIDR", "127.0.0.1/16");
        let set = read(&[exclude, loopback]);
        assert_eq!(set.owner_groups, OwnerGroups::AllBut(texts::ids("7")));
        assert_eq!(set.loopback_v4.to_string(), "127.0.0.1/16");
        // Set but empty is the empty list.
        let none = read(&[("ISTIO_OUTBOUND_OWNER_GROUPS", ""), exclude]);
        assert_eq!(none.owner_groups, OwnerGroups::Only(Vec::new()));
    }

    #[test]
    fn the_address_walk() {
        for (addresses, dual_stack, expected) in [
            (
                &["127.0.0.1", "10.0.0.2", "::1", "fd00::2"][..],
                false,
                Some(false),
            ),
            (&["10.0.0.2", "fe80::1", "fd00::2"], true, Some(true)),
            (&["10.0.0.2", "fe80::1"], true, Some(false)),
            (
                &["127.0.0.1", "::1", "fe80::1", "fd00::2"],
                false,
                Some(true),
            ),
            (&["fd00::2"], true, Some(true)),
            (
                &["169.254.0.1", "224.0.0.5", "ff02::1", "ff12::1", "10.0.0.3"],
                true,
                Some(false),
            ),
            (&["::ffff:10.0.0.2", "fd00::2"], false, Some(false)),
            (
                &["::ffff:127.0.0.1", "::ffff:169.254.0.1", "fd00::2"],
                false,
                Some(true),
            ),
            (&["224.0.1.1"], false, Some(false)),
            (&["127.0.0.1", "::1", "fe80::1"], false, None),
            (&[], true, None),
        ] {
            let result = has_ipv6(&ips(addresses), dual_stack).ok();
            assert_eq!(result, expected, "{addresses:?} {dual_stack}");
        }
    }

    #[test]
    fn no_usable_address_is_told() {
        let error = has_ipv6(&ips(&["127.0.0.1", "fe80::1"]), false).unwrap_err();
        assert!(error.to_string().contains("127.0.0.1, fe80::1"), "{error}");
    }
}
