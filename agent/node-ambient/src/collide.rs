//! Marks, tables, priorities and names of others that this configuration would share, found before anything is written.

use crate::config::Config;
use crate::nft::{HOST_TABLE, PROXY_TABLE};
use crate::objects::{CARRIERS, SECOND_CARRIERS, WEIR, is_own};
use crate::services::{Services, services};
use crate::xtables::PREFIX;
use std::fmt;
use weir_netfilter::nft::{Data, Match, MetaKey, NftEngine, Operand, Selector, Source, Statement};
use weir_netfilter::xtables::{Match as XtMatch, Target, XtEngine};
use weir_netlink::Result;
use weir_netlink::route::Routing;

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
pub fn collisions(config: &Config) -> Result<Vec<Collision>> {
    let routing = Routing::open()?;
    let mut found = Vec::new();
    routes_and_rules(config, &routing, &mut found)?;
    // In this order, so that the link of every address is known.
    let addresses = routing.addresses()?;
    let links = routing.links()?;
    found.extend(services(&links, &addresses).iter().map(of_services));
    let rules = routing.rules()?;
    let carriers = [CARRIERS, SECOND_CARRIERS].concat();
    let is_ours = rules.iter().any(is_own);
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
    let wanted = config.marks.all();
    let mut marks: Vec<(String, u32)> = nft_marks()?;
    marks.extend(legacy_marks()?);
    marks.sort();
    marks.dedup();
    for (place, bits) in marks.iter().filter(|(_, bits)| bits & wanted != 0) {
        found.push(Collision {
            found: format!("mark bits {bits:#x} in {place}"),
            effect: format!("bits {:#x} would have two meanings", bits & wanted),
            setting: "marks",
            bypasses: false,
        });
    }
    Ok(found)
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

fn routes_and_rules(config: &Config, routing: &Routing, found: &mut Vec<Collision>) -> Result<()> {
    let numbers = &config.routing;
    for table in numbers.tables() {
        for route in routing.routes(table)?.iter().filter(|r| r.protocol != WEIR) {
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
        let effect = if priorities.contains(&at) {
            "the order of rules of the same priority is that of their creation".to_owned()
        } else if numbers.tables().contains(&rule.table) {
            "it leads other packets into a table of this configuration".to_owned()
        } else if same_mark && at < 32_766 {
            "it selects by the same bits of the mark".to_owned()
        } else if at > 0 && at < numbers.priority && rule.fwmark.is_none() && !rule.selects_more() {
            "it comes first and selects every packet".to_owned()
        } else {
            continue;
        };
        found.push(Collision {
            found: format!("policy rule {rule}"),
            effect,
            setting: "routing or marks",
            bypasses: false,
        });
    }
    Ok(())
}

fn number(data: &Data) -> u32 {
    data.to_ne32().unwrap_or(u32::MAX)
}

/// Bits of the mark that rules of nf_tables compare or set.
fn nft_marks() -> Result<Vec<(String, u32)>> {
    let mut marks = Vec::new();
    let mut engine = match NftEngine::open() {
        Ok(engine) => engine,
        Err(e) if e.is_unsupported() => return Ok(marks),
        Err(e) => return Err(e),
    };
    let others: Vec<_> = match engine.tables() {
        Ok(tables) => tables
            .into_iter()
            .filter(|(_, name)| name != HOST_TABLE && name != PROXY_TABLE)
            .collect(),
        Err(e) if e.is_unsupported() => return Ok(marks),
        Err(e) => return Err(e),
    };
    let is_mark = |s: &Selector| matches!(s, Selector::Meta(MetaKey::Mark));
    for table in engine.read_tables(&others)?.ruleset.tables {
        for chain in &table.chains {
            let place = || format!("nft table {} chain {}", table.name, chain.name);
            for statement in chain.rules.iter().flat_map(|r| &r.statements) {
                let bits = match statement {
                    Statement::Match(Match {
                        selector,
                        mask,
                        operand,
                        ..
                    }) if is_mark(selector) => match (mask, operand) {
                        (Some(mask), _) | (None, Operand::AnyBit(mask)) => number(mask),
                        _ => u32::MAX,
                    },
                    Statement::MetaSet(
                        MetaKey::Mark,
                        Source::Bitwise {
                            selector,
                            mask,
                            xor,
                        },
                    ) if is_mark(selector) => !number(mask) | number(xor),
                    Statement::MetaSet(MetaKey::Mark, _) => u32::MAX,
                    _ => continue,
                };
                marks.push((place(), bits));
            }
        }
    }
    Ok(marks)
}

/// The same of the legacy tables.
fn legacy_marks() -> Result<Vec<(String, u32)>> {
    let mut marks = Vec::new();
    let used = ["ip", "ip6"].iter().any(|family| {
        let names = std::fs::read(format!("/proc/thread-self/net/{family}_tables_names"));
        names.is_ok_and(|names| !names.is_empty())
    });
    if !used {
        return Ok(marks);
    }
    for table in XtEngine::open()?.ruleset()?.tables {
        for chain in table.chains.iter().filter(|c| !c.name.starts_with(PREFIX)) {
            let place = || format!("legacy table {} chain {}", table.name, chain.name);
            for rule in &chain.rules {
                let matched = rule.matches.iter().filter_map(|m| match m {
                    XtMatch::Mark(mark) => Some(mark.mask),
                    _ => None,
                });
                marks.extend(matched.map(|bits| (place(), bits)));
                match &rule.target {
                    Some(Target::Mark(set)) => marks.push((place(), set.value | set.mask)),
                    Some(Target::Tproxy(to)) => marks.push((place(), to.mark | to.mask)),
                    _ => {}
                }
            }
        }
    }
    Ok(marks)
}
