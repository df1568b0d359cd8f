//! A ruleset as nf_tables lists it.

use crate::Conversation;
use weir_netfilter::nft::{NftEngine, Ruleset, plan};
use weir_netlink::nfnetlink::Socket;

/// Read, printed, and planned away.
pub(super) fn read(input: &[u8]) {
    let socket = Socket::with_transport(Conversation::replay(input));
    let Ok(found) = NftEngine::with_socket(socket).read() else {
        return;
    };
    drop(found.ruleset.to_string());
    let tables = found.ruleset.tables.iter();
    let owned: Vec<_> = tables.map(|t| (t.family, t.name.clone())).collect();
    let removed = plan(&Ruleset::default(), &found, &owned);
    for op in removed.ops {
        drop(op.to_string());
    }
    // What was read is desired: nothing to do, or at least nothing to stumble over.
    drop(plan(&found.ruleset, &found, &owned));
}
