//! The expressions of nf_tables: the modules that provide them, the first kernel that has them, the substitute for a missing one.

/// One expression.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Expression {
    /// `expression NAME`
    pub(crate) feature: &'static str,
    /// Its modules; empty if it is part of nf_tables.
    pub(crate) needs: &'static str,
    pub(crate) since: &'static str,
    pub(crate) instead: &'static str,
}

const fn expression(
    feature: &'static str,
    needs: &'static str,
    since: &'static str,
    instead: &'static str,
) -> Expression {
    Expression {
        feature,
        needs,
        since,
        instead,
    }
}

pub(crate) const LEGACY: &str = "legacy tables (--engine xtables)";
pub(crate) const NONE: &str = "nothing: only where the feature is asked for";

/// Every expression that has a type in [`nft::expr`](crate::nft::expr).
#[rustfmt::skip]
pub(crate) const EXPRESSIONS: &[Expression] = &[
    expression("expression bitwise", "", "3.13", LEGACY),
    expression("expression byteorder", "", "3.13", LEGACY),
    expression("expression cmp", "", "3.13", LEGACY),
    expression("expression connlimit", "nft_connlimit nf_conntrack", "4.18", NONE),
    expression("expression counter", "nft_counter", "3.13", LEGACY),
    expression("expression ct", "nft_ct nf_conntrack", "3.13", LEGACY),
    expression("expression dup", "nft_dup_ipv4 nft_dup_ipv6", "4.3", NONE),
    expression("expression dynset", "", "4.1", "not used"),
    expression("expression exthdr", "", "3.13", NONE),
    expression("expression fib", "nft_fib nft_fib_ipv4 nft_fib_ipv6 nft_fib_inet", "4.10", "addresses are listed in rules"),
    expression("expression flow_offload", "nft_flow_offload nf_flow_table nf_conntrack", "4.16", NONE),
    expression("expression fwd", "nft_fwd_netdev nf_dup_netdev", "4.5", NONE),
    expression("expression hash", "nft_hash", "4.9", NONE),
    expression("expression immediate", "", "3.13", LEGACY),
    expression("expression last", "", "5.14", NONE),
    expression("expression limit", "nft_limit", "3.13", NONE),
    expression("expression log", "nft_log nf_log_syslog nf_log_ipv4 nf_log_ipv6", "3.13", "drops are not logged"),
    expression("expression lookup", "", "3.13", LEGACY),
    expression("expression masq", "nft_masq nft_chain_nat nf_nat", "3.18", NONE),
    expression("expression match", "nft_compat x_tables xt_comment", "3.13", "not used: iptables-nft cannot write here either"),
    expression("expression meta", "", "3.13", LEGACY),
    expression("expression nat", "nft_nat nft_chain_nat nf_nat", "3.13", LEGACY),
    expression("expression notrack", "nft_ct nf_conntrack", "4.9", NONE),
    expression("expression numgen", "nft_numgen", "4.9", NONE),
    expression("expression objref", "nft_objref", "4.10", NONE),
    expression("expression osf", "nft_osf", "5.2", NONE),
    expression("expression payload", "", "3.13", LEGACY),
    expression("expression queue", "nft_queue", "3.14", "not used"),
    expression("expression quota", "nft_quota", "4.9", NONE),
    expression("expression range", "", "4.9", LEGACY),
    expression("expression redir", "nft_redir nft_chain_nat nf_nat", "3.19", LEGACY),
    expression("expression reject", "nft_reject nft_reject_inet", "3.14", "drop"),
    expression("expression rt", "", "4.10", NONE),
    expression("expression socket", "nft_socket", "4.18", LEGACY),
    expression("expression synproxy", "nft_synproxy", "5.3", NONE),
    expression("expression tproxy", "nft_tproxy", "4.19", LEGACY),
    expression("expression xfrm", "nft_xfrm", "4.20", NONE),
];

/// The row of a feature.
pub(crate) const fn find(feature: &str) -> Option<Expression> {
    let mut rest = EXPRESSIONS;
    while let [first, more @ ..] = rest {
        if is_same(first.feature.as_bytes(), feature.as_bytes()) {
            return Some(*first);
        }
        rest = more;
    }
    None
}

const fn is_same(mut a: &[u8], mut b: &[u8]) -> bool {
    while let ([x, more_a @ ..], [y, more_b @ ..]) = (a, b) {
        if *x != *y {
            return false;
        }
        (a, b) = (more_a, more_b);
    }
    a.is_empty() && b.is_empty()
}

/// The option and module that provide an expression: `CONFIG_NFT_TPROXY (module nft_tproxy)`. `None` for an expression that
/// is part of nf_tables or not in the table.
#[must_use]
pub(crate) fn given_by(name: &str) -> Option<String> {
    let row = find(&format!("expression {name}"))?;
    (!row.needs.is_empty()).then(|| super::given_by(row.needs))
}
