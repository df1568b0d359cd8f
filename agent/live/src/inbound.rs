//! Connections to the pod.

use crate::Counted;
use crate::connection::{Begun, Connection, reserve};
use crate::counted::{UNREAD, captured};
use crate::proof::{Answer, Check, Direction, Landed};
use crate::tracking::Tracking;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;
use weir_netfilter::conntrack::{Entry, Transport};
use weir_netlink::Netns;
use weir_netlink::route::AddressFamily;

/// Maximum time for an answer. A lost SYN is retransmitted after 1 s.
const PATIENCE: Duration = Duration::from_millis(1500);

/// One connection to the pod.
#[derive(Clone, Copy)]
pub(crate) struct Inbound<'a> {
    pub(crate) family: AddressFamily,
    /// The pod's address.
    pub(crate) pod: IpAddr,
    /// All addresses of the pod.
    pub(crate) local: &'a [IpAddr],
    pub(crate) expected: u16,
    /// Connection tracking recorded an earlier connection in this namespace, so it records one that arrives.
    pub(crate) tracks: bool,
    /// The counters of the programs that redirect, and whether these may let connections of the caller pass.
    pub(crate) programs: Option<(Counted<'a>, bool)>,
}

/// Returns how many resets the TCP of this network namespace has sent (`OutRsts`); those of netfilter do not count.
fn resets() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/thread-self/net/snmp").ok()?;
    let mut lines = text.lines().filter_map(|line| line.strip_prefix("Tcp:"));
    let names = lines.next()?.split_whitespace();
    let mut fields = names.zip(lines.next()?.split_whitespace());
    let (_, count) = fields.find(|(name, _)| *name == "OutRsts")?;
    count.parse().ok()
}

impl Inbound<'_> {
    /// Opens the connection from the network namespace `caller` and judges where it landed.
    pub(crate) fn check(self, conntrack: &mut dyn Tracking, caller: &Netns) -> Check {
        let begin = |to| {
            Check::begin(
                self.family,
                Direction::Inbound,
                Transport::Tcp,
                to,
                self.expected,
            )
        };
        let (held, port) = match reserve(self.pod) {
            Ok(reserved) => reserved,
            Err(e) => {
                let why = format!("no port of the pod could be reserved: {e}");
                return begin(None).answered(Answer::Unknown, why);
            }
        };
        let to = SocketAddr::new(self.pod, port);
        let counted = || {
            self.programs
                .and_then(|(counted, _)| counted(Direction::Inbound))
        };
        let (before, resets_before) = (counted(), resets());
        let made = caller.run(|| {
            let connection = Connection::begin(Transport::Tcp, to, &[])?;
            let begun = connection.answer(PATIENCE)?;
            // Keep the connection open until its entry was read.
            Ok::<_, io::Error>((connection, begun))
        });
        let (connection, begun) = match made {
            Ok(Ok(made)) => made,
            Ok(Err(e)) => {
                let why = format!("the caller's connection failed on its way: {e}");
                return begin(Some(to)).answered(Answer::Unknown, why);
            }
            Err(e) => return begin(Some(to)).answered(Answer::Unknown, e.to_string()),
        };
        let check = Check {
            from: Some(connection.from),
            ..begin(Some(to))
        };
        // Identify the entry by the reserved port: NAT may have changed the source.
        let is_it = |entry: &Entry| {
            entry.original.destination == to && entry.original.transport == Transport::Tcp
        };
        let found = conntrack.begun(&is_it);
        let reports = conntrack.reports();
        let count = before.zip(counted());
        let has_reset = resets_before.zip(resets()).is_some_and(|(b, now)| now > b);
        drop(held);
        match found {
            // Connection tracking may miss connections that programs redirect, and the kernel may lack it.
            found if self.programs.is_some() => {
                let entry = found.ok().flatten();
                self.judge(check, entry, (begun, has_reset, count), connection.from)
            }
            Ok(None) if begun != Begun::Accepted && !reports => check.answered(
                Answer::Unknown,
                "the kernel reports no connections: set net.netfilter.nf_conntrack_events to 1",
            ),
            Ok(entry) => self.judge(check, entry, (begun, has_reset, None), connection.from),
            Err(e) => check.answered(Answer::Unknown, e.to_string()),
        }
    }

    /// `has_reset`: the pod itself has refused a connection. `count` has the counter of the programs before and after.
    fn judge(
        self,
        check: Check,
        entry: Option<Entry>,
        (begun, has_reset, count): (Begun, bool, Option<(u64, u64)>),
        from: SocketAddr,
    ) -> Check {
        let landed = |landed| Check {
            landed: Some(landed),
            ..check.clone()
        };
        let redirected = entry.filter(Entry::is_redirected).map(|e| e.lands_at());
        if let Some(at) = redirected {
            return check.redirected(at, self.local, begun == Begun::Refused);
        }
        // A program that captures it without a listener drops it.
        if begun != Begun::Refused && count.is_some_and(|(before, now)| now > before) {
            return captured(check, begun == Begun::Accepted);
        }
        // The socket bound to this port does not listen, so only a transparent listener can have accepted.
        if begun == Begun::Accepted {
            let reason = "accepted by a transparent listener";
            return landed(Landed::Transparent).answered(Answer::Yes, reason);
        }
        let of_node = |check: Check, source: IpAddr| {
            let reason = format!(
                "the node sent it from {source}, as probes, which are let through: give a caller in another pod"
            );
            check.answered(Answer::Unknown, reason)
        };
        match entry {
            Some(entry) if entry.original.source.ip() != from.ip() => {
                of_node(check, entry.original.source.ip())
            }
            _ if begun == Begun::Refused && self.programs.is_some_and(|(_, passes)| passes) => {
                of_node(check, from.ip())
            }
            Some(entry) if begun == Begun::Refused => landed(Landed::At(entry.lands_at()))
                .answered(Answer::No, "not redirected: the pod itself refused it"),
            None if begun == Begun::Refused && self.programs.is_some() && has_reset => check
                .answered(
                    Answer::No,
                    "not redirected: it was refused, and no program captured it",
                ),
            None if begun == Begun::Refused && self.programs.is_some() => check.answered(
                Answer::Unknown,
                "it was refused, but not by the pod: a rule rejected it on its way",
            ),
            None if begun == Begun::Refused && !self.tracks => check.answered(
                Answer::No,
                "not redirected: it was refused, and the pod tracks no connections, which redirection needs",
            ),
            _ if self.programs.is_some() && count.is_none() => {
                check.answered(Answer::Unknown, UNREAD)
            }
            Some(_) => check.answered(Answer::Unknown, "it arrived in the pod and was dropped"),
            None => check.answered(Answer::Unknown, "it did not arrive in the pod"),
        }
    }
}
