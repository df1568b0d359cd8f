//! Arguments shared by several commands, with their help.

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Arg, Args, ValueEnum};
use std::net::IpAddr;
use std::path::PathBuf;

/// Parses an address, optionally with a prefix length, which is checked and ignored.
pub(super) fn address(text: &str) -> Result<IpAddr, String> {
    let (address, length) = text.split_once('/').unwrap_or((text, "0"));
    let parsed: IpAddr = address
        .parse()
        .map_err(|_| "give an IPv4 or IPv6 address, as 10.0.0.2 or 10.0.0.2/24".to_owned())?;
    let most = if parsed.is_ipv4() { 32 } else { 128 };
    match length.parse::<u8>() {
        Ok(length) if length <= most => Ok(parsed),
        _ => Err(format!("the prefix length is a number from 0 to {most}")),
    }
}

/// Directories of `ip netns`; they are the same if `/var/run` is a symbolic link.
const NAMED: [&str; 2] = ["/run/netns", "/var/run/netns"];

/// Parses a network namespace: a path if it contains a slash, otherwise a name as of `ip netns`.
pub(super) fn namespace(text: &str) -> Result<PathBuf, String> {
    if text.contains('/') {
        return Ok(text.into());
    }
    if matches!(text, "" | "." | "..") {
        return Err("give a name as of `ip netns list`, or a path with a slash".to_owned());
    }
    let paths = NAMED.map(|dir| PathBuf::from(dir).join(text));
    let [first, _] = &paths;
    let found = paths.iter().find(|path| path.exists());
    Ok(found.unwrap_or(first).clone())
}

#[derive(Debug, Args)]
pub(super) struct ApplyArgs {
    #[command(flatten)]
    pub(super) desired: DesiredArgs,
    #[command(flatten)]
    pub(super) target: Target,
    /// Print changes and make none
    #[arg(long)]
    pub(super) dry_run: bool,
}

#[derive(Debug, Args)]
pub(super) struct VerifyArgs {
    #[command(flatten)]
    pub(super) desired: DesiredArgs,
    #[command(flatten)]
    pub(super) target: Target,
}

#[derive(Debug, Args)]
pub(super) struct DesiredArgs {
    #[command(flatten)]
    pub(super) source: Source,
    /// The kernel subsystem that redirects
    #[arg(long, value_enum, default_value_t = EngineArg::Auto)]
    pub(super) engine: EngineArg,
    /// Print JSON
    #[arg(long)]
    pub(super) json: bool,
}

#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
pub(super) struct Source {
    /// The redirection as one JSON object ("-" is stdin). Environment variables do not change it, except that ENVOY_USER names the
    /// proxy's user if proxy_uid of a sidecar is empty
    #[arg(long, value_name = "FILE")]
    pub(super) config: Option<PathBuf>,
    /// A pod as YAML or JSON, with its annotations ("-" is stdin). Settings of the node agent apply to all pods of a node
    /// (AMBIENT_IPV6, AMBIENT_DNS_CAPTURE and HOST_PROBE_SNAT_IP* for ambient mode, ISTIO_OUTBOUND_* for sidecars). They are read from
    /// the environment, otherwise requested from the running agent, whose socket is in CNI_AGENT_RUN_DIR; without an agent the
    /// defaults apply
    #[arg(long, value_name = "FILE")]
    pub(super) pod: Option<PathBuf>,
}

#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
pub(super) struct Target {
    /// The network namespace: a name in `ip netns list`, or a path, which has a slash
    #[arg(long, value_name = "NAME|PATH", value_parser = namespace)]
    pub(super) netns: Option<PathBuf>,
    /// The network namespace of this process
    #[arg(long, value_name = "PID")]
    pub(super) pid: Option<u32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum EngineArg {
    /// The one that the namespace already uses, otherwise nf_tables, otherwise legacy tables
    Auto,
    /// nf_tables
    Nft,
    /// Legacy tables, as iptables-legacy
    Xtables,
    /// eBPF programs, without netfilter
    Ebpf,
}

/// Help of `auto` for plans of rules, which read no namespace.
const PLANNED: &str = "nf_tables: a plan reads no namespace";

/// `--engine` of commands for sidecars, which eBPF does not support.
pub(super) fn engine_of_rules(arg: Arg) -> Arg {
    arg.value_parser(engines(None, |engine| engine != EngineArg::Ebpf))
}

pub(super) fn planned_engine(arg: Arg) -> Arg {
    arg.value_parser(engines(Some(PLANNED), |engine| engine != EngineArg::Ebpf))
}

pub(super) fn planned_engine_or_programs(arg: Arg) -> Arg {
    arg.value_parser(engines(Some(PLANNED), |_| true))
}

/// Parser of the engines that a command supports, with its meaning of `auto`.
fn engines(
    auto: Option<&'static str>,
    has: fn(EngineArg) -> bool,
) -> impl TypedValueParser<Value = EngineArg> {
    let value = |engine: EngineArg| {
        let value = engine.to_possible_value()?;
        Some(match auto.filter(|_| engine == EngineArg::Auto) {
            Some(auto) => value.help(auto),
            None => value,
        })
    };
    let engines = EngineArg::value_variants().iter().copied();
    let values = engines.filter(|engine| has(*engine)).filter_map(value);
    PossibleValuesParser::new(values).try_map(|text| EngineArg::from_str(&text, false))
}
