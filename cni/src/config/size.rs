//! Limits the number of rules of an intent before they are compiled.
//!
//! Lists come from annotations, which any creator of a pod can write. Some lists multiply: each captured
//! network makes one rule per interface of a virtual machine.

use super::{Dns, Inbound, InputError, Intent, OutboundRanges, OwnerGroups};
use crate::annotation;

/// Maximum number of rules of an intent, counted for one family and the engine that needs more rules.
///
/// The kernel takes about 20 microseconds to add a rule and as long to list it (6.18, two cores), so this number
/// costs a starting pod a fifth of a second, and each check by the agent as much again. Upstream has no limit; its
/// examples make fewer than a hundred rules.
pub const MAX_RULES: usize = 4096;

/// Maximum number of included owner groups. In legacy tables one rule has a match of 56 bytes for each group, and a rule
/// has at most 65,535 bytes.
const MAX_GROUPS: usize = 1024;

/// A list and its number of rules.
struct Part {
    /// The field of the configuration.
    field: &'static str,
    elements: usize,
    rules: usize,
}

/// The annotation that sets a field for a pod, if there is one.
fn annotation(field: &str) -> Option<&'static str> {
    Some(match field {
        "inbound_ports_include" => annotation::INCLUDE_INBOUND_PORTS,
        "inbound_ports_exclude" => annotation::EXCLUDE_INBOUND_PORTS,
        "outbound_ports_include" => annotation::INCLUDE_OUTBOUND_PORTS,
        "outbound_ports_exclude" => annotation::EXCLUDE_OUTBOUND_PORTS,
        "outbound_ip_ranges_include" => annotation::INCLUDE_OUTBOUND_IP_RANGES,
        "outbound_ip_ranges_exclude" => annotation::EXCLUDE_OUTBOUND_IP_RANGES,
        "reroute_virtual_interfaces" => annotation::REROUTE_VIRTUAL_INTERFACES,
        "exclude_interfaces" => annotation::EXCLUDE_INTERFACES,
        _ => return None,
    })
}

/// Refuses an intent that would make more than [`MAX_RULES`] rules, or a rule of more than [`MAX_GROUPS`] groups.
///
/// # Errors
/// The error names the list that makes most of the rules, its number of elements and the total number of rules.
pub(super) fn check(intent: &Intent) -> Result<(), InputError> {
    if let OwnerGroups::Only(groups) = &intent.owner_groups
        && groups.len() > MAX_GROUPS
    {
        return Err(InputError::whole(
            "owner_groups_include (variable ISTIO_OUTBOUND_OWNER_GROUPS)",
            format!("its {} elements are too many for one rule", groups.len()),
            format!("at most {MAX_GROUPS} groups; give fewer, such as ranges"),
        ));
    }
    let parts = parts(intent);
    let sum = |sum: usize, part: &Part| sum.saturating_add(part.rules);
    let all = parts.iter().fold(0, sum);
    if all <= MAX_RULES {
        return Ok(());
    }
    let Some(most) = parts.iter().max_by_key(|p| p.rules) else {
        return Ok(());
    };
    let input = match annotation(most.field) {
        None => most.field.to_owned(),
        Some(annotation) => format!("{} (annotation {annotation})", most.field),
    };
    let wider = match most.field {
        "outbound_ip_ranges_include" | "outbound_ip_ranges_exclude" => ", such as wider networks",
        _ => "",
    };
    Err(InputError::whole(
        input,
        format!(
            "its {} elements are too many: with them the redirection would have {all} rules",
            most.elements
        ),
        format!("lists that make at most {MAX_RULES} rules; give fewer elements{wider}"),
    ))
}

/// Upper bounds of the number of rules that each list adds.
fn parts(intent: &Intent) -> Vec<Part> {
    let part = |field, elements: usize, each: usize| Part {
        field,
        elements,
        rules: elements.saturating_mul(each),
    };
    let interfaces = intent.virtual_interfaces.len();
    let included = match &intent.outbound_include {
        OutboundRanges::All => 0,
        OutboundRanges::Ranges(ranges) => ranges.v4.len() + ranges.v6.len(),
    };
    let (inbound, inbound_excluded) = match &intent.inbound {
        Inbound::Off => (0, 0),
        Inbound::All => (0, intent.inbound_ports_exclude.len()),
        Inbound::Ports(list) => (list.len(), 0),
    };
    let (OwnerGroups::AllBut(groups) | OwnerGroups::Only(groups)) = &intent.owner_groups;
    let servers = match &intent.dns {
        Dns::Off | Dns::All => 0,
        Dns::Servers { v4, v6 } => v4.len() + v6.len(),
    };
    let outbound = (
        &intent.outbound_ports_include,
        &intent.outbound_ports_exclude,
    );
    let excluded = intent.outbound_exclude.v4.len() + intent.outbound_exclude.v6.len();
    vec![
        // Transparent: one for known connections and one for new ones.
        part("inbound_ports_include", inbound, 2),
        part("inbound_ports_exclude", inbound_excluded, 1),
        part("outbound_ports_include", outbound.0.len(), 1),
        // TCP and UDP.
        part("outbound_ports_exclude", outbound.1.len(), 2),
        // One in the output chain, and one for each interface of a virtual machine.
        part(
            "outbound_ip_ranges_include",
            included,
            interfaces.saturating_add(1),
        ),
        part("outbound_ip_ranges_exclude", excluded, 1),
        part("reroute_virtual_interfaces", interfaces, 2),
        // In both chains of nat and of mangle.
        part("exclude_interfaces", intent.exclude_interfaces.len(), 4),
        // Up to four in nat; two in mangle, two in raw.
        part("proxy_uid", intent.proxy_uids.len(), 8),
        part("proxy_gid", intent.proxy_gids.len(), 8),
        part("owner_groups", groups.len(), 1),
        // TCP and UDP in nat, two zones in raw.
        part("dns_servers", servers, 4),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compile::{Compiled, Engine, Rules, compile, compile_chosen};
    use crate::config::{NameFiles, SidecarConfig};
    use proptest::prelude::*;

    fn parsed(config: &SidecarConfig) -> Result<Intent, InputError> {
        Intent::parse(config, &NameFiles::default())
    }

    fn numbers(n: usize) -> String {
        let list: Vec<String> = (1..=n).map(|p| p.to_string()).collect();
        list.join(",")
    }

    #[test]
    fn a_list_that_is_too_long_is_named() {
        let config = |n| SidecarConfig {
            outbound_ports_exclude: numbers(n),
            ..SidecarConfig::default()
        };
        assert!(parsed(&config(MAX_RULES / 2 - 50)).is_ok());
        let error = parsed(&config(65_535)).unwrap_err().to_string();
        for part in [
            "outbound_ports_exclude (annotation traffic.sidecar.istio.io/excludeOutboundPorts): its 65535 elements",
            "131",
            &MAX_RULES.to_string(),
        ] {
            assert!(error.contains(part), "{part}: {error}");
        }
        assert!(
            error.len() < 400 && error.ends_with("give fewer elements"),
            "{error}"
        );
        let networks = SidecarConfig {
            outbound_ip_ranges_exclude: vec!["10.0.0.0/8"; MAX_RULES + 1].join(","),
            ..SidecarConfig::default()
        };
        let error = parsed(&networks).unwrap_err().to_string();
        assert!(error.ends_with("such as wider networks"), "{error}");
    }

    #[test]
    fn groups_that_are_too_many_for_a_rule_are_named() {
        let config = |n| SidecarConfig {
            owner_groups_include: numbers(n),
            enable_ipv6: true,
            ..SidecarConfig::default()
        };
        let Rules::Xtables(rules) = compile(&parsed(&config(1024)).unwrap(), Engine::Xtables).rules
        else {
            panic!("asked for legacy tables");
        };
        for table in &rules.tables {
            weir_netfilter::xtables::canonical_table(table).unwrap();
        }
        let error = parsed(&config(1025)).unwrap_err().to_string();
        for part in ["ISTIO_OUTBOUND_OWNER_GROUPS", "1025", "1024"] {
            assert!(error.contains(part), "{part}: {error}");
        }
        assert!(error.len() < 400, "{error}");
    }

    #[test]
    fn lists_that_are_multiplied_are_refused_unmultiplied() {
        let networks: Vec<String> = (0..200).map(|n| format!("10.{n}.0.0/16")).collect();
        let interfaces: Vec<String> = (0..200).map(|n| format!("net{n}")).collect();
        let config = |networks: &[String], interfaces: &[String]| SidecarConfig {
            outbound_ip_ranges_include: networks.join(","),
            reroute_virtual_interfaces: interfaces.join(","),
            ..SidecarConfig::default()
        };
        assert!(parsed(&config(&networks, &[])).is_ok());
        assert!(parsed(&config(&networks[..1], &interfaces)).is_ok());
        let error = parsed(&config(&networks, &interfaces)).unwrap_err();
        assert!(
            error.input.starts_with("outbound_ip_ranges_include"),
            "{error}"
        );
    }

    /// The number of compiled rules in the larger family.
    fn made(compiled: Compiled) -> usize {
        match compiled.rules {
            Rules::Nft(ruleset) => {
                let chains = ruleset.tables.iter().flat_map(|t| &t.chains);
                chains.map(|c| c.rules.len()).sum()
            }
            Rules::Xtables(ruleset) => [false, true]
                .into_iter()
                .map(|v6| {
                    let family = |t: &&weir_netfilter::xtables::Table| {
                        (t.family == weir_netfilter::xtables::XtFamily::Ip6) == v6
                    };
                    let chains = ruleset.tables.iter().filter(family).flat_map(|t| &t.chains);
                    chains.map(|c| c.rules.len()).sum()
                })
                .max()
                .unwrap_or(0),
        }
    }

    proptest! {
        /// The counted number of rules is never less than the compiled one.
        #[test]
        fn no_rule_is_forgotten(
            n in prop::array::uniform9(0usize..7),
            modes in prop::array::uniform4(any::<bool>()),
        ) {
            let [tproxy, all_inbound, all_groups, ipv6] = modes;
            let networks = |n| (0..n).map(|i| format!("10.{i}.0.0/16")).collect::<Vec<_>>().join(",");
            let interfaces = |n| (0..n).map(|i| format!("net{i}")).collect::<Vec<_>>().join(",");
            let config = |n: [usize; 9]| SidecarConfig {
                inbound_interception_mode: if tproxy { "TPROXY" } else { "REDIRECT" }.into(),
                inbound_ports_include: if all_inbound { "*".into() } else { numbers(n[0]) },
                inbound_ports_exclude: numbers(n[1]),
                outbound_ports_include: numbers(n[2]),
                outbound_ports_exclude: numbers(n[3]),
                outbound_ip_ranges_include: networks(n[4]),
                outbound_ip_ranges_exclude: networks(n[5]),
                reroute_virtual_interfaces: interfaces(n[6]),
                exclude_interfaces: interfaces(n[7]),
                proxy_uid: numbers(n[8]),
                proxy_gid: numbers(n[8]),
                owner_groups_include: if all_groups { "*".into() } else { numbers(n[1]) },
                owner_groups_exclude: numbers(n[2]),
                dns_servers_v4: (0..n[8]).map(|i| format!("10.0.0.{i}")).collect(),
                redirect_dns: n[8] > 0,
                enable_ipv6: ipv6,
                ..SidecarConfig::default()
            };
            let intent = parsed(&config(n)).unwrap();
            let counted: usize = parts(&intent).iter().map(|p| p.rules).sum();
            for engine in [Engine::Nft, Engine::Xtables] {
                for compiled in [compile(&intent, engine), compile_chosen(&intent, engine)] {
                    let made = made(compiled);
                    prop_assert!(made <= counted + 40, "{engine}: {made} > {counted}");
                }
            }
        }
    }
}
