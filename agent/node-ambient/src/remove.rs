//! Removes everything from the node's namespace and from those of proxies, and restores sysctls.

use crate::apply::{execute, remembered};
use crate::config::Config;
use crate::objects::{self, CARRIERS, Objects, SECOND_CARRIERS, Sysctl, is_own};
use crate::plan::{Step, observe, plan, values};
use crate::rule_change::RuleChange;
use crate::rules;
use std::collections::BTreeMap;
use weir_ebpf::{Lock, netns_if_there};
use weir_netlink::route::{Link, Routing};
use weir_netlink::{InForce, Netns, Result};

/// Removes everything from the node's namespace and from those of the configured proxies, and restores sysctls
/// unless another writer changed them since. Returns what was removed.
///
/// # Errors
/// Another writer holds the lock, and nothing was attempted; or the first failure, and the rest was attempted.
pub fn remove(host: &Netns, config: Option<&Config>) -> Result<Vec<String>> {
    let _lock = Lock::of_netns(host)?;
    remove_locked(host, config)
}

/// Returns the configuration without previous values of sysctls, which are those of the node.
pub(crate) fn config_of_proxies(config: &Config) -> Config {
    Config {
        sysctls: BTreeMap::new(),
        ..config.clone()
    }
}

pub(crate) fn remove_locked(host: &Netns, config: Option<&Config>) -> Result<Vec<String>> {
    let mut lines = Vec::new();
    let (mut failure, mut in_force) = (None, InForce::No);
    let at_proxy = config.map(config_of_proxies);
    let mut of = |netns: &Netns, config: Option<&Config>| {
        let done = netns.run(|| remove_here(config));
        if done.is_ok() {
            // The namespace was entered, so part of its state may be removed.
            in_force = InForce::Unknown;
        }
        match done.and_then(|r| r) {
            Ok(removed) => lines.extend(removed),
            Err(e) => failure = failure.take().or(Some(e)),
        }
    };
    of(host, config);
    let mut unopened = None;
    for proxy in config.into_iter().flat_map(|c| &c.proxies) {
        match netns_if_there(&proxy.netns) {
            Ok(Some(netns)) => of(&netns, at_proxy.as_ref()),
            // If the namespace is gone, so is everything in it.
            Ok(None) => {}
            Err(e) => unopened = unopened.or(Some(e)),
        }
    }
    failure
        .or(unopened)
        .map_or(Ok(lines), |e| Err(e.with_in_force(in_force)))
}

/// Returns the steps that remove everything from the namespace of this thread, in their order; empty if nothing is there.
pub(crate) fn removal(routing: &Routing, config: Option<&Config>) -> Result<Vec<Step>> {
    let nothing = Objects::default();
    let before = config.map_or_else(rules::memory, remembered)?;
    let mut observed = observe(routing, &nothing, before)?;
    // The table of the local route in the proxy's namespace, if known.
    observed
        .tables
        .extend(config.map(|c| c.routing.inbound_table));
    let present = rules::present()?;
    // Links in the proxy's namespace disappear with it. Links here count only if there is another object of this crate.
    let is_ours = observed.rules.iter().any(is_own)
        || observed.own_routes(&nothing).next().is_some()
        || present.is_some();
    if !is_ours {
        return Ok(Vec::new());
    }
    let mut steps = plan(&nothing, &observed).with(Vec::new());
    let present = present.map(RuleChange::RemoveRules);
    steps.push(Step::Netfilter(present.into_iter().collect()));
    // The kernel deletes the routes of a link with it, and the plan expects that. The other routes are deleted last, as the sign that
    // something is left.
    steps.sort_by_key(|step| match step {
        Step::DeleteRule(_) => 0,
        Step::Sysctl(..) => 1,
        Step::Netfilter(_) => 2,
        Step::DeleteRoute(_) => 4,
        _ => 3,
    });
    Ok(steps)
}

fn remove_here(config: Option<&Config>) -> Result<Vec<String>> {
    let routing = Routing::open()?;
    let steps = removal(&routing, config)?;
    if steps.is_empty() {
        return Ok(Vec::new());
    }
    let (mut lines, mut failure) = (Vec::new(), None);
    let unknown = without_memory(&routing, config)?;
    // Previous values of sysctls that could not be restored, kept for the next attempt.
    let mut kept = BTreeMap::new();
    for step in &steps {
        let is_sign = |route| objects::is_guard_of_all(route) || objects::is_local_default(route);
        if failure.is_some() && matches!(step, Step::DeleteRoute(spec) if is_sign(&spec.route)) {
            // The next attempt needs it to find what is left, such as sets, links and sysctls.
            continue;
        }
        let done = match step {
            Step::Netfilter(_) => {
                rules::remove(&kept).map(|gone| lines.extend(gone.iter().map(ToString::to_string)))
            }
            step => execute(&routing, step, None).map(|()| lines.push(step.to_string())),
        };
        if let (Step::Sysctl(key, before), Err(_)) = (step, &done) {
            kept.insert(key.clone(), before.clone());
        }
        failure = failure.or(done.err());
    }
    lines.extend(unknown);
    failure.map_or(Ok(lines), Err)
}

/// Describes the sysctls of the node that keep this crate's values because the rules that stored the previous ones are gone, as after
/// `nft flush ruleset`. They are stored nowhere else.
fn without_memory(routing: &Routing, config: Option<&Config>) -> Result<Option<String>> {
    let routes = routing.routes_by(objects::WEIR)?;
    // Only the node's namespace has this route.
    let is_of_node = routes.iter().any(objects::is_guard_of_all);
    if !is_of_node || !config.map_or_else(rules::memory, remembered)?.is_empty() {
        return Ok(None);
    }
    let carriers = [CARRIERS, SECOND_CARRIERS].concat();
    let is_of_proxy = |link: &&Link| {
        let is_carrier = carriers.contains(&link.name.as_str());
        !is_carrier && routes.iter().any(|r| r.oif == Some(link.index))
    };
    let links = routing.links()?;
    let of_proxies = links.iter().filter(is_of_proxy);
    let of_proxies = of_proxies.flat_map(|link| objects::accepting(&link.name));
    let ours: Vec<Sysctl> = of_proxies
        .chain(["all", "default"].map(objects::rp_filter))
        .collect();
    let now = values(ours.iter().map(|s| &s.key))?;
    let left = ours
        .iter()
        .filter(|s| now.get(&s.key).is_some_and(|v| v == s.value));
    let left: Vec<String> = left
        .map(|s| format!("{}={}", weir_rules::sysctl::name(&s.key), s.value))
        .collect();
    // While the rules are there, nothing is stored only if nothing had to be changed; `accept_local` is off by default.
    let is_lost = rules::present()?.is_none() || left.iter().any(|s| s.ends_with("accept_local=1"));
    Ok((is_lost && !left.is_empty()).then(|| {
        format!(
            "left as they are, since no rules store the previous values: {}, and rp_filter=0 of pods' links; the kernel's default of each is 0, and sysctl --system applies the settings of this machine",
            left.join(", ")
        )
    }))
}
