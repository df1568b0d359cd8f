//! Foreign tables, which must stay as they are, and the owned one.

use crate::common::{load, owned_of, read};
use weir_netfilter::nft::wire::{ChainAttrs, ElemListAttrs, RuleAttrs, SetAttrs, TableAttrs};
use weir_netfilter::nft::{
    CmpOp, L4Proto, NftEngine, Rule, Ruleset, Table, TableFamily, TableId, raw,
};
use weir_netlink::Netns;
use weir_netlink::attr::AttrSet;
use weir_netlink::nfnetlink::{NFNL_SUBSYS_NFTABLES, Socket, message_type};

/// Foreign tables with counters, handles that are not in order, sets and maps.
pub(crate) const FOREIGN: &str = "\
table inet theirs {
    set s { type ipv4_addr; flags interval; elements = { 10.0.0.0/8, 192.168.0.1 }; comment \"theirs\"; }
    map m { type inet_service : verdict; elements = { 80 : accept, 443 : jump d }; }
    chain d { counter packets 7 bytes 700; }
    chain c { type filter hook input priority 0; policy accept;
        counter packets 5 bytes 500 comment \"first\"
        tcp dport { 1-5, 80 } accept
        ip saddr @s counter packets 1 bytes 2
        tcp dport vmap @m
        ip dscp set cs1
    }
}
table ip theirs {
    chain c { counter packets 9 bytes 900; }
}
table inet ours-too {
    chain c { counter; }
}
";

pub(crate) fn table(rules: &[Rule]) -> Ruleset {
    use weir_netfilter::nft::{Chain, ChainType, Hook, priority};
    let mut chain = Chain::base("out", ChainType::Nat, Hook::Output, priority::DSTNAT);
    chain.rules = rules.to_vec();
    let mut table = Table::new(TableFamily::Inet, "weir");
    table.chains.push(chain);
    Ruleset {
        tables: vec![table],
    }
}

pub(crate) fn redirect(port: u16, to: u16) -> Rule {
    Rule::builder()
        .dports(L4Proto::Tcp, CmpOp::Eq, &[port, 1])
        .counter()
        .redirect(to)
        .build()
}

pub(crate) fn old() -> Ruleset {
    table(&[
        redirect(80, 15001),
        redirect(81, 15001),
        redirect(82, 15001),
    ])
}

pub(crate) fn new() -> Ruleset {
    table(&[
        redirect(80, 15001),
        redirect(90, 15006),
        redirect(82, 15001),
        redirect(99, 15001),
    ])
}

pub(crate) fn owned() -> Vec<TableId> {
    owned_of(&new())
}

/// Everything that the kernel lists of other tables, as bytes.
pub(crate) fn foreign_bytes() -> Vec<(u16, Vec<u8>)> {
    let mut socket = Socket::open().unwrap();
    let mut out = Vec::new();
    let not_ours = |table: Option<&str>| table != Some("weir");
    let mut dump = |get: u16, ask: &ElemListAttrs, family: u8| {
        let kind = message_type(NFNL_SUBSYS_NFTABLES, get);
        socket.dump(kind, family, ask, "everything").unwrap()
    };
    let nothing = ElemListAttrs::default();
    for reply in dump(raw::NFT_MSG_GETTABLE, &nothing, 0) {
        let attrs: TableAttrs = reply.decode().unwrap();
        if not_ours(attrs.name.as_deref()) {
            out.push((raw::NFT_MSG_GETTABLE, reply.attrs));
        }
    }
    for reply in dump(raw::NFT_MSG_GETCHAIN, &nothing, 0) {
        if not_ours(ChainAttrs::decode(&reply.attrs).unwrap().table.as_deref()) {
            out.push((raw::NFT_MSG_GETCHAIN, reply.attrs));
        }
    }
    for reply in dump(raw::NFT_MSG_GETRULE, &nothing, 0) {
        if not_ours(RuleAttrs::decode(&reply.attrs).unwrap().table.as_deref()) {
            out.push((raw::NFT_MSG_GETRULE, reply.attrs));
        }
    }
    for reply in dump(raw::NFT_MSG_GETSET, &nothing, 0) {
        let attrs = SetAttrs::decode(&reply.attrs).unwrap();
        if !not_ours(attrs.table.as_deref()) {
            continue;
        }
        let ask = ElemListAttrs {
            table: attrs.table,
            set: attrs.name,
            ..ElemListAttrs::default()
        };
        for elements in dump(raw::NFT_MSG_GETSETELEM, &ask, reply.header.family) {
            out.push((raw::NFT_MSG_GETSETELEM, elements.attrs));
        }
        out.push((raw::NFT_MSG_GETSET, reply.attrs));
    }
    assert!(out.len() > 15, "only {} objects", out.len());
    out
}

/// The rules of the owned table, without counters.
pub(crate) fn held(ns: &Netns) -> Vec<Rule> {
    let snapshot = read(ns).ruleset;
    let table = snapshot.table(TableFamily::Inet, "weir").unwrap();
    table.chains[0]
        .rules
        .iter()
        .map(Rule::without_counters)
        .collect()
}

pub(crate) fn rules(r: &Ruleset) -> Vec<Rule> {
    r.tables[0].chains[0].rules.clone()
}

/// A namespace with the foreign tables and the old owned one.
pub(crate) fn prepared() -> Netns {
    let ns = Netns::create().unwrap();
    load(&ns, FOREIGN);
    ns.run(|| NftEngine::open().unwrap().apply(&old(), &owned()).unwrap())
        .unwrap();
    ns
}
