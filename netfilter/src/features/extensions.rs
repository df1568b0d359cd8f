//! Tables, matches and targets of legacy xtables, with the modules that provide them in each family.
//!
//! A module may provide several, and its name says little: `-m tcp` is in xt_tcpudp, `-j SNAT` in xt_nat, `-m dst` in ip6t_hbh. The
//! kernel finds them by `MODULE_ALIAS("ipt_tcp")` and the like in `net/netfilter`, `net/ipv4/netfilter` and `net/ipv6/netfilter`; the
//! rows were compared with the aliases in Debian's modules of 5.10 and 6.12. (In 5.10 `-m icmp` is in ip_tables itself.)

use super::{Answer, RunningKernel};

/// The kind of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum XtObject {
    /// A built-in table.
    Table,
    /// `-m`
    Match,
    /// `-j`
    Target,
}

/// One row: a table, match or target, for both families.
#[derive(Clone, Copy, Debug)]
pub struct XtRow {
    /// What it is.
    pub kind: XtObject,
    /// Its name in the kernel.
    pub name: &'static str,
    /// Modules for IPv4; empty where the family has none.
    pub v4: &'static str,
    /// Modules for IPv6.
    pub v6: &'static str,
    /// The substitute where it is missing.
    pub instead: &'static str,
}

const fn table(name: &'static str, v4: &'static str, v6: &'static str) -> XtRow {
    XtRow {
        kind: XtObject::Table,
        name,
        v4,
        v6,
        instead: "nf_tables (--engine nft)",
    }
}

const fn extension(
    kind: XtObject,
    name: &'static str,
    v4: &'static str,
    v6: &'static str,
) -> XtRow {
    XtRow {
        kind,
        name,
        v4,
        v6,
        instead: "nf_tables (--engine nft)",
    }
}

const M: XtObject = XtObject::Match;
const T: XtObject = XtObject::Target;

/// Every table, match and target.
#[rustfmt::skip]
pub const ROWS: &[XtRow] = &[
    table("filter", "xtables_legacy iptable_filter", "xtables_legacy ip6table_filter"),
    table("mangle", "xtables_legacy iptable_mangle", "xtables_legacy ip6table_mangle"),
    table("nat", "xtables_legacy iptable_nat nf_nat", "xtables_legacy ip6table_nat nf_nat"),
    table("raw", "xtables_legacy iptable_raw", "xtables_legacy ip6table_raw"),
    table("security", "xtables_legacy iptable_security", "xtables_legacy ip6table_security"),
    extension(M, "addrtype", "xt_addrtype", "xt_addrtype"),
    extension(M, "ah", "ipt_ah", "ip6t_ah"),
    extension(M, "bpf", "xt_bpf", "xt_bpf"),
    extension(M, "cgroup", "xt_cgroup", "xt_cgroup"),
    extension(M, "cluster", "xt_cluster", "xt_cluster"),
    extension(M, "comment", "xt_comment", "xt_comment"),
    extension(M, "connbytes", "xt_connbytes", "xt_connbytes"),
    extension(M, "connlabel", "xt_connlabel", "xt_connlabel"),
    extension(M, "connlimit", "xt_connlimit", "xt_connlimit"),
    extension(M, "connmark", "xt_connmark", "xt_connmark"),
    extension(M, "conntrack", "xt_conntrack", "xt_conntrack"),
    extension(M, "cpu", "xt_cpu", "xt_cpu"),
    extension(M, "dccp", "xt_dccp", "xt_dccp"),
    extension(M, "devgroup", "xt_devgroup", "xt_devgroup"),
    extension(M, "dscp", "xt_dscp", "xt_dscp"),
    extension(M, "dst", "", "ip6t_hbh"),
    extension(M, "ecn", "xt_ecn", "xt_ecn"),
    extension(M, "esp", "xt_esp", "xt_esp"),
    extension(M, "eui64", "", "ip6t_eui64"),
    extension(M, "frag", "", "ip6t_frag"),
    extension(M, "hashlimit", "xt_hashlimit", "xt_hashlimit"),
    extension(M, "hbh", "", "ip6t_hbh"),
    extension(M, "helper", "xt_helper", "xt_helper"),
    extension(M, "hl", "", "xt_hl"),
    extension(M, "icmp", "xt_tcpudp", ""),
    extension(M, "icmp6", "", "xt_tcpudp"),
    extension(M, "ipcomp", "xt_ipcomp", "xt_ipcomp"),
    extension(M, "iprange", "xt_iprange", "xt_iprange"),
    extension(M, "ipv6header", "", "ip6t_ipv6header"),
    extension(M, "length", "xt_length", "xt_length"),
    extension(M, "limit", "xt_limit", "xt_limit"),
    extension(M, "mac", "xt_mac", "xt_mac"),
    extension(M, "mark", "xt_mark", "xt_mark"),
    extension(M, "mh", "", "ip6t_mh"),
    extension(M, "multiport", "xt_multiport", "xt_multiport"),
    extension(M, "nfacct", "xt_nfacct", "xt_nfacct"),
    extension(M, "osf", "xt_osf", ""),
    extension(M, "owner", "xt_owner", "xt_owner"),
    extension(M, "physdev", "xt_physdev", "xt_physdev"),
    extension(M, "pkttype", "xt_pkttype", "xt_pkttype"),
    extension(M, "policy", "xt_policy", "xt_policy"),
    extension(M, "quota", "xt_quota", "xt_quota"),
    extension(M, "rateest", "xt_rateest", "xt_rateest"),
    extension(M, "realm", "xt_realm", ""),
    extension(M, "recent", "xt_recent", "xt_recent"),
    extension(M, "rpfilter", "ipt_rpfilter", "ip6t_rpfilter"),
    extension(M, "rt", "", "ip6t_rt"),
    extension(M, "sctp", "xt_sctp", "xt_sctp"),
    extension(M, "set", "xt_set", "xt_set"),
    extension(M, "socket", "xt_socket", "xt_socket"),
    extension(M, "srh", "", "ip6t_srh"),
    extension(M, "state", "xt_state", "xt_state"),
    extension(M, "statistic", "xt_statistic", "xt_statistic"),
    extension(M, "string", "xt_string", "xt_string"),
    extension(M, "tcp", "xt_tcpudp", "xt_tcpudp"),
    extension(M, "tcpmss", "xt_tcpmss", "xt_tcpmss"),
    extension(M, "time", "xt_time", "xt_time"),
    extension(M, "tos", "xt_dscp", "xt_dscp"),
    extension(M, "ttl", "xt_hl", ""),
    extension(M, "u32", "xt_u32", "xt_u32"),
    extension(M, "udp", "xt_tcpudp", "xt_tcpudp"),
    extension(T, "AUDIT", "xt_AUDIT", "xt_AUDIT"),
    extension(T, "CHECKSUM", "xt_CHECKSUM", "xt_CHECKSUM"),
    extension(T, "CLASSIFY", "xt_CLASSIFY", "xt_CLASSIFY"),
    extension(T, "CONNMARK", "xt_connmark", "xt_connmark"),
    extension(T, "CONNSECMARK", "xt_CONNSECMARK", "xt_CONNSECMARK"),
    extension(T, "CT", "xt_CT", "xt_CT"),
    extension(T, "DNAT", "xt_nat", "xt_nat"),
    extension(T, "DNPT", "", "ip6t_NPT"),
    extension(T, "DSCP", "xt_DSCP", "xt_DSCP"),
    extension(T, "ECN", "ipt_ECN", ""),
    extension(T, "HL", "", "xt_HL"),
    extension(T, "HMARK", "xt_HMARK", "xt_HMARK"),
    extension(T, "IDLETIMER", "xt_IDLETIMER", "xt_IDLETIMER"),
    extension(T, "LOG", "xt_LOG", "xt_LOG"),
    extension(T, "MARK", "xt_mark", "xt_mark"),
    extension(T, "MASQUERADE", "xt_MASQUERADE", "xt_MASQUERADE"),
    extension(T, "NETMAP", "xt_NETMAP", "xt_NETMAP"),
    extension(T, "NFLOG", "xt_NFLOG", "xt_NFLOG"),
    extension(T, "NFQUEUE", "xt_NFQUEUE", "xt_NFQUEUE"),
    extension(T, "NOTRACK", "xt_CT", "xt_CT"),
    extension(T, "RATEEST", "xt_RATEEST", "xt_RATEEST"),
    extension(T, "REDIRECT", "xt_REDIRECT", "xt_REDIRECT"),
    extension(T, "REJECT", "ipt_REJECT", "ip6t_REJECT"),
    extension(T, "SECMARK", "xt_SECMARK", "xt_SECMARK"),
    extension(T, "SET", "xt_set", "xt_set"),
    extension(T, "SNAT", "xt_nat", "xt_nat"),
    extension(T, "SNPT", "", "ip6t_NPT"),
    extension(T, "SYNPROXY", "ipt_SYNPROXY", "ip6t_SYNPROXY"),
    extension(T, "TCPMSS", "xt_TCPMSS", "xt_TCPMSS"),
    extension(T, "TCPOPTSTRIP", "xt_TCPOPTSTRIP", "xt_TCPOPTSTRIP"),
    extension(T, "TEE", "xt_TEE", "xt_TEE"),
    extension(T, "TOS", "xt_DSCP", "xt_DSCP"),
    extension(T, "TPROXY", "xt_TPROXY", "xt_TPROXY"),
    extension(T, "TRACE", "xt_TRACE", "xt_TRACE"),
    extension(T, "TTL", "xt_HL", ""),
];

impl XtRow {
    /// The name in findings: `table ip nat`, `match ip6 owner`.
    #[must_use]
    pub fn feature(&self, ipv6: bool) -> String {
        let kind = match self.kind {
            XtObject::Table => "table",
            XtObject::Match => "match",
            XtObject::Target => "target",
        };
        format!("{kind} {} {}", if ipv6 { "ip6" } else { "ip" }, self.name)
    }

    /// Modules for the family; `None` if the family has no such feature.
    #[must_use]
    pub fn needs(&self, ipv6: bool) -> Option<&'static str> {
        Some(if ipv6 { self.v6 } else { self.v4 }).filter(|n| !n.is_empty())
    }
}

/// The row of a table, match or target.
#[must_use]
pub(crate) fn find(kind: XtObject, name: &str) -> Option<&'static XtRow> {
    ROWS.iter().find(|r| r.kind == kind && r.name == name)
}

/// Modules that every request of a family needs.
pub(crate) const fn base(ipv6: bool) -> &'static str {
    if ipv6 { "ipv6 ip6_tables" } else { "ip_tables" }
}

/// The answer instead of a request that could load a module; `None` when it can be sent. `None` also for what the family
/// has not: the kernel has no module for it. An extension without a row is assumed to have the usual module name.
#[must_use]
pub fn guard(kernel: &RunningKernel, kind: XtObject, name: &str, ipv6: bool) -> Option<Answer> {
    let guard = kernel.guard(base(ipv6));
    guard.or_else(|| match find(kind, name) {
        Some(row) => kernel.guard(row.needs(ipv6)?),
        None => kernel.guard(&format!("xt_{name}")),
    })
}
