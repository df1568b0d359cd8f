//! Marks, tables, priorities and names of others that this configuration would share, found before anything is written.

use crate::ahead::Ahead;
use crate::config::Numbers;
use crate::marks::{self, Owner};
use crate::node::Node;
use crate::objects::{CARRIERS, SECOND_CARRIERS, WEIR, is_local_default, is_own, is_own_route};
use crate::services::{Services, services};
use std::fmt;
use weir_netlink::Result;
use weir_netlink::route::{Route, Routing, RuleAction};

/// Something of another writer that has the same number or name, and how to avoid it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Collision {
    /// What was found.
    pub found: String,
    /// What it means.
    pub effect: String,
    /// The setting that avoids it.
    pub setting: &'static str,
    /// Connections of enrolled pods reach their peer without the proxy, also where everything is in sync.
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

/// Looks in the network namespace of this thread. Rules of an engine that the kernel does not have are none.
///
/// # Errors
/// Something cannot be read.
pub(crate) fn collisions(node: &Node) -> Result<Vec<Collision>> {
    let config = &node.config;
    let routing = Routing::open()?;
    let mut found = Vec::new();
    // In this order, so that the link of every address is known.
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
    // Removing, and keeping up what is in force, do not depend on it.
    found.extend(marks.as_ref().err().map(|e| Collision {
        found: "rules of other writers".to_owned(),
        effect: format!("whether they use the same bits of the mark could not be found out: {e}"),
        setting: "marks, if they do",
        bypasses: false,
    }));
    for used in marks.into_iter().flatten() {
        let wanted = match used.owner {
            Owner::Packet | Owner::Socket => config.marks.all(),
            Owner::Connection => config.marks.of_connections(),
        };
        let shared = used.bits & wanted;
        if shared != 0 {
            let (word, bits, place) = (used.owner.word(), used.bits, used.place);
            found.push(Collision {
                found: format!("{word}mark bits {bits:#x} in {place}"),
                effect: format!("bits {shared:#x} would have two meanings"),
                setting: "marks",
                bypasses: false,
            });
        }
    }
    Ok(found)
}

/// Whether the namespace of this thread has policy rules or routes of this crate. They come first, and go last.
pub(crate) fn has_own(routing: &Routing) -> Result<bool> {
    let rules = routing.rules()?;
    let table = Numbers::default().inbound_table;
    let routes = routing.routes_by(WEIR)?;
    Ok(rules.iter().any(is_own) || routes.iter().any(|r| is_own_route(r, &rules, &[table])))
}

/// The table of local routes comes before every policy rule, so that no mark leads a packet elsewhere.
fn of_services(services: &Services) -> Collision {
    let first = services.addresses.first().map(ToString::to_string);
    let (count, link) = (services.addresses.len(), services.link);
    Collision {
        found: format!(
            "services of IPVS at link {link} (addresses: {count}, the first {})",
            first.unwrap_or_default()
        ),
        effect:
            "they are the node's own, so that connections of pods to them do not pass the proxy"
                .to_owned(),
        setting: "engine: programs of eBPF capture them (--engine ebpf, WEIR_AMBIENT_ENGINE=node-ebpf)",
        bypasses: true,
    }
}

fn routes_and_rules(ahead: &Ahead<'_>, found: &mut Vec<Collision>) -> Result<()> {
    let (config, routing) = (&ahead.node.config, ahead.routing);
    let numbers = &config.routing;
    for table in numbers.tables() {
        // A local one with our number is of a redirection in a pod.
        let is_foreign = |r: &&Route| r.protocol != WEIR || is_local_default(r);
        for route in routing.routes(table)?.iter().filter(is_foreign) {
            found.push(Collision {
                found: format!("route {route}"),
                effect: format!("table {table} would belong to two writers"),
                setting: "routing",
                bypasses: false,
            });
        }
    }
    let priorities = numbers.priority..=numbers.priority + 3;
    for rule in routing.rules()?.iter().filter(|r| !is_own(r)) {
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
        } else if same_mark && at < 32_766 {
            "it selects by the same bits of the mark"
        } else {
            continue;
        };
        found.push(Collision {
            found: format!("policy rule {rule}"),
            effect: effect.to_owned(),
            setting: "routing or marks",
            // Others refuse the packets.
            bypasses: takes && matches!(rule.action, RuleAction::Lookup | RuleAction::Goto),
        });
    }
    Ok(())
}
