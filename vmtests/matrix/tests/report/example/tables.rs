//! The data of the realistic run.

/// Name, release, package, what the variant omits.
pub(super) const ENVIRONMENTS: &[(&str, &str, &str, &str)] = &[
    ("host", "6.18.5-amd64", "", ""),
    ("5.10", "5.10.0-39-cloud-amd64", "5.10.262-1", ""),
    ("6.1", "6.1.0-45-cloud-amd64", "6.1.192-2", ""),
    ("6.12", "6.12.117+deb13-cloud-amd64", "6.12.117-1", ""),
    ("6.18", "6.18.15+deb13-cloud-amd64", "6.18.15-1~bpo13+1", ""),
    ("7.2", "7.2.12+deb13-cloud-amd64", "7.2.12-1~bpo13+1", ""),
    ("6.12-rt", "6.12.117+deb13-rt-amd64", "6.12.117-1", ""),
    (
        "5.10-no-nftables",
        "5.10.0-39-cloud-amd64",
        "5.10.262-1",
        "no nf_tables: only the legacy tables are left",
    ),
    (
        "6.1-no-xtables",
        "6.1.0-45-cloud-amd64",
        "6.1.192-2",
        "no legacy iptables and ip6tables",
    ),
    (
        "6.1-no-tproxy",
        "6.1.0-45-cloud-amd64",
        "6.1.192-2",
        "no transparent proxying",
    ),
    (
        "6.12-no-ip6tables",
        "6.12.117+deb13-cloud-amd64",
        "6.12.117-1",
        "legacy tables for IPv4 only",
    ),
    (
        "6.18-no-ipset",
        "6.18.15+deb13-cloud-amd64",
        "6.18.15-1~bpo13+1",
        "no ipset, and no match on one",
    ),
    (
        "7.2-no-ipv6",
        "7.2.12+deb13-cloud-amd64",
        "7.2.12-1~bpo13+1",
        "IPv6 is switched off at boot",
    ),
];

/// Group, feature, what weir does instead, the environments that lack it.
pub(super) const FEATURES: &[(&str, &str, &str, &[&str])] = &[
    (
        "nf_tables",
        "family inet",
        "legacy tables (--engine xtables)",
        &["5.10-no-nftables"],
    ),
    (
        "nf_tables",
        "chain inet nat",
        "legacy tables (--engine xtables)",
        &["5.10-no-nftables"],
    ),
    (
        "nf_tables",
        "expression redir",
        "legacy tables (--engine xtables)",
        &["5.10-no-nftables"],
    ),
    (
        "nf_tables",
        "expression socket",
        "legacy tables (--engine xtables)",
        &["5.10-no-nftables", "6.1-no-tproxy"],
    ),
    (
        "nf_tables",
        "expression tproxy",
        "legacy tables (--engine xtables)",
        &["5.10-no-nftables", "6.1-no-tproxy"],
    ),
    (
        "nf_tables",
        "generation guard",
        "a change of somebody else is found by reading back",
        &[],
    ),
    (
        "xtables",
        "table ip nat",
        "nf_tables (--engine nft)",
        &["6.1-no-xtables"],
    ),
    (
        "xtables",
        "table ip6 nat",
        "nf_tables (--engine nft)",
        &["6.1-no-xtables", "6.12-no-ip6tables"],
    ),
    (
        "xtables",
        "target ip REDIRECT",
        "nf_tables (--engine nft)",
        &["6.1-no-xtables"],
    ),
    (
        "ipset",
        "hash:ip inet",
        "sets of nf_tables (--engine nft)",
        &["6.18-no-ipset"],
    ),
    (
        "ipset",
        "hash:mac",
        "sets of nf_tables (--engine nft)",
        &[
            "host",
            "5.10",
            "6.1",
            "6.12",
            "6.18",
            "7.2",
            "6.12-rt",
            "5.10-no-nftables",
            "6.1-no-xtables",
            "6.1-no-tproxy",
            "6.12-no-ip6tables",
            "6.18-no-ipset",
            "7.2-no-ipv6",
        ],
    ),
    (
        "net",
        "link veth",
        "geneve or vxlan as carrier of node-level ambient",
        &[],
    ),
    (
        "net",
        "link netkit",
        "veth",
        &[
            "5.10",
            "6.1",
            "5.10-no-nftables",
            "6.1-no-xtables",
            "6.1-no-tproxy",
        ],
    ),
    (
        "ebpf",
        "attach tcx",
        "clsact with cls_bpf",
        &[
            "5.10",
            "6.1",
            "5.10-no-nftables",
            "6.1-no-xtables",
            "6.1-no-tproxy",
        ],
    ),
    ("system", "IPv6", "IPv4 only", &["7.2-no-ipv6"]),
    (
        "system",
        "BTF of the kernel",
        "programs that need no BTF",
        &[],
    ),
];

/// Crate, test program, number of tests.
pub(super) const PROGRAMS: &[(&str, &str, usize)] = &[
    ("netlink", "netns", 12),
    ("netlink", "route", 29),
    ("netfilter", "bytes", 18),
    ("netfilter", "oracle", 41),
    ("netfilter", "sets", 22),
    ("netfilter", "xtables_engine", 35),
    ("netfilter", "ipset", 28),
    ("cni", "chain", 16),
    ("cni", "plugin", 33),
    ("cni", "runtime", 21),
    ("agent", "traffic", 30),
    ("agent", "command", 24),
];

pub(super) const TESTS: &[&str] = &[
    "a_redirect_keeps_the_original_destination",
    "apply_twice_changes_nothing",
    "drift_is_named",
    "ipv6_goes_the_same_way",
    "rules_of_others_stay",
    "a_set_with_intervals_is_read_back",
    "a_failed_change_leaves_the_namespace_as_it_was",
    "the_proxy_reaches_the_server",
];
