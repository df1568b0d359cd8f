//! Connections redirected by eBPF programs. Only the counters of the programs show them.

use crate::Counted;
use crate::connection::Begun;
use crate::proof::{Answer, Check};
use std::time::{Duration, Instant};
use weir_netlink::Result;
use weir_netlink::route::{AddressFamily, Neighbour, Routing};

/// Maximum time for the kernel to resolve the hardware address of the next hop before it sends the first packet.
const PATIENCE: Duration = Duration::from_millis(500);
/// Interval between two reads of a counter.
const PAUSE: Duration = Duration::from_millis(5);

/// `NUD_INCOMPLETE`, and `NUD_FAILED` (`linux/neighbour.h`).
const UNRESOLVED: u16 = 0x01 | 0x20;

/// Why the answer is unknown without the counters.
pub(crate) const UNREAD: &str = "the counters of the programs cannot be read";

/// A connection that a program captured.
pub(crate) fn captured(check: Check, is_accepted: bool) -> Check {
    let reason = match is_accepted {
        true => "captured by a program",
        false => "captured by a program; nothing listens there: the proxy is not ready",
    };
    check.answered(Answer::Yes, reason)
}

/// Judges a connection from the pod by the counter; `before` is its value before the connection was opened.
pub(crate) fn judge(
    check: Check,
    begun: Option<Begun>,
    before: Option<u64>,
    counted: Counted<'_>,
) -> Check {
    let deadline = Instant::now() + PATIENCE;
    let is_captured = loop {
        let Some((now, before)) = counted(check.direction).zip(before) else {
            return check.answered(Answer::Unknown, UNREAD);
        };
        if now > before || Instant::now() >= deadline {
            break now > before;
        }
        std::thread::sleep(PAUSE);
    };
    if is_captured {
        return captured(check, begun == Some(Begun::Accepted));
    }
    match is_unresolved(check.family) {
        Ok(true) => check.answered(
            Answer::Unknown,
            "the next hop does not tell its hardware address, so that nothing left the pod",
        ),
        Ok(false) => check.answered(
            Answer::No,
            "no program captured it: it leaves for the address that was asked for",
        ),
        Err(e) => check.answered(Answer::Unknown, e.to_string()),
    }
}

/// True if neighbour resolution is incomplete or has failed. The programs run only after it.
fn is_unresolved(family: AddressFamily) -> Result<bool> {
    let mut all = Routing::open()?.neighbours()?.into_iter();
    let is_it = |one: Neighbour| AddressFamily::of_address(one.ip) == family;
    Ok(all.any(|one| one.state & UNRESOLVED != 0 && is_it(one)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Direction;
    use weir_netfilter::conntrack::Transport;

    /// Nothing may have left the pod.
    #[test]
    fn without_the_neighbours_it_is_unknown_whether_a_packet_left() {
        let check = || {
            let (family, to) = (AddressFamily::V4, None);
            let check = Check::begin(family, Direction::Outbound, Transport::Tcp, to, 15001);
            judge(check, None, Some(7), &|_| Some(7))
        };
        let pod = weir_testing::namespace_or_skip!();
        assert_eq!(pod.run(check).unwrap().answer, Answer::No);
        let unread = pod.run(|| {
            weir_testing::descriptors::leave(0);
            check()
        });
        let unread = unread.unwrap();
        assert_eq!(unread.answer, Answer::Unknown, "{unread}");
        assert!(unread.reason.contains("EMFILE"), "{unread}");
    }
}
