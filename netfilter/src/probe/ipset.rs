//! ipset: set types with their revisions.

use super::{Answer, Finding, Row, RunningKernel, answer, unanswered};
use crate::ipset::question::ask_type;
use crate::ipset::raw::{
    IPSET_ERR_FIND_TYPE, IPSET_PROTOCOL_MIN, NFPROTO_IPV4, NFPROTO_IPV6, NFPROTO_UNSPEC,
};
use weir_netlink::Result;
use weir_netlink::nfnetlink::Socket;

/// The name of the area in findings.
pub const AREA: &str = "ipset";

/// The modules that every request uses.
pub const BASE: &str = "nfnetlink ip_set";

const ABSENT: &[i32] = &[libc::ENOENT, libc::EINVAL, libc::EPROTONOSUPPORT];

/// A type and a family.
#[derive(Clone, Copy, Debug)]
pub struct SetType {
    /// `hash:ip`
    pub name: &'static str,
    /// `NFPROTO_*`
    pub family: u8,
}

const fn v4(feature: &'static str, name: &'static str, needs: &'static str) -> Row<SetType> {
    row(feature, name, NFPROTO_IPV4, needs)
}

const fn v6(feature: &'static str, name: &'static str, needs: &'static str) -> Row<SetType> {
    row(feature, name, NFPROTO_IPV6, needs)
}

const fn any(feature: &'static str, name: &'static str, needs: &'static str) -> Row<SetType> {
    row(feature, name, NFPROTO_UNSPEC, needs)
}

const fn row(
    feature: &'static str,
    name: &'static str,
    family: u8,
    needs: &'static str,
) -> Row<SetType> {
    let probe = SetType { name, family };
    Row {
        feature,
        probe,
        needs,
        since: "",
        instead: "sets of nf_tables (--engine nft)",
    }
}

/// Every type.
#[rustfmt::skip]
pub const ROWS: &[Row<SetType>] = &[
    v4("hash:ip inet", "hash:ip", "ip_set_hash_ip"),
    v6("hash:ip inet6", "hash:ip", "ip_set_hash_ip"),
    v4("hash:net inet", "hash:net", "ip_set_hash_net"),
    v6("hash:net inet6", "hash:net", "ip_set_hash_net"),
    v4("hash:ip,port inet", "hash:ip,port", "ip_set_hash_ipport"),
    v6("hash:ip,port inet6", "hash:ip,port", "ip_set_hash_ipport"),
    v4("hash:net,port inet", "hash:net,port", "ip_set_hash_netport"),
    v6("hash:net,port inet6", "hash:net,port", "ip_set_hash_netport"),
    v4("hash:ip,port,ip inet", "hash:ip,port,ip", "ip_set_hash_ipportip"),
    v6("hash:ip,port,ip inet6", "hash:ip,port,ip", "ip_set_hash_ipportip"),
    v4("hash:ip,port,net inet", "hash:ip,port,net", "ip_set_hash_ipportnet"),
    v6("hash:ip,port,net inet6", "hash:ip,port,net", "ip_set_hash_ipportnet"),
    v4("hash:ip,mark inet", "hash:ip,mark", "ip_set_hash_ipmark"),
    v6("hash:ip,mark inet6", "hash:ip,mark", "ip_set_hash_ipmark"),
    v4("hash:net,net inet", "hash:net,net", "ip_set_hash_netnet"),
    v6("hash:net,net inet6", "hash:net,net", "ip_set_hash_netnet"),
    v4("hash:net,port,net inet", "hash:net,port,net", "ip_set_hash_netportnet"),
    v6("hash:net,port,net inet6", "hash:net,port,net", "ip_set_hash_netportnet"),
    v4("hash:net,iface inet", "hash:net,iface", "ip_set_hash_netiface"),
    v6("hash:net,iface inet6", "hash:net,iface", "ip_set_hash_netiface"),
    v4("hash:ip,mac inet", "hash:ip,mac", "ip_set_hash_ipmac"),
    v6("hash:ip,mac inet6", "hash:ip,mac", "ip_set_hash_ipmac"),
    any("hash:mac", "hash:mac", "ip_set_hash_mac"),
    v4("bitmap:ip", "bitmap:ip", "ip_set_bitmap_ip"),
    v4("bitmap:ip,mac", "bitmap:ip,mac", "ip_set_bitmap_ipmac"),
    any("bitmap:port", "bitmap:port", "ip_set_bitmap_port"),
    any("list:set", "list:set", "ip_set_list_set"),
];

/// Tries every row in the network namespace of the calling thread.
#[must_use]
pub fn features(kernel: &RunningKernel) -> Vec<Finding> {
    let mut socket: Option<Result<Socket, Answer>> = None;
    let mut one = |row: &Row<SetType>| {
        answer(AREA, BASE, row, kernel, |probe| {
            // Opened late: the socket alone could load a module.
            match socket.get_or_insert_with(open) {
                Ok(socket) => match ask(socket, probe) {
                    // A private errno of ipset; errno(3) has no name for it.
                    Err(e) if e.errno() == Some(IPSET_ERR_FIND_TYPE) => {
                        Answer::Lack("the kernel knows no such type of set".to_owned())
                    }
                    asked => Answer::of(asked, ABSENT),
                },
                Err(why) => why.clone(),
            }
        })
    };
    ROWS.iter().map(&mut one).collect()
}

/// The answer instead of a request for a type that could load a module; `None` when it can be sent. A type without a
/// row is assumed to have the usual module name.
#[must_use]
pub fn guard(kernel: &RunningKernel, kind: &str) -> Option<Answer> {
    let row = ROWS.iter().find(|r| r.probe.name == kind);
    let usual = || format!("ip_set_{}", kind.replace(':', "_").replace(',', ""));
    let needs = row.map_or_else(usual, |r| r.needs.to_owned());
    kernel.guard(BASE).or_else(|| kernel.guard(&needs))
}

/// Every row with the answer "unknown".
#[must_use]
pub fn untried(why: &str) -> Vec<Finding> {
    unanswered(AREA, BASE, ROWS, why)
}

fn open() -> Result<Socket, Answer> {
    Socket::open().map_err(|e| Answer::of(Err(e), ABSENT))
}

fn ask(socket: &mut Socket, probe: &SetType) -> Result<String> {
    // Every kernel still speaks the oldest version.
    let about = (probe.name, probe.family);
    let range = ask_type(socket, IPSET_PROTOCOL_MIN, about, probe.name)?;
    Ok(match (range.start(), range.end()) {
        (oldest, newest) if oldest != newest => format!("revisions {oldest}-{newest}"),
        (_, newest) => format!("revision {newest}"),
    })
}
