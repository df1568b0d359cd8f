//! Netlink messages, acknowledgements and attributes.

use super::choose;
use crate::Conversation;
use weir_netfilter::conntrack::ConntrackAttrs;
use weir_netfilter::ipset::wire::{CommandAttrs, CreateAttrs, EntryAttrs, IpAttrs, TestAttrs};
use weir_netfilter::nft::compat::{MatchAttrs, TargetAttrs};
use weir_netfilter::nft::wire::{
    ChainAttrs, CtExpectAttrs, CtHelperAttrs, CtTimeoutAttrs, ElemListAttrs, FlowtableAttrs,
    GenAttrs, ObjAttrs, RuleAttrs, SecmarkAttrs, SetAttrs, TableAttrs,
};
use weir_netfilter::nft::{expr, raw};
use weir_netlink::attr::{AttrSet, Attrs, Target, Writer};
use weir_netlink::nfnetlink::{Batch, NFNL_SUBSYS_NFTABLES, Requests, Socket, message_type};

/// The answers to a dump, to a get request, to a batch and to several requests.
pub(super) fn answers(input: &[u8]) {
    let (which, input) = choose(input);
    let mut socket = Socket::with_transport(Conversation::replay(input));
    let table = TableAttrs {
        name: Some("weir".to_owned()),
        ..TableAttrs::default()
    };
    let kind = |message| message_type(NFNL_SUBSYS_NFTABLES, message);
    match which % 4 {
        0 => drop(socket.dump(kind(raw::NFT_MSG_GETTABLE), 0, &table, "tables")),
        1 => drop(socket.get(
            kind(raw::NFT_MSG_GETGEN),
            0,
            &GenAttrs::default(),
            "generation",
        )),
        2 => {
            let mut batch = Batch::new(NFNL_SUBSYS_NFTABLES, Some(7));
            batch.push(raw::NFT_MSG_NEWTABLE, 0, 1, &table);
            batch.push(raw::NFT_MSG_DELTABLE, 0, 1, &table);
            // Printing the error resolves an offset to the name of an attribute.
            drop(
                socket
                    .commit(batch)
                    .map(|r| r.map_err(|all| format!("{all:?}"))),
            );
        }
        _ => {
            let mut requests = Requests::new(NFNL_SUBSYS_NFTABLES);
            requests.push(raw::NFT_MSG_NEWTABLE, 0, 1, &table);
            requests.push(raw::NFT_MSG_DELTABLE, 0, 1, &table);
            drop(socket.exchange(requests, "requests"));
        }
    }
}

/// The attributes of every declaration. Decoded attributes are encoded again and must not differ.
pub(super) fn attributes(input: &[u8]) {
    const SETS: [fn(&[u8]); 22] = [
        both::<TableAttrs>,
        both::<ChainAttrs>,
        both::<RuleAttrs>,
        both::<SetAttrs>,
        both::<ElemListAttrs>,
        both::<GenAttrs>,
        both::<CommandAttrs>,
        both::<CreateAttrs>,
        both::<EntryAttrs>,
        both::<IpAttrs>,
        both::<TestAttrs>,
        both::<ObjAttrs>,
        both::<expr::Objref>,
        both::<expr::Quota>,
        both::<FlowtableAttrs>,
        both::<CtHelperAttrs>,
        both::<CtTimeoutAttrs>,
        both::<CtExpectAttrs>,
        both::<SecmarkAttrs>,
        both::<MatchAttrs>,
        both::<TargetAttrs>,
        both::<ConntrackAttrs>,
    ];
    let (which, input) = choose(input);
    if let Some(set) = SETS.get(usize::from(which) % SETS.len()) {
        set(input);
    }
    drop(Attrs::new(input).collect::<Vec<_>>());
}

fn both<A: AttrSet + PartialEq + std::fmt::Debug>(input: &[u8]) {
    let at = usize::from(input.first().copied().unwrap_or(0));
    drop(A::path(input, Target::byte(at)));
    let Ok(read) = A::decode(input) else {
        return;
    };
    let mut w = Writer::new();
    read.encode(&mut w);
    let Ok(written) = w.finish() else {
        return;
    };
    let again = A::decode(&written);
    assert_eq!(
        again.as_ref(),
        Ok(&read),
        "written and read again, it is something else"
    );
}
