//! Connections from the pod.

use crate::Counted;
use crate::connection::{Begun, Connection};
use crate::counted;
use crate::proof::{Answer, Check, Direction, Landed};
use crate::tracking::Tracking;
use crate::{DOCUMENTATION_V4, DOCUMENTATION_V6};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;
use weir_netfilter::conntrack::{Entry, Transport, Tuple};
use weir_netlink::Result;
use weir_netlink::route::AddressFamily;

/// Istio's DNS rules assign queries to separate conntrack zones, so that those of the proxy and the application do not collide.
const ZONES: [u16; 3] = [0, 1, 2];
/// Destination port of TCP connections.
const PORT: u16 = 80;
/// The port of name servers.
const DNS: u16 = 53;
/// Maximum time for an answer. Within the pod it arrives immediately.
const PATIENCE: Duration = Duration::from_millis(50);

/// A DNS query for the address of `weir.invalid`, a name that does not exist (RFC 6761).
const QUERY: &[u8] =
    b"\x77\x65\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x04weir\x07invalid\x00\x00\x01\x00\x01";

/// The source of information about where a connection landed.
pub(crate) enum Witness<'a> {
    /// Connection tracking, and the addresses of the pod.
    Tracking(&'a mut dyn Tracking, &'a [IpAddr]),
    Programs(Counted<'a>),
}

/// Tests a TCP connection of an application.
pub(crate) fn connection(
    witness: &mut Witness<'_>,
    family: AddressFamily,
    to: IpAddr,
    expected: u16,
) -> Check {
    let to = SocketAddr::new(to, PORT);
    let check = Check::begin(
        family,
        Direction::Outbound,
        Transport::Tcp,
        Some(to),
        expected,
    );
    run(witness, check, to, &[])
}

/// Returns unknown checks for connections that cannot be opened, because the namespace has no address of the family.
pub(crate) fn untried(
    family: AddressFamily,
    destinations: &[IpAddr],
    servers: &[IpAddr],
    (expected, expected_dns): (u16, u16),
) -> Vec<Check> {
    let one = |direction, transport, to: &IpAddr, port, expected| {
        let to = Some(SocketAddr::new(*to, port));
        let why = format!("the namespace has no {family} address but loopback and link-local ones");
        Check::begin(family, direction, transport, to, expected).answered(Answer::Unknown, why)
    };
    let tcp = |to| one(Direction::Outbound, Transport::Tcp, to, PORT, expected);
    let mut checks: Vec<Check> = destinations.iter().map(tcp).collect();
    for server in servers {
        for transport in [Transport::Udp, Transport::Tcp] {
            checks.push(one(Direction::Dns, transport, server, DNS, expected_dns));
        }
    }
    checks
}

/// Tests a DNS query of an application.
pub(crate) fn query(
    witness: &mut Witness<'_>,
    family: AddressFamily,
    transport: Transport,
    to: IpAddr,
    expected: u16,
) -> Check {
    let to = SocketAddr::new(to, DNS);
    let check = Check::begin(family, Direction::Dns, transport, Some(to), expected);
    run(witness, check, to, QUERY)
}

fn run(witness: &mut Witness<'_>, check: Check, to: SocketAddr, payload: &[u8]) -> Check {
    let before = match witness {
        Witness::Programs(counted) => counted(check.direction),
        Witness::Tracking(..) => None,
    };
    let connection = match Connection::begin(check.transport, to, payload) {
        Ok(connection) => connection,
        Err(e) => return check.answered(Answer::Unknown, not_begun(&e)),
    };
    let check = Check {
        from: Some(connection.from),
        ..check
    };
    let original = Tuple {
        transport: check.transport,
        source: connection.from,
        destination: to,
    };
    let begun = connection.answer(PATIENCE).ok();
    let (conntrack, local) = match witness {
        Witness::Programs(counted) => return counted::judge(check, begun, before, *counted),
        Witness::Tracking(conntrack, local) => (conntrack, local),
    };
    match find(*conntrack, &original) {
        Err(e) => check.answered(Answer::Unknown, e.to_string()),
        Ok(found) if is_elsewhere(&check, begun, found.as_ref()) => check.answered(
            Answer::Unknown,
            "no host has this address, and it was accepted without NAT: by a program of eBPF, or outside of the pod",
        ),
        // The kernel removes the entry of a refused connection.
        Ok(None) if begun == Some(Begun::Refused) && !conntrack.reports() => check.answered(
            Answer::Unknown,
            "it was refused, and the kernel does not report refused connections: try again while the proxy runs, or \
             set net.netfilter.nf_conntrack_events to 1",
        ),
        // NAT needs connection tracking: an untracked connection is not redirected.
        Ok(None) => check.answered(
            Answer::No,
            "connection tracking has no such connection: nothing redirects it, or a rule dropped it",
        ),
        Ok(Some(entry)) if entry.is_redirected() => {
            check.redirected(entry.lands_at(), local, begun == Some(Begun::Refused))
        }
        Ok(Some(entry)) => Check {
            landed: Some(Landed::At(entry.lands_at())),
            ..check
        }
        .answered(
            Answer::No,
            "not redirected: it leaves for the address that was asked for",
        ),
    }
}

fn find(conntrack: &mut dyn Tracking, original: &Tuple) -> Result<Option<Entry>> {
    for zone in ZONES {
        if let Some(entry) = conntrack.find(original, zone)? {
            return Ok(Some(entry));
        }
    }
    conntrack.begun(&|entry| entry.original == *original)
}

/// True if a documentation address accepted a connection that connection tracking did not redirect.
fn is_elsewhere(check: &Check, begun: Option<Begun>, found: Option<&Entry>) -> bool {
    let to = check.to.map(|to| to.ip());
    let documented: [IpAddr; 2] = [DOCUMENTATION_V4.into(), DOCUMENTATION_V6.into()];
    let is_accepted = check.transport == Transport::Tcp && begun == Some(Begun::Accepted);
    is_accepted
        && to.is_some_and(|to| documented.contains(&to))
        && !found.is_some_and(Entry::is_redirected)
}

fn not_begun(e: &io::Error) -> String {
    match e.kind() {
        io::ErrorKind::NetworkUnreachable | io::ErrorKind::HostUnreachable => {
            format!("the namespace has no route there: {e}")
        }
        io::ErrorKind::PermissionDenied => format!("a rule drops what is sent there: {e}"),
        _ => format!("the connection could not be begun: {e}"),
    }
}
