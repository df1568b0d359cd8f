//! Connections that `nf_conntrack_netlink` lists.

use super::choose;
use crate::Conversation;
use weir_netfilter::conntrack::{Conntrack, Entry, Transport, Tuple};
use weir_netlink::nfnetlink::Socket;

/// The first byte selects a list of all connections of a family, or a request for one connection.
pub(super) fn list(input: &[u8]) {
    let (which, input) = choose(input);
    let mut table = Conntrack::with_socket(Socket::with_transport(Conversation::replay(input)));
    let look = |entry: Entry| {
        drop(entry.original.to_string());
        let _ = (entry.lands_at(), entry.is_redirected());
    };
    if which % 3 < 2 {
        drop(table.each(which % 3 == 1, |entry| {
            look(entry);
            Ok(())
        }));
        return;
    }
    let asked = Tuple {
        transport: Transport::Tcp,
        source: ([10, 0, 0, 1], 40000).into(),
        destination: ([192, 0, 2, 1], 443).into(),
    };
    if let Ok(Some(entry)) = table.find(&asked, 0) {
        look(entry);
    }
}
