//! Arguments, with the help that a stranger reads.

use super::commands::Command;
use clap::{Args, Parser, Subcommand, ValueEnum};
use ipnet::IpNet;
use std::path::PathBuf;

const CODES: &str = "\
Exit codes: 0 done or as desired, 1 failed (verify: drift), 2 arguments or input files cannot be
used (agent: 1, as install-cni), 3 could not be found out.";

/// Steers pod traffic into a sidecar proxy, natively: no iptables, nft or ip is executed.
#[derive(Debug, Parser)]
#[command(name = "weir", version, after_help = CODES, propagate_version = true)]
pub struct Cli {
    #[command(subcommand)]
    pub(super) command: Command,
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
    /// Of a pod with a sidecar proxy
    #[command(
        after_help = "Examples:\n  weir plan sidecar --pod pod.yaml --address 10.0.0.2/24\n  weir plan sidecar --config config.json --json"
    )]
    Sidecar(PlanArgs),
}

#[derive(Debug, Subcommand)]
pub(super) enum ApplyCommand {
    /// Of a pod with a sidecar proxy
    #[command(
        after_help = "Examples:\n  weir apply sidecar --pod pod.yaml --pid 4711\n  weir apply sidecar --config config.json --netns /run/netns/pod --dry-run"
    )]
    Sidecar(ApplyArgs),
}

#[derive(Debug, Subcommand)]
pub(super) enum VerifyCommand {
    /// Of a pod with a sidecar proxy
    #[command(
        after_help = "Example:\n  weir verify sidecar --pod pod.yaml --netns /run/netns/pod --json"
    )]
    Sidecar(VerifyArgs),
}

#[derive(Debug, Args)]
pub(super) struct PlanArgs {
    #[command(flatten)]
    pub(super) wish: WishArgs,
    /// An address of the pod; may be repeated [default: those in the pod's status]
    #[arg(long, value_name = "CIDR", conflicts_with = "config")]
    pub(super) address: Vec<IpNet>,
}

#[derive(Debug, Args)]
pub(super) struct ApplyArgs {
    #[command(flatten)]
    pub(super) wish: WishArgs,
    #[command(flatten)]
    pub(super) target: Target,
    /// Say what would be changed and change nothing
    #[arg(long)]
    pub(super) dry_run: bool,
}

#[derive(Debug, Args)]
pub(super) struct VerifyArgs {
    #[command(flatten)]
    pub(super) wish: WishArgs,
    #[command(flatten)]
    pub(super) target: Target,
}

#[derive(Debug, Args)]
pub(super) struct WishArgs {
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
    /// A pod as YAML or JSON; its annotations say what is wanted ("-" is stdin)
    #[arg(long, value_name = "FILE")]
    pub(super) pod: Option<PathBuf>,
}

#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
pub(super) struct Target {
    /// The network namespace by its path
    #[arg(long, value_name = "PATH")]
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
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum ShowEngine {
    /// nf_tables
    Nft,
    /// Legacy tables
    Xtables,
    /// Sets of ipset
    Ipset,
    /// All of them
    All,
}

#[derive(Debug, Args)]
pub(super) struct ShowArgs {
    #[command(flatten)]
    pub(super) target: Target,
    /// Which part of the kernel
    #[arg(long, value_enum, default_value_t = ShowEngine::All)]
    pub(super) engine: ShowEngine,
    /// Print JSON
    #[arg(long)]
    pub(super) json: bool,
}

#[derive(Debug, Args)]
pub(super) struct CleanArgs {
    #[command(flatten)]
    pub(super) target: Target,
    /// From both engines, also the one that is not in use; this is so without the flag too
    #[arg(long)]
    pub(super) all_engines: bool,
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
    /// Whose text it is [default: found from the text]
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
    /// Judge this job; may be repeated [default: all]
    #[arg(long, value_enum)]
    pub(super) job: Vec<JobArg>,
    /// Print JSON; with --bundle the manifest
    #[arg(long)]
    pub(super) json: bool,
    /// Write a report of this node for support, without secrets, as one tar file ("-" is stdout)
    #[arg(long, value_name = "FILE", conflicts_with = "job")]
    pub(super) bundle: Option<PathBuf>,
    /// A further network namespace whose rules go into the report, by its path
    #[arg(long, value_name = "PATH", requires = "bundle", conflicts_with = "pid")]
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
    /// Ambient mode by eBPF
    Ebpf,
}

#[derive(Debug, Args)]
pub(super) struct DemoArgs {
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
    #[command(
        after_help = "Example:\n  weir cni add --conf 10-net.conflist --netns /run/netns/pod --id c1 \\\n    --args 'K8S_POD_NAMESPACE=shop;K8S_POD_NAME=web' --bin-dir /opt/cni/bin"
    )]
    Add(CniArgs),
    /// Check an attachment
    Check(CniArgs),
    /// Detach: every plugin in reverse order; twice is success
    Del(CniArgs),
    /// Let plugins forget all attachments except those that are named
    Gc(GcArgs),
    /// Ask the plugins whether they could take an ADD
    Status(ListArgs),
    /// Ask the plugins which versions of the protocol they speak
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
    #[arg(long, value_name = "DIR", default_value = weir_cni::runtime::DEFAULT_CACHE_DIR)]
    pub(super) cache_dir: PathBuf,
}

#[derive(Debug, Args)]
pub(super) struct CniArgs {
    #[command(flatten)]
    pub(super) list: ListArgs,
    /// The network namespace by its path; for `del` it may be empty
    #[arg(long, value_name = "PATH", default_value = "")]
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

#[derive(Debug, Args)]
pub(super) struct GcArgs {
    #[command(flatten)]
    pub(super) list: ListArgs,
    /// An attachment that stays; may be repeated
    #[arg(long, value_name = "ID/IFNAME")]
    pub(super) keep: Vec<String>,
}
