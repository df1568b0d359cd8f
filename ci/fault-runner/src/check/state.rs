//! The state of a network namespace, ours and foreign, as text for comparison.

use std::collections::BTreeSet;
use std::path::Path;

use ipnet::IpNet;
use weir_cni::redirection::{RTPROT_WEIR, TABLES};
use weir_ebpf::Bpffs;
use weir_netfilter::nft::{self, Ruleset, TableFamily as NftFamily};
use weir_netfilter::xtables::{self, XtFamily};
use weir_netlink::route::{Address, AddressFamily, Route, RouteProtocol, Routing};
use weir_netlink::{Netns, Result};
use weir_node_ambient::nft::{HOST_TABLE, PROXY_TABLE};
use weir_rules::show;

use crate::check::lab::Place;
use crate::check::listing::{
    comparable, is_foreign, is_untouched, uncounted, without_counters_of_nft, without_policies,
};
use crate::check::node;

/// The routing tables that are compared: of our TPROXY routes, of ambient mode, a foreign one, main and local.
const ROUTE_TABLES: [u32; 8] = [
    133,
    100,
    101,
    102,
    103,
    crate::check::foreign::TABLE,
    254,
    255,
];
/// The source of the proxy's connections to the application over IPv6.
const PASSTHROUGH: &str = "::6/128";

/// The state of a namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct State {
    /// Our tables of nf_tables, and sets.
    pub(crate) nft: String,
    /// Legacy tables as `iptables-save -c` lists them, except empty ones, which the kernel creates on a lookup.
    pub(crate) legacy: String,
    /// Our policy rules, routes and addresses: the name that errors use for each, a tab, and its details.
    pub(crate) routing: BTreeSet<String>,
    /// Our eBPF programs, and the objects that they need.
    pub(crate) programs: String,
    /// All foreign objects, with handles and counters.
    pub(crate) foreign: String,
}

impl State {
    /// Reads the state of a case's environment.
    ///
    /// # Errors
    /// A namespace cannot be read.
    pub(crate) fn at(place: &Place) -> std::result::Result<Self, String> {
        let read = |netns| Self::read(netns).map_err(|e| e.to_string());
        let mut state = read(&place.netns)?;
        if let Some(mounted) = &place.bpffs {
            state.programs = programs(&place.netns, mounted.path())?;
        }
        let Some(neighbours) = &place.neighbours else {
            return Ok(state);
        };
        let proxy = read(&neighbours.proxy)?;
        state.nft += &proxy.nft;
        state.legacy += &proxy.legacy;
        let of_proxy = proxy
            .routing
            .iter()
            .map(|item| format!("{item} of the proxy"));
        state.routing.extend(of_proxy);
        let sysctls = place.netns.run(node::sysctls).map_err(|e| e.to_string())?;
        state.routing.extend(sysctls.map_err(|e| e.to_string())?);
        // Counters are ignored here: the kernel sends packets when links are created and deleted.
        Ok(Self {
            nft: without_counters_of_nft(&state.nft),
            foreign: without_counters_of_nft(&state.foreign),
            legacy: state.ours().legacy,
            ..state
        }
        .without_legacy_counters())
    }

    fn read(netns: &Netns) -> Result<Self> {
        let sets = show::sets_text(netns)?;
        netns.run(|| {
            let mut state = Self::default();
            state.read_nft()?;
            state.nft += &comparable(&sets);
            state.read_legacy()?;
            state.read_routing()?;
            Ok(state)
        })?
    }

    fn read_nft(&mut self) -> Result<()> {
        let snapshot = nft::NftEngine::open()?.read()?;
        let mut texts = Vec::new();
        for (t, table) in snapshot.ruleset.tables.iter().enumerate() {
            let only = Ruleset {
                tables: vec![table.clone()],
            };
            let mut text = only.to_string();
            let name = table.name.as_str();
            let is_ours = table.family == NftFamily::Inet
                && (TABLES.contains(&name)
                    || weir_ambient::TABLES.contains(&name)
                    || [HOST_TABLE, PROXY_TABLE].contains(&name));
            if !is_ours {
                for c in 0..table.chains.len() {
                    text += &format!("# handles {:?}\n", snapshot.handles(t, c));
                }
            }
            texts.push((is_ours, text));
        }
        // The kernel lists tables in the order of their creation.
        texts.sort();
        for (is_ours, text) in texts {
            match is_ours {
                true => self.nft += &text,
                false => self.foreign += &text,
            }
        }
        Ok(())
    }

    fn read_legacy(&mut self) -> Result<()> {
        let snapshot = xtables::XtEngine::open()?.read()?;
        for family in [XtFamily::Ip, XtFamily::Ip6] {
            let mut tables: Vec<String> = snapshot
                .save(family)
                .split_inclusive("COMMIT\n")
                .filter(|text| !is_untouched(text))
                .map(str::to_owned)
                .collect();
            tables.sort();
            for text in tables {
                self.legacy += &format!("# {family:?}\n{text}");
                for line in text.lines().filter(|l| is_foreign(l)) {
                    self.foreign += &format!("{family:?} {line}\n");
                }
            }
        }
        Ok(())
    }

    fn read_routing(&mut self) -> Result<()> {
        let routing = Routing::open()?;
        let weir = RouteProtocol::Other(RTPROT_WEIR);
        let mut foreign = BTreeSet::new();
        let mut put = |is_ours: bool, text: String| match is_ours {
            true => self.routing.insert(text),
            false => foreign.insert(text),
        };
        let links = routing.links()?;
        let carriers = links.iter().filter(|link| node::is_carrier(&link.name));
        let is_of_carrier = |index: Option<u32>| {
            let mut carriers = carriers.clone();
            carriers.any(|link| Some(link.index) == index)
        };
        let name_of = |index: Option<u32>| {
            let found = links.iter().find(|link| Some(link.index) == index);
            found.map_or("", |link| link.name.as_str())
        };
        for link in carriers.clone() {
            put(true, format!("{}\t{:?}", link.name, link.kind));
        }
        for rule in routing.rules()? {
            let text = rule.to_string();
            let (text, _) = text.split_once(" priority ").unwrap_or((&text, ""));
            let (_, what) = text.split_once(' ').unwrap_or(("", text));
            let name = format!("ip {} rule delete {what}", option(rule.family));
            put(rule.protocol == weir, format!("{name}\t{rule:?}"));
        }
        for table in ROUTE_TABLES {
            for route in routing.routes(table)? {
                // Routes that the kernel derives from addresses.
                if route.dst.to_string() == PASSTHROUGH || is_of_carrier(route.oif) {
                    continue;
                }
                let name = match route.dst {
                    IpNet::V4(_) => "ip -4 route delete",
                    IpNet::V6(_) => "ip -6 route delete",
                };
                // The name replaces the index: a new link of the same name has another index.
                let link = name_of(route.oif);
                let route = Route { oif: None, ..route };
                put(route.protocol == weir, format!("{name}\t{link} {route:?}"));
            }
        }
        for address in routing.addresses()? {
            let is_ours =
                address.net.to_string() == PASSTHROUGH || is_of_carrier(Some(address.index));
            let name = format!("ip -6 address delete {}", address.net);
            let link = name_of(Some(address.index));
            let address = Address {
                index: 0,
                ..address
            };
            put(is_ours, format!("{name}\t{link} {address:?}"));
        }
        for line in foreign {
            self.foreign += &line;
            self.foreign.push('\n');
        }
        Ok(())
    }

    /// A copy without the counters of legacy rules.
    ///
    /// The kernel replaces a table with zero counters, and a separate call adds the old counters: a process that is killed
    /// in between loses them; the iptables tools have the same gap.
    pub(crate) fn without_legacy_counters(&self) -> Self {
        Self {
            legacy: uncounted(&self.legacy),
            // A listing with counters includes the policies.
            foreign: without_policies(&uncounted(&self.foreign)),
            ..self.clone()
        }
    }

    /// A copy with only our objects, without counters, and with routing reduced to names. With another writer nothing else
    /// can be compared: for example, the kernel assigns a free priority to a policy rule.
    pub(crate) fn ours(&self) -> Self {
        let name = |item: &String| item.split('\t').next().unwrap_or_default().to_owned();
        let routing = self.routing.iter().map(name).collect();
        let (nft, programs) = (self.nft.clone(), self.programs.clone());
        let mut family = "";
        let mut table = "";
        let mut legacy = String::new();
        let uncounted = uncounted(&self.legacy);
        for line in uncounted.lines() {
            match line.get(..1) {
                Some("#") => family = line,
                Some("*") => table = line,
                _ if is_foreign(line) || line == "COMMIT" || line.ends_with(" ACCEPT [0:0]") => {}
                _ => legacy += &format!("{family} {table} {line}\n"),
            }
        }
        Self {
            nft,
            legacy,
            routing,
            programs,
            foreign: String::new(),
        }
    }

    /// The differences from another state, by part.
    pub(crate) fn difference(&self, other: &Self) -> String {
        let mut text = String::new();
        let lines = |text: &str| -> Vec<String> { text.lines().map(str::to_owned).collect() };
        let parts = [
            ("nft", lines(&self.nft), lines(&other.nft)),
            ("legacy", lines(&self.legacy), lines(&other.legacy)),
            (
                "routing",
                self.routing.iter().cloned().collect(),
                other.routing.iter().cloned().collect(),
            ),
            ("programs", lines(&self.programs), lines(&other.programs)),
            ("foreign", lines(&self.foreign), lines(&other.foreign)),
        ];
        for (part, left, right) in parts {
            let only = |a: &[String], b: &[String], sign: &str| -> String {
                let lines = a.iter().filter(|l| !b.contains(l));
                lines.map(|l| format!("  {part} {sign} {l}\n")).collect()
            };
            text += &only(&left, &right, "-");
            text += &only(&right, &left, "+");
        }
        text
    }
}

/// The attached programs by stable names, the pinned objects, and the sysctls of `lo`.
fn programs(netns: &Netns, mounted: &Path) -> std::result::Result<String, String> {
    let bpffs = Bpffs::at(mounted).map_err(|e| e.to_string())?;
    let shown = weir_ebpf::show::read(netns, Some(&bpffs)).map_err(|e| e.to_string())?;
    let mut text = String::new();
    for program in &shown.programs {
        let whose = if program.pin.is_some() {
            "ours"
        } else {
            "not pinned"
        };
        text += &format!(
            "{} {}: {}, {whose}\n",
            program.interface, program.hook, program.name
        );
    }
    let mut folders = vec![mounted.to_owned()];
    let mut pins = BTreeSet::new();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).map_err(|e| e.to_string())? {
            let path = entry.map_err(|e| e.to_string())?.path();
            match path.is_dir() {
                true => folders.push(path),
                false => drop(pins.insert(path.file_name().unwrap_or_default().to_owned())),
            }
        }
    }
    for pin in pins {
        text += &format!("pin {}\n", pin.display());
    }
    let switches = netns.run(|| {
        ["accept_local", "route_localnet"].map(|name| {
            let value = std::fs::read_to_string(format!("/proc/sys/net/ipv4/conf/lo/{name}"));
            value.map(|value| format!("{name}={}", value.trim()))
        })
    });
    for switch in switches.map_err(|e| e.to_string())? {
        let switch = switch.map_err(|e| e.to_string())?;
        if !switch.ends_with("=0") {
            text += &(switch + "\n");
        }
    }
    Ok(text)
}

fn option(family: AddressFamily) -> &'static str {
    match family {
        AddressFamily::V6 => "-6",
        _ => "-4",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_name_their_part() {
        let left = State {
            nft: "a\nb\n".into(),
            ..State::default()
        };
        let right = State {
            nft: "b\n".into(),
            routing: ["r".to_owned()].into(),
            ..State::default()
        };
        assert_eq!(left.difference(&right), "  nft - a\n  routing + r\n");
        assert_eq!(left.difference(&left), "");
    }
}
