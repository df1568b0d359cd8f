//! Tables and chains.

use super::{AnonymousSet, Element, ElementKey, Object, Rule, Selector, Set, Statement};
use crate::nft::delinearize::first_loaded;
use crate::nft::expr::Expr;
use crate::nft::raw;
use crate::nft::wire::ElemAttrs;

/// All tables of a network namespace, or all desired tables.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[doc(alias = "nft list ruleset")]
pub struct Ruleset {
    /// In the order of the kernel's dump, or in which they are created.
    pub tables: Vec<Table>,
}

/// `table FAMILY NAME`
#[derive(Clone, Debug, PartialEq, Eq)]
#[doc(alias = "NFT_MSG_NEWTABLE")]
pub struct Table {
    /// Selects the packets that its chains see.
    pub family: TableFamily,
    /// Its name, unique in the family, 1 to 255 bytes.
    pub name: String,
    /// `NFT_TABLE_F_DORMANT` (1), `NFT_TABLE_F_OWNER` (2), `NFT_TABLE_F_PERSIST` (4).
    pub flags: u32,
    /// `comment`, at most 253 bytes (247 with a [`version`](Self::version)). Since 5.10; kept in the userdata.
    pub comment: Option<String>,
    /// A number that its writer stores with it, for example the version of the rules. It is an entry of the userdata that
    /// `nft` neither lists nor changes. Since 5.10; older kernels do not store it. A table without a version is in sync with
    /// any desired version.
    pub version: Option<u32>,
    /// Stateful objects and flowtables. Those of a desired table are created; none is deleted without its table, since its
    /// counts would be lost.
    pub objects: Vec<Object>,
    /// Named sets and maps.
    pub sets: Vec<Set>,
    /// Base chains and regular chains.
    pub chains: Vec<Chain>,
}

/// `chain NAME`
#[derive(Clone, Debug, PartialEq, Eq)]
#[doc(alias = "NFT_MSG_NEWCHAIN")]
pub struct Chain {
    /// Its name, unique in the table, 1 to 255 bytes.
    pub name: String,
    /// Where the kernel calls it; `None` for a regular chain, which rules jump to.
    pub base: Option<BaseChain>,
    /// `comment`, at most 253 bytes. Since 5.10; kept in the userdata.
    pub comment: Option<String>,
    /// `flags offload`: the network device evaluates the chain.
    #[doc(alias = "NFT_CHAIN_HW_OFFLOAD")]
    pub offload: bool,
    /// Evaluated in this order.
    pub rules: Vec<Rule>,
}

/// `type TYPE hook HOOK priority PRIORITY; policy POLICY;`
#[derive(Clone, Debug, PartialEq, Eq)]
#[doc(alias = "NFTA_CHAIN_HOOK")]
pub struct BaseChain {
    /// Determines what its rules may do.
    pub chain_type: ChainType,
    /// Its position in the packet's path.
    pub hook: Hook,
    /// Chains with lower numbers are called earlier.
    pub priority: i32,
    /// The verdict for a packet at the end of the chain.
    pub policy: Policy,
    /// `device` or `devices`, 1 to 15 bytes each: only for the `netdev` family and for ingress. Several since 5.5.
    pub devices: Vec<String>,
}

/// The well-known priorities (`enum nf_ip_hook_priorities`).
pub mod priority {
    /// `raw`: before conntrack
    pub const RAW: i32 = -300;
    /// `mangle`
    pub const MANGLE: i32 = -150;
    /// `dstnat`
    pub const DSTNAT: i32 = -100;
    /// `filter`
    pub const FILTER: i32 = 0;
    /// `security`
    pub const SECURITY: i32 = 50;
    /// `srcnat`
    pub const SRCNAT: i32 = 100;
}

open_enum! {
    /// The family of a table, which selects the packets that its chains see (`NFPROTO_*`).
    #[doc(alias = "NFPROTO_INET")]
    TableFamily: u8, "family " {
        /// No family: no table has it.
        Unspec = NFPROTO_UNSPEC "unspec",
        /// IPv4 and IPv6. Since 3.14, NAT since 5.2.
        Inet = NFPROTO_INET "inet",
        /// IPv4
        Ip = NFPROTO_IPV4 "ip",
        Arp = NFPROTO_ARP "arp",
        Netdev = NFPROTO_NETDEV "netdev",
        Bridge = NFPROTO_BRIDGE "bridge",
        /// IPv6
        Ip6 = NFPROTO_IPV6 "ip6",
    }
}

/// Determines what the rules of a base chain may do.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[doc(alias = "NFTA_CHAIN_TYPE")]
pub enum ChainType {
    /// `filter`
    Filter,
    /// `nat`: called for the first packet of a connection. In `inet` since 5.2.
    Nat,
    /// `route`: a packet whose mark changes is routed again. In `inet` since 5.2.
    Route,
    /// A type that this version does not know.
    Other(String),
}

impl ChainType {
    /// The kernel's name for it.
    #[must_use]
    pub fn as_str(&self) -> &str {
        match self {
            Self::Filter => "filter",
            Self::Nat => "nat",
            Self::Route => "route",
            Self::Other(s) => s,
        }
    }
}

impl From<&str> for ChainType {
    fn from(s: &str) -> Self {
        match s {
            "filter" => Self::Filter,
            "nat" => Self::Nat,
            "route" => Self::Route,
            s => Self::Other(s.to_owned()),
        }
    }
}

open_enum! {
    /// `enum nf_inet_hooks`; `netdev` and `arp` use other numbers.
    Hook: u32 {
        Prerouting = NF_INET_PRE_ROUTING "prerouting",
        Input = NF_INET_LOCAL_IN "input",
        Forward = NF_INET_FORWARD "forward",
        Output = NF_INET_LOCAL_OUT "output",
        Postrouting = NF_INET_POST_ROUTING "postrouting",
        /// Of `inet` tables. Since 5.10
        Ingress = NF_INET_INGRESS "ingress",
    }
}

/// The verdict for a packet at the end of a base chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[doc(alias = "NFTA_CHAIN_POLICY")]
pub enum Policy {
    /// The packet continues to the next hook.
    Accept,
    /// The packet is dropped.
    Drop,
}

impl Ruleset {
    /// The table with this family and name.
    #[must_use]
    pub fn table(&self, family: TableFamily, name: &str) -> Option<&Table> {
        self.tables
            .iter()
            .find(|t| t.family == family && t.name == name)
    }
}

impl Table {
    /// An empty table.
    #[must_use]
    pub fn new(family: TableFamily, name: &str) -> Self {
        Self {
            family,
            name: name.to_owned(),
            flags: 0,
            comment: None,
            version: None,
            objects: Vec::new(),
            sets: Vec::new(),
            chains: Vec::new(),
        }
    }

    /// The chain with this name.
    #[must_use]
    pub fn chain(&self, name: &str) -> Option<&Chain> {
        self.chains.iter().find(|c| c.name == name)
    }

    /// The chains to which a rule of this table may jump or go: by its verdict, or by an element of its verdict maps.
    #[must_use]
    pub fn led_to<'t>(&'t self, rule: &'t Rule) -> Vec<&'t str> {
        self.led_to_where(rule, |_, _| true)
    }

    /// As [`Table::led_to`], without the map elements for which `fits` returns false.
    ///
    /// `fits` receives the selector that is looked up (of a concatenation, the first part) and the key of the element in the
    /// order of the register. It is not called for ranges, for the catch-all element and where the selector is unknown:
    /// these are included.
    pub fn led_to_where<'t>(
        &'t self,
        rule: &'t Rule,
        fits: impl Fn(&Selector, &[u8]) -> bool,
    ) -> Vec<&'t str> {
        // The catch-all element has no key.
        let is_met = |by: Option<&Selector>, key: &[u8]| {
            key.is_empty() || by.is_none_or(|selector| fits(selector, key))
        };
        let of_table = |name: &str, by: Option<&Selector>| {
            let maps = self.sets.iter().filter(|set| set.name == *name);
            let elements = maps.flat_map(|map| &map.elements);
            let met = elements.filter(|element| match &element.key {
                ElementKey::Value(key) => is_met(by, key.as_bytes()),
                ElementKey::Range(_) => true,
            });
            let chain = |e: &'t Element| e.extra().verdict.as_ref()?.chain();
            met.filter_map(chain).collect::<Vec<_>>()
        };
        let of_rule = |map: &'t AnonymousSet, by: Option<&Selector>| {
            let has_ranges = map.attrs.flags.unwrap_or(0) & raw::NFT_SET_INTERVAL != 0;
            let by = by.filter(|_| !has_ranges);
            let met = map.elements.iter().filter(|e| {
                let key = e.key.as_ref().and_then(|key| key.value.as_deref());
                is_met(by, key.unwrap_or_default())
            });
            let chain = |e: &'t ElemAttrs| e.data.as_ref()?.verdict.as_ref()?.chain.as_deref();
            met.filter_map(chain).collect::<Vec<_>>()
        };
        let mut to = Vec::new();
        for statement in &rule.statements {
            match statement {
                Statement::Verdict(verdict) => to.extend(verdict.chain()),
                Statement::Vmap(selector, map) => to.extend(of_table(map, Some(selector))),
                Statement::Opaque(exprs) => {
                    for (at, expr) in exprs.iter().enumerate() {
                        let Expr::Lookup(lookup) = expr else { continue };
                        if lookup.dreg != Some(raw::NFT_REG_VERDICT) {
                            continue;
                        }
                        let by = first_loaded(exprs.get(..at).unwrap_or_default());
                        let by = by.as_ref().filter(|_| lookup.sreg == Some(raw::NFT_REG_1));
                        let own = lookup.set_id.and_then(|id| usize::try_from(id).ok());
                        to.extend(match (own.and_then(|id| rule.sets.get(id)), &lookup.set) {
                            (Some(map), _) => of_rule(map, by),
                            (None, Some(name)) => of_table(name, by),
                            (None, None) => Vec::new(),
                        });
                    }
                }
                _ => {}
            }
        }
        to
    }
}

impl Chain {
    /// A regular chain, which rules jump to.
    #[must_use]
    pub fn regular(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            base: None,
            comment: None,
            offload: false,
            rules: Vec::new(),
        }
    }

    /// A base chain, which the kernel calls, with policy accept.
    #[must_use]
    pub fn base(name: &str, chain_type: ChainType, hook: Hook, priority: i32) -> Self {
        let policy = Policy::Accept;
        let base = BaseChain {
            chain_type,
            hook,
            priority,
            policy,
            devices: Vec::new(),
        };
        Self {
            base: Some(base),
            ..Self::regular(name)
        }
    }

    /// Sets the policy; a regular chain has none.
    #[must_use]
    pub fn policy(mut self, policy: Policy) -> Self {
        if let Some(base) = &mut self.base {
            base.policy = policy;
        }
        self
    }
}
