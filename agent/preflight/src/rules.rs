//! Kernel features that rules need, derived from the rules themselves.
//!
//! An example of each configuration of a pod or a node is compiled; [`Compiled::needs`] and [`weir_node_ambient::needs`]
//! then name the rows of the survey. So a verdict requires exactly the features that the rules use.
//!
//! [`Compiled::needs`]: weir_cni::compile::Compiled::needs

use weir_cni::compile::{Engine, compile};
use weir_cni::config::{
    Dns, IdRange, Inbound, InboundMode, Intent, OutboundRanges, PortRange, TproxyMark,
};
use weir_netfilter::probe::needs::Needs;
use weir_node_ambient::rules::Side;

/// A configuration of a pod or a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rules {
    /// Inbound and outbound IPv4 traffic, by REDIRECT.
    Redirect,
    /// [`Rules::Redirect`], but inbound by TPROXY.
    Tproxy,
    /// [`Rules::Redirect`] for both families.
    RedirectIpv6,
    /// [`Rules::Tproxy`] for both families.
    TproxyIpv6,
    /// [`Rules::Redirect`] with DNS capture.
    Dns,
    /// Ambient mode at the node: one side's rules, for IPv4.
    AtNode(Side),
    /// [`Rules::AtNode`] for both families.
    AtNodeIpv6(Side),
    /// [`Rules::AtNode`] of the node's side, with DNS capture.
    AtNodeDns,
}

impl Rules {
    /// Returns the keys of the findings that these rules need. They include those of IPv4 and of plain redirection, because
    /// one engine must do everything.
    #[must_use]
    pub fn needs(self, engine: Engine) -> Needs {
        match self {
            Self::AtNode(side) => weir_node_ambient::needs(side, engine, false, false),
            Self::AtNodeIpv6(side) => weir_node_ambient::needs(side, engine, true, false),
            Self::AtNodeDns => weir_node_ambient::needs(Side::Host, engine, false, true),
            _ => self.of_sidecar(engine),
        }
    }

    fn of_sidecar(self, engine: Engine) -> Needs {
        let is_tproxy = matches!(self, Self::Tproxy | Self::TproxyIpv6);
        let is_ipv6 = matches!(self, Self::RedirectIpv6 | Self::TproxyIpv6);
        let proxy = || vec![IdRange(1337..=1337)];
        let intent = Intent {
            proxy_uids: proxy(),
            proxy_gids: proxy(),
            mode: match is_tproxy {
                true => InboundMode::Tproxy(TproxyMark::usual(&Inbound::All)),
                false => InboundMode::Redirect,
            },
            inbound: Inbound::All,
            inbound_ports_exclude: vec![PortRange(15020..=15020)],
            outbound_include: OutboundRanges::All,
            enable_ipv6: is_ipv6,
            dns: match self {
                Self::Dns => Dns::All,
                _ => Dns::Off,
            },
            ..Intent::default()
        };
        compile(&intent, engine).needs()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_example_needs_what_it_is_about() {
        for (rules, nft, legacy) in [
            (Rules::Redirect, "expression redir", "target ip REDIRECT"),
            (Rules::Tproxy, "expression tproxy", "target ip TPROXY"),
            (Rules::TproxyIpv6, "expression tproxy", "target ip6 TPROXY"),
            (Rules::RedirectIpv6, "expression redir", "match ip6 owner"),
            (Rules::Dns, "ct zone set", "target ip CT"),
            (
                Rules::AtNode(Side::Proxy),
                "expression tproxy",
                "target ip TPROXY",
            ),
            (
                Rules::AtNodeIpv6(Side::Host),
                "chain inet route",
                "match ip6 set",
            ),
            (Rules::AtNodeDns, "chain inet nat", "target ip DNAT"),
        ] {
            let has = |engine, area, feature| {
                let needs = rules.needs(engine);
                let key = (area, str::to_owned(feature));
                assert!(needs.contains(&key), "{feature}: {needs:?}");
            };
            has(Engine::Nft, "nf_tables", nft);
            has(Engine::Xtables, "xtables", legacy);
        }
        let tproxy = Rules::Tproxy.needs(Engine::Nft);
        assert!(
            !tproxy.contains(&("nf_tables", "expression socket".to_owned())),
            "no rule uses it"
        );
    }
}
