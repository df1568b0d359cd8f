//! Foreign objects in a pod's namespace, which weir must not change: tables of both engines with non-zero counters, policy
//! rules, routes and addresses.

use std::net::{IpAddr, Ipv6Addr, UdpSocket};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use ipnet::IpNet;
use weir_netfilter::nft::{self, Ruleset};
use weir_netfilter::xtables::{self, Script, XtFamily};
use weir_netlink::Netns;
use weir_netlink::route::{self, PolicyRule, Route, RouteProtocol, Routing};

/// The routing table of the foreign routes.
pub(crate) const TABLE: u32 = 77;
/// The pod's addresses.
pub(crate) const ADDRESSES: [&str; 2] = ["10.244.0.5/24", "fd00:10:244::5/64"];

const NFT: &str = r#"
table inet filter {
    comment "of another writer"
    set allowed { type ipv4_addr; flags interval; elements = { 10.1.0.0/16, 10.3.0.0-10.3.0.9 } }
    chain output {
        type filter hook output priority 0; policy accept;
        counter comment "keep"
        ip daddr @allowed counter accept
        tcp dport 15001 counter
    }
}
table ip istio-proxy-nat {
    chain output {
        counter
    }
}
table inet istio-proxy-nat-of-another {
}
"#;

/// The tables that the other writer adds later.
const MORE_NFT: &str = r#"
table inet of-another {
    chain output {
        type filter hook output priority 10; policy accept;
        tcp dport 9 counter
    }
}
"#;

const MORE_LEGACY: &str = "
*nat
-A OUTPUT -p udp --dport 9 -m comment --comment FOREIGN -j RETURN
COMMIT
*mangle
:FOREIGN2 - [0:0]
-A FOREIGN2 -m comment --comment FOREIGN -j RETURN
COMMIT
";

/// Some of these rules equal ours; each contains FOREIGN.
const LEGACY: &str = "
*nat
:FOREIGN - [0:0]
-A OUTPUT -p udp -j FOREIGN
-A FOREIGN -o net1 -m comment --comment FOREIGN -j RETURN
-A PREROUTING -i net1 -m comment --comment FOREIGN -j RETURN
COMMIT
*mangle
:FOREIGN - [0:0]
-A OUTPUT -p udp -m comment --comment FOREIGN -j MARK --set-mark 0x10
-A OUTPUT -p udp -j FOREIGN
COMMIT
";

/// The prepared foreign objects.
pub(crate) struct Foreign {
    first: Rules,
    more: Rules,
}

struct Rules {
    nft: Ruleset,
    legacy: [Script; 2],
}

impl Foreign {
    /// Parses the tables once, those of nf_tables with the real `nft`.
    ///
    /// # Errors
    /// `nft` is missing, or this user may not create a namespace.
    pub(crate) fn prepare(dir: &std::path::Path) -> Result<Self, String> {
        Ok(Self {
            first: Rules::prepare(dir, NFT, LEGACY)?,
            more: Rules::prepare(dir, MORE_NFT, MORE_LEGACY)?,
        })
    }

    /// Creates a namespace with foreign objects.
    ///
    /// # Errors
    /// The kernel refuses a part.
    pub(crate) fn namespace(&self) -> Result<Netns, String> {
        let netns = Netns::create().map_err(text)?;
        netns.run(|| self.fill()).map_err(text)??;
        Ok(netns)
    }

    fn fill(&self) -> Result<(), String> {
        let routing = Routing::open().map_err(text)?;
        let lo = routing.link("lo").map_err(text)?.index;
        routing.set_up(lo).map_err(text)?;
        let mut added = Vec::new();
        for address in ADDRESSES {
            let address: IpNet = address.parse().map_err(text)?;
            routing.add_address(lo, address).map_err(text)?;
            added.push(address.addr());
        }
        settled(&routing, &added, &[])?;
        for family in [route::AddressFamily::V4, route::AddressFamily::V6] {
            add_rule(&routing, family, 0x99)?;
            let mut route = Route::local_default(family, lo, TABLE);
            route.protocol = RouteProtocol::Static;
            routing.add_route(&route).map_err(text)?;
        }
        self.first.write().map_err(text)?;
        ["127.0.0.1", "::1"]
            .into_iter()
            .try_for_each(count)
            .map_err(text)
    }

    /// Adds the further objects to the namespace of this thread.
    ///
    /// # Errors
    /// The kernel refuses a part.
    pub(crate) fn add(&self) -> Result<(), String> {
        let routing = Routing::open().map_err(text)?;
        add_rule(&routing, route::AddressFamily::V4, 0x98)?;
        self.more.write().map_err(text)
    }
}

impl Rules {
    fn prepare(dir: &std::path::Path, nft: &str, legacy: &str) -> Result<Self, String> {
        let netns = Netns::create().map_err(text)?;
        let file = dir.join("foreign.nft");
        std::fs::write(&file, nft).map_err(text)?;
        let status = Command::new("nsenter")
            .arg(format!("--net={}", netns.path().display()))
            .args(["nft", "-f"])
            .arg(&file)
            .stdin(Stdio::null())
            .status()
            .map_err(|e| format!("nsenter: {e}; ci/deps installs what is needed"))?;
        if !status.success() {
            return Err("nft does not take the foreign tables".into());
        }
        let read = || Ok(nft::NftEngine::open()?.read()?.ruleset);
        let nft = netns.run(read).and_then(|read| read).map_err(text)?;
        let parse = |family| Script::parse(family, legacy).map_err(|e| format!("{e:?}"));
        Ok(Self {
            nft,
            legacy: [parse(XtFamily::Ip)?, parse(XtFamily::Ip6)?],
        })
    }

    fn write(&self) -> weir_netlink::Result<()> {
        let tables = self.nft.tables.iter();
        let owned: Vec<_> = tables.map(|t| (t.family, t.name.clone())).collect();
        nft::NftEngine::open()?.apply(&self.nft, &owned)?;
        let mut engine = xtables::XtEngine::open()?;
        for script in &self.legacy {
            engine.restore(script, true)?;
        }
        Ok(())
    }
}

/// Removes all tables of nf_tables in the namespace of this thread, and flushes all legacy ones.
///
/// # Errors
/// The kernel refuses a part.
pub(crate) fn flush() -> Result<(), String> {
    let mut engine = nft::NftEngine::open().map_err(text)?;
    let read = engine.read().map_err(text)?.ruleset;
    let tables = read.tables.iter();
    let owned: Vec<_> = tables.map(|t| (t.family, t.name.clone())).collect();
    let nothing = Ruleset { tables: Vec::new() };
    engine.apply(&nothing, &owned).map_err(text)?;
    let mut engine = xtables::XtEngine::open().map_err(text)?;
    for family in [XtFamily::Ip, XtFamily::Ip6] {
        let text_of = "*nat\nCOMMIT\n*mangle\nCOMMIT\n*raw\nCOMMIT\n";
        let script = Script::parse(family, text_of).map_err(|e| format!("{e:?}"))?;
        engine.restore(&script, false).map_err(text)?;
    }
    Ok(())
}

fn add_rule(routing: &Routing, family: route::AddressFamily, mark: u32) -> Result<(), String> {
    let mut rule = PolicyRule::mark(family, mark, TABLE);
    rule.protocol = RouteProtocol::Static;
    routing.add_rule(&rule).map(drop).map_err(text)
}

/// Waits for the routes that the kernel adds asynchronously: that of an IPv6 address some time after the address
/// (addrconf_dad_work), and the multicast route some time after a link with a peer is up (linkwatch_event).
pub(crate) fn settled(
    routing: &Routing,
    addresses: &[IpAddr],
    links: &[u32],
) -> Result<(), String> {
    const RT_TABLE_LOCAL: u32 = 255;
    const MULTICAST: IpAddr = IpAddr::V6(Ipv6Addr::new(0xff00, 0, 0, 0, 0, 0, 0, 0));
    let of_addresses = addresses.iter().map(|address| (*address, None));
    let of_links = links.iter().map(|link| (MULTICAST, Some(*link)));
    let mut missing: Vec<(IpAddr, Option<u32>)> = of_addresses.chain(of_links).collect();
    let end = Instant::now() + Duration::from_secs(10);
    loop {
        let routes = routing.routes(RT_TABLE_LOCAL).map_err(text)?;
        missing.retain(|(to, link)| {
            let is_it = |r: &Route| r.dst.addr() == *to && (link.is_none() || r.oif == *link);
            !routes.iter().any(is_it)
        });
        match missing.first() {
            None => return Ok(()),
            Some((to, _)) if Instant::now() > end => return Err(format!("no route to {to}")),
            Some(_) => std::thread::yield_now(),
        }
    }
}

/// Sends a datagram so that counters are not zero. When this returns, it has been received, so all counters have changed.
fn count(address: &str) -> std::io::Result<()> {
    let to = UdpSocket::bind((address, 0))?;
    to.set_read_timeout(Some(Duration::from_secs(5)))?;
    let from = UdpSocket::bind((address, 0))?;
    from.send_to(b"count", to.local_addr()?)?;
    to.recv(&mut [0; 8]).map(drop)
}

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}
