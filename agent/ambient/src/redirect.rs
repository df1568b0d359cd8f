//! A validated redirection, and the parts that both engines share.

use crate::config::{Config, DnsCapture, PodOverrides};
use crate::ztunnel::{MASK, REPLY_MARK};
use crate::{nft, xtables};
use ipnet::IpNet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use weir_cni::compile::{Compiled, Engine, RoutingItem, Rules};
use weir_cni::config::{InputError, InterfaceName};
use weir_cni::redirection::{Change, Desired, Failure, Legacy, Scheme, Visit};
use weir_netfilter::nft::Ruleset;
use weir_netfilter::xtables::OwnerChains;
use weir_netlink::route::AddressFamily;

/// Names of the `inet` tables of nf_tables.
pub const TABLES: [&str; 3] = [
    "istio-ambient-nat",
    "istio-ambient-mangle",
    "istio-ambient-raw",
];

/// The objects that ambient mode owns in the network namespace of a pod.
pub static AMBIENT: Scheme = Scheme {
    tables: &TABLES,
    legacy: Legacy {
        prefix: "ISTIO_PRERT",
        beside: &[
            ("nat", "ISTIO_OUTPUT"),
            ("mangle", "ISTIO_OUTPUT"),
            ("raw", "ISTIO_OUTPUT"),
        ],
        others: &[OF_SIDECARS],
        tag: u32::from_be_bytes(*b"wamb"),
    },
    routing: upstream_routing,
    rule: |rule, _| {
        let mark = (rule.fwmark, rule.fwmask);
        rule.only_mark() && mark == (Some(REPLY_MARK), Some(MASK))
    },
    table: |table| table == TABLE,
    passthrough: false,
    version: Some(VERSION),
    remedy: "have its writer choose another mark and table: 0x111/0xfff and table 100 are those of Istio's ambient mode",
};

/// Chains of a sidecar's redirection, which also has an `ISTIO_OUTPUT` in `nat`.
const OF_SIDECARS: OwnerChains = OwnerChains {
    prefixes: &[
        "ISTIO_IN",
        "ISTIO_REDIRECT",
        "ISTIO_OUTPUT_DNS",
        "ISTIO_DIVERT",
        "ISTIO_TPROXY",
        "ISTIO_DROP",
    ],
    beside: &[("nat", "ISTIO_OUTPUT")],
};

/// Version of the rules in [`nft`] and [`xtables`]. Increment it with every change of the rules, so that an upgrade is
/// distinguished from a change by another writer.
pub(crate) const VERSION: u32 = 2;

/// Table of the local route for replies.
const TABLE: u32 = 100;
/// Priority of the policy rule that looks up this table.
const PRIORITY: u32 = 32764;
/// Port of name servers.
pub(crate) const DNS_PORT: u16 = 53;
/// Conntrack zone between ztunnel and the name server.
pub(crate) const DNS_ZONE: u16 = 1;

/// The mark of packets that are delivered locally although they are addressed to another host, its mask, the table of the
/// local route, and the priority of the policy rule that looks up this table.
pub const REPLY_ROUTING: (u32, u32, u32, u32) = (REPLY_MARK, MASK, TABLE, PRIORITY);

/// What is captured in a pod. Equal values need the same rules.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Redirect {
    pub(crate) config: Config,
    pub(crate) interfaces: Vec<InterfaceName>,
    /// Inbound traffic is not captured.
    pub(crate) ingress: bool,
    pub(crate) dns: bool,
}

/// The addresses that depend on the family.
pub(crate) struct Family {
    pub(crate) is_v6: bool,
    /// Source address of probes.
    pub(crate) probe: IpNet,
    pub(crate) loopback: IpNet,
}

impl Redirect {
    /// Combines the settings of the node and of the pod.
    ///
    /// # Errors
    /// An interface name is invalid.
    pub fn new(config: Config, pod: &PodOverrides) -> Result<Self, InputError> {
        Ok(Self {
            interfaces: pod.interfaces()?,
            ingress: pod.ingress_mode,
            dns: match pod.dns_proxy {
                DnsCapture::Unset => config.redirect_dns,
                DnsCapture::Enabled => true,
                DnsCapture::Disabled => false,
            },
            config,
        })
    }

    /// Compiles only policy rules and routes, for a pod that another engine captures. Applying the result removes netfilter
    /// rules of an earlier redirection.
    #[must_use]
    pub fn compile_without_rules(&self) -> Compiled {
        let rules = Rules::Nft(Ruleset { tables: Vec::new() });
        Compiled::new(&AMBIENT, rules, self.routing(), xtables::ruleset(self))
    }

    /// Removes netfilter rules from a namespace in which another engine captures; the routing stays, because that engine
    /// needs it, too. Without such rules, netfilter is not used at all: the kernel may not have it. Returns the changes, or
    /// with `dry_run` the changes that would be made. The visit is one for [`AMBIENT`].
    ///
    /// # Errors
    /// Some rules may still be in force.
    pub fn remove_rules(&self, visit: &Visit<'_>, dry_run: bool) -> Result<Vec<Change>, Failure> {
        if visit.engine_in_use()?.is_none() {
            return Ok(Vec::new());
        }
        let without = self.compile_without_rules();
        match dry_run {
            true => Ok(visit.plan(&without)?),
            false => visit.apply(&without),
        }
    }

    fn compiled(&self, engine: Engine, semantics: nft::Semantics) -> Compiled {
        let legacy = xtables::ruleset(self);
        let rules = match engine {
            Engine::Nft => Rules::Nft(nft::ruleset(self, semantics)),
            Engine::Xtables => Rules::Xtables(legacy.clone()),
        };
        let compiled = Compiled::new(&AMBIENT, rules, self.routing(), legacy);
        match semantics.leaves_ipv6_alone(self) {
            true => compiled.leaving_ipv6_alone(),
            false => compiled,
        }
    }

    fn routing(&self) -> Vec<RoutingItem> {
        routing(match self.config.enable_ipv6 {
            true => &[AddressFamily::V4, AddressFamily::V6][..],
            false => &[AddressFamily::V4],
        })
    }

    /// Whether IPv6 is captured, too.
    #[must_use]
    pub fn captures_ipv6(&self) -> bool {
        self.config.enable_ipv6
    }

    /// Whether DNS is redirected to ztunnel.
    #[must_use]
    pub fn captures_dns(&self) -> bool {
        self.dns
    }

    /// Whether inbound traffic is redirected to ztunnel.
    #[must_use]
    pub fn captures_inbound(&self) -> bool {
        !self.ingress
    }

    /// Interfaces of virtual machines: TCP that arrives there is outbound traffic.
    pub fn guest_interfaces(&self) -> impl Iterator<Item = &str> {
        self.interfaces.iter().map(InterfaceName::as_str)
    }

    /// The addresses from which the kubelet's probes arrive.
    #[must_use]
    pub fn probe_sources(&self) -> (Ipv4Addr, Ipv6Addr) {
        let Config {
            host_probe_snat_address,
            host_probe_v6_snat_address,
            ..
        } = self.config;
        (host_probe_snat_address, host_probe_v6_snat_address)
    }

    /// The captured families: IPv4, then IPv6 if it is captured.
    pub(crate) fn families(&self) -> Vec<Family> {
        let of = |probe: IpAddr, loopback: IpAddr| Family {
            is_v6: probe.is_ipv6(),
            probe: probe.into(),
            loopback: loopback.into(),
        };
        let probe = self.config.host_probe_snat_address.into();
        let mut families = vec![of(probe, Ipv4Addr::LOCALHOST.into())];
        if self.config.enable_ipv6 {
            let probe = self.config.host_probe_v6_snat_address.into();
            families.push(of(probe, Ipv6Addr::LOCALHOST.into()));
        }
        families
    }
}

impl Desired for Redirect {
    const SCHEME: &'static Scheme = &AMBIENT;

    fn compile(&self, engine: Engine) -> Compiled {
        self.compiled(engine, nft::Semantics::Nft)
    }

    fn compile_chosen(&self, engine: Engine) -> Compiled {
        self.compiled(engine, nft::Semantics::Xtables)
    }
}

/// Routing that delivers replies to ztunnel's connections locally. Routes precede the policy rules, so that no packet is
/// looked up in an empty table.
fn routing(families: &[AddressFamily]) -> Vec<RoutingItem> {
    let route = |family: &AddressFamily| RoutingItem::local_default(*family, TABLE);
    let mark = (REPLY_MARK, MASK);
    let rule = |family: &AddressFamily| RoutingItem::marked(*family, mark, TABLE, Some(PRIORITY));
    let routes = families.iter().map(route);
    routes.chain(families.iter().map(rule)).collect()
}

/// The routing of Istio's agent: the same, without a protocol number of its own.
fn upstream_routing() -> Vec<RoutingItem> {
    routing(&[AddressFamily::V4, AddressFamily::V6])
}
