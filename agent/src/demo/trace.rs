//! Which rule decided: the counters before and after a flow say it.

use weir_cni::redirection::Sandbox;
use weir_netfilter::nft::{Chain, Rule, Ruleset, Statement, Table, Verdict};
use weir_netlink::{Netns, Result};

/// The table where the first packet of every connection is decided upon.
const NAT: &str = "istio-proxy-nat";
/// Chains that only carry out what another rule decided.
const CARRY_OUT: [&str; 2] = ["istio-redirect", "istio-in-redirect"];

/// The rules with their counters at one moment.
#[derive(Debug)]
pub(super) struct Counters(Ruleset);

impl Counters {
    /// Reads them.
    ///
    /// # Errors
    /// As [`Sandbox::show`].
    pub(super) fn read(pod: &Netns) -> Result<Self> {
        Ok(Self(Sandbox::show(pod)?))
    }

    /// The rule that decided about what came by since `before`: the last one on the way through the
    /// chains, without those that only carry out. `None` when no rule matched.
    #[must_use]
    pub(super) fn decided_since(&self, before: &Self) -> Option<String> {
        let now = nat(&self.0)?;
        let then = nat(&before.0)?;
        let mut path = Vec::new();
        for chain in now.chains.iter().filter(|c| c.base.is_some()) {
            walk(now, then, chain, &mut path);
        }
        let decided = path
            .iter()
            .rev()
            .find(|(chain, _)| !CARRY_OUT.contains(&chain.as_str()));
        decided.map(|(chain, rule)| format!("{chain}: {}", text(rule, now)))
    }
}

fn nat(ruleset: &Ruleset) -> Option<&Table> {
    ruleset.tables.iter().find(|t| t.name == NAT)
}

/// Rules that counted something, in the order in which the packet met them.
fn walk(now: &Table, then: &Table, chain: &Chain, path: &mut Vec<(String, Rule)>) {
    let old = then.chain(&chain.name);
    for (i, rule) in chain.rules.iter().enumerate() {
        let before = old.and_then(|c| c.rules.get(i)).map_or(0, packets);
        if packets(rule) <= before {
            continue;
        }
        path.push((chain.name.clone(), rule.clone()));
        if let Some(Statement::Verdict(Verdict::Jump(to))) = rule.statements.last()
            && let Some(next) = now.chain(to)
        {
            walk(now, then, next, path);
        }
    }
}

fn packets(rule: &Rule) -> u64 {
    let count = |s: &Statement| match s {
        Statement::Counter(c) => c.packets,
        _ => 0,
    };
    rule.statements.iter().map(count).sum()
}

fn text(rule: &Rule, table: &Table) -> String {
    let mut rule = rule.clone();
    rule.statements
        .retain(|s| !matches!(s, Statement::Counter(_)));
    rule.text(table.family)
}
