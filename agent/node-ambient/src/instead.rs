//! Changes of a node's rules and programs that are one for other writers.

use crate::apply::apply_locked;
use crate::ebpf::{detach_pinned, sysctls_before};
use crate::remove::remove_locked;
use crate::{Change, Config};
use std::path::Path;
use weir_cni::compile::Engine;
use weir_ebpf::Lock;
use weir_netlink::{Netns, Result};

/// Applies the configuration by rules ([`apply`](crate::apply())), then detaches the programs pinned in `root`. The second
/// value is true if there were some.
///
/// # Errors
/// Those of [`apply`](crate::apply()); or the programs cannot be detached, and the rules are in force.
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
    let replaces = detach_pinned(host, root, Some(&config))?.is_some();
    if replaces {
        // Programs and rules share a route and a policy rule in the proxy's namespace, which detaching removed.
        apply_locked(&config, host, engine, force)?;
    }
    Ok((change, replaces))
}

/// Detaches the programs pinned in `root` and removes the rules. Returns the results of both: a failure to remove one does not prevent
/// removing the other.
///
/// # Errors
/// Another writer holds the lock, and nothing was attempted.
pub fn remove_all(
    host: &Netns,
    root: &Path,
    config: Option<&Config>,
) -> Result<[Result<Vec<String>>; 2]> {
    let _lock = Lock::of_netns(host)?;
    let detached = detach_pinned(host, root, config).map(Option::unwrap_or_default);
    Ok([detached, remove_locked(host, config)])
}
