//! Kinds of redirection, and the objects that each owns in the network namespace of a pod.
//!
//! A namespace may have several kinds, which share one protocol number. So other properties identify the kind of an
//! object: the name of an nf_tables table, the chains of legacy rules, mark and mask of a policy rule, and for a route the
//! policy rule that leads to its table.

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
    /// Names of its `inet` tables of nf_tables. Applying a redirection that needs fewer removes the others: an earlier
    /// redirection may have left them.
    pub tables: &'static [&'static str],
    /// The objects that it owns in legacy tables.
    pub legacy: Legacy,
    /// Policy rules and routes that this kind owns even without weir's protocol number, because no other program needs
    /// exactly these. Upstream's agent writes them.
    pub routing: fn() -> Vec<RoutingItem>,
    /// True if this kind owns a policy rule with weir's protocol number; the second argument is all rules of the namespace.
    pub rule: fn(&PolicyRule, &[PolicyRule]) -> bool,
    /// True if this kind owns a local default route with weir's protocol number in this table when no policy rule leads to
    /// the table.
    pub table: fn(u32) -> bool,
    /// True if this kind owns the address `::6/128` on `lo`.
    pub passthrough: bool,
    /// Version of its rules, stored with them: rules of another version are replaced as a whole, and the change states that.
    /// Rules without a version are compared rule by rule. `None`: no version is stored.
    pub version: Option<u32>,
    /// Remedy for a foreign policy rule or route that takes its packets, used in error messages.
    pub remedy: &'static str,
}

/// The objects that a kind owns in legacy tables and in tables of `iptables-nft`.
#[derive(Clone, Copy, Debug)]
pub struct Legacy {
    /// Prefix of its chains.
    pub prefix: &'static str,
    /// Tables and names of chains that another kind has, too. This kind owns them in tables with a chain of its prefix.
    pub beside: &'static [(&'static str, &'static str)],
    /// Chains of other kinds. A chain is not written where another kind has one of the same name.
    pub others: &'static [OwnerChains],
    /// The tag of its rules in built-in chains: a rule without a jump to an owned chain is identified by the tag alone.
    pub tag: u32,
}

/// The desired state of a namespace, before an engine is chosen.
pub trait Desired {
    /// The kind of redirection.
    const SCHEME: &'static Scheme;

    /// Compiles the rules for this engine, and the routing.
    fn compile(&self, engine: Engine) -> Compiled;

    /// Like [`Desired::compile`], for an engine that was chosen automatically, if the result differs.
    fn compile_chosen(&self, engine: Engine) -> Compiled {
        self.compile(engine)
    }

    /// Compiles for `engine`, which is the configured one (`named`), or was chosen because none was configured.
    fn compile_for(&self, named: Option<Engine>, engine: Engine) -> Compiled {
        match named {
            Some(_) => self.compile(engine),
            None => self.compile_chosen(engine),
        }
    }
}

/// Upstream's chains of ambient mode in pods.
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
/// The routing table of ambient mode, in pods and in namespaces of proxies. A sidecar uses another table by default.
const AMBIENT_TABLE: u32 = 100;

/// A sidecar's policy rule compares all bits of the mark. A rule without a mark is not written any more, but an older
/// program may have left it, unless it belongs to the rules that capture at a node: these begin with a `goto`.
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

    /// Ownership of the objects of this kind in legacy tables.
    pub(super) fn ownership(&self) -> Ownership {
        Ownership {
            tag: self.legacy.tag,
            version: self.version.unwrap_or(0),
            ..self.chains()
        }
    }

    /// Returns the ownership of the chains of this kind in legacy tables, without the rules that are identified by their tag.
    #[must_use]
    pub fn chains(&self) -> Ownership {
        Ownership {
            prefix: self.legacy.prefix.to_owned(),
            beside: self.legacy.beside,
            others: self.legacy.others,
            tables: &LEGACY_TABLES,
            ..Ownership::default()
        }
    }

    /// True if this kind owns one of these tables.
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
