//! nf_tables: families, chain types, expressions, sets, userdata, the generation.

mod exprs;
mod sets;
mod trial;

pub use sets::SetTrial;

use super::{Answer, Finding, Row, RunningKernel, answer, row, unanswered};
use crate::nft::expr::Expr;
use crate::nft::raw::{
    NF_INET_LOCAL_IN, NF_INET_LOCAL_OUT, NF_INET_POST_ROUTING, NF_INET_PRE_ROUTING, NFPROTO_BRIDGE,
    NFPROTO_INET, NFPROTO_IPV4, NFPROTO_IPV6, NFPROTO_NETDEV,
};
use trial::Lab;

/// The name of the area in findings.
pub const AREA: &str = "nf_tables";

/// The modules that every trial uses.
pub const BASE: &str = "nfnetlink nf_tables nf_tables_set nft_meta";

/// Errnos of a missing feature, among them `EINVAL` for attributes that the kernel does not know.
const ABSENT: &[i32] = &[
    libc::ENOENT,
    libc::EOPNOTSUPP,
    libc::EAFNOSUPPORT,
    libc::EPROTONOSUPPORT,
    libc::EINVAL,
];

/// The base chain in which a rule is tried.
#[derive(Clone, Copy, Debug)]
pub struct At {
    /// `NFPROTO_*`
    pub family: u8,
    /// `filter`, `nat`, `route`
    pub kind: &'static str,
    /// `enum nf_inet_hooks`, or the hook of `netdev`
    pub hook: u32,
    /// lower ones are called earlier
    pub priority: i32,
}

/// How a feature of nf_tables is tried: the content of the commit.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Trial {
    /// A table of the family.
    Table(u8),
    /// A base chain.
    Chain(At),
    /// A rule of these expressions.
    Rule(At, fn() -> Vec<Expr>),
    /// A set, its elements, and a rule that uses it.
    Set(SetTrial),
    /// A comment of a table, which must be listed when it is read back.
    TableComment,
    /// A comment of a chain.
    ChainComment,
    /// A change for an old generation, which must be refused.
    Generation,
}

const fn at(family: u8, kind: &'static str, hook: u32, priority: i32) -> At {
    At {
        family,
        kind,
        hook,
        priority,
    }
}

const PRE: At = at(NFPROTO_INET, "filter", NF_INET_PRE_ROUTING, -150);
const RAW: At = at(NFPROTO_INET, "filter", NF_INET_PRE_ROUTING, -300);
const IN: At = at(NFPROTO_INET, "filter", NF_INET_LOCAL_IN, 0);
const OUT: At = at(NFPROTO_INET, "filter", NF_INET_LOCAL_OUT, 0);
const NAT: At = at(NFPROTO_INET, "nat", NF_INET_LOCAL_OUT, -100);
const SNAT: At = at(NFPROTO_INET, "nat", NF_INET_POST_ROUTING, 100);
const ROUTE: At = at(NFPROTO_INET, "route", NF_INET_LOCAL_OUT, -150);
const IP_NAT: At = at(NFPROTO_IPV4, "nat", NF_INET_LOCAL_OUT, -100);
const IP_ROUTE: At = at(NFPROTO_IPV4, "route", NF_INET_LOCAL_OUT, -150);
const IP6_NAT: At = at(NFPROTO_IPV6, "nat", NF_INET_LOCAL_OUT, -100);
const IP6_ROUTE: At = at(NFPROTO_IPV6, "route", NF_INET_LOCAL_OUT, -150);
const BRIDGE: At = at(NFPROTO_BRIDGE, "filter", NF_INET_PRE_ROUTING, 0);
/// `NF_NETDEV_INGRESS` is 0.
const NETDEV: At = at(NFPROTO_NETDEV, "filter", 0, 0);
const IP_IN: At = at(NFPROTO_IPV4, "filter", NF_INET_LOCAL_IN, 0);

const LEGACY: &str = "legacy tables (--engine xtables)";
const NONE: &str = "nothing: only where the feature is asked for";

/// Every feature: name, trial, modules, first kernel, the substitute where it is missing.
#[rustfmt::skip]
pub const ROWS: &[Row<Trial>] = &[
    row("family inet", Trial::Table(NFPROTO_INET), "nf_tables_inet", "3.14", LEGACY),
    row("family ip", Trial::Table(NFPROTO_IPV4), "nf_tables_ipv4", "3.13", LEGACY),
    row("family ip6", Trial::Table(NFPROTO_IPV6), "nf_tables_ipv6", "3.13", LEGACY),
    row("family bridge", Trial::Table(NFPROTO_BRIDGE), "nf_tables_bridge", "3.14", "not used"),
    row("family netdev", Trial::Table(NFPROTO_NETDEV), "nf_tables_netdev", "4.2", "not used"),
    row("chain inet filter", Trial::Chain(IN), "nf_tables_inet", "3.14", LEGACY),
    row("chain inet nat", Trial::Chain(NAT), "nft_chain_nat", "5.2", LEGACY),
    row("chain inet route", Trial::Chain(ROUTE), "nf_tables_inet", "5.2", LEGACY),
    row("chain ip nat", Trial::Chain(IP_NAT), "nft_chain_nat", "3.13", LEGACY),
    row("chain ip route", Trial::Chain(IP_ROUTE), "nf_tables_ipv4", "3.13", LEGACY),
    row("chain ip6 nat", Trial::Chain(IP6_NAT), "nft_chain_nat", "3.13", LEGACY),
    row("chain ip6 route", Trial::Chain(IP6_ROUTE), "nf_tables_ipv6", "3.13", LEGACY),
    row("chain bridge filter", Trial::Chain(BRIDGE), "nf_tables_bridge", "3.14", "not used"),
    row("chain netdev filter", Trial::Chain(NETDEV), "nf_tables_netdev", "4.2", "not used"),
    row("expression bitwise", Trial::Rule(OUT, exprs::bitwise), "", "3.13", LEGACY),
    row("expression byteorder", Trial::Rule(OUT, exprs::byteorder), "", "3.13", LEGACY),
    row("expression cmp", Trial::Rule(OUT, exprs::cmp), "", "3.13", LEGACY),
    row("expression counter", Trial::Rule(OUT, exprs::counter), "nft_counter", "3.13", LEGACY),
    row("expression ct", Trial::Rule(PRE, exprs::ct_state), "nft_ct nf_conntrack", "3.13", LEGACY),
    row("expression fib", Trial::Rule(PRE, exprs::fib), "nft_fib nft_fib_ipv4 nft_fib_ipv6 nft_fib_inet", "4.10", "addresses are listed in rules"),
    row("expression immediate", Trial::Rule(OUT, exprs::immediate), "", "3.13", LEGACY),
    row("expression limit", Trial::Rule(OUT, exprs::limit), "nft_limit", "3.13", NONE),
    row("expression log", Trial::Rule(OUT, exprs::log), "nft_log nf_log_syslog nf_log_ipv4 nf_log_ipv6", "3.13", "drops are not logged"),
    row("expression lookup", Trial::Set(SetTrial::Lookup), "", "3.13", LEGACY),
    row("expression masq", Trial::Rule(SNAT, exprs::masq), "nft_masq nft_chain_nat nf_nat", "3.18", NONE),
    row("expression meta", Trial::Rule(OUT, exprs::meta), "", "3.13", LEGACY),
    row("expression nat", Trial::Rule(NAT, exprs::nat), "nft_nat nft_chain_nat nf_nat", "3.13", LEGACY),
    row("expression notrack", Trial::Rule(RAW, exprs::notrack), "nft_ct nf_conntrack", "4.9", NONE),
    row("expression payload", Trial::Rule(OUT, exprs::payload), "", "3.13", LEGACY),
    row("expression range", Trial::Rule(OUT, exprs::range), "", "4.9", LEGACY),
    row("expression redir", Trial::Rule(NAT, exprs::redir), "nft_redir nft_chain_nat nf_nat", "3.19", LEGACY),
    row("expression reject", Trial::Rule(IN, exprs::reject), "nft_reject nft_reject_inet", "3.14", "drop"),
    row("expression socket", Trial::Rule(PRE, exprs::socket), "nft_socket", "4.20", LEGACY),
    row("expression tproxy", Trial::Rule(PRE, exprs::tproxy), "nft_tproxy", "4.19", LEGACY),
    row("expression queue", Trial::Rule(OUT, exprs::queue), "nft_queue", "3.14", "not used"),
    row("expression dynset", Trial::Set(SetTrial::Dynset), "", "4.1", "not used"),
    row("expression match", Trial::Rule(IP_IN, exprs::xt_match), "nft_compat x_tables xt_comment", "3.13", "not used: iptables-nft cannot write here either"),
    row("meta skuid", Trial::Rule(OUT, exprs::skuid), "", "3.13", LEGACY),
    row("meta mark set", Trial::Rule(OUT, exprs::mark_set), "", "3.14", LEGACY),
    row("ct mark set", Trial::Rule(PRE, exprs::ct_mark_set), "nft_ct nf_conntrack conntrack_mark", "3.18", "none: TPROXY and ambient need it"),
    row("ct zone set", Trial::Rule(RAW, exprs::ct_zone_set), "nft_ct nf_conntrack conntrack_zones", "4.11", "none: DNS capture needs it"),
    row("set plain", Trial::Set(SetTrial::Plain), "", "3.13", LEGACY),
    row("set interval", Trial::Set(SetTrial::Interval), "", "3.13", "one rule for each range"),
    row("set timeout", Trial::Set(SetTrial::Timeout), "", "4.1", "elements are removed by the agent"),
    row("set concatenation", Trial::Set(SetTrial::Concatenation), "", "4.1", "one rule for each pair"),
    row("set interval concatenation", Trial::Set(SetTrial::IntervalConcatenation), "", "5.6", "one rule for each pair"),
    row("map verdict", Trial::Set(SetTrial::VerdictMap), "", "3.13", "one rule for each element"),
    row("map value", Trial::Set(SetTrial::ValueMap), "", "3.13", "one rule for each element"),
    row("comment table", Trial::TableComment, "", "5.10", "the engine is recorded in a chain's name"),
    row("comment chain", Trial::ChainComment, "", "5.10", "chains have no comments"),
    row("generation guard", Trial::Generation, "", "4.12", "another writer's change in between is detected by reading back"),
];

/// Tries every row in the network namespace of the calling thread, which must be a throwaway one.
#[must_use]
pub fn features(kernel: &RunningKernel) -> Vec<Finding> {
    features_of(kernel, |_| true)
}

/// As [`features`], for the rows of the selected features.
#[must_use]
pub fn features_of(kernel: &RunningKernel, wanted: impl Fn(&str) -> bool) -> Vec<Finding> {
    let mut lab: Option<Result<Lab, Answer>> = None;
    let mut one = |row: &Row<Trial>| {
        answer(AREA, BASE, row, kernel, |trial| {
            // Opened late: the socket alone could load a module.
            match lab.get_or_insert_with(Lab::open) {
                Ok(lab) => Answer::of(lab.try_one(trial).map(|()| String::new()), ABSENT),
                Err(why) => why.clone(),
            }
        })
    };
    let rows = ROWS.iter().filter(|row| wanted(row.feature));
    rows.map(&mut one).collect()
}

/// Every row unanswered.
#[must_use]
pub fn untried(why: &str) -> Vec<Finding> {
    unanswered(AREA, BASE, ROWS, why)
}
