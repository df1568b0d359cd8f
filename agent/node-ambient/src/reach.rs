//! Foreign chains that packets traverse before they are routed.

use std::collections::BTreeMap;
use weir_netfilter::nft::raw::NFT_TABLE_F_DORMANT;
use weir_netfilter::nft::{self, Hook, TableFamily, priority};
use weir_netfilter::xtables;

/// The chains by name, each with the highest priority number among the hooks that lead to it.
pub(crate) type Reached<'t> = BTreeMap<&'t str, i32>;

pub(crate) fn of_nft(table: &nft::Table) -> Reached<'_> {
    let mut reached = Reached::new();
    // The kernel does not evaluate the chains of a dormant table.
    if table.flags & NFT_TABLE_F_DORMANT != 0 {
        return reached;
    }
    for chain in &table.chains {
        let hook = chain.base.as_ref().map(|base| (base.hook, base.priority));
        // Frames share the mark with their packets, and these hooks come first independent of the priority.
        let at = match (table.family, hook) {
            (TableFamily::Bridge, Some((Hook::Prerouting | Hook::Input, _)))
            | (_, Some((Hook::Ingress, _))) => i32::MIN,
            (_, Some((Hook::Prerouting, at))) => at,
            _ => continue,
        };
        follow(&mut reached, &chain.name, at, |name| {
            let chain = table.chain(name)?;
            let rules = chain.rules.iter().flat_map(nft::Rule::with_own);
            Some((
                chain.name.as_str(),
                rules.flat_map(|rule| table.led_to(rule)),
            ))
        });
    }
    reached
}

pub(crate) fn of_legacy(table: &xtables::Table) -> Reached<'_> {
    let mut reached = Reached::new();
    let at = match table.name.as_str() {
        "raw" => priority::RAW,
        "mangle" => priority::MANGLE,
        _ => priority::DSTNAT,
    };
    follow(&mut reached, "PREROUTING", at, |name| {
        let chain = table.chain(name)?;
        let targets = chain.rules.iter().filter_map(|rule| rule.target.as_ref());
        Some((
            chain.name.as_str(),
            targets.filter_map(xtables::Target::chain),
        ))
    });
    reached
}

/// Records `from` and all chains that it leads to. `chain` returns the name stored in the table and the chains that its rules lead to.
fn follow<'t, C: IntoIterator<Item = &'t str>>(
    reached: &mut Reached<'t>,
    from: &'t str,
    at: i32,
    chain: impl Fn(&str) -> Option<(&'t str, C)>,
) {
    let mut due = vec![from];
    while let Some(name) = due.pop() {
        if reached.get(name).is_some_and(|known| *known >= at) {
            continue;
        }
        if let Some((name, to)) = chain(name) {
            reached.insert(name, at);
            due.extend(to);
        }
    }
}
