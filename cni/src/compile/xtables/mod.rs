//! Rules for the legacy tables, once per family. IPv6 tables are not changed if IPv6 is not enabled.

mod mangle;
mod nat;
mod raw;

use super::family::{Family, Owner};
use crate::config::{Intent, PortRange};
use weir_netfilter::xtables::{self, Chain, Not, Rule, Ruleset, Table};

const PREROUTING: &str = "PREROUTING";
const OUTPUT: &str = "OUTPUT";
const INBOUND: &str = "ISTIO_INBOUND";
const REDIRECT: &str = "ISTIO_REDIRECT";
const IN_REDIRECT: &str = "ISTIO_IN_REDIRECT";
const ISTIO_OUTPUT: &str = "ISTIO_OUTPUT";
const OUTPUT_DNS: &str = "ISTIO_OUTPUT_DNS";
const DIVERT: &str = "ISTIO_DIVERT";
const TPROXY: &str = "ISTIO_TPROXY";
const DROP: &str = "ISTIO_DROP";

const IS: Not = Not(false);
const IS_NOT: Not = Not(true);

/// Compiles the tables in the order in which they are written: IPv4 before IPv6, each in alphabetical order.
pub(super) fn ruleset(intent: &Intent) -> Ruleset {
    let mut tables = Vec::new();
    for family in Family::all(intent) {
        for (name, rules) in [
            ("mangle", mangle::chains(intent, &family)),
            ("nat", nat::chains(intent, &family)),
            ("raw", raw::chains(intent, &family)),
        ] {
            tables.extend(rules.into_table(&family, name));
        }
    }
    Ruleset { tables }
}

/// The chains of one table while they are built.
#[derive(Default)]
struct Chains {
    chains: Vec<Chain>,
}

impl Chains {
    /// Appends a rule; the first rule creates the chain.
    fn add(&mut self, chain: &str, rule: Rule) {
        let position = self.position(chain);
        if let Some(chain) = self.chains.get_mut(position) {
            chain.rules.push(rule);
        }
    }

    /// Index of the chain, which is created if absent. Built-in chains are first, then user chains in
    /// alphabetical order, as `iptables-save` lists them.
    fn position(&mut self, name: &str) -> usize {
        if let Some(position) = self.chains.iter().position(|c| c.name == name) {
            return position;
        }
        let chain = match name {
            PREROUTING | OUTPUT => Chain::builtin(name),
            _ => Chain::user(name),
        };
        let position = self.chains.partition_point(|c| rank(&c.name) < rank(name));
        self.chains.insert(position, chain);
        position
    }

    /// The table; `None` when it is empty. A chain that is jumped to exists even without rules.
    fn into_table(mut self, family: &Family, name: &str) -> Option<Table> {
        let rules = self.chains.iter().flat_map(|c| &c.rules);
        let targets = rules.filter_map(|r| r.target.as_ref()?.chain().map(str::to_owned));
        for target in targets.collect::<Vec<_>>() {
            self.position(&target);
        }
        let family = if family.is_v6 {
            xtables::XtFamily::Ip6
        } else {
            xtables::XtFamily::Ip
        };
        (!self.chains.is_empty()).then(|| Table {
            chains: self.chains,
            ..Table::new(family, name)
        })
    }
}

fn rank(chain: &str) -> (u8, &str) {
    match chain {
        PREROUTING => (0, ""),
        OUTPUT => (1, ""),
        name => (2, name),
    }
}

fn tcp() -> xtables::RuleBuilder {
    Rule::builder().protocol(xtables::Protocol::TCP)
}

/// The usual end of a rule.
trait Returns {
    /// `-j RETURN`
    fn returns(self) -> Rule;
}

impl Returns for xtables::RuleBuilder {
    fn returns(self) -> Rule {
        self.target(xtables::Target::Return)
    }
}

impl Owner<'_> {
    /// `-m owner [!] --uid-owner U` or `--gid-owner G`
    fn option(self, rule: xtables::RuleBuilder, not: Not) -> xtables::RuleBuilder {
        match self {
            Self::User(ids) => rule.uid(not, ids.0.clone()),
            Self::Group(ids) => rule.gid(not, ids.0.clone()),
        }
    }
}

fn ports(ports: &PortRange) -> xtables::PortRange {
    xtables::PortRange(ports.0.clone())
}
