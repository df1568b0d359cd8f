//! Collisions: marks, tables, priorities and names that another writer already uses, found before anything is written.

use crate::ahead::Ahead;
use crate::config::Numbers;
use crate::marks::{self, Owner};
use crate::node::Node;
use crate::objects::{
    self, CARRIERS, MAIN_RULE, SECOND_CARRIERS, WEIR, address_family, is_local_default, is_own,
    is_own_route,
};
use crate::services::{Services, services};
use std::cmp::Reverse;
use std::fmt;
use weir_netlink::Result;
use weir_netlink::route::{AddressFamily, PolicyRule, RT_TABLE_LOCAL, Route, Routing, RuleAction};

/// A foreign object with the same number or name, and the setting that avoids it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Collision {
    /// The foreign object.
    pub found: String,
    /// Consequence of the collision.
    pub effect: String,
    /// The setting that avoids it.
    pub setting: &'static str,
    /// True if connections of enrolled pods bypass the proxy, or packets are lost, even if everything is in sync; also if that is
    /// unknown.
    pub bypasses: bool,
}

impl fmt::Display for Collision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}: {}; change the setting {}",
            self.found, self.effect, self.setting
        )
    }
}

/// Finds collisions in the network namespace of this thread. If the kernel does not support an engine, there are no rules of it.
///
/// # Errors
/// The state of the kernel cannot be read.
pub(crate) fn collisions(node: &Node) -> Result<Vec<Collision>> {
    let config = &node.config;
    let routing = Routing::open()?;
    let mut found = Vec::new();
    // Addresses are read before links, so that the link of every address is known.
    let addresses = routing.addresses()?;
    let links = routing.links()?;
    let ahead = Ahead {
        node,
        routing: &routing,
        links: &links,
        addresses: &addresses,
    };
    routes_and_rules(&ahead, &mut found)?;
    found.extend(services(&links, &addresses).iter().map(of_services));
    let carriers = [CARRIERS, SECOND_CARRIERS].concat();
    let is_ours = has_own(&routing)?;
    for link in links
        .iter()
        .filter(|l| carriers.contains(&l.name.as_str()) && !is_ours)
    {
        found.push(Collision {
            found: format!("link {}", link.name),
            effect: "Istio's own node agent has it, or left it; it would be replaced".to_owned(),
            setting: "of Istio's agent: stop it and clean the node first",
            bypasses: false,
        });
    }
    let marks = marks::of_others();
    // Not an error: removal and updates of an existing redirection do not depend on the marks of other writers.
    found.extend(marks.as_ref().err().map(|e| Collision {
        found: "marks in foreign rules".to_owned(),
        effect: format!("unknown: reading the rules failed: {e}"),
        setting: "marks, if they use the same bits",
        bypasses: true,
    }));
    for used in marks.into_iter().flatten() {
        let wanted = match used.owner {
            Owner::Packet | Owner::Socket => config.marks.all(),
            Owner::Connection => config.marks.of_connections(),
        };
        let (shared, decided) = (used.bits & wanted, used.decides & wanted);
        if shared != 0 {
            let (word, bits, place) = (used.owner.word(), used.bits, used.place);
            let mut effect = format!("bits {shared:#x} would have two meanings");
            if decided != 0 {
                effect.push_str(&format!(
                    ", and {decided:#x} change before packets are routed, so that connections of pods bypass the proxy or are lost"
                ));
            }
            found.push(Collision {
                found: format!("{word}mark bits {bits:#x} in {place}"),
                effect,
                setting: "marks",
                bypasses: decided != 0,
            });
        }
    }
    Ok(found)
}

/// True if the namespace of this thread has policy rules or routes of this crate. They are added first and deleted last.
pub(crate) fn has_own(routing: &Routing) -> Result<bool> {
    let rules = routing.rules()?;
    let table = Numbers::default().inbound_table;
    let routes = routing.routes_by(WEIR)?;
    Ok(rules.iter().any(is_own) || routes.iter().any(|r| is_own_route(r, &rules, &[table])))
}

/// Returns the collision with services of IPVS. The local table comes before every policy rule, so no mark can route their
/// packets elsewhere.
fn of_services(services: &Services) -> Collision {
    let first = services.addresses.first().map(ToString::to_string);
    let (count, link) = (services.addresses.len(), services.link);
    Collision {
        found: format!(
            "services of IPVS at link {link} (addresses: {count}, the first {})",
            first.unwrap_or_default()
        ),
        effect: "they are the node's own, so that connections of pods to them bypass the proxy"
            .to_owned(),
        setting: "engine: programs of eBPF capture them (--engine ebpf, WEIR_AMBIENT_ENGINE=node-ebpf)",
        bypasses: true,
    }
}

fn routes_and_rules(ahead: &Ahead<'_>, found: &mut Vec<Collision>) -> Result<()> {
    let (config, routing) = (&ahead.node.config, ahead.routing);
    let numbers = &config.routing;
    let own = objects::host(ahead.node).routes;
    for table in numbers.tables() {
        // A local default route with our protocol number belongs to a redirection inside a pod.
        let is_foreign = |r: &&Route| r.protocol != WEIR || is_local_default(r);
        for route in routing.routes(table)?.iter().filter(is_foreign) {
            let wins = wins(route, own.iter().map(|spec| &spec.route));
            let but = match wins {
                true => ", and packets of pods go where it leads",
                false => "",
            };
            found.push(Collision {
                found: format!("route {route}"),
                effect: format!("table {table} would belong to two writers{but}"),
                setting: "routing",
                bypasses: wins,
            });
        }
    }
    let priorities = numbers.priority..=numbers.priority + 3;
    let rules = routing.rules()?;
    // A rule for packets to the node itself.
    let is_of_local = |rule: &PolicyRule| {
        rule.only_mark() && rule.fwmark.is_none() && rule.table == RT_TABLE_LOCAL
    };
    let is_late = |rule: &PolicyRule| {
        let is_before = |r: &PolicyRule| {
            let first = r.priority.unwrap_or(0) < numbers.priority;
            first && is_of_local(r) && r.family == rule.family
        };
        let has = |v6| ahead.node.families().iter().any(|f| f.is_v6 == v6);
        is_of_local(rule) && has(rule.family == AddressFamily::V6) && !rules.iter().any(is_before)
    };
    for family in ahead.node.families().into_iter().map(address_family) {
        let is_main = |r: &PolicyRule| r.family == family && r.priority == Some(MAIN_RULE);
        if !rules.iter().any(is_main) {
            found.push(Collision {
                found: format!("no {family} policy rule has priority {MAIN_RULE}, that of the table main"),
                effect: "the kernel skips rules that continue there, so that packets of the proxy and of the node to pods are lost"
                    .to_owned(),
                setting: "of the program that moved that rule",
                bypasses: true,
            });
        }
    }
    for rule in rules.iter().filter(|r| !is_own(r)) {
        if is_late(rule) {
            found.push(Collision {
                found: format!("policy rule {rule}"),
                effect: "it does not come before those of this configuration, and what is sent to the node itself is lost"
                    .to_owned(),
                setting: "routing: a priority above that of this rule",
                bypasses: true,
            });
            continue;
        }
        let at = rule.priority.unwrap_or(0);
        let same_mark =
            rule.fwmark.is_some() && rule.fwmask.unwrap_or(u32::MAX) & config.marks.all() != 0;
        let takes = ahead.takes(rule)?;
        let effect = if priorities.contains(&at) {
            "the order of rules of the same priority is that of their creation"
        } else if numbers.tables().contains(&rule.table) {
            "it leads other packets into a table of this configuration"
        } else if takes {
            "it comes first and selects packets of pods"
        } else if same_mark && at < MAIN_RULE {
            "it selects by the same bits of the mark"
        } else {
            continue;
        };
        found.push(Collision {
            found: format!("policy rule {rule}"),
            effect: effect.to_owned(),
            setting: "routing or marks",
            // Rules with other actions refuse the packets.
            bypasses: takes && matches!(rule.action, RuleAction::Lookup | RuleAction::Goto),
        });
    }
    Ok(())
}

/// True if the kernel prefers `route`, for some packets, to every route in `own` for the same destinations. Routes of other
/// tables do not count.
pub(crate) fn wins<'a>(route: &Route, own: impl Iterator<Item = &'a Route>) -> bool {
    let rank = |r: &Route| (r.dst.prefix_len(), Reverse(r.metric()));
    let same = own.filter(|own| own.table == route.table && own.dst.contains(&route.dst));
    same.map(rank).max().is_some_and(|best| rank(route) > best)
}
