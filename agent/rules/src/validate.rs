//! Checks that apply to a command's configuration only, not to a pod's.

use crate::SidecarConfig;
use ipnet::IpNet;
use weir_cni::config::{InputError, text};

/// Maximum number of groups in `owner_groups_include`.
const MAX_OWNER_GROUPS: usize = 64;

impl SidecarConfig {
    /// Checks the configuration given to the command. Does not check the interception mode: every value except `TPROXY`
    /// means redirection.
    ///
    /// # Errors
    /// The first of these: more than 64 groups, an unknown variant of xtables, an invalid loopback network.
    pub fn validate(&self) -> Result<(), InputError> {
        owner_groups(&self.owner_groups_include)?;
        forced_variant(&self.force_iptables_binary)?;
        loopback(&self.host_ipv4_loopback_cidr)
    }
}

fn owner_groups(include: &str) -> Result<(), InputError> {
    let count = text::elements(include).count();
    if include == "*" || count <= MAX_OWNER_GROUPS {
        return Ok(());
    }
    let reason = format!("has {count} groups");
    let accepted = format!("* or at most {MAX_OWNER_GROUPS} groups");
    Err(InputError::whole("owner_groups_include", reason, accepted))
}

fn forced_variant(variant: &str) -> Result<(), InputError> {
    if matches!(variant, "" | "legacy" | "nft") {
        return Ok(());
    }
    let reason = "is not a kind of xtables";
    Err(InputError::value(
        "force_iptables_binary",
        variant,
        reason,
        "legacy, nft or nothing",
    ))
}

fn loopback(network: &str) -> Result<(), InputError> {
    let reason = match text::cidr(network) {
        Ok(IpNet::V4(net)) if !net.addr().is_loopback() => "is not within 127.0.0.0/8",
        Ok(IpNet::V4(net)) if net.prefix_len() < 8 => "is wider than 127.0.0.0/8",
        Ok(IpNet::V4(_)) => return Ok(()),
        Ok(IpNet::V6(_)) => "is not IPv4",
        Err(reason) => reason,
    };
    let accepted = "an IPv4 network within 127.0.0.0/8, such as 127.0.0.1/32";
    Err(InputError::value(
        "host_ipv4_loopback_cidr",
        network,
        reason,
        accepted,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(change: impl FnOnce(&mut SidecarConfig)) -> Result<(), String> {
        let mut config = SidecarConfig::default();
        change(&mut config);
        config.validate().map_err(|e| e.to_string())
    }

    #[test]
    fn owner_groups_are_at_most_64() {
        let groups = |n| vec!["7"; n].join(",");
        assert_eq!(check(|c| c.owner_groups_include = groups(64)), Ok(()));
        let error = check(|c| c.owner_groups_include = groups(65)).unwrap_err();
        assert!(error.contains("65 groups"), "{error}");
        assert_eq!(check(|c| c.owner_groups_exclude = groups(65)), Ok(()));
    }

    #[test]
    fn forced_variants() {
        for good in ["", "legacy", "nft"] {
            assert_eq!(check(|c| c.force_iptables_binary = good.into()), Ok(()));
        }
        let error = check(|c| c.force_iptables_binary = "Legacy".into()).unwrap_err();
        assert!(error.contains("\"Legacy\""), "{error}");
    }

    #[test]
    fn loopback_networks() {
        for good in ["127.0.0.1/32", "127.0.0.1/8", "127.1.0.0/16"] {
            assert_eq!(check(|c| c.host_ipv4_loopback_cidr = good.into()), Ok(()));
        }
        for bad in [
            "10.0.0.1/7",
            "192.168.1.1/24",
            "127.0.0.1/40",
            "127.0.0.1/7",
            "::1/128",
            "",
        ] {
            let error = check(|c| c.host_ipv4_loopback_cidr = bad.into()).unwrap_err();
            assert!(error.contains(&format!("{bad:?}")), "{error}");
        }
    }

    #[test]
    fn the_first_failure_is_told_and_the_mode_is_not_checked() {
        let error = check(|c| {
            c.force_iptables_binary = "x".into();
            c.host_ipv4_loopback_cidr = "x".into();
        });
        assert!(error.unwrap_err().contains("force_iptables_binary"));
        assert_eq!(
            check(|c| c.inbound_interception_mode = "NONE".into()),
            Ok(())
        );
    }
}
