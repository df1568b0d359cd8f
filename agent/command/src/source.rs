//! Desired state, read from a file: a configuration or a pod.

use super::agent_settings::AgentSettings;
use super::args::{EngineArg, Source};
use super::failure::{Failure, warn};
use super::files::{DESCRIPTION, name, read};
use serde::de::IgnoredAny;
use std::collections::BTreeMap;
use std::net::IpAddr;
use weir_cni::compile::{Compiled, Engine};
use weir_cni::config::{Intent, NameFiles};
use weir_cni::pod::{NodeEnvironment, Pod, PodFacts, Skip, redirect_from};
use weir_cni::redirection::{Desired as _, Scheme, Visit};
use weir_rules::SidecarConfig;

/// Desired state of a namespace.
pub(super) enum Desired {
    /// This redirection.
    Redirect(Box<Redirect>),
    /// The pod asks for no redirection.
    Nothing(Declined),
}

/// Why a pod asks for no redirection.
pub(super) struct Declined {
    pub(super) reason: String,
    /// Whether the pod makes its own redirection (init container).
    pub(super) has_own: bool,
}

/// A redirection as given and as parsed.
pub(super) struct Redirect {
    /// The configuration with its switches; the default for a pod.
    pub(super) config: SidecarConfig,
    pub(super) intent: Intent,
    /// The engine named by the command line or the configuration.
    pub(super) named: Option<Engine>,
    /// True for a configuration: an engine that is chosen automatically gets the same rules as a named one (upstream's). False for
    /// a pod: it gets the rules that the plugin would write.
    pub(super) as_named: bool,
}

impl weir_cni::redirection::Desired for Redirect {
    const SCHEME: &'static Scheme = Intent::SCHEME;

    fn compile(&self, engine: Engine) -> Compiled {
        self.intent.compile(engine)
    }

    fn compile_chosen(&self, engine: Engine) -> Compiled {
        match self.as_named {
            true => self.intent.compile(engine),
            false => self.intent.compile_chosen(engine),
        }
    }
}

/// Source of a pod's addresses.
pub(super) enum Addresses<'a> {
    /// The network namespace; `failed` converts an error of reading it.
    Of {
        visit: &'a Visit<'a>,
        failed: fn(&weir_netlink::Error) -> Failure,
    },
    /// The given addresses; if empty, those in the pod's status.
    Given(&'a [IpAddr]),
}

/// Returns the named engine; `None` if it is chosen automatically. The command line takes precedence over the
/// configuration.
pub(super) fn named(arg: EngineArg, config: Option<&SidecarConfig>) -> Option<Engine> {
    let configured = config.and_then(SidecarConfig::engine);
    let asked = match arg {
        // eBPF is not an engine of rules: sidecars do not support it, and commands that do handle it before this call.
        EngineArg::Auto | EngineArg::Ebpf => None,
        EngineArg::Nft => Some(Engine::Nft),
        EngineArg::Xtables => Some(Engine::Xtables),
    };
    if let (Some(asked), Some(configured)) = (asked, configured)
        && asked != configured
    {
        eprintln!(
            "weir: warning: the configuration asks for {configured} (native_nftables, force_iptables_binary), \
             and --engine for {asked}, which is used"
        );
    }
    asked.or(configured)
}

impl Redirect {
    /// The engine to try first: the named one, else the one that the namespace already uses, else one that the kernel has;
    /// nf_tables for a plan, which has no namespace.
    pub(super) fn engine(&self, addresses: &Addresses<'_>) -> Result<Engine, Failure> {
        match (self.named, addresses) {
            (Some(engine), _) => Ok(engine),
            (None, Addresses::Given(_)) => Ok(Engine::Nft),
            (None, Addresses::Of { visit, failed }) => visit
                .engine_to_try()
                .map(|(engine, _)| engine)
                .map_err(|e| failed(&e)),
        }
    }

    /// Compiles the redirection for [`Self::engine`].
    pub(super) fn compiled(
        &self,
        addresses: &Addresses<'_>,
    ) -> Result<(Compiled, Engine), Failure> {
        let engine = self.engine(addresses)?;
        Ok((self.compile_for(self.named, engine), engine))
    }

    /// An equally valid redirection if no engine is named: the rules of the plugin for a chosen engine, or upstream's rules for it.
    pub(super) fn other(&self, engine: Engine) -> Option<Compiled> {
        if self.named.is_some() || engine != Engine::Nft {
            return None;
        }
        Some(match self.as_named {
            true => self.intent.compile_chosen(engine),
            false => self.intent.compile(engine),
        })
    }
}

/// The text of a configuration or a pod.
pub(super) struct Text {
    text: String,
    name: String,
    is_config: bool,
    /// The node-wide settings that apply to a pod in addition to its annotations.
    settings: AgentSettings,
}

/// Settings that the plugin and the agent have for all pods with a sidecar.
const OF_SIDECARS: [&str; 3] = [
    "ISTIO_OUTBOUND_OWNER_GROUPS",
    "ISTIO_OUTBOUND_OWNER_GROUPS_EXCLUDE",
    "ISTIO_OUTBOUND_IPV4_LOOPBACK_CIDR",
];

impl Text {
    /// Reads it before the namespace is entered: a pipe or an agent may block for longer than the time limit of a visit.
    pub(super) fn of(source: &Source) -> Result<Self, Failure> {
        let Some(file) = source.config.as_ref().or(source.pod.as_ref()) else {
            return Err(Failure::usage("one of --config and --pod is needed"));
        };
        Ok(Self {
            text: read(file, DESCRIPTION)?,
            name: name(file),
            is_config: source.config.is_some(),
            settings: match source.config {
                Some(_) => AgentSettings::default(),
                None => AgentSettings::of(&OF_SIDECARS).tell_unasked(),
            },
        })
    }
}

/// Parses and validates all input before anything is changed.
pub(super) fn desired(
    given: &Text,
    arg: EngineArg,
    addresses: &Addresses<'_>,
) -> Result<Desired, Failure> {
    let (config, intent, named) = match given.is_config {
        true => {
            let (config, is_given) = from_config(given)?;
            let named = named(arg, Some(&config));
            if let Some(warning) = only_ipv4(&config, is_given, named, addresses) {
                warn(warning);
            }
            let intent = config
                .intent(&NameFiles::default())
                .map_err(Failure::usage)?;
            (config, intent, named)
        }
        false => {
            let named = named(arg, None);
            match from_pod(given, addresses)? {
                Ok(intent) => (SidecarConfig::default(), intent, named),
                Err(declined) => return Ok(Desired::Nothing(declined)),
            }
        }
    };
    for warning in intent.warnings.iter().chain(&config.notes()) {
        warn(warning);
    }
    Ok(Desired::Redirect(Box::new(Redirect {
        config,
        intent,
        named,
        as_named: given.is_config,
    })))
}

/// Parses the configuration; also returns whether `enable_ipv6` is given.
fn from_config(given: &Text) -> Result<(SidecarConfig, bool), Failure> {
    let mut config = SidecarConfig::from_json(&given.text, &given.name).map_err(Failure::usage)?;
    let env = |name: &str| std::env::var(name).ok();
    let passwd = NameFiles::default().passwd;
    config
        .fill_proxy_ids(&env, &passwd)
        .map_err(Failure::usage)?;
    config.validate().map_err(Failure::usage)?;
    let fields: BTreeMap<String, IgnoredAny> =
        serde_json::from_str(&given.text).unwrap_or_default();
    let is_given = fields.contains_key("enable_ipv6");
    Ok((config, is_given))
}

/// Warns if IPv6 is not redirected and that may be unintended: upstream detects whether the pod has IPv6 and writes the
/// result into the configuration.
fn only_ipv4(
    config: &SidecarConfig,
    is_given: bool,
    named: Option<Engine>,
    addresses: &Addresses<'_>,
) -> Option<String> {
    if config.enable_ipv6 || config.cleanup_only {
        return None;
    }
    let remedy = match named {
        Some(Engine::Xtables) => {
            "IPv6 traffic is not redirected; \"enable_ipv6\": true redirects it"
        }
        _ => {
            "with legacy tables IPv6 traffic is not redirected; rules for nf_tables that have no address apply to it all the \
             same, and those for the pod's own IPv6 addresses are missing; \"enable_ipv6\": true redirects it"
        }
    };
    if config.dual_stack {
        return Some(format!(
            "dual_stack is true but enable_ipv6 is not: {remedy}"
        ));
    }
    let found = match addresses {
        Addresses::Of { visit, .. } => visit.addresses(&[]),
        Addresses::Given(given) => given.to_vec(),
    };
    // Loopback and link-local addresses exist wherever IPv6 is enabled.
    let reaches_far = |ip: &IpAddr| match ip {
        IpAddr::V6(ip) => !ip.is_loopback() && !ip.is_unicast_link_local() && !ip.is_multicast(),
        IpAddr::V4(_) => false,
    };
    let found = found.into_iter().find(reaches_far).filter(|_| !is_given)?;
    Some(format!(
        "the address {found} is IPv6 and enable_ipv6 is not given: {remedy}, \"enable_ipv6\": false says that it is meant"
    ))
}

/// Parses a pod; the inner error is why it requests no redirection.
fn from_pod(given: &Text, addresses: &Addresses<'_>) -> Result<Result<Intent, Declined>, Failure> {
    let pod = Pod::from_manifest(&given.text, &given.name).map_err(Failure::usage)?;
    let facts = PodFacts::of(&pod);
    if let Some(reason) = Skip::of(&facts) {
        return Ok(Err(Declined {
            has_own: reason == Skip::InitContainer,
            reason: format!("pod {facts} requests no redirection: {reason}"),
        }));
    }
    let redirect = redirect_from(&facts).map_err(Failure::usage)?;
    let found = match addresses {
        Addresses::Of { visit, .. } => visit.addresses(&redirect.addresses),
        Addresses::Given([]) => in_order(status_addresses(&pod, &facts)),
        Addresses::Given(given) => in_order(given.to_vec()),
    };
    for warning in &redirect.warnings {
        warn(warning);
    }
    let env = |name: &str| given.settings.get(name).map(str::to_owned);
    let environment = NodeEnvironment::read(&env, &NameFiles::default().group);
    let intent = environment.and_then(|environment| redirect.intent(&environment, &found));
    intent.map(Ok).map_err(Failure::usage)
}

/// Sorts addresses of the default network from another source than a namespace, such as a pod's status, into the order in
/// which a namespace lists them: IPv4 before IPv6, regardless of the cluster's preference.
fn in_order(mut addresses: Vec<IpAddr>) -> Vec<IpAddr> {
    addresses.sort_by_key(IpAddr::is_ipv6);
    addresses
}

/// The addresses in the pod's status; a manifest of an unscheduled pod has none.
fn status_addresses(pod: &Pod, facts: &PodFacts) -> Vec<IpAddr> {
    let status = &pod.status;
    let mut found: Vec<IpAddr> = status.pod_ips.clone();
    found.extend(status.pod_ip.filter(|ip| !status.pod_ips.contains(ip)));
    if found.is_empty() {
        eprintln!(
            "weir: pod {facts} has no address yet: the plan assumes an IPv4 address; \
             --address ADDRESS says otherwise"
        );
        // An address reserved for documentation (RFC 5737).
        return vec![IpAddr::from([192, 0, 2, 1])];
    }
    found
}
