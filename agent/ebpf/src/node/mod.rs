//! Redirection at the node: what enrolled pods send and receive goes to the one proxy of the node, without tunnels, rules of
//! netfilter and routes in the node's namespace. Needs tcx links (6.6).
//!
//! ```text
//! pod eth0 -- host end [ingress: FromPod] --redirect_peer--> proxy eth0 [ingress: Proxy] --sk_assign--> ztunnel 15001
//! pod eth0 <-- host end [egress: ToPod] <-- the node        --redirect--> host end of the proxy --> proxy eth0, 15006, 15008
//! pod eth0 <--redirect_peer-- host end of the proxy [ingress: FromProxy] <-- proxy eth0 <-- ztunnel
//! ```
//! Packets keep their addresses. Differences from the programs of Istio 1.20:
//!
//! - The direction is told by the addresses, not by the control block of the packet, which GRO overwrites.
//! - IPv6, IP options and extension headers; every address of the node and of a pod.
//! - Without a socket of ztunnel a packet is dropped, and the proxy's namespace forwards nothing.
//! - Frames keep their hardware addresses: the receiver's program says that they are for it.
//! - UDP and DNS pass, as all that is not TCP; programs of other writers at the same hooks go on running.

mod maps;
mod plan;
mod programs;
#[cfg(test)]
mod tests;

pub(crate) use maps::counters;
pub use plan::{Change, Proxy, Wanted};
pub use programs::{NodeRole, assemble};

use crate::attach::{attach, held, is_listed, load_code, mistake, name_of, replace};
use crate::failed;
use crate::pins::{self, Bpffs};
use crate::plan::{Direction, pin_name};
use maps::{Maps, Which};
use plan::{Detached, Names, Observed};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use weir_bpf::Program;
use weir_cni::sysctl;
use weir_netlink::route::{LOOPBACK_IFINDEX, Routing};
use weir_netlink::{Error, Netns, Result};

/// The node's namespace, and the folder of its pins.
#[derive(Debug)]
pub struct Node<'a> {
    host: &'a Netns,
    bpffs: &'a Bpffs,
    folder: PathBuf,
}

/// What differs.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Changes {
    /// In the node's namespace.
    pub host: Vec<Change>,
    /// In the proxy's.
    pub proxy: Vec<Change>,
}

impl Changes {
    /// Nothing is missing and nothing is in excess.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.host.is_empty() && self.proxy.is_empty()
    }
}

/// Maps for a trial of the programs.
pub(crate) fn trial_maps() -> Result<Maps> {
    Maps::create()
}

fn names(wanted: &Wanted) -> Result<Names> {
    let named = |role: NodeRole| {
        let code = assemble(role, wanted.has_ipv6).map_err(|e| mistake(role, &e))?;
        Ok((role, name_of(role.letter(), &code)))
    };
    NodeRole::ALL.into_iter().map(named).collect()
}

/// A number of a sysctl; `None` where this kernel or namespace does not have it.
fn read_number(key: &str) -> Result<Option<u32>> {
    match sysctl::read(key) {
        Ok(text) => Ok(text.parse().ok()),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(Error::io("read", format!("sysctl net/{key}"), &e)),
    }
}

fn write_number(key: &str, value: u32) -> Result<()> {
    sysctl::write(key, &value.to_string()).map_err(|e| {
        let object = format!("sysctl net/{key}");
        match e.kind() {
            std::io::ErrorKind::ReadOnlyFilesystem => {
                Error::refused("write", object, sysctl::describe(&e))
            }
            _ => Error::io("write", object, &e),
        }
    })
}

/// In the namespace whose pins are in the folder.
fn observe(folder: &Path, keys: impl IntoIterator<Item = String>) -> Result<Observed> {
    let routing = Routing::open()?;
    let links = routing.links()?.into_iter();
    let links: BTreeMap<u32, String> = links.map(|link| (link.index, link.name)).collect();
    let mut sysctls = BTreeMap::new();
    for key in keys {
        if let Some(value) = read_number(&key)? {
            sysctls.insert(key, value);
        }
    }
    let (routes, rules) = plan::read_routing(&routing)?;
    Ok(Observed {
        held: held(folder, |index| links.contains_key(&index))?,
        links,
        contents: maps::contents(folder)?,
        sysctls,
        routes,
        rules,
    })
}

fn keys_of_host(wanted: &Wanted) -> Vec<String> {
    let device = wanted.proxy.iter().map(|proxy| proxy.device.as_str());
    device.chain(["all"]).map(plan::rp_filter).collect()
}

impl<'a> Node<'a> {
    /// The node with this namespace.
    #[must_use]
    pub fn of(host: &'a Netns, bpffs: &'a Bpffs) -> Self {
        Self {
            folder: bpffs.folder(host),
            host,
            bpffs,
        }
    }

    /// How the node differs from what is wanted. Nothing is changed.
    ///
    /// # Errors
    /// A namespace cannot be read, or a link is gone.
    pub fn compare(&self, wanted: &Wanted) -> Result<Changes> {
        let names = names(wanted)?;
        let proxy = match &wanted.proxy {
            Some(proxy) => {
                let netns = Netns::open(&proxy.netns)?;
                let folder = self.bpffs.folder(&netns);
                netns.run(|| {
                    let observed = observe(&folder, plan::forwarding(&proxy.interface))?;
                    plan::plan_proxy(proxy, wanted.has_ipv6, &names, &observed)
                })??
            }
            None => Vec::new(),
        };
        let host = self.host.run(|| {
            let observed = observe(&self.folder, keys_of_host(wanted))?;
            plan::plan_host(wanted, &names, &observed)
        })??;
        Ok(Changes { host, proxy })
    }

    /// Makes the node as is wanted: the proxy's namespace first, then the maps, and the programs of pods last. What is
    /// attached stays when this process ends. After an error hooks that were attached by this call are detached again.
    ///
    /// # Errors
    /// The kernel refuses a part, or something else is there when it is read back.
    pub fn apply(&self, wanted: &Wanted) -> Result<Changes> {
        let _lock = self.bpffs.lock()?;
        let changes = self.compare(wanted)?;
        if changes.is_empty() {
            return Ok(changes);
        }
        let mut attached = Vec::new();
        let done = self.write(wanted, &changes, &mut attached);
        let done = done.and_then(|()| {
            let left = self.compare(wanted)?;
            match left.proxy.first().or(left.host.first()) {
                None => Ok(()),
                Some(first) => {
                    let reason = format!("after it was applied, weir would still {first}");
                    Err(Error::refused("verify", "the redirection by eBPF", reason))
                }
            }
        });
        if done.is_err() {
            // Those of pods first, so that nothing is redirected to where nothing is.
            for path in attached.iter().rev() {
                let _ = pins::unpin(path);
            }
        }
        done.map(|()| changes)
    }

    fn write(&self, wanted: &Wanted, changes: &Changes, attached: &mut Vec<PathBuf>) -> Result<()> {
        // The kernel is asked before anything is changed.
        let supported = || is_listed((LOOPBACK_IFINDEX, Direction::Ingress), 0);
        self.host.run(supported)??;
        create(&self.folder)?;
        let mut writer = Writer {
            maps: Maps::pinned(&self.folder)?,
            dual: wanted.has_ipv6,
            programs: BTreeMap::new(),
            attached,
        };
        if let Some(proxy) = &wanted.proxy {
            let netns = Netns::open(&proxy.netns)?;
            let folder = self.bpffs.folder(&netns);
            create(&folder)?;
            netns.run(|| writer.write(&folder, &changes.proxy))??;
        }
        self.host
            .run(|| writer.write(&self.folder, &changes.host))?
    }

    /// What [`Node::remove`] would change in the node's namespace.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn plan_removal(&self) -> Result<Vec<Change>> {
        self.host.run(|| removal(&self.folder, false))?
    }

    /// Detaches the programs of weir from the node and from these namespaces of proxies, deletes the routing there, and puts
    /// sysctls back. Nothing there is success.
    ///
    /// # Errors
    /// The first failure; the rest was attempted.
    pub fn remove(&self, proxies: &[Netns]) -> Result<Vec<Change>> {
        let _lock = self.bpffs.lock()?;
        let forgotten = self.forget();
        let done = self.host.run(|| remove_here(&self.folder, false))?;
        let mut done = forgotten.and(done);
        for netns in proxies {
            let folder = self.bpffs.folder(netns);
            let removed = netns.run(|| remove_here(&folder, true))?;
            done = match (done, removed) {
                (Ok(mut all), Ok(more)) => {
                    all.extend(more);
                    Ok(all)
                }
                (Ok(_), Err(e)) => Err(e),
                (failed, _) => failed,
            };
        }
        done
    }

    /// Forgets the pods: a program in the namespace of a proxy that is not known here lets everything pass then.
    fn forget(&self) -> Result<()> {
        if !self.folder.is_dir() {
            return Ok(());
        }
        let maps = Maps::pinned(&self.folder)?;
        let pods = maps::contents(&self.folder)?.pods;
        pods.into_keys()
            .try_for_each(|address| maps.delete(Which::Pods, address))
    }

    /// Something is pinned for this node.
    #[must_use]
    pub fn is_present(&self) -> bool {
        self.folder.is_dir()
    }

    /// The counters of its programs; `None` if it has none.
    #[must_use]
    pub fn counters(&self) -> Option<Vec<(&'static str, u64)>> {
        maps::counters(&self.folder)
    }
}

fn create(folder: &Path) -> Result<()> {
    let object = folder.display().to_string();
    std::fs::create_dir_all(folder).map_err(|e| failed("create", &object, &e))
}

/// Keys of what was changed: an index of a link for its `rp_filter`, or below those of proxies.
const FORWARDING: [u32; 2] = [u32::MAX, u32::MAX - 1];

/// The sysctl of a key in `weir_sysctls`, in this namespace.
fn sysctl_of(key: u32, observed: &Observed, interface: Option<&str>) -> Option<(String, u32)> {
    match FORWARDING.iter().position(|k| *k == key) {
        Some(place) => {
            let name = plan::forwarding(interface?).into_iter().nth(place)?;
            Some((name, 0))
        }
        None => Some((plan::rp_filter(observed.links.get(&key)?), plan::LOOSE)),
    }
}

/// What would be removed from the namespace of this thread.
fn removal(folder: &Path, is_proxy: bool) -> Result<Vec<Change>> {
    if !folder.is_dir() {
        return Ok(Vec::new());
    }
    let observed = observe(folder, [])?;
    let mut changes: Vec<Change> = observed
        .held
        .iter()
        .map(|(hook, held)| observed.detach(*hook, held))
        .collect();
    let interface = observed.held.keys().next();
    let interface = interface.and_then(|(index, _)| observed.links.get(index));
    for (key, value) in maps::before(folder)? {
        let Some((name, ours)) = sysctl_of(key, &observed, interface.map(String::as_str)) else {
            continue;
        };
        // What another writer set since stays.
        if read_number(&name)? == Some(ours) && value != ours {
            changes.push(Change::Sysctl(name, value));
        }
    }
    if is_proxy {
        let own = plan::routing(true);
        let rules = observed.rules.iter();
        let rules = rules.filter(|r| own.iter().any(|(_, rule)| rule.same_effect(r)));
        changes.extend(rules.cloned().map(Change::DeleteRule));
        let routes = observed.routes.iter();
        let routes = routes.filter(|r| own.iter().any(|(route, _)| route.same_effect(r)));
        changes.extend(routes.cloned().map(Change::DeleteRoute));
    }
    Ok(changes)
}

fn remove_here(folder: &Path, is_proxy: bool) -> Result<Vec<Change>> {
    let changes = removal(folder, is_proxy)?;
    let routing = Routing::open()?;
    let mut failure = Ok(());
    for change in &changes {
        failure = failure.and(match change {
            Change::Detach(_, Detached(hook), _) => pins::unpin(&folder.join(pin_name(*hook))),
            Change::DeleteRule(rule) => routing.del_rule(rule).map(drop),
            Change::DeleteRoute(route) => routing.del_route(route).map(drop),
            Change::Sysctl(key, value) => write_number(key, *value),
            _ => Ok(()),
        });
    }
    // Last: it knows how the sysctls were.
    failure.and(pins::delete(folder))?;
    Ok(changes)
}

/// Writes changes in the namespace of the thread; every program is loaded once.
struct Writer<'a> {
    maps: Maps,
    dual: bool,
    programs: BTreeMap<NodeRole, Program>,
    attached: &'a mut Vec<PathBuf>,
}

impl Writer<'_> {
    fn write(&mut self, folder: &Path, changes: &[Change]) -> Result<()> {
        let routing = Routing::open()?;
        for change in changes {
            match change {
                Change::Sysctl(key, value) => {
                    remember(folder, &routing, key)?;
                    write_number(key, *value)?;
                }
                Change::AddRoute(route) => drop(routing.add_route(route)?),
                Change::AddRule(rule) => drop(routing.add_rule(rule)?),
                Change::DeleteRoute(route) => drop(routing.del_route(route)?),
                Change::DeleteRule(rule) => drop(routing.del_rule(rule)?),
                Change::Pod(address, _, index) => self.maps.put(Which::Pods, *address, *index)?,
                Change::NoPod(address) => self.maps.delete(Which::Pods, *address)?,
                Change::Address(address) => self.maps.put(Which::Node, *address, 1)?,
                Change::NoAddress(address) => self.maps.delete(Which::Node, *address)?,
                Change::Proxy(_, index) => self.maps.set_proxy(*index)?,
                Change::NoProxy => self.maps.set_proxy(0)?,
                Change::Attach(a) => {
                    let path = folder.join(pin_name(a.hook));
                    pins::unpin(&path)?;
                    let object = a.to_string();
                    attach(&object, a.hook, self.program(a.role, &a.program)?, &path)?;
                    self.attached.push(path);
                }
                Change::Replace(a) => {
                    let path = folder.join(pin_name(a.hook));
                    replace(&path, self.program(a.role, &a.program)?)?;
                }
                Change::Detach(_, Detached(hook), _) => {
                    pins::unpin(&folder.join(pin_name(*hook)))?;
                }
            }
        }
        Ok(())
    }

    fn program(&mut self, role: NodeRole, name: &str) -> Result<&Program> {
        use std::collections::btree_map::Entry;
        Ok(match self.programs.entry(role) {
            Entry::Occupied(loaded) => loaded.into_mut(),
            Entry::Vacant(place) => {
                let code = assemble(role, self.dual).map_err(|e| mistake(role, &e))?;
                place.insert(load_code(&code, name, &self.maps.list())?)
            }
        })
    }
}

/// Writes down what a sysctl is before it is changed.
fn remember(folder: &Path, routing: &Routing, key: &str) -> Result<()> {
    let mut parts = key.split('/').rev();
    let (last, name) = (parts.next(), parts.next().unwrap_or_default());
    let number = match last {
        Some("rp_filter") => routing.link(name)?.index,
        _ if key.starts_with("ipv4/") => FORWARDING[0],
        _ => FORWARDING[1],
    };
    match read_number(key)? {
        Some(value) => maps::remember(folder, number, value),
        None => Ok(()),
    }
}
