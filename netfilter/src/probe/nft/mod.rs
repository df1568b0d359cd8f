//! nf_tables: families, chain types, expressions, sets, userdata, the generation.

mod exprs;
mod sets;
mod trial;

pub use sets::SetTrial;

use super::{Answer, Finding, Row, RunningKernel, answer, row, unanswered};
use crate::features::expressions::{self, LEGACY};
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
const IP_PRE: At = at(NFPROTO_IPV4, "filter", NF_INET_PRE_ROUTING, -150);
const IP_IN: At = at(NFPROTO_IPV4, "filter", NF_INET_LOCAL_IN, 0);

/// The row of an expression. A test proves that each has one in the table of features.
const fn expression(feature: &'static str, probe: Trial) -> Row<Trial> {
    match expressions::find(feature) {
        Some(e) => row(feature, probe, e.needs, e.since, e.instead),
        None => row(feature, probe, "", "", LEGACY),
    }
}

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
    expression("expression bitwise", Trial::Rule(OUT, exprs::bitwise)),
    expression("expression byteorder", Trial::Rule(OUT, exprs::byteorder)),
    expression("expression cmp", Trial::Rule(OUT, exprs::cmp)),
    expression("expression connlimit", Trial::Rule(PRE, exprs::connlimit)),
    expression("expression counter", Trial::Rule(OUT, exprs::counter)),
    expression("expression ct", Trial::Rule(PRE, exprs::ct_state)),
    expression("expression dup", Trial::Rule(IP_PRE, exprs::dup)),
    expression("expression dynset", Trial::Set(SetTrial::Dynset)),
    expression("expression exthdr", Trial::Rule(OUT, exprs::exthdr)),
    expression("expression fib", Trial::Rule(PRE, exprs::fib)),
    expression("expression fwd", Trial::Rule(NETDEV, exprs::fwd)),
    expression("expression hash", Trial::Rule(OUT, exprs::hash)),
    expression("expression immediate", Trial::Rule(OUT, exprs::immediate)),
    expression("expression last", Trial::Rule(OUT, exprs::last)),
    expression("expression limit", Trial::Rule(OUT, exprs::limit)),
    expression("expression log", Trial::Rule(OUT, exprs::log)),
    expression("expression lookup", Trial::Set(SetTrial::Lookup)),
    expression("expression masq", Trial::Rule(SNAT, exprs::masq)),
    expression("expression match", Trial::Rule(IP_IN, exprs::xt_match)),
    expression("expression meta", Trial::Rule(OUT, exprs::meta)),
    expression("expression nat", Trial::Rule(NAT, exprs::nat)),
    expression("expression notrack", Trial::Rule(RAW, exprs::notrack)),
    expression("expression numgen", Trial::Rule(OUT, exprs::numgen)),
    expression("expression osf", Trial::Rule(PRE, exprs::osf)),
    expression("expression payload", Trial::Rule(OUT, exprs::payload)),
    expression("expression queue", Trial::Rule(OUT, exprs::queue)),
    expression("expression quota", Trial::Rule(OUT, exprs::quota)),
    expression("expression range", Trial::Rule(OUT, exprs::range)),
    expression("expression redir", Trial::Rule(NAT, exprs::redir)),
    expression("expression reject", Trial::Rule(IN, exprs::reject)),
    expression("expression rt", Trial::Rule(OUT, exprs::rt)),
    expression("expression socket", Trial::Rule(PRE, exprs::socket)),
    expression("expression synproxy", Trial::Rule(IN, exprs::synproxy)),
    expression("expression tproxy", Trial::Rule(PRE, exprs::tproxy)),
    expression("expression xfrm", Trial::Rule(PRE, exprs::xfrm)),
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
