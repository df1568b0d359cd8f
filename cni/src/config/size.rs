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
    use crate::config::{
        IdRange, InboundMode, InterfaceName, PortRange, Ranges, TproxyMark, texts,
    };
    use proptest::prelude::*;

    fn ports(n: usize) -> Vec<PortRange> {
        let n = u16::try_from(n).unwrap();
        (1..=n).map(|port| PortRange(port..=port)).collect()
    }

    fn ids(n: usize) -> Vec<IdRange> {
        let n = u32::try_from(n).unwrap();
        (1..=n).map(|id| IdRange(id..=id)).collect()
    }

    fn networks(n: usize) -> Ranges {
        let list: Vec<String> = (0..n).map(|n| format!("10.{n}.0.0/16")).collect();
        texts::networks(&list.join(","))
    }

    fn interfaces(n: usize) -> Vec<InterfaceName> {
        let list: Vec<String> = (0..n).map(|n| format!("net{n}")).collect();
        texts::interfaces(&list.join(","))
    }

    #[test]
    fn a_list_that_is_too_long_is_named() {
        let excluding = |n| Intent {
            outbound_ports_exclude: ports(n),
            ..Intent::default()
        };
        assert!(check(&excluding(MAX_RULES / 2 - 50)).is_ok());
        let error = check(&excluding(65_535)).unwrap_err().to_string();
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
        let networks = Intent {
            outbound_exclude: texts::networks(&vec!["10.0.0.0/8"; MAX_RULES + 1].join(",")),
            ..Intent::default()
        };
        let error = check(&networks).unwrap_err().to_string();
        assert!(error.ends_with("such as wider networks"), "{error}");
    }

    #[test]
    fn groups_that_are_too_many_for_a_rule_are_named() {
        let of_groups = |n| Intent {
            owner_groups: OwnerGroups::Only(ids(n)),
            enable_ipv6: true,
            ..Intent::default()
        };
        check(&of_groups(1024)).unwrap();
        let Rules::Xtables(rules) = compile(&of_groups(1024), Engine::Xtables).rules else {
            panic!("asked for legacy tables");
        };
        for table in &rules.tables {
            weir_netfilter::xtables::canonical_table(table).unwrap();
        }
        let error = check(&of_groups(1025)).unwrap_err().to_string();
        for part in ["ISTIO_OUTBOUND_OWNER_GROUPS", "1025", "1024"] {
            assert!(error.contains(part), "{part}: {error}");
        }
        assert!(error.len() < 400, "{error}");
    }

    #[test]
    fn lists_that_are_multiplied_are_refused_unmultiplied() {
        let of = |n: usize, m: usize| Intent {
            outbound_include: OutboundRanges::Ranges(networks(n)),
            virtual_interfaces: interfaces(m),
            ..Intent::default()
        };
        assert!(check(&of(200, 0)).is_ok());
        assert!(check(&of(1, 200)).is_ok());
        let error = check(&of(200, 200)).unwrap_err();
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
            let inbound = if all_inbound { Inbound::All } else { Inbound::Ports(ports(n[0])) };
            let intent = Intent {
                mode: match tproxy {
                    true => InboundMode::Tproxy(TproxyMark::usual(&inbound)),
                    false => InboundMode::Redirect,
                },
                inbound,
                inbound_ports_exclude: ports(n[1]),
                outbound_ports_include: ports(n[2]),
                outbound_ports_exclude: ports(n[3]),
                outbound_include: OutboundRanges::Ranges(networks(n[4])),
                outbound_exclude: networks(n[5]),
                virtual_interfaces: interfaces(n[6]),
                exclude_interfaces: interfaces(n[7]),
                proxy_uids: ids(n[8]),
                proxy_gids: ids(n[8]),
                owner_groups: match all_groups {
                    true => OwnerGroups::AllBut(ids(n[2])),
                    false => OwnerGroups::Only(ids(n[1])),
                },
                dns: match n[8] {
                    0 => Dns::Off,
                    n => Dns::Servers { v4: vec![[10, 0, 0, 1].into(); n], v6: Vec::new() },
                },
                enable_ipv6: ipv6,
                ..Intent::default()
            };
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
