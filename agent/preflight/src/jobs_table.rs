//! The needs of each job, as data.

use super::Rules;
use super::jobs::{Features, Job, Need, Way};
use weir_cni::compile::Engine;
use weir_node_ambient::rules::Side;

/// Features that every nf_tables rule needs.
const NFT: Features = &[
    ("nf_tables", "family inet"),
    ("nf_tables", "expression meta"),
    ("nf_tables", "expression cmp"),
    ("nf_tables", "expression payload"),
    ("nf_tables", "expression immediate"),
    ("nf_tables", "expression bitwise"),
    ("nf_tables", "expression lookup"),
    ("nf_tables", "expression counter"),
    ("nf_tables", "generation guard"),
];
/// Features for redirection by nat.
const NFT_NAT: Features = &[
    ("nf_tables", "chain inet nat"),
    ("nf_tables", "expression redir"),
    ("nf_tables", "meta skuid"),
];
/// Features for marks of packets and connections.
const NFT_MARK: Features = &[
    ("nf_tables", "chain inet filter"),
    ("nf_tables", "chain inet route"),
    ("nf_tables", "expression ct"),
    ("nf_tables", "meta mark set"),
    ("nf_tables", "ct mark set"),
];

const XT_NAT: Features = &[
    ("xtables", "table ip nat"),
    ("xtables", "match ip tcp"),
    ("xtables", "match ip multiport"),
    ("xtables", "match ip owner"),
    ("xtables", "target ip REDIRECT"),
];
const XT_MARK: Features = &[
    ("xtables", "table ip mangle"),
    ("xtables", "match ip mark"),
    ("xtables", "match ip connmark"),
    ("xtables", "target ip MARK"),
    ("xtables", "target ip CONNMARK"),
];

const XT6_NAT: Features = &[
    ("xtables", "table ip6 nat"),
    ("xtables", "match ip6 tcp"),
    ("xtables", "match ip6 multiport"),
    ("xtables", "match ip6 owner"),
    ("xtables", "target ip6 REDIRECT"),
];
const XT6_MARK: Features = &[
    ("xtables", "table ip6 mangle"),
    ("xtables", "match ip6 mark"),
    ("xtables", "match ip6 connmark"),
    ("xtables", "target ip6 MARK"),
    ("xtables", "target ip6 CONNMARK"),
];

const ROUTING: Features = &[("net", "policy routing ip"), ("net", "local route ip")];
const ROUTING6: Features = &[("net", "policy routing ip6"), ("net", "local route ip6")];

const fn way(name: &'static str, features: &'static [Features]) -> Way {
    Way {
        name,
        features,
        rules: None,
    }
}

/// A way with these rules in nf_tables, and additional features.
const fn nft(rules: Rules, features: &'static [Features]) -> Way {
    Way {
        rules: Some((Engine::Nft, rules)),
        ..way(TABLES, features)
    }
}

/// A way with these rules in legacy tables, and additional features.
const fn legacy(rules: Rules, features: &'static [Features]) -> Way {
    Way {
        rules: Some((Engine::Xtables, rules)),
        ..way(LEGACY, features)
    }
}

const TABLES: &str = "nf_tables";
const LEGACY: &str = "legacy tables";
const V4_ONLY: Way = way("IPv4 only", &[]);
const NO_DNS: Way = way("no DNS capture", &[]);

const DNS: Need = Need {
    what: "DNS capture",
    ways: &[nft(Rules::Dns, &[]), legacy(Rules::Dns, &[]), NO_DNS],
};

const RIGHTS: Need = Need {
    what: "rights over the network namespace",
    ways: &[way(
        "root of the node",
        &[&[("process", "rights over this network namespace")]],
    )],
};

const SYSCTLS: Need = Need {
    what: "sysctls",
    ways: &[way("write them", &[&[("system", "writable sysctls")]])],
};

const PINNING: Need = Need {
    what: "pinning",
    ways: &[way(
        "a mounted bpf file system",
        &[&[("system", "bpffs"), ("system", "bpffs can be mounted")]],
    )],
};

/// All jobs, in the order of output.
pub const JOBS: &[Job] = &[
    Job {
        name: "sidecar",
        title: "a pod with a sidecar proxy, by REDIRECT",
        needs: &[
            Need {
                what: "redirection",
                ways: &[nft(Rules::Redirect, &[]), legacy(Rules::Redirect, &[])],
            },
            Need {
                what: "IPv6",
                ways: &[
                    nft(Rules::RedirectIpv6, &[&[("system", "IPv6")]]),
                    legacy(Rules::RedirectIpv6, &[&[("system", "IPv6")]]),
                    V4_ONLY,
                ],
            },
            DNS,
        ],
        capabilities: &["NET_ADMIN", "NET_RAW", "SYS_ADMIN"],
    },
    Job {
        name: "sidecar-tproxy",
        title: "a pod with a sidecar proxy, by TPROXY",
        needs: &[
            Need {
                what: "redirection",
                ways: &[nft(Rules::Tproxy, &[]), legacy(Rules::Tproxy, &[])],
            },
            Need {
                what: "delivery of marked packets",
                ways: &[way("policy routing", &[ROUTING])],
            },
            Need {
                what: "IPv6",
                ways: &[
                    nft(Rules::TproxyIpv6, &[&[("system", "IPv6")], ROUTING6]),
                    legacy(Rules::TproxyIpv6, &[&[("system", "IPv6")], ROUTING6]),
                    V4_ONLY,
                ],
            },
            DNS,
        ],
        capabilities: &["NET_ADMIN", "NET_RAW", "SYS_ADMIN"],
    },
    Job {
        name: "ambient",
        title: "ambient mode, redirection inside the pod",
        needs: &[
            RIGHTS,
            Need {
                what: "redirection",
                ways: &[
                    way(TABLES, &[NFT, NFT_NAT, NFT_MARK]),
                    way(LEGACY, &[XT_NAT, XT_MARK]),
                ],
            },
            Need {
                what: "delivery of marked packets",
                ways: &[way("policy routing", &[ROUTING])],
            },
            Need {
                what: "probes of the kubelet",
                ways: &[
                    way(
                        TABLES,
                        &[&[("nf_tables", "set plain"), ("nf_tables", "expression nat")]],
                    ),
                    way(
                        LEGACY,
                        &[&[
                            ("ipset", "hash:ip inet"),
                            ("xtables", "match ip set"),
                            ("xtables", "target ip SNAT"),
                        ]],
                    ),
                ],
            },
            Need {
                what: "IPv6",
                ways: &[
                    way(
                        TABLES,
                        &[&[("system", "IPv6")], ROUTING6, NFT, NFT_NAT, NFT_MARK],
                    ),
                    way(
                        LEGACY,
                        &[
                            &[("system", "IPv6")],
                            ROUTING6,
                            XT6_NAT,
                            XT6_MARK,
                            &[("ipset", "hash:ip inet6")],
                        ],
                    ),
                    V4_ONLY,
                ],
            },
            DNS,
        ],
        capabilities: &["NET_ADMIN", "NET_RAW", "SYS_ADMIN", "SYS_PTRACE"],
    },
    Job {
        name: "node-ambient",
        title: "ambient mode, redirection in the node's own namespace",
        needs: &[
            RIGHTS,
            SYSCTLS,
            Need {
                what: "rules of the node",
                ways: &[
                    nft(Rules::AtNode(Side::Host), &[]),
                    legacy(Rules::AtNode(Side::Host), &[]),
                ],
            },
            Need {
                what: "rules of the proxy",
                ways: &[
                    nft(Rules::AtNode(Side::Proxy), &[]),
                    legacy(Rules::AtNode(Side::Proxy), &[]),
                ],
            },
            Need {
                what: "delivery of marked packets",
                ways: &[way("policy routing", &[ROUTING])],
            },
            Need {
                what: "tunnel to the proxy",
                // In the order of `CarrierChoice::ORDER`.
                ways: &[
                    way("GENEVE tunnels", &[&[("net", "link geneve")]]),
                    way("VXLAN tunnels", &[&[("net", "link vxlan")]]),
                    way("veth pairs", &[&[("net", "link veth")]]),
                ],
            },
            Need {
                what: "IPv6",
                ways: &[
                    nft(
                        Rules::AtNodeIpv6(Side::Host),
                        &[&[("system", "IPv6")], ROUTING6],
                    ),
                    legacy(
                        Rules::AtNodeIpv6(Side::Host),
                        &[&[("system", "IPv6")], ROUTING6],
                    ),
                    V4_ONLY,
                ],
            },
            Need {
                what: "IPv6 in the proxy's namespace",
                ways: &[
                    nft(Rules::AtNodeIpv6(Side::Proxy), &[&[("system", "IPv6")]]),
                    legacy(Rules::AtNodeIpv6(Side::Proxy), &[&[("system", "IPv6")]]),
                    V4_ONLY,
                ],
            },
            Need {
                what: "DNS capture",
                ways: &[
                    nft(Rules::AtNodeDns, &[]),
                    legacy(Rules::AtNodeDns, &[]),
                    NO_DNS,
                ],
            },
        ],
        capabilities: &["NET_ADMIN", "NET_RAW", "SYS_ADMIN"],
    },
    Job {
        name: "ebpf",
        title: "ambient mode, redirection by eBPF inside of the pod",
        needs: &[
            RIGHTS,
            SYSCTLS,
            Need {
                what: "programs",
                ways: &[way(
                    "programs of weir",
                    &[&[("ebpf", "programs inside of pods")]],
                )],
            },
            Need {
                what: "attachment",
                ways: &[way("tcx links", &[&[("ebpf", "attach tcx")]])],
            },
            Need {
                what: "delivery of marked packets",
                ways: &[way("policy routing", &[ROUTING])],
            },
            PINNING,
        ],
        capabilities: &["BPF", "NET_ADMIN", "NET_RAW", "SYS_ADMIN"],
    },
    Job {
        name: "node-ebpf",
        title: "ambient mode, redirection by eBPF in the node's own namespace",
        needs: &[
            RIGHTS,
            SYSCTLS,
            Need {
                what: "programs",
                ways: &[way(
                    "programs of weir",
                    &[&[("ebpf", "programs at the node")]],
                )],
            },
            Need {
                what: "attachment",
                ways: &[
                    way("tcx links", &[&[("ebpf", "attach tcx")]]),
                    way(
                        "filters of a clsact qdisc",
                        &[&[("ebpf", "attach cls_bpf")]],
                    ),
                ],
            },
            Need {
                what: "delivery of marked packets",
                ways: &[way("policy routing", &[ROUTING])],
            },
            Need {
                what: "IPv6",
                ways: &[
                    way("both families", &[&[("system", "IPv6")], ROUTING6]),
                    V4_ONLY,
                ],
            },
            PINNING,
        ],
        capabilities: &["BPF", "NET_ADMIN", "NET_RAW", "SYS_ADMIN"],
    },
];
