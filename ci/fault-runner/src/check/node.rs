//! A pod and a proxy that are connected to a node, for redirection at the node.

use std::path::Path;

use ipnet::IpNet;
use serde_json::json;
use weir_cni::compile::Engine;
use weir_netlink::Netns;
use weir_netlink::route::{Link, LinkKind, Route, Routing};
use weir_node_ambient::Config;
use weir_node_ambient::objects::{CARRIERS, PROXY_CARRIERS};

use crate::check::foreign::settled;

/// The numbers N of the networks `10.245.N.0/24` and `fd00:10:245:N::/64`: the node has `.1`, the namespace `.10`.
const POD: u8 = 1;
const PROXY: u8 = 2;

/// The namespaces to which a node has links.
pub(crate) struct Neighbours {
    pod: Netns,
    pub(crate) proxy: Netns,
}

impl Neighbours {
    /// Creates the namespaces and connects them with the node.
    ///
    /// # Errors
    /// The kernel refuses a step.
    pub(crate) fn connect(node: &Netns) -> Result<Self, String> {
        let create = || Netns::create().map_err(text);
        let neighbours = Self {
            pod: create()?,
            proxy: create()?,
        };
        let Self { pod, proxy } = &neighbours;
        for netns in [node, pod, proxy] {
            netns
                .run(without_own_addresses)
                .map_err(text)?
                .map_err(text)?;
        }
        for (number, netns) in [(POD, pod), (PROXY, proxy)] {
            connect(node, number, netns).map_err(text)?;
        }
        // The node's state is compared, so it must be stable.
        let routing = Routing::open_in(node).map_err(text)?;
        let (mut addresses, mut links) = (Vec::new(), Vec::new());
        for number in [POD, PROXY] {
            addresses.push(address(number, true, "1").parse().map_err(text)?);
            links.push(routing.link(&format!("v{number}")).map_err(text)?.index);
        }
        settled(&routing, &addresses, &links)?;
        Ok(neighbours)
    }

    /// The configuration for `weir apply node-ambient`.
    pub(crate) fn config(&self) -> String {
        let both = |number, last| [false, true].map(|v6| address(number, v6, last));
        json!({
            "proxies": [{ "uid": "proxy", "netns": self.proxy.path(), "addresses": both(PROXY, "10"), "created": 1 }],
            "pods": [{ "uid": "pod", "netns": self.pod.path(), "addresses": both(POD, "10") }],
            "host_addresses": both(POD, "1"),
        })
        .to_string()
    }

    fn parsed(&self) -> Result<Config, String> {
        Config::from_json(&self.config(), "here").map_err(text)
    }

    /// Applies the redirection with an engine.
    ///
    /// # Errors
    /// The kernel refuses a step.
    pub(crate) fn apply(&self, node: &Netns, engine: Engine) -> Result<(), String> {
        let applied = weir_node_ambient::apply(&self.parsed()?, node, Some(engine), true);
        applied.map(drop).map_err(text)
    }

    /// Removes the redirection.
    ///
    /// # Errors
    /// The kernel refuses a step.
    pub(crate) fn clean(&self, node: &Netns) -> Result<(), String> {
        let removed = weir_node_ambient::remove(node, Some(&self.parsed()?));
        removed.map(drop).map_err(text)
    }
}

/// Whether it is a link that the redirection creates.
pub(crate) fn is_carrier(name: &str) -> bool {
    CARRIERS.contains(&name) || PROXY_CARRIERS.contains(&name)
}

/// The sysctls of links in the namespace of this thread that the redirection sets.
pub(crate) fn sysctls() -> std::io::Result<Vec<String>> {
    let mut lines = Vec::new();
    for entry in std::fs::read_dir("/proc/sys/net/ipv4/conf")? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        if !is_carrier(&name) {
            let file = Path::new("/proc/sys/net/ipv4/conf")
                .join(&name)
                .join("rp_filter");
            let value = std::fs::read_to_string(file)?;
            lines.push(format!("net.ipv4.conf.{name}.rp_filter={}", value.trim()));
        }
    }
    Ok(lines)
}

/// Disables generated IPv6 addresses, which links would get at some time after they are up.
fn without_own_addresses() -> std::io::Result<()> {
    const NONE: &str = "1";
    std::fs::write("/proc/sys/net/ipv6/conf/default/addr_gen_mode", NONE)?;
    std::fs::write("/proc/sys/net/ipv6/conf/default/accept_dad", "0")
}

fn address(number: u8, v6: bool, last: &str) -> String {
    match v6 {
        false => format!("10.245.{number}.{last}"),
        true => format!("fd00:10:245:{number}::{last}"),
    }
}

fn connect(node: &Netns, number: u8, netns: &Netns) -> weir_netlink::Result<()> {
    let (node, inner) = (Routing::open_in(node)?, Routing::open_in(netns)?);
    let name = format!("v{number}");
    let peer = Link {
        name: "eth0".to_owned(),
        ..Link::default()
    };
    node.add_link(
        &Link::new(&name, LinkKind::veth(&peer, Some(netns.into()))?),
        None,
    )?;
    let (outside, inside) = (node.link(&name)?.index, inner.link("eth0")?.index);
    node.set_up(outside)?;
    inner.set_up(inner.link("lo")?.index)?;
    inner.set_up(inside)?;
    for v6 in [false, true] {
        let len = if v6 { 64 } else { 24 };
        let net = |last| format!("{}/{len}", address(number, v6, last)).parse::<IpNet>();
        if let (Ok(router), Ok(own)) = (net("1"), net("10")) {
            node.add_address(outside, router)?;
            inner.add_address(inside, own)?;
            let all = if v6 { "::/0" } else { "0.0.0.0/0" };
            if let Ok(all) = all.parse() {
                inner.add_route(&Route::unicast(all, Some(router.addr()), None))?;
            }
        }
    }
    Ok(())
}

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}
