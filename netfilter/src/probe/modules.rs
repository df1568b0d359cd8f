//! Modules that features need, and the options that build them.

/// One module of the kernel.
#[derive(Clone, Copy, Debug)]
pub struct Module {
    /// Its name, as `/proc/modules` spells it.
    pub name: &'static str,
    /// The option that builds it.
    pub option: &'static str,
    /// The first kernel without a module of this name: it was merged into a larger one. 0.0 if it was not.
    pub merged: (u32, u32),
    /// The first kernel that has a module of this name. 0.0 if all relevant kernels have it.
    pub since: (u32, u32),
}

const fn module(name: &'static str, option: &'static str) -> Module {
    Module {
        name,
        option,
        merged: (0, 0),
        since: (0, 0),
    }
}

const fn merged(name: &'static str, option: &'static str, version: (u32, u32)) -> Module {
    Module {
        name,
        option,
        merged: version,
        since: (0, 0),
    }
}

const fn newer(name: &'static str, option: &'static str, version: (u32, u32)) -> Module {
    Module {
        name,
        option,
        merged: (0, 0),
        since: version,
    }
}

/// The entry of a module.
#[must_use]
pub fn find(name: &str) -> Option<&'static Module> {
    MODULES.iter().find(|m| m.name == name)
}

/// Every module that a row names. The releases of `merged` are upper bounds: a release that is too late costs an
/// answer, one that is too early would let the kernel load a module.
pub const MODULES: &[Module] = &[
    // nf_tables
    module("nfnetlink", "CONFIG_NETFILTER_NETLINK"),
    module("nf_tables", "CONFIG_NF_TABLES"),
    merged("nf_tables_inet", "CONFIG_NF_TABLES_INET", (5, 8)),
    merged("nf_tables_ipv4", "CONFIG_NF_TABLES_IPV4", (5, 8)),
    merged("nf_tables_ipv6", "CONFIG_NF_TABLES_IPV6", (5, 8)),
    merged("nf_tables_bridge", "CONFIG_NF_TABLES_BRIDGE", (5, 8)),
    merged("nf_tables_netdev", "CONFIG_NF_TABLES_NETDEV", (5, 8)),
    merged("nf_tables_set", "CONFIG_NF_TABLES", (5, 8)),
    merged("nft_meta", "CONFIG_NF_TABLES", (5, 8)),
    merged("nft_counter", "CONFIG_NFT_COUNTER", (5, 18)),
    module("nf_conntrack", "CONFIG_NF_CONNTRACK"),
    module("nf_nat", "CONFIG_NF_NAT"),
    module("nft_chain_nat", "CONFIG_NFT_NAT"),
    module("nft_compat", "CONFIG_NFT_COMPAT"),
    module("nft_ct", "CONFIG_NFT_CT"),
    module("nft_fib", "CONFIG_NFT_FIB"),
    module("nft_fib_inet", "CONFIG_NFT_FIB_INET"),
    module("nft_fib_ipv4", "CONFIG_NFT_FIB_IPV4"),
    module("nft_fib_ipv6", "CONFIG_NFT_FIB_IPV6"),
    module("nft_limit", "CONFIG_NFT_LIMIT"),
    module("nft_log", "CONFIG_NFT_LOG"),
    // Merged from the next two; an older kernel could not load it, because it lacks it.
    newer("nf_log_syslog", "CONFIG_NF_LOG_SYSLOG", (5, 13)),
    merged("nf_log_ipv4", "CONFIG_NF_LOG_IPV4", (5, 14)),
    merged("nf_log_ipv6", "CONFIG_NF_LOG_IPV6", (5, 14)),
    module("nft_masq", "CONFIG_NFT_MASQ"),
    module("nft_nat", "CONFIG_NFT_NAT"),
    module("nft_queue", "CONFIG_NFT_QUEUE"),
    module("nft_redir", "CONFIG_NFT_REDIR"),
    module("nft_reject", "CONFIG_NFT_REJECT"),
    module("nft_reject_inet", "CONFIG_NFT_REJECT_INET"),
    module("nft_socket", "CONFIG_NFT_SOCKET"),
    module("nft_tproxy", "CONFIG_NFT_TPROXY"),
    // legacy xtables
    module("x_tables", "CONFIG_NETFILTER_XTABLES"),
    // The option that is off by default since 6.17; older kernels have no such option.
    merged("xtables_legacy", "CONFIG_NETFILTER_XTABLES_LEGACY", (0, 1)),
    module("ip_tables", "CONFIG_IP_NF_IPTABLES"),
    module("ip6_tables", "CONFIG_IP6_NF_IPTABLES"),
    module("iptable_filter", "CONFIG_IP_NF_FILTER"),
    module("iptable_mangle", "CONFIG_IP_NF_MANGLE"),
    module("iptable_nat", "CONFIG_IP_NF_NAT"),
    module("iptable_raw", "CONFIG_IP_NF_RAW"),
    module("iptable_security", "CONFIG_IP_NF_SECURITY"),
    module("ip6table_filter", "CONFIG_IP6_NF_FILTER"),
    module("ip6table_mangle", "CONFIG_IP6_NF_MANGLE"),
    module("ip6table_nat", "CONFIG_IP6_NF_NAT"),
    module("ip6table_raw", "CONFIG_IP6_NF_RAW"),
    module("ip6table_security", "CONFIG_IP6_NF_SECURITY"),
    module("ipt_REJECT", "CONFIG_IP_NF_TARGET_REJECT"),
    module("ip6t_REJECT", "CONFIG_IP6_NF_TARGET_REJECT"),
    module("xt_CT", "CONFIG_NETFILTER_XT_TARGET_CT"),
    module("xt_LOG", "CONFIG_NETFILTER_XT_TARGET_LOG"),
    module("xt_MASQUERADE", "CONFIG_NETFILTER_XT_TARGET_MASQUERADE"),
    module("xt_NFLOG", "CONFIG_NETFILTER_XT_TARGET_NFLOG"),
    module("xt_REDIRECT", "CONFIG_NETFILTER_XT_TARGET_REDIRECT"),
    module("xt_TPROXY", "CONFIG_NETFILTER_XT_TARGET_TPROXY"),
    module("xt_addrtype", "CONFIG_NETFILTER_XT_MATCH_ADDRTYPE"),
    module("xt_comment", "CONFIG_NETFILTER_XT_MATCH_COMMENT"),
    module("xt_connmark", "CONFIG_NETFILTER_XT_CONNMARK"),
    module("xt_conntrack", "CONFIG_NETFILTER_XT_MATCH_CONNTRACK"),
    module("xt_dscp", "CONFIG_NETFILTER_XT_MATCH_DSCP"),
    module("xt_iprange", "CONFIG_NETFILTER_XT_MATCH_IPRANGE"),
    module("xt_limit", "CONFIG_NETFILTER_XT_MATCH_LIMIT"),
    module("xt_mark", "CONFIG_NETFILTER_XT_MARK"),
    module("xt_multiport", "CONFIG_NETFILTER_XT_MATCH_MULTIPORT"),
    module("xt_nat", "CONFIG_NETFILTER_XT_NAT"),
    module("xt_owner", "CONFIG_NETFILTER_XT_MATCH_OWNER"),
    module("xt_physdev", "CONFIG_NETFILTER_XT_MATCH_PHYSDEV"),
    module("xt_pkttype", "CONFIG_NETFILTER_XT_MATCH_PKTTYPE"),
    module("xt_set", "CONFIG_NETFILTER_XT_SET"),
    module("xt_socket", "CONFIG_NETFILTER_XT_MATCH_SOCKET"),
    module("xt_state", "CONFIG_NETFILTER_XT_MATCH_STATE"),
    module("xt_statistic", "CONFIG_NETFILTER_XT_MATCH_STATISTIC"),
    module("xt_tcpudp", "CONFIG_NETFILTER_XTABLES"),
    module("xt_u32", "CONFIG_NETFILTER_XT_MATCH_U32"),
    // ipset
    module("ip_set", "CONFIG_IP_SET"),
    module("ip_set_bitmap_port", "CONFIG_IP_SET_BITMAP_PORT"),
    module("ip_set_hash_ip", "CONFIG_IP_SET_HASH_IP"),
    module("ip_set_hash_ipport", "CONFIG_IP_SET_HASH_IPPORT"),
    module("ip_set_hash_ipportip", "CONFIG_IP_SET_HASH_IPPORTIP"),
    module("ip_set_hash_mac", "CONFIG_IP_SET_HASH_MAC"),
    module("ip_set_hash_net", "CONFIG_IP_SET_HASH_NET"),
    module("ip_set_hash_netport", "CONFIG_IP_SET_HASH_NETPORT"),
    module("ip_set_list_set", "CONFIG_IP_SET_LIST_SET"),
    // Links, traffic control, and features that only have an option
    module("bridge", "CONFIG_BRIDGE"),
    module("cls_bpf", "CONFIG_NET_CLS_BPF"),
    module("dummy", "CONFIG_DUMMY"),
    module("geneve", "CONFIG_GENEVE"),
    module("ipv6", "CONFIG_IPV6"),
    module("ipvlan", "CONFIG_IPVLAN"),
    module("macvlan", "CONFIG_MACVLAN"),
    module("sch_ingress", "CONFIG_NET_SCH_INGRESS"),
    module("veth", "CONFIG_VETH"),
    module("vxlan", "CONFIG_VXLAN"),
    merged("netkit", "CONFIG_NETKIT", (0, 1)),
    merged("fib_rules", "CONFIG_IP_MULTIPLE_TABLES", (0, 1)),
    merged("fib6_rules", "CONFIG_IPV6_MULTIPLE_TABLES", (0, 1)),
    merged("bpf_syscall", "CONFIG_BPF_SYSCALL", (0, 1)),
    merged("bpf_btf", "CONFIG_DEBUG_INFO_BTF", (0, 1)),
    merged("bpf_cgroup", "CONFIG_CGROUP_BPF", (0, 1)),
    merged("bpf_netfilter", "CONFIG_NETFILTER_BPF_LINK", (0, 1)),
    merged("bpf_inet", "CONFIG_INET", (0, 1)),
    merged("tcx", "CONFIG_NET_XGRESS", (0, 1)),
    merged("conntrack_mark", "CONFIG_NF_CONNTRACK_MARK", (0, 1)),
    merged("conntrack_zones", "CONFIG_NF_CONNTRACK_ZONES", (0, 1)),
];
