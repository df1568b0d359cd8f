//! Tables, matches and targets of legacy xtables, with the modules that provide them in each family.
//!
//! A module may provide several extensions under a different name: `-m tcp` is in xt_tcpudp, `-j SNAT` in xt_nat, `-m dst` in
//! ip6t_hbh. The kernel finds them by `MODULE_ALIAS("ipt_tcp")` and similar aliases in `net/netfilter`, `net/ipv4/netfilter` and
//! `net/ipv6/netfilter`; the names were compared with the aliases in Debian's modules of 5.10 and 6.12. (In 5.10 `-m icmp` is in
//! ip_tables itself.)

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

/// A table, match or target.
#[derive(Clone, Copy, Debug)]
pub struct XtRow {
    /// Whether it is a table, a match or a target.
    pub kind: XtObject,
    /// Its name in the kernel.
    pub name: &'static str,
}

/// The substitute where one is missing.
pub(crate) const INSTEAD: &str = "nf_tables (--engine nft)";

const M: XtObject = XtObject::Match;
const T: XtObject = XtObject::Target;

const TABLES: &str = "filter mangle nat raw security";
const MATCHES: &str = "\
    addrtype ah bpf cgroup cluster comment connbytes connlabel connlimit connmark conntrack cpu \
    dccp devgroup dscp dst ecn esp eui64 frag hashlimit hbh helper hl icmp icmp6 ipcomp iprange \
    ipv6header length limit mac mark mh multiport nfacct osf owner physdev pkttype policy quota \
    rateest realm recent rpfilter rt sctp set socket srh state statistic string tcp tcpmss time \
    tos ttl u32 udp";
const TARGETS: &str = "\
    AUDIT CHECKSUM CLASSIFY CONNMARK CONNSECMARK CT DNAT DNPT DSCP ECN HL HMARK IDLETIMER LOG \
    MARK MASQUERADE NETMAP NFLOG NFQUEUE NOTRACK RATEEST REDIRECT REJECT SECMARK SET SNAT SNPT \
    SYNPROXY TCPMSS TCPOPTSTRIP TEE TOS TPROXY TRACE TTL";

/// Extensions whose module is not called `xt_NAME` in both families: the modules for IPv4 and for IPv6, empty where the family
/// has none.
const EXCEPTIONS: &[(XtObject, &str, &str, &str)] = &[
    (M, "ah", "ipt_ah", "ip6t_ah"),
    (M, "dst", "", "ip6t_hbh"),
    (M, "eui64", "", "ip6t_eui64"),
    (M, "frag", "", "ip6t_frag"),
    (M, "hbh", "", "ip6t_hbh"),
    (M, "hl", "", "xt_hl"),
    (M, "icmp", "xt_tcpudp", ""),
    (M, "icmp6", "", "xt_tcpudp"),
    (M, "ipv6header", "", "ip6t_ipv6header"),
    (M, "mh", "", "ip6t_mh"),
    (M, "osf", "xt_osf", ""),
    (M, "realm", "xt_realm", ""),
    (M, "rpfilter", "ipt_rpfilter", "ip6t_rpfilter"),
    (M, "rt", "", "ip6t_rt"),
    (M, "srh", "", "ip6t_srh"),
    (M, "tcp", "xt_tcpudp", "xt_tcpudp"),
    (M, "tos", "xt_dscp", "xt_dscp"),
    (M, "ttl", "xt_hl", ""),
    (M, "udp", "xt_tcpudp", "xt_tcpudp"),
    (T, "CONNMARK", "xt_connmark", "xt_connmark"),
    (T, "DNAT", "xt_nat", "xt_nat"),
    (T, "DNPT", "", "ip6t_NPT"),
    (T, "ECN", "ipt_ECN", ""),
    (T, "HL", "", "xt_HL"),
    (T, "MARK", "xt_mark", "xt_mark"),
    (T, "NOTRACK", "xt_CT", "xt_CT"),
    (T, "REJECT", "ipt_REJECT", "ip6t_REJECT"),
    (T, "SET", "xt_set", "xt_set"),
    (T, "SNAT", "xt_nat", "xt_nat"),
    (T, "SNPT", "", "ip6t_NPT"),
    (T, "SYNPROXY", "ipt_SYNPROXY", "ip6t_SYNPROXY"),
    (T, "TOS", "xt_DSCP", "xt_DSCP"),
    (T, "TTL", "xt_HL", ""),
];

/// Every table, match and target.
pub fn rows() -> impl Iterator<Item = XtRow> {
    let all = [(XtObject::Table, TABLES), (M, MATCHES), (T, TARGETS)];
    all.into_iter().flat_map(|(kind, names)| {
        let names = names.split_whitespace();
        names.map(move |name| XtRow { kind, name })
    })
}

/// Modules of a table, match or target in a family; `None` if the family has no such feature.
#[must_use]
pub(crate) fn needs(kind: XtObject, name: &str, ipv6: bool) -> Option<String> {
    if kind == XtObject::Table {
        let table = if ipv6 { "ip6table" } else { "iptable" };
        let nat = if name == "nat" { " nf_nat" } else { "" };
        return Some(format!("xtables_legacy {table}_{name}{nat}"));
    }
    let other = EXCEPTIONS.iter().find(|row| (row.0, row.1) == (kind, name));
    let Some((.., v4, v6)) = other else {
        return Some(format!("xt_{name}"));
    };
    let module = if ipv6 { v6 } else { v4 };
    (!module.is_empty()).then(|| (*module).to_owned())
}

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
    pub fn needs(&self, ipv6: bool) -> Option<String> {
        needs(self.kind, self.name, ipv6)
    }
}

/// Modules that every request of a family needs.
pub(crate) const fn base(ipv6: bool) -> &'static str {
    if ipv6 { "ipv6 ip6_tables" } else { "ip_tables" }
}

/// The answer instead of a request that could load a module; `None` if the request can be sent. That includes an extension
/// that the family lacks, since the kernel has no module for it. For an extension that is not listed the usual module name is
/// assumed.
#[must_use]
pub fn guard(kernel: &RunningKernel, kind: XtObject, name: &str, ipv6: bool) -> Option<Answer> {
    let guard = kernel.guard(base(ipv6));
    guard.or_else(|| kernel.guard(&needs(kind, name, ipv6)?))
}
