//! Legacy xtables: tables, matches and targets with their revisions, of each family.
//!
//! ```text
//! IPT_SO_GET_INFO               struct ipt_getinfo, 84 bytes: name[32], then numbers
//! IPT_SO_GET_REVISION_MATCH     struct xt_get_revision, 30 bytes: name[29], u8 revision
//! ```
//! A revision is supported when the call succeeds; `EPROTONOSUPPORT` means that only other revisions of that name
//! exist, `ENOENT` that no extension has that name. The kernel creates a table when it is asked for it: only in a
//! throwaway namespace.

use super::{Answer, Finding, RunningKernel, finding};
use crate::xtables::raw::INFO_SIZE;
use crate::xtables::raw::IPT_SO_GET_INFO;
use crate::xtables::{Form, Part, XtFamily, revision_request};
use weir_netlink::Error;
use weir_netlink::xtables::RawSocket;

/// The name of the area in findings.
pub const AREA: &str = "xtables";

/// No extension has more revisions; `set` has five.
const REVISIONS: u8 = 8;

/// Errnos of a missing feature. `ENOPROTOOPT`: no module handles the options.
const ABSENT: &[i32] = &[
    libc::ENOENT,
    libc::ENOPROTOOPT,
    libc::EPROTONOSUPPORT,
    libc::EAFNOSUPPORT,
    libc::EOPNOTSUPP,
];

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
    extension(M, "comment", "xt_comment", "xt_comment"),
    extension(M, "connmark", "xt_connmark", "xt_connmark"),
    extension(M, "conntrack", "xt_conntrack", "xt_conntrack"),
    extension(M, "dscp", "xt_dscp", "xt_dscp"),
    extension(M, "icmp", "xt_tcpudp", ""),
    extension(M, "icmp6", "", "xt_tcpudp"),
    extension(M, "iprange", "xt_iprange", "xt_iprange"),
    extension(M, "limit", "xt_limit", "xt_limit"),
    extension(M, "mark", "xt_mark", "xt_mark"),
    extension(M, "multiport", "xt_multiport", "xt_multiport"),
    extension(M, "owner", "xt_owner", "xt_owner"),
    extension(M, "physdev", "xt_physdev", "xt_physdev"),
    extension(M, "pkttype", "xt_pkttype", "xt_pkttype"),
    extension(M, "set", "xt_set", "xt_set"),
    extension(M, "socket", "xt_socket", "xt_socket"),
    extension(M, "state", "xt_state", "xt_state"),
    extension(M, "statistic", "xt_statistic", "xt_statistic"),
    extension(M, "tcp", "xt_tcpudp", "xt_tcpudp"),
    extension(M, "tos", "xt_dscp", "xt_dscp"),
    extension(M, "u32", "xt_u32", "xt_u32"),
    extension(M, "udp", "xt_tcpudp", "xt_tcpudp"),
    extension(T, "CONNMARK", "xt_connmark", "xt_connmark"),
    extension(T, "CT", "xt_CT", "xt_CT"),
    extension(T, "DNAT", "xt_nat", "xt_nat"),
    extension(T, "LOG", "xt_LOG", "xt_LOG"),
    extension(T, "MARK", "xt_mark", "xt_mark"),
    extension(T, "MASQUERADE", "xt_MASQUERADE", "xt_MASQUERADE"),
    extension(T, "NFLOG", "xt_NFLOG", "xt_NFLOG"),
    extension(T, "REDIRECT", "xt_REDIRECT", "xt_REDIRECT"),
    extension(T, "REJECT", "ipt_REJECT", "ip6t_REJECT"),
    extension(T, "SET", "xt_set", "xt_set"),
    extension(T, "SNAT", "xt_nat", "xt_nat"),
    extension(T, "TPROXY", "xt_TPROXY", "xt_TPROXY"),
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

    fn with(&self, ipv6: bool, answer: Answer) -> Option<Finding> {
        let needs = self.needs(ipv6)?;
        Some(finding(
            AREA,
            self.feature(ipv6),
            answer,
            needs,
            ("", self.instead),
        ))
    }
}

/// Modules that every request of a family needs.
const fn base(ipv6: bool) -> &'static str {
    if ipv6 { "ipv6 ip6_tables" } else { "ip_tables" }
}

/// Tries every row, IPv4 first, in the network namespace of the calling thread, which must be a throwaway one.
#[must_use]
pub fn features(kernel: &RunningKernel) -> Vec<Finding> {
    features_of(kernel, |_| true)
}

/// As [`features`], for the rows of the selected features.
#[must_use]
pub fn features_of(kernel: &RunningKernel, wanted: impl Fn(&str) -> bool) -> Vec<Finding> {
    let mut findings = Vec::new();
    for ipv6 in [false, true] {
        let mut socket: Option<Result<RawSocket, Answer>> = None;
        for row in ROWS.iter().filter(|row| wanted(&row.feature(ipv6))) {
            let Some(needs) = row.needs(ipv6) else {
                continue;
            };
            let guard = kernel.guard(base(ipv6)).or_else(|| kernel.guard(needs));
            let answer = guard.unwrap_or_else(|| match socket.get_or_insert_with(|| open(ipv6)) {
                Ok(socket) => Answer::of(ask(socket, row, ipv6), ABSENT),
                Err(why) => why.clone(),
            });
            findings.extend(row.with(ipv6, answer));
        }
    }
    findings
}

/// The answer instead of a request that could load a module; `None` when it can be sent. An extension without a row
/// is assumed to have the usual module name.
#[must_use]
pub fn guard(kernel: &RunningKernel, kind: XtObject, name: &str, ipv6: bool) -> Option<Answer> {
    let row = ROWS.iter().find(|r| r.kind == kind && r.name == name);
    let needs = row.and_then(|r| r.needs(ipv6));
    let guard = kernel.guard(base(ipv6));
    guard.or_else(|| match needs {
        Some(needs) => kernel.guard(needs),
        None => kernel.guard(&format!("xt_{name}")),
    })
}

/// Tries one table, in the network namespace of the calling thread, which must be a throwaway one: the kernel creates
/// the table there.
#[must_use]
pub fn table_answer(kernel: &RunningKernel, name: &str, ipv6: bool) -> Answer {
    let Some(row) = ROWS
        .iter()
        .find(|r| r.kind == XtObject::Table && r.name == name)
    else {
        return Answer::Lack("there is no such table".to_owned());
    };
    let guard = kernel.guard(base(ipv6));
    let guard = guard.or_else(|| kernel.guard(row.needs(ipv6).unwrap_or_default()));
    guard.unwrap_or_else(|| match open(ipv6) {
        Ok(socket) => Answer::of(ask(&socket, row, ipv6), ABSENT),
        Err(why) => why,
    })
}

/// Every row with the answer "unknown".
#[must_use]
pub fn untried(why: &str) -> Vec<Finding> {
    let one = |ipv6| {
        ROWS.iter()
            .filter_map(move |row| row.with(ipv6, Answer::Unknown(why.to_owned())))
    };
    one(false).chain(one(true)).collect()
}

fn open(ipv6: bool) -> Result<RawSocket, Answer> {
    RawSocket::open(ipv6).map_err(|e| {
        Answer::of(
            Err(Error::io("open", "a raw socket (CAP_NET_RAW)", &e)),
            ABSENT,
        )
    })
}

fn ask(socket: &RawSocket, row: &XtRow, ipv6: bool) -> Result<String, Error> {
    match row.kind {
        XtObject::Table => {
            let mut info = [0; INFO_SIZE];
            for (slot, byte) in info.iter_mut().zip(row.name.bytes()) {
                *slot = byte;
            }
            get(socket, IPT_SO_GET_INFO, &mut info).map(|()| String::new())
        }
        XtObject::Match => revisions(socket, ipv6, Part::Match, row.name),
        XtObject::Target => revisions(socket, ipv6, Part::Target, row.name),
    }
}

/// Every revision that is accepted.
fn revisions(
    socket: &RawSocket,
    ipv6: bool,
    part: Part,
    name: &'static str,
) -> Result<String, Error> {
    let family = if ipv6 { XtFamily::Ip6 } else { XtFamily::Ip };
    let mut accepted = Vec::new();
    for revision in 0..REVISIONS {
        let (option, mut question) = revision_request(family, part, Form { name, revision });
        match get(socket, option, &mut question) {
            Ok(()) => accepted.push(revision),
            Err(e) if e.errno() == Some(libc::EPROTONOSUPPORT) => {}
            Err(e) => return Err(e),
        }
    }
    match (accepted.first(), accepted.last()) {
        (Some(first), Some(last)) if first != last => Ok(format!("revisions {first}-{last}")),
        (Some(only), _) => Ok(format!("revision {only}")),
        _ => Err(Error::kernel("ask for", name, libc::EPROTONOSUPPORT)),
    }
}

fn get(socket: &RawSocket, option: i32, value: &mut [u8]) -> Result<(), Error> {
    socket
        .get(option, value)
        .map(drop)
        .map_err(|e| Error::io("ask for", "it", &e))
}
