//! The observed state of a namespace, and the steps from there to the desired objects. Planning is pure; every step prints as the
//! equivalent command.

use crate::config::Numbers;
use crate::node::{Carrier, is_carrier_address};
use crate::objects::{
    CARRIERS, LinkSpec, Objects, PROXY_CARRIERS, RouteSpec, SECOND_CARRIERS, WEIR,
    is_local_default, is_own, is_own_route,
};
use crate::rule_change::RuleChange;
use ipnet::IpNet;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::IpAddr;
use weir_netlink::Result;
use weir_netlink::route::{Address, Link, LinkKind, PolicyRule, Route, RouteType, Routing};
use weir_rules::sysctl;

/// The observed state of a namespace, without netfilter rules.
#[derive(Clone, Debug, Default)]
pub struct Observed {
    /// All links.
    pub links: Vec<Link>,
    /// All addresses.
    pub addresses: Vec<Address>,
    /// Routes with our protocol number, of all tables; and foreign routes with the effect of a desired local route.
    pub routes: Vec<Route>,
    /// All policy rules.
    pub rules: Vec<PolicyRule>,
    /// Sysctls by key, without those whose file is absent.
    pub sysctls: BTreeMap<String, String>,
    /// Previous values of sysctls, as stored in the rules.
    pub memory: BTreeMap<String, String>,
    /// The id of the proxy's namespace in this one.
    pub peer_nsid: Option<i32>,
    /// Tables of this crate, in addition to those of desired routes.
    pub tables: Vec<u32>,
}

/// One change.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// `ip rule delete`
    DeleteRule(PolicyRule),
    /// `ip route delete`
    DeleteRoute(RouteSpec),
    /// `ip link delete`
    DeleteLink(String),
    /// `ip link add`
    AddLink(LinkSpec),
    /// `ip address add`
    AddAddress(String, IpNet),
    /// `ip address delete`
    DeleteAddress(String, IpNet),
    /// `sysctl -w net.ipv6.conf.LINK.accept_dad=0`: the addresses of a new link are usable at once. Until duplicate address detection
    /// ends, after a second or two, the kernel resolves no neighbour on the link, and connections over IPv6 wait.
    SkipDad(String),
    /// `ip link set up`
    SetUp(String),
    /// `ip route add`
    AddRoute(RouteSpec),
    /// `ip route replace`
    ReplaceRoute(RouteSpec),
    /// Changes of rules and sets.
    Netfilter(Vec<RuleChange>),
    /// `sysctl -w`
    Sysctl(String, String),
    /// `ip rule add`
    AddRule(PolicyRule),
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::DeleteRule(rule) => write!(f, "ip rule delete {rule}"),
            Self::DeleteRoute(route) => write!(f, "ip route delete {route}"),
            Self::DeleteLink(name) => write!(f, "ip link delete {name}"),
            Self::AddLink(link) => write!(f, "ip link add {link}"),
            Self::AddAddress(name, net) => write!(f, "ip address add {net} dev {name}"),
            Self::DeleteAddress(name, net) => write!(f, "ip address delete {net} dev {name}"),
            Self::SkipDad(name) => {
                let key = sysctl::name(&accept_dad(name));
                write!(f, "sysctl -w {key}=0")
            }
            Self::SetUp(name) => write!(f, "ip link set {name} up"),
            Self::AddRoute(route) => write!(f, "ip route add {route}"),
            Self::ReplaceRoute(route) => write!(f, "ip route replace {route}"),
            Self::Netfilter(changes) => {
                for (n, change) in changes.iter().enumerate() {
                    write!(f, "{}{change}", if n > 0 { "\n" } else { "" })?;
                }
                Ok(())
            }
            Self::Sysctl(key, value) => {
                write!(f, "sysctl -w {}={value}", sysctl::name(key))
            }
            Self::AddRule(rule) => write!(f, "ip rule add {rule}"),
        }
    }
}

/// Returns the key of the sysctl that [`Step::SkipDad`] writes.
pub(crate) fn accept_dad(link: &str) -> String {
    format!("ipv6/conf/{link}/accept_dad")
}

impl Step {
    /// Returns the equivalent commands: one per change of rules and sets, and one for every other step.
    #[must_use]
    pub fn commands(&self) -> Vec<String> {
        match self {
            Self::Netfilter(changes) => changes.iter().map(ToString::to_string).collect(),
            step => vec![step.to_string()],
        }
    }
}

impl Observed {
    /// Returns the routes of this crate, which may be deleted. Tables of `desired` belong to this crate.
    pub(crate) fn own_routes(&self, desired: &Objects) -> impl Iterator<Item = &Route> {
        let tables = desired.routes.iter().map(|spec| spec.route.table);
        let default = Numbers::default().inbound_table;
        let tables: Vec<u32> = tables.chain([default]).chain(self.tables.clone()).collect();
        let own = self.routes.iter().filter(|r| r.protocol == WEIR);
        own.filter(move |r| is_own_route(r, &self.rules, &tables))
    }
}

/// Reads sysctls in the network namespace of this thread. One whose link does not exist is left out.
///
/// # Errors
/// One cannot be read: it would be written without its previous value.
pub fn values<'a>(keys: impl Iterator<Item = &'a String>) -> Result<BTreeMap<String, String>> {
    let mut values = BTreeMap::new();
    for key in keys {
        values.extend(sysctl::find(key)?.map(|value| (key.clone(), value)));
    }
    Ok(values)
}

/// Reads the state of the network namespace of this thread; `memory` is from its rules.
///
/// # Errors
/// The state cannot be read.
pub fn observe(
    routing: &Routing,
    desired: &Objects,
    memory: BTreeMap<String, String>,
) -> Result<Observed> {
    let keys = desired.sysctls.iter().map(|s| &s.key).chain(memory.keys());
    let sysctls = values(keys)?;
    let mut routes = routing.routes_by(WEIR)?;
    let local = desired.routes.iter().map(|spec| &spec.route);
    let local = local.filter(|route| route.kind == RouteType::Local);
    for table in local.map(|route| route.table).collect::<BTreeSet<u32>>() {
        let foreign = routing.routes(table)?.into_iter();
        routes.extend(foreign.filter(|r| r.protocol != WEIR && is_local_default(r)));
    }
    Ok(Observed {
        links: routing.links()?,
        addresses: routing.addresses()?,
        routes,
        rules: routing.rules()?,
        sysctls,
        memory,
        peer_nsid: None,
        tables: Vec::new(),
    })
}

/// Returns the previous values of desired sysctls: those already stored, and new ones. A key whose link belongs to this crate, or
/// that has the desired value, needs no stored value.
#[must_use]
pub fn memory(desired: &Objects, observed: &Observed) -> BTreeMap<String, String> {
    let mut memory = observed.memory.clone();
    memory.retain(|key, _| desired.sysctls.iter().any(|s| s.key == *key));
    for sysctl in &desired.sysctls {
        let ours = CARRIERS
            .iter()
            .chain(&SECOND_CARRIERS)
            .chain(&PROXY_CARRIERS)
            .any(|name| sysctl.key.contains(&format!("/{name}/")));
        if let Some(before) = observed.sysctls.get(&sysctl.key)
            && before != sysctl.value
            && !ours
        {
            memory
                .entry(sysctl.key.clone())
                .or_insert_with(|| before.clone());
        }
    }
    memory
}

/// The steps to the desired objects, before and after those for netfilter rules and sets.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan {
    /// New links and routes, and sysctls that get their previous value back: a stored value is dropped after that.
    pub before: Vec<Step>,
    /// Changed sysctls, whose previous values the rules store, and what is no longer needed.
    pub after: Vec<Step>,
}

impl Plan {
    /// Returns all steps, with these changes of rules and sets.
    #[must_use]
    pub fn with(self, changes: Vec<RuleChange>) -> Vec<Step> {
        let rules = (!changes.is_empty()).then_some(Step::Netfilter(changes));
        let mut steps = self.before;
        steps.extend(rules.into_iter().chain(self.after));
        steps
    }
}

/// Plans the steps to the desired objects.
///
/// Routes are added before the policy rules that lead to them, and deleted after these, so that no packet is routed by an
/// incomplete table. Policy rules are deleted after the new ones are there, so that none is routed past the tables meanwhile, as with
/// another priority. While some of a family are in force, the new ones come before the netfilter rules, which may set a new mark. Links that
/// no route needs are deleted last.
#[must_use]
pub fn plan(desired: &Objects, observed: &Observed) -> Plan {
    let mut plan = Plan::default();
    let ours = observed.rules.iter().filter(|r| is_own(r));
    let (kept, mut gone): (Vec<_>, Vec<_>) =
        ours.partition(|there| desired.rules.iter().any(|rule| same_rule(rule, there)));
    gone.sort_by_key(|rule| Reverse(rule.priority));
    let (deleted, unneeded) = links(desired, observed, &mut plan.before);
    let routes = routes(desired, observed, &deleted);
    let leads = |rule: &PolicyRule, spec: &RouteSpec| rule.leads_to(&spec.route);
    // Probes of the node would follow the route of a new pod, and a new proxy's packets that to the proxy, before the netfilter rules except
    // them. A probe would find a guard before the route.
    let is_guard = |spec: &RouteSpec| spec.route.kind == RouteType::Unreachable;
    let is_met = |spec: &RouteSpec| kept.iter().chain(&gone).any(|rule| leads(rule, spec));
    let (mut met, unmet): (Vec<_>, Vec<_>) = routes.new.into_iter().partition(is_met);
    met.sort_by_key(is_guard);
    plan.before.extend(unmet.into_iter().map(Step::AddRoute));
    let is_kept = |rule: &&PolicyRule| kept.iter().any(|there| same_rule(rule, there));
    // A packet that a rule selects never meets a later one without it.
    let mut new: Vec<_> = desired.rules.iter().filter(|r| !is_kept(r)).collect();
    new.sort_by_key(|rule| rule.priority);
    // What nothing leads to would be met by the new rules.
    let (unread, leaving): (Vec<_>, Vec<_>) =
        routes.gone.into_iter().partition(|spec| !is_met(spec));
    plan.before
        .extend(unread.into_iter().map(Step::DeleteRoute));
    let is_in_force = |r: &&PolicyRule| kept.iter().chain(&gone).any(|k| k.family == r.family);
    let (early, late): (Vec<_>, Vec<_>) = new.into_iter().partition(is_in_force);
    // No rule of a family that is no longer captured is of use without its marks.
    let leaves = |gone: &&PolicyRule| !desired.rules.iter().any(|r| r.family == gone.family);
    let (first, last): (Vec<_>, Vec<_>) = gone.into_iter().partition(leaves);
    let add = |rule: &PolicyRule| Step::AddRule(rule.clone());
    let delete = |rule: &PolicyRule| Step::DeleteRule(rule.clone());
    plan.before.extend(early.into_iter().map(add));
    plan.before.extend(first.into_iter().map(delete));
    // The others are deleted with the policy rules that lead to them, and while a tunnel needs them, after its routes.
    let is_read =
        |spec: &RouteSpec| routes.replaced.is_empty() && kept.iter().any(|rule| leads(rule, spec));
    let (mut read, rest): (Vec<_>, Vec<_>) = leaving.into_iter().partition(is_read);
    read.sort_by_key(|spec| !is_guard(spec));
    plan.before.extend(read.into_iter().map(Step::DeleteRoute));
    plan.before.extend(restored(desired, observed));
    plan.after.extend(changed(desired, observed));
    plan.after.extend(met.into_iter().map(Step::AddRoute));
    plan.after.extend(late.into_iter().map(add));
    plan.after.extend(last.into_iter().map(delete));
    plan.after.extend(routes.replaced);
    plan.after.extend(rest.into_iter().map(Step::DeleteRoute));
    plan.after.extend(unneeded);
    plan
}

fn same_rule(a: &PolicyRule, b: &PolicyRule) -> bool {
    a.same_effect(b) && a.priority == b.priority
}

/// Returns the indexes of the deleted links, whose routes the kernel deletes with them; and the steps that come after the routes,
/// such as deletion of the links of one proxy when another one takes over.
fn links(desired: &Objects, observed: &Observed, steps: &mut Vec<Step>) -> (Vec<u32>, Vec<Step>) {
    let (mut deleted, mut late) = (Vec::new(), Vec::new());
    let names = CARRIERS.iter().chain(&SECOND_CARRIERS);
    let names = names.chain(&PROXY_CARRIERS);
    for there in observed
        .links
        .iter()
        .filter(|l| names.clone().any(|n| l.name == *n))
    {
        let wanted = desired.links.iter().find(|l| l.name == there.name);
        let delete = Step::DeleteLink(there.name.clone());
        match wanted {
            None if !desired.rules.is_empty() => late.push(delete),
            Some(wanted) if is_same_link(wanted, there, observed.peer_nsid) => {}
            _ => {
                deleted.push(there.index);
                steps.push(delete);
            }
        }
    }
    for link in &desired.links {
        let there = observed
            .links
            .iter()
            .find(|l| l.name == link.name && !deleted.contains(&l.index));
        // The proxy's end of a pair is created with the node's end.
        let is_created = link.carrier != Carrier::Veth || link.peer.is_some();
        if there.is_none() && is_created {
            steps.push(Step::AddLink(link.clone()));
        }
        let is_up = there.is_some_and(|l| l.up);
        let has_ipv6 = link.addresses.iter().any(|net| net.addr().is_ipv6());
        if has_ipv6 && !is_up {
            steps.push(Step::SkipDad(link.name.clone()));
        }
        for net in &link.addresses {
            let has = |l: &Link| {
                observed
                    .addresses
                    .iter()
                    .any(|a| a.index == l.index && a.net == *net)
            };
            if !there.is_some_and(has) {
                steps.push(Step::AddAddress(link.name.clone(), *net));
            }
        }
        if !is_up {
            steps.push(Step::SetUp(link.name.clone()));
        }
        // Old addresses are deleted after the routes of the link.
        let of_link = observed.addresses.iter();
        let of_link = of_link.filter(|a| there.is_some_and(|l| l.index == a.index));
        let gone =
            of_link.filter(|a| is_carrier_address(&a.net) && !link.addresses.contains(&a.net));
        late.extend(gone.map(|a| Step::DeleteAddress(link.name.clone(), a.net)));
    }
    (deleted, late)
}

fn is_same_link(wanted: &LinkSpec, there: &Link, peer_nsid: Option<i32>) -> bool {
    let same = |id: Option<u32>, remote: [Option<IpAddr>; 2], there: Option<u16>, port| {
        id == Some(wanted.vni)
            && remote.iter().flatten().next() == wanted.remote.as_ref()
            && there == Some(port)
    };
    match (wanted.carrier, &there.kind) {
        (Carrier::Geneve(port), Some(LinkKind::Geneve(g))) => {
            same(g.id, [g.remote, g.remote6], g.port, port)
        }
        (Carrier::Vxlan(port), Some(LinkKind::Vxlan(v))) => {
            same(v.id, [v.remote, v.remote6], v.port, port)
        }
        (Carrier::Veth, Some(LinkKind::Veth(_))) => {
            wanted.peer.is_none() || (there.lower_nsid.is_some() && there.lower_nsid == peer_nsid)
        }
        _ => false,
    }
}

/// Changes of routes.
struct Routes {
    new: Vec<RouteSpec>,
    /// They get another way in place.
    replaced: Vec<Step>,
    /// The outer packet of a tunnel needs its route for as long as another route leads into the tunnel.
    gone: Vec<RouteSpec>,
}

fn routes(desired: &Objects, observed: &Observed, deleted: &[u32]) -> Routes {
    let name = |index: u32| {
        observed
            .links
            .iter()
            .find(|l| l.index == index)
            .map(|l| l.name.clone())
    };
    let there: Vec<RouteSpec> = observed
        .routes
        .iter()
        .filter(|r| !r.oif.is_some_and(|i| deleted.contains(&i)))
        .map(|route| RouteSpec {
            route: route.clone(),
            device: route
                .oif
                .filter(|_| route.kind != RouteType::Unreachable)
                .and_then(name),
        })
        .collect();
    let own: Vec<&Route> = observed.own_routes(desired).collect();
    let gone: Vec<&RouteSpec> = there
        .iter()
        .filter(|t| own.contains(&&t.route))
        .filter(|t| !desired.routes.iter().any(|d| same_route(d, t)))
        .collect();
    let new = desired.routes.iter();
    let new = new.filter(|d| !there.iter().any(|t| same_route(d, t)));
    let (moved, new): (Vec<_>, Vec<_>) =
        new.partition(|d| gone.iter().any(|t| place_of(d) == place_of(t)));
    let stays = |t: &&RouteSpec| !moved.iter().any(|d| place_of(d) == place_of(t));
    Routes {
        new: new.into_iter().cloned().collect(),
        gone: gone.into_iter().filter(stays).cloned().collect(),
        replaced: moved.into_iter().cloned().map(Step::ReplaceRoute).collect(),
    }
}

/// Returns the key of a route: the kernel allows one route per table, destination and metric.
fn place_of(spec: &RouteSpec) -> (u32, IpNet, u32) {
    (spec.route.table, spec.route.dst, spec.route.metric())
}

fn same_route(a: &RouteSpec, b: &RouteSpec) -> bool {
    let key = |s: &RouteSpec| {
        let r = &s.route;
        let way = (r.gateway, s.device.clone(), r.prefsrc, r.onlink);
        (r.dst, r.table, r.kind, r.metric(), way)
    };
    key(a) == key(b)
}

/// Returns the sysctls that get their previous value back because they are no longer desired, unless another writer has changed them
/// since.
fn restored(desired: &Objects, observed: &Observed) -> Vec<Step> {
    let memory = observed.memory.iter().filter(|(key, before)| {
        let value = match key.ends_with("accept_local") {
            true => "1",
            false => "0",
        };
        let is_ours = observed.sysctls.get(*key).is_some_and(|now| now == value);
        is_ours && *before != value && !desired.sysctls.iter().any(|s| s.key == **key)
    });
    let restored = memory.map(|(key, before)| Step::Sysctl(key.clone(), before.clone()));
    restored.collect()
}

/// Returns the sysctls that do not have their desired value.
fn changed(desired: &Objects, observed: &Observed) -> Vec<Step> {
    let sysctls = desired.sysctls.iter().filter(|sysctl| {
        let now = observed.sysctls.get(&sysctl.key);
        // An absent file appears when its link is created.
        now.is_none_or(|now| now != sysctl.value)
    });
    let changed = sysctls.map(|s| Step::Sysctl(s.key.clone(), s.value.to_owned()));
    changed.collect()
}
