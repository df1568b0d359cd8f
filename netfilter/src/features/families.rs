//! The families of nf_tables, and the types of their chains.

use super::{Feature, LEGACY};

/// `family FAMILY` and `chain FAMILY TYPE`
#[rustfmt::skip]
pub(crate) const FAMILIES: &[Feature] = &[
    Feature::of("family inet", "3.14", "nf_tables_inet", LEGACY),
    Feature::of("family ip", "3.13", "nf_tables_ipv4", LEGACY),
    Feature::of("family ip6", "3.13", "nf_tables_ipv6", LEGACY),
    Feature::of("family bridge", "3.14", "nf_tables_bridge", "not used"),
    Feature::of("family netdev", "4.2", "nf_tables_netdev", "not used"),
    Feature::of("family arp", "3.13", "nf_tables_arp", "not used"),
    Feature::of("chain inet filter", "3.14", "nf_tables_inet", LEGACY),
    Feature::of("chain inet nat", "5.2", "nft_chain_nat", LEGACY),
    Feature::of("chain inet route", "5.2", "nf_tables_inet", LEGACY),
    Feature::of("chain ip filter", "3.13", "nf_tables_ipv4", LEGACY),
    Feature::of("chain ip nat", "3.13", "nft_chain_nat", LEGACY),
    Feature::of("chain ip route", "3.13", "nf_tables_ipv4", LEGACY),
    Feature::of("chain ip6 filter", "3.13", "nf_tables_ipv6", LEGACY),
    Feature::of("chain ip6 nat", "3.13", "nft_chain_nat", LEGACY),
    Feature::of("chain ip6 route", "3.13", "nf_tables_ipv6", LEGACY),
    Feature::of("chain bridge filter", "3.14", "nf_tables_bridge", "not used"),
    Feature::of("chain netdev filter", "4.2", "nf_tables_netdev", "not used"),
    Feature::of("chain arp filter", "3.13", "nf_tables_arp", "not used"),
];
