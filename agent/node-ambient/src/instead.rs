//! Changes of a node's rules and programs that are one for other writers.

use crate::apply::apply_locked;
use crate::ebpf::{detach_pinned, has_rules, sysctls_before};
use crate::remove::remove_locked;
use crate::{Change, Config};
use std::path::Path;
use weir_cni::compile::Engine;
use weir_ebpf::Lock;
use weir_netlink::{InForce, Netns, Result};

/// What programs have changed, if there is routing for them without any pin.
const LEFT: &str = "left as they are, since no pins of programs store the previous values: net.ipv4.conf.*.rp_filter at the node, and in \
    the proxy's namespace net.ipv4.conf.*.forwarding and src_valid_mark, and net.ipv6.conf.all.forwarding; the kernel's default of each is \
    0, and sysctl --system applies the settings of this machine";

/// Applies the configuration by rules ([`apply`](crate::apply())), then detaches the programs pinned in `root`. The second
/// value is true if there were some.
///
/// # Errors
/// Those of [`apply`](crate::apply()); or the programs cannot be detached, and the rules are in force, with
/// [`InForce::Unknown`].
pub fn apply_instead(
    config: &Config,
    host: &Netns,
    (engine, force): (Option<Engine>, bool),
    root: &Path,
) -> Result<(Change, bool)> {
    let _lock = Lock::of_netns(host)?;
    let mut config = config.clone();
    config.sysctls.extend(sysctls_before(host, root)?);
    let change = apply_locked(&config, host, engine, force)?;
    let detached = detach_pinned(host, root, Some(&config));
    // Programs and rules share a route and a policy rule in the proxy's namespace, which detaching removed, also if it failed later.
    let again = match &detached {
        Ok(None) => Ok(()),
        _ => apply_locked(&config, host, engine, force).map(drop),
    };
    let replaces = detached.and_then(|detached| again.map(|()| detached.is_some()));
    let replaces = replaces.map_err(|e| e.with_in_force(InForce::Unknown))?;
    Ok((change, replaces))
}

/// Detaches the programs pinned in `root`, then removes the rules. Returns what was detached, and the result of the removal.
///
/// # Errors
/// Another writer holds the lock, and nothing was attempted; or the programs cannot be detached ([`InForce::Unknown`]): then only the
/// rules in the node's namespace are removed, and what the programs of pods need stays.
pub fn remove_all(
    host: &Netns,
    root: &Path,
    config: Option<&Config>,
) -> Result<(Vec<String>, Result<Vec<String>>)> {
    let _lock = Lock::of_netns(host)?;
    let had_rules = config.map_or(Ok(true), |config| has_rules(host, config));
    let detached = detach_pinned(host, root, config).map_err(|e| {
        let at_node = config.map(|config| Config {
            proxies: Vec::new(),
            ..config.clone()
        });
        // The first error counts.
        let _ = remove_locked(host, at_node.as_ref());
        e.with_in_force(InForce::Unknown)
    })?;
    let by_programs = detached.is_none() && matches!(had_rules, Ok(false));
    let removed = remove_locked(host, config).map(|mut lines| {
        if by_programs && !lines.is_empty() {
            lines.push(LEFT.to_owned());
        }
        lines
    });
    Ok((detached.unwrap_or_default(), removed))
}
