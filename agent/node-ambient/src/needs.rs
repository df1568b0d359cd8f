//! The kernel features that the rules need, derived from the rules of an example.

use crate::config::{Config, Pod, Proxy};
use crate::node::{Carrier, LocatedProxy, Node};
use crate::rules::{Desired, Side, desired};
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use weir_cni::compile::Engine;
use weir_netfilter::probe::needs::{Needs, of_nft, of_xtables};
use weir_netfilter::probe::{ipset, nft};

/// Returns the rows of the survey for the rules of one side by one engine. On a kernel with IPv6 they are for both families, since one
/// engine writes all rules of a side.
#[must_use]
pub fn needs(side: Side, engine: Engine, has_ipv6: bool, dns: bool) -> Needs {
    let memory = [("ipv4/conf/all/rp_filter".to_owned(), "1".to_owned())];
    let memory = match side {
        Side::Host => BTreeMap::from(memory),
        Side::Proxy => BTreeMap::new(),
    };
    match desired(&example(has_ipv6, dns), side, engine, &memory) {
        Desired::Nft(rules) => {
            let mut needs = of_nft(&rules);
            let mut sets = rules.tables.iter().flat_map(|table| &table.sets);
            if sets.next().is_some() {
                needs.insert((nft::AREA, "set plain".to_owned()));
            }
            needs
        }
        Desired::Legacy(rules, sets) => {
            let mut needs = of_xtables(&rules);
            let families = sets.iter().map(|set| set.header.family);
            needs.extend(families.map(|family| (ipset::AREA, format!("hash:ip {family}"))));
            needs
        }
    }
}

/// Returns a node with a proxy and a pod that have an address of each family.
fn example(has_ipv6: bool, dns: bool) -> Node {
    let addresses = |last: u8| {
        let v4 = IpAddr::from(Ipv4Addr::new(192, 0, 2, last));
        let v6 = IpAddr::from(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, last.into()));
        let families = [Some(v4), has_ipv6.then_some(v6)];
        families.into_iter().flatten().collect()
    };
    let proxy = Proxy {
        uid: "proxy".to_owned(),
        netns: "proxy".into(),
        addresses: addresses(1),
        created: 0,
        ready: true,
    };
    Node {
        config: Config {
            proxies: vec![proxy.clone()],
            pods: vec![Pod {
                uid: "pod".to_owned(),
                addresses: addresses(2),
                ..Pod::default()
            }],
            dns_capture: dns,
            ..Config::default()
        },
        carrier: Carrier::Geneve(1),
        active: Some(LocatedProxy {
            proxy,
            device: "proxy0".to_owned(),
            interface: "eth0".to_owned(),
            host: Ipv4Addr::LOCALHOST.into(),
            slot: 0,
        }),
        before: Vec::new(),
        devices: BTreeMap::new(),
        bridges: BTreeMap::new(),
        sources: BTreeMap::new(),
        left_out: BTreeMap::new(),
        has_ipv6,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_side_needs_what_its_rules_are_about() {
        let (nft, legacy) = (Engine::Nft, Engine::Xtables);
        let has = |side, engine, ipv6, dns, (area, feature): (_, &str)| {
            let needs = needs(side, engine, ipv6, dns);
            assert!(!needs.is_empty());
            needs.contains(&(area, feature.to_owned()))
        };
        for ipv6 in [false, true] {
            for (side, tproxy) in [(Side::Host, false), (Side::Proxy, true)] {
                let of = |engine, key| has(side, engine, ipv6, false, key);
                assert_eq!(of(nft, ("nf_tables", "expression tproxy")), tproxy);
                assert!(of(nft, ("nf_tables", "set plain")));
                assert_eq!(of(nft, ("nf_tables", "ct mark set")), !tproxy);
                assert_eq!(of(nft, ("nf_tables", "chain inet route")), !tproxy);
                assert_eq!(of(legacy, ("xtables", "target ip TPROXY")), tproxy);
                assert_eq!(of(legacy, ("xtables", "target ip6 TPROXY")), tproxy && ipv6);
                assert_eq!(of(legacy, ("ipset", "hash:ip inet")), !tproxy);
                assert_eq!(of(legacy, ("ipset", "hash:ip inet6")), !tproxy && ipv6);
                assert_eq!(of(legacy, ("xtables", "match ip set")), !tproxy);
            }
        }
        for dns in [false, true] {
            assert_eq!(
                has(
                    Side::Host,
                    legacy,
                    false,
                    dns,
                    ("xtables", "target ip DNAT")
                ),
                dns
            );
        }
    }
}
