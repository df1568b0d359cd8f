//! Applies a configuration to a node.
//!
//! Order of a change, so that no packet of an enrolled pod sees half of it:
//! 1. Add the unreachable default routes and the links, then everything in the proxy's namespace.
//! 2. Add the routes of the node, including the guards; and the policy rules of a family of which some are in force. Delete routes of
//!    pods that are no longer enrolled, and the policy rules of a family that is no longer captured.
//! 3. Write rules and sets, with the previous values of sysctls; then the sysctls.
//! 4. Add the policy rules: from now on marks take effect. Delete those that are no longer desired.
//! 5. Replace in place the routes that led to another proxy, and delete those that no policy rule leads to any longer; then delete
//!    the links to it, and addresses of links.
//!
//! If a step of the first change fails, the whole change is rolled back. A later change that fails leaves the policy rules that were
//! in force, and the guards: captured packets go to the proxy or are refused, and the next attempt continues from the current state.

use crate::before::Before;
use crate::collide::{Collision, collisions, has_own};
use crate::config::Config;
use crate::discover::{By, discover};
use crate::node::{Carrier, Node};
use crate::objects::{self, Objects, PROXY_PRIORITIES, RETURN_MARK, RouteSpec, TPROXY_MARK};
use crate::plan::{Observed, Step, accept_dad, memory, observe, plan, values};
use crate::proxied::{self, Redirected};
use crate::remove::{config_of_proxies, removal, remove_locked};
use crate::reused::reused;
use crate::rules::{self, Side};
use std::collections::BTreeMap;
use std::net::IpAddr;
use weir_cni::compile::Engine;
use weir_ebpf::{Lock, netns_if_there};
use weir_netlink::route::{Geneve, Link, LinkKind, Route, Routing, Vxlan};
use weir_netlink::{Error, InForce, Netns, Result};

/// The steps of a change of the node, planned or done.
#[derive(Clone, Debug)]
pub struct Change {
    /// The node that the steps were computed from.
    pub node: Node,
    /// The engine of the rules in the node's namespace.
    pub engine: Engine,
    /// Steps in the node's namespace.
    pub host: Vec<Step>,
    /// Steps in the proxy's namespace.
    pub proxy: Vec<Step>,
    /// Foreign objects with the same numbers or names.
    pub collisions: Vec<Collision>,
    /// Previous values of the sysctls that the change needs.
    pub sysctls: BTreeMap<String, String>,
}

impl Change {
    /// True if the node is in sync.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.host.is_empty() && self.proxy.is_empty()
    }

    /// Returns the collision that prevents the change, if nothing is in force yet. Once something is in force, a collision does not
    /// prevent an update: capturing for a proxy or a pod that is gone would be worse. A removal is never refused.
    ///
    /// # Errors
    /// The current state cannot be read.
    pub fn refused(&self, host: &Netns) -> Result<Option<&Collision>> {
        let first = self.collisions.first();
        match first.filter(|_| self.node.is_capturing()) {
            Some(first) => Ok((!is_in_force(host)?).then_some(first)),
            None => Ok(None),
        }
    }
}

/// Compares a node with the configuration. Changes nothing.
///
/// # Errors
/// An object was not found, or cannot be read.
pub fn compare(config: &Config, host: &Netns, engine: Option<Engine>) -> Result<Change> {
    host.run(|| compare_here(config, engine))?
}

fn compare_here(config: &Config, engine: Option<Engine>) -> Result<Change> {
    let (mut node, _) = discover(config, By::Rules, &Before::by_rules)?;
    let engine = engine.map_or_else(|| rules::choose(&node, Side::Host), Ok)?;
    if engine == Engine::Xtables && !node.bridges.is_empty() {
        (node, _) = discover(config, By::LegacyRules, &Before::by_rules)?;
    }
    let mut collisions = collisions(&node)?;
    let desired = objects::host(&node);
    let proxy_netns = proxy_netns(&node)?;
    let redirected = Redirected {
        table: config.routing.inbound_table,
        marks: &[
            (TPROXY_MARK, PROXY_PRIORITIES[0]),
            (RETURN_MARK, PROXY_PRIORITIES[1]),
        ],
    };
    collisions.extend(proxied::collisions(&node, redirected)?);
    let (steps, memory) = if node.is_capturing() {
        let (observed, memory) = look(&node, &desired, proxy_netns.as_ref())?;
        let reused = reused(&config.marks, &config.routing, &observed.rules);
        if let Some(what) = reused {
            let reason = format!(
                "{what}, and the configuration uses it for something else; choose numbers that are not in use, or remove what is in force first (weir clean node-ambient)"
            );
            return Err(Error::refused(
                "change",
                "the redirection at the node",
                reason,
            ));
        }
        let changes = rules::drift(&node, Side::Host, engine, &memory)?;
        (plan(&desired, &observed).with(changes), memory)
    } else {
        let steps = removal(&Routing::open()?, Some(config))?;
        (without_empty(steps), BTreeMap::new())
    };
    let mut proxy = match &proxy_netns {
        Some(netns) => netns.run(|| proxy_steps(&node))??.0,
        None => Vec::new(),
    };
    if !node.is_capturing() {
        let at_proxy = config_of_proxies(config);
        for of in &config.proxies {
            // If the namespace is gone, so is everything in it.
            if let Some(netns) = netns_if_there(&of.netns)? {
                proxy.extend(netns.run(|| removal(&Routing::open()?, Some(&at_proxy)))??);
            }
        }
        proxy = without_empty(proxy);
    }
    Ok(Change {
        node,
        engine,
        host: steps,
        proxy,
        collisions,
        sysctls: memory,
    })
}

/// Leaves out steps without a change.
fn without_empty(mut steps: Vec<Step>) -> Vec<Step> {
    steps.retain(|step| !matches!(step, Step::Netfilter(changes) if changes.is_empty()));
    steps
}

fn proxy_netns(node: &Node) -> Result<Option<Netns>> {
    let active = node.active.as_ref();
    active.map(|p| Netns::open(&p.proxy.netns)).transpose()
}

fn look(
    node: &Node,
    desired: &Objects,
    proxy: Option<&Netns>,
) -> Result<(Observed, BTreeMap<String, String>)> {
    let routing = Routing::open()?;
    let before = remembered(&node.config)?;
    let mut observed = observe(&routing, desired, before)?;
    if let Some(netns) = proxy {
        observed.peer_nsid = routing.nsid(netns)?;
    }
    let memory = memory(desired, &observed);
    Ok((observed, memory))
}

/// Returns the previous values of sysctls; those stored in the rules take precedence.
pub(crate) fn remembered(config: &Config) -> Result<BTreeMap<String, String>> {
    let mut all = config.sysctls.clone();
    all.extend(rules::memory()?);
    Ok(all)
}

/// Returns the steps in the proxy's namespace and the previous values of sysctls there.
fn proxy_steps(node: &Node) -> Result<(Vec<Step>, BTreeMap<String, String>)> {
    let desired = objects::proxy(node);
    let observed = observe(&Routing::open()?, &desired, rules::memory()?)?;
    let memory = memory(&desired, &observed);
    let engine = rules::choose(node, Side::Proxy)?;
    let changes = rules::drift(node, Side::Proxy, engine, &memory)?;
    Ok((plan(&desired, &observed).with(changes), memory))
}

/// Applies the configuration to the node. Without `force`, nothing is written if a foreign object has the same number or name
/// ([`Change::refused`]).
///
/// # Errors
/// A collision, or the step that failed; the order of a change above tells what is in force then.
pub fn apply(config: &Config, host: &Netns, engine: Option<Engine>, force: bool) -> Result<Change> {
    let _lock = Lock::of_netns(host)?;
    apply_locked(config, host, engine, force)
}

pub(crate) fn apply_locked(
    config: &Config,
    host: &Netns,
    engine: Option<Engine>,
    force: bool,
) -> Result<Change> {
    let change = compare(config, host, engine)?;
    let refused = if force { None } else { change.refused(host)? };
    if let Some(first) = refused {
        let reason = format!(
            "{first} ({} such in total; --force applies nevertheless)",
            change.collisions.len()
        );
        return Err(Error::refused(
            "apply",
            "the redirection at the node",
            reason,
        ));
    }
    if !change.node.is_capturing() {
        remove_locked(host, Some(config))?;
        return Ok(change);
    }
    let was_empty = !is_in_force(host)?;
    // Programs that capture until the rules do need these values, also if the change to rules fails.
    let in_use = host.run(|| values(config.sysctls.keys()))??;
    let done = write(&change, host);
    done.map_err(|e| {
        let is_undone = was_empty && remove_locked(host, Some(config)).is_ok();
        let restore = || {
            in_use
                .iter()
                .try_for_each(|(key, value)| write_sysctl(key, value))
        };
        let is_restored = matches!(host.run(restore), Ok(Ok(())));
        // Report the first error, with whether something may be left. Its own value covers only the step that failed.
        e.with_in_force(match is_undone && is_restored {
            true => InForce::No,
            false => InForce::Unknown,
        })
    })?;
    Ok(change)
}

/// True if this crate has written to a namespace. Legacy rules do not count: their chains have the same names as those of Istio's agent.
fn is_in_force(host: &Netns) -> Result<bool> {
    host.run(|| has_own(&Routing::open()?))?
}

/// True if a namespace has policy rules, routes or netfilter rules of this redirection.
///
/// # Errors
/// The state of the namespace cannot be read.
pub fn is_present(host: &Netns) -> Result<bool> {
    host.run(|| Ok(has_own(&Routing::open()?)? || rules::present()?.is_some()))?
}

fn write(change: &Change, host: &Netns) -> Result<()> {
    let node = &change.node;
    let proxy = proxy_netns(node)?;
    let is_made_anew = |name: &String| {
        let mut steps = change.host.iter();
        steps.any(|s| matches!(s, Step::AddLink(link) if link.name == *name))
    };
    // The routes by which `has_own` recognizes the redirection are added first and deleted last, so that leftovers of a killed
    // process are found.
    let is_sign =
        |s: &&Step| matches!(s, Step::AddRoute(spec) if objects::is_guard_of_all(&spec.route));
    let is_early = |s: &&Step| match s {
        Step::AddLink(_) | Step::SkipDad(_) | Step::AddAddress(..) | Step::SetUp(_) => true,
        Step::DeleteLink(name) => is_made_anew(name),
        _ => false,
    };
    host.run(|| {
        let routing = Routing::open()?;
        let signs = change.host.iter().filter(is_sign);
        signs
            .chain(change.host.iter().filter(is_early))
            .try_for_each(|step| execute(&routing, step, proxy.as_ref()))
    })??;
    if let Some(netns) = &proxy {
        netns.run(|| {
            let routing = Routing::open()?;
            // Plan again, because the pairs exist now. The route comes first: `has_own` looks for it.
            let (mut steps, memory) = proxy_steps(node)?;
            steps.sort_by_key(|s| !matches!(s, Step::AddRoute(_)));
            for step in steps {
                match step {
                    Step::Netfilter(_) => {
                        let engine = rules::choose(node, Side::Proxy)?;
                        rules::apply(node, Side::Proxy, engine, &memory)?;
                    }
                    step => execute(&routing, &step, None)?,
                }
            }
            Ok::<(), Error>(())
        })??;
    }
    host.run(|| {
        let routing = Routing::open()?;
        let desired = objects::host(node);
        let (observed, memory) = look(node, &desired, proxy.as_ref())?;
        let plan = plan(&desired, &observed);
        let execute = |step| execute(&routing, step, proxy.as_ref());
        plan.before.iter().try_for_each(execute)?;
        rules::apply(node, Side::Host, change.engine, &memory)?;
        plan.after.iter().try_for_each(execute)
    })?
}

pub(crate) fn execute(routing: &Routing, step: &Step, proxy: Option<&Netns>) -> Result<()> {
    match step {
        Step::DeleteRule(rule) => routing.del_rule(rule).map(drop),
        Step::AddRule(rule) => routing.add_rule(rule).map(drop),
        Step::DeleteRoute(spec) => routing.del_route(&spec.route).map(drop),
        Step::AddRoute(spec) => match routing.add_route(&with_link(routing, spec)?)? {
            true => Ok(()),
            false => {
                let reason = "a route to the same destination with the same metric is in that table; delete it or choose other tables";
                Err(Error::refused("add", format!("route {spec}"), reason))
            }
        },
        Step::ReplaceRoute(spec) => routing.replace_route(&with_link(routing, spec)?),
        Step::DeleteLink(name) => match routing.link(name) {
            Ok(link) => routing.delete_link(link.index).map(drop),
            Err(e) if e.is_not_found() => Ok(()),
            Err(e) => Err(e),
        },
        Step::AddLink(spec) => match (spec.carrier, &spec.peer, proxy) {
            (Carrier::Geneve(port), ..) => {
                let (remote, remote6) = split(spec.remote);
                let kind = LinkKind::Geneve(Geneve {
                    id: Some(spec.vni),
                    remote,
                    remote6,
                    port: Some(port),
                    ..Geneve::default()
                });
                routing.add_link(&Link::new(&spec.name, kind), None)
            }
            (Carrier::Vxlan(port), ..) => {
                let (remote, remote6) = split(spec.remote);
                let kind = LinkKind::Vxlan(Vxlan {
                    id: Some(spec.vni),
                    remote,
                    remote6,
                    port: Some(port),
                    learning: Some(0),
                    ..Vxlan::default()
                });
                routing.add_link(&Link::new(&spec.name, kind), None)
            }
            (Carrier::Veth, Some(peer), Some(netns)) => {
                // The name may belong to a tunnel, or to an end whose peer is in another namespace; pairs with an end here are
                // already deleted.
                let inside = Routing::open_in(netns)?;
                execute(&inside, &Step::DeleteLink(peer.clone()), None)?;
                routing.add_veth(&spec.name, peer, netns)
            }
            (Carrier::Veth, ..) => Ok(()),
        },
        Step::AddAddress(name, net) => routing
            .add_address(routing.link(name)?.index, *net)
            .map(drop),
        Step::DeleteAddress(name, net) => routing
            .del_address(routing.link(name)?.index, *net)
            .map(drop),
        Step::SkipDad(name) => write_sysctl(&accept_dad(name), "0"),
        Step::SetUp(name) => routing.set_up(routing.link(name)?.index),
        Step::Sysctl(key, value) => write_sysctl(key, value),
        Step::Netfilter(_) => Ok(()),
    }
}

fn with_link(routing: &Routing, spec: &RouteSpec) -> Result<Route> {
    let name = spec.device.as_ref();
    let link = name.map(|name| routing.link(name)).transpose()?;
    Ok(Route {
        oif: link.map(|link| link.index),
        ..spec.route.clone()
    })
}

fn split(remote: Option<IpAddr>) -> (Option<IpAddr>, Option<IpAddr>) {
    (
        remote.filter(IpAddr::is_ipv4),
        remote.filter(IpAddr::is_ipv6),
    )
}

/// Writes a sysctl; a missing one is no error, because a device may disappear at any time, with its sysctls.
fn write_sysctl(key: &str, value: &str) -> Result<()> {
    match weir_rules::sysctl::write(key, value) {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(()),
        Err(e) if e.kind() == std::io::ErrorKind::ReadOnlyFilesystem => Err(Error::refused(
            "write",
            format!("sysctl net/{key}"),
            weir_rules::sysctl::describe(&e),
        )),
        Err(e) => Err(Error::io("write", format!("sysctl net/{key}"), &e)),
        Ok(()) => Ok(()),
    }
}
