//! Kinds of redirection: what each owns in the namespace of a pod.

use crate::compile::{Compiled, Engine, RoutingItem};
use crate::config::Intent;
use weir_netfilter::nft::{TableFamily, TableId};

/// A kind of redirection. Legacy chains with the prefix `ISTIO_` belong to all kinds: a pod has one of them.
#[derive(Debug)]
pub struct Scheme {
    /// Names of its `inet` tables of nf_tables. Applying one that needs fewer removes the others, which an earlier one may
    /// have left.
    pub tables: &'static [&'static str],
    /// Policy rules and routes that are its own even without weir's protocol number, because no other program has a use for
    /// exactly these. Upstream's agent writes them.
    pub routing: fn() -> Vec<RoutingItem>,
    /// Version of its rules, which is kept with them: rules of another version are replaced as a whole, and the change
    /// says so. Rules without one are compared rule by rule. `None`: none is kept.
    pub version: Option<u32>,
    /// What to do about a foreign policy rule or route that takes its packets.
    pub remedy: &'static str,
}

/// What a namespace should have, before an engine is chosen.
pub trait Desired {
    /// The kind of redirection.
    const SCHEME: &'static Scheme;

    /// The rules for this engine, and the routing.
    fn compile(&self, engine: Engine) -> Compiled;
}

/// The redirection to a sidecar.
pub static SIDECAR: Scheme = Scheme {
    tables: &super::TABLES,
    routing: Vec::new,
    version: None,
    remedy: "choose another mark and table (inbound_tproxy_mark, inbound_tproxy_route_table)",
};

impl Desired for Intent {
    const SCHEME: &'static Scheme = &SIDECAR;

    fn compile(&self, engine: Engine) -> Compiled {
        crate::compile::compile(self, engine)
    }
}

impl Scheme {
    pub(super) fn owned(&self) -> Vec<TableId> {
        let id = |name: &&str| (TableFamily::Inet, (*name).to_owned());
        self.tables.iter().map(id).collect()
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
