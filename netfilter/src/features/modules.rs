//! Modules that features need, and the options that build them.

/// A module whose option does not follow from its name, or that not every kernel has.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Exception {
    /// Its name, as `/proc/modules` spells it.
    name: &'static str,
    /// The option that builds it.
    option: &'static str,
    /// The first kernel without a module of this name, because it was merged into a larger one or is no module at all. 0.0 if
    /// the module still exists.
    pub(crate) merged: (u32, u32),
    /// The first kernel that has a module of this name. 0.0 if all relevant kernels have it.
    pub(crate) since: (u32, u32),
}

const fn other(name: &'static str, option: &'static str) -> Exception {
    Exception {
        name,
        option,
        merged: (0, 0),
        since: (0, 0),
    }
}

const fn merged(name: &'static str, option: &'static str, merged: (u32, u32)) -> Exception {
    Exception {
        merged,
        ..other(name, option)
    }
}

const fn newer(name: &'static str, option: &'static str, since: (u32, u32)) -> Exception {
    Exception {
        since,
        ..other(name, option)
    }
}

/// Releases of `merged` are upper bounds: a release that is too late costs an answer, and one that is too early would make the
/// kernel load a module.
const EXCEPTIONS: &[Exception] = &[
    other("nfnetlink", "CONFIG_NETFILTER_NETLINK"),
    merged("nf_tables_inet", "CONFIG_NF_TABLES_INET", (5, 8)),
    merged("nf_tables_arp", "CONFIG_NF_TABLES_ARP", (5, 8)),
    merged("nf_tables_ipv4", "CONFIG_NF_TABLES_IPV4", (5, 8)),
    merged("nf_tables_ipv6", "CONFIG_NF_TABLES_IPV6", (5, 8)),
    merged("nf_tables_bridge", "CONFIG_NF_TABLES_BRIDGE", (5, 8)),
    merged("nf_tables_netdev", "CONFIG_NF_TABLES_NETDEV", (5, 8)),
    merged("nf_tables_set", "CONFIG_NF_TABLES", (5, 8)),
    merged("nft_meta", "CONFIG_NF_TABLES", (5, 8)),
    merged("nft_counter", "CONFIG_NFT_COUNTER", (5, 18)),
    other("nft_chain_nat", "CONFIG_NFT_NAT"),
    // The next two were merged into it; an older kernel cannot load it, because it lacks it.
    newer("nf_log_syslog", "CONFIG_NF_LOG_SYSLOG", (5, 13)),
    merged("nf_log_ipv4", "CONFIG_NF_LOG_IPV4", (5, 14)),
    merged("nf_log_ipv6", "CONFIG_NF_LOG_IPV6", (5, 14)),
    merged("nft_objref", "CONFIG_NFT_OBJREF", (6, 3)),
    other("x_tables", "CONFIG_NETFILTER_XTABLES"),
    // An option without a module, off by default since 6.17; older kernels do not have it.
    merged("xtables_legacy", "CONFIG_NETFILTER_XTABLES_LEGACY", (0, 1)),
    other("ip_tables", "CONFIG_IP_NF_IPTABLES"),
    other("ip6_tables", "CONFIG_IP6_NF_IPTABLES"),
    other("ip6t_hbh", "CONFIG_IP6_NF_MATCH_OPTS"),
    other("xt_connmark", "CONFIG_NETFILTER_XT_CONNMARK"),
    other("xt_mark", "CONFIG_NETFILTER_XT_MARK"),
    other("xt_nat", "CONFIG_NETFILTER_XT_NAT"),
    other("xt_set", "CONFIG_NETFILTER_XT_SET"),
    other("xt_tcpudp", "CONFIG_NETFILTER_XTABLES"),
    other("cls_bpf", "CONFIG_NET_CLS_BPF"),
    other("sch_ingress", "CONFIG_NET_SCH_INGRESS"),
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

pub(crate) fn exception(name: &str) -> Option<&'static Exception> {
    EXCEPTIONS.iter().find(|e| e.name == name)
}

/// Prefixes of module names: the text that replaces each in the name of the option, and whether the name of a match or a
/// target follows it.
const BEGINNINGS: [(&str, &str, bool); 5] = [
    ("xt_", "NETFILTER_XT_", true),
    ("ipt_", "IP_NF_", true),
    ("ip6t_", "IP6_NF_", true),
    ("iptable_", "IP_NF_", false),
    ("ip6table_", "IP6_NF_", false),
];

/// The option that builds a module.
pub(crate) fn option(name: &str) -> String {
    if let Some(e) = exception(name) {
        return e.option.to_owned();
    }
    let begun = |(begin, area, is_extension)| Some((area, name.strip_prefix(begin)?, is_extension));
    let found = BEGINNINGS.into_iter().find_map(begun);
    let (area, rest, is_extension) = found.unwrap_or(("", name, false));
    let part = match (
        is_extension,
        rest.contains(|c: char| c.is_ascii_lowercase()),
    ) {
        (false, _) => "",
        (true, true) => "MATCH_",
        (true, false) => "TARGET_",
    };
    format!("CONFIG_{area}{part}{}", rest.to_ascii_uppercase())
}
