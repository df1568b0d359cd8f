//! Arguments, with the help that a stranger reads.

use super::commands::Command;
use super::help::{self, with};
use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Arg, Args, Parser, Subcommand, ValueEnum};
use std::net::IpAddr;
use std::path::PathBuf;

const CODES: &str = "\
Exit codes: 0 done or in sync, 1 failed (verify: drift), 2 arguments or what they name cannot be \
used (agent: 1, as install-cni), 3 the state could not be determined or the output could not be written, 126 the \
probe of run_validation failed.";

const EXAMPLE: &str = "\
Example:
  sudo weir demo";

/// Steer pod traffic into a sidecar proxy, natively: no iptables, nft or ip is executed.
#[derive(Debug, Parser)]
#[command(name = "weir", version, after_help = format!("{CODES}\n\n{EXAMPLE}"), propagate_version = true)]
pub struct Cli {
    #[command(subcommand)]
    pub(super) command: Command,
}

/// An address, or an address with a prefix length, which says nothing more.
fn address(text: &str) -> Result<IpAddr, String> {
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

/// Where `ip netns` keeps namespaces; the second is the same where `/var/run` is a link.
const NAMED: [&str; 2] = ["/run/netns", "/var/run/netns"];

/// A path has a slash; everything else is a name, as `ip netns` takes it.
fn namespace(text: &str) -> Result<PathBuf, String> {
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

fn namespace_or_none(text: &str) -> Result<String, String> {
    if text.is_empty() {
        return Ok(String::new());
    }
    namespace(text).map(|path| path.to_string_lossy().into_owned())
}

#[derive(Debug, Args)]
pub(super) struct Plan {
    #[command(subcommand)]
    pub(super) what: PlanCommand,
}

#[derive(Debug, Args)]
pub(super) struct Apply {
    #[command(subcommand)]
    pub(super) what: ApplyCommand,
}

#[derive(Debug, Args)]
pub(super) struct Verify {
    #[command(subcommand)]
    pub(super) what: VerifyCommand,
}

#[derive(Debug, Args)]
pub(super) struct Cni {
    #[command(subcommand)]
    pub(super) verb: CniCommand,
}

#[derive(Debug, Subcommand)]
pub(super) enum PlanCommand {
    /// Print the redirection of a pod with a sidecar proxy
    #[command(after_help = with(help::PLAN_SIDECAR, help::PRINTS), mut_arg("engine", planned_engine))]
    Sidecar(PlanArgs),
    /// Print the redirection of a pod of ambient mode
    #[command(after_help = with(help::PLAN_AMBIENT, help::PRINTS), mut_arg("engine", planned_engine_or_programs))]
    Ambient(AmbientPlanArgs),
    /// Print what redirection at the node would change, and its conflicts with foreign objects
    #[command(after_help = with(help::PLAN_NODE_AMBIENT, help::PRINTS))]
    NodeAmbient(NodeAmbientArgs),
}

#[derive(Debug, Subcommand)]
pub(super) enum ApplyCommand {
    /// Redirect the traffic of a pod with a sidecar proxy
    #[command(after_help = with(help::APPLY_SIDECAR, help::CHANGES_AND_PROBES), mut_arg("engine", engine_of_rules))]
    Sidecar(ApplyArgs),
    /// Redirect the traffic of a pod of ambient mode
    #[command(after_help = with(help::APPLY_AMBIENT, help::CHANGES))]
    Ambient(ApplyArgs),
    /// Redirect traffic of enrolled pods in the node's own namespace to one proxy
    #[command(after_help = with(help::APPLY_NODE_AMBIENT, help::CHANGES))]
    NodeAmbient(NodeAmbientApplyArgs),
}

#[derive(Debug, Subcommand)]
pub(super) enum VerifyCommand {
    /// Compare the namespace of a pod with a sidecar proxy
    #[command(after_help = with(help::VERIFY_SIDECAR, help::COMPARES), mut_arg("engine", engine_of_rules))]
    Sidecar(VerifyArgs),
    /// Compare the namespace of a pod of ambient mode
    #[command(after_help = with(help::VERIFY_AMBIENT, help::COMPARES))]
    Ambient(VerifyArgs),
    /// Make connections in the namespace of a pod of this node, and see where they land
    #[command(after_help = format!("{}\n\nExample:\n  weir verify pod shop/web --live --from other", help::LIVE))]
    Pod(LivePodArgs),
    /// Make connections in a network namespace, and see where they land
    #[command(after_help = format!("{}\n\nExample:\n  weir verify netns /run/netns/pod --live --dns 10.96.0.10", help::LIVE))]
    Netns(LiveNetnsArgs),
    /// Compare the node's namespace, and its proxy's, with a configuration
    #[command(after_help = with(help::VERIFY_NODE_AMBIENT, help::COMPARES))]
    NodeAmbient(NodeAmbientArgs),
}

#[derive(Debug, Args)]
pub(super) struct PlanArgs {
    #[command(flatten)]
    pub(super) desired: DesiredArgs,
    /// An address of the pod, with or without a prefix length; may be repeated [default: those in the pod's status]
    #[arg(long, value_name = "ADDRESS", conflicts_with = "config", value_parser = address)]
    pub(super) address: Vec<IpAddr>,
}

#[derive(Debug, Args)]
pub(super) struct AmbientPlanArgs {
    #[command(flatten)]
    pub(super) desired: DesiredArgs,
}

#[derive(Debug, Args)]
pub(super) struct NodeAmbientArgs {
    /// Proxies, pods and numbers of the node as JSON ("-" is stdin)
    #[arg(long, value_name = "FILE")]
    pub(super) config: PathBuf,
    /// What captures: rules in nft or xtables, or eBPF programs without rules and tunnels
    #[arg(long, value_enum, default_value_t = EngineArg::Auto)]
    pub(super) engine: EngineArg,
    /// The node's network namespace: a name as of `ip netns`, or a path [default: that of this command]
    #[arg(long, value_name = "NAME|PATH", value_parser = namespace)]
    pub(super) host_netns: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    pub(super) json: bool,
}

#[derive(Debug, Args)]
pub(super) struct NodeAmbientApplyArgs {
    #[command(flatten)]
    pub(super) about: NodeAmbientArgs,
    /// Print changes and make none
    #[arg(long)]
    pub(super) dry_run: bool,
    /// Apply although foreign objects use the same marks, tables or priorities
    #[arg(long)]
    pub(super) force: bool,
}

#[derive(Debug, Args)]
pub(super) struct NodeAmbientCleanArgs {
    /// As of `weir plan node-ambient`: its proxies are cleaned, too
    #[arg(long, value_name = "FILE")]
    pub(super) config: Option<PathBuf>,
    /// The node's network namespace: a name as of `ip netns`, or a path [default: that of this command]
    #[arg(long, value_name = "NAME|PATH", value_parser = namespace)]
    pub(super) host_netns: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    pub(super) json: bool,
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
pub(super) struct LivePodArgs {
    /// The pod; without a namespace, of the namespace default
    #[arg(value_name = "[NAMESPACE/]NAME")]
    pub(super) pod: String,
    /// Ask the container runtime behind this socket where the pod lives, instead of its processes
    #[arg(long, value_name = "SOCKET")]
    pub(super) cri_socket: Option<String>,
    #[command(flatten)]
    pub(super) live: LiveArgs,
}

#[derive(Debug, Args)]
pub(super) struct LiveNetnsArgs {
    /// The network namespace: a name as of `ip netns`, or a path, which has a slash
    #[arg(value_name = "NAME|PATH", value_parser = namespace)]
    pub(super) netns: PathBuf,
    #[command(flatten)]
    pub(super) live: LiveArgs,
}

#[derive(Debug, Args)]
pub(super) struct LiveArgs {
    /// Make connections (required; `verify sidecar` and `verify ambient` compare rules)
    #[arg(long, required = true)]
    pub(super) live: bool,
    /// The network namespace that inbound connections come from [default: that of this process]
    #[arg(long, value_name = "NAME|PATH", value_parser = namespace, conflicts_with = "outbound_only")]
    pub(super) from: Option<PathBuf>,
    /// Make no inbound connection
    #[arg(long)]
    pub(super) outbound_only: bool,
    /// A name server that queries of the pod are captured for; may be repeated [default: DNS is not tried]
    #[arg(long, value_name = "ADDRESS")]
    pub(super) dns: Vec<IpAddr>,
    /// Where outbound connections go, one of each family [default: 192.0.2.1 and 2001:db8::1]
    #[arg(long, value_name = "ADDRESS")]
    pub(super) to: Vec<IpAddr>,
    /// Print JSON
    #[arg(long)]
    pub(super) json: bool,
}

#[derive(Debug, Args)]
pub(super) struct DesiredArgs {
    #[command(flatten)]
    pub(super) source: Source,
    /// Which part of the kernel gets the rules
    #[arg(long, value_enum, default_value_t = EngineArg::Auto)]
    pub(super) engine: EngineArg,
    /// Print JSON
    #[arg(long)]
    pub(super) json: bool,
}

#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
pub(super) struct Source {
    /// The redirection as one JSON object; nothing is then read from the environment ("-" is stdin)
    #[arg(long, value_name = "FILE")]
    pub(super) config: Option<PathBuf>,
    /// A pod as YAML or JSON, with its annotations ("-" is stdin)
    #[arg(long, value_name = "FILE")]
    pub(super) pod: Option<PathBuf>,
}

#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
pub(super) struct Target {
    /// The network namespace: a name as of `ip netns`, or a path, which has a slash
    #[arg(long, value_name = "NAME|PATH", value_parser = namespace)]
    pub(super) netns: Option<PathBuf>,
    /// The network namespace of this process
    #[arg(long, value_name = "PID")]
    pub(super) pid: Option<u32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum EngineArg {
    /// What the namespace uses already, else nf_tables, else legacy tables
    Auto,
    /// nf_tables
    Nft,
    /// Legacy tables, as iptables-legacy
    Xtables,
    /// eBPF programs, without netfilter
    Ebpf,
}

/// What a plan of rules takes for `auto`: it reads no namespace.
const PLANNED: &str = "nf_tables: a plan reads no namespace";

/// `--engine` of sidecars, which eBPF does not redirect.
fn engine_of_rules(arg: Arg) -> Arg {
    arg.value_parser(engines(None, |engine| engine != EngineArg::Ebpf))
}

fn planned_engine(arg: Arg) -> Arg {
    arg.value_parser(engines(Some(PLANNED), |engine| engine != EngineArg::Ebpf))
}

fn planned_engine_or_programs(arg: Arg) -> Arg {
    arg.value_parser(engines(Some(PLANNED), |_| true))
}

/// The engines that a command has, with what `auto` means there.
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

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum ShowEngine {
    /// nf_tables
    Nft,
    /// Legacy tables
    Xtables,
    /// Sets of ipset
    Ipset,
    /// Programs of eBPF at the interfaces, with links, maps and pins
    Bpf,
    /// No engine: addresses, policy rules and routes
    Routing,
    /// All of them
    All,
}

#[derive(Debug, Args)]
pub(super) struct ShowArgs {
    #[command(flatten)]
    pub(super) target: Target,
    /// Which part of the kernel to look at
    #[arg(long, value_enum, default_value_t = ShowEngine::All)]
    pub(super) engine: ShowEngine,
    /// Print JSON
    #[arg(long)]
    pub(super) json: bool,
}

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(super) struct Clean {
    #[command(flatten)]
    pub(super) target: Option<Target>,
    /// Without effect: objects of both engines are always removed
    #[arg(long, hide = true)]
    pub(super) all_engines: bool,
    /// Print JSON
    #[arg(long)]
    pub(super) json: bool,
    #[command(subcommand)]
    pub(super) what: Option<CleanCommand>,
}

#[derive(Debug, Subcommand)]
pub(super) enum CleanCommand {
    /// Remove the redirection of a pod of ambient mode
    #[command(after_help = with(help::CLEAN_AMBIENT, help::CHANGES))]
    Ambient(AmbientCleanArgs),
    /// Remove the redirection at the node
    #[command(after_help = with(help::CLEAN_NODE_AMBIENT, help::CHANGES))]
    NodeAmbient(NodeAmbientCleanArgs),
}

#[derive(Debug, Args)]
pub(super) struct AmbientCleanArgs {
    /// As of `weir plan ambient` ("-" is stdin)
    #[arg(long, value_name = "FILE", conflicts_with = "pod")]
    pub(super) config: Option<PathBuf>,
    /// A pod as YAML or JSON ("-" is stdin)
    #[arg(long, value_name = "FILE")]
    pub(super) pod: Option<PathBuf>,
    #[command(flatten)]
    pub(super) target: Target,
    /// Print what would be removed and remove nothing
    #[arg(long)]
    pub(super) dry_run: bool,
    /// Print JSON
    #[arg(long)]
    pub(super) json: bool,
}

#[derive(Debug, Args)]
pub(super) struct RestoreArgs {
    #[command(flatten)]
    pub(super) target: Target,
    /// Keep the rules and chains that are there (iptables); entries of sets always stay
    #[arg(long)]
    pub(super) noflush: bool,
    /// Read and check all of it, change nothing
    #[arg(long)]
    pub(super) test: bool,
    /// Format of the text [default: found from the text]
    #[arg(long, value_enum)]
    pub(super) format: Option<FormatArg>,
    /// Allow the host's own namespace; waits up to 30 s for the lock of the iptables tools
    #[arg(long)]
    pub(super) host: bool,
    /// Print JSON
    #[arg(long)]
    pub(super) json: bool,
    /// The text ("-" is stdin)
    #[arg(value_name = "FILE")]
    pub(super) file: PathBuf,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum FormatArg {
    /// iptables-save
    Iptables,
    /// ip6tables-save
    Ip6tables,
    /// ipset save
    Ipset,
}

#[derive(Debug, Args)]
pub(super) struct PreflightArgs {
    /// Judge this job, also one that only a setting chooses; may be repeated [default: all]
    #[arg(long, value_enum)]
    pub(super) job: Vec<JobArg>,
    /// Print JSON; with --bundle the manifest
    #[arg(long)]
    pub(super) json: bool,
    /// Write a report of this node for support, without secrets, as one tar file ("-" is stdout)
    #[arg(long, value_name = "FILE", conflicts_with = "job")]
    pub(super) bundle: Option<PathBuf>,
    /// A further network namespace whose rules go into the report: a name as of `ip netns`, or a path
    #[arg(long, value_name = "NAME|PATH", value_parser = namespace, requires = "bundle", conflicts_with = "pid")]
    pub(super) netns: Option<PathBuf>,
    /// The same by a process that lives in it
    #[arg(long, value_name = "PID", requires = "bundle")]
    pub(super) pid: Option<u32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum JobArg {
    /// A pod with a sidecar proxy, by REDIRECT
    Sidecar,
    /// A pod with a sidecar proxy, by TPROXY
    SidecarTproxy,
    /// Ambient mode, redirection inside the pod
    Ambient,
    /// Ambient mode, redirection in the node's own namespace
    NodeAmbient,
    /// Ambient mode by eBPF inside of the pod
    Ebpf,
    /// Ambient mode by eBPF in the node's own namespace
    NodeEbpf,
}

#[derive(Debug, Args)]
pub(super) struct DemoArgs {
    /// Show a pod in ambient mode in place of one with a sidecar
    #[arg(long)]
    pub(super) ambient: bool,
    /// Show pods whose traffic the node routes to one proxy in place of a pod with a sidecar
    #[arg(long, conflicts_with = "ambient")]
    pub(super) node_ambient: bool,
    /// What captures at the node; by eBPF without rules, routes and tunnels (Linux 5.10)
    #[arg(long, value_enum, default_value = "auto", requires = "node_ambient")]
    pub(super) engine: EngineArg,
    /// Print JSON
    #[arg(long)]
    pub(super) json: bool,
    /// Show every flow even when one goes where it should not
    #[arg(long)]
    pub(super) keep_going: bool,
}

#[derive(Debug, Subcommand)]
pub(super) enum CniCommand {
    /// Attach a namespace: every plugin in order, or none
    #[command(after_help = with(help::CNI_ADD, help::RUNS_PLUGINS))]
    Add(Box<PodArgs>),
    /// Check an attachment: every plugin in order
    #[command(after_help = with(help::CNI_CHECK, help::RUNS_PLUGINS))]
    Check(Box<PodArgs>),
    /// Detach a namespace: every plugin in reverse order; twice is success
    #[command(after_help = with(help::CNI_DEL, help::RUNS_PLUGINS))]
    Del(Box<PodArgs>),
    /// Detach all attachments except those that are named, and let the plugins forget them
    #[command(after_help = with(help::CNI_GC, help::RUNS_PLUGINS))]
    Gc(GcArgs),
    /// Ask the plugins whether they could take an ADD
    #[command(after_help = with(help::CNI_STATUS, help::RUNS_PLUGINS))]
    Status(ListArgs),
    /// Ask the plugins which versions of the protocol they speak
    #[command(after_help = with(help::CNI_VERSION, help::RUNS_PLUGINS))]
    Version(ListArgs),
}

#[derive(Debug, Args)]
pub(super) struct ListArgs {
    /// A .conf or .conflist file
    #[arg(long, value_name = "FILE")]
    pub(super) conf: PathBuf,
    /// Where plugins are; may be repeated [default: $CNI_PATH, then /opt/cni/bin]
    #[arg(long, value_name = "DIR")]
    pub(super) bin_dir: Vec<PathBuf>,
    /// Where results are kept between calls
    #[arg(long, value_name = "DIR", default_value = weir_runner::DEFAULT_CACHE_DIR)]
    pub(super) cache_dir: PathBuf,
}

#[derive(Debug, Args)]
pub(super) struct CniArgs {
    #[command(flatten)]
    pub(super) list: ListArgs,
    /// The network namespace: a name as of `ip netns`, or a path; for `del` it may be empty
    #[arg(long, value_name = "NAME|PATH", default_value = "", value_parser = namespace_or_none)]
    pub(super) netns: String,
    /// The container's id
    #[arg(long, value_name = "ID")]
    pub(super) id: String,
    /// The interface in the namespace
    #[arg(long, value_name = "NAME", default_value = "eth0")]
    pub(super) ifname: String,
    /// CNI_ARGS
    #[arg(long, value_name = "K=V;...", default_value = "")]
    pub(super) args: String,
    /// Values for the plugins' capabilities, a JSON object
    #[arg(long, value_name = "JSON", default_value = "{}")]
    pub(super) capability_args: String,
}

/// The networks of a pod under Multus.
#[derive(Debug, Args)]
pub(super) struct PodArgs {
    #[command(flatten)]
    pub(super) attachment: CniArgs,
    /// Further networks, as the annotation k8s.v1.cni.cncf.io/networks selects them; called after the one of --conf, for `del` before
    /// it, last one first
    #[arg(long, value_name = "[NAMESPACE/]NAME[@INTERFACE],...")]
    pub(super) networks: Option<String>,
    /// Where those networks are, by their names
    #[arg(long, value_name = "DIR", default_value = "/etc/cni/multus/net.d")]
    pub(super) net_dir: PathBuf,
}

#[derive(Debug, Args)]
pub(super) struct GcArgs {
    #[command(flatten)]
    pub(super) list: ListArgs,
    /// An attachment that stays; may be repeated
    #[arg(long, value_name = "ID/IFNAME")]
    pub(super) keep: Vec<String>,
}
