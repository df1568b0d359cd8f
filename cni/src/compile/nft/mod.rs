//! Rules for nf_tables: one set of `inet` tables for both families.
//!
//! A rule without an address matches IPv6 packets too, whether IPv6 is programmed or not. Each rule has a
//! counter immediately before its verdict or statement.

mod mangle;
mod nat;
mod raw;

use super::family::{Family, Owner};
use crate::config::Intent;
use weir_netfilter::nft::{
    self, Chain, ChainType, CmpOp, Hook, L4Proto, Rule, RuleBuilder, Ruleset, Statement, Table,
    Verdict,
};

const PREROUTING: &str = "prerouting";
const OUTPUT: &str = "output";
const INBOUND: &str = "istio-inbound";
const REDIRECT: &str = "istio-redirect";
const IN_REDIRECT: &str = "istio-in-redirect";
const ISTIO_OUTPUT: &str = "istio-output";
const OUTPUT_DNS: &str = "istio-output-dns";
const DIVERT: &str = "istio-divert";
const TPROXY: &str = "istio-tproxy";
const DROP: &str = "istio-drop";

pub(super) fn ruleset(intent: &Intent) -> Ruleset {
    let families = Family::all(intent);
    let tables = [
        nat::chains(intent, &families).into_table("istio-proxy-nat"),
        mangle::chains(intent, &families).into_table("istio-proxy-mangle"),
        raw::chains(intent, &families).into_table("istio-proxy-raw"),
    ];
    Ruleset {
        tables: tables.into_iter().flatten().collect(),
    }
}

/// The chains of one table while they are built.
struct Chains {
    chains: Vec<Chain>,
}

impl Chains {
    /// Declares every chain that the table may have, in the order of the listing: the base chains for incoming and for
    /// outgoing packets, of these types, and regular ones.
    fn new([incoming, outgoing]: [ChainType; 2], priority: i32, regular: &[&str]) -> Self {
        let mut chains = vec![
            Chain::base(PREROUTING, incoming, Hook::Prerouting, priority),
            Chain::base(OUTPUT, outgoing, Hook::Output, priority),
        ];
        chains.extend(regular.iter().map(|name| Chain::regular(name)));
        Self { chains }
    }

    /// Appends a rule.
    fn add(&mut self, chain: &str, rule: Rule) {
        match self.chains.iter_mut().find(|c| c.name == chain) {
            Some(chain) => chain.rules.push(rule),
            None => self.chains.push(Chain {
                rules: vec![rule],
                ..Chain::regular(chain)
            }),
        }
    }

    /// The table with the chains that hold a rule or are jumped to; `None` if there are none.
    fn into_table(mut self, name: &str) -> Option<Table> {
        let statements = self
            .chains
            .iter()
            .flat_map(|c| &c.rules)
            .flat_map(|r| &r.statements);
        let targets: Vec<String> = statements.filter_map(jump_target).collect();
        self.chains
            .retain(|c| !c.rules.is_empty() || targets.contains(&c.name));
        (!self.chains.is_empty()).then(|| Table {
            chains: self.chains,
            ..Table::new(nft::TableFamily::Inet, name)
        })
    }
}

fn jump_target(statement: &Statement) -> Option<String> {
    match statement {
        Statement::Verdict(Verdict::Jump(chain) | Verdict::Goto(chain)) => Some(chain.clone()),
        _ => None,
    }
}

fn tcp() -> RuleBuilder {
    Rule::builder().l4proto(L4Proto::Tcp)
}

/// The usual ends of a rule.
trait End {
    /// `counter return`
    fn count_return(self) -> Rule;
    /// `counter jump CHAIN`
    fn count_jump(self, chain: &str) -> Rule;
}

impl End for RuleBuilder {
    fn count_return(self) -> Rule {
        self.counter().verdict(Verdict::Return)
    }

    fn count_jump(self, chain: &str) -> Rule {
        self.counter().jump(chain)
    }
}

impl Owner<'_> {
    /// `meta skuid U` or `meta skgid G`
    fn matching(self, rule: RuleBuilder, op: CmpOp) -> RuleBuilder {
        match self {
            Self::User(ids) => rule.skuid(op, ids.0.clone()),
            Self::Group(ids) => rule.skgid(op, ids.0.clone()),
        }
    }
}
