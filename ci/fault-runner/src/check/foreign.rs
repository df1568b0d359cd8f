//! What others have in a pod's namespace, which nothing that weir does may change: tables of both engines with
//! counters that have counted, a policy rule, a route and addresses.

use std::net::UdpSocket;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use ipnet::IpNet;
use weir_netfilter::nft::{self, Ruleset};
use weir_netfilter::xtables::{self, Script, XtFamily};
use weir_netlink::Netns;
use weir_netlink::route::{self, PolicyRule, Route, RouteProtocol, Routing};

/// Table of the foreign routes.
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

/// Some of it equals rules of ours; each names FOREIGN.
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

/// What is put into each namespace.
pub(crate) struct Foreign {
    nft: Ruleset,
    legacy: [Script; 2],
}

impl Foreign {
    /// Understood once, the nf_tables part by the real `nft`.
    ///
    /// # Errors
    /// There is no `nft`, or this user may not make a namespace.
    pub(crate) fn prepare(dir: &std::path::Path) -> Result<Self, String> {
        let netns = Netns::create().map_err(text)?;
        let file = dir.join("foreign.nft");
        std::fs::write(&file, NFT).map_err(text)?;
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
        let parse = |family| Script::parse(family, LEGACY).map_err(|e| format!("{e:?}"));
        Ok(Self {
            nft,
            legacy: [parse(XtFamily::Ip)?, parse(XtFamily::Ip6)?],
        })
    }

    /// A namespace as another program left it.
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
        for address in ADDRESSES {
            let address: IpNet = address.parse().map_err(text)?;
            routing.add_address(lo, address).map_err(text)?;
        }
        settled(&routing)?;
        for family in [route::AddressFamily::V4, route::AddressFamily::V6] {
            let mut rule = PolicyRule::mark(family, 0x99, TABLE);
            rule.protocol = RouteProtocol::Static;
            routing.add_rule(&rule).map_err(text)?;
            let mut route = Route::local_default(family, lo, TABLE);
            route.protocol = RouteProtocol::Static;
            routing.add_route(&route).map_err(text)?;
        }
        let owned: Vec<_> = self
            .nft
            .tables
            .iter()
            .map(|t| (t.family, t.name.clone()))
            .collect();
        let mut engine = nft::NftEngine::open().map_err(text)?;
        engine.apply(&self.nft, &owned).map_err(text)?;
        let mut engine = xtables::XtEngine::open().map_err(text)?;
        for script in &self.legacy {
            engine.restore(script, true).map_err(text)?;
        }
        ["127.0.0.1", "::1"]
            .into_iter()
            .try_for_each(count)
            .map_err(text)
    }
}

/// The kernel adds the route of an IPv6 address on a thread of its own (addrconf_dad_work), some time after the address.
fn settled(routing: &Routing) -> Result<(), String> {
    const RT_TABLE_LOCAL: u32 = 255;
    let end = Instant::now() + Duration::from_secs(10);
    loop {
        let routes = routing.routes(RT_TABLE_LOCAL).map_err(text)?;
        let mut missing = ADDRESSES.iter().filter(|address| {
            let address = address.split('/').next().unwrap_or_default();
            !routes.iter().any(|r| r.dst.addr().to_string() == address)
        });
        match missing.next() {
            None => return Ok(()),
            Some(address) if Instant::now() > end => return Err(format!("no route to {address}")),
            Some(_) => std::thread::yield_now(),
        }
    }
}

/// One datagram, so that counters are not zero. It has arrived, with all that was to be counted, when this returns.
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
