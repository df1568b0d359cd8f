//! What is wished, from a file: a configuration or a pod.

use super::args::{EngineArg, Source, Target};
use super::failure::Failure;
use std::io::Read;
use std::net::IpAddr;
use std::path::Path;
use weir_cni::compile::{Compiled, Engine, compile};
use weir_cni::config::{Intent, NameFiles, SidecarConfig, validate};
use weir_cni::fill::{FillSources, fill};
use weir_cni::pod::{Placement, Pod, PodFacts, SidecarDecision, redirect_from};
use weir_cni::redirection::Sandbox;
use weir_netlink::Netns;

/// What a file asks for.
pub(super) enum Wish {
    /// This redirection.
    Redirect {
        config: Box<SidecarConfig>,
        compiled: Compiled,
    },
    /// A pod that asks for none: why.
    Nothing(String),
}

/// Where a pod's addresses are found.
pub(super) enum Addresses<'a> {
    /// In its namespace.
    Of(&'a Sandbox),
    /// As given; if none are given, as the pod's status says.
    Given(&'a [IpAddr]),
}

/// The engine of a plan, which knows no namespace: nf_tables unless told otherwise.
pub(super) fn engine(arg: EngineArg) -> Engine {
    match arg {
        EngineArg::Auto | EngineArg::Nft => Engine::Nft,
        EngineArg::Xtables => Engine::Xtables,
    }
}

/// The engine for a namespace; `auto` is what it uses already, else what the kernel has.
pub(super) fn engine_for(arg: EngineArg, sandbox: &Sandbox) -> weir_netlink::Result<Engine> {
    match arg {
        EngineArg::Auto => sandbox.choose_engine(),
        arg => Ok(engine(arg)),
    }
}

/// Reads and understands everything before anything is done.
pub(super) fn wish(
    source: &Source,
    engine: Engine,
    addresses: &Addresses<'_>,
) -> Result<Wish, Failure> {
    let config = match (&source.config, &source.pod) {
        (Some(file), _) => from_config(file)?,
        (None, Some(file)) => match from_pod(file, engine, addresses)? {
            Ok(config) => config,
            Err(reason) => return Ok(Wish::Nothing(reason)),
        },
        (None, None) => return Err(Failure::usage("one of --config and --pod is needed")),
    };
    let intent = Intent::parse(&config, &NameFiles::default()).map_err(Failure::usage)?;
    for warning in &intent.warnings {
        eprintln!("weir: warning: {warning}");
    }
    let compiled = compile(&intent, engine);
    Ok(Wish::Redirect {
        config: Box::new(config),
        compiled,
    })
}

fn from_config(file: &Path) -> Result<SidecarConfig, Failure> {
    let text = read(file)?;
    let config =
        SidecarConfig::from_json(&text, &file.display().to_string()).map_err(Failure::usage)?;
    validate(&config).map_err(Failure::usage)?;
    Ok(config)
}

/// The inner error is the reason why the pod asks for nothing.
fn from_pod(
    file: &Path,
    engine: Engine,
    addresses: &Addresses<'_>,
) -> Result<Result<SidecarConfig, String>, Failure> {
    let text = read(file)?;
    let pod = Pod::from_manifest(&text, &file.display().to_string()).map_err(Failure::usage)?;
    let facts = PodFacts::of(&pod);
    if let SidecarDecision::Skip(reason) = SidecarDecision::of(&facts) {
        return Ok(Err(format!("pod {facts} is not redirected: {reason}")));
    }
    let placement = Placement {
        native_nftables: engine == Engine::Nft,
        ..Placement::default()
    };
    let redirect = redirect_from(&facts, &placement).map_err(Failure::usage)?;
    let mut config = redirect.config;
    let found = match addresses {
        Addresses::Of(sandbox) => sandbox.addresses().map_err(Failure::unknown)?,
        Addresses::Given([]) => status_addresses(&pod, &facts),
        Addresses::Given(given) => given.to_vec(),
    };
    let env = |name: &str| std::env::var(name).ok();
    let more = fill(&mut config, &FillSources::new(&env, &found)).map_err(Failure::usage)?;
    for warning in redirect.warnings.iter().chain(&more) {
        eprintln!("weir: warning: {warning}");
    }
    Ok(Ok(config))
}

/// The addresses that the API server knows; a manifest that was never scheduled has none.
fn status_addresses(pod: &Pod, facts: &PodFacts) -> Vec<IpAddr> {
    let status = &pod.status;
    let mut found: Vec<IpAddr> = status.pod_ips.clone();
    found.extend(status.pod_ip.filter(|ip| !status.pod_ips.contains(ip)));
    if found.is_empty() {
        eprintln!(
            "weir: pod {facts} has no address yet: planned as if it had an IPv4 address; \
             --address CIDR says otherwise"
        );
        // From the network that is kept for documentation (RFC 5737).
        return vec![IpAddr::from([192, 0, 2, 1])];
    }
    found
}

/// A file as text; "-" is stdin.
pub(super) fn read(file: &Path) -> Result<String, Failure> {
    let fail = |e: std::io::Error| {
        Failure::usage(format!(
            "cannot read {}: {e}; give a readable file",
            file.display()
        ))
    };
    if file == Path::new("-") {
        let mut text = String::new();
        std::io::stdin().read_to_string(&mut text).map_err(fail)?;
        return Ok(text);
    }
    std::fs::read_to_string(file).map_err(fail)
}

/// The pod's namespace.
pub(super) fn sandbox(target: &Target) -> weir_netlink::Result<Sandbox> {
    Sandbox::of(netns(target)?)
}

/// Any namespace.
pub(super) fn netns(target: &Target) -> weir_netlink::Result<Netns> {
    match (&target.netns, target.pid) {
        (Some(path), _) => Netns::open(path),
        // The parser lets nobody through with neither; 0 is no process.
        (None, pid) => Netns::of_pid(pid.unwrap_or(0)),
    }
}
