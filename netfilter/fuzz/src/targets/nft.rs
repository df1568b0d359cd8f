//! A ruleset that nf_tables lists.

use super::choose;
use crate::Conversation;
use weir_netfilter::nft::compat::{Compat, legacy_rule};
use weir_netfilter::nft::expr::{Expr, ExprAttrs};
use weir_netfilter::nft::{NftEngine, Ruleset, TableFamily, plan};
use weir_netlink::nfnetlink::Socket;

/// Reads and prints a ruleset, and plans its removal.
pub(super) fn read(input: &[u8]) {
    let socket = Socket::with_transport(Conversation::replay(input));
    let Ok(found) = NftEngine::with_socket(socket).read() else {
        return;
    };
    drop(found.ruleset.to_string());
    for table in &found.ruleset.tables {
        for rule in table.chains.iter().flat_map(|c| &c.rules) {
            drop(legacy_rule(rule, table.family).map(|legacy| legacy.to_string()));
        }
    }
    let tables = found.ruleset.tables.iter();
    let owned: Vec<_> = tables.map(|t| (t.family, t.name.clone())).collect();
    let removed = plan(&Ruleset::default(), &found, &owned);
    for op in removed.ops {
        drop(op.to_string());
    }
    // A plan with the ruleset itself as the desired state must not panic.
    drop(plan(&found.ruleset, &found, &owned));
}

/// A match or target of xtables in a rule of nf_tables; the first byte selects match or target, and the family.
pub(super) fn compat(input: &[u8]) {
    let (which, data) = choose(input);
    let name = if which & 1 == 0 { "match" } else { "target" };
    let family = match which & 6 {
        0 => TableFamily::Ip,
        2 => TableFamily::Ip6,
        _ => TableFamily::Bridge,
    };
    let expr = Expr::from_attrs(ExprAttrs {
        name: Some(name.to_owned()),
        data: Some(data.to_vec()),
        ..ExprAttrs::default()
    });
    if let Some(read) = Compat::read(&expr, family) {
        drop(read.to_string());
    }
}
