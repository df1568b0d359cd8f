//! ipset: set types with their revisions.

use super::{Answer, Finding, RunningKernel, finding};
use crate::ipset::question::ask_type;
use crate::ipset::raw::{IPSET_ERR_FIND_TYPE, IPSET_PROTOCOL_MIN};
use crate::ipset::{SetFamily, SetType};
use weir_netlink::Result;
use weir_netlink::nfnetlink::Socket;

/// The name of the area in findings.
pub const AREA: &str = "ipset";

/// The modules that every request uses.
pub const BASE: &str = "nfnetlink ip_set";

const ABSENT: &[i32] = &[libc::ENOENT, libc::EINVAL, libc::EPROTONOSUPPORT];

/// Every type with each of its families (`NFPROTO_*`) and the name of that feature.
fn each() -> impl Iterator<Item = (&'static SetType, u8, String)> {
    SetType::all().flat_map(|kind| {
        let feature = move |family: &SetFamily| {
            let name = match kind.has_family() {
                true => format!("{kind} {family}"),
                false => kind.to_string(),
            };
            (kind, family.number(), name)
        };
        kind.families().iter().map(feature)
    })
}

fn with(kind: &SetType, feature: String, answer: Answer) -> Finding {
    let instead = "sets of nf_tables (--engine nft)";
    finding(AREA, feature, answer, &kind.module_name(), ("", instead))
}

/// Requests the revisions of every type (`IPSET_CMD_TYPE`) in the network namespace of the calling thread. No set is created.
#[must_use]
pub fn features(kernel: &RunningKernel) -> Vec<Finding> {
    let mut socket: Option<Result<Socket, Answer>> = None;
    let one = |(kind, family, feature): (&SetType, u8, String)| {
        let answer = guard(kernel, kind.name()).unwrap_or_else(|| {
            // Opened only after the guard: opening the socket could load a module.
            match socket.get_or_insert_with(open) {
                Ok(socket) => match ask(socket, kind.name(), family) {
                    // A private errno of ipset; errno(3) has no name for it.
                    Err(e) if e.errno() == Some(IPSET_ERR_FIND_TYPE) => {
                        Answer::Lack("the kernel knows no such type of set".to_owned())
                    }
                    asked => Answer::of(asked, ABSENT),
                },
                Err(why) => why.clone(),
            }
        });
        with(kind, feature, answer)
    };
    each().map(one).collect()
}

/// The answer if a request for this type could load a module; `None` if the request can be sent.
#[must_use]
pub fn guard(kernel: &RunningKernel, kind: &str) -> Option<Answer> {
    let needs = || SetType::from(kind).module_name();
    let base = kernel.guard(BASE);
    base.or_else(|| kernel.guard(&needs()))
}

/// Answers every type with [`Answer::Unknown`].
#[must_use]
pub fn untried(why: &str) -> Vec<Finding> {
    let unknown = || Answer::Unknown(why.to_owned());
    let all = each().map(|(kind, _, feature)| with(kind, feature, unknown()));
    all.collect()
}

fn open() -> Result<Socket, Answer> {
    Socket::open().map_err(|e| Answer::of(Err(e), ABSENT))
}

fn ask(socket: &mut Socket, kind: &str, family: u8) -> Result<String> {
    // Every kernel still supports the oldest protocol version.
    let range = ask_type(socket, IPSET_PROTOCOL_MIN, (kind, family), kind)?;
    Ok(match (range.start(), range.end()) {
        (oldest, newest) if oldest != newest => format!("revisions {oldest}-{newest}"),
        (_, newest) => format!("revision {newest}"),
    })
}
