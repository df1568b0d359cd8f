//! Sets: the kernel's list, and the text of `ipset restore`.

use super::text;
use crate::Conversation;
use weir_netfilter::ipset::{IpsetEngine, plan, restore as parser};
use weir_netlink::nfnetlink::Socket;

/// Lists and prints sets, and plans their removal.
pub(super) fn list(input: &[u8]) {
    let socket = Socket::with_transport(Conversation::replay(input));
    let Ok(mut engine) = IpsetEngine::with_socket(socket) else {
        return;
    };
    if let Ok(found) = engine.list(None) {
        let sets: Vec<_> = found.into_iter().map(|one| one.set).collect();
        for set in &sets {
            drop(parser::check(&set.to_string(), Vec::new()));
        }
        let names: Vec<_> = sets.iter().map(|set| set.header.name.clone()).collect();
        drop(plan(&[], &sets, &names));
        drop(plan(&sets, &sets, &names));
    }
}

/// `ipset restore`
pub(super) fn restore(input: &[u8]) {
    let input = text(input);
    drop(parser::check(&input, Vec::new()));
}
