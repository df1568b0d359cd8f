//! Legacy xtables: tables, and matches and targets with their revisions, per family.
//!
//! ```text
//! IPT_SO_GET_INFO               struct ipt_getinfo, 84 bytes: name[32], then numbers
//! IPT_SO_GET_REVISION_MATCH     struct xt_get_revision, 30 bytes: name[29], u8 revision
//! ```
//! A revision is supported if the call succeeds; `EPROTONOSUPPORT` means that only other revisions of that name
//! exist, `ENOENT` that no extension has that name. A query for a table makes the kernel create it, so call these
//! functions only in a throwaway namespace.

use super::{Answer, Finding, RunningKernel, finding};
use crate::features::extensions::{INSTEAD, base};
pub use crate::features::extensions::{XtObject, XtRow, guard, rows};
use crate::xtables::raw::INFO_SIZE;
use crate::xtables::raw::IPT_SO_GET_INFO;
use crate::xtables::{Form, Part, XtFamily, revision_request};
use weir_netlink::Error;
use weir_netlink::xtables::RawSocket;

/// The name of the area in findings.
pub const AREA: &str = "xtables";

/// Number of revisions that are queried, from 0. No extension has more; `set` has five.
const REVISIONS: u8 = 8;

/// Errnos of a missing feature. `ENOPROTOOPT`: no module handles the options.
const ABSENT: &[i32] = &[
    libc::ENOENT,
    libc::ENOPROTOOPT,
    libc::EPROTONOSUPPORT,
    libc::EAFNOSUPPORT,
    libc::EOPNOTSUPP,
];

fn with(row: XtRow, ipv6: bool, answer: Answer) -> Option<Finding> {
    let (needs, feature) = (row.needs(ipv6)?, row.feature(ipv6));
    Some(finding(AREA, feature, answer, &needs, ("", INSTEAD)))
}

/// Tries every row, IPv4 first, in the network namespace of the calling thread, which must be a throwaway one.
#[must_use]
pub fn features(kernel: &RunningKernel) -> Vec<Finding> {
    features_of(kernel, |_| true)
}

/// As [`features`], but only for features that `wanted` selects.
pub(crate) fn features_of(kernel: &RunningKernel, wanted: impl Fn(&str) -> bool) -> Vec<Finding> {
    let mut findings = Vec::new();
    for ipv6 in [false, true] {
        let mut socket: Option<Result<RawSocket, Answer>> = None;
        for row in rows().filter(|row| wanted(&row.feature(ipv6))) {
            let Some(needs) = row.needs(ipv6) else {
                continue;
            };
            let guard = kernel.guard(base(ipv6)).or_else(|| kernel.guard(&needs));
            let answer = guard.unwrap_or_else(|| match socket.get_or_insert_with(|| open(ipv6)) {
                Ok(socket) => Answer::of(ask(socket, row, ipv6), ABSENT),
                Err(why) => why.clone(),
            });
            findings.extend(with(row, ipv6, answer));
        }
    }
    findings
}

/// Tries one table, in the network namespace of the calling thread, which must be a throwaway one: the kernel creates
/// the table there.
#[must_use]
pub fn table_answer(kernel: &RunningKernel, name: &str, ipv6: bool) -> Answer {
    let mut tables = rows().filter(|row| row.kind == XtObject::Table);
    let Some(row) = tables.find(|row| row.name == name) else {
        return Answer::Lack("there is no such table".to_owned());
    };
    guard(kernel, row.kind, name, ipv6).unwrap_or_else(|| match open(ipv6) {
        Ok(socket) => Answer::of(ask(&socket, row, ipv6), ABSENT),
        Err(why) => why,
    })
}

/// Answers every row with [`Answer::Unknown`].
#[must_use]
pub fn untried(why: &str) -> Vec<Finding> {
    let one = |ipv6| rows().filter_map(move |row| with(row, ipv6, Answer::Unknown(why.to_owned())));
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

fn ask(socket: &RawSocket, row: XtRow, ipv6: bool) -> Result<String, Error> {
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

/// The supported revisions, as text.
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
