//! Kinds of redirection: what each owns in the namespace of a pod.
//!
//! A namespace may have several, and all of them have one protocol number. So what a kind owns is told by more: tables of
//! nf_tables by their names, legacy rules by their chains, policy rules by mark and mask, and a route by the policy rule
//! that leads to its table.

use super::engines::LEGACY_TABLES;
use super::routing::WEIR;
use crate::compile::{Compiled, Engine, RoutingItem};
use crate::config::Intent;
use weir_netfilter::nft::{TableFamily, TableId};
use weir_netfilter::xtables::{OwnerChains, Ownership};
use weir_netlink::route::{PolicyRule, RuleAction};

/// A kind of redirection.
#[derive(Debug)]
pub struct Scheme {
    /// Names of its `inet` tables of nf_tables. Applying one that needs fewer removes the others, which an earlier one may
    /// have left.
    pub tables: &'static [&'static str],
    /// What is its own in legacy tables.
    pub legacy: Legacy,
    /// Policy rules and routes that are its own even without weir's protocol number, because no other program has a use for
    /// exactly these. Upstream's agent writes them.
    pub routing: fn() -> Vec<RoutingItem>,
    /// Whether a policy rule with weir's protocol number is its own; the second argument are all rules of the namespace.
    pub rule: fn(&PolicyRule, &[PolicyRule]) -> bool,
    /// Whether a local default route with weir's protocol number in this table is its own, if no policy rule leads there.
    pub table: fn(u32) -> bool,
    /// The address `::6/128` on `lo` is its own.
    pub passthrough: bool,
    /// Version of its rules, which is kept with them: rules of another version are replaced as a whole, and the change
    /// says so. Rules without one are compared rule by rule. `None`: none is kept.
    pub version: Option<u32>,
    /// What to do about a foreign policy rule or route that takes its packets.
    pub remedy: &'static str,
}

/// What a kind owns in legacy tables, and in tables of `iptables-nft`.
#[derive(Clone, Copy, Debug)]
pub struct Legacy {
    /// Prefix of its chains.
    pub prefix: &'static str,
    /// Tables and names of chains that another kind has, too: its own in tables with a chain of its prefix.
    pub beside: &'static [(&'static str, &'static str)],
    /// Chains of other kinds. Where they have a chain of the same name, it is not written.
    pub others: &'static [OwnerChains],
    /// The tag of its rules in built-in chains: not all of them need to jump to one of its chains.
    pub tag: u32,
}

/// What a namespace should have, before an engine is chosen.
pub trait Desired {
    /// The kind of redirection.
    const SCHEME: &'static Scheme;

    /// The rules for this engine, and the routing.
    fn compile(&self, engine: Engine) -> Compiled;

    /// The same for an engine that was chosen automatically, where that is another matter.
    fn compile_chosen(&self, engine: Engine) -> Compiled {
        self.compile(engine)
    }

    /// The rules for `engine`, which is the one that was `named`, or was chosen because none was.
    fn compile_for(&self, named: Option<Engine>, engine: Engine) -> Compiled {
        match named {
            Some(_) => self.compile(engine),
            None => self.compile_chosen(engine),
        }
    }
}

/// Chains of ambient mode in pods, as upstream has them.
const IN_AMBIENT_PODS: OwnerChains = OwnerChains {
    prefixes: &["ISTIO_PRERT"],
    beside: &[
        ("nat", "ISTIO_OUTPUT"),
        ("mangle", "ISTIO_OUTPUT"),
        ("raw", "ISTIO_OUTPUT"),
    ],
};
/// Chains of ambient mode in the namespaces of nodes and of their proxies.
const AT_NODES: OwnerChains = OwnerChains {
    prefixes: &["ISTIO_POSTRT", "ztunnel-"],
    beside: &[],
};
/// The table of ambient mode, in pods and in namespaces of proxies. A sidecar has another one by default.
const AMBIENT_TABLE: u32 = 100;

/// All bits of its mark are compared. A rule for packets without a mark is none that is written now, but one that an
/// older program left, unless it is one of those that capture at a node: these begin with a `goto`.
fn is_of_sidecar(rule: &PolicyRule, all: &[PolicyRule]) -> bool {
    if rule.fwmark.unwrap_or(0) != 0 {
        return rule.only_mark() && rule.fwmask.unwrap_or(u32::MAX) == u32::MAX;
    }
    let at = rule.priority.unwrap_or(0);
    let is_before = |r: &PolicyRule| (1..=3).contains(&at.saturating_sub(r.priority.unwrap_or(0)));
    let begins = |r: &PolicyRule| {
        r.action == RuleAction::Goto && r.family == rule.family && r.protocol == WEIR
    };
    rule.only_mark() && !all.iter().any(|r| begins(r) && is_before(r))
}

/// The redirection to a sidecar.
pub static SIDECAR: Scheme = Scheme {
    tables: &super::TABLES,
    legacy: Legacy {
        prefix: "ISTIO_",
        beside: &[],
        others: &[IN_AMBIENT_PODS, AT_NODES],
        tag: u32::from_be_bytes(*b"weir"),
    },
    routing: Vec::new,
    rule: is_of_sidecar,
    table: |table| table != AMBIENT_TABLE,
    passthrough: true,
    version: None,
    remedy: "choose another mark and table (inbound_tproxy_mark, inbound_tproxy_route_table)",
};

impl Desired for Intent {
    const SCHEME: &'static Scheme = &SIDECAR;

    fn compile(&self, engine: Engine) -> Compiled {
        crate::compile::compile(self, engine)
    }

    fn compile_chosen(&self, engine: Engine) -> Compiled {
        crate::compile::compile_chosen(self, engine)
    }
}

impl Scheme {
    pub(super) fn owned(&self) -> Vec<TableId> {
        let id = |name: &&str| (TableFamily::Inet, (*name).to_owned());
        self.tables.iter().map(id).collect()
    }

    /// What is its own in legacy tables.
    pub(super) fn ownership(&self) -> Ownership {
        Ownership {
            tag: self.legacy.tag,
            version: self.version.unwrap_or(0),
            ..self.chains()
        }
    }

    /// The same without what is known by its tag.
    pub(super) fn chains(&self) -> Ownership {
        Ownership {
            prefix: self.legacy.prefix.to_owned(),
            beside: self.legacy.beside,
            others: self.legacy.others,
            tables: &LEGACY_TABLES,
            ..Ownership::default()
        }
    }

    /// True if one of these is its own.
    pub(super) fn holds(&self, tables: &[TableId]) -> bool {
        let owned = self.owned();
        tables.iter().any(|found| owned.contains(found))
    }
}

impl PartialEq for Scheme {
    fn eq(&self, other: &Self) -> bool {
        self.tables == other.tables
    }
}

impl Eq for Scheme {}
