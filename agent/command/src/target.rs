//! Opens the network namespace that the arguments name.

use super::args::Target;
use super::failure::Failure;
use weir_cni::redirection::Sandbox;
use weir_netlink::Netns;

/// Opens the pod's network namespace; `failed` converts an error that is not caused by the argument.
pub(super) fn sandbox(
    target: &Target,
    failed: fn(&weir_netlink::Error) -> Failure,
) -> Result<Sandbox, Failure> {
    let netns = netns(target, failed)?;
    refuse_named_host(&netns).map_err(Failure::usage)?;
    let sandbox = Sandbox::of(netns);
    sandbox.map_err(|e| Failure::of_namespace(&e, failed))
}

/// Fails for the namespace that the agent's settings in the environment name as the host's.
fn refuse_named_host(netns: &Netns) -> weir_netlink::Result<()> {
    const SETTING: &str = "WEIR_HOST_NETNS";
    let named = std::env::var_os(SETTING).filter(|path| !path.is_empty());
    let host = named.and_then(|path| Netns::open(path.as_ref()).ok());
    if host.is_none_or(|host| host.id() != netns.id()) {
        return Ok(());
    }
    let object = format!("{} as a pod's network namespace", netns.origin().display());
    let reason = format!("{SETTING} names it as the host's; give the pod's namespace, or unset it");
    Err(weir_netlink::Error::refused("use", object, reason))
}

/// Opens any network namespace.
pub(super) fn netns(
    target: &Target,
    failed: fn(&weir_netlink::Error) -> Failure,
) -> Result<Netns, Failure> {
    open(target).map_err(|e| Failure::of_namespace(&e, failed))
}

fn open(target: &Target) -> weir_netlink::Result<Netns> {
    match (&target.netns, target.pid) {
        (Some(path), _) => Netns::open(path),
        // clap requires one of the two; 0 is not a valid PID.
        (None, pid) => Netns::of_pid(pid.unwrap_or(0)),
    }
}
