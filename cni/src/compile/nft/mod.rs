//! Rules for nf_tables: one set of `inet` tables for both families.
//!
//! A rule without an address matches IPv6 packets too: see [`Semantics`]. Each rule has a counter immediately before its
//! verdict or statement.

mod mangle;
mod nat;
mod raw;

use super::family::{Family, Owner};
use crate::config::Intent;
use weir_netfilter::nft::{
    self, Chain, ChainType, CmpOp, Data, Hook, L4Proto, Match, MetaKey, Operand, Rule, RuleBuilder,
    Ruleset, Selector, Statement, Table, Verdict,
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
/// Only used with [`Semantics::Xtables`].
const NOT_PROXY: &str = "istio-not-proxy";
const OTHER_GROUPS: &str = "istio-other-groups";

/// The effect of rules for nf_tables. Upstream's rules for the two engines treat a few packets differently:
///
/// | | `Nft` | `Xtables` |
/// |---|---|---|
/// | IPv6, if not enabled | rules without an address apply to it | returns first in every base chain |
/// | invalid packets that are dropped | TCP | every protocol |
/// | a prefix of interface names | `eth*` | `eth+` |
/// | inbound packets without a transparent socket | reach the application | are dropped |
/// | packets without a socket | match neither an owner nor its negation | match the negation of every owner |
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Semantics {
    /// The effect of upstream's rules for nf_tables.
    Nft,
    /// The effect of upstream's rules for legacy tables.
    Xtables,
}

impl Semantics {
    /// True if no rule applies to IPv6.
    pub(super) fn leaves_ipv6_alone(self, intent: &Intent) -> bool {
        self == Self::Xtables && !intent.enable_ipv6
    }

    /// `iifname NAME` or `oifname NAME`, or no match for the wildcard that covers every interface.
    fn interface(self, rule: RuleBuilder, key: MetaKey, name: &str) -> RuleBuilder {
        let wildcard = match self {
            Self::Nft => '*',
            Self::Xtables => '+',
        };
        let operand = match name.strip_suffix(wildcard) {
            Some("") => return rule,
            Some(prefix) => Operand::IfnamePrefix(prefix.to_owned()),
            None => Operand::Value(Data::ifname(name)),
        };
        rule.push(Statement::Match(Match {
            selector: Selector::Meta(key),
            mask: None,
            op: CmpOp::Eq,
            operand,
        }))
    }

    fn iifname(self, name: &str) -> RuleBuilder {
        self.interface(Rule::builder(), MetaKey::Iifname, name)
    }

    fn oifname(self, name: &str) -> RuleBuilder {
        self.interface(Rule::builder(), MetaKey::Oifname, name)
    }
}

pub(super) fn ruleset(intent: &Intent, semantics: Semantics) -> Ruleset {
    let families = Family::all(intent);
    let tables = [
        ("istio-proxy-nat", nat::chains(intent, semantics, &families)),
        (
            "istio-proxy-mangle",
            mangle::chains(intent, semantics, &families),
        ),
        ("istio-proxy-raw", raw::chains(intent, &families)),
    ];
    let table = |(name, mut chains): (&str, Chains)| {
        if semantics.leaves_ipv6_alone(intent) {
            chains.leave_ipv6_alone();
        }
        chains.into_table(name)
    };
    Ruleset {
        tables: tables.into_iter().filter_map(table).collect(),
    }
}

/// The chains of one table while they are built.
struct Chains {
    chains: Vec<Chain>,
}

impl Chains {
    /// Declares every chain that the table may have, in the order of the listing: the base chains for incoming and
    /// outgoing packets, with these types, and the regular chains.
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

    /// Inserts `meta nfproto ipv6 counter return` before the rules of each base chain.
    fn leave_ipv6_alone(&mut self) {
        let is_used = |chain: &&mut Chain| chain.base.is_some() && !chain.rules.is_empty();
        for chain in self.chains.iter_mut().filter(is_used) {
            let ipv6 = Statement::Match(Match {
                selector: Selector::Meta(MetaKey::Nfproto),
                mask: None,
                op: CmpOp::Eq,
                operand: Operand::Value(Data::u8(nft::raw::NFPROTO_IPV6)),
            });
            let rule = Rule::builder().push(ipv6).count_return();
            chain.rules.insert(0, rule);
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
